"""Measures a job of mode rollout.

update: a 1P1D job of the real model, under load of streams, takes new weights, in each pause mode. Says how long the parts took, how fast the file was
read, beside plain reads of the same file, and for how long no client got a token.

groups: 64 prompts with 8 answers each, whose lengths have a long tail, all asked at once. A job with two prefill and two decode workers, beside four
workers that do all of a request behind the same router. The engine is the fake one, which sleeps for each token, so this is about who does what, and not
about how fast an engine is. Both sides take turns. Says the makespan, and when 50, 90 and 99 % of the answers, and of the groups, were complete.

Prints JSON, then Markdown.

    ./dev bench rollout [--only update|groups] [--rounds N] [--prompt-tokens N]
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import MODEL, Job, Process, get  # noqa: E402
from gguf_weights import swap_layers  # noqa: E402

MODES = ("wait", "abort", "retract")
FAKE = "kind: fake, tokens_per_sequence: 2048, sequences: 32, fake_delay_per_token: {delay}"


def ask(url, method, path, body=None, headers=None):
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=900)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        text = reply.read().decode()
        assert reply.status == 200, f"{path}: {reply.status} {text[:300]}"
        return text
    finally:
        connection.close()


def summary(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# --- update


class Streams:
    """Clients that stream one answer after the other, and note when any of them got a token."""

    def __init__(self, url, clients, tokens):
        self.url, self.tokens, self.times = url, tokens, []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(clients)]

    def __enter__(self):
        [thread.start() for thread in self._threads]
        return self

    def __exit__(self, *_):
        self._over.set()
        [thread.join(120) for thread in self._threads]

    def _run(self, number):
        address = urllib.parse.urlsplit(self.url)
        while not self._over.is_set():
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=300)
            body = {"prompt": f"Story {number}: once upon a time", "max_tokens": self.tokens, "temperature": 0, "stream": True, "ignore_eos": True}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
            while line := reply.readline():
                if line.startswith(b"data: {"):
                    self.times.append(time.monotonic())
            connection.close()

    def longest_gap(self, begin, end):
        times = [begin, *(at for at in sorted(self.times) if begin <= at <= end), end]
        return max(b - a for a, b in zip(times, times[1:]))


def read_seconds(file):
    begun = time.monotonic()
    with open(file, "rb", buffering=0) as source:
        while source.read(1 << 20):
            pass
    return time.monotonic() - begun


def hash_seconds(file):
    begun = time.monotonic()
    with open(file, "rb") as source:
        hashlib.file_digest(source, "blake2b")
    return time.monotonic() - begun


def rollout_yaml(folder, weights):
    return f"""\
