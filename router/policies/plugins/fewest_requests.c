/* An example of a policy plug-in. It picks the worker with the fewest requests of this router. A
 * tie goes to a worker whose name begins with `options` (say, on machines that you own), then to a
 * random one.
 *
 *     cc -shared -fPIC -I pdjob fewest_requests.c -o fewest_requests.so
 */
#include <stdlib.h>
#include <string.h>

#include "router/policies/policy_plugin.h"

struct policy {
  char* preferred;
};

static void* open_policy(enum pdjob_policy_stage stage, const char* options) {
  (void)stage;
  struct policy* made = malloc(sizeof *made);
  if (made != NULL) {
    made->preferred = strdup(options);
  }
  return made;
}

static void close_policy(void* policy) {
  free(((struct policy*)policy)->preferred);
  free(policy);
}

/* Less is better. */
static uint64_t rank(const struct policy* policy, const struct pdjob_policy_candidate* candidate) {
  const size_t length = strlen(policy->preferred);
  const int preferred = length > 0 && strncmp(candidate->name, policy->preferred, length) == 0;
  return 2 * (uint64_t)candidate->requests + (preferred ? 0 : 1);
}

static struct pdjob_policy_choice choose(void* policy, const struct pdjob_policy_prompt* prompt,
                                         const struct pdjob_policy_candidate* candidates,
                                         size_t candidates_count, uint64_t random) {
  (void)prompt;
  struct pdjob_policy_choice best = {.candidate = random % candidates_count, .cached_tokens = 0};
  for (size_t i = 0; i < candidates_count; ++i) {
    if (rank(policy, &candidates[i]) < rank(policy, &candidates[best.candidate])) {
      best.candidate = i;
    }
  }
  return best;
}

const struct pdjob_policy_v1* pdjob_policy_v1(void);

const struct pdjob_policy_v1* pdjob_policy_v1(void) {
  static const struct pdjob_policy_v1 kPolicy = {
      .wants_blocks = 0, .open = open_policy, .close = close_policy, .choose = choose};
  return &kPolicy;
}
