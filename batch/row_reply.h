// Shared by all kinds of RowClient: requests made of rows, and results made of replies. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "batch/row_client.h"
#include "common/time.h"

namespace pdjob::batch {

constexpr size_t kReplyBytesMax = size_t{32} << 20;

// "/v1" of a base URL and "/v1/completions" of a row are "/v1/completions".
std::string joined_target(const std::string& base, const std::string& target);
// Reads a header Retry-After, at most ten minutes. Zero: there is none, or it is a date, which is
// left to the ledger's own backoff.
Duration retry_after_of(std::string_view header);

Outcome outcome_of_status(int status);
// Sets the outcome of a whole reply by its status and body.
void judge_reply(RowResult& result);
// Makes the result one without a reply.
void set_no_reply(RowResult& result, Outcome outcome, const char* cause,
                  const std::string& message);

}  // namespace pdjob::batch
