"""How much of the time to the first token is spent waiting for KV? Runs real jobs, 1P1D with one engine thread each and a context of 8192 tokens.
The prompt moves chunk by chunk while it is computed, or in one piece at the end, by shm and tcp. The jobs take turns, request by request.
"Visible" is the time from the last ready row in the prefill worker until all rows are verified in the decode worker, as its reply says. Then it
measures what a callback per layer costs the prefill (decision 8). Prints JSON, then Markdown tables.

    ./dev bench kv
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import MODEL, Job  # noqa: E402

ROUNDS = {256: 7, 1000: 3, 4000: 1}  # The key is the prompt's length in tokens.
JOBS = {
    "chunks, shm": ("shm", 256),
    "one piece, shm": ("shm", 4096),
    "chunks, tcp": ("tcp", 256),
    "one piece, tcp": ("tcp", 4096),
}


def job_yaml(folder, transport, chunk_tokens):
    return f"""\
name: {pathlib.Path(folder).name}
model: {MODEL}
engine: {{kv_type: q8_0, threads: 1, tokens_per_sequence: 8192, sequences: 2, batch_tokens: {max(512, chunk_tokens)}}}
prefill: {{workers: 1, chunk_tokens: {chunk_tokens}}}
decode: {{workers: 1}}
kvtransfer: {{transport: {transport}}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


def ask(url, tokens, seed):
    """Returns the seconds to the first token, and the seconds spent only waiting for rows."""
    prompt = [300 + (seed * 7919 + i * 104729) % 40000 for i in range(tokens)]
    started = time.perf_counter()
    reply = httpx.post(f"{url}/v1/completions", json={"prompt": prompt, "max_tokens": 1, "temperature": 0}, timeout=300)
    taken = time.perf_counter() - started
    assert reply.status_code == 200, reply.text
    return taken, float(reply.headers["x-pdjob-kv-visible-seconds"])


def measure(urls):
    figures, seed = {}, 0
    for tokens, rounds in ROUNDS.items():
        for round_ in range(rounds + (tokens == 256)):
            for name, url in urls.items():
                seed += 1
                ttft, visible = ask(url, tokens, seed)
                print(f"{tokens} tokens, {name}: TTFT {ttft:.2f} s, visible {1e3 * visible:.2f} ms", file=sys.stderr, flush=True)
                if tokens != 256 or round_ > 0:  # The first round warms up.
                    of = figures.setdefault(tokens, {}).setdefault(name, {"ttft": [], "visible": [], "share": []})
                    of["ttft"].append(ttft)
                    of["visible"].append(visible)
                    of["share"].append(visible / ttft)
    return figures


def layers(program):
    return [json.loads(subprocess.run([program, MODEL, str(tokens), "5"], check=True, stdout=subprocess.PIPE, text=True).stdout) for tokens in (256, 1000)]


def main():
    with contextlib.ExitStack() as stack:
        urls, running = {}, []
        for name, (transport, chunk_tokens) in JOBS.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-bench-"))
            running.append(Job(job_yaml(folder, transport, chunk_tokens), folder))
            urls[name] = running[-1].wait_ready().url
        figures = measure(urls)
        assert all(job.stop() == 0 for job in running)
    per_layer = layers(os.environ["PDJOB_BENCH_DIR"] + "/kv_layer_bench")
    print(json.dumps({"overlap": figures, "per_layer": per_layer}))
    print("\n| tokens | | TTFT, ms | visible, ms (min/median/max) | share of TTFT |\n|---|---|---|---|---|")
    for tokens, by_job in figures.items():
        for name, of in by_job.items():
            visible = " / ".join(f"{1e3 * value:.2f}" for value in (min(of["visible"]), statistics.median(of["visible"]), max(of["visible"])))
            print(f"| {tokens} | {name} | {1e3 * statistics.median(of['ttft']):.0f} | {visible} | {100 * statistics.median(of['share']):.2f} % |")
    print("\n| tokens | prefill, ms | with a callback per layer | ratio (min/median/max) |\n|---|---|---|---|")
    for of in per_layer:
        print(f"| {of['tokens']} | {1e3 * of['plain']:.1f} | {1e3 * of['per_layer']:.1f} | {{min:.3f}} / {{median:.3f}} / {{max:.3f}} |".format(**of["ratio"]))


if __name__ == "__main__":
    main()
