// kv_layer_bench MODEL.gguf TOKENS [rounds] measures what a callback after each layer costs a
// prefill. Pushing KV per layer would need one (decision 8). It prints one JSON line: the seconds
// of a prompt in chunks of 256 tokens on one thread, without and with the callback. The callback
// stops libllama at each layer's V rows and does nothing. The two variants take turns.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <ggml.h>
#include <llama.h>

namespace {

constexpr uint32_t kChunkTokens = 256;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Hook {
  bool on = false;
  uint64_t calls = 0;
};

// libllama first asks whether the hook wants a node. It calls again when everything up to that node
// is computed.
bool at_node(ggml_tensor* node, bool ask, void* data) {
  Hook& hook = *static_cast<Hook*>(data);
  if (ask) {
    return hook.on && node->op == GGML_OP_SET_ROWS && node->view_src != nullptr &&
           std::string_view(node->view_src->name).starts_with("cache_v_l");
  }
  ++hook.calls;
  return true;
}

double prefill(llama_context* context, const std::vector<llama_token>& prompt) {
  llama_memory_clear(llama_get_memory(context), true);
  const double begin = now();
  for (size_t first = 0; first < prompt.size(); first += kChunkTokens) {
    const size_t count = std::min<size_t>(kChunkTokens, prompt.size() - first);
    const llama_batch batch = llama_batch_get_one(const_cast<llama_token*>(prompt.data()) + first,
                                                  static_cast<int32_t>(count));
    if (llama_decode(context, batch) != 0) {
      std::fprintf(stderr, "kv_layer_bench: llama_decode failed\n");
      std::exit(1);
    }
  }
  return now() - begin;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

llama_context* open(llama_model* model, Hook* hook) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 8192;
  params.n_batch = params.n_ubatch = kChunkTokens;
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_Q8_0;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.no_perf = true;
  if (hook != nullptr) {
    params.cb_eval = at_node;
    params.cb_eval_user_data = hook;
  }
  return llama_init_from_model(model, params);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: kv_layer_bench MODEL.gguf TOKENS [rounds]\n");
    return 2;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params model_params = llama_model_default_params();
  llama_model* const model = llama_model_load_from_file(argv[1], model_params);
  Hook hook{.on = true};
  const std::array<llama_context*, 2> contexts = {open(model, nullptr), open(model, &hook)};
  std::vector<llama_token> prompt(std::strtoul(argv[2], nullptr, 10));
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<llama_token>(300 + i * 104729 % 40000);
  }
  const unsigned long rounds = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 7;
  std::array<std::vector<double>, 2> taken;
  std::vector<double> ratios;
  for (unsigned long round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      const size_t side = (i + round) % 2;  // The variants alternate in who starts.
      taken[side].push_back(prefill(contexts[side], prompt));
    }
    if (round == 0) {
      taken = {};  // Round 0 only warmed up.
    } else {
      ratios.push_back(taken[1].back() / taken[0].back());
    }
  }
  std::printf(
      "{\"tokens\": %zu, \"plain\": %.4f, \"per_layer\": %.4f, \"ratio\": {\"min\": %.4f, "
      "\"median\": %.4f, \"max\": %.4f}, \"calls_per_prompt\": %lu}\n",
      prompt.size(), median(taken[0]), median(taken[1]),
      *std::min_element(ratios.begin(), ratios.end()), median(ratios),
      *std::max_element(ratios.begin(), ratios.end()),
      static_cast<unsigned long>(hook.calls / (rounds + 1)));
  for (llama_context* context : contexts) {
    llama_free(context);
  }
  llama_model_free(model);
  return 0;
}
