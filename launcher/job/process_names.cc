#include "launcher/job/process_names.h"

#include <algorithm>

namespace pdjob::launcher {

std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() <= kNamed ? text
                                : text + " and " + std::to_string(names.size() - kNamed) + " more";
}

}  // namespace pdjob::launcher
