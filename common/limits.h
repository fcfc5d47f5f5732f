// Every bound of pdjob in one place. At a bound, pdjob answers "overloaded" to the caller instead
// of taking memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace pdjob::limits {

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;

// Configuration
inline constexpr size_t kConfigBytesMax = 256 * kKiB;
inline constexpr size_t kConfigNodesMax = 10'000;  // Values of a file, with its aliases expanded.
inline constexpr size_t kConfigAliasBytesMax = 4 * kMiB;  // Text that aliases repeat.
inline constexpr size_t kConfigDepthMax = 32;

// HTTP
inline constexpr size_t kHttpHeadBytesMax = 64 * kKiB;
inline constexpr size_t kHttpHeadersMax = 128;
inline constexpr size_t kHttpBodyBytesMax = 32 * kMiB;  // In a request; beyond: 413.
// Request bytes in memory, over all connections of one process; beyond: 503.
inline constexpr size_t kHttpHeldBytesMax = 1024 * kMiB;
// An unwanted body up to this size is read and dropped, which keeps the connection. Beyond: closed.
inline constexpr size_t kHttpDroppedBodyBytesMax = 64 * kKiB;
// A body without an API key; beyond: 413.
inline constexpr size_t kHttpKeylessBodyBytesMax = 16 * kKiB;
inline constexpr size_t kApiKeyBytesMax = 1 * kKiB;   // A longer key is refused.
inline constexpr size_t kHttpConnectionsMax = 16384;  // Or what the process's descriptors allow.
inline constexpr size_t kAdminConnectionsMax = 64;    // To the launcher's address.
inline constexpr size_t kHttpSendQueueBytesMax =
    4 * kMiB;  // To one slow reader; beyond: its source is paused.
inline constexpr size_t kHttpIdleConnectionsMax = 256;  // Kept by a client, per address.
inline constexpr size_t kNamesLookedUpMax = 1024;       // At the same time; beyond: the call fails.
inline constexpr size_t kJsonDepthMax = 64;
inline constexpr size_t kJsonValuesMax = 4 * kMiB;  // In a request; each takes 40 bytes to read.
inline constexpr size_t kJsonFieldsMax = 256;       // In an object that is read field by field.

// A worker
inline constexpr size_t kRequestsQueuedMax = 1024;  // Waiting in one worker; beyond: 503.
inline constexpr size_t kSequencesMax = 256;        // Sequences of one engine.
inline constexpr size_t kChoicesMax = 128;          // `n` of a request.
inline constexpr size_t kRequestChoicesMax = 4096;  // Over all prompts of a request.
inline constexpr size_t kMessagesMax = 4096;        // In a chat.
inline constexpr size_t kToolsMax = 128;            // In a chat.
inline constexpr size_t kToolNameBytesMax = 64;
// Parameters and descriptions together: more than any context takes.
inline constexpr size_t kToolsBytesMax = 4 * kMiB;
inline constexpr size_t kToolCallIdBytesMax = 256;
inline constexpr size_t kToolCallsMax = 32;  // In one message.
inline constexpr size_t kPromptsMax = 2048;  // In a request.
// Of one request, in the queue of an engine; the others wait for them.
inline constexpr size_t kPromptsSubmittedMax = 64;
inline constexpr size_t kStopStringsMax = 64;
inline constexpr size_t kStopStringBytesMax = 1 * kKiB;
inline constexpr size_t kStopTokensMax = 256;
inline constexpr size_t kLogprobsMax = 20;
// Logprobs of a request's prompts: their tokens, times one and their alternatives. Each takes up to
// 12 bytes of memory and about 40 of the reply.
inline constexpr size_t kPromptLogprobsMax = 256 * kKiB;
// Tokens in a step that has outputs of every token, beside one for each sequence.
inline constexpr size_t kReadTokensPerStep = 64;
inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr size_t kAllowedTokensMax = 1024;
inline constexpr size_t kWeightVersionBytesMax = 256;  // A trainer's name of its weights.
inline constexpr size_t kRidBytesMax = 256;            // A client's own name of a prompt.
inline constexpr size_t kAbortNamesMax = 4096;         // Requests that one call may abort by name.
// Logprobs in the last event of a cumulative stream: its tokens, times one and their alternatives.
inline constexpr size_t kCumulativeLogprobsMax = 32 * kKiB;
inline constexpr size_t kPromptBytesMax = 8 * kMiB;    // One prompt as text, for the tokenizer.
inline constexpr size_t kTokenizeBytesMax = 1 * kMiB;  // A text to tokenize only.
// One character can take 6 bytes of JSON.
inline constexpr size_t kTokenizeBodyBytesMax = 8 * kMiB;
inline constexpr size_t kDetokenizeTokensMax =
    128 * kKiB;  // Or the model's context, if that is longer.
