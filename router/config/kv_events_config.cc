#include "router/config/kv_events_config.h"

namespace pdjob::router {

void read(ConfigReader& in, KvEventsConfig& config) {
  in.section(
      "kv_events",
      {"For policy prefix_aware: engines say what is in their prefix caches "
       "(docs/how-to/prefix-routing.md)."},
      [&](ConfigReader& section) {
        section.field("own_workers", config.own_workers,
                      {"Listen to the workers of the job, and to pdjob's own workers by address. "
                       "They need no port."});
        section.field(
            "port", config.port,
            {"Where other engines publish (vLLM's --kv-events-config, endpoint), where their URL "
             "does not end in ?kv_events_port=N. 0: none is listened to."});
        section.field(
            "replay_port", config.replay_port,
            {"Where they tell what was missed (replay_endpoint), where their URL does not "
             "say ?kv_replay_port=N. 0: nowhere."});
        section.field("topic", config.topic, {"What the topic of their events begins with."});
        if (config.port == 0 && (section.has("replay_port") || section.has("topic"))) {
          section.fail("port", "is missing: where do workers publish?");
        }
      });
}

}  // namespace pdjob::router
