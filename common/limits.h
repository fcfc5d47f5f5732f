// Every bound of pdjob in one place: what is full answers "overloaded" upstream instead of taking
// memory.
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
inline constexpr size_t kConfigDepthMax = 32;

// HTTP
inline constexpr size_t kHttpHeadBytesMax = 64 * kKiB;
inline constexpr size_t kHttpHeadersMax = 128;
inline constexpr size_t kHttpBodyBytesMax = 32 * kMiB;  // A request; beyond: 413.
// Requests in memory, over all connections of one process; beyond: 503.
inline constexpr size_t kHttpHeldBytesMax = 1024 * kMiB;
// Bytes of an unwanted body that are read, so that its connection can be kept. Beyond: closed.
inline constexpr size_t kHttpDroppedBodyBytesMax = 64 * kKiB;
// A body that comes without an API key; beyond: 413.
inline constexpr size_t kHttpKeylessBodyBytesMax = 16 * kKiB;
inline constexpr size_t kApiKeyBytesMax = 1 * kKiB;   // A longer one is wrong.
inline constexpr size_t kHttpConnectionsMax = 16384;  // Beyond: accepted, told 503, closed.
inline constexpr size_t kHttpSendQueueBytesMax =
    4 * kMiB;  // To one slow reader, before its source is paused.
inline constexpr size_t kHttpIdleConnectionsMax = 256;  // Of a client, kept to one address.
inline constexpr size_t kNamesLookedUpMax = 1024;       // At one time; beyond: the call fails.
inline constexpr size_t kJsonDepthMax = 64;
inline constexpr size_t kJsonValuesMax = 4 * kMiB;  // Of a request; to read one takes 40 bytes.
inline constexpr size_t kJsonFieldsMax =
    256;  // Of an object of a request that is read field by field.

// A worker
inline constexpr size_t kRequestsQueuedMax = 1024;  // Waiting in one worker; beyond: 503.
inline constexpr size_t kSequencesMax = 256;        // Sequences of one engine.
inline constexpr size_t kChoicesMax = 16;           // `n` of a request.
inline constexpr size_t kMessagesMax = 4096;        // Of a chat.
inline constexpr size_t kPromptsMax = 256;          // Of a completion.
inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 1 * kKiB;
inline constexpr size_t kStopTokensMax = 256;
inline constexpr size_t kLogprobsMax = 20;
inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr size_t kPromptBytesMax = 8 * kMiB;        // One prompt as text, for the tokenizer.
inline constexpr size_t kTokenizeBytesMax = 1 * kMiB;      // A text that is only tokenized.
inline constexpr size_t kTokenizeBodyBytesMax = 8 * kMiB;  // A character is up to 6 bytes of JSON.
inline constexpr size_t kDetokenizeTokensMax =
    128 * kKiB;  // Or the context of the model, if it is longer.
inline constexpr size_t kRepeatedPromptBytesMax =
    32 * kMiB;  // Of prompts that a reply repeats for each choice.
inline constexpr size_t kPreparedBytesMax =
    64 * kMiB;  // Bodies of requests that one worker prepares at a time; beyond: 503.
inline constexpr size_t kParsedAtOnceBytesMax =
    256 * kKiB;  // A longer body is parsed off the loop thread.
inline constexpr size_t kPreparedAtOnceBytesMax =
    2 * kKiB;  // A shorter body is prepared on the loop thread: a millisecond or two.
inline constexpr size_t kPreparedAtOnceChoicesMax = 64;  // Of it, over all its prompts.

// Structured output (docs/structured_output.md)
inline constexpr size_t kGrammarBytesMax = 64 * kKiB;  // A grammar, or a JSON schema.
inline constexpr size_t kGrammarRulesMax = 2048;
inline constexpr size_t kGrammarDepthMax = 64;           // Groups in groups.
inline constexpr size_t kGrammarLiteralBytesMax = 4096;  // One quoted text.
inline constexpr size_t kGrammarNameBytesMax = 128;      // The name of a rule.
inline constexpr size_t kGrammarRepetitionMax = 2000;    // n of {n}.
inline constexpr size_t kGrammarWeightMax = 64 * kKiB;   // Bytes, with repetitions written out.
inline constexpr size_t kPatternBytesMax = 1024;         // `pattern` of a schema.
inline constexpr size_t kPatternDepthMax = 16;
inline constexpr size_t kPatternWeightMax = 2048;     // Characters, with repetitions written out.
inline constexpr size_t kSchemaDepthMax = 64;         // Brackets in brackets.
inline constexpr size_t kSchemaNodesMax = 1024;       // Schemas in a schema.
inline constexpr size_t kSchemaNameBytesMax = 512;    // A property's name.
inline constexpr size_t kSchemaValueBytesMax = 4096;  // One value of const or enum.
inline constexpr size_t kSchemaValuesMax = 1024;      // Of one enum.
inline constexpr int64_t kSchemaLengthMax = 100'000;  // minLength and maxLength.
inline constexpr int64_t kSchemaItemsMax = 10'000;    // minItems and maxItems.
inline constexpr size_t kSchemaRepetitionMax = 1'000'000;                // All of these together.
inline constexpr double kSchemaNumberMax = 1e9;                          // minimum and the like.
inline constexpr size_t kGrammarCheckedBytesMax = 4 * kGrammarBytesMax;  // As pdjob writes it anew.
inline constexpr size_t kCompiledGrammarBytesMax = 32 * kMiB;            // As it leaves its helper.
inline constexpr size_t kGrammarHelperMemoryMax = 1024 * kMiB;           // Address space.
inline constexpr size_t kGrammarHelperStackMax = 8 * kMiB;
inline constexpr std::chrono::seconds kGrammarHelperCpuMax{5};    // For one grammar.
inline constexpr std::chrono::seconds kGrammarHelperWaitMax{30};  // The same, when others compute.
inline constexpr size_t kGrammarsQueuedMax = 64;  // Waiting to be compiled; beyond: 503.
inline constexpr size_t kGrammarsKeptMax = 512;   // Compiled ones, and refusals.
inline constexpr size_t kGrammarsKeptBytesMax = 128 * kMiB;
// CPU time that following a grammar may take: this much, and for each token this much more.
inline constexpr std::chrono::seconds kGrammarTimeMax{1};
inline constexpr std::chrono::milliseconds kGrammarTimePerToken{2};

