#include "router/config/rollout_config.h"

#include "net/http/http_client.h"

namespace pdjob::router {

void read(ConfigReader& in, RolloutConfig& config) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  in.path("weights_dir", config.weights_dir,
          {.doc = "A folder on the workers' nodes. A trainer may name the GGUF files below it as "
                  "new weights."});
  in.field(
      "control", config.control,
      {{"own_address", ControlPlace::kOwnAddress}, {"same_address", ControlPlace::kSameAddress}},
      {.doc = "Where a trainer sends its orders. `own_address`: to `rollout.listen`. "
              "`same_address`: to `router.listen`, beside the API."});
  in.field("listen", config.listen, {.doc = "HOST:PORT for orders, with `control: own_address`."});
  in.path("key_file", config.key_file,
          {.doc = "A file with the key that orders must show as Authorization: Bearer KEY. Empty: "
                  "the launcher makes a key, in `control_key` of the job's folder."});
  in.field("open", config.open,
           {.doc = "Orders need no key. Only for trainers that cannot show one, on an address that "
                   "nobody else can reach."});
  in.field("prepare_timeout", config.prepare_timeout,
           {.doc = "How long workers may take to read new weights. Requests run meanwhile."},
           {milliseconds(100), hours(24)});
  in.field("quiesce_timeout", config.quiesce_timeout,
           {.doc = "How long running requests may keep a pause or an update waiting. Then it "
                   "fails, and nothing has changed."},
           {milliseconds(100), hours(24)});
  in.field("apply_timeout", config.apply_timeout,
           {.doc = "How long workers may take from the last request to serving the new weights. "
                   "Then the order fails, and the fleet stays closed until it can serve them."},
           {milliseconds(100), hours(24)});
  if (!net::parse_http_address(config.listen)) {
    in.fail("listen", "must be HOST:PORT, got " + config.listen);
  }
}

}  // namespace pdjob::router