inline constexpr size_t kRepeatedPromptBytesMax =
    32 * kMiB;  // Prompts that a reply repeats for each choice.
inline constexpr size_t kPreparedBytesMax =
    64 * kMiB;  // Bodies that one worker prepares at the same time; beyond: 503.
inline constexpr size_t kParsedAtOnceBytesMax =
    256 * kKiB;  // Longer bodies are parsed off the loop thread.
inline constexpr size_t kPreparedAtOnceBytesMax =
    2 * kKiB;  // Up to this size, requests are prepared on the loop thread: 1 to 2 ms.
inline constexpr size_t kPreparedAtOnceChoicesMax = 64;  // In such a request, over all its prompts.

// Logs
inline constexpr size_t kLogBytesMax = 16 * kMiB;  // Of a process; beyond, it becomes the old log.

// An engine of another make
inline constexpr size_t kEngineReplyBytesMax = 4 * kMiB;       // Its metrics and its other answers.
inline constexpr size_t kEngineLogLineBytesMax = 4 * kKiB;     // Beyond: cut.
inline constexpr size_t kEngineLogBytesPerSecond = 32 * kKiB;  // Beyond: lines are dropped.
inline constexpr size_t kEngineLogBurstBytes = 4 * kMiB;

// Structured output (docs/explanation/structured-output.md)
inline constexpr size_t kGrammarBytesMax = 64 * kKiB;  // A grammar.
inline constexpr size_t kSchemaBytesMax = 1 * kMiB;    // A JSON schema, with its annotations.
inline constexpr size_t kGrammarRulesMax = 2048;
inline constexpr size_t kGrammarDepthMax = 64;           // Nested groups.
inline constexpr size_t kGrammarLiteralBytesMax = 4096;  // One quoted text.
inline constexpr size_t kGrammarNameBytesMax = 128;      // The name of a rule.
inline constexpr size_t kGrammarRepetitionMax = 2000;    // n of {n}.
inline constexpr size_t kGrammarWeightMax = 64 * kKiB;   // Bytes, with repetitions written out.
inline constexpr size_t kPatternBytesMax = 2048;         // `pattern` of a schema, or a regex.
// Of a string whose pattern has no bound, if its schema has a maxLength.
inline constexpr int64_t kPatternLengthMax = 512;
inline constexpr size_t kPatternDepthMax = 16;
inline constexpr size_t kPatternWeightMax = 2048;  // Characters, with repetitions written out.
inline constexpr size_t kSchemaDepthMax = 64;      // Nested brackets.
inline constexpr size_t kSchemaNodesMax = 2048;    // Schemas inside a schema.
inline constexpr size_t kSchemaMergesMax = 512;    // Schemas that allOf and its like put together.
inline constexpr size_t kNotHeldBytesMax = 1 * kKiB;  // Of the header that names such parts.
inline constexpr size_t kSchemaNotesMax = 16;  // Parts of one schema that are named as not held.
inline constexpr size_t kSchemaNameBytesMax = 512;  // A property's name.
// White space in one place of the output; stops a model from indenting for ever.
inline constexpr int kSchemaWhitespaceMax = 24;
inline constexpr size_t kSchemaValueBytesMax = 4096;       // One value of const or enum.
inline constexpr size_t kSchemaValuesMax = 1024;           // In one enum.
inline constexpr int64_t kSchemaLengthMax = 100'000;       // minLength and maxLength.
inline constexpr int64_t kSchemaItemsMax = 10'000;         // minItems and maxItems.
inline constexpr size_t kSchemaRepetitionMax = 1'000'000;  // Sum of these lengths in one schema.
// A number's bound beyond it is drawn in, so that its digits can be followed one by one.
inline constexpr double kSchemaNumberMax = 1e15;
inline constexpr size_t kGrammarCheckedBytesMax = 1 * kMiB;     // After pdjob rewrote it.
inline constexpr size_t kCompiledGrammarBytesMax = 32 * kMiB;   // As the helper returns it.
inline constexpr size_t kGrammarHelperMemoryMax = 1024 * kMiB;  // Address space.
inline constexpr size_t kGrammarHelperStackMax = 8 * kMiB;
inline constexpr std::chrono::seconds kGrammarHelperCpuMax{5};  // For one grammar.
// For one grammar; longer, because others compute too.
inline constexpr std::chrono::seconds kGrammarHelperWaitMax{30};
inline constexpr size_t kGrammarsQueuedMax = 64;  // Waiting to be compiled; beyond: 503.
inline constexpr size_t kGrammarsKeptMax = 512;   // Compiled grammars and refusals.
inline constexpr size_t kGrammarsKeptBytesMax = 128 * kMiB;
// CPU time for following a grammar: kGrammarTimeMax, plus kGrammarTimePerToken for each token.
inline constexpr std::chrono::seconds kGrammarTimeMax{1};
inline constexpr std::chrono::milliseconds kGrammarTimePerToken{2};

