/* The C ABI of a policy plug-in: a shared library that chooses workers instead of a built-in policy
 * (`prefill_policy: plugin`, `policy_plugin: ./mine.so`). It exports one function:
 *
 *     const struct pdjob_policy_v1* pdjob_policy_v1(void);
 *
 * Its result lives as long as the library. This header never changes: a new feature gets a function
 * of another name. For C and C++; an example is router/policies/plugins/fewest_requests.c.
 *
 * One thread, the router's, calls all functions and serves nothing else meanwhile. They must not
 * block or throw. Arguments are valid during the call only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(readability-identifier-naming): C's naming style. */

enum pdjob_policy_stage { PDJOB_POLICY_PREFILL = 0, PDJOB_POLICY_DECODE = 1 };

struct pdjob_policy_prompt {
  uint64_t tokens;        /* Estimated. */
  uint64_t session;       /* A hash of x-session-id or `user`; 0: none. */
  const uint64_t* blocks; /* Hashes: each of 512 bytes of text and all before. */
  size_t blocks_count;    /* 0 unless wants_blocks. */
};

struct pdjob_policy_candidate {
  uint64_t worker;      /* New for each incarnation. */
  const char* name;     /* Stays the same after a restart. */
  uint64_t load_tokens; /* Waiting or under way there, estimated. */
  uint32_t requests;    /* Of this router, under way there. */
};

struct pdjob_policy_choice {
  size_t candidate;       /* Index. If out of range, the least loaded is taken. */
  uint64_t cached_tokens; /* Prompt tokens that it probably need not compute. */
};

struct pdjob_policy_v1 {
  int wants_blocks; /* Not 0: prompts have blocks, which costs a hash of the text. */

  /* Called once for each stage. `options` is router.policy_options. If the result is NULL, the
   * router does not start. */
  void* (*open)(enum pdjob_policy_stage stage, const char* options);
  void (*close)(void* policy);

  /* Gets at least one candidate, ascending by `worker`. `random` is a fresh random number. The
   * choice may stay unused: only note_sent confirms it. */
  struct pdjob_policy_choice (*choose)(void* policy, const struct pdjob_policy_prompt* prompt,
                                       const struct pdjob_policy_candidate* candidates,
                                       size_t candidates_count, uint64_t random);
  /* The prompt was sent there. May be NULL. */
  void (*note_sent)(void* policy, const struct pdjob_policy_prompt* prompt, uint64_t worker);
};

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif
