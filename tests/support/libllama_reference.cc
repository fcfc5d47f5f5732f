// libllama_reference MODEL.gguf q8_0|f16: logprobs and embeddings by libllama alone, as its users
// call it: each prompt whole, in one batch, pooled by the library. It uses no code of pdjob.
//
// Reads lines from stdin, and writes a line of numbers for each:
//   logprobs ID ID ...   of each token but the first its logprob, and the most likely token there
//   embedding ID ID ...  floats, of length 1
//   tokens HEX           the ids of a text, without special tokens at its ends
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <llama.h>

namespace {

constexpr uint32_t kTokensMax = 512;

struct FreeModel {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};
using Context = std::unique_ptr<llama_context, FreeContext>;

Context open(llama_model* model, ggml_type kv, bool embeds) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = kTokensMax;
  params.n_batch = kTokensMax;
  params.n_ubatch = kTokensMax;
  params.n_threads = 1;
  params.n_threads_batch = 1;
  params.type_k = kv;
  params.type_v = kv;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.embeddings = embeds;
  params.pooling_type = embeds ? LLAMA_POOLING_TYPE_MEAN : LLAMA_POOLING_TYPE_NONE;
  return Context(llama_init_from_model(model, params));
}

bool run(llama_context* context, const std::vector<llama_token>& tokens) {
  llama_memory_clear(llama_get_memory(context), true);
  llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
  for (const llama_token token : tokens) {
    const int32_t at = batch.n_tokens++;
    batch.token[at] = token;
    batch.pos[at] = at;
    batch.n_seq_id[at] = 1;
    batch.seq_id[at][0] = 0;
    batch.logits[at] = 1;
  }
  const bool ran = llama_decode(context, batch) == 0;
  llama_synchronize(context);
  llama_batch_free(batch);
  return ran;
}

void write_logprobs(llama_context* context, const std::vector<llama_token>& tokens,
                    int32_t vocabulary) {
  for (size_t at = 0; at + 1 < tokens.size(); ++at) {
    const float* logits = llama_get_logits_ith(context, static_cast<int32_t>(at));
    const float* most = std::max_element(logits, logits + vocabulary);
    double total = 0;
    for (int32_t token = 0; token < vocabulary; ++token) {
      total += std::exp(static_cast<double>(logits[token]) - *most);
    }
    std::printf("%.9g %d ", logits[tokens[at + 1]] - *most - std::log(total),
                static_cast<int>(most - logits));
  }
}

void write_embedding(llama_context* context, int32_t floats) {
  const float* embedding = llama_get_embeddings_seq(context, 0);
  double squares = 0;
  for (int32_t i = 0; i < floats; ++i) {
    squares += static_cast<double>(embedding[i]) * embedding[i];
  }
  for (int32_t i = 0; i < floats; ++i) {
    std::printf("%.9g ", embedding[i] / std::sqrt(squares));
  }
}

void write_tokens(const llama_vocab* vocab, const std::string& hex) {
  std::string text;
  for (size_t at = 0; at + 1 < hex.size(); at += 2) {
    text.push_back(static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
  }
  std::vector<llama_token> tokens(text.size() + 8);
  const int32_t count =
      llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                     static_cast<int32_t>(tokens.size()), false, true);
  for (int32_t at = 0; at < count; ++at) {
    std::printf("%d ", tokens[at]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: libllama_reference MODEL.gguf q8_0|f16\n");
    return 2;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  const std::unique_ptr<llama_model, FreeModel> model(
      llama_model_load_from_file(argv[1], llama_model_default_params()));
  if (model == nullptr) {
    return 1;
  }
  const ggml_type kv = std::strcmp(argv[2], "f16") == 0 ? GGML_TYPE_F16 : GGML_TYPE_Q8_0;
  const Context scores = open(model.get(), kv, false);
  const Context embeds = open(model.get(), kv, true);
  const int32_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string what;
    in >> what;
    if (what == "tokens") {
      std::string hex;
      in >> hex;
      write_tokens(llama_model_get_vocab(model.get()), hex);
      std::printf("\n");
      std::fflush(stdout);
      continue;
    }
    std::vector<llama_token> tokens;
    for (llama_token token = 0; in >> token;) {
      tokens.push_back(token);
    }
    const bool embedding = what == "embedding";
    if (tokens.empty() || tokens.size() > kTokensMax ||
        !run(embedding ? embeds.get() : scores.get(), tokens)) {
      return 1;
    }
    if (embedding) {
      write_embedding(embeds.get(), llama_model_n_embd_out(model.get()));
    } else {
      write_logprobs(scores.get(), tokens, vocabulary);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
