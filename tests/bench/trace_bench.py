"""Plays one load to real jobs and to `pdjob simulate`, and compares the latencies.

    ./dev bench trace [--shape 1P1D]... [--trace FILE --divide N] [--rate X] [--requests N] [--measure SECONDS | --model FILE]

The model of the engine comes first: `pdjob tune --measure` on a job of one prefill and one decode worker. Nothing is fitted to the runs that follow.
Requests come at random: prompts of 64 to 512 tokens, answers of 8 to 64, or as long as in FILE, divided by N. FILE has the format of Mooncake's traces. Its
times and its shared beginnings are not kept. Each worker has one thread, so it wants a core of its own, and so do the clients.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import BIN, MODEL, Job  # noqa: E402

ROWS = 2048  # Of a sequence.
LIMITS = {"p50": 15, "p99": 25}  # Percent that a simulated figure may be off.


def lengths(options, draw):
    """Tokens of each prompt and its answer."""
    if not options.trace:
        for _ in range(options.requests):
            yield draw.randint(64, 512), draw.randint(8, 64)
        return
    for row in [json.loads(line) for line in open(options.trace)][: options.requests]:
        yield tuple(max(row[key] // options.divide, 1) for key in ("input_length", "output_length"))


def made_load(options):
    draw, at, load = random.Random(options.seed), 0.0, []
    for prompt, answer in lengths(options, draw):
        if prompt + answer <= ROWS:
            load.append({"timestamp": round(1000 * at), "input_length": prompt, "output_length": answer})
        at += draw.expovariate(options.rate)
    return load


def write_load(load, path):
    """As a file that `pdjob simulate` reads. No two prompts begin alike."""
    blocks = 0
    with open(path, "w") as file:
        for row in load:
            count = (row["input_length"] + 511) // 512
            file.write(json.dumps(row | {"hash_ids": list(range(blocks, blocks + count))}) + "\n")
            blocks += count


def job_yaml(folder, shape):
    prefill, decode = shape.removesuffix("D").split("P")
    return f"""\
name: calibration
model: {MODEL}
engine: {{threads: 1, lend_threads: false, tokens_per_sequence: {ROWS}, sequences: 8}}
prefill: {{workers: {prefill}}}
decode: {{workers: {decode}}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


def measure(options, folder):
    out = folder / "model.json"
    job = Job(job_yaml(folder, "1P1D"), folder).wait_ready()
    workers, keys = job.processes(), job.worker_keys()
    command = [BIN, "tune", "--chunk", "256"]
    for role, server, key in (("prefill", "--measure", "--key-file"), ("decode", "--decode", "--decode-key-file")):
        name = next(name for name, worker in workers.items() if worker["role"] == role)
        (folder / f"{role}.key").write_text(keys[name])
        command += [server, workers[name]["url"], key, str(folder / f"{role}.key")]
    subprocess.run([*command, "--seconds", str(options.measure), "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    assert job.stop() == 0
    return out


async def one(client, row, draw, start):
    prompt = [draw.randint(300, 40000) for _ in range(row["input_length"])]
    body = {"prompt": prompt, "max_tokens": row["output_length"], "temperature": 0, "stream": True, "ignore_eos": True}
    await asyncio.sleep(max(start + row["timestamp"] / 1000 - time.perf_counter(), 0))
    began, stamps = time.perf_counter(), []
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                stamps.append(time.perf_counter())
    return stamps[0] - began, (stamps[-1] - stamps[0]) / max(len(stamps) - 1, 1)


async def play(url, load):
    draw = random.Random(1)
    async with httpx.AsyncClient(base_url=url, timeout=3600, limits=httpx.Limits(max_connections=None)) as client:
        await one(client, {"input_length": 300, "output_length": 8, "timestamp": 0}, draw, 0)  # Warms up.
        start = time.perf_counter() + 0.5
        return await asyncio.gather(*(one(client, row, draw, start) for row in load))


def percentile(values, share):
    """As the simulation's: the smallest value that such a share of all does not exceed."""
    values = sorted(values)
    return values[max(-int(-share * len(values) // 1), 1) - 1]


def real(shape, load, folder):
    job = Job(job_yaml(folder, shape), folder).wait_ready()
    results = asyncio.run(play(job.url, load))
    assert job.stop() == 0
    columns = {"TTFT": [result[0] for result in results], "ITL": [result[1] for result in results]}
    return {(name, at): percentile(values, share) for name, values in columns.items() for at, share in (("p50", 0.5), ("p99", 0.99))}


def simulated(shape, trace, model, folder):
    job = folder / "job.yaml"
    job.write_text(job_yaml(folder, shape))
    command = [BIN, "simulate", str(job), "--trace", str(trace), "--model", str(model), "--json"]
    figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["job"]
    return {(name, at): figures[f"{name.lower()}_seconds"][at] for name in ("TTFT", "ITL") for at in ("p50", "p99")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", help="such as 2P1D, repeatable; default: 1P1D, 2P1D and 2P2D")
    parser.add_argument("--trace")
    parser.add_argument("--divide", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.25, help="requests per second")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measure", type=int, default=150, metavar="SECONDS")
    parser.add_argument("--model", type=pathlib.Path, help="a model that was measured before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as name:
        folder = pathlib.Path(name)
        load = made_load(options)
        write_load(load, folder / "load.jsonl")
        model = options.model or measure(options, folder)
        print("model:", json.dumps(json.loads(model.read_text()).get("errors")), flush=True)
        print("| job | figure | real | simulated | error | bar |\n|---|---|---|---|---|---|")
        for shape in options.shape or ["1P1D", "2P1D", "2P2D"]:
            measured, made = real(shape, load, folder), simulated(shape, folder / "load.jsonl", model, folder)
            for (figure, at), value in measured.items():
                error = 100 * (made[figure, at] / value - 1)
                bar = f"{LIMITS[at]} %{'' if abs(error) <= LIMITS[at] else ', missed'}"
                cells = [shape, f"{figure} {at}", f"{1e3 * value:.1f} ms", f"{1e3 * made[figure, at]:.1f} ms", f"{error:+.0f} %", bar]
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
