// Engine: runs one model for many sequences at once, and owns their KV rows. Scheduling and
// requests are the caller's work.
//
// A sequence is a slot ("stream") of the context. For its whole life, its KV rows are rows 0 .. n-1
// of that slot's windows, in order of position. So a decode worker can reserve rows before the
// prefill worker has computed them, and kvtransfer can move rows without knowing the model.
//
// Lives on the engine thread. Other threads may call only methods marked Thread-safe, and
// Vocabulary's. Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "common/result.h"
#include "engine/engine_config.h"
#include "engine/threads/lending_rest.h"

namespace pdjob::engine {

// How the hidden states of a text's tokens become its embedding.
enum class Pooling {
  kMean,
  kLast,  // That of the last token.
  kNone,  // The model's way is another one: it makes no embeddings here.
};

// The facts of a model. Both ends of a KV transfer compare them field by field; the API reports
// them.
struct ModelFacts {
  std::string name;  // Served name.
  // xxh3-128 (hex) of the GGUF file's size, header, tensor directory and a sample of each tensor;
  // with EngineConfig::own_weights, of the whole file.
  std::string digest;
  std::string kv_type;  // "f16" or "q8_0".
  uint32_t layers = 0;  // Layers with a KV cache.
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocabulary = 0;       // Tokens, and floats in one row of logits.
  uint32_t context_trained = 0;  // Tokens.
  std::string rope;              // Type, base, scale as text; only compared.
  uint64_t kv_bytes_per_token = 0;
  // The instructions of the CPU's kernels, which determine the bits; empty if a GPU computes.
  std::string cpu;
  uint32_t embedding_dim = 0;  // Floats of a token's hidden state. Not compared, nor is `pooling`.
  Pooling pooling = Pooling::kMean;
  std::string library;  // Version of the engine library; it determines the KV layout.
};

// One strided array of KV rows: K or V of one layer, of one sequence. Row r is the KV of position
// r.
struct KvWindow {
  // An address in this process or in the GPU's memory. The KV thread may write there while other
  // sequences decode.
  std::byte* base = nullptr;
  uint64_t shared_offset = 0;  // Byte offset of row 0 in shared_fd.
  uint32_t row_bytes = 0;
};

// The KV memory of one sequence. Window order: K of layer 0, V of layer 0, K of layer 1, ...
struct KvRegion {
  std::vector<KvWindow> windows;
  uint32_t rows_max = 0;
  // A sealed memfd with exactly this sequence's memory, or the handle of the GPU memory of all
  // sequences. Owned by the engine. -1 for private memory.
  int shared_fd = -1;
  uint64_t shared_bytes = 0;       // Size of shared_fd's memory.
  std::optional<uint32_t> device;  // The GPU that has the memory; empty for host memory.
};

struct ChatToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON.
};
struct ChatMessage {
  std::string role;
  std::string content;
  std::string reasoning = {};                 // Of an assistant: its thoughts before the content.
  std::vector<ChatToolCall> tool_calls = {};  // The same.
  std::string tool_call_id = {};              // Of role "tool": the call that it answers, ...
  std::string tool_name = {};                 // ... and the name of its tool, if known.
};
struct ChatTool {
  std::string name;
  std::string description;
  std::string parameters;  // A JSON schema.
};
// How a chat's template is filled, beside its messages and tools.
struct ChatFilling {
  std::vector<std::pair<std::string, std::string>> values = {};  // A name, and its value as JSON.
  bool opens_turn = true;       // The assistant's turn is opened behind the messages.
  bool continues_last = false;  // The prompt ends where the last message's content does.
};

// The text side of a model. Const and Thread-safe.
class Vocabulary {
 public:
  virtual ~Vocabulary() = default;

