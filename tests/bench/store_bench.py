"""What does a store of KV save, and what does it cost? Runs two real jobs with the same workers (1P2D over shm, one engine thread each): one with
`kv_store`, one without. They take turns, round by round. It reports

- the time to the first token of a prompt, before and after all workers were killed (kill -9) and came anew,
- the longest gap in a stream whose decode worker is killed,
- the time for requests that have nothing in common.

Then a job over two machines (network namespaces, 2P1D) with a disk behind each store: the time to the first token of a prompt that the store of the
other machine has (tcp), and of one that only the disk has, after all workers and stores were killed.

Prints JSON, then a Markdown table.

    ./dev bench store [--rounds N] [--only-two-machines]
    ./dev bench store --trace FILE [--minutes N]

With a recorded load instead (Mooncake's format), it plays a sample of its conversations to a job (1P1D) without a store, to one with a small store, and to
one with a store that has room for everything. A conversation is taken whole or not at all, lengths and blocks are a 16th of the recorded ones, and the
times are compressed to N minutes. The model has 6 of the default's 30 layers. It reports what share of the tokens of all prompts was found, and the
times to the first token.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import netns  # noqa: E402
from conftest import MODEL, Job, eventually, job_yaml, kill_and_await, metric  # noqa: E402
from test_agents import machines  # noqa: E402

PROMPT_TOKENS, STREAM_PROMPT, STREAM_TOKENS, KILL_AT = 3500, 1900, 160, 100
JOBS = {"store": "kv_store: {memory: 1GiB}\n", "without": ""}
WORKERS = ("prefill-0", "decode-0", "decode-1")
DIVIDE, BLOCK, TOKENS_PER_SECOND = 16, 64, 200  # Of the trace's lengths; tokens of a store's block; of a recorded load.
TRACE_JOBS = {"without": "", "store of 64 MiB": "kv_store: {memory: 64MiB}\n", "store that never forgets": "kv_store: {memory: 4GiB}\n"}


def words(count, draw):
    return [draw.randrange(300, 40000) for _ in range(count)]


def ask(url, prompt, tokens, on_token=None, **headers):
    """Returns when each piece came, in seconds from the start, and the tokens of the answer."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True, "return_token_ids": True}
    started, came, answer, worker = time.perf_counter(), [], [], None
    with httpx.stream("POST", url + "/v1/completions", json=body, headers=headers, timeout=600) as reply:
        assert reply.status_code == 200, reply.read()
        worker = reply.headers["x-pdjob-worker"]
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                came.append(time.perf_counter() - started)
                answer += json.loads(line.removeprefix("data: "))["choices"][0].get("token_ids") or []
                if on_token:
                    on_token(len(answer), worker)
    return came, answer


def settle(job):
    """Waits until the stores have taken, and written, all that the workers have for them."""

    def given():
        urls = [process["url"] for process in job.processes().values() if process["role"] != "router"]
        names = ("pdjob_kv_store_given_total", "pdjob_store_disk_blocks_written_total")
        return [metric(url, name) for url in urls for name in names]

    last, seen = None, given()
    while last != seen:
        time.sleep(0.5)
        last, seen = seen, given()


def come_anew(job, draw):
    prompt = words(PROMPT_TOKENS, draw)
    cold, expected = ask(job.url, prompt, 8)
    settle(job)
    kill_and_await(job, *WORKERS)
    ask(job.url, words(8, draw), 2)  # Connections are made.
    warm, answer = ask(job.url, prompt, 8)
    assert answer == expected, "the tokens are the same"
    return {"first token, computed": cold[0], "first token, after all workers were killed": warm[0]}


def stream_on(job, draw):
    prompt = words(STREAM_PROMPT, draw)
    victim = []

    def on_token(count, worker):
        if count >= KILL_AT and not victim:
            victim.append(worker)
            os.kill(job.processes()[worker]["pid"], signal.SIGKILL)

    came, answer = ask(job.url, prompt, STREAM_TOKENS, on_token)
    eventually(lambda: job.processes()[victim[0]]["state"] == "ready", seconds=120, what="it serves again")
    expected = ask(job.url, prompt, STREAM_TOKENS)[1]
    assert answer == expected, "the tokens are the same"
    return {"longest gap of a stream whose worker is killed": max(b - a for a, b in zip(came, came[1:]))}


