// MergedMetrics: the metrics of several processes as one page in Prometheus' text format. Each
// sample gets the label `process`. Lines that are not in the format are dropped, because an engine
// of another make may write anything. Value.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace pdjob::launcher {

class MergedMetrics {
 public:
  // Adds a process's page. Beyond `bytes_max` in all, further samples are dropped.
  explicit MergedMetrics(size_t bytes_max) : bytes_left_(bytes_max) {}
  void add(std::string_view process, std::string_view page);
  // Families in order of their names, each with one help and one type.
  std::string text() const;

 private:
  struct Family {
    std::string help;
    std::string type;
    std::string samples;
  };

  void add_comment(std::string_view line, std::string& family);
  void add_sample(std::string_view process, std::string_view line, const std::string& family);
  bool take(size_t bytes);

  size_t bytes_left_;
  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace pdjob::launcher
