/* The C ABI of a policy plug-in: a shared library that chooses workers in the place of a built-in
 * policy (`prefill_policy: plugin`, `policy_plugin: ./mine.so`). It exports one function,
 *
 *     const struct pdjob_policy_v1* pdjob_policy_v1(void);
 *
 * whose result lives as long as the library. What this header says never changes: what is new gets
 * a function of another name. C and C++; an example is router/plugins/fewest_requests.c.
 *
 * All functions are called by one thread, the router's, which serves nothing else meanwhile: none
 * may wait, and none may throw. What is passed in is valid during the call only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(readability-identifier-naming): as C names things. */

enum pdjob_policy_stage { PDJOB_POLICY_PREFILL = 0, PDJOB_POLICY_DECODE = 1 };

struct pdjob_policy_prompt {
  uint64_t tokens;        /* Estimated. */
  uint64_t session;       /* A hash of x-session-id or `user`; 0: none. */
  const uint64_t* blocks; /* Of 512 bytes of text, each hashed with all before it. */
  size_t blocks_count;    /* 0 unless wants_blocks. */
};

struct pdjob_policy_candidate {
  uint64_t worker;      /* Differs for each incarnation. */
  const char* name;     /* Its successor has the same. */
  uint64_t load_tokens; /* What waits there or is under way, estimated. */
  uint32_t requests;    /* Of this router, under way there. */
};

struct pdjob_policy_choice {
  size_t candidate;       /* Its index. One that is not there: the least loaded is taken. */
  uint64_t cached_tokens; /* Of the prompt, which it need not compute, as far as is known. */
};

struct pdjob_policy_v1 {
  int wants_blocks; /* Not 0: prompts come with their blocks, which costs a hash of the text. */

  /* One for each stage. `options` is router.policy_options. NULL: the router does not start. */
  void* (*open)(enum pdjob_policy_stage stage, const char* options);
  void (*close)(void* policy);

  /* At least one candidate, ascending by `worker`. `random` is a fresh random number. What is
   * chosen may come to nothing: only note_sent is sure. */
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
