// libfakenccl.so: NCCL without a GPU, for tests. It moves real bytes between real processes of one
// machine, over unix sockets, and keeps NCCL's rules: communicators of two ranks, nonblocking
// init, operations in order on a stream (of libfakecudart.so), no error and no end when a peer
// dies. It also watches what real NCCL only punishes: each broken rule is a *violation*, told on
// stderr and counted.
//
// What a test can choose is an environment variable, read at each call:
//   FAKE_NCCL_VERSION         what ncclGetVersion says (22809)
//   FAKE_NCCL_INIT_DELAY_MS   how long a communicator is at least in progress (0)
//   FAKE_NCCL_INIT_FAILS      1: and is then a system error
//   FAKE_NCCL_IN_PROGRESS     for how many polls a send or receive is in progress (0)
//   FAKE_NCCL_MOVE_DELAY_MS   how long a kernel waits before it moves bytes (0)
//   FAKE_NCCL_LEAVE_DELAY_MS  how long a communicator takes at least to be finalized (0)
//   FAKE_NCCL_FLIP_BIT        1: a bit of all that is received is wrong
//   FAKE_NCCL_PEER_DEATH      spin (default, as between GPUs of one machine): nothing is reported;
//                             net: ncclRemoteError. The kernel spins until the abort, both times
//   FAKE_NCCL_ABORT_BLOCKS    1: ncclCommAbort never returns
//   FAKE_NCCL_ABORT_SYNCS     1: it waits for all kernels of the device, like a cudaFree inside it
#pragma once

extern "C" {

// Broken rules: two threads on one device, a use after the end, other counts on the two ends, a
// blocking communicator, a call while another is in progress, memory that cannot be registered.
int fakenccl_violations();
// Neither destroyed nor aborted.
int fakenccl_communicators();
// Pieces of device memory that are not freed.
int fakenccl_allocations();

}  // extern "C"
