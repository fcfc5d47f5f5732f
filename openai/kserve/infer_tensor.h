// Tensors of KServe's protocol: as JSON, or as bytes behind it (Triton's binary tensor data
// extension). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "openai/openai_fields.h"

namespace pdjob::openai {

enum class TensorKind { kText, kInteger, kNumber, kBoolean };

// A tensor of a request. Its elements are in rows of the last dimension, as texts: a number or a
// truth value as JSON, a text (BYTES) as it is.
struct InferTensor {
  std::string name;
  TensorKind kind = TensorKind::kText;
  std::vector<uint64_t> shape;
  std::vector<std::string> values;
};

// Reads one element of `inputs`. `binary` is what is left of the bytes behind the JSON: those of
// this tensor are taken off. Refuses what does not fit together.
InferTensor read_tensor(const Fields& fields, std::string_view& binary);

// Elements as the extension has them: the length of a text in 4 bytes, and an INT32 in 4 bytes, all
// little-endian.
void append_binary_text(std::string& out, std::string_view text);
void append_binary_int32(std::string& out, int32_t number);

}  // namespace pdjob::openai
