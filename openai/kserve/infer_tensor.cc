#include "openai/kserve/infer_tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include <simdjson.h>

#include "common/json/json_writer.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

static_assert(std::endian::native == std::endian::little);

constexpr size_t kDimensionsMax = 8;
constexpr uint64_t kElementsMax = uint64_t{1} << 20;
constexpr int64_t kSizeMax = int64_t{1} << 40;

struct DataType {
  std::string_view name;
  TensorKind kind;
  size_t bytes;                                 // Of an element; 0: it says so itself.
  std::string (*text)(std::string_view bytes);  // Of one element.
};

std::string truth_text(std::string_view bytes) { return bytes.front() != 0 ? "true" : "false"; }

template <class Number>
std::string text_of(std::string_view bytes) {
  Number number{};
  bytes.copy(reinterpret_cast<char*>(&number), sizeof number);
  std::string text;
  JsonWriter json(text);
  if constexpr (std::is_floating_point_v<Number>) {
    json.number(number);
  } else {
    json.integer(number);
  }
  return text;
}

constexpr std::array<DataType, 12> kTypes = {{
    {"BYTES", TensorKind::kText, 0, nullptr},
    {"BOOL", TensorKind::kBoolean, 1, truth_text},
    {"INT8", TensorKind::kInteger, 1, text_of<int8_t>},
    {"INT16", TensorKind::kInteger, 2, text_of<int16_t>},
    {"INT32", TensorKind::kInteger, 4, text_of<int32_t>},
    {"INT64", TensorKind::kInteger, 8, text_of<int64_t>},
    {"UINT8", TensorKind::kInteger, 1, text_of<uint8_t>},
    {"UINT16", TensorKind::kInteger, 2, text_of<uint16_t>},
    {"UINT32", TensorKind::kInteger, 4, text_of<uint32_t>},
    {"UINT64", TensorKind::kInteger, 8, text_of<uint64_t>},
    {"FP32", TensorKind::kNumber, 4, text_of<float>},
    {"FP64", TensorKind::kNumber, 8, text_of<double>},
}};

const DataType* find_type(std::string_view name) {
  const auto* const found = std::ranges::find(kTypes, name, &DataType::name);
  return found == kTypes.end() ? nullptr : found;
}

// How many the shape has. Empty: too many; the request is refused.
std::optional<uint64_t> elements_of(const Fields& fields, std::vector<uint64_t>& shape) {
  const auto list = fields.list("shape", kDimensionsMax);
  if (!list) {
    fields.wrong("shape", "is missing: a list of sizes");
    return std::nullopt;
  }
  uint64_t elements = 1;
  for (const dom::element one : *list) {
    int64_t size = 0;
    if (one.get(size) != simdjson::SUCCESS || size < 0 || size > kSizeMax) {
      must_be(fields.reading(), fields.param("shape"), "a list of sizes", one);
      return std::nullopt;
    }
    shape.push_back(static_cast<uint64_t>(size));
    elements *= static_cast<uint64_t>(size);
    if (elements > kElementsMax) {
      fields.wrong("shape", "has more than " + std::to_string(kElementsMax) + " elements");
      return std::nullopt;
    }
  }
  return elements;
}

bool fits(TensorKind kind, const dom::element& value) {
  switch (kind) {
    case TensorKind::kText:
      return value.is_string();
    case TensorKind::kBoolean:
      return value.is_bool();
    case TensorKind::kInteger:
      return value.is_int64() || value.is_uint64();
    case TensorKind::kNumber:
      return value.is_number();
  }
  return false;
}

// The lists may be nested as the shape is, or flat.
void read_values(const Fields& fields, const dom::array& list, size_t depth, InferTensor& tensor) {
  for (const dom::element value : list) {
    dom::array inner;
    if (depth < kDimensionsMax && value.get(inner) == simdjson::SUCCESS) {
      read_values(fields, inner, depth + 1, tensor);
    } else if (!fits(tensor.kind, value)) {
      return fields.wrong("data", "has an element that is not of the tensor's datatype");
    } else if (std::string_view text; value.get(text) == simdjson::SUCCESS) {
      tensor.values.emplace_back(text);
    } else {
      tensor.values.push_back(simdjson::minify(value));
    }
  }
}

// False: the bytes are not those of so many elements.
bool read_bytes(const DataType& type, uint64_t elements, std::string_view bytes,
                InferTensor& tensor) {
  if (type.bytes > 0) {
    if (bytes.size() != elements * type.bytes) {
      return false;
    }
    for (; !bytes.empty(); bytes.remove_prefix(type.bytes)) {
      tensor.values.push_back(type.text(bytes.substr(0, type.bytes)));
    }
    return true;
  }
  while (!bytes.empty()) {
    uint32_t length = 0;
    if (bytes.size() < sizeof length) {
      return false;
    }
    bytes.copy(reinterpret_cast<char*>(&length), sizeof length);
    bytes.remove_prefix(sizeof length);
    if (bytes.size() < length) {
      return false;
    }
    tensor.values.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return tensor.values.size() == elements;
}

}  // namespace

InferTensor read_tensor(const Fields& fields, std::string_view& binary) {
  InferTensor tensor;
  std::string datatype;
  fields.text("name", tensor.name);
  fields.text("datatype", datatype);
  const auto elements = elements_of(fields, tensor.shape);
  const DataType* const type = find_type(datatype);
  if (type == nullptr || !elements) {
    if (type == nullptr) {
      fields.wrong("datatype",
                   "must be BYTES, BOOL, INT8 to INT64, UINT8 to UINT64, FP32 or FP64, "
                   "got " +
                       excerpt(datatype));
    }
    return tensor;
  }
  tensor.kind = type->kind;
  uint64_t bytes = 0;
  const auto parameters = fields.object("parameters");
  if (parameters && parameters->integer("binary_data_size", {0, kSizeMax}, bytes)) {
    if (fields.find("data")) {
      fields.wrong("data", "is not allowed beside binary_data_size");
    } else if (bytes > binary.size() ||
               !read_bytes(*type, *elements, binary.substr(0, bytes), tensor)) {
      fields.wrong("parameters.binary_data_size", "does not fit the shape and the body");
    }
    binary.remove_prefix(std::min<uint64_t>(bytes, binary.size()));
    return tensor;
  }
  const auto list = fields.list("data", kElementsMax);
  if (!list) {
    fields.wrong("data", "is missing: a list of the tensor's elements");
    return tensor;
  }
  read_values(fields, *list, 1, tensor);
  if (tensor.values.size() != *elements) {
    fields.wrong("data", "has " + std::to_string(tensor.values.size()) +
                             " elements, and the shape has " + std::to_string(*elements));
  }
  return tensor;
}

void append_binary_text(std::string& out, std::string_view text) {
  const auto length = static_cast<uint32_t>(text.size());
  out.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
}

void append_binary_int32(std::string& out, int32_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace pdjob::openai
