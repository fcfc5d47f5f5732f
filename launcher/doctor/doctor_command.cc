#include "launcher/doctor/doctor_command.h"

#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/statvfs.h>
#include <sys/timex.h>

#include "common/exit_code.h"
#include "common/os/read_text.h"
#include "launcher/clusters/topology_here.h"
#include "launcher/doctor/findings.h"
#include "net/loop/child_process.h"

namespace pdjob::launcher {
namespace {

constexpr Duration kProbeAnswers = std::chrono::seconds(60);  // Python packages import slowly.
constexpr Duration kToolAnswers = std::chrono::seconds(5);

// The Python that a script names in its first line. Empty: it names none.
std::string python_of_script(const std::string& script) {
  const std::string text = read_text(script);
  if (!text.starts_with("#!/")) {
    return "";
  }
  const std::string line = text.substr(2, text.find('\n') - 2);
  const std::string program = line.substr(0, line.find(' '));
  return program.find("python") == std::string::npos ? "" : program;
}

// "1.18.0" of "# Library version: 1.18.0".
std::string ucx_version() {
  constexpr std::string_view kName = "ibrary version: ";
  const std::string text = printed_by("ucx_info", {"-v"}, kToolAnswers);
  const size_t at = text.find(kName);
  if (at == std::string::npos) {
    return "";
  }
  const std::string rest = text.substr(at + kName.size());
  return rest.substr(0, rest.find_first_of(" \n"));
}

std::optional<uint64_t> free_bytes(const char* folder) {
  struct statvfs at{};
  if (statvfs(folder, &at) != 0) {
    return std::nullopt;
  }
  return uint64_t{at.f_bavail} * at.f_frsize;
}

std::optional<bool> clock_is_synchronized() {
  timex clock{};
  const int state = adjtimex(&clock);
  if (state < 0) {
    return std::nullopt;
  }
  return state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
}

std::vector<PythonFact> ask_pythons(const std::string& vllm) {
  std::vector<PythonFact> facts;
  std::set<std::string> asked;
  for (const std::string& named : {python_of_script(vllm), std::string("python3")}) {
    const auto program = named.empty() ? Result<std::string>(Error{ErrorCode::kUnavailable, ""})
                                       : net::find_program(named);
    if (program && asked.insert(*program).second) {
      facts.push_back(
          python_fact(*program, printed_by(*program, {"-c", kPythonProbe}, kProbeAnswers)));
    }
  }
  return facts;
}

}  // namespace

int examine_machine(DoctorForm form) {
  const auto vllm = net::find_program("vllm");
  DoctorFacts facts{.files = read_machine_files(),
                    .share = machine_share(),
                    .vllm = vllm ? *vllm : "",
                    .ucx = ucx_version(),
                    .shared_memory_free = free_bytes("/dev/shm"),
                    .clock_synchronized = clock_is_synchronized()};
  facts.pythons = ask_pythons(facts.vllm);
  const std::vector<Finding> findings = findings_of(facts);
  const std::string text =
      form == DoctorForm::kJson ? findings_json(findings) : findings_text(findings);
  std::fputs(text.c_str(), stdout);
  return worst(findings) == Level::kProblem ? kExitFailed : kExitOk;
}

}  // namespace pdjob::launcher
