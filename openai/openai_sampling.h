// The fields about sampling and stops that all forms of a request share. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

inline constexpr int kTemperatureMaxOfEngines =
    1000;  // In the forms that engines have of their own.

// Where the forms differ.
struct DrawNames {
  std::string_view seed = "seed";
  int temperature_max = 2;
};
// Reads temperature, top_p, top_k, min_p, penalties, ignore_eos, logit_bias, allowed_token_ids, and
// the seed.
void read_draw(const Fields& fields, const DrawNames& names, ApiRequest& request);
// Reads `n`, which the number of prompts bounds, too. The prompts must have been read.
void read_choice_count(const Fields& fields, ApiRequest& request);
// Reads the most tokens, which are at least `least`; -1: as many as fit.
void read_max_tokens(const Fields& fields, const char* name, int64_t least, ApiRequest& request);
// Reads the least number of tokens. `limit`: the name of the most, which has been read.
void read_min_tokens(const Fields& fields, const char* name, const char* limit,
                     ApiRequest& request);
// Reads cache_salt, or extra_key, SGLang's name.
void read_salt(const Fields& fields, ApiRequest& request);
// Reads stop, stop_token_ids and skip_special_tokens.
void read_stop(const Fields& fields, StopParams& stop);

// The fields that pdjob does not serve (unserved_fields.cc): refuses what would change the reply,
// and accepts the rest. The sampling must have been read.
void read_unserved(const Fields& fields, const ApiRequest& request);
// The same, inside of sampling_params.
void read_unserved_params(const Fields& params, ApiKind kind);

}  // namespace pdjob::openai
