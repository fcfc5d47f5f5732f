"""Measures TTFT, ITL and output tokens per second of 1P1D through the router, idle and at 8 concurrent requests. It compares them, in one
interleaved run, with a single process of one engine thread and with one of two. (1P1D has two processes of one thread.) It also measures the time
from the start of `pdjob` until ready. Prints JSON, then a Markdown table. Absolute times depend on the machine: compare ratios.

    ./dev bench serving
"""

import argparse
import asyncio
import json
import pathlib
import statistics
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import MODEL, Job, Process, job_yaml  # noqa: E402

PROMPT_TOKENS, OUTPUT_TOKENS = 256, 32
SIDES = {"single_1": "one process, one thread", "single_2": "one process, two threads", "1p1d": "1P1D through the router"}


async def one_stream(client, seed):
    """Returns the time to the first token and the times between tokens, in seconds."""
    prompt = [300 + (seed * 7919 + i * 104729) % 40000 for i in range(PROMPT_TOKENS)]
    body = {"prompt": prompt, "max_tokens": OUTPUT_TOKENS, "temperature": 0, "stream": True, "ignore_eos": True}
    started, stamps = time.perf_counter(), []
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                stamps.append(time.perf_counter())
    return stamps[0] - started, [b - a for a, b in zip(stamps, stamps[1:])]


async def load(url, concurrency, seed):
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        started = time.perf_counter()
        results = await asyncio.gather(*(one_stream(client, seed + i) for i in range(concurrency)))
        taken = time.perf_counter() - started
    return {
        "ttft": statistics.median(ttft for ttft, _ in results),
        "itl": statistics.median(gap for _, gaps in results for gap in gaps),
        "throughput": sum(1 + len(gaps) for _, gaps in results) / taken,
    }


def summary(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def measure_start(rounds):
    times = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
            started = time.perf_counter()
            job = Job(job_yaml(folder), folder).wait_ready()
            times.append(time.perf_counter() - started)
            assert job.stop() == 0
    return summary(times)


def single_process(folder, threads):
    return Process(
        ["pdjob", "worker", "--role", "both", "--model", MODEL, "--set", f"engine.threads={threads}", "--listen", "127.0.0.1:0"], folder
    )


def measure_load(urls, rounds):
    """Returns each side's measurements by figure, e.g. ttft_c8, round by round."""
    figures = {}
    for concurrency in (1, 8):
        for round_ in range(rounds + 1):
            for side, url in urls.items():
                measured = asyncio.run(load(url, concurrency, 1000 * round_ + concurrency))
                for metric, value in measured.items():
                    if round_ > 0:  # The first round warms up.
                        figures.setdefault(f"{metric}_c{concurrency}", {}).setdefault(side, []).append(value)
    return figures


def ratios(figure, side):
    return summary([b / a for a, b in zip(figure[side], figure["1p1d"])])


def show(name, value):
    return f"{value:.1f} tokens/s" if name.startswith("throughput") else f"{1e3 * value:.1f} ms"


def print_table(figures, start):
    print(f"\n| figure | {' | '.join(SIDES.values())} | 1P1D / one thread (min/median/max) | 1P1D / two threads (min/median/max) |")
    print("|---" * 6 + "|")
    for name, figure in figures.items():
        cells = [show(name, statistics.median(figure[side])) for side in SIDES]
        cells += ["{min:.2f} / {median:.2f} / {max:.2f}".format(**ratios(figure, side)) for side in ("single_1", "single_2")]
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nstart to ready: {start['min']:.2f} / {start['median']:.2f} / {start['max']:.2f} s (min/median/max)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    start = measure_start(3)
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        processes = {"single_1": single_process(folder, 1), "single_2": single_process(folder, 2), "1p1d": Job(job_yaml(folder), folder)}
        urls = {side: process.wait_ready().url for side, process in processes.items()}
        figures = measure_load(urls, rounds)
        assert all(process.stop() == 0 for process in processes.values())
    results = {
        name: {
            **{side: summary(values) for side, values in figure.items()},
            "ratio_to_single_1": ratios(figure, "single_1"),
            "ratio_to_single_2": ratios(figure, "single_2"),
        }
        for name, figure in figures.items()
    }
    print(json.dumps({"start_to_ready_seconds": start, **results}, indent=1))
    print_table(figures, start)


if __name__ == "__main__":
    main()
