// docs/reference/api.md: every route, field and header that routers and workers take, as Markdown
// tables.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "openai/headers.h"
#include "router/control/control_words.h"
#include "router/http_api.h"
#include "router/members/engine_routes.h"
#include "router/relay/leg_body.h"
#include "router/relay/leg_head.h"
#include "tests/support/known_fields.h"
#include "worker/api/openai_api.h"

namespace pdjob::launcher {

using Routes = std::vector<std::pair<std::string_view, std::string_view>>;

inline void append_routes(std::string& text, const char* title, const Routes& routes) {
  std::map<std::string_view, std::string> methods;  // By path.
  for (const auto& [method, path] : routes) {
    std::string& of_path = methods[path];
    of_path.append(of_path.empty() ? "" : ", ").append(method);
  }
  text.append("\n### ").append(title).append("\n\n| path | methods |\n|---|---|\n");
  for (const auto& [path, of_path] : methods) {
    text.append("| `").append(path).append("` | ").append(of_path).append(" |\n");
  }
}

// "sampling_params.n" and "messages[].role" are inside members that the router sees as a whole.
inline std::string_view member_of(std::string_view field) {
  return field.substr(0, field.find_first_of(".["));
}

inline void append_fields(std::string& text, std::string_view path,
                          const std::vector<openai::KnownField>& fields,
                          const router::RouterMembers& members) {
  const auto is_in = [](const auto& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  text.append("\n### `POST ").append(path).append("`\n\n");
  text += "| field | worker | value | router |\n|---|---|---|---|\n";
  for (const openai::KnownField& field : fields) {
    const std::string_view member = member_of(field.name);
    text.append("| `").append(field.name).append("` | ");
    text.append(field.refused ? "refused" : field.idle ? "without effect" : "supported");
    text.append(" | ");
    text.append(field.allowed).append(" | ");
    text += is_in(members.written, member)    ? "writes its own"
            : member != field.name            ? ""
            : is_in(members.read, field.name) ? "reads"
                                              : "";
    text += " |\n";
  }
}

inline void append_fields(std::string& text, std::string_view path, openai::ApiKind kind) {
  append_fields(text, path, openai::known_fields(kind),
                router::router_members(router::form_of(path)));
}

// Paths that only engines of other makes know.
inline void append_engine_routes(std::string& text) {
  std::map<std::string, std::string> workers;  // By path.
  for (const auto& [make, protocol] :
       {std::pair("vLLM", net::Protocol::kNixl), std::pair("SGLang", net::Protocol::kSglang)}) {
    std::map<std::string, std::string> roles;
    for (const net::Role role : {net::Role::kPrefill, net::Role::kDecode, net::Role::kBoth}) {
      for (const std::string& path : router::engine_routes(protocol, role)) {
        std::string& of_path = roles[path];
        of_path.append(of_path.empty() ? "" : ", ").append(net::to_string(role));
      }
    }
    for (const auto& [path, of_path] : roles) {
      std::string& of_all = workers[path];
      of_all.append(of_all.empty() ? "" : "; ").append(make).append(": ").append(of_path);
    }
  }
  text +=
      "\n### Router, passed on to engines of other makes\n\nThe method is POST. One worker serves "
      "the whole request. The router reads only the model's name, and removes the words that name "
      "a source of KV. [Routes of the engine](../how-to/run-vllm.md#routes-of-the-engine) has the "
      "rest. Orders for adapters go to all workers that take them.\n\n"
      "| path | workers that serve it |\n|---|---|\n";
  for (const auto& [path, of_path] : workers) {
    text.append("| `").append(path).append("` | ").append(of_path).append(" |\n");
  }
}

inline std::string api_reference() {
  std::string text =
      "# Routes, fields and headers\n\nGenerated from the tables and the parsers of the code; a "
      "test keeps it current. [HTTP](http.md) says what each route answers, "
      "and has the routes of the launcher, of files and batches, and of asynchronous requests.\n\n"
      "| word | meaning |\n|---|---|\n"
      "| supported | a worker of pdjob uses it |\n"
      "| refused | a worker of pdjob answers 400 if it asks for something: the reply would not be "
      "what the client expects. `false`, `null` and empty values ask for nothing, and so do those "
      "behind \"other than\" |\n"
      "| without effect | a worker of pdjob accepts it, and answers as if it were not there |\n"
      "| passed through | everything that is not listed. The router changes no byte of it. A "
      "worker "
      "of pdjob ignores it, and an engine of another make may use it |\n"
      "| the router reads, writes its own | it needs the value, or replaces what a client sends. "
      "All other fields go to the worker unread |\n"
      "\n## Routes\n";
  append_routes(text, "Router", router::HttpApi::routes());
  append_routes(text, "Router, in a job of mode rollout", router::control_routes());
  append_engine_routes(text);
  append_routes(text, "Worker", worker::OpenaiApi::routes());
  text +=
      "\n## Fields of request bodies\n\nThe lists have all fields of OpenAI's requests, vLLM's, "
      "SGLang's and llama.cpp's. A test walks theirs: `tests/data/request_fields.json` has the "
      "versions.\n";
  append_fields(text, "/v1/completions", openai::ApiKind::kCompletion);
  append_fields(text, "/v1/chat/completions", openai::ApiKind::kChat);
  append_fields(text, "/v1/responses", openai::ApiKind::kResponses);
  append_fields(text, "/v1/embeddings", openai::ApiKind::kEmbedding);
  append_fields(text, "/generate", openai::ApiKind::kSglang);
  append_fields(text, "/inference/v1/generate", openai::ApiKind::kTokens);
  text += "\n`POST /tokenize` with `messages` has the fields of a chat.\n";
  append_fields(text, "/tokenize", openai::known_tokenize_fields(), {});
  append_fields(text, "/detokenize", openai::known_detokenize_fields(), {});
  text +=
      "\n## Headers\n\nA client's headers pass through to the workers, but for these, which the "
      "router keeps or makes itself:";
  for (const std::string_view name : router::headers_kept_from_workers()) {
    text.append(" `").append(name).append("`");
  }
  text += ". [HTTP headers](headers.md) lists all that mean something to pdjob.\n";
  // Its tables, a level deeper.
  const std::string headers = openai::header_reference();
  for (size_t at = headers.find("\n## "); at != std::string::npos;) {
    const size_t next = headers.find("\n## ", at + 1);
    text.append("\n#").append(headers.substr(at + 1, next - at - 1));
    at = next;
  }
  return text;
}

}  // namespace pdjob::launcher
