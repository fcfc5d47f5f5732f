// libfakecudart.so: a CUDA runtime without a GPU, for tests. A "device" is a number, its memory is
// the host's; each stream is a thread ("fake-stream") that works in order, so copies really are
// asynchronous and events really are late. What a test can choose is an environment variable, read
// at each call:
//   FAKE_CUDA_DEVICES         how many devices there are (64); 0: cudaErrorNoDevice
//   FAKE_CUDA_COPY_DELAY_US   how long each copy takes at least (0)
//   FAKE_CUDA_VERSION         of the runtime (13000)
//   FAKE_CUDA_UNIFIED         1: the CPU reaches what is mapped, as where memory is unified (0)
//
// Memory of cuMemCreate is a memfd, so that it goes to other processes, and its addresses are not
// accessible: only copies and kernels reach it, and the CPU that touches it dies. The copies of a
// batch run in another order than they were given. The one kernel is row_sum_kernel.cu, compiled as
// C++. What breaks a rule of CUDA's is counted as a violation: unmapping what a copy still uses,
// freeing addresses that are mapped, copying to what is not mapped.
//
// Below: what only libfakenccl.so and tests call.
#pragma once

#include "common/gpu_api.h"

extern "C" {

// A kernel: runs when all that was put on the stream before it is done.
void fakecudart_launch(pdjob::GpuStream* stream, void (*kernel)(void*), void* argument);
// While NCCL has a call in progress, nothing may be put on its stream: that would be a violation.
void fakecudart_forbid(pdjob::GpuStream* stream, int forbidden);
int fakecudart_current_device();
int fakecudart_violations();
// Streams, events, modules, pieces of host memory, handles, addresses and mappings that are not
// freed.
int fakecudart_objects();
// Bytes of copies between GPUs' memory and the host's, so far.
long long fakecudart_host_bytes();
// Whether this memory of the host stands for a GPU's.
void fakecudart_stands_for_gpu(void* memory, size_t bytes, int stands);

}  // extern "C"
