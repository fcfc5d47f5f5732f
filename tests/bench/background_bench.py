"""Measures what a batch beside an online job takes, and what it costs the job's other requests. Prints JSON lines.

The engine is fake and sleeps: so long for each step, and so long for each token. Three things take turns: the streams alone, the batch alone, and both. What
the streams leave is the batch's rate alone, times the part of the time in which the decode worker has nothing to do for them.

    ./dev bench background [--rounds N] [--seconds N] [--rate N] [--step MS] [--token MS] [--prompt TOKENS]
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

BIN = os.environ["PDJOB_BIN"]
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
from conftest import Process  # noqa: E402

TOKENS = 40  # Of a stream.
ROW_PROMPT, ROW_TOKENS = 40, 80

JOB = """
name: background-bench
state_dir: {folder}/state
model: fake
engine: {{kind: fake, tokens_per_sequence: 1024, sequences: 24, fake_delay_per_step: {step}ms, fake_delay_per_token: {token}ms}}
prefill: {{workers: 1, chunk_tokens: 128}}
decode: {{workers: 1}}
router: {{listen: "127.0.0.1:0"}}
"""


class Streams:
    """Streams that come at random, at a rate, each on a connection of its own."""

    def __init__(self, url, prompt):
        self.prompt = prompt
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)
        self.ttft, self.itl = [], []

    async def stream(self, number):
        body = json.dumps({"model": "fake", "prompt": f"{number} " + "x" * self.prompt, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}).encode()
        reader, writer = await asyncio.open_connection(self.host, self.port)
        last = begun = time.perf_counter()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        tokens = 0
        while True:
            line = await reader.readline()
            assert line, "a stream broke off"
            if not line.startswith(b"data: "):
                continue
            now = time.perf_counter()
            if line.startswith(b"data: [DONE]"):
                break
            (self.itl if tokens else self.ttft).append(now - (last if tokens else begun))
            last, tokens = now, tokens + 1
        writer.close()
        assert 1 <= tokens <= TOKENS, tokens  # Several may be one character.

    async def run(self, rate, seconds, seed):
        chance = random.Random(seed)
        end = time.perf_counter() + seconds
        tasks = []
        while time.perf_counter() < end:
            tasks.append(asyncio.create_task(self.stream(chance.getrandbits(60))))
            await asyncio.sleep(chance.expovariate(rate))
        await asyncio.gather(*tasks)


def status(admin):
    return json.loads(subprocess.run([BIN, *admin, "--json"], check=True, capture_output=True, env=ENV).stdout)


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def loads(folder):
    page = status(["status", "background-bench"])
    return {each["name"]: each["load"] for each in page["processes"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=float, default=0.6)
    parser.add_argument("--step", type=int, default=20)
    parser.add_argument("--token", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=500, help="tokens of a stream's prompt")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ENV["XDG_STATE_HOME"] = folder
        job = pathlib.Path(folder) / "job.yaml"
        text = JOB.format(folder=folder, step=options.step, token=options.token)
        job.write_text(text.replace(f"state_dir: {folder}/state\n", ""))
        rows = pathlib.Path(folder) / "rows.jsonl"
        with open(rows, "w") as file:
            for number in range(1_000_000 // ROW_TOKENS):
                body = {"model": "fake", "prompt": f"{number} " + "y" * ROW_PROMPT, "max_tokens": ROW_TOKENS, "ignore_eos": True}
                file.write(json.dumps({"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
        serving = Process(["pdjob", "--config", str(job)], folder, env=ENV).wait_ready()
        seen = {"alone": [], "batch": [], "both": []}
        try:
            for turn in range(options.rounds):
                for what in ("alone", "batch", "both"):
                    seen[what].append(measure(what, options, serving.url, folder, rows, turn))
                    print(json.dumps({"turn": turn, "what": what, **seen[what][-1]}), flush=True)
        finally:
            serving.child.send_signal(signal.SIGTERM)
            serving.child.wait(60)
    total = {}
    for name in ("ttft_p50", "ttft_p95", "itl_p50", "itl_p95"):
        total[name] = round(statistics.median(both[name] / alone[name] for both, alone in zip(seen["both"], seen["alone"])), 3)
    taken = [
        both["batch_rate"] / (batch["batch_rate"] * (1 - alone["busy"])) for both, batch, alone in zip(seen["both"], seen["batch"], seen["alone"])
    ]
    print(json.dumps({"what": "with the batch / without", **total, "taken_of_what_was_left": round(statistics.median(taken), 3)}))


def measure(what, options, url, folder, rows, turn):
    out = pathlib.Path(folder) / "out"
    batch = None
    if what != "alone":
        batch = subprocess.Popen([BIN, "batch", rows, "--out", out, "--job", "background-bench"], stderr=subprocess.DEVNULL, env=ENV)
        time.sleep(5)  # Its window grows.
    streams = Streams(url, options.prompt)
    time.sleep(1)
    before, begun = loads(folder)["decode-0"], time.perf_counter()
    if what == "batch":
        time.sleep(options.seconds)
    else:
        asyncio.run(streams.run(options.rate, options.seconds, turn))
    time.sleep(0.6)  # A heartbeat.
    after, passed = loads(folder)["decode-0"], time.perf_counter() - begun
    facts = {"busy": round((after["busy_us"] - before["busy_us"]) / 1e6 / passed, 3)}
    if batch:
        batch.kill()
        batch.wait()
        time.sleep(2)  # What is in flight is cancelled.
        facts["batch_rate"] = round((after["background_tokens"] - before["background_tokens"]) / passed, 1)
    if streams.itl:
        for name, values in (("ttft", streams.ttft), ("itl", streams.itl)):
            for part in (50, 95):
                facts[f"{name}_p{part}"] = round(1000 * percentile(values, part / 100), 2)
    return facts


ENV = dict(os.environ)
if __name__ == "__main__":
    main()
