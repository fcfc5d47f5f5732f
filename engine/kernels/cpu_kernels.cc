#include "engine/kernels/cpu_kernels.h"

#include <optional>
#include <string_view>

#include <ggml-backend.h>
#include <ggml-cpu.h>

#include "common/check.h"

#ifdef PDJOB_CPU_VARIANTS
// `./dev` compiles each variant and leaves it only this one name.
extern "C" {
ggml_backend_reg_t ggml_backend_cpu_reg_x64();
ggml_backend_reg_t ggml_backend_cpu_reg_sse42();
ggml_backend_reg_t ggml_backend_cpu_reg_haswell();
ggml_backend_reg_t ggml_backend_cpu_reg_alderlake();
ggml_backend_reg_t ggml_backend_cpu_reg_skylakex();
ggml_backend_reg_t ggml_backend_cpu_reg_cascadelake();
ggml_backend_reg_t ggml_backend_cpu_reg_zen4();
}
#endif

namespace pdjob::engine {
namespace {

#ifdef PDJOB_CPU_VARIANTS
// The compiler's functions, not ggml's: they also see whether the kernel saves the registers.
bool has_sse42() { return __builtin_cpu_supports("sse4.2") != 0; }
bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("f16c") != 0 && __builtin_cpu_supports("bmi2") != 0;
}
bool has_avx_vnni() { return has_avx2() && __builtin_cpu_supports("avxvnni") != 0; }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni") != 0; }
bool has_avx512_bf16() {
  return has_avx512_vnni() && __builtin_cpu_supports("avx512vbmi") != 0 &&
         __builtin_cpu_supports("avx512bf16") != 0;
}

struct Variant {
  CpuKernels name;
  bool (*runs_here)();
  ggml_backend_reg_t (*open)();
};
constexpr Variant kVariants[] = {
    {CpuKernels::kX64, [] { return true; }, ggml_backend_cpu_reg_x64},
    {CpuKernels::kSse42, has_sse42, ggml_backend_cpu_reg_sse42},
    {CpuKernels::kHaswell, has_avx2, ggml_backend_cpu_reg_haswell},
    {CpuKernels::kAlderlake, has_avx_vnni, ggml_backend_cpu_reg_alderlake},
    {CpuKernels::kSkylakex, has_avx512, ggml_backend_cpu_reg_skylakex},
    {CpuKernels::kCascadelake, has_avx512_vnni, ggml_backend_cpu_reg_cascadelake},
    {CpuKernels::kZen4, has_avx512_bf16, ggml_backend_cpu_reg_zen4},
};

const Variant* chosen = nullptr;

Status choose(CpuKernels wanted) {
  for (const Variant& variant : kVariants) {
    if ((wanted == CpuKernels::kAuto || wanted == variant.name) && variant.runs_here()) {
      chosen = &variant;
    }
  }
  if (chosen == nullptr) {
    return Error{ErrorCode::kUnsupported, std::string("engine.cpu is ") + to_string(wanted) +
                                              ", but this machine's CPU cannot run it"};
  }
  return ok();
}
#else
Status choose(CpuKernels wanted) {
  if (wanted != CpuKernels::kAuto) {
    return Error{ErrorCode::kUnsupported,
                 std::string("engine.cpu is ") + to_string(wanted) +
                     ", but only packages of pdjob have variants: leave the key out"};
  }
  return ok();
}
#endif

template <class Function>
Function* function(const char* name) {
  void* const found = ggml_backend_reg_get_proc_address(ggml_backend_reg_by_name("CPU"), name);
  PDJOB_CHECK(found != nullptr, name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

const char* to_string(CpuKernels kernels) {
  switch (kernels) {
    case CpuKernels::kAuto:
      return "auto";
    case CpuKernels::kX64:
      return "x64";
    case CpuKernels::kSse42:
      return "sse42";
    case CpuKernels::kHaswell:
      return "haswell";
    case CpuKernels::kAlderlake:
      return "alderlake";
    case CpuKernels::kSkylakex:
      return "skylakex";
    case CpuKernels::kCascadelake:
      return "cascadelake";
    case CpuKernels::kZen4:
      return "zen4";
  }
  return "unknown";
}

Status choose_cpu_kernels(CpuKernels wanted) {
  static std::optional<CpuKernels> before;
  if (before && *before != wanted) {
    return Error{ErrorCode::kUnsupported, std::string("engine.cpu is ") + to_string(wanted) +
                                              ", but this process computes with " +
                                              to_string(*before)};
  }
  if (!before) {
    PDJOB_TRY_STATUS(choose(wanted));
    before = wanted;
  }
  return ok();
}

std::string cpu_instructions() {
  const auto* each = function<std::remove_pointer_t<ggml_backend_get_features_t>>(
      "ggml_backend_get_features")(ggml_backend_reg_by_name("CPU"));
  std::string text;
  for (; each->name != nullptr; ++each) {
    text += (text.empty() ? "" : " ") + std::string(each->name);
    if (each->value != std::string_view("1")) {
      text += "=" + std::string(each->value);
    }
  }
  return text;
}

ggml_threadpool* new_cpu_threads(uint32_t count, uint32_t poll) {
  ggml_threadpool_params params = ggml_threadpool_params_default(static_cast<int>(count));
  params.poll = poll;
  return function<decltype(ggml_threadpool_new)>("ggml_threadpool_new")(&params);
}

void free_cpu_threads(ggml_threadpool* threads) {
  function<decltype(ggml_threadpool_free)>("ggml_threadpool_free")(threads);
}

}  // namespace pdjob::engine

#ifdef PDJOB_CPU_VARIANTS
// libggml registers what this returns.
ggml_backend_reg_t ggml_backend_cpu_reg() {
  PDJOB_CHECK(pdjob::engine::chosen != nullptr);
  return pdjob::engine::chosen->open();
}
#endif