// KV transfer
inline constexpr size_t kTransfersMax = 4096;  // Alive in one process.
// Until the receiver must have rows for it.
inline constexpr std::chrono::hours kTransferWaitMax{1};
inline constexpr size_t kTransferTailBytesMax =
    4 * kMiB;  // Bytes sent with COMMIT (the last logits).
inline constexpr size_t kLinkMessageBytesMax =
    64 * kKiB;  // Control messages of a link; rows and tails have their own limits.
inline constexpr size_t kBlocksTold = 1024;  // In one message about blocks.
inline constexpr size_t kLinksMax = 1024;
inline constexpr size_t kLinkStreamsMax = 8;  // Links between one pair of workers, per transport.
inline constexpr size_t kWindowsMax = 4096;   // (layer, K or V) windows of one region.
inline constexpr size_t kTransferRangeBytes = 4 * kMiB;    // Rows under one ROWS message.
inline constexpr size_t kTransferRowBytesMax = 64 * kMiB;  // One row over all windows.
inline constexpr size_t kTransferTurnBytes =
    1 * kMiB;  // Moved or hashed for one link before the other links get a turn.
inline constexpr size_t kLinkQueueBytesMax =
    4 * kMiB;  // Control messages waiting for one peer; beyond: the link fails.
inline constexpr size_t kSharedMappingsMax =
    512;  // Per link: one for each sequence of a peer, and some spare.
inline constexpr size_t kGpuRangeBytes = 256 * kMiB;  // Rows under one ROWS message of cuda_ipc.
inline constexpr size_t kGpuMappingsMax = 8;  // Per link: a peer keeps all its KV in one memory.
inline constexpr size_t kNcclSlabs = 4;       // Per communicator, on each end.
inline constexpr size_t kNcclSlabBytes = 4 * kMiB;

// Control plane
inline constexpr size_t kControlMessageBytesMax =
    128 * kMiB;  // A Membership of kWorkersMax entries fits.
inline constexpr size_t kControlStringBytesMax = 1 * kKiB;  // One field.
inline constexpr size_t kControlQueueMax = 4096;  // Messages waiting for one peer; beyond: dropped.
inline constexpr size_t kWorkersMax = 4096;

