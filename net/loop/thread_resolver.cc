#include "net/loop/thread_resolver.h"

#include <utility>

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/check.h"
#include "common/limits.h"

namespace pdjob::net {

ThreadResolver::ThreadResolver(EventLoop& loop)
    : loop_(loop),
      answered_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      questions_(limits::kNamesLookedUpMax),
      answers_(limits::kNamesLookedUpMax) {
  PDJOB_CHECK(answered_.valid());
  const Status watched = loop_.watch(answered_.get(), EPOLLIN, *this);
  PDJOB_CHECK(watched.has_value());
}

ThreadResolver::~ThreadResolver() {
  loop_.unwatch(answered_.get());
  stopping_ = true;
  questions_.close();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ThreadResolver::look_up(std::string host, uint16_t port, std::function<void(Addresses)> then) {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "resolver");
  }
  if (!questions_.try_push({std::move(host), port, then})) {
    answer({std::move(then), Error{ErrorCode::kOverloaded, "too many names to look up"}});
  }
}

void ThreadResolver::answer(Answer answer) {
  answers_.push_always(std::move(answer));
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t bytes = write(answered_.get(), &one, sizeof one);
}

void ThreadResolver::run() {
  std::vector<Question> questions;
  do {
    questions.clear();
    questions_.wait_and_drain(questions, kNever);
    for (Question& question : questions) {
      if (stopping_) {
        return;
      }
      answer({std::move(question.then),
              resolve(question.host, question.port, HostForm::kNameOrNumeric)});
    }
  } while (!questions.empty());
}

void ThreadResolver::on_ready(uint32_t) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t bytes = read(answered_.get(), &count, sizeof count);
  std::vector<Answer> answers;
  answers_.drain(answers);
  for (Answer& answer : answers) {
    answer.then(std::move(answer.addresses));
  }
}

}  // namespace pdjob::net
