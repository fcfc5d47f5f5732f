// Engine: runs one model for many sequences at once, and owns their KV cells. It schedules nothing
// and knows no requests.
//
// A sequence is a slot ("stream") of the context: its KV rows are rows 0 .. n-1 of that slot's
// windows, in order of position, for its whole life. That is what lets a decode worker reserve rows
// before the prefill worker has computed them, and lets kvtransfer move rows without knowing a
// model.
//
// Lives on the engine thread: every method but those of Vocabulary, facts() and kv_region() is
// called from there only. Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "common/result.h"
#include "engine/engine_config.h"

namespace pdjob::engine {

// What must be equal on both ends of a KV transfer, field by field, and what the API says of the
// model.
struct ModelFacts {
  std::string name;    // Served name.
  std::string digest;  // xxh3-128 (hex) over the GGUF's size, header, tensor directory and a sample
                       // of each tensor.
  std::string kv_type;  // "f16", "q8_0".
  uint32_t layers = 0;  // With a KV cache.
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocabulary = 0;       // Tokens, and floats in one row of logits.
  uint32_t context_trained = 0;  // Tokens.
  std::string rope;              // Type, base, scale: text, only compared.
  uint64_t kv_bytes_per_token = 0;
  std::string library;  // Version of the engine library: the KV layout is bound to it.
};

// One strided array of KV rows: K or V of one layer, of one sequence. Row r is the KV of position
// r.
struct KvWindow {
  std::byte* base = nullptr;   // In this process, or an address of the GPU's; may be written by the
                               // KV thread while other sequences decode.
  uint64_t shared_offset = 0;  // Of row 0 within shared_fd.
  uint32_t row_bytes = 0;
};

// The KV memory of one sequence, K of layer 0, V of layer 0, K of layer 1, ... in that order.
struct KvRegion {
  std::vector<KvWindow> windows;
  uint32_t rows_max = 0;
  int shared_fd = -1;  // Sealed memfd of exactly this sequence's memory, or the handle of the GPU's
                       // memory of all sequences; owned by the engine. -1: private memory.
  uint64_t shared_bytes = 0;       // Its size.
  std::optional<uint32_t> device;  // The GPU whose memory it is; else it is the host's.
};

struct ChatMessage {
  std::string role;
  std::string content;
};

// The text side of a model. Const and Thread-safe.
class Vocabulary {
 public:
  virtual ~Vocabulary() = default;

  // `parse_special`: "<|im_end|>" in the text becomes the control token (chat templates) instead of
  // plain text.
  virtual std::vector<Token> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const = 0;
  // The bytes of one token: may be part of a UTF-8 character (text_stream.h puts them together).
  virtual std::string piece(Token token, bool render_special) const = 0;
  // No token has more bytes, so a text of more than n times as many is more than n tokens: refuse
  // it before tokenizing it, which takes microseconds per byte.
  virtual size_t piece_bytes_max() const = 0;
  // The prompt text of a conversation, by the model's own template, with the assistant's turn
  // opened; to be tokenized with add_special and parse_special. kInvalidArgument: the template
  // refuses these messages.
  virtual Result<std::string> apply_chat_template(std::span<const ChatMessage> messages) const = 0;
  virtual bool is_end(Token token) const = 0;  // Ends a generation (EOS, EOT, ...).
  virtual std::span<const Token> end_tokens() const = 0;
  virtual bool is_control(Token token) const = 0;
  virtual uint32_t size() const = 0;
};

// Tokens of one sequence to run in one step. Positions continue where the sequence ended.
struct StepItem {
  SequenceId sequence;
  std::span<const Token> tokens;
  bool wants_logits = false;  // Of the last token.
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelFacts& facts() const = 0;  // Thread-safe.
  virtual const EngineConfig& config()
      const = 0;  // As built: sequences, rows per sequence. Thread-safe.
  virtual const Vocabulary& vocabulary() const = 0;         // Thread-safe.
  virtual const KvRegion& kv_region(SequenceId) const = 0;  // Fixed once open. Thread-safe.

  // Runs the items in one batch. Requires: at most one item per sequence, items ordered by
  // sequence, tokens in all <= config().batch_tokens, rows fit. kOverloaded: no cells (a bug of the
  // caller's bookkeeping, or a broken cache).
  virtual Status step(std::span<const StepItem> items) = 0;
  // Row of the item `sequence` of the last step, which must have wanted it. Valid until the next
  // step.
  virtual std::span<const float> logits(SequenceId sequence) const = 0;

  // Tokens (= rows) the sequence holds.
  virtual uint32_t length(SequenceId sequence) const = 0;
  // Makes rows 0 .. rows-1 of an empty sequence exist, to be written by somebody else before the
  // sequence is stepped.
  virtual Status reserve(SequenceId sequence, uint32_t rows) = 0;
  // `to` (empty) becomes a copy of `from`.
  virtual Status fork(SequenceId from, SequenceId to) = 0;
  // Empties the sequence. Nobody may write its rows any more.
  virtual void clear(SequenceId sequence) = 0;
  // Drops all rows but [0, rows). Requires: it holds as many; nobody may write any of them.
  virtual void trim(SequenceId sequence, uint32_t rows) = 0;
};

// Opens the engine that `config.kind` names. Takes seconds: reads the model, allocates and touches
// the KV memory.
Result<std::unique_ptr<Engine>> open_engine(const EngineConfig& config);

}  // namespace pdjob::engine
