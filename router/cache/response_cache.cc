#include "router/cache/response_cache.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

namespace pdjob::router {
namespace {

// Independent sums let the compiler vectorize: float addition is not associative.
constexpr size_t kLanes = 16;
// An entry's overhead beside its texts, in bytes: the nodes of a list and of two maps.
constexpr uint64_t kEntryBytes = 400;

size_t row_length(size_t dimensions) { return (dimensions + kLanes - 1) / kLanes * kLanes; }

float dot(const float* a, const float* b, size_t length) {
  std::array<float, kLanes> sums{};
  for (size_t at = 0; at < length; at += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += a[at + lane] * b[at + lane];
    }
  }
  float sum = 0;
  for (const float one : sums) {
    sum += one;
  }
  return sum;
}

// Returns the vector with length 1, padded to whole lanes; empty if it has no direction.
std::vector<float> direction_of(std::span<const float> vector) {
  double squares = 0;
  for (const float one : vector) {
    squares += static_cast<double>(one) * one;
  }
  if (!std::isfinite(squares) || squares <= 0) {
    return {};
  }
  std::vector<float> row(vector.begin(), vector.end());
  row.resize(row_length(vector.size()));
  const auto scale = static_cast<float>(1 / std::sqrt(squares));
  for (float& one : row) {
    one *= scale;
  }
  return row;
}

// Each finished choice has a finish_reason.
bool ends_naturally(std::string_view body) {
  constexpr std::string_view kReason = R"("finish_reason":)";
  constexpr std::array<std::string_view, 6> kNatural = {"null",
                                                        R"("stop")",
                                                        R"("length")",
                                                        R"("tool_calls")",
                                                        R"("function_call")",
                                                        R"("content_filter")"};
  size_t at = body.find(kReason);
  if (at == std::string_view::npos) {
    return false;
  }
  while (at != std::string_view::npos) {
    at = std::min(body.find_first_not_of(' ', at + kReason.size()), body.size());
    const std::string_view value = body.substr(at);
    if (std::ranges::none_of(kNatural, [&](auto word) { return value.starts_with(word); })) {
      return false;
    }
    at = body.find(kReason, at);
  }
  return true;
}

}  // namespace

bool is_whole_answer(std::string_view content_type, std::string_view body) {
  if (!ends_naturally(body)) {
    return false;
  }
  if (!content_type.starts_with("text/event-stream")) {
    return content_type.starts_with("application/json");
  }
  constexpr std::string_view kError = R"("error":)";
  const size_t end = body.find_last_not_of("\r\n");
  return end != std::string_view::npos && body.substr(0, end + 1).ends_with("data: [DONE]") &&
         body.find(kError) == std::string_view::npos;
}

std::optional<ResponseCache::Found> ResponseCache::find(const Key& key, Instant now) {
  drop_old(now);
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? std::nullopt : std::optional(use(found->second, now));
}

std::optional<ResponseCache::Found> ResponseCache::find_similar(uint32_t tenant,
                                                                const Meaning& meaning,
                                                                Instant now) {
  drop_old(now);
  const std::vector<float> wanted = direction_of(meaning.vector);
  const auto place = places_.find({tenant, meaning.context, meaning.vector.size()});
  if (place == places_.end() || wanted.empty()) {
    return std::nullopt;
  }
  const Neighbours& neighbours = place->second;
  size_t nearest = 0;
  float cosine = -1;
  for (size_t row = 0; row < neighbours.entries.size(); ++row) {
    const float* const vector = neighbours.vectors.data() + row * wanted.size();
    const float one = dot(wanted.data(), vector, wanted.size());
    if (one > cosine) {
      cosine = one;
      nearest = row;
    }
  }
  if (cosine < static_cast<float>(config_.similarity.threshold)) {
    return std::nullopt;
  }
  return use(neighbours.entries[nearest], now);
}

ResponseCache::Found ResponseCache::use(Entries::iterator entry, Instant now) {
  entries_.splice(entries_.begin(), entries_, entry);
  return {entry->reply, now - entry->stored_at};
}

void ResponseCache::store(const Key& key, CachedReply reply, std::optional<Meaning> meaning,
                          Instant now) {
  drop_old(now);
  if (const auto known = by_key_.find(key); known != by_key_.end()) {
    erase(known->second);
  }
  const uint64_t bytes =
      kEntryBytes + 2 * key.digest.size() + reply.content_type.size() + reply.body.size() +
      (meaning ? meaning->context.size() + row_length(meaning->vector.size()) * sizeof(float) : 0);
  if (bytes > config_.bytes_max) {
    return;
  }
  entries_.push_front(
      {.key = key, .reply = std::move(reply), .stored_at = now, .age = stored_++, .bytes = bytes});
  const auto entry = entries_.begin();
  bytes_ += bytes;
  by_key_.emplace(key, entry);
  by_age_.emplace(entry->age, entry);
  if (meaning) {
    index(entry, key.tenant, *meaning);
  }
  while (bytes_ > config_.bytes_max || vectors_ > config_.similarity.vectors_max) {
    erase(std::prev(entries_.end()));
  }
}

void ResponseCache::index(Entries::iterator entry, uint32_t tenant, const Meaning& meaning) {
  const std::vector<float> row = direction_of(meaning.vector);
  if (row.empty()) {
    return;
  }
  entry->place = Space{tenant, meaning.context, meaning.vector.size()};
  Neighbours& neighbours = places_[*entry->place];
  entry->row = neighbours.entries.size();
  neighbours.vectors.insert(neighbours.vectors.end(), row.begin(), row.end());
  neighbours.entries.push_back(entry);
  vectors_ += 1;
}

// The last row moves into the removed one's place.
void ResponseCache::unindex(const Entry& entry) {
  const auto place = places_.find(*entry.place);
  Neighbours& neighbours = place->second;
  const size_t length = row_length(entry.place->dimensions);
  const size_t last = neighbours.entries.size() - 1;
  if (entry.row != last) {
    const auto rows = neighbours.vectors.begin();
    std::copy_n(rows + static_cast<ptrdiff_t>(last * length), length,
                rows + static_cast<ptrdiff_t>(entry.row * length));
    neighbours.entries[entry.row] = neighbours.entries[last];
    neighbours.entries[entry.row]->row = entry.row;
  }
  neighbours.vectors.resize(last * length);
  neighbours.entries.pop_back();
  if (neighbours.entries.empty()) {
    places_.erase(place);
  }
  vectors_ -= 1;
}

void ResponseCache::erase(Entries::iterator entry) {
  if (entry->place) {
    unindex(*entry);
  }
  bytes_ -= entry->bytes;
  by_key_.erase(entry->key);
  by_age_.erase(entry->age);
  entries_.erase(entry);
}

void ResponseCache::drop_old(Instant now) {
  while (!by_age_.empty() && now - by_age_.begin()->second->stored_at >= config_.ttl) {
    erase(by_age_.begin()->second);
  }
}

void ResponseCache::keep_writers(const WorkerTable& workers) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (workers.find(entry->reply.writer) == nullptr) {
      erase(entry);
    }
    entry = next;
  }
}

}  // namespace pdjob::router
