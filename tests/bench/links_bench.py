"""KV between two hosts over a long line: its rate, delay and loss are played between network namespaces. Prints JSON, then Markdown tables.

1. Goodput: rows of KV over encrypted tcp, beside plain TCP connections over the same line, in turns. Each uses one connection, or several.
2. Time to the first token: a job whose prefill and decode workers are on the two hosts, with an agent on each.

    ./dev bench links [--rounds N] [--only goodput|ttft]
"""

import argparse
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
import netns  # noqa: E402
from conftest import Job, job_yaml  # noqa: E402
from test_agents import Machines  # noqa: E402

RATE = 12.5e6  # Bytes per second: a line of 100 Mbit/s.
QUEUE = 0.1  # Seconds of the line's time.
IP_SHARE = (1500 - 52) / 1500  # What IP and TCP headers leave of a packet.
LINES = {"0 ms": (0, 0), "5 ms": (0.005, 0), "50 ms": (0.05, 0), "5 ms, 1 % loss": (0.005, 0.01), "50 ms, 1 % loss": (0.05, 0.01)}
CONTROLS = ("cubic", "bbr")
STREAMS = (1, 8)
BYTES_PER_TOKEN = 12240
SECONDS = 4  # Of the line's time, unless loss makes it slower.
PROMPT_TOKENS = 250
TTFT_ROUNDS = 5