def nothing_in_common(job, draw):
    prompts = [words(300, draw) for _ in range(16)]
    started = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda prompt: ask(job.url, prompt, 32), prompts))
    return {"16 requests that share nothing": time.perf_counter() - started}


def from_afar(job, draw):
    prompt = words(PROMPT_TOKENS, draw)
    first, second = ({"x-pdjob-pin-prefill": f"prefill-{number}"} for number in range(2))
    computed, expected = ask(job.url, prompt, 8, **first)
    settle(job)
    ask(job.url, words(8, draw), 2, **second)  # Connections are made.
    other, answer = ask(job.url, prompt, 8, **second)
    assert answer == expected, "the tokens are the same"
    settle(job)
    kill_and_await(job, *(name for name, process in job.processes().items() if process["role"] != "router"))
    ask(job.url, words(8, draw), 2, **first)
    disk, answer = ask(job.url, prompt, 8, **first)
    assert answer == expected, "the tokens are the same"
    return {"first token, computed": computed[0], "from the store of another machine": other[0], "from the disk, after all were killed": disk[0]}


def two_machines(rounds):
    with machines("a", "b") as made:
        for name in ("a", "b"):
            made.start_agent(name)
        extra = f"kv_store: {{memory: 1GiB, disk: {{path: {made.folder}/kv, bytes: 2GiB}}}}\n"
        with made.lan.inside("front"):
            yaml = job_yaml(made.folder, prefill=2, extra=made.clusters(2) + "\n" + extra).replace("tokens_per_sequence: 2048", "tokens_per_sequence: 4096")
            job = Job(yaml, made.folder).wait_ready()
            figures = [from_afar(job, random.Random(f"far {round_}")) for round_ in range(rounds + 1)][1:]
            assert job.stop() == 0
    print(json.dumps(figures))
    print("\n| two machines | | ratio to computed (min/median/max) |\n|---|---|---|")
    for what in figures[0]:
        ratios = [each[what] / each["first token, computed"] for each in figures]
        middle = statistics.median(each[what] for each in figures)
        print(f"| {what} | {1e3 * middle:.0f} ms | {min(ratios):.3f} / {statistics.median(ratios):.3f} / {max(ratios):.3f} |")


def sampled(rows, sample):
    """Rows whose conversation is one of the sample: those that agree in all but the first block, which all requests share."""
    return [row for row in rows if len(row["hash_ids"]) > 1 and random.Random(row["hash_ids"][1]).random() < sample]


