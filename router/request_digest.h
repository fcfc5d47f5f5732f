// What the response cache knows a request by: one digest of all that may change the answer, and,
// for requests that may be like another one, the same without the question that they ask.
//
// Left out are white space between tokens and the order of the body's members. Everything else
// counts as it was written, the order inside members too: templates and grammars see it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pdjob::router {

struct RequestDigest {
  std::string whole;           // SHA-256.
  bool deterministic = false;  // The same request has the same answer again: greedy or seeded.
  std::string question;        // The last message of a chat, if it is its user's, or a completion's
                               // prompt. Empty: there is none, or the answer repeats it.
  std::string context;         // SHA-256 of all but the question.
};

// `authorization` is what the workers get of it. Nothing if a member is there twice, since readers
// differ in which of them counts, or if `body` is no JSON object.
std::optional<RequestDigest> request_digest(std::string_view path, std::string_view authorization,
                                            const std::string& body);

}  // namespace pdjob::router
