#include "launcher/cli/help_texts.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pdjob::launcher {
namespace {

constexpr auto kTexts = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"", R"(Examples:
  pdjob example > job.yaml                      a small job file to begin with
  pdjob job.yaml                                start a job; Ctrl-C drains and stops it
  pdjob job.yaml --set decode.workers=4         the same, with one key changed
  pdjob plan job.yaml                           show what would run, and start nothing
  pdjob simulate job.yaml --rate 2 --prompt 500 --output 50
                                                how it would serve a load, without machines
  pdjob tune --measure quickstart --out model.json
                                                how fast its engine is, for `pdjob simulate`
  pdjob ps                                      the jobs that run here
  pdjob status quickstart                       what runs, and how it is doing
  pdjob top                                     the same, live: load, latencies, rates
  pdjob links job.yaml --watch                  the KV links between its workers, live
  pdjob logs -f decode-0                        what a process writes, on whichever machine
  pdjob stop                                    ends the job that runs here
  pdjob batch rows.jsonl --out results --config job.yaml
                                                answer all rows of a file, then end
  pdjob convert vllm.yaml > job.yaml            a file of vLLM's own pdjob, as a job file
  pdjob reference                               every key of a job file

By hand, without a launcher:
  pdjob worker --role prefill --model M.gguf --listen 127.0.0.1:8101
  pdjob worker --role decode  --model M.gguf --listen 127.0.0.1:8102
  pdjob router --prefill http://127.0.0.1:8101 --decode http://127.0.0.1:8102
  pdjob router --config router.yaml

Many machines:
  pdjob agent --new-key lab.key                           once; copy it to each machine
  pdjob agent --join 10.0.0.1:7700 --key-file lab.key     on each machine

Many jobs on these machines:
  pdjob keeper --listen 10.0.0.1:7700 --key-file lab.key  in place of a job
  pdjob submit job.yaml                                   it waits until there is room
  pdjob jobs                                              what runs, what waits, and why

Exit codes: 0 stopped cleanly, 1 the job failed, 2 bad configuration or usage,
            3 the job could not be placed, 4 some rows of a batch failed,
            130 stopped by Ctrl-C.
)"},
    {"plan", R"(
Examples:
  pdjob plan configs/local_2p2d.yaml
  pdjob plan job.yaml --set decode.workers=8
  pdjob plan job.yaml --json | jq '.processes[].name'
  pdjob plan job.yaml --assume nodes.yaml --strict

The machines of --assume:
  nodes:
    box: {count: 2, cores: 64, memory: 512GiB, gpus: 8, labels: {zone: a}}
)"},
    {"simulate", R"(
Examples:
  pdjob simulate job.yaml --rate 20 --prompt 3000 --output 300 --slo ttft=1s,itl=50ms
  pdjob simulate job.yaml --rate 5@50s,50@10s --prompt 3000~0.5 --output 100..500
  pdjob simulate job.yaml --trace conversation_trace.jsonl --requests 2000 --html page.html
  pdjob simulate job.yaml --set decode.workers=3 --model h100.json --rate 20 --prompt 3000 --output 300

The first line says what separate prefill and decode workers gain or cost, against
the same number of workers that do both. Nothing is started.
)"},
    {"tune", R"(
Examples:
  pdjob tune job.yaml --rate 2 --prompt 200 --output 20 --slo ttft=2s,itl=60ms
  pdjob tune --measure quickstart --out model.json
  pdjob tune --measure http://127.0.0.1:8101 --decode http://127.0.0.1:8102 --out model.json
  pdjob tune --measure http://10.0.0.7:8000 --chunk 8192 --device "1 H100" --out h100.json
  pdjob tune --read c1.json --read c16.json --kind vllm-bench --out published.json

Without --measure and --read it simulates fleets until it has the smallest one that
serves the load. With --measure it sends requests to an engine that runs, for two minutes
or --seconds. Nothing else should use the engine or its machine meanwhile. Ctrl-C ends it
and writes nothing.
)"},
    {"convert", R"(
Examples:
  pdjob convert vllm.yaml > job.yaml
  pdjob convert --recipe models/DeepSeek-R1.yaml --hardware h200 --nodes 2 > job.yaml
  pdjob convert --recipe models/Kimi-K3.yaml --hardware gb200 --feature tool_calling > job.yaml

A recipe is a file of https://github.com/vllm-project/recipes whose strategies
include pd_cluster.
)"},
    {"example", R"(
Examples:
  pdjob example > job.yaml
  pdjob example local_2p2d | pdjob plan --config /dev/stdin
)"},
    {"ps", R"(
Examples:
  pdjob ps
  pdjob ps --json | jq -r '.[] | [.job, .state, .url] | @tsv'
)"},
    {"top", R"(
Each line is a process. Rates and latencies are those of the last second.

  RUNNING, QUEUED  requests of the worker
  KV               how much of its KV memory holds rows
  BUSY             how much of the time its engine was in a step
  TTFT             from a request's arrival at the worker to its first token
  ITL              between two tokens of a request
  TOKENS/S         tokens that its engine computed: prompts and output

The second line adds up the workers that decode: TTFT and ITL there are what clients see, without
the way through the router.

The second table has means over the last one or two minutes:

  QUEUE            what a request waits before it is sent to workers; in an engine, before its
                   first step
  PREFILL          of a prefill leg, from sending it to its whole reply; in an engine, from the
                   first step to the first token
  KV               what a request waits for its KV when its prompt is computed; in an engine, a
                   transfer

A router's line is by its own clock. The lines of vLLM's and SGLang's engines are by their metrics.
A stream of these engines has their wait and first step in the router's KV; a whole reply has none.

The third table has the KV links between the workers, as the decode workers see them
(`pdjob links --help`).

In a pipe it prints a page a second.

Examples:
  pdjob top
  pdjob top --job quickstart
)"},
    {"status", R"(
STATE is waiting, starting, registered, ready, hung, draining, exited or backoff.

Examples:
  pdjob status
  pdjob status quickstart --watch
  pdjob status --config job.yaml --json | jq '.processes[] | {name, state, restarts}'
)"},
    {"links", R"(
A link is the way on which the KV cache of prompts moves from one prefill worker to one decode
worker. Both ends count what they see; the table has a line for each.

  PAIR       from the prefill worker > to the decode worker
  NODES      where each end is; only if the workers are on several machines
  SEEN BY    the worker that counts
  VIA        shm or cuda_ipc (one machine), tcp or nccl; tls: it is encrypted
  STATE      opening, open, or lost (the line goes a minute later); suspect: KV came damaged twice
             within a minute, and the router avoids the pair for a while if there is another
  EPOCH      of the latest link; grows whenever the decode worker makes one
  RETRIES    links that were made again
  GB/S       bytes by the time from grant to COMMIT, which includes waiting for the prompt
  ALIVE      transfers under way
  LEASES     prompts whose KV is kept for requests that queue at the decode worker
  FAILED     transfers that failed, by cause: their requests are tried again
  STALLS     what stopped moving and was given up, by cause

In a pipe it prints the table once, with --watch once a second; with --json a line per look.

Examples:
  pdjob links --config job.yaml --watch
  pdjob links --job quickstart --json | jq '.workers[].links[] | {peer, gb_per_second}'
)"},
    {"nodes", R"(
Examples:
  pdjob nodes quickstart
  pdjob nodes job.yaml --json
  pdjob nodes --yaml > nodes.yaml    for `pdjob plan --assume`
)"},
    {"keeper", R"(
Jobs outlive the keeper: start it again, and it goes on with them.

Examples:
  pdjob keeper --listen 10.0.0.1:7700 --key-file lab.key
  pdjob keeper --listen 10.0.0.1:7700 --key-file lab.key --pool lab --ports 9000-9099
)"},
    {"submit", R"(
Its `clusters` are replaced by the pool. It gets all the shares of machines that it
needs together, or waits.

Examples:
  pdjob submit online.yaml
  pdjob submit night.yaml --queue research --priority 5 --wait
)"},
    {"jobs", R"(
Examples:
  pdjob jobs
  pdjob jobs --json | jq '.jobs[] | select(.state == "queued") | .why'
  pdjob jobs night                   what its launcher has written
)"},
    {"cancel", R"(
Examples:
  pdjob cancel night
  pdjob cancel online --wait
)"},
    {"quota", R"(
Examples:
  pdjob quota research --cores 16 --gpus 2
  pdjob quota research               as much as there is
)"},
    {"logs", R"(
Examples:
  pdjob logs decode-0
  pdjob logs -f launcher quickstart
)"},
    {"scale", R"(
Examples:
  pdjob scale                        shows the sizes, and who decides them
  pdjob scale decode=4 prefill=2     waits until they serve
  pdjob scale decode=auto --no-wait  as the job file's `scaling` says
  pdjob scale quickstart decode=2    of several jobs that run here
)"},
    {"diff", R"(
Exit code 2: the file changes what a running job keeps.

Examples:
  pdjob diff job.yaml
  pdjob diff job.yaml --set decode.engine.sequences=16
)"},
    {"apply", R"(
Sizes and the settings of workers change; requests go on. If a new worker dies twice before it
serves, the job goes back to its file before, and the exit code is 1.

Examples:
  pdjob apply job.yaml
  pdjob apply job.yaml --dry-run
)"},
    {"run", R"(
Examples:
  pdjob run job.yaml
  pdjob run job.yaml --set decode.workers=4
)"},
    {"rollout", R"(
Examples:
  pdjob rollout status --job trained
)"},
    {"rollout status", R"(
Examples:
  pdjob rollout status --job trained
  pdjob rollout status --config job.yaml --json
)"},
    {"explain", R"(
Examples:
  pdjob explain --job quickstart
  pdjob explain --json
)"},
    {"stop", R"(
Examples:
  pdjob stop
  pdjob stop --job quickstart --now
)"},
    {"worker", R"(
Examples:
  pdjob worker --role both --model M.gguf --listen 127.0.0.1:8100
  pdjob worker --role prefill --model M.gguf --listen 127.0.0.1:8101
  pdjob worker --role decode --model M.gguf --listen 10.0.0.2:8102 --key-file workers.key \
    --set engine.threads=8 --set kvtransfer.transport=tcp
)"},
    {"router", R"(
Examples:
  pdjob router --prefill http://127.0.0.1:8101 --decode http://127.0.0.1:8102
  pdjob router --worker http://127.0.0.1:8100 --set router.attempts=2
  pdjob router --prefill http://10.0.0.1:8100 --decode http://10.0.0.2:8100 --policy prefix_aware
  pdjob router --config router.yaml --worker-key-file workers.key
)"},
    {"doctor", R"(
Exits with code 1 if something would stop a job. Warnings do not change the code.

Examples:
  pdjob doctor
  pdjob doctor --json | jq '.findings[] | select(.level != "ok")'
)"},
    {"agent", R"(
Examples:
  pdjob agent --new-key lab.key                        once; copy it to each machine
  pdjob agent --join 10.0.0.1:7700 --key-file lab.key
  pdjob agent --join 10.0.0.1:7700 --key-file lab.key --name gpu-7 --label zone=a --cores 32
)"},
    {"batch", R"(
Each row is answered exactly once, whatever dies: after a crash or Ctrl-C, the same command goes on.

Examples:
  pdjob batch rows.jsonl --out results --config job.yaml
  pdjob batch 'parts/*.jsonl.gz' --out results --url http://127.0.0.1:8000
  pdjob batch names.csv --out results --config job.yaml --id-column id \
    --template '{"messages": [{"role": "user", "content": "Describe {{name}}."}], "max_tokens": 64}'
  pdjob batch rows.jsonl --out results --config job.yaml --set decode.workers=8
  pdjob batch status results
)"},
    {"batch status", R"(
Examples:
  pdjob batch status results
)"},
    {"reference", R"(
Examples:
  pdjob reference                    every key of a job file
  pdjob reference metrics
  pdjob reference man > pdjob.1; man ./pdjob.1
)"},
    {"completion", R"(
Examples:
  source <(pdjob completion bash)                          in ~/.bashrc
  source <(pdjob completion zsh)                           in ~/.zshrc, after compinit
  pdjob completion fish > ~/.config/fish/completions/pdjob.fish
)"},
});

}  // namespace

std::string_view help_text_of(std::string_view command) {
  const auto found = std::ranges::find(kTexts, command, &decltype(kTexts)::value_type::first);
  return found == kTexts.end() ? "" : found->second;
}

}  // namespace pdjob::launcher
