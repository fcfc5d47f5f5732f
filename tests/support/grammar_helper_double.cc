// Replaces `pdjob compile-grammar`. With "real" it is the real one. Otherwise it attacks its
// worker, as a broken library or one under a client's control could.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "worker/grammar/grammar_helper.h"

namespace {

std::string frame_of(pdjob::worker::HelperWord word, uint32_t size, const std::string& text) {
  std::string frame(reinterpret_cast<const char*>(&size), sizeof size);
  frame += static_cast<char>(word);
  return frame + text;
}

void say(int channel, pdjob::worker::HelperWord word, uint32_t size, const std::string& text) {
  const std::string frame = frame_of(word, size, text);
  for (size_t at = 0; at < frame.size();) {
    const ssize_t put = write(channel, frame.data() + at, frame.size() - at);
    if (put <= 0) {
      _exit(1);
    }
    at += static_cast<size_t>(put);
  }
}

// True for the process that makes the file.
bool is_first_of_all(const char* file) {
  const int made = open(file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  return made >= 0;
}

}  // namespace

int main(int argc, char** argv) {
  using pdjob::worker::HelperWord;
  const std::string mode = argc > 3 ? argv[1] : "";
  const int channel = std::stoi(argv[argc - 2]);
  if (mode == "real") {
    return pdjob::worker::run_grammar_helper(channel, std::stoi(argv[argc - 1]));
  }
  if (mode == "never ready") {
    return 1;
  }
  say(channel, HelperWord::kReady, 1, "");
  char buffer[4096];
  for (bool first = true; read(channel, buffer, sizeof buffer) > 0; first = false) {
    if (mode == "unknown word" || (mode == "unknown word later" && !first)) {
      say(channel, static_cast<HelperWord>(99), 1, "");
    } else if (mode == "crash" || (mode == "crash later" && !first)) {
      std::abort();
    } else if (mode == "killed" || (mode == "killed once" && is_first_of_all(argv[2]))) {
      raise(SIGKILL);
    } else if (mode == "answer, then SIGXCPU") {
      say(channel, HelperWord::kRefused, 5, "seen");
      raise(SIGXCPU);
    } else if (mode == "answer twice") {
      say(channel, HelperWord::kRefused, 5, "seen" + frame_of(HelperWord::kRefused, 4, "lie"));
    } else if (mode == "crash later" || mode == "killed once" || mode == "unknown word later") {
      say(channel, HelperWord::kRefused, 5, "seen");
    } else if (mode == "lie") {
      say(channel, HelperWord::kCompiled, 5, "none");
    } else if (mode == "endless") {
      for (;;) {
        say(channel, HelperWord::kCompiled, 32U << 20U, std::string(1U << 20U, 'x'));
      }
    } else if (mode == "no size") {
      say(channel, HelperWord::kCompiled, 0, "");
    } else if (mode == "huge size") {
      say(channel, HelperWord::kCompiled, UINT32_MAX, "");
    }  // In mode "hang" it never answers.
  }
  return 0;
}
