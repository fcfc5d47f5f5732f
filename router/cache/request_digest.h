// The response cache's keys for a request: a digest of everything that may change the answer and,
// for similarity search, a digest of all but the question.
//
// White space between tokens and the order of the body's members do not count. Everything else
// counts as written, even the order inside members, because templates and grammars see it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pdjob::router {

struct RequestDigest {
  std::string whole;           // SHA-256.
  bool deterministic = false;  // Greedy or seeded: a repeated request has the same answer.
  // The last message of a chat, if the user wrote it, or a completion's prompt. Empty: there is
  // none, or the answer repeats it.
  std::string question;
  std::string context;  // SHA-256 of everything but the question.
};

// `authorization`: the value that the workers get. Empty if a member occurs twice, because parsers
// differ in which one they use, or if `body` is not a JSON object.
std::optional<RequestDigest> request_digest(std::string_view path, std::string_view authorization,
                                            const std::string& body);

}  // namespace pdjob::router
