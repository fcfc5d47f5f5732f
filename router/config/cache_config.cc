#include "router/config/cache_config.h"

#include "net/outbound/url.h"

namespace pdjob::router {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

void read_similarity(ConfigReader& in, SimilarityConfig& config) {
  in.field("url", config.url,
           {"Who embeds prompts, as http://host:port or https://host: anything that serves "
            "/v1/embeddings. Empty: "
            "only equal requests are answered from the cache."});
  in.field("model", config.model, {"The model that it is asked for; may be empty."});
  in.field("threshold", config.threshold,
           {"Cosine of two prompts from which the answer of one does for the other."},
           {.min = 0.5, .max = 1});
  in.field("vectors_max", config.vectors_max,
           {"Answers that are remembered with a vector; those used longest ago go first."},
           {.min = 1, .max = limits::kCachedVectorsMax});
  in.field("timeout", config.timeout,
           {"A request waits this long for its vector, and then goes to the workers."},
           {.min = milliseconds(1), .max = seconds(10)});
  in.path("ca_file", config.ca_file,
          {"Certificates of the authorities that an https url is checked against. Empty: the "
           "system's."});
  if (config.url.empty()) {
    return;
  }
  if (const auto url = net::parse_service_url(config.url); !url) {
    in.fail("url", url.error().message);
  }
}

}  // namespace

void read(ConfigReader& in, CacheConfig& config) {
  in.section("cache", {"Answers that are given again (docs/how-to/response-cache.md)."},
             [&](ConfigReader& section) {
               section.field("bytes_max", config.bytes_max,
                             {"Memory for answers. 0: none is kept.", "bytes"});
               section.field("reply_bytes_max", config.reply_bytes_max,
                             {"A longer answer is not kept.", "bytes"},
                             {.min = 1, .max = limits::kHttpSendQueueBytesMax});
               section.field("ttl", config.ttl, {"An older answer is not given again."},
                             {.min = seconds(1), .max = hours(24 * 30)});
               section.section(
                   "similarity", {"Answers for prompts that mean the same in other words."},
                   [&](ConfigReader& inner) { read_similarity(inner, config.similarity); });
               if (config.bytes_max == 0 && !config.similarity.url.empty()) {
                 section.fail("similarity", "needs a cache: set bytes_max");
               }
             });
}

}  // namespace pdjob::router
