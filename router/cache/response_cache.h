// ResponseCache: recent whole answers by the digest of their request, separate for each tenant. It
// is bounded in bytes and in age, and evicts the least recently used answer. An answer is dropped
// when the incarnation of its worker goes: the next one may have loaded another model.
//
// An answer may also be found by similarity, that is, by the cosine of vectors. It must be of the
// same tenant, and its request must be equal except for the question. Pure.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/id.h"
#include "common/time.h"
#include "router/config/cache_config.h"
#include "router/policies/worker_table.h"

namespace pdjob::router {

// The cached part of a reply.
struct CachedReply {
  std::string content_type;
  std::string body;
  WorkerId writer;
};

// Returns true if the answer came to its natural end. A 200 may carry an error in the last event of
// a stream, or an aborted generation.
bool is_whole_answer(std::string_view content_type, std::string_view body);

class ResponseCache {
 public:
  struct Key {
    uint32_t tenant = 0;
    std::string digest;  // RequestDigest::whole.
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  // A question in its context, for the search by similarity.
  struct Meaning {
    std::string context;        // RequestDigest::context.
    std::vector<float> vector;  // Not empty.
  };
  struct Found {
    const CachedReply& reply;  // Valid until the next call.
    Duration age;
  };

  explicit ResponseCache(const CacheConfig& config) : config_(config) {}

  std::optional<Found> find(const Key& key, Instant now);
  // Returns the nearest answer within the threshold.
  std::optional<Found> find_similar(uint32_t tenant, const Meaning& meaning, Instant now);
  // Replaces the entry of this key. An answer larger than the whole cache is not kept.
  void store(const Key& key, CachedReply reply, std::optional<Meaning> meaning, Instant now);
  // Drops answers whose workers are not in the table.
  void keep_writers(const WorkerTable& workers);

  size_t entries() const { return entries_.size(); }
  size_t vectors() const { return vectors_; }
  uint64_t bytes() const { return bytes_; }

 private:
  // Questions that are compared with each other: their vectors have the same number of dimensions.
  struct Space {
    uint32_t tenant = 0;
    std::string context;
    size_t dimensions = 0;
    friend auto operator<=>(const Space&, const Space&) = default;
  };
  struct Entry {
    Key key;
    CachedReply reply;
    Instant stored_at;
    uint64_t age = 0;  // Its key in by_age_.
    uint64_t bytes = 0;
    std::optional<Space> place;  // Of its vector, with the row there.
    size_t row = 0;
  };
  using Entries = std::list<Entry>;
  struct Neighbours {
    std::vector<float> vectors;  // Normalized; each row padded to whole lanes.
    std::vector<Entries::iterator> entries;
  };

  Found use(Entries::iterator entry, Instant now);
  void index(Entries::iterator entry, uint32_t tenant, const Meaning& meaning);
  void unindex(const Entry& entry);
  void erase(Entries::iterator entry);
  void drop_old(Instant now);

  const CacheConfig config_;
  Entries entries_;  // Most recently used first.
  std::map<Key, Entries::iterator> by_key_;
  std::map<uint64_t, Entries::iterator> by_age_;  // In order of arrival.
  std::map<Space, Neighbours> places_;
  uint64_t stored_ = 0;
  uint64_t bytes_ = 0;
  size_t vectors_ = 0;
};

}  // namespace pdjob::router
