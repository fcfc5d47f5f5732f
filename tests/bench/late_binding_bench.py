"""What is gained when a worker gets a request only once it has room? Sixteen worker processes serve one request at a time. Three routers stand
before them, each with its own policy. Requests go to all routers in turn, at random moments. An answer has 1 token (90 %) or 50, and its length is
unknown in advance. Goodput is the highest rate at which 99 of 100 requests take at most twice as long as a long one alone. It is given as a share
of the workers' capacity. The workers are real except for their engine, which sleeps for each token.

    ./dev bench binding
"""

import argparse
import asyncio
import contextlib
import pathlib
import random
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import MODEL, Process  # noqa: E402

WORKERS, TOKEN_SECONDS, LONG, LONG_SHARE = 16, 0.02, 50, 0.1
CAPACITY = WORKERS / (TOKEN_SECONDS * (1 + LONG_SHARE * (LONG - 1)))  # Requests per second.
PATIENCE = 2 * LONG * TOKEN_SECONDS
STEPS = 5
WAYS = {
    "`round_robin`": ("router.decode_policy=round_robin",),
    "`least_loaded`": ("router.decode_policy=least_loaded",),
    "`round_robin`, `decode_in_flight: 1`": ("router.decode_policy=round_robin", "router.decode_in_flight=1"),
}


def worker(folder, name):
    settings = ("engine.kind=fake", "engine.sequences=1", f"engine.fake_delay_per_token={round(1000 * TOKEN_SECONDS)}ms", "served_name=m")
    argv = ["pdjob", "worker", "--role", "both", "--model", MODEL, "--name", name, "--listen", "127.0.0.1:0"]
    return Process(argv + [word for setting in settings for word in ("--set", setting)], folder)


def router(folder, workers, settings):
    argv = ["pdjob", "router", "--listen", "127.0.0.1:0"]
    argv += [word for one in workers for word in ("--worker", one.url)]
    return Process(argv + [word for setting in settings for word in ("--set", setting)], folder)


async def p99(url, utilisation, requests):
    """Returns the P99, in seconds, from the moment at which a request was due until its answer."""
    draw = random.Random(7)  # Every way and rate gets the same requests.
    took = []
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=httpx.Limits(max_connections=None)) as client:

        async def ask(due, tokens):
            body = {"model": "m", "prompt": [1], "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
            reply = await client.post("/v1/completions", json=body)
            assert reply.status_code == 200, reply.text
            took.append(time.perf_counter() - due)

        async with asyncio.TaskGroup() as group:
            due = time.perf_counter()
            for _ in range(requests):
                due += draw.expovariate(utilisation * CAPACITY)
                await asyncio.sleep(max(0, due - time.perf_counter()))
                group.create_task(ask(due, LONG if draw.random() < LONG_SHARE else 1))
    return sorted(took)[len(took) * 99 // 100]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="at each rate that is tried")
    requests = parser.parse_args().requests
    found = {way: (0.0, 1.0) for way in WAYS}
    with contextlib.ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-bench-"))
        workers = [worker(folder, f"w{i}") for i in range(WORKERS)]
        for one in workers:
            running.callback(one.stop)
            one.wait_ready()
        routers = {}
        for way, settings in WAYS.items():
            routers[way] = router(folder, workers, settings).wait_ready()
            running.callback(routers[way].stop)
        for _ in range(STEPS):
            for way, (good, bad) in found.items():
                middle = (good + bad) / 2
                waited = asyncio.run(p99(routers[way].url, middle, requests))
                found[way] = (middle, bad) if waited <= PATIENCE else (good, middle)
                print(f"{way}: P99 {waited:.2f} s at {100 * middle:.1f} %", file=sys.stderr, flush=True)
    base = next(iter(found.values()))[0]
    print("| | goodput | / round_robin |\n|---|---|---|")
    for way, (good, _) in found.items():
        print(f"| {way} | {100 * good:.1f} % | {good / base:.2f} |")


if __name__ == "__main__":
    main()
