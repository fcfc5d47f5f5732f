#include "launcher/look/show_page.h"

#include <cstdio>

#include <poll.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "launcher/look/plain_text.h"

namespace pdjob::launcher {
namespace {

constexpr int kWatchMilliseconds = 1000;
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

}  // namespace

int show_page(StatusForm form, ShowMode mode, const std::function<Result<std::string>()>& page) {
  const bool looks = mode == ShowMode::kWatch && form == StatusForm::kText;
  const bool over_itself = looks && isatty(1) == 1;
  for (;;) {
    const Result<std::string> answer = page();
    if (!answer) {
      std::fprintf(stderr, "pdjob: %s\n", plain_text(answer.error().message).c_str());
      return kExitFailed;
    }
    const std::string text = plain_text(*answer);
    std::fputs((over_itself ? kClearScreen + text : text + (looks ? "\n" : "")).c_str(), stdout);
    if (std::fflush(stdout) != 0 || mode == ShowMode::kOnce) {
      return kExitOk;
    }
    ::poll(nullptr, 0, kWatchMilliseconds);
  }
}

}  // namespace pdjob::launcher
