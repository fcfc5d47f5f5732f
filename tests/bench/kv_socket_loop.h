// The plainest way to move rows by TCP: one connection over loopback, blocking sendmsg and recvmsg
// of the windows' own memory, in pieces of 1 MiB. No frames, no digest. What transport tcp is
// measured against.
#pragma once

#include "kvtransfer/kv_endpoint.h"

namespace pdjob::bench {

enum class SocketMode {
  kPlain,
  kZeroCopy,  // MSG_ZEROCOPY, waiting for the kernel to give the pages back at the end.
};

// The two ends of one connection. `congestion_control`: nullptr leaves the host's default.
struct SocketPair {
  int sender = -1;
  int receiver = -1;
};
SocketPair connect_loopback(const char* congestion_control);

void send_rows(int socket, const kvtransfer::Region& source, SocketMode mode);
void receive_rows(int socket, const kvtransfer::Region& target);

}  // namespace pdjob::bench
