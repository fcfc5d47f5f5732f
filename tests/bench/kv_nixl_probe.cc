// The same transfer as in kv_bench, by NIXL. Its UCX backend WRITEs all windows of a prompt in one
// request, straight into the other process, and notifies that process.
//
//   kv_nixl_probe libnixl_capi.so TOKENS...      orders and answers as kv_bench; WAY is ignored
//
// Seconds run from the last row being ready until the receiver, which polls, sees the notification.
// Before anything is timed, memory is registered, and each request is made and has run once. NIXL
// verifies nothing. The wheel has no headers, so this file declares the functions that it uses.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/os/real_clock.h"
#include "tests/bench/kv_ends.h"
#include "tests/bench/kv_rows.h"

namespace pdjob::bench {
namespace {

using Handle = void*;
constexpr int kInProgress = 1;
constexpr int kDram = 0;
constexpr int kWrite = 1;

class Nixl {
 public:
  explicit Nixl(const char* library) : library_(::dlopen(library, RTLD_NOW)) {
    if (library_ == nullptr) {
      std::fprintf(stderr, "kv_nixl_probe: %s\n", ::dlerror());
      std::exit(1);
    }
  }
  // Calls nixl_capi_NAME. Aborts unless it returns success or "in progress".
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    const std::string symbol = std::string("nixl_capi_") + name;
    const auto function =
        reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, symbol.c_str()));
    PDJOB_CHECK(function != nullptr, symbol);
    const int status = function(arguments...);
    PDJOB_CHECK(status == 0 || status == kInProgress, symbol, status);
    return status;
  }

 private:
  void* library_;
};

// An agent's configuration. It has no progress thread: that thread would poll on the worker's core.
struct Configuration {
  bool progress_thread = false;
  bool listen_thread = false;
  int listen_port = 0;
  int thread_sync = 0;
  unsigned workers = 1;
  uint64_t progress_delay_us = 0;
  uint64_t listen_delay_us = 0;
  bool telemetry = false;
};

// The receiver's message to the sender about its memory.
struct Place {
  uint64_t tokens = 0;
  std::array<uint64_t, kWindows> windows{};
};

struct Pipes {
  std::array<int, 2> to_sender{}, to_receiver{};
};
void put(int pipe, const void* from, size_t bytes) {
  PDJOB_CHECK(::write(pipe, from, bytes) == static_cast<ssize_t>(bytes));
}
bool get(int pipe, void* to, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t came = ::read(pipe, static_cast<char*>(to) + at, bytes - at);
    if (came <= 0) {
      return false;
    }
    at += static_cast<size_t>(came);
  }
  return true;
}

bool readable(int pipe) {
  pollfd waiting{.fd = pipe, .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, 0) > 0;
}

// One of the two processes: an agent and its memory.
struct Agent {
  Agent(const char* library, const char* name, const std::vector<uint32_t>& sizes) : nixl(library) {
    Handle memories = nullptr, parameters = nullptr;
    const Configuration configuration;
    nixl.call("create_configured_agent", name, &configuration, &agent);
    nixl.call("get_plugin_params", agent, "UCX", &memories, &parameters);
    nixl.call("create_backend", agent, "UCX", parameters, &backend);
    Handle list = nullptr;
    nixl.call("create_reg_dlist", kDram, &list);
    for (const uint32_t tokens : sizes) {
      const kvtransfer::Region& region = regions[tokens] = make_region(tokens);
      nixl.call(
          "reg_dlist_add_desc", list, reinterpret_cast<uintptr_t>(region.windows.front().base),
          size_t{region.shared_bytes}, uint64_t{0}, static_cast<const void*>(nullptr), size_t{0});
    }
    nixl.call("register_mem", agent, list, options());
  }
  Handle options() const {
    Handle made = nullptr;
    nixl.call("create_opt_args", &made);
    nixl.call("opt_args_add_backend", made, backend);
    return made;
  }

  Nixl nixl;
  Handle agent = nullptr, backend = nullptr;
  std::map<uint64_t, kvtransfer::Region> regions;
};

Handle write_request(const Agent& sender, const char* peer, const Place& place) {
  const Nixl& nixl = sender.nixl;
  Handle from = nullptr, to = nullptr, request = nullptr;
  nixl.call("create_xfer_dlist", kDram, &from);
  nixl.call("create_xfer_dlist", kDram, &to);
  const size_t bytes = place.tokens * kRowBytes;
  for (size_t window = 0; window < kWindows; ++window) {
    nixl.call("xfer_dlist_add_desc", from,
              reinterpret_cast<uintptr_t>(sender.regions.at(place.tokens).windows[window].base),
              bytes, uint64_t{0});
    nixl.call("xfer_dlist_add_desc", to, uintptr_t{place.windows[window]}, bytes, uint64_t{0});
  }
  Handle options = sender.options();
  nixl.call("opt_args_set_notif_msg", options, static_cast<const void*>("done"), size_t{4});
  nixl.call("opt_args_set_has_notif", options, true);
  nixl.call("create_xfer_req", sender.agent, kWrite, from, to, peer, &request, options);
  return request;
}