// KV transfer
inline constexpr size_t kTransfersMax = 4096;             // Alive in one process.
inline constexpr std::chrono::hours kTransferWaitMax{1};  // A receiver has rows for it by then.
inline constexpr size_t kTransferTailBytesMax =
    4 * kMiB;  // What travels with COMMIT (the last logits).
inline constexpr size_t kLinkMessageBytesMax =
    64 * kKiB;  // Control messages of a link; rows and tails apart.
inline constexpr size_t kLinksMax = 1024;
inline constexpr size_t kLinkStreamsMax = 8;  // Links of one pair of workers by one transport.
inline constexpr size_t kWindowsMax = 4096;   // (layer, K or V) windows of one region.
inline constexpr size_t kTransferRangeBytes = 4 * kMiB;    // Rows under one ROWS message.
inline constexpr size_t kTransferRowBytesMax = 64 * kMiB;  // One row over all windows.
inline constexpr size_t kTransferTurnBytes =
    1 * kMiB;  // Moved or hashed for one link before others have their turn.
inline constexpr size_t kLinkQueueBytesMax =
    4 * kMiB;  // Control messages waiting for one peer; beyond: the link fails.
inline constexpr size_t kSharedMappingsMax =
    512;  // Of one link: as many sequences as a peer has, and some.
inline constexpr size_t kGpuRangeBytes = 256 * kMiB;  // Rows under one ROWS message of cuda_ipc.
inline constexpr size_t kGpuMappingsMax = 8;  // Of one link: a peer keeps all its KV in one memory.
inline constexpr size_t kNcclSlabs = 4;       // Of one communicator, on each end.
inline constexpr size_t kNcclSlabBytes = 4 * kMiB;

// Control plane
inline constexpr size_t kControlMessageBytesMax =
    32 * kMiB;  // A Membership of kWorkersMax entries fits.
inline constexpr size_t kControlStringBytesMax = 1 * kKiB;  // One field.
inline constexpr size_t kControlQueueMax = 4096;  // Messages waiting for one peer; beyond: dropped.
inline constexpr size_t kWorkersMax = 4096;

// Requests that kill workers (router/router.h)
inline constexpr size_t kRequestKillsMax = 2;  // Crashes and hangs of one request: it is refused.
inline constexpr std::chrono::seconds kLossWordWait{2};  // For the launcher's word on a loss.
inline constexpr std::chrono::seconds kSuspectTrial{1};  // After the answer; then others may join.
inline constexpr std::chrono::seconds kSuspectWaitMax{10};  // For a worker without another suspect.
inline constexpr std::chrono::seconds kStandstillAvoided{2};  // Of a worker, by its own report.
inline constexpr size_t kLostWorkersMax = 1024;               // That a router remembers.

// Routing by prefix
inline constexpr size_t kPromptBlocksMax = 2048;  // Of 512 bytes: what lies beyond is not compared.
inline constexpr uint32_t kPrefixEntriesMax = 1 << 20;  // Blocks of workers remembered: 60 MB.

// Responses kept by the router
inline constexpr size_t kCachedVectorsMax = 100'000;
inline constexpr size_t kEmbeddingDimensionsMax = 4096;
inline constexpr size_t kEmbeddingTextBytesMax = 32 * kKiB;
inline constexpr size_t kEmbeddingsInFlightMax = 64;  // Beyond: the request waits for none.

// Requests that nobody waits for
inline constexpr size_t kAsyncBodyBytesMax = 1 * kMiB;
inline constexpr size_t kAsyncReplyBytesMax = 1 * kMiB;
inline constexpr size_t kAsyncStoreBytesMax = 64 * kMiB;  // Waiting for the disk; beyond: 503.

// Between threads
inline constexpr size_t kChannelMax = 65536;

// What engines tell of their prefix caches (net/kv_events.h)
inline constexpr uint32_t kKvBlocksMax = 1 << 21;     // Told by engines: 300 MB.
inline constexpr uint32_t kTokenChainsMax = 1 << 18;  // Blocks of text with their tokens: 50 MB.
inline constexpr size_t kKvBatchBytesMax = 4 * kMiB;  // Beyond: its engine is cut off.
inline constexpr size_t kKvBatchesQueuedMax = 1024;   // Of one engine.
inline constexpr size_t kKvStreamQueueBytesMax =
    32 * kMiB;                                            // To one router; beyond: it is cut off.
inline constexpr size_t kAdaptersMax = 1024;              // Names of them that engines told.
inline constexpr size_t kTokenizedBytesMax = 256 * kKiB;  // A longer request is not asked about.
inline constexpr size_t kTokenizationsQueuedMax = 256;    // Of all engines; beyond: not asked.
inline constexpr size_t kTokenizeReplyBytesMax = 4 * kMiB;

static_assert(kHttpHeadBytesMax < kHttpBodyBytesMax);
static_assert(kPreparedBytesMax >= kHttpBodyBytesMax);
static_assert(kChannelMax > kRequestsQueuedMax);
static_assert(kControlMessageBytesMax > kWorkersMax * 6 * kControlStringBytesMax);

}  // namespace pdjob::limits
