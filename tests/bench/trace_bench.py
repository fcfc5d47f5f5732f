"""Plays the beginning of a recorded load to a real job and to a simulated one, and compares the two.

    ./dev bench trace --trace FILE [--job prefill=1,decode=1]... [--rate X] [--requests N] [--divide N]

FILE has the format of Mooncake's traces (tests/simulation/request_trace.h). Each worker has one thread, so it wants a core of its own, and so do
the clients. Give it priority on a machine that does other work: `nice -n -20 ./dev bench trace ...`.
"""

import argparse
import asyncio
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import MODEL, Job  # noqa: E402

MASK = (1 << 64) - 1
STEP = 3.0


def mix(value):
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


class Random:
    """Like common/random.h, so that both sides have the same arrivals."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        drawn = mix(self.state)
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return drawn % bound


def read_trace(path, requests):
    trace = [json.loads(line) for line in open(path)]
    random = Random(1)
    stamps = [request["timestamp"] * 10**6 for request in trace]
    begin = 0
    while begin < len(trace):
        end = begin
        while end < len(trace) and stamps[end] == stamps[begin]:
            end += 1
        room = min(int(STEP * 1e9), stamps[end] - stamps[begin]) if end < len(trace) else int(STEP * 1e9)
        for request in trace[begin:end]:
            request["at"] = (request["timestamp"] * 10**6 + random.below(room)) / 1e9
        begin = end
    trace.sort(key=lambda request: request["at"])
    trace = trace[:requests]
    first = trace[0]["at"]
    for request in trace:
        request["at"] -= first
    return trace


def divided(tokens, divisor):
    return max((tokens + divisor // 2) // divisor, 1)


def prompt_of(request, divisor):
    ids = request["hash_ids"]
    count = divided(request["input_length"], divisor)
    return [300 + mix(mix(ids[min(i * divisor // 512, len(ids) - 1)]) ^ i) % 40000 for i in range(count)]


async def one(client, request, divisor, start, rate):
    await asyncio.sleep(max(start + request["at"] / rate - time.perf_counter(), 0))
    body = {"prompt": prompt_of(request, divisor), "max_tokens": divided(request["output_length"], divisor)}
    body |= {"temperature": 0, "stream": True, "ignore_eos": True}
    began, stamps = time.perf_counter(), []
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                stamps.append(time.perf_counter())
    itl = (stamps[-1] - stamps[0]) / (len(stamps) - 1) if len(stamps) > 1 else 0
    return stamps[0] - began, itl


async def play(url, trace, divisor, rate):
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=3600, limits=limits) as client:
        await one(client, trace[-1], divisor, time.perf_counter() - 1e6, rate)  # Warms up.
        start = time.perf_counter() + 0.5
        return await asyncio.gather(*(one(client, request, divisor, start, rate) for request in trace))


def job_yaml(folder, job):
    words = dict(word.split("=") for word in job.split(","))
    workers = {role: int(words.get(role, 0)) for role in ("prefill", "decode", "both")}
    chunk = words.get("chunk", None)
    # A job file has no workers of both roles: such a job is decode workers that compute their prompts.
    assert workers["both"] == 0, "compare jobs of prefill and decode workers"
    return f"""\
name: trace
model: {MODEL}
engine: {{threads: 1, tokens_per_sequence: 8192, sequences: 4}}
prefill: {{workers: {workers["prefill"]}{f", chunk_tokens: {chunk}" if chunk else ""}}}
decode: {{workers: {workers["decode"]}}}
router: {{listen: "127.0.0.1:0", prefill_policy: prefix_aware, bypass_tokens: {words.get("bypass", 0)}}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


def quantile(values, share):
    return 1e3 * sorted(values)[int(share * (len(values) - 1))]


def figures_of(results):
    ttft = [result[0] for result in results]
    itl = [result[1] for result in results if result[1] > 0]
    return {"TTFT p50": quantile(ttft, 0.5), "TTFT p90": quantile(ttft, 0.9), "ITL p50": quantile(itl, 0.5), "ITL p90": quantile(itl, 0.9)}


def real(job, trace, options):
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        process = Job(job_yaml(folder, job), folder).wait_ready()
        figures = figures_of(asyncio.run(play(process.url, trace, options.divide, options.rate)))
        assert process.stop() == 0
    return figures


def simulated(job, options):
    command = [os.environ["PDJOB_TRACE_SIMULATION"], options.trace, "--job", job, "--requests", str(options.requests)]
    command += ["--rates", str(options.rate), "--divide", str(options.divide), "--sequences", "4", "--seed", "1", "--ttft", "1000", "--itl", "1000"]
    command += ["--step", options.step] if options.step else []
    row = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    cells = [re.findall(r"[\d.]+", cell) for cell in row.split("|")]
    return {"TTFT p50": float(cells[5][0]), "TTFT p90": float(cells[5][1]), "ITL p50": float(cells[6][0]), "ITL p90": float(cells[6][1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--job", action="append")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--divide", type=int, default=16)
    parser.add_argument("--step", help="the simulation's model of a step: as ./dev bench step_time prints it")
    options = parser.parse_args()
    trace = read_trace(options.trace, options.requests)
    print("| job | figure | real | simulated | error |\n|---|---|---|---|---|")
    for job in options.job or ["prefill=1,decode=1"]:
        measured, model = real(job, trace, options), simulated(job, options)
        for figure, value in measured.items():
            print(f"| {job} | {figure} | {value:.0f} ms | {model[figure]:.0f} ms | {100 * (model[figure] / value - 1):+.0f} % |", flush=True)


if __name__ == "__main__":
    main()
