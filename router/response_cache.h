// ResponseCache: whole answers of the recent past, by the digest of their request, for each tenant
// its own. Bounded in bytes and in age; what was used longest ago goes first. An answer goes with
// the incarnation of the worker that wrote it, since the next one may have loaded another model.
//
// An answer may be found by what its request meant, too: by the cosine of vectors, among answers of
// the same tenant whose requests were equal but for the question. Pure.
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
#include "router/cache_config.h"
#include "router/worker_table.h"

namespace pdjob::router {

// What is kept of a reply.
struct CachedReply {
  std::string content_type;
  std::string body;
  WorkerId writer;
};

// Is this the body of an answer that came to its natural end? A 200 may be an error that a stream
// tells of in its last event, or a generation that was aborted.
bool is_whole_answer(std::string_view content_type, std::string_view body);

class ResponseCache {
 public:
  struct Key {
    uint32_t tenant = 0;
    std::string digest;  // RequestDigest::whole.
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  // A question in its context, by its meaning.
  struct Meaning {
    std::string context;        // RequestDigest::context.
    std::vector<float> vector;  // Of any length but zero.
  };
  struct Found {
    const CachedReply& reply;  // Until the next call.
    Duration age;
  };

  explicit ResponseCache(const CacheConfig& config) : config_(config) {}

  std::optional<Found> find(const Key& key, Instant now);
  // The nearest one, if it is near enough.
  std::optional<Found> find_similar(uint32_t tenant, const Meaning& meaning, Instant now);
  // Replaces what is there under the key. What is larger than the whole cache is not kept.
  void store(const Key& key, CachedReply reply, std::optional<Meaning> meaning, Instant now);
  // Drops what workers wrote that are not in the table.
  void keep_writers(const WorkerTable& workers);

  size_t entries() const { return entries_.size(); }
  size_t vectors() const { return vectors_; }
  uint64_t bytes() const { return bytes_; }

 private:
  // Questions that may answer each other: their vectors have the same number of dimensions.
  struct Place {
    uint32_t tenant = 0;
    std::string context;
    size_t dimensions = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Entry {
    Key key;
    CachedReply reply;
    Instant stored_at;
    uint64_t age = 0;  // Its place in by_age_.
    uint64_t bytes = 0;
    std::optional<Place> place;  // Of its vector, and the row there.
    size_t row = 0;
  };
  using Entries = std::list<Entry>;
  struct Neighbours {
    std::vector<float> vectors;  // Of length 1, row after row, each filled up to whole lanes.
    std::vector<Entries::iterator> entries;
  };

  Found use(Entries::iterator entry, Instant now);
  void index(Entries::iterator entry, uint32_t tenant, const Meaning& meaning);
  void unindex(const Entry& entry);
  void erase(Entries::iterator entry);
  void drop_old(Instant now);

  const CacheConfig config_;
  Entries entries_;  // What was used last is first.
  std::map<Key, Entries::iterator> by_key_;
  std::map<uint64_t, Entries::iterator> by_age_;  // In order of arrival.
  std::map<Place, Neighbours> places_;
  uint64_t stored_ = 0;
  uint64_t bytes_ = 0;
  size_t vectors_ = 0;
};

}  // namespace pdjob::router
