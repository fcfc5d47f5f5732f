// quantize_model IN.gguf OUT.gguf q8_0|q4_0|f16 [LAYER...] converts a test model to another weight
// type, without the named layers.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <llama.h>

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: quantize_model IN.gguf OUT.gguf q8_0|q4_0|f16 [LAYER...]\n");
    return 2;
  }
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.allow_requantize = true;
  params.pure = true;  // Otherwise the embeddings of a q4_0 model stay q8_0.
  if (std::strcmp(argv[3], "q8_0") == 0) {
    params.ftype = LLAMA_FTYPE_MOSTLY_Q8_0;
  } else if (std::strcmp(argv[3], "q4_0") == 0) {
    params.ftype = LLAMA_FTYPE_MOSTLY_Q4_0;
  } else if (std::strcmp(argv[3], "f16") == 0) {
    params.ftype = LLAMA_FTYPE_MOSTLY_F16;
  } else {
    std::fprintf(stderr, "quantize_model: unknown type %s\n", argv[3]);
    return 2;
  }
  std::vector<int32_t> left_out;
  for (int index = 4; index < argc; ++index) {
    left_out.push_back(static_cast<int32_t>(std::strtol(argv[index], nullptr, 10)));
  }
  if (!left_out.empty()) {
    left_out.push_back(-1);  // The end of libllama's list.
    params.prune_layers = left_out.data();
  }
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) {
          std::fputs(text, stderr);
        }
      },
      nullptr);
  llama_backend_init();
  return llama_model_quantize(argv[1], argv[2], &params) == 0 ? 0 : 1;
}