def prompt_of(row):
    tokens = []
    for block in row["hash_ids"]:
        tokens += words(512 // DIVIDE, random.Random(block))
    return tokens[: row["input_length"] // DIVIDE]


def never_forgotten(prompts):
    """The share of the tokens that a store of blocks would find if it had those of all prompts before, and no limit."""
    seen, found, asked = set(), 0, 0
    for prompt in prompts:
        names = [tuple(prompt[: end + BLOCK]) for end in range(0, len(prompt) - BLOCK, BLOCK)]
        found += BLOCK * next((i for i, name in enumerate(names) if name not in seen), len(names))
        seen.update(names)
        asked += len(prompt)
    return found / asked


def play(url, load):
    """Returns the time to the first token, the tokens found and the answer of each request."""
    begin = time.perf_counter()

    def one(at, prompt, tokens):
        time.sleep(max(0, begin + at - time.perf_counter()))
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True, "return_token_ids": True}
        body["stream_options"] = {"include_usage": True}
        started, first, answer, found = time.perf_counter(), None, [], 0
        with httpx.stream("POST", url + "/v1/completions", json=body, timeout=600) as reply:
            assert reply.status_code == 200, reply.read()
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    if event.get("usage"):
                        found = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                    for choice in event["choices"]:
                        first = first or time.perf_counter() - started
                        answer += choice.get("token_ids") or []
        return first, found, answer

    with concurrent.futures.ThreadPoolExecutor(len(load)) as pool:
        return list(pool.map(lambda row: one(*row), load))


def recorded(trace, minutes):
    rows = [json.loads(line) for line in open(trace, encoding="utf-8")]
    fitting = [row for row in rows if row["input_length"] // DIVIDE <= PROMPT_TOKENS]
    sample, chosen = 1.0, fitting
    while sum(row["input_length"] for row in chosen) > DIVIDE * TOKENS_PER_SECOND * 60 * minutes:
        sample *= 0.9
        chosen = sampled(fitting, sample)
    scale = 60 * minutes / (chosen[-1]["timestamp"] + 1)
    load = [(scale * row["timestamp"], prompt_of(row), max(1, row["output_length"] // DIVIDE)) for row in chosen]
    asked = sum(len(prompt) for _, prompt, _ in load)
    oracle = never_forgotten([prompt for _, prompt, _ in load])
    print(f"{len(load)} requests, {asked} tokens; {100 * oracle:.1f} % of them in whole blocks of earlier prompts", flush=True)
    print("| | found | TTFT, mean | p50 | p99 |\n|---|---|---|---|---|")
    answers = []
    for name, extra in TRACE_JOBS.items():
        with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
            yaml = job_yaml(folder, transport="shm", extra=extra, model=pathlib.Path(MODEL).with_name("smollm2-6-layers-q8_0.gguf"))
            job = Job(yaml.replace("tokens_per_sequence: 2048", "tokens_per_sequence: 4096"), folder).wait_ready()
            played = play(job.url, load)
            assert job.stop() == 0
        times = sorted(first for first, _, _ in played)
        found = 100 * sum(found for _, found, _ in played) / asked
        middle, last = (times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
        print(f"| {name} | {found:.1f} % | {statistics.mean(times):.2f} s | {middle:.2f} s | {last:.2f} s |", flush=True)
        answers.append([answer for _, _, answer in played])
    print("the tokens of", sum(len(set(map(tuple, each))) == 1 for each in zip(*answers)), "of", len(load), "requests are the same in all jobs")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only-two-machines", action="store_true", help="skip the jobs on one machine")
    parser.add_argument("--trace", help="a recorded load, of Mooncake's format")
    parser.add_argument("--minutes", type=float, default=10, help="how long it takes")
    asked = parser.parse_args()
    if asked.trace:
        return recorded(asked.trace, asked.minutes)
    if not asked.only_two_machines:
        one_machine(asked.rounds)
    if missing := netns.unavailable():
        print(f"not over two machines: {missing}", file=sys.stderr)
    else:
        two_machines(asked.rounds)


def one_machine(rounds):
    figures = {}
    with contextlib.ExitStack() as stack:
        running = {}
        for name, extra in JOBS.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-bench-"))
            yaml = job_yaml(folder, decode=2, transport="shm", extra=extra).replace("tokens_per_sequence: 2048", "tokens_per_sequence: 4096")
            running[name] = Job(yaml, folder).wait_ready()
        for round_ in range(rounds + 1):
            order = list(running.items()) if round_ % 2 else list(running.items())[::-1]
            for name, job in order:
                draw = random.Random(f"{round_}")
                for what, seconds in {**nothing_in_common(job, draw), **stream_on(job, draw), **come_anew(job, draw)}.items():
                    print(f"{what}, {name}: {1e3 * seconds:.0f} ms", file=sys.stderr, flush=True)
                    if round_ > 0:  # The first round warms up.
                        figures.setdefault(what, {}).setdefault(name, []).append(seconds)
        assert all(job.stop() == 0 for job in running.values())
    print(json.dumps(figures))
    print("\n| | store | without | ratio (min/median/max) |\n|---|---|---|---|")
    for what, of in figures.items():
        store, without = (of[name] for name in JOBS)
        ratios = [a / b for a, b in zip(store, without)]
        cells = [f"{1e3 * statistics.median(values):.0f} ms" for values in (store, without)]
        print(f"| {what} | {cells[0]} | {cells[1]} | {min(ratios):.3f} / {statistics.median(ratios):.3f} / {max(ratios):.3f} |")


if __name__ == "__main__":
    main()
