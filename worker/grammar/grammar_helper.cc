#include "worker/grammar/grammar_helper.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/limits.h"
#include "engine/grammar/grammar_compiler.h"

extern char** environ;

namespace pdjob::worker {
namespace {

void limit(int resource, rlim_t soft, rlim_t hard) {
  const rlimit wanted{.rlim_cur = soft, .rlim_max = hard};
  setrlimit(static_cast<__rlimit_resource>(resource), &wanted);
}

// Sanitizers reserve terabytes of addresses, and open pipes to test whether memory is readable.
constexpr bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return true;
#else
  return false;
#endif
#else
  return false;
#endif
}

// The address space in use when the program started, in bytes; about a gigabyte with CUDA's
// libraries.
rlim_t addresses_taken() {
  char text[64] = {};
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
  close(file);
  return got <= 0 ? 0 : std::strtoull(text, nullptr, 10) * static_cast<rlim_t>(getpagesize());
}

// Closes [from, to].
void close_all(int from, int to) {
  if (from <= to) {
    syscall(SYS_close_range, from, to, 0);
  }
}

void give_up_everything_but(int channel, int vocabulary) {
  const auto [low, high] = std::minmax(channel, vocabulary);
  close_all(STDERR_FILENO + 1, low - 1);
  close_all(low + 1, high - 1);
  syscall(SYS_close_range, high + 1, ~0U, 0);
  // The library must not see the parent's environment.
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::memset(*entry, 0, std::strlen(*entry));
  }
  clearenv();
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  limit(RLIMIT_CORE, 0, 0);
  limit(RLIMIT_FSIZE, 0, 0);
  limit(RLIMIT_STACK, limits::kGrammarHelperStackMax, limits::kGrammarHelperStackMax);
  if (!is_sanitized()) {
    const rlim_t most = addresses_taken() + limits::kGrammarHelperMemoryMax;
    limit(RLIMIT_AS, most, most);
  }
}

// Bars the process from opening files and starting processes.
void open_nothing() {
  if (!is_sanitized()) {
    limit(RLIMIT_NOFILE, 0, 0);
  }
  limit(RLIMIT_NPROC, 0, 0);
}

// The kernel ends this process if the next grammar exceeds its CPU time.
void allow_cpu_time() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto spent = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1);
  limit(RLIMIT_CPU, spent + limits::kGrammarHelperCpuMax.count(), RLIM_INFINITY);
}

bool read_all(int channel, char* into, size_t size) {
  while (size > 0) {
    const ssize_t got = read(channel, into, size);
    if (got <= 0 && !(got < 0 && errno == EINTR)) {
      return false;
    }
    into += std::max<ssize_t>(got, 0);
    size -= static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  return true;
}

bool write_all(int channel, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(channel, bytes.data(), bytes.size());
    if (put <= 0 && !(put < 0 && errno == EINTR)) {
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(put, 0)));
  }
  return true;
}

bool send(int channel, HelperWord word, std::string_view text) {
  const auto size = static_cast<uint32_t>(text.size() + 1);
  std::string head(reinterpret_cast<const char*>(&size), sizeof size);
  head += static_cast<char>(word);
  return write_all(channel, head) && write_all(channel, text);
}

// Returns the word and its text. Empty if the channel is closed or the size is invalid.
std::optional<std::string> receive(int channel) {
  uint32_t size = 0;
  if (!read_all(channel, reinterpret_cast<char*>(&size), sizeof size) || size == 0 ||
      size > limits::kGrammarCheckedBytesMax + 1) {
    return std::nullopt;
  }
  std::string frame(size, '\0');
  return read_all(channel, frame.data(), frame.size()) ? std::optional(frame) : std::nullopt;
}

engine::StructureKind kind_of(HelperWord word) {
  switch (word) {
    case HelperWord::kSchema:
      return engine::StructureKind::kSchema;
    case HelperWord::kToolCalls:
      return engine::StructureKind::kToolCalls;
    case HelperWord::kRegex:
      return engine::StructureKind::kRegex;
    default:
      return engine::StructureKind::kGrammar;
  }
}

Result<engine::TokenPieces> read_vocabulary(int file) {
  struct stat facts{};
  fstat(file, &facts);
  std::string bytes(static_cast<size_t>(facts.st_size), '\0');
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t got = pread(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (got <= 0) {
      return Error{ErrorCode::kCorrupt, "the vocabulary cannot be read"};
    }
    at += static_cast<size_t>(got);
  }
  return engine::read_pieces(bytes);
}

}  // namespace

int run_grammar_helper(int channel, int vocabulary) {
  give_up_everything_but(channel, vocabulary);
  const auto pieces = read_vocabulary(vocabulary);
  if (!pieces) {
    return kExitFailed;
  }
  engine::GrammarCompiler compiler(engine::open_grammar_tokens(*pieces));
  open_nothing();
  if (!send(channel, HelperWord::kReady, "")) {
    return kExitOk;
  }
  while (const auto frame = receive(channel)) {
    const engine::StructureKind kind = kind_of(static_cast<HelperWord>((*frame)[0]));
    allow_cpu_time();
    const auto compiled = compiler.compile(kind, frame->substr(1));
    const bool sent = compiled ? send(channel, HelperWord::kCompiled, *compiled)
                               : send(channel, HelperWord::kRefused, compiled.error().message);
    if (!sent) {
      break;
    }
  }
  return kExitOk;
}

}  // namespace pdjob::worker
