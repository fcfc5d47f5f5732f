/* A policy plug-in that makes invalid choices and reports more cached tokens than exist. */
#include "router/policies/policy_plugin.h"

static int self;

static void* open_policy(enum pdjob_policy_stage stage, const char* options) {
  return stage == PDJOB_POLICY_DECODE && options[0] == '!' ? NULL : &self;
}

static void close_policy(void* policy) { (void)policy; }

static struct pdjob_policy_choice choose(void* policy, const struct pdjob_policy_prompt* prompt,
                                         const struct pdjob_policy_candidate* candidates,
                                         size_t candidates_count, uint64_t random) {
  (void)policy, (void)candidates, (void)random;
  struct pdjob_policy_choice choice = {.candidate = prompt->session == 0 ? candidates_count : 0,
                                       .cached_tokens = UINT64_MAX};
  return choice;
}

const struct pdjob_policy_v1* pdjob_policy_v1(void);

const struct pdjob_policy_v1* pdjob_policy_v1(void) {
  static const struct pdjob_policy_v1 kPolicy = {
      .wants_blocks = 1, .open = open_policy, .close = close_policy, .choose = choose};
  return &kPolicy;
}
