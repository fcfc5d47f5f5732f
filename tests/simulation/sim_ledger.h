// SimLedger: a simulated job's ledger and its launcher's number, on the disk of the launcher's
// machine. It keeps them as JobFolder does: the number passes a fence, and two files take turns.
// The bytes are the production code's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/parse_number.h"
#include "launcher/run/ledger.h"
#include "tests/simulation/sim_disk.h"

namespace pdjob::simulation {

class SimLedger {
 public:
  explicit SimLedger(SimDisk& disk) : disk_(disk) {}

  // The ledger as it is on disk, with the next launcher's number, which is on disk from now on.
  launcher::JobLedger begin() {
    launcher::JobLedger ledger = read();
    ledger.launcher = std::max(ledger.launcher, number()) + 1;
    put(kNumber, std::to_string(ledger.launcher));
    return ledger;
  }
  // False: a later launcher has taken over, and nothing is written.
  bool save(const launcher::JobLedger& ledger) {
    if (number() > ledger.launcher) {
      return false;
    }
    put(kLedger, encode(ledger));
    return true;
  }
  launcher::JobLedger read() const {
    const std::string bytes = disk_.content(kLedger);
    if (bytes.empty()) {
      return {};
    }
    auto ledger = launcher::decode_ledger(bytes);
    PDJOB_CHECK(ledger, ledger.error().message);
    return *std::move(ledger);
  }
  uint64_t number() const { return parse_number<uint64_t>(disk_.content(kNumber)).value_or(0); }

 private:
  static constexpr const char* kLedger = "ledger";
  static constexpr const char* kNumber = "lease";

  void put(const std::string& name, const std::string& bytes) {
    const std::string spare = name + ".spare";
    disk_.cut(spare, 0);
    disk_.append(spare, bytes);
    disk_.sync(spare);
    disk_.rename(spare, name);
  }

  SimDisk& disk_;
};

}  // namespace pdjob::simulation
