// The plainest way to move rows by TCP, and the baseline for transport tcp. It uses one connection
// over loopback, and blocking sendmsg and recvmsg of the windows' own memory, in pieces of 1 MiB.
// It sends bare rows, without frames or a digest.
#pragma once

#include "kvtransfer/kv_endpoint.h"

namespace pdjob::bench {

enum class SocketMode {
  kPlain,
  kZeroCopy,  // MSG_ZEROCOPY; waits at the end until the kernel has returned all pages.
};

// The two ends of one connection. A null `congestion_control` keeps the host's default.
struct SocketPair {
  int sender = -1;
  int receiver = -1;
};
SocketPair connect_loopback(const char* congestion_control);

void send_rows(int socket, const kvtransfer::Region& source, SocketMode mode);
void receive_rows(int socket, const kvtransfer::Region& target);

}  // namespace pdjob::bench
