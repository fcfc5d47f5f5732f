#include "worker/grammar/grammar_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/log.h"
#include "worker/grammar/grammar_helper.h"

namespace pdjob::worker {
namespace {

net::Fd vocabulary_file(const engine::TokenPieces& pieces) {
  net::Fd file(memfd_create("pdjob-vocabulary", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string bytes = engine::write_pieces(pieces);
  for (size_t at = 0; file.valid() && at < bytes.size();) {
    const ssize_t put = write(file.get(), bytes.data() + at, bytes.size() - at);
    if (put <= 0) {
      return {};
    }
    at += static_cast<size_t>(put);
  }
  fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  return file;
}

Error takes_too_much() {
  return {ErrorCode::kInvalidArgument,
          "the grammar or JSON schema takes too much time or memory to compile"};
}

// Says nothing about the grammar, so it must not be kept as a refusal.
Error killed() {
  return {ErrorCode::kOverloaded, "the process that compiles grammars was killed: try again"};
}

// Nothing that a grammar makes the child do ends it by these.
bool ended_from_outside(const net::ChildExit& exit) {
  return exit.signal == SIGKILL || exit.signal == SIGTERM || exit.signal == SIGINT ||
         exit.signal == SIGHUP || exit.signal == SIGQUIT;
}

HelperWord word_of(engine::StructureKind kind) {
  switch (kind) {
    case engine::StructureKind::kSchema:
    case engine::StructureKind::kOpenSchema:
      return HelperWord::kSchema;
    case engine::StructureKind::kToolCalls:
      return HelperWord::kToolCalls;
    case engine::StructureKind::kRegex:
      return HelperWord::kRegex;
    case engine::StructureKind::kGrammar:
      break;
  }
  return HelperWord::kGrammar;
}

}  // namespace

GrammarProcess::GrammarProcess(net::EventLoop& loop, GrammarProgram program,
                               const engine::TokenPieces& pieces)
    : loop_(loop), program_(std::move(program)), vocabulary_(vocabulary_file(pieces)) {}

GrammarProcess::~GrammarProcess() {
  if (channel_.valid()) {
    loop_.unwatch(channel_.get());
  }
  if (deadline_) {
    loop_.cancel(*deadline_);
  }
}

void GrammarProcess::submit(GrammarJob job) {
  jobs_.push_back(std::move(job));
  advance();
}

void GrammarProcess::advance() {
  if (jobs_.empty() || running_) {
    return;
  }
  if (child_ == nullptr) {
    if (const Status started = start(); !started) {
      return lose_child(started.error().message,
                        {ErrorCode::kInternal, "the grammar helper cannot be started"});
    }
  }
  running_ = true;
  ++begun_;
  deadline_ = loop_.call_at(loop_.now() + program_.deadline, [this] {
    deadline_.reset();
    lose_child("no answer in time",
               {ErrorCode::kOverloaded, "compiling the grammar or JSON schema took too long"});
  });
  if (ready_) {
    send_job();
  }
}

Status GrammarProcess::start() {
  int ends[2];
  if (!vocabulary_.valid() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return system_error("socketpair");
  }
  net::Fd ours(ends[0]);
  const net::Fd theirs(ends[1]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  // The library's output may contain client data, so it goes to /dev/null.
  const net::Fd nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  std::vector<std::string> arguments = program_.arguments;
  arguments.push_back(std::to_string(theirs.get()));
  arguments.push_back(std::to_string(vocabulary_.get()));
  ++children_;
  PDJOB_TRY(child_,
            net::ChildProcess::start(loop_,
                                     {.program = program_.path,
                                      .arguments = arguments,
                                      .inherited = {theirs.get(), vocabulary_.get()},
                                      .output = nowhere.get()},
                                     [this](const net::ChildExit& exit) { on_exit(exit); }));
  PDJOB_TRY_STATUS(loop_.watch(ours.get(), EPOLLIN | EPOLLOUT | EPOLLET, *this));
  channel_ = std::move(ours);
  return ok();
}

void GrammarProcess::send_job() {
  const GrammarJob& job = jobs_.front();
  const auto size = static_cast<uint32_t>(job.checked.size() + 1);
  unsent_.append(reinterpret_cast<const char*>(&size), sizeof size);
  unsent_ += static_cast<char>(word_of(job.kind));
  unsent_ += job.checked;
  write_more();
}

void GrammarProcess::write_more() {
  while (!unsent_.empty()) {
    const ssize_t put = ::send(channel_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (put <= 0) {
      return;  // Retried when the socket is writable; or the child has ended.
    }
    unsent_.erase(0, static_cast<size_t>(put));
  }
}

// Returns false if the input is too long to be an answer.
bool GrammarProcess::read_more() {
  char buffer[64 * limits::kKiB];
  for (;;) {
    const ssize_t got = recv(channel_.get(), buffer, sizeof buffer, 0);
    if (got <= 0) {
      return true;
    }
    received_.append(buffer, static_cast<size_t>(got));
    if (received_.size() > limits::kCompiledGrammarBytesMax + sizeof buffer) {
      return false;
    }
  }
}

void GrammarProcess::on_ready(uint32_t /*epoll_events*/) {
  write_more();
  if (!read_more()) {
    return distrust("its answer is too long");
  }
  take_frames();
}

void GrammarProcess::take_frames() {
  while (received_.size() > kHelperHeadBytes) {
    uint32_t size = 0;
    std::memcpy(&size, received_.data(), sizeof size);
    if (size == 0 || size > limits::kCompiledGrammarBytesMax + 1) {
      return distrust("its answer is none");
    }
    if (received_.size() < kHelperHeadBytes + size) {
      return;
    }
    const char word = received_[kHelperHeadBytes];
    std::string text = received_.substr(kHelperHeadBytes + 1, size - 1);
    received_.erase(0, kHelperHeadBytes + size);
    take_frame(word, std::move(text));
  }
}

void GrammarProcess::take_frame(char word, std::string text) {
  const bool says_more = !received_.empty();
  if (word == static_cast<char>(HelperWord::kReady) && !ready_ && !says_more) {
    ready_ = true;
    if (running_) {
      send_job();
    }
    return;
  }
  const bool compiled = word == static_cast<char>(HelperWord::kCompiled);
  if (!ready_ || !running_ || (!compiled && word != static_cast<char>(HelperWord::kRefused))) {
    return distrust("its answer is none");
  }
  has_answered_ = true;
  if (says_more) {
    forget_child();  // Otherwise the rest would answer the next grammar.
  }
  answer(compiled ? Result<std::string>(std::move(text))
                  : Error{ErrorCode::kInvalidArgument, std::move(text)});
}

void GrammarProcess::on_exit(const net::ChildExit& exit) {
  const uint64_t child = children_;
  const uint64_t job = begun_;
  // Its answer may be on its way before its death.
  if (channel_.valid() && read_more()) {
    take_frames();
  }
  if (child != children_) {
    return;  // Its answer was none, and another child has its place.
  }
  if (!ready_ || !running_) {
    return lose_child(exit.how, takes_too_much());
  }
  // A grammar that began after the last answer was never seen by this child.
  const bool seen = job == begun_;
  // Its CPU time is that of one grammar alone: of this one if it has answered no other.
  const bool ended_it = exit.signal == SIGXCPU && !has_answered_;
  if (seen && (ended_it || jobs_.front().tried)) {
    return lose_child(exit.how, ended_from_outside(exit) ? killed() : takes_too_much());
  }
  retry(exit.how, seen);
}

// The child wrote something else than an answer. An earlier grammar may be the cause.
void GrammarProcess::distrust(const std::string& how) {
  const bool has_seen_others = running_ && has_answered_;
  if (has_seen_others && !jobs_.front().tried) {
    retry(how, /*tried=*/true);
  } else {
    lose_child(how, takes_too_much());
  }
}

// The end of the child may have another cause than its grammar. A new child has seen no other one.
void GrammarProcess::retry(const std::string& how, bool tried) {
  log::warn("the grammar helper ended (" + how + "): another one compiles grammar " +
            jobs_.front().digest);
  jobs_.front().tried = tried;
  forget_child();
  end_job();
  advance();
}

void GrammarProcess::forget_child() {
  if (channel_.valid()) {
    loop_.unwatch(channel_.get());
  }
  channel_.reset();
  child_.reset();
  ready_ = has_answered_ = false;
  unsent_.clear();
  received_.clear();
}

void GrammarProcess::lose_child(const std::string& how, Error error) {
  const bool was_ready = ready_;
  forget_child();
  if (jobs_.empty() || (!running_ && was_ready)) {
    return;
  }
  log::warn("the grammar helper ended (" + how + "), at grammar " + jobs_.front().digest);
  if (!was_ready && error.code == ErrorCode::kInvalidArgument) {
    error = {ErrorCode::kInternal, "the grammar helper cannot be started"};
  }
  running_ = true;
  answer(std::move(error));
}

void GrammarProcess::end_job() {
  if (deadline_) {
    loop_.cancel(*deadline_);
    deadline_.reset();
  }
  running_ = false;
}

void GrammarProcess::answer(Result<std::string> result) {
  end_job();
  const auto then = std::move(jobs_.front().then);
  jobs_.pop_front();
  then(std::move(result));
  advance();
}

}  // namespace pdjob::worker
