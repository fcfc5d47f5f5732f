#include "engine/kv_size.h"

#include <algorithm>
#include <memory>
#include <optional>

#include <ggml.h>
#include <gguf.h>

namespace pdjob::engine {
namespace {

struct FreeGguf {
  void operator()(gguf_context* gguf) const { gguf_free(gguf); }
};

// A number, or the largest of a list with one for each layer.
std::optional<uint64_t> number(const gguf_context& gguf, const std::string& key) {
  const int64_t id = gguf_find_key(&gguf, key.c_str());
  if (id < 0) {
    return std::nullopt;
  }
  if (gguf_get_kv_type(&gguf, id) == GGUF_TYPE_UINT32) {
    return gguf_get_val_u32(&gguf, id);
  }
  const bool list = gguf_get_kv_type(&gguf, id) == GGUF_TYPE_ARRAY &&
                    (gguf_get_arr_type(&gguf, id) == GGUF_TYPE_INT32 ||
                     gguf_get_arr_type(&gguf, id) == GGUF_TYPE_UINT32);
  if (!list || gguf_get_arr_n(&gguf, id) == 0) {
    return std::nullopt;
  }
  const auto* const first = static_cast<const uint32_t*>(gguf_get_arr_data(&gguf, id));
  return *std::max_element(first, first + gguf_get_arr_n(&gguf, id));
}

std::string architecture(const gguf_context& gguf) {
  const int64_t id = gguf_find_key(&gguf, "general.architecture");
  return id >= 0 && gguf_get_kv_type(&gguf, id) == GGUF_TYPE_STRING ? gguf_get_val_str(&gguf, id)
                                                                    : "";
}

// Blocks of a quantised row are filled up.
uint64_t row_bytes(ggml_type type, uint64_t values) {
  const auto block = static_cast<uint64_t>(ggml_blck_size(type));
  return (values + block - 1) / block * ggml_type_size(type);
}

}  // namespace

Result<uint64_t> kv_bytes_per_token(const std::string& path, KvType type) {
  constexpr uint64_t kNumberMax = 1 << 20;  // Of layers, heads or values; beyond: not a model.
  const std::unique_ptr<gguf_context, FreeGguf> gguf(
      gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  const Error unknown{ErrorCode::kCorrupt, path + " does not tell the size of its KV"};
  if (gguf == nullptr) {
    return unknown;
  }
  const std::string prefix = architecture(*gguf) + ".";
  const auto get = [&](const char* key) { return number(*gguf, prefix + key).value_or(0); };
  const uint64_t layers = get("block_count");
  const uint64_t heads = get("attention.head_count");
  const uint64_t kv_heads = number(*gguf, prefix + "attention.head_count_kv").value_or(heads);
  const uint64_t width = heads == 0 ? 0 : get("embedding_length") / heads;
  const uint64_t key = number(*gguf, prefix + "attention.key_length").value_or(width);
  const uint64_t value = number(*gguf, prefix + "attention.value_length").value_or(width);
  if (std::max({layers, kv_heads, key, value}) > kNumberMax ||
      std::min({layers, kv_heads, key, value}) == 0) {
    return unknown;
  }
  const ggml_type stored = type == KvType::kF16 ? GGML_TYPE_F16 : GGML_TYPE_Q8_0;
  return layers * (row_bytes(stored, kv_heads * key) + row_bytes(stored, kv_heads * value));
}

}  // namespace pdjob::engine