void serve(const Pipes& pipes, const char* library, const std::vector<uint32_t>& sizes) {
  Agent sender(library, "prefill", sizes);
  size_t bytes = 0;
  PDJOB_CHECK(get(pipes.to_sender[0], &bytes, sizeof bytes));
  std::vector<char> metadata(bytes);
  PDJOB_CHECK(get(pipes.to_sender[0], metadata.data(), bytes));
  char* peer = nullptr;
  sender.nixl.call("load_remote_md", sender.agent, static_cast<const void*>(metadata.data()), bytes,
                   &peer);
  std::map<uint64_t, Handle> requests;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Place place;
    PDJOB_CHECK(get(pipes.to_sender[0], &place, sizeof place));
    requests[place.tokens] = write_request(sender, peer, place);
  }
  uint64_t round = 0;
  Handle nothing = nullptr;
  sender.nixl.call("create_notif_map", &nothing);
  Handle const options = sender.options();
  for (uint64_t tokens = 0; get(pipes.to_sender[0], &tokens, sizeof tokens);) {
    fill(sender.regions.at(tokens), 0, static_cast<uint32_t>(tokens), ++round);
    const Instant ready = real_now();
    Handle const request = requests.at(tokens);
    int status =
        sender.nixl.call("post_xfer_req", sender.agent, request, static_cast<Handle>(nullptr));
    while (status == kInProgress) {
      status = sender.nixl.call("get_xfer_status", sender.agent, request);
    }
    put(pipes.to_receiver[1], &ready, sizeof ready);
    while (!readable(pipes.to_sender[0])) {  // The notification may still be on its way out.
      sender.nixl.call("get_notifs", sender.agent, nothing, options);
    }
    PDJOB_CHECK(get(pipes.to_sender[0], &tokens, sizeof tokens));
  }
}

Duration receive(const Agent& receiver, const Pipes& pipes, uint64_t tokens) {
  put(pipes.to_sender[1], &tokens, sizeof tokens);
  Handle notices = nullptr;
  receiver.nixl.call("create_notif_map", &notices);
  Handle const options = receiver.options();
  for (size_t count = 0; count == 0;) {
    receiver.nixl.call("get_notifs", receiver.agent, notices, options);
    receiver.nixl.call("notif_map_size", notices, &count);
  }
  const Instant seen = real_now();
  Instant ready;
  PDJOB_CHECK(get(pipes.to_receiver[0], &ready, sizeof ready));
  const uint64_t thanks = 0;
  put(pipes.to_sender[1], &thanks, sizeof thanks);
  receiver.nixl.call("destroy_notif_map", notices);
  volatile uint64_t sum = read(receiver.regions.at(tokens));
  static_cast<void>(sum);
  return seen - ready;
}

void obey(const Pipes& pipes, const char* library, const std::vector<uint32_t>& sizes) {
  Agent receiver(library, "decode", sizes);
  void* metadata = nullptr;
  size_t bytes = 0;
  receiver.nixl.call("get_local_md", receiver.agent, &metadata, &bytes);
  put(pipes.to_sender[1], &bytes, sizeof bytes);
  put(pipes.to_sender[1], metadata, bytes);
  for (const auto& [tokens, region] : receiver.regions) {
    Place place{.tokens = tokens};
    for (size_t window = 0; window < kWindows; ++window) {
      place.windows[window] = reinterpret_cast<uintptr_t>(region.windows[window].base);
    }
    put(pipes.to_sender[1], &place, sizeof place);
  }
  for (const uint32_t tokens : sizes) {
    receive(receiver, pipes, tokens);
  }
  std::string way, pace;
  for (uint64_t tokens = 0; std::cin >> way >> pace >> tokens;) {
    std::printf("{\"seconds\": %.9f}\n", seconds(receive(receiver, pipes, tokens)));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace pdjob::bench

int main(int argc, char** argv) {
  using namespace pdjob::bench;
  std::vector<uint32_t> sizes;
  for (int i = 2; i < argc; ++i) {
    sizes.push_back(static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  }
  Pipes pipes;
  if (sizes.empty() || ::pipe(pipes.to_sender.data()) != 0 ||
      ::pipe(pipes.to_receiver.data()) != 0) {
    std::fprintf(stderr, "usage: kv_nixl_probe libnixl_capi.so TOKENS...   (orders: stdin)\n");
    return 2;
  }
  if (::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(pipes.to_sender[1]);
    keep_to_core(0);
    serve(pipes, argv[1], sizes);
    ::_exit(0);
  }
  keep_to_core(1);
  obey(pipes, argv[1], sizes);
  std::fflush(stdout);
  ::_exit(0);  // NIXL's threads still run.
}
