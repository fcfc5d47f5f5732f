"""How much does a batch cost per row? `pdjob batch` and a Python asyncio client ask the same backend, which computes nothing, in turn. Then a real
model: tokens per second of a batch beside those of the engine alone, driven by the same asyncio client. Prints JSON lines.

    ./dev bench batch [--rows N] [--python-rows N] [--rounds N] [--real-rows N]
"""

import argparse
import asyncio
import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

BIN = os.environ["PDJOB_BIN"]
BACKEND = pathlib.Path(os.environ["PDJOB_BENCH_DIR"]) / "router_backend"
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
from conftest import Process  # noqa: E402

CONCURRENCY = 64


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_rows(path, count, tokens=16, words=40):
    with open(path, "w") as file:
        for number in range(count):
            body = {"model": "tiny", "prompt": f"Row {number}: " + "a word " * words, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
            file.write(json.dumps({"custom_id": f"row-{number}", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")


class Watch(threading.Thread):
    """The largest memory of a process, in MiB, in the first and the last third of its life."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.seen = pid, []
        self.start()

    def run(self):
        while True:
            try:
                pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            except (OSError, IndexError):
                return
            if pages == 0:
                return
            self.seen.append(pages * resource.getpagesize() / 2**20)
            time.sleep(0.1)

    def thirds(self):
        third = max(len(self.seen) // 3, 1)
        return round(max(self.seen[:third]), 1), round(max(self.seen[-third:]), 1)


def run_pdjob(rows, url, folder, extra=()):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    child = subprocess.Popen([BIN, "batch", rows, "--out", folder, "--url", url, *extra], stderr=subprocess.PIPE)
    watch = Watch(child.pid)
    _, text = child.communicate()
    wall = time.perf_counter() - begun
    assert child.returncode == 0, text.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, watch.thirds()


async def ask_all(rows, url, out, concurrency):
    import openai

    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="x", max_retries=0)
    slots = asyncio.Semaphore(concurrency)
    tokens = 0
    with open(out, "w") as file:

        async def ask(row):
            nonlocal tokens
            try:
                reply = await client.completions.create(**{k: v for k, v in row["body"].items() if k != "ignore_eos"}, extra_body={"ignore_eos": True})
                tokens += reply.usage.completion_tokens
                file.write(json.dumps({"custom_id": row["custom_id"], "response": {"status_code": 200, "body": reply.model_dump()}}) + "\n")
            finally:
                slots.release()

        tasks = set()
        for line in open(rows):
            await slots.acquire()
            task = asyncio.create_task(ask(json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
    await client.close()
    return tokens


def run_python(rows, url, out, concurrency=CONCURRENCY):
    begun, cpu = time.perf_counter(), time.process_time()
    tokens = asyncio.run(ask_all(rows, url, out, concurrency))
    return time.perf_counter() - begun, time.process_time() - cpu, tokens


def bench_cost(options, folder):
    port = free_port()
    backend = subprocess.Popen([BACKEND, str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                urllib.request.urlopen(url + "/stats", timeout=1).read()
                break
            except OSError:
                time.sleep(0.05)
        write_rows(folder / "many.jsonl", options.rows)
        write_rows(folder / "few.jsonl", options.python_rows)
        ratios, cpu_ratios = [], []
        for turn in range(options.rounds):
            python = run_python(folder / "few.jsonl", url, folder / "python.jsonl")
            ours = run_pdjob(folder / "many.jsonl", url, folder / f"out{turn}")
            rates = options.rows / ours[0], options.python_rows / python[0]
            cpu = ours[1] / options.rows * 1e6, python[1] / options.python_rows * 1e6
            ratios.append(rates[0] / rates[1])
            cpu_ratios.append(cpu[1] / cpu[0])
            print(json.dumps({
                "round": turn, "rows": options.rows, "pdjob_rows_per_s": round(rates[0]), "python_rows_per_s": round(rates[1]),
                "pdjob_cpu_us_per_row": round(cpu[0], 1), "python_cpu_us_per_row": round(cpu[1], 1), "pdjob_mib_first_and_last_third": ours[2],
            }), flush=True)
        spread = lambda values: {"min": round(min(values), 1), "median": round(statistics.median(values), 1), "max": round(max(values), 1)}
        print(json.dumps({"rows_per_s_ratio": spread(ratios), "cpu_per_row_ratio": spread(cpu_ratios)}), flush=True)
    finally:
        backend.kill()
        backend.wait()


def bench_real(options, folder):
    """One worker that does both roles: what differs is only who asks."""
    write_rows(folder / "real.jsonl", options.real_rows, tokens=48, words=10)
    argv = ["pdjob", "worker", "--model", os.environ["PDJOB_TEST_MODEL"], "--listen", "127.0.0.1:0", "--set", "engine.sequences=8",
            "--set", "served_name=tiny", "--set", "decode.prefix_cache=false"]
    worker = Process(argv, folder).wait_ready()
    ratios = []
    for turn in range(options.rounds):
        wall, _, tokens = run_python(folder / "real.jsonl", worker.url, folder / "python.jsonl", 16)
        ours, _, _ = run_pdjob(folder / "real.jsonl", worker.url, folder / f"real{turn}", ["--concurrency", "16"])
        ratios.append((tokens / ours) / (tokens / wall))
        print(json.dumps({"round": turn, "pdjob_tokens_per_s": round(tokens / ours, 1), "python_tokens_per_s": round(tokens / wall, 1)}), flush=True)
    worker.stop()
    print(json.dumps({"real_ratio": {"min": round(min(ratios), 3), "median": round(statistics.median(ratios), 3), "max": round(max(ratios), 3)}}))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--python-rows", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--real-rows", type=int, default=100)
    options = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        bench_cost(options, pathlib.Path(folder))
        if options.real_rows:
            bench_real(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
