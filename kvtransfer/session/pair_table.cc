#include "kvtransfer/session/pair_table.h"

#include <iterator>

#include "common/limits.h"

namespace pdjob::kvtransfer {

const char* to_string(FailureCause cause) {
  static constexpr const char* kNames[] = {"cancelled", "peer",   "link",           "timeout",
                                           "stalled",   "digest", "broken_promise", "local"};
  static_assert(std::size(kNames) == kFailureCauses);
  return kNames[static_cast<size_t>(cause)];
}

const char* to_string(StallCause cause) {
  static constexpr const char* kNames[] = {"push", "arrival", "payload", "silence", "cancel"};
  static_assert(std::size(kNames) == kStallCauses);
  return kNames[static_cast<size_t>(cause)];
}

const char* to_string(Direction direction) {
  return direction == Direction::kSends ? "sends" : "receives";
}

const char* to_string(PairStats::State state) {
  static constexpr const char* kNames[] = {"opening", "open", "lost"};
  return kNames[static_cast<size_t>(state)];
}

void PairTable::link_made(LinkId link, const Key& key, uint64_t epoch, Instant now) {
  forget(now);
  if (rows_.size() >= 2 * limits::kLinksMax && !rows_.contains(key)) {
    return;  // Links are bounded; only rows of lost links can reach this number.
  }
  Entry& row = rows_[key];
  row.stats.peer = key.peer;
  row.stats.transport = key.transport;
  row.stats.direction = key.direction;
  row.stats.epoch = epoch;
  row.links[link] = false;
  row.lost = kNever;
  keys_[link] = key;
}

void PairTable::link_opened(LinkId link, Privacy privacy) {
  if (Entry* row = find(link)) {
    row->links.at(link) = true;
    ++row->stats.links_opened;
    row->stats.encrypted = privacy == Privacy::kEncrypted;
  }
}

void PairTable::link_lost(LinkId link, Instant now) {
  if (Entry* row = find(link)) {
    row->links.erase(link);
    row->lost = row->links.empty() ? now : kNever;
  }
  keys_.erase(link);
}

void PairTable::done(LinkId link, uint64_t bytes, Duration busy) {
  if (Entry* row = find(link)) {
    ++row->stats.transfers;
    row->stats.bytes += bytes;
    row->stats.busy += busy;
  }
}

bool PairTable::failed(LinkId link, FailureCause cause, Instant now) {
  Entry* row = find(link);
  if (row == nullptr) {
    return false;
  }
  ++row->stats.failures[static_cast<size_t>(cause)];
  if (cause != FailureCause::kDigest) {
    return false;
  }
  row->digest_errors.push_back(now);
  if (row->digest_errors.size() > kSuspectErrors) {
    row->digest_errors.pop_front();
  }
  return is_suspect(*row, now);
}

void PairTable::stalled(LinkId link, StallCause cause) {
  if (Entry* row = find(link)) {
    ++row->stats.stalls[static_cast<size_t>(cause)];
  }
}

std::vector<PairStats> PairTable::rows(Instant now, std::vector<std::vector<LinkId>>& links) {
  forget(now);
  std::vector<PairStats> all;
  for (const auto& [key, row] : rows_) {
    PairStats& stats = all.emplace_back(row.stats);
    stats.suspect = is_suspect(row, now);
    stats.state = row.links.empty() ? PairStats::State::kLost : PairStats::State::kOpening;
    std::vector<LinkId>& of_row = links.emplace_back();
    for (const auto& [link, open] : row.links) {
      of_row.push_back(link);
      stats.state = open ? PairStats::State::kOpen : stats.state;
    }
  }
  return all;
}

PairTable::Entry* PairTable::find(LinkId link) {
  const auto key = keys_.find(link);
  const auto row = key == keys_.end() ? rows_.end() : rows_.find(key->second);
  return row == rows_.end() ? nullptr : &row->second;
}

bool PairTable::is_suspect(const Entry& row, Instant now) {
  return row.digest_errors.size() == kSuspectErrors &&
         now - row.digest_errors.front() <= kSuspectWindow;
}

void PairTable::forget(Instant now) {
  std::erase_if(rows_, [now](const auto& entry) {
    return entry.second.lost != kNever && now - entry.second.lost > kForgetAfter;
  });
}

}  // namespace pdjob::kvtransfer