name: bench
mode: rollout
model: {MODEL}
served_name: smollm2
prefill: {{workers: 1}}
decode: {{workers: 1}}
rollout: {{weights_dir: {weights}, control: same_address}}
router: {{listen: "127.0.0.1:0", queue_timeout: 120s}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


def measure_updates(options):
    found = {mode: [] for mode in ("idle", *MODES)}
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        weights = pathlib.Path(folder) / "weights"
        weights.mkdir()
        shutil.copy(MODEL, weights / "a.gguf")
        swap_layers(MODEL, weights / "b.gguf", 3, 20)
        size = (weights / "a.gguf").stat().st_size
        reads, hashes = [], []
        job = Job(rollout_yaml(folder, weights), folder)
        try:
            job.wait_ready()
            (key_file,) = pathlib.Path(folder).glob("state/*/control_key")
            key = {"Authorization": f"Bearer {key_file.read_text().strip()}"}
            admin = json.loads(next(pathlib.Path(folder).glob("state/*/launcher.json")).read_text())["admin"]
            number = 0
            for _ in range(options.rounds):
                for mode in found:
                    number += 1
                    reads.append(read_seconds(weights / "a.gguf"))
                    hashes.append(hash_seconds(weights / "a.gguf"))
                    with Streams(job.url, 4, options.stream_tokens) if mode != "idle" else contextlib.nullcontext() as streams:
                        if streams:
                            while len(streams.times) < 40:
                                time.sleep(0.01)
                        begun = time.monotonic()
                        ask(job.url, "POST", "/v1/rl/update", {"path": "ab"[number % 2] + ".gguf", "version": f"step-{number}", "mode": "wait" if mode == "idle" else mode}, key)
                        took = time.monotonic() - begun
                        if streams:
                            before = len(streams.times)
                            while len(streams.times) < before + 4:
                                time.sleep(0.01)
                        end = time.monotonic()
                    parts = json.loads(get(f"http://{admin}/rollout"))["last_update"]
                    found[mode].append({
                        "order": took, "read": parts["preparing_seconds"], "quiet": parts["closing_seconds"], "applied": parts["applying_seconds"],
                        "no token": streams.longest_gap(begun, end) if streams else 0.0,
                    })  # fmt: skip
        finally:
            assert job.stop() == 0, job.log_tail()
    return {"bytes": size, "read_seconds": summary(reads), "hash_seconds": summary(hashes),
            "modes": {mode: {part: summary([each[part] for each in rounds]) for part in rounds[0]} for mode, rounds in found.items()}}  # fmt: skip


def print_updates(result):
    print("\n| load | order | read | quiet | applied | no client got a token for |\n" + "|---" * 6 + "|")
    for mode, parts in result["modes"].items():
        cells = [f"{parts[part]['median']:.2f} s ({parts[part]['min']:.2f}..{parts[part]['max']:.2f})" for part in ("order", "read", "quiet", "applied", "no token")]
        print(f"| {mode} | {' | '.join(cells[:-1])} | {'-' if mode == 'idle' else cells[-1]} |")
    size = result["bytes"] / 1e9
    read = result["modes"]["idle"]["read"]["median"]
    print(f"\nfile: {size:.3f} GB. Two workers read it in {read:.2f} s when idle: {size / read:.2f} GB/s each. One plain read: {size / result['read_seconds']['median']:.2f} GB/s;"
          f" with BLAKE2b: {size / result['hash_seconds']['median']:.2f} GB/s.")  # fmt: skip


# --- groups


def lengths(seed, groups, each, median, longest):
    """Output tokens of each answer: log-normal, so that few are many times as long as most."""
    draw = random.Random(seed)
    return [[max(4, min(longest, int(draw.lognormvariate(0, 1) * median))) for _ in range(each)] for _ in range(groups)]


def roll(url, asked, prompt_tokens, seed):
    """Returns the seconds after which each group's answers were complete."""
    draw = random.Random(seed)
    prompts = [[draw.randrange(1, 250) for _ in range(prompt_tokens)] for _ in asked]
    begun = time.monotonic()

    def one(group, length):
        told = json.loads(ask(url, "POST", "/generate", {"input_ids": prompts[group], "sampling_params": {"max_new_tokens": length, "temperature": 1.0, "ignore_eos": True}}))
        assert len(told["output_ids"]) == length, told
        return group, time.monotonic() - begun

    ended = [[] for _ in asked]
    with concurrent.futures.ThreadPoolExecutor(sum(map(len, asked))) as threads:
        for group, seconds in threads.map(lambda each: one(*each), [(group, length) for group, each in enumerate(asked) for length in each]):
            ended[group].append(seconds)
    return ended


@contextlib.contextmanager
def side(name, folder, options):
    engine = FAKE.format(delay=options.delay)
    folder = pathlib.Path(folder) / name
    folder.mkdir()
    if name == "job":
        prefill, decode = options.split.split(":")
        job = Job(f"""\
name: bench
mode: rollout
model: fake
engine: {{{engine}}}
prefill: {{workers: {prefill}, requests_queued: 1024}}
decode: {{workers: {decode}, requests_queued: 1024}}
rollout: {{weights_dir: {folder}, control: same_address}}
router: {{listen: "127.0.0.1:0", queue_timeout: 600s, queue_max: 1024}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
""", folder)  # fmt: skip
        try:
            yield job.wait_ready().url
        finally:
            assert job.stop() == 0, job.log_tail()
        return
    settings = [word for setting in engine.split(", ") for word in ("--set", "engine." + setting.replace(": ", "="))]
    argv = ["pdjob", "worker", "--role", "both", "--model", MODEL, "--listen", "127.0.0.1:0", "--set", "served_name=fake", "--set", "decode.requests_queued=1024", *settings]
    workers = [Process(argv, folder) for _ in range(sum(map(int, options.split.split(":"))))]
    urls = [word for worker in workers for word in ("--worker", worker.wait_ready().url)]
    router = Process(["pdjob", "router", "--listen", "127.0.0.1:0", *urls, "--set", "router.queue_timeout=600s", "--set", "router.queue_max=1024"], folder)
    try:
        yield router.wait_ready().url
    finally:
        for process in [router, *workers]:
            assert process.stop() == 0, process.log_tail()


def measure_groups(options):
    found = {"replicas": [], "job": []}
    for seed in range(1, options.rounds + 1):
        asked = lengths(seed, options.groups, 8, options.median, options.longest)
        for name in sorted(found, reverse=seed % 2 == 0):
            with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder, side(name, folder, options) as url:
                ended = roll(url, asked, options.prompt_tokens, seed)
            answers, groups = sorted(sum(ended, [])), [max(each) for each in ended]
            found[name].append({"makespan": answers[-1], **{f"answers p{p}": percentile(answers, p / 100) for p in (50, 90, 99)},
                                **{f"groups p{p}": percentile(groups, p / 100) for p in (50, 90)},
                                "tail after p90": answers[-1] - percentile(answers, 0.9)})  # fmt: skip
    return {name: {part: summary([each[part] for each in rounds]) for part in rounds[0]} for name, rounds in found.items()}


def print_groups(result):
    print("\n| | replicas | job | ratio of the medians |\n|---|---|---|---|")
    for part in result["job"]:
        replicas, job = (result[name][part] for name in ("replicas", "job"))
        cells = [f"{each['median']:.1f} s ({each['min']:.1f}..{each['max']:.1f})" for each in (replicas, job)]
        print(f"| {part} | {' | '.join(cells)} | {job['median'] / replicas['median']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("update", "groups"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stream-tokens", type=int, default=200, help="of the streams beside an update")
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--median", type=int, default=32, help="output tokens")
    parser.add_argument("--longest", type=int, default=512)
    parser.add_argument("--delay", default="1ms", help="of the fake engine, for each token")
    parser.add_argument("--split", default="2:2", help="prefill and decode workers; the other side has as many replicas")
    options = parser.parse_args()
    result = {"load_at_start": os.getloadavg()}
    if options.only != "groups":
        result["update"] = measure_updates(options)
    if options.only != "update":
        result["groups"] = measure_groups(options)
    result["load_at_end"] = os.getloadavg()
    print(json.dumps(result, indent=1))
    if "update" in result:
        print_updates(result["update"])
    if "groups" in result:
        print_groups(result["groups"])


if __name__ == "__main__":
    main()