  // With `parse_special`, "<|im_end|>" in the text becomes the control token (for chat templates).
  // Without it, it stays plain text.
  virtual std::vector<Token> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const = 0;
  // The bytes of one token. They may be part of a UTF-8 character (text_stream.h joins them).
  virtual std::string piece(Token token, bool render_special) const = 0;
  // An upper bound of a token's bytes. A text longer than n times this has more than n tokens, so a
  // caller can refuse it without tokenizing it, which takes microseconds per byte.
  virtual size_t piece_bytes_max() const = 0;
  // Returns the prompt text of a conversation, made with the model's own template. It tells the
  // model to call `tools` in the form of grammar/tool_calls.h. Tokenize it with add_special and
  // parse_special. Fails with kInvalidArgument if the template refuses these messages.
  virtual Result<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                                  std::span<const ChatTool> tools,
                                                  const ChatFilling& filling) const = 0;
  virtual bool is_end(Token token) const = 0;  // True for EOS, EOT, ...
  virtual std::span<const Token> end_tokens() const = 0;
  virtual bool is_control(Token token) const = 0;
  // The texts of the tokens that begin and end a text; empty: there is none.
  struct Bounds {
    std::string begin;
    std::string end;
  };
  virtual Bounds bounds() const = 0;
  virtual uint32_t size() const = 0;
};

// The output to read at every token of an item, beside the logits of the last one.
enum class EveryToken {
  kNothing,
  kLogits,
  kHidden,  // The hidden state after the last layer and its norm.
};

// Tokens of one sequence to run in one step. Their positions follow the sequence's last one.
struct StepItem {
  SequenceId sequence;
  std::span<const Token> tokens;
  bool wants_logits = false;  // For the last token.
  EveryToken every = EveryToken::kNothing;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelFacts& facts() const = 0;  // Thread-safe.
  // The values in use: sequences, rows per sequence. Thread-safe.
  virtual const EngineConfig& config() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;         // Thread-safe.
  virtual const KvRegion& kv_region(SequenceId) const = 0;  // Fixed once open. Thread-safe.

  // Runs the items in one batch. Requires: at most one item per sequence, items ordered by
  // sequence, at most config().batch_tokens tokens in total, rows fit. Fails with kOverloaded if
  // there are no cells: the caller's bookkeeping has a bug, or the cache is broken.
  // A step in which an item has `every` has at most limits::kReadTokensPerStep tokens, beside one
  // for each sequence.
  virtual Status step(std::span<const StepItem> items) = 0;
  // As of the last step.
  virtual LendingReport lending() const { return {}; }
  // Returns the logits of `sequence` from the last step. Requires: its item had wants_logits. Valid
  // until the next step.
  virtual std::span<const float> logits(SequenceId sequence) const = 0;
  // The logits or the hidden state of token `index` of the sequence's item in the last step.
  // Requires: its item had this `every`. Valid until the next step.
  virtual std::span<const float> logits_at(SequenceId sequence, uint32_t index) const = 0;
  virtual std::span<const float> hidden_at(SequenceId sequence, uint32_t index) const = 0;

  // Tokens (= rows) that the sequence holds.
  virtual uint32_t length(SequenceId sequence) const = 0;
  // Allocates rows up to rows-1. Those that the sequence has keep what they hold; a transfer must
  // write the others before the sequence is stepped. Requires: rows > length(sequence). If it
  // fails, the sequence is empty.
  virtual Status reserve(SequenceId sequence, uint32_t rows) = 0;
  // Copies `from` into `to`, which must be empty.
  virtual Status fork(SequenceId from, SequenceId to) = 0;
  // Empties the sequence. Requires: no transfer writes its rows.
  virtual void clear(SequenceId sequence) = 0;
  // Drops all rows except [0, rows). Requires: it holds at least `rows` rows, and no transfer
  // writes any of its rows.
  virtual void trim(SequenceId sequence, uint32_t rows) = 0;
};

// Opens an engine of `config.kind`. Takes seconds: it reads the model, and allocates and touches
// the KV memory.
Result<std::unique_ptr<Engine>> open_engine(const EngineConfig& config);

}  // namespace pdjob::engine
