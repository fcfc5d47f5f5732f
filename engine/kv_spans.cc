#include "engine/kv_spans.h"

#include <cstring>
#include <stdexcept>
#include <type_traits>

#include <llama-io.h>
#include <llama-memory.h>
#include <llama.h>

namespace pdjob::engine {
namespace {

// The two interfaces, as this file relies on them. If an assertion fails with a new version of
// libllama, first read llama_kv_cache's state_write and state_read again: they define the metadata
// below.
static_assert(std::is_same_v<decltype(&llama_memory_i::state_write),
                             void (llama_memory_i::*)(llama_io_write_i&, llama_seq_id,
                                                      llama_state_seq_flags) const>);
static_assert(std::is_same_v<decltype(&llama_memory_i::state_read),
                             void (llama_memory_i::*)(llama_io_read_i&, llama_seq_id,
                                                      llama_state_seq_flags)>);
static_assert(std::is_same_v<decltype(&llama_io_write_i::write),
                             void (llama_io_write_i::*)(const void*, size_t)>);
static_assert(std::is_same_v<decltype(&llama_io_write_i::write_tensor),
                             void (llama_io_write_i::*)(ggml_tensor*, size_t, size_t)>);
static_assert(
    std::is_same_v<decltype(&llama_io_read_i::read), void (llama_io_read_i::*)(void*, size_t)>);
static_assert(std::is_same_v<decltype(&llama_io_read_i::read_tensor),
                             void (llama_io_read_i::*)(ggml_tensor*, size_t, size_t)>);
static_assert(std::is_same_v<decltype(llama_get_memory(nullptr)), llama_memory_i*>);

// Bytes of one cell in the metadata: i32 position, u32 count of sequences (1), i32 sequence.
constexpr size_t kCellBytes = 12;
// Before the windows: u32 "V is transposed", u32 layers. Per window: i32 type, u64 bytes of a row.
constexpr size_t kHeadBytes = 8;
constexpr size_t kWindowBytes = 12;

struct Span {
  ggml_tensor* tensor = nullptr;
  size_t offset = 0;
  size_t bytes = 0;

  std::byte* data() const { return static_cast<std::byte*>(tensor->data) + offset; }
};

// Records the metadata and the spans of a sequence; copies no rows.
class SpanWriter final : public llama_io_write_i {
 public:
  void write(const void* from, size_t bytes) override {
    metadata.append(static_cast<const char*>(from), bytes);
  }
  void write_tensor(ggml_tensor* tensor, size_t offset, size_t bytes) override {
    spans.push_back({tensor, offset, bytes});
    tensor_bytes_ += bytes;
  }
  size_t n_bytes() override { return metadata.size() + tensor_bytes_; }

  std::string metadata;
  std::vector<Span> spans;

 private:
  size_t tensor_bytes_ = 0;
};

// Replays metadata and records the spans that rows would be read into; writes no rows.
class SpanReader final : public llama_io_read_i {
 public:
  explicit SpanReader(std::string_view metadata) : metadata_(metadata) {}

  void read(void* to, size_t bytes) override {
    if (bytes > metadata_.size() - position_) {
      throw std::runtime_error("KV metadata ends early");  // Caught in place_rows.
    }
    std::memcpy(to, metadata_.data() + position_, bytes);
    position_ += bytes;
  }
  void read_tensor(ggml_tensor* tensor, size_t offset, size_t bytes) override {
    spans.push_back({tensor, offset, bytes});
    tensor_bytes_ += bytes;
  }
  size_t n_bytes() override { return position_ + tensor_bytes_; }
  bool at_end() const { return position_ == metadata_.size(); }

  std::vector<Span> spans;