class End:
    """A process at one end of the line (kv_link_bench.cc)."""

    def __init__(self, lan, machine, *argv):
        with lan.inside(machine):
            self.child = subprocess.Popen([os.environ["PDJOB_BENCH_DIR"] + "/kv_link_bench", *map(str, argv)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, *words):
        self.child.stdin.write(" ".join(map(str, words)) + "\n")
        self.child.stdin.flush()

    def answer(self):
        return json.loads(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class Pair:
    """A sender and a receiver whose KV uses this many connections. Their link stays open, as it does between workers."""

    def __init__(self, lan, streams):
        self.streams, self.count = streams, 0
        self.sender = End(lan, "near", "sender", netns.FarLink.NEAR, streams)
        ports = self.sender.answer()
        self.receiver = End(lan, "far", "receiver", netns.FarLink.FAR, streams, netns.FarLink.NEAR, ports["kv_port"], ports["plain_port"])

    def kv(self, bytes_):
        """As many transfers at once as there are connections. Returns bytes per second."""
        tokens = int(bytes_ / BYTES_PER_TOKEN / self.streams)
        order = (self.count, self.streams, tokens)
        self.count += self.streams
        self.sender.begin("offer", *order)
        self.sender.answer()
        self.receiver.begin("fetch", *order)
        return self.streams * tokens * BYTES_PER_TOKEN / self.receiver.answer()["seconds"]

    def plain(self, bytes_):
        order = (self.streams, int(bytes_))
        self.sender.begin("send", *order)
        self.receiver.begin("receive", *order)
        self.sender.answer()
        return bytes_ / self.receiver.answer()["seconds"]

    def close(self):
        self.sender.close()
        self.receiver.close()


def bytes_for(control, delay, loss, streams):
    """Loss holds cubic back, about as it does reno: 1.2 segments a round trip, divided by the root of the loss."""
    rate = streams * 1.2 * 1448 / (2 * delay * loss**0.5) if control == "cubic" and loss > 0 else RATE
    return SECONDS * min(RATE, rate)


def measure_goodput(rounds):
    figures = []
    for control in CONTROLS:
        with netns.Lan(["near", "far"]) as lan, contextlib.ExitStack() as stack:
            line = netns.FarLink(lan, "near", "far", control)
            stack.callback(line.close)
            for streams in STREAMS:
                pair = Pair(lan, streams)
                stack.callback(pair.close)
                for name, (delay, loss) in LINES.items():
                    line.set(delay, loss, RATE, QUEUE)
                    bytes_ = bytes_for(control, delay, loss, streams)
                    pair.kv(bytes_ / 8)  # Opens the links.
                    of = {"control": control, "streams": streams, "line": name, "kv": [], "plain": []}
                    for _ in range(rounds):
                        of["kv"].append(pair.kv(bytes_))
                        of["plain"].append(pair.plain(bytes_))
                    figures.append(of)
                    print(json.dumps(of), file=sys.stderr, flush=True)
    return figures


def ask(url, seed):
    prompt = [300 + (seed * 7919 + i * 104729) % 40000 for i in range(PROMPT_TOKENS)]
    started = time.perf_counter()
    reply = httpx.post(f"{url}/v1/completions", json={"prompt": prompt, "max_tokens": 1, "temperature": 0}, timeout=300)
    taken = time.perf_counter() - started
    assert reply.status_code == 200 and reply.headers["x-pdjob-kv-transport"] == "tcp", reply.text
    return {"ttft": taken, "bytes": int(reply.headers["x-pdjob-kv-bytes"])}


def measure_ttft():
    """The first figures are of the line without delay and loss."""
    figures = {}
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder, netns.Lan(["front", "far"]) as lan, contextlib.ExitStack() as stack:
        made = Machines(lan, folder)
        line = netns.FarLink(lan, "front", "far")
        stack.callback(line.close)
        made.front = netns.FarLink.NEAR
        for machine in ("front", "far"):
            stack.callback(made.start_agent(machine, "--label", f"for={machine}")._kill)
        groups = {"prefill_extra": "labels: {for: front}", "decode_extra": "labels: {for: far}"}
        with lan.inside("front"):
            job = Job(job_yaml(folder, extra=made.clusters(2), **groups), folder)
            stack.callback(job.stop)
            url = job.wait_ready().url
            seed = 0
            ask(url, seed)
            for _ in range(TTFT_ROUNDS):
                for name, (delay, loss) in LINES.items():
                    line.set(delay, loss, RATE, QUEUE)
                    seed += 1
                    of = ask(url, seed)
                    print(f"{name}: {of}", file=sys.stderr, flush=True)
                    for key, value in of.items():
                        figures.setdefault(name, {}).setdefault(key, []).append(value)
            line.set()
    return figures


def spread(values, form):
    return " / ".join(form.format(value) for value in (min(values), statistics.median(values), max(values)))


def print_goodput(figures):
    print("\n| line | congestion control | connections | KV, share of the line | plain TCP | KV / plain (min/median/max) |\n|---|---|---|---|---|---|")
    for of in figures:
        shares = [f"{statistics.median(of[way]) / (RATE * IP_SHARE):.2f}" for way in ("kv", "plain")]
        ratio = spread([kv / plain for kv, plain in zip(of["kv"], of["plain"])], "{:.2f}")
        print(f"| {of['line']} | {of['control']} | {of['streams']} | {shares[0]} | {shares[1]} | {ratio} |")


def print_ttft(figures):
    print("\n| line | KV, MB | TTFT, s (min/median/max) | more than on the first line, round by round |\n|---|---|---|---|")
    base = next(iter(figures.values()))["ttft"]
    for name, of in figures.items():
        more = spread([ttft - first for ttft, first in zip(of["ttft"], base)], "{:.2f}")
        print(f"| {name} | {of['bytes'][0] / 1e6:.2f} | {spread(of['ttft'], '{:.2f}')} | {more} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["goodput", "ttft"])
    options = parser.parse_args()
    if reason := netns.unavailable():
        print(f"links_bench: {reason}", file=sys.stderr)
        return
    results = {}
    if options.only != "ttft":
        results["goodput"] = measure_goodput(options.rounds)
    if options.only != "goodput":
        results["ttft"] = measure_ttft()
    print(json.dumps(results))
    if "goodput" in results:
        print_goodput(results["goodput"])
    if "ttft" in results:
        print_ttft(results["ttft"])


if __name__ == "__main__":
    main()
