// All that passes between the launcher and its Ray shim (ray_shim.py): requests to the shim, and
// the lines that come back. One JSON object a line. Lines are flat; a request may hold lists.
// Every request is answered once, by ShimDone or ShimRefused. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"
#include "common/time.h"

namespace pdjob::launcher {

inline constexpr int kShimProtocol = 1;
inline constexpr size_t kShimLineBytesMax =
    size_t{256} * 1024;                        // Both ways; ray_shim.py has it, too.
inline constexpr size_t kShimNodesMax = 4096;  // In one reservation.

// The part of a Ray node that the job takes.
struct RayShare {
  uint32_t cpus = 1;
  uint32_t gpus = 0;
  uint64_t memory_bytes = 0;  // 0: not asked for.
  friend bool operator==(const RayShare&, const RayShare&) = default;
};

// --- requests

// Connects to the home cluster. Done: the names of this job's reservations, with commas.
struct OpenHome {
  std::string name;     // Of the cluster.
  std::string address;  // Of its control store: "10.0.0.1:6379".
  std::string job;
  Duration lease{};      // The keeper frees everything when no shim renewed it for so long.
  Duration reconnect{};  // How long nested nodes wait for a control store that is lost.
};
// Submits a Ray job to a guest: a node that joins the home. Done: the guest has taken it. The
// node is told by RayNodeSeen, the job's end by GuestEnded.
struct JoinHome {
  std::string slot;
  std::string submission;  // The job's id, which nobody used before.
  std::string cluster;
  std::string dashboard;  // "http://10.0.0.2:8265"
  std::string python;     // The interpreter there that has Ray.
  RayShare share;
  std::string token_file;       // Of the guest, on this machine; empty: none.
  std::string home_token_file;  // Of the home, on the guest's machines; empty: the guest's own.
};
// Done: the job has ended.
struct LeaveHome {
  std::string submission;
  std::string dashboard;
  std::string token_file;
};
struct RayBundle {
  std::string slot;
  bool guest = false;
  RayShare share;
};
// All bundles or none, each on a node of its own. Done: their nodes, with commas.
struct Reserve {
  std::string name;
  std::vector<RayBundle> bundles;
  Duration timeout{};
};
struct Release {
  std::string name;
};
// Ends an older agent of the slot first. Done: what had to be sent to the node, for people. The
// agent may still fail; it says itself when it has joined.
struct StartAgent {
  std::string slot;
  std::string reservation;
  uint32_t bundle = 0;
  std::string program;
  bool ship = false;  // If `program` there is not this launcher's own file, a bundle is used.
  std::vector<std::string> arguments;
  std::string secret;  // The first line of its stdin. The end of that says: your place is gone.
  std::string log;
};
// Removes all reservations of the job, and ends its nested nodes.
struct CloseHome {};

using ShimRequest =
    std::variant<OpenHome, JoinHome, LeaveHome, Reserve, Release, StartAgent, CloseHome>;

// Without the end of the line.
std::string encode_request(uint64_t id, const ShimRequest& request);

// --- lines from the shim

struct ShimHello {
  int protocol = 0;
  std::string ray;
  std::string python;
};
// The interpreter has no Ray; the shim ends.
struct ShimHasNoRay {
  std::string text;
};
struct ShimDone {
  uint64_t id = 0;
  std::string text;
};
struct ShimRefused {
  uint64_t id = 0;
  std::string kind;  // "version_mismatch", "unauthenticated", "unreachable", "no_room", "failed"
  std::string text;
};
// A node of the home cluster, and of no other job. Told again after `open`, if it is alive.
struct RayNodeSeen {
  std::string node;
  bool alive = false;
  std::string address;
  std::string cluster;
  std::string slot;  // Of a nested node; empty: the home's own.
  std::string reason;
};
struct GuestEnded {
  std::string slot;
  std::string submission;
  bool refused = false;  // It did not even try to join.
  std::string reason;
};
struct ReservationSeen {
  std::string name;
  bool removed = false;
  std::vector<std::string> nodes;  // By bundle; empty: it waits for a node.
};
// The home's control store answers, or has ceased to. The first one after `open` says that all
// nodes and reservations have been told.
struct HomeSeen {
  bool reachable = false;
};

using ShimLine = std::variant<ShimHello, ShimHasNoRay, ShimDone, ShimRefused, RayNodeSeen,
                              GuestEnded, ReservationSeen, HomeSeen>;

// kCorrupt: the line is none of the above.
Result<ShimLine> decode_shim_line(std::string_view line);

// "a,,b" -> {"a", "", "b"}; "" -> {}.
std::vector<std::string> split_names(std::string_view text);

}  // namespace pdjob::launcher
