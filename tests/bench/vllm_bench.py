"""Measures real vLLM 1P1D on CPUs under pdjob, router included, beside the same two servers behind vllm-router, started by hand. The second pair has the
command lines and environments that pdjob gave to its own. In each round, the two sides follow each other in random order, and the other side is
stopped: an idle NIXL engine uses a core. Then it measures the time from a killed engine until the job is ready again, in parts.
Prints JSON, then Markdown tables. Absolute times depend on the machine: compare ratios.

    ./dev bench vllm [--rounds N] [--kills N]
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime

import httpx

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("integration", "peers")]
from conftest import Job, eventually, free_port, get  # noqa: E402
from test_router_recipes import PEERS  # noqa: E402
from test_vllm import START_SECONDS, engine_of, family_of, yaml  # noqa: E402

PROMPT_TOKENS, OUTPUT_TOKENS = 256, 32
ALONE, AT_ONCE = 10, 32  # Requests of a round: one at a time, and eight at a time.


async def one(client, seed, streams=None):
    """Returns the time to the first token, and the times between tokens, in seconds."""
    chance = random.Random(seed)
    body = {"model": "tiny", "prompt": [chance.randrange(300, 3900) for _ in range(PROMPT_TOKENS)], "max_tokens": OUTPUT_TOKENS, "temperature": 0,
            "ignore_eos": True, "stream": True}
    async with streams or contextlib.nullcontext():
        started, stamps = time.perf_counter(), []
        async with client.stream("POST", "/v1/completions", json=body) as reply:
            assert reply.status_code == 200, await reply.aread()
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    stamps.append(time.perf_counter())
    return stamps[0] - started, [later - earlier for earlier, later in zip(stamps, stamps[1:])]


async def measure(url, seed):
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        await one(client, seed)
        alone = [await one(client, seed + 1 + i) for i in range(ALONE)]
        streams, started = asyncio.Semaphore(8), time.perf_counter()
        together = await asyncio.gather(*(one(client, seed + 100 + i, streams) for i in range(AT_ONCE)))
        taken = time.perf_counter() - started
    return {
        "ttft_c1": statistics.median(ttft for ttft, _ in alone),
        "itl_c1": statistics.median(gap for _, gaps in alone for gap in gaps),
        "ttft_c8": statistics.median(ttft for ttft, _ in together),
        "throughput_c8": AT_ONCE * OUTPUT_TOKENS / taken,
    }


def words_of(pid, file):
    return [word for word in pathlib.Path(f"/proc/{pid}/{file}").read_bytes().decode().split("\0") if word]


def by_hand(pid, folder, name):
    """Starts a second engine, like process `pid` but on ports of its own. Returns the process and its URL."""
    command, environment = words_of(pid, "cmdline"), dict(word.split("=", 1) for word in words_of(pid, "environ"))
    port = str(free_port())
    command[command.index("--port") + 1] = port
    command = [re.sub(r'"engine_id":"[^"]*"', f'"engine_id":"by-hand-{name}"', word) for word in command]
    environment.pop("VLLM_API_KEY", None)  # vllm-router loses the clients' keys.
    environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(free_port())
    environment["PDJOB_TEST_FOLDER"] = "by-hand"
    log = open(f"{folder}/{name}.log", "wb")
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True), f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def vllm_router(job, folder):
    """Yields the URL of a vllm-router before two engines like the job's, and the processes of all three."""
    started = []
    try:
        urls = {}
        for role in ("prefill", "decode"):
            engine, urls[role] = by_hand(engine_of(job, f"{role}-0"), folder, role)
            started.append(engine)
        for engine, url in zip(started, urls.values()):
            eventually(lambda: engine.poll() is not None or get(url + "/health") == "", START_SECONDS, f"{url} answers")
        port = str(free_port())
        command = [PEERS / "vllm-router/bin/vllm-router", "--host", "127.0.0.1", "--port", port, "--vllm-pd-disaggregation", "--prefill", urls["prefill"],
                   "--decode", urls["decode"], "--policy", "round_robin", "--kv-connector", "nixl", "--prometheus-port", str(free_port()),
                   "--worker-startup-check-interval", "1"]
        log = open(f"{folder}/vllm-router.log", "wb")
        started.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: get(url + "/health") is not None, 60, "vllm-router answers")
        yield url, started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def send(roots, number):
    """Sends a signal to these processes and all their descendants; the descendants go on first."""
    for pid in reversed([pid for root in roots for pid in family_of(root)]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def compare(job, folder, rounds):
    figures = {}
    with vllm_router(job, folder) as (url, started):
        sides = {"pdjob": (job.url, [job.pid]), "by hand": (url, [process.pid for process in started])}
        for round_ in range(rounds + 1):
            for side in random.sample(list(sides), 2):
                others = [pid for name, (_, pids) in sides.items() if name != side for pid in pids]
                send(others, signal.SIGSTOP)
                try:
                    measured = asyncio.run(measure(sides[side][0], 1000 * round_))
                finally:
                    send(others, signal.SIGCONT)
                for metric, value in measured.items():
                    if round_ > 0:  # The first round warms up.
                        figures.setdefault(metric, {}).setdefault(side, []).append(value)
            print(f"round {round_} of {rounds}", file=sys.stderr, flush=True)
    return figures


def stamp(line):
    return datetime.fromisoformat(line.split(" ", 1)[0].replace("Z", "+00:00")).timestamp()


def recovery(job, folder):
    """Kills the decode engine. Returns the parts of the time until the job is ready again, in seconds."""
    logs = pathlib.Path(folder) / "logs"
    old, before = job.processes()["decode-0"]["pid"], time.time()
    os.kill(engine_of(job, "decode-0"), signal.SIGKILL)

    def back():
        process = job.processes()["decode-0"]
        return process["pid"] not in (0, old) and process["state"] == "ready"

    eventually(back, START_SECONDS, "decode-0 is ready again")
    launcher = [line for line in (logs / "launcher.log").read_text().splitlines() if line[:2] == "20" and stamp(line) >= before]
    worker = [line for line in (logs / "decode-0.log").read_text().splitlines() if line[:2] == "20" and stamp(line) >= before]

    def first(lines, text):
        return next(stamp(line) for line in lines if text in line)

    moments = [before, first(launcher, "ProcessExited"), first(launcher, "Spawned"), first(worker, "answers, and is warmed up"),
               first(launcher, "from decode-0 Registered"), first(launcher, "ProbeSucceeded")]
    parts = ["engine gone → launcher knows", "backoff and start of the worker", "vLLM starts", "warm-up request", "probe whose KV moves"]
    return {**dict(zip(parts, (later - earlier for earlier, later in zip(moments, moments[1:])))), "in all": moments[-1] - moments[0]}


def report(figures, recoveries):
    print(json.dumps({"figures": figures, "recoveries": recoveries}))
    print("\n| | pdjob | by hand, vllm-router | ratio (> 1: pdjob is better) |\n|---|---|---|---|")
    for metric, sides in figures.items():
        ours, theirs = (statistics.median(sides[side]) for side in ("pdjob", "by hand"))
        better = [a / b if metric.startswith("throughput") else b / a for a, b in zip(sides["pdjob"], sides["by hand"])]
        print(f"| {metric} | {ours:.4g} | {theirs:.4g} | {statistics.median(better):.3f} ({min(better):.3f} to {max(better):.3f}) |")
    if recoveries:
        print("\n| from a killed decode engine | s, median |\n|---|---|")
        for part in recoveries[0]:
            print(f"| {part} | {statistics.median(each[part] for each in recoveries):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        job = Job(yaml(folder, launcher="progress_timeout: 1h, hang_timeout: 1h, heartbeat_timeout: 1h"), folder)
        try:
            assert job._ready.wait(START_SECONDS) and job.url, job.log_tail()
            figures = compare(job, folder, options.rounds)
            recoveries = [recovery(job, folder) for _ in range(options.kills)]
        finally:
            job.stop(timeout=120)
    report(figures, recoveries)


if __name__ == "__main__":
    main()
