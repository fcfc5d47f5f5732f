#include "launcher/scaling/failing_pairs.h"

#include <algorithm>
#include <set>

namespace pdjob::launcher {

std::vector<FailingWorker> FailingPairs::step(const std::vector<FailingPair>& pairs,
                                              ReplacementPace& pace, Instant now) {
  std::map<std::pair<std::string, std::string>, Instant> told;
  std::map<std::string, std::vector<std::string>> partners;  // Of the engine ids; names.
  for (const FailingPair& pair : pairs) {
    const std::pair key{pair.prefill.engine_id, pair.decode.engine_id};
    const auto before = told_.find(key);
    if (!told.try_emplace(key, before == told_.end() ? now : before->second).second) {
      continue;  // Another router told of it, too.
    }
    partners[pair.prefill.engine_id].push_back(pair.decode.name);
    partners[pair.decode.engine_id].push_back(pair.prefill.name);
  }
  told_ = std::move(told);
  const auto worse = [&](const PairMember& one, const PairMember& other) {
    const size_t many = partners.at(one.engine_id).size();
    const size_t others = partners.at(other.engine_id).size();
    return many != others ? many > others : one.incarnation < other.incarnation;
  };
  std::vector<FailingWorker> found;
  std::set<std::string> done;  // Groups.
  for (const FailingPair& pair : pairs) {
    if (now - told_.at({pair.prefill.engine_id, pair.decode.engine_id}) < kToldFor ||
        !pair.prefill.group_whole || !pair.decode.group_whole ||
        done.contains(pair.prefill.group) || done.contains(pair.decode.group)) {
      continue;
    }
    const bool prefill_goes =
        pair.prefill.has_peer && (!pair.decode.has_peer || worse(pair.prefill, pair.decode));
    const PairMember& one = prefill_goes ? pair.prefill : pair.decode;
    if (!one.has_peer || !pace.allows(one.group, now)) {
      continue;
    }
    pace.replaced(one.group, now);
    done.insert({pair.prefill.group, pair.decode.group});
    found.push_back({.name = one.name,
                     .reason = "goes on failing with " + names_text(partners.at(one.engine_id)) +
                               " (" + pair.why + ")"});
  }
  return found;
}

}  // namespace pdjob::launcher