 private:
  std::string_view metadata_;
  size_t position_ = 0;
  size_t tensor_bytes_ = 0;
};

template <class T>
T read_at(std::string_view bytes, size_t offset) {
  T value;
  PDJOB_CHECK(offset + sizeof(T) <= bytes.size(), offset, bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// libllama lists all K, then all V. Returns the index there of window `window` of (K0, V0, K1,
// ...).
size_t listed_at(const KvLayout& layout, size_t window) {
  const bool has_v = layout.row_bytes.size() == 2 * size_t{layout.layers};
  return has_v ? window % 2 * layout.layers + window / 2 : window;
}

// True if each window is one whole array, whose cells are rows 0 .. rows-1 of the sequence's
// memory.
bool is_plain(const KvLayout& layout, const std::vector<Span>& spans, uint32_t rows) {
  if (spans.size() != layout.row_bytes.size()) {
    return false;
  }
  for (size_t window = 0; window < spans.size(); ++window) {
    const Span& span = spans[listed_at(layout, window)];
    if (span.offset != 0 || span.bytes != uint64_t{rows} * layout.row_bytes[window]) {
      return false;
    }
  }
  return true;
}

// The metadata that libllama would save for a sequence of `rows` cells in a context of `streams`
// sequences. The cells may be listed under any stream: state_read puts them in the sequence's own.
std::string metadata_of(const KvLayout& layout, uint32_t streams, uint32_t rows) {
  std::string out;
  out.reserve(8 + kCellBytes * rows + layout.description.size() + 4 * size_t{streams});
  append(out, streams);
  append(out, rows);
  for (uint32_t row = 0; row < rows; ++row) {
    append(out, static_cast<int32_t>(row));
    append(out, uint32_t{1});
    append(out, int32_t{0});
  }
  out += layout.description;
  for (uint32_t stream = 1; stream < streams; ++stream) {
    append(out, uint32_t{0});
  }
  return out;
}

Error unsupported(const std::string& why) {
  return {ErrorCode::kUnsupported, "this model's KV memory cannot be handed over: " + why};
}

}  // namespace

Result<KvLayout> read_layout(llama_context* probe) {
  PDJOB_CHECK(llama_n_seq_max(probe) == 1);
  llama_memory_i* memory = llama_get_memory(probe);
  if (memory == nullptr) {
    return unsupported("it has none");
  }
  llama_synchronize(probe);
  SpanWriter saved;
  try {
    memory->state_write(saved, 0, 0);
  } catch (const std::exception& thrown) {
    return unsupported(thrown.what());
  }
  const size_t start = 8 + kCellBytes;  // u32 streams, u32 cells, one cell.
  const size_t windows = saved.spans.size();
  if (windows == 0 || saved.metadata.size() != start + kHeadBytes + windows * kWindowBytes ||
      read_at<uint32_t>(saved.metadata, 0) != 1 || read_at<uint32_t>(saved.metadata, 4) != 1) {
    return unsupported("its cells are not those of plain attention");
  }
  KvLayout layout;
  layout.description = saved.metadata.substr(start);
  if (read_at<uint32_t>(layout.description, 0) != 0) {
    return unsupported("V is stored transposed");
  }
  layout.layers = read_at<uint32_t>(layout.description, 4);
  if (windows != layout.layers && windows != 2 * size_t{layout.layers}) {
    return unsupported("some layers have V, others have not");
  }
  layout.row_bytes.resize(windows);
  for (size_t window = 0; window < windows; ++window) {
    const size_t listed = listed_at(layout, window);
    const auto bytes =
        read_at<uint64_t>(layout.description, kHeadBytes + listed * kWindowBytes + 4);
    layout.row_bytes[window] = static_cast<uint32_t>(bytes);
    if (bytes == 0 || bytes > UINT32_MAX) {
      return unsupported("rows of " + std::to_string(bytes) + " bytes");
    }
    layout.in_host_memory =
        layout.in_host_memory && ggml_backend_buffer_is_host(saved.spans[listed].tensor->buffer);
  }
  if (!is_plain(layout, saved.spans, 1)) {
    return unsupported("its rows are not contiguous");
  }
  return layout;
}

Result<std::vector<std::byte*>> place_rows(llama_context* context, const KvLayout& layout,
                                           SequenceId sequence, uint32_t rows) {
  const std::string metadata = metadata_of(layout, llama_n_seq_max(context), rows);
  SpanReader reader(metadata);
  try {
    llama_get_memory(context)->state_read(reader, static_cast<llama_seq_id>(sequence.value), 0);
  } catch (const std::exception& thrown) {
    return Error{ErrorCode::kInternal, std::string("cannot place KV rows: ") + thrown.what()};
  }
  if (!reader.at_end() || !is_plain(layout, reader.spans, rows)) {
    return Error{ErrorCode::kInternal, "cannot place KV rows: they are not rows 0 .. n-1"};
  }
  std::vector<std::byte*> bases(layout.row_bytes.size());
  for (size_t window = 0; window < bases.size(); ++window) {
    bases[window] = reader.spans[listed_at(layout, window)].data();
  }
  return bases;
}

bool rows_in_order(llama_context* context, const KvLayout& layout, SequenceId sequence,
                   uint32_t rows) {
  llama_synchronize(context);
  SpanWriter saved;
  llama_get_memory(context)->state_write(saved, static_cast<llama_seq_id>(sequence.value), 0);
  size_t at =
      4 + 4 * (size_t{sequence.value} + 1);  // u32 streams, then the empty streams before ours.
  if (read_at<uint32_t>(saved.metadata, at - 4) != rows) {
    return false;
  }
  for (uint32_t row = 0; row < rows; ++row, at += kCellBytes) {
    if (read_at<int32_t>(saved.metadata, at) != static_cast<int32_t>(row)) {
      return false;
    }
  }
  return rows == 0 || is_plain(layout, saved.spans, rows);
}

}  // namespace pdjob::engine
