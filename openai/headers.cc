#include "openai/headers.h"

#include <array>

namespace pdjob::openai {
namespace {

struct Fact {
  std::string_view name;
  const char* meaning;
};

constexpr std::array kOfClients = {
    Fact{header::kRequestId, "The request's id. The router makes one where it is missing."},
    Fact{header::kSessionId, "Requests of one session go to the same worker (`consistent_hash`)."},
    Fact{header::kRoutingKey, "The same, as clients of SGLang's routers say it."},
    Fact{header::kRequestTimeout,
         "Milliseconds until the request times out. Ignored unless it is a whole number."},
    Fact{header::kTraceParent, "The W3C span that the router's spans are children of."},
    Fact{header::kCache,
         "`no`: keep out of the response cache. `always`: use it, though another try "
         "might give another answer."},
    Fact{header::kCallback, "The URL that gets the answer of an asynchronous request."},
    Fact{header::kPinPrefill, "The name of the only prefill worker that may serve the request."},
    Fact{header::kPinDecode, "The name of the only decode worker that may serve the request."},
    Fact{header::kBackground,
         "Anything: the request takes what others leave, as with `service_tier: flex`. The router "
         "tells the workers by the same header."},
    Fact{header::kProgress,
         "A number: a whole reply is preceded by interim responses (103) with the tokens so far, "
         "so many at a time. A request that has them as `pdjob_resume` goes on with them. Only "
         "workers of pdjob do so, and none for replies with logprobs."},
};

constexpr std::array kOfRouters = {
    Fact{header::kTenant,
         "The tenant that the worker shares kept prompts within. A client's own "
         "header never passes."},
    Fact{header::kLeg,
         "The name by which this router aborts the request: `POST /abort_request` with `NAME` ends "
         "all its prompts, `NAME/2` ends the third one. A client's own header never passes."},
    Fact{header::kKvStore,
         "The KV address of the store on the worker's machine, where the job has stores "
         "(`kv_store`). A client's own header never passes."},
    Fact{header::kKvElsewhere,
         "The KV address of another store, which has more of the prompt. A client's own header "
         "never "
         "passes."},
    Fact{header::kContinue,
         "Asks for token ids in the stream, so that another worker could "
         "continue it. Its value is the reply's `created`."},
    Fact{header::kDataParallelRank, "The data-parallel rank that is to prefill (Mooncake)."},
};

constexpr std::array kOfBatches = {
    Fact{header::kBatchTenant,
         "From a router: the tenant that asks for a file or a batch. To a router: the tenant whose "
         "row it is. It counts only beside a key of the job, and a client's own header never "
         "passes."},
};

constexpr std::array kOfReplies = {
    Fact{header::kRequestId, "The request's id."},
    Fact{header::kPrefill, "The prefill worker that computed the prompt."},
    Fact{header::kDecode, "The worker that generated the tokens."},
    Fact{header::kDegraded,
         "Why a decode worker computed the prompt itself, without a hand-over: "
         "`no_prefill_worker` or `no_hand_over`."},
    Fact{
        header::kNotHeld,
        "What the output or the arguments of calls were not held to, for schemas without `strict`: "
        "`tools[0].properties.tags: uniqueItems; tools[2]: not`. At most 1,024 bytes."},
    Fact{header::kCache, "`hit`, `similar` or `miss`, where the response cache is on."},
    Fact{header::kWorker, "The worker that wrote the reply."},
    Fact{header::kKvBytes, "Bytes of KV that moved for the request."},
    Fact{header::kKvSeconds, "Seconds from the grant of rows to their commit."},
    Fact{header::kKvVisibleSeconds,
         "Seconds from the last computed row to the commit: what the client waited for."},
    Fact{header::kKvTransport,
         "The transport that moved the KV: `shm`, `tcp`, `nccl`, `cuda_ipc`."},
    Fact{header::kAborted, "`1`: the request was aborted before its end."},
    Fact{"X-Accel-Buffering",
         "`no` on streams: a proxy such as nginx then passes events on at once."},
    Fact{"Allow", "The methods of the route, in a reply with status 405."},
    Fact{"Accept-Encoding", "The codings of bodies that are read, in a reply with status 415."},
    Fact{"Access-Control-Allow-Origin",
         "The page's origin or `*`, where `router.allowed_origins` allows it."},
    Fact{"Access-Control-Expose-Headers", "The headers of this table, beside it."},
    Fact{header::kKvSuspect, "From a worker to its router: KV of this peer arrives damaged."},
    Fact{"x-ratelimit-limit-requests", "Requests that the tenant may send each minute."},
    Fact{"x-ratelimit-remaining-requests", "Requests that are left now."},
    Fact{"x-ratelimit-reset-requests", "Seconds until all of them are back."},
    Fact{"x-ratelimit-limit-tokens", "Tokens that the tenant may use each minute."},
    Fact{"x-ratelimit-remaining-tokens", "Tokens that are left now."},
    Fact{"x-ratelimit-reset-tokens", "Seconds until all of them are back."},
    Fact{"Retry-After", "Seconds after which a refused request is worth another try."},
};

constexpr std::array kOfInterims = {
    Fact{header::kTokens,
         "`CHOICE@START.TOKEN.TOKEN;w=WEIGHTS;m=MODEL`: tokens of a choice, how many come before "
         "them, the weights that made them (in hexadecimal), and the model that they mean "
         "something to."},
};

constexpr std::array kOfCallbacks = {
    Fact{"webhook-id", "The asynchronous request's id; the same at each attempt."},
    Fact{"webhook-timestamp", "Unix seconds of this attempt."},
    Fact{"webhook-signature", "The signature by `callbacks.secret_file` (Standard Webhooks)."},
};

void append_table(std::string& text, const char* title, const auto& facts) {
  text += std::string("\n## ") + title + "\n\n| header | meaning |\n|---|---|\n";
  for (const Fact& fact : facts) {
    text += "| `" + std::string(fact.name) + "` | " + fact.meaning + " |\n";
  }
}

}  // namespace

std::string exposed_headers() {
  std::string names;
  for (const Fact& fact : kOfReplies) {
    names.append(names.empty() ? "" : ", ").append(fact.name);
  }
  return names;
}

std::string header_reference() {
  std::string text =
      "# HTTP headers\n\nGenerated by `pdjob reference headers` from the list in the code; a test "
      "keeps it current.\n";
  append_table(text, "Requests of clients", kOfClients);
  append_table(text, "Requests of a router to its workers", kOfRouters);
  append_table(text, "Between routers and the Batch API's process", kOfBatches);
  append_table(text, "Replies", kOfReplies);
  append_table(text, "Interim responses (103)", kOfInterims);
  append_table(text, "Callbacks", kOfCallbacks);
  return text;
}

}  // namespace pdjob::openai
