"""A ramp of load, 1 to 10 and back, on a job that scales by itself. Workers are real processes whose engine sleeps for each token, so that each
one adds capacity however few cores there are.

    scale_bench.py [--pdjob FILE] [--seconds N] [--settle N]

--settle: how many seconds the sizes may take to come down after the load; by default twice the job's `down_after`.

Prints one JSON object: how much of the time the SLO held, the worker-seconds beside those of a job that has the peak's workers all the time, and
the sizes. Docs: docs/measurements/scaling.md.
"""

import argparse
import asyncio
import json
import pathlib
import random
import subprocess
import tempfile
import time

import httpx

PROMPT_TOKENS, OUTPUT_TOKENS = 40, 40  # The fake engine's tokens are bytes.
RATE_LOW, RATE_HIGH = 0.6, 6.0  # Requests per second.
SLO_TTFT, SLO_ITL = 2.0, 0.060  # Seconds, at the client; means of one second's requests.

JOB = """\
name: scale-bench
served_name: m
engine: {{kind: fake, fake_delay_per_token: 10ms, sequences: 16, tokens_per_sequence: 256}}
prefill: {{workers: 1, scaling: {{max: 6, ttft: 1s, down_after: {down}s}}}}
decode: {{workers: 1, scaling: {{max: 6, itl: 40ms, down_after: {down}s}}}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


def sizes(admin, client):
    counts = {"prefill": 0, "decode": 0}
    for process in client.get(f"http://{admin}/status").json()["processes"]:
        if process["role"] in counts:
            counts[process["role"]] += 1
    return counts


class Ramp:
    def __init__(self, url, admin, seconds):
        self.url, self.admin, self.seconds = url, admin, seconds
        self.requests, self.samples, self.lost = [], [], []
        self.random = random.Random(1)

    def rate(self, at):
        half = self.seconds / 2
        return RATE_LOW + (RATE_HIGH - RATE_LOW) * (1 - abs(at - half) / half)

    async def ask(self, client, number):
        body = {"model": "m", "prompt": f"{number:07d} ".ljust(PROMPT_TOKENS, "x"), "max_tokens": OUTPUT_TOKENS, "stream": True}
        body |= {"ignore_eos": True, "temperature": 1, "seed": number}
        began, first, tokens, ended = time.monotonic(), None, 0, False
        try:
            async with client.stream("POST", self.url + "/v1/completions", json=body, timeout=120) as reply:
                async for line in reply.aiter_lines():
                    if reply.status_code == 200 and line.startswith("data: {") and '"choices":[{' in line:
                        first = first or time.monotonic()
                        tokens += 1
                    ended = ended or line == "data: [DONE]"
        except httpx.HTTPError as error:
            self.lost.append(repr(error))
            return
        if not ended:
            self.lost.append(f"request {number}: {reply.status_code}, no end")
            return
        now = time.monotonic()
        self.requests.append((now - self.begun, first - began, (now - first) / max(1, tokens - 1)))

    async def watch(self):
        client = httpx.Client()
        while True:
            counts = await asyncio.to_thread(sizes, self.admin, client)
            self.samples.append((time.monotonic() - self.begun, counts["prefill"], counts["decode"]))
            await asyncio.sleep(0.5)

    async def run(self, settle):
        self.begun = time.monotonic()
        watcher = asyncio.create_task(self.watch())
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as client:
            tasks, number = [], 0
            while (at := time.monotonic() - self.begun) < self.seconds:
                await asyncio.sleep(self.random.expovariate(self.rate(at)))
                tasks.append(asyncio.create_task(self.ask(client, number)))
                number += 1
            await asyncio.gather(*tasks)
        ended = time.monotonic()
        while self.samples[-1][1:] != (1, 1) and time.monotonic() < ended + settle:
            await asyncio.sleep(0.5)
        watcher.cancel()
        return number


def turns(values):
    """How often a series changes its direction."""
    count, last = 0, 0
    for before, after in zip(values, values[1:]):
        way = (after > before) - (after < before)
        count += way * last < 0
        last = way or last
    return count


def report(ramp, asked):
    seconds = {}
    for at, ttft, itl in ramp.requests:
        seconds.setdefault(int(at), []).append((ttft, itl))
    held = sum(
        sum(t for t, _ in each) / len(each) <= SLO_TTFT and sum(i for _, i in each) / len(each) <= SLO_ITL
        for each in seconds.values()
    )
    used = sum((b[0] - a[0]) * (a[1] + a[2]) for a, b in zip(ramp.samples, ramp.samples[1:]))
    peak = [max(sample[column] for sample in ramp.samples) for column in (1, 2)]
    length = ramp.samples[-1][0] - ramp.samples[0][0]
    return {
        "requests": asked,
        "lost": ramp.lost,
        "slo_held": round(held / len(seconds), 4),
        "requests_within_slo": round(sum(t <= SLO_TTFT and i <= SLO_ITL for _, t, i in ramp.requests) / asked, 4),
        "worker_seconds_of_static_peak": round(used / (length * sum(peak)), 3),
        "peak": {"prefill": peak[0], "decode": peak[1]},
        "end": {"prefill": ramp.samples[-1][1], "decode": ramp.samples[-1][2]},
        "turns": {"prefill": turns([s[1] for s in ramp.samples]), "decode": turns([s[2] for s in ramp.samples])},
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pdjob", default="build/release/pdjob")
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--settle", type=int)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        config = pathlib.Path(folder) / "job.yaml"
        down = max(5, args.seconds // 6)
        config.write_text(JOB.format(folder=folder, down=down))
        job = subprocess.Popen([args.pdjob, "--config", config], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
        url = next(line.split("url=")[1].strip() for line in job.stdout if line.startswith("ready url="))
        admin = json.loads((pathlib.Path(folder) / "state/scale-bench/launcher.json").read_text())["admin"]
        try:
            ramp = Ramp(url, admin, args.seconds)
            asked = asyncio.run(ramp.run(settle=args.settle or 2 * down))
            explained = httpx.get(f"http://{admin}/explain").text
            print(json.dumps(report(ramp, asked) | {"explained": explained.splitlines()}, indent=2))
        finally:
            job.terminate()
            job.wait(60)


if __name__ == "__main__":
    main()
