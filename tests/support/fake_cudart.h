// libfakecudart.so: a CUDA runtime without a GPU, for tests. A "device" is a number, and its memory
// is the host's. Each stream is a thread ("fake-stream") that works in order. So copies really are
// asynchronous, and events really are late.
//
// Tests control it by environment variables, read at each call:
//
//   FAKE_CUDA_DEVICES         the number of devices (64); 0: cudaErrorNoDevice.
//   FAKE_CUDA_COPY_DELAY_US   the least time of each copy, in microseconds (0).
//   FAKE_CUDA_VERSION         the version of the runtime (13000).
//   FAKE_CUDA_HANG_FILE       while this file exists, the launch of a kernel does not return.
//   FAKE_CUDA_UNIFIED         1: the CPU reaches mapped memory, as on unified memory (0).
//
// Memory of cuMemCreate is a memfd, so other processes can share it. Its addresses are inaccessible
// to the CPU: only copies and kernels reach it, and a CPU access crashes. The copies of a batch run
// in another order than given. The only kernel is row_sum_kernel.cu, compiled as C++.
//
// As in CUDA, a process that was forked from one that had used CUDA can use no device, and freeing
// host memory waits for all work of the process.
//
// A broken rule of CUDA counts as a violation. Examples: unmapping memory that a copy still uses,
// freeing addresses that are mapped, and copying to unmapped memory.
//
// Below are functions for libfakenccl.so and tests only.
#pragma once

#include "gpu/gpu_api.h"

extern "C" {

// Launches a kernel. It runs when all earlier work on the stream is done.
void fakecudart_launch(pdjob::GpuStream* stream, void (*kernel)(void*), void* argument);
// While NCCL has a call in progress, adding work to its stream is a violation.
void fakecudart_forbid(pdjob::GpuStream* stream, int forbidden);
int fakecudart_current_device();
int fakecudart_violations();
// Returns how many objects are alive: streams, events, modules, pieces of host memory, handles,
// addresses and mappings.
int fakecudart_objects();
// Returns the bytes copied so far between the GPUs' memory and the host's.
long long fakecudart_host_bytes();
// Sets whether this host memory stands for a GPU's.
void fakecudart_stands_for_gpu(void* memory, size_t bytes, int stands);

}  // extern "C"
