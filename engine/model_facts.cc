#include "engine/model_facts.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>

#include <gguf.h>
#include <llama.h>
#include <xxhash.h>

#include "engine/kernels/cpu_kernels.h"

namespace pdjob::engine {
namespace {

constexpr size_t kTensorSampleBytes = 4096;

struct CloseFile {
  void operator()(FILE* file) const { fclose(file); }
};
struct CloseGguf {
  void operator()(gguf_context* gguf) const { gguf_free(gguf); }
};
struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// Adds bytes [offset, offset + bytes) of the file to the hash.
bool add(XXH3_state_t* hash, FILE* file, uint64_t offset, uint64_t bytes) {
  std::array<char, 65536> buffer;
  if (fseeko(file, static_cast<off_t>(offset), SEEK_SET) != 0) {
    return false;
  }
  while (bytes > 0) {
    const size_t part = std::min<uint64_t>(bytes, buffer.size());
    if (fread(buffer.data(), 1, part, file) != part) {
      return false;
    }
    XXH3_128bits_update(hash, buffer.data(), part);
    bytes -= part;
  }
  return true;
}

std::string hex(const XXH128_hash_t& hash) {
  std::array<char, 33> text;
  snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
           static_cast<unsigned long long>(hash.low64));
  return text.data();
}

std::string metadata(const llama_model& model, const std::string& key) {
  std::array<char, 128> text;
  const int32_t length = llama_model_meta_val_str(&model, key.c_str(), text.data(), text.size());
  return length < 0 ? "" : text.data();
}

std::string pooling_word(const llama_model& model) {
  return metadata(model, metadata(model, "general.architecture") + ".pooling_type");
}

// A model that names no pooling generates text: the mean is what libllama's users take for it.
Pooling pooling(const llama_model& model) {
  const std::string way = pooling_word(model);
  if (way.empty() || way == std::to_string(LLAMA_POOLING_TYPE_NONE) ||
      way == std::to_string(LLAMA_POOLING_TYPE_MEAN)) {
    return Pooling::kMean;
  }
  return way == std::to_string(LLAMA_POOLING_TYPE_LAST) ? Pooling::kLast : Pooling::kNone;
}

std::string rope(const llama_model& model) {
  const std::string prefix = metadata(model, "general.architecture") + ".rope.";
  std::string text = "type=" + std::to_string(llama_model_rope_type(&model));
  for (const char* key : {"freq_base", "dimension_count", "scaling.type", "scaling.factor",
                          "scaling.original_context_length", "scaling.attn_factor"}) {
    if (const std::string value = metadata(model, prefix + key); !value.empty()) {
      text += std::string(" ") + key + "=" + value;
    }
  }
  return text;
}

}  // namespace

Result<std::string> model_digest(const std::string& path) {
  const Error unreadable{ErrorCode::kCorrupt, "cannot read the GGUF file " + path};
  const std::unique_ptr<gguf_context, CloseGguf> gguf(
      gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  const std::unique_ptr<FILE, CloseFile> file(fopen(path.c_str(), "rb"));
  std::error_code failed;
  const uint64_t size = std::filesystem::file_size(path, failed);
  if (gguf == nullptr || file == nullptr || failed) {
    return unreadable;
  }
  const std::unique_ptr<XXH3_state_t, FreeHash> hash(XXH3_createState());
  XXH3_128bits_reset(hash.get());
  XXH3_128bits_update(hash.get(), &size, sizeof(size));
  const uint64_t start = gguf_get_data_offset(gguf.get());
  if (!add(hash.get(), file.get(), 0, start)) {
    return unreadable;
  }
  for (int64_t tensor = 0; tensor < gguf_get_n_tensors(gguf.get()); ++tensor) {
    const uint64_t bytes = std::min(kTensorSampleBytes, gguf_get_tensor_size(gguf.get(), tensor));
    if (!add(hash.get(), file.get(), start + gguf_get_tensor_offset(gguf.get(), tensor), bytes)) {
      return unreadable;
    }
  }
  return hex(XXH3_128bits_digest(hash.get()));
}

Result<std::string> file_digest(const std::string& path) {
  const std::unique_ptr<FILE, CloseFile> file(fopen(path.c_str(), "rb"));
  std::error_code failed;
  const uint64_t size = std::filesystem::file_size(path, failed);
  const std::unique_ptr<XXH3_state_t, FreeHash> hash(XXH3_createState());
  XXH3_128bits_reset(hash.get());
  if (file == nullptr || failed || !add(hash.get(), file.get(), 0, size)) {
    return Error{ErrorCode::kCorrupt, "cannot read " + path};
  }
  return hex(XXH3_128bits_digest(hash.get()));
}

bool names_pooling(const llama_model& model) { return !pooling_word(model).empty(); }

Result<ModelFacts> read_facts(const llama_model& model, const KvLayout& layout,
                              const EngineConfig& config) {
  ModelFacts facts;
  facts.name = config.served_name.empty() ? std::filesystem::path(config.model_path).stem().string()
                                          : config.served_name;
  PDJOB_TRY(facts.digest,
            config.own_weights ? file_digest(config.model_path) : model_digest(config.model_path));
  facts.kv_type = to_string(config.kv_type);
  facts.layers = layout.layers;
  facts.heads = static_cast<uint32_t>(llama_model_n_head(&model));
  facts.kv_heads = static_cast<uint32_t>(llama_model_n_head_kv(&model));
  facts.vocabulary = static_cast<uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(&model)));
  facts.context_trained = static_cast<uint32_t>(llama_model_n_ctx_train(&model));
  facts.rope = rope(model);
  facts.kv_bytes_per_token =
      std::accumulate(layout.row_bytes.begin(), layout.row_bytes.end(), uint64_t{0});
  facts.cpu = config.gpu && !config.cpu_computes_in_gpu_memory ? "" : cpu_instructions();
  facts.embedding_dim = static_cast<uint32_t>(llama_model_n_embd_out(&model));
  facts.pooling = pooling(model);
  facts.library = std::string("llama.cpp ") + llama_version() + " " + ggml_commit();
  const ggml_type type = config.kv_type == KvType::kF16 ? GGML_TYPE_F16 : GGML_TYPE_Q8_0;
  facts.head_dim = static_cast<uint32_t>(layout.row_bytes.front() / ggml_type_size(type) *
                                         static_cast<size_t>(ggml_blck_size(type)) /
                                         std::max(1U, facts.kv_heads));
  return facts;
}

}  // namespace pdjob::engine