// Requests that kill workers (router/core/router.h)
// Crashes and hangs of one request; then it is refused.
inline constexpr size_t kRequestKillsMax = 2;
inline constexpr std::chrono::seconds kLossWordWait{2};  // For the launcher's report on a loss.
// After a failed hand-over, for the end of the prefill worker's connection.
inline constexpr std::chrono::milliseconds kBrokenLegWait{10};
// After the answer; then other suspects may join.
inline constexpr std::chrono::seconds kSuspectTrial{1};
inline constexpr std::chrono::seconds kSuspectWaitMax{10};  // For a worker without another suspect.
// Standstill of a worker, by its own report; beyond: avoided.
inline constexpr std::chrono::seconds kStandstillAvoided{2};
inline constexpr size_t kLostWorkersMax = 1024;        // Remembered by a router.
inline constexpr size_t kLostWorkerRequestsMax = 256;  // Remembered of each of them.

// Routing by prefix
// Blocks of 512 bytes; text beyond is not compared.
inline constexpr size_t kPromptBlocksMax = 2048;
inline constexpr uint32_t kPrefixEntriesMax = 1 << 20;  // Remembered blocks of workers: 60 MB.

// Responses kept by the router
inline constexpr size_t kCachedVectorsMax = 100'000;
inline constexpr size_t kEmbeddingDimensionsMax = 4096;
inline constexpr size_t kEmbeddingTextBytesMax = 32 * kKiB;
// Beyond: a request does not wait for an embedding.
inline constexpr size_t kEmbeddingsInFlightMax = 64;

// Asynchronous requests
inline constexpr size_t kAsyncBodyBytesMax = 1 * kMiB;
inline constexpr size_t kAsyncReplyBytesMax = 1 * kMiB;
inline constexpr size_t kAsyncStoreBytesMax = 64 * kMiB;  // Waiting for the disk; beyond: 503.

// The Batch API
inline constexpr size_t kUploadsMax = 64;  // At the same time; beyond: 503.
inline constexpr size_t kUploadsOfTenantMax = 16;
inline constexpr size_t kUploadUnwrittenBytesMax = 1 * kMiB;  // Of one; beyond: it is paused.
inline constexpr size_t kDownloadsOfTenantMax = 16;
inline constexpr size_t kDownloadsMax = 64;              // At the same time; beyond: 503.
inline constexpr size_t kBatchBodyBytesMax = 64 * kKiB;  // Of POST /v1/batches.
inline constexpr size_t kFormBytesMax = 64 * kKiB;       // Of an upload, around its file.
inline constexpr size_t kBatchRelaysOfTenantMax = 64;
inline constexpr size_t kBatchRelaysMax = 256;  // Through one router at the same time; beyond: 503.

// Between threads
inline constexpr size_t kChannelMax = 65536;

// Engines' reports on their prefix caches (openai/kv_events/kv_events.h)
inline constexpr uint32_t kKvBlocksMax = 1 << 21;     // Reported by engines: 300 MB.
inline constexpr uint32_t kTokenChainsMax = 1 << 18;  // Blocks of text with their tokens: 50 MB.
inline constexpr size_t kKvBatchBytesMax = 4 * kMiB;  // Beyond: the engine is disconnected.
inline constexpr size_t kKvBatchesQueuedMax = 1024;   // Per engine.
inline constexpr size_t kKvStreamQueueBytesMax =
    32 * kMiB;                                // To one router; beyond: it is disconnected.
inline constexpr size_t kAdaptersMax = 1024;  // Adapter names that engines reported.
// A longer request is not tokenized for routing.
inline constexpr size_t kTokenizedBytesMax = 256 * kKiB;
inline constexpr size_t kTokenizationsQueuedMax = 256;  // Over all engines; beyond: not asked.
inline constexpr size_t kTokenizeReplyBytesMax = 4 * kMiB;

static_assert(kHttpHeadBytesMax < kHttpBodyBytesMax);
static_assert(kPreparedBytesMax >= kHttpBodyBytesMax);
static_assert(kChannelMax > kRequestsQueuedMax);
static_assert(kControlMessageBytesMax > kWorkersMax * 6 * kControlStringBytesMax);

}  // namespace pdjob::limits
