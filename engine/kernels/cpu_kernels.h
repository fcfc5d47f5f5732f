// libllama's kernels for the CPU. A package has several variants of them, for CPUs with more or
// fewer instructions; every other build has one. A process computes with one variant for its whole
// life, because libllama keeps it in globals. Only one thread at a time may choose it. The other
// functions require that it is chosen; they are thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"

struct ggml_threadpool;

namespace pdjob::engine {

// Each runs on CPUs that have the instructions of its name. Later ones are faster. The names are
// ggml's. Its variants for AMX are left out, because some virtual machines advertise AMX and trap
// on it.
enum class CpuKernels {
  kAuto,  // The last one that this CPU can run.
  kX64,
  kSse42,
  kHaswell,      // AVX2: the one of a build that is not a package.
  kAlderlake,    // AVX2, AVX-VNNI
  kSkylakex,     // AVX-512
  kCascadelake,  // AVX-512, VNNI
  kZen4,         // AVX-512, VNNI, VBMI, BF16
};

const char* to_string(CpuKernels kernels);

// Fixes the variant, before anything else uses libllama. Fails with kUnsupported if this build
// lacks it, if this machine's CPU cannot run it, or if the process computes with another one.
Status choose_cpu_kernels(CpuKernels wanted);

// The instructions that the chosen variant was compiled for, in libllama's words: "SSE3 AVX AVX2".
std::string cpu_instructions();

// ggml_threadpool_new() and ggml_threadpool_free() of the chosen variant. `poll` is how long idle
// threads spin, as ggml counts it. Returns null if the threads cannot be started.
ggml_threadpool* new_cpu_threads(uint32_t count, uint32_t poll);
void free_cpu_threads(ggml_threadpool* threads);

}  // namespace pdjob::engine
