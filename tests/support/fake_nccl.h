// libfakenccl.so: NCCL without a GPU, for tests. It moves real bytes between real processes of one
// machine, over unix sockets. It keeps NCCL's rules. Communicators have two ranks, and their init
// is nonblocking. Operations run in order on a stream (of libfakecudart.so). When a peer dies,
// operations hang and report no error.
//
// Real NCCL only punishes a broken rule. This library also reports it: each one is a *violation*,
// printed on stderr and counted.
//
// Tests control it by environment variables, read at each call:
//   FAKE_NCCL_VERSION         the version that ncclGetVersion returns (22809).
//   FAKE_NCCL_INIT_DELAY_MS   the least time that a communicator is in progress, in ms (0).
//   FAKE_NCCL_INIT_FAILS      1: init ends in a system error.
//   FAKE_NCCL_IN_PROGRESS     for how many polls a send or receive is in progress (0).
//   FAKE_NCCL_MOVE_DELAY_MS   how long a kernel waits before it moves bytes, in ms (0).
//   FAKE_NCCL_LEAVE_DELAY_MS  the least time to finalize a communicator, in ms (0).
//   FAKE_NCCL_FLIP_BIT        1: flips a bit of all received data.
//   FAKE_NCCL_PEER_DEATH      spin (default, as between GPUs of one machine): reports nothing;
//                             net: ncclRemoteError. In both cases the kernel spins until the abort.
//   FAKE_NCCL_ABORT_BLOCKS    1: ncclCommAbort never returns.
//   FAKE_NCCL_ABORT_SYNCS     1: it waits for all kernels of the device, like a cudaFree inside it.
#pragma once

extern "C" {

// Returns the number of violations so far. They are two threads on one device, a use after the end,
// different counts on the two ends and a blocking communicator. So are a call while another is in
// progress, memory that cannot be registered.
int fakenccl_violations();
// Returns the number of communicators that are yet to be destroyed or aborted.
int fakenccl_communicators();
// Returns the number of pieces of device memory that are still allocated.
int fakenccl_allocations();

}  // extern "C"
