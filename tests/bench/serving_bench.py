"""TTFT and ITL of 1P1D through the router against the single-process engine, idle and at 8 concurrent requests, in one interleaved run;
and the time from `pdjob` start to ready. Prints JSON, then a Markdown table. Absolute times belong to the machine: compare ratios.

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
        results = await asyncio.gather(*(one_stream(client, seed + i) for i in range(concurrency)))
    return statistics.median(r[0] for r in results), statistics.median(gap for r in results for gap in r[1])


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    results = {"start_to_ready_seconds": measure_start(3)}
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        single = Process(["pdjob", "worker", "--role", "both", "--model", MODEL, "--listen", "127.0.0.1:0"], folder).wait_ready()
        job = Job(job_yaml(folder), folder).wait_ready()
        for concurrency in (1, 8):
            figures = {"single": ([], []), "1p1d": ([], [])}
            for round_ in range(rounds + 1):
                for name, url in (("single", single.url), ("1p1d", job.url)):
                    ttft, itl = asyncio.run(load(url, concurrency, 1000 * round_ + concurrency))
                    if round_ > 0:  # The first warms up.
                        figures[name][0].append(ttft)
                        figures[name][1].append(itl)
            for index, metric in enumerate(("ttft", "itl")):
                ratios = [b / a for a, b in zip(figures["single"][index], figures["1p1d"][index])]
                results[f"{metric}_c{concurrency}"] = {
                    "single_seconds": summary(figures["single"][index]),
                    "1p1d_seconds": summary(figures["1p1d"][index]),
                    "ratio": summary(ratios),
                }
        assert job.stop() == 0 and single.stop() == 0
    print(json.dumps(results, indent=1))
    print("\n| figure | single process | 1P1D through the router | ratio (min/median/max) |\n|---|---|---|---|")
    for name, figure in results.items():
        if "ratio" in figure:
            ratio = figure["ratio"]
            print(
                f"| {name} | {1e3 * figure['single_seconds']['median']:.1f} ms | {1e3 * figure['1p1d_seconds']['median']:.1f} ms "
                f"| {ratio['min']:.2f} / {ratio['median']:.2f} / {ratio['max']:.2f} |"
            )
    start = results["start_to_ready_seconds"]
    print(f"| start to ready | | {start['min']:.2f} / {start['median']:.2f} / {start['max']:.2f} s | |")


if __name__ == "__main__":
    main()
