"""Measures `pdjob batch`. Prints JSON lines.

- cost: it and a Python asyncio client ask the same backend, which computes nothing, in turn.
- memory: its largest memory with more and more tiny rows, before the same backend.
- real: tokens per second with a real model, beside the least client that can be on the same worker (the engine's own ceiling), an asyncio client
  with the `openai` package, and with --peers llama-server and aiperf. All take turns.
- tail: how long the last rows take when a few of them are long.

    ./dev bench batch [--peers] [--only cost|memory|real|tail] [--rows N] [--memory-rows N,N,...] [--python-rows N] [--rounds N] [--real-rows N]
                      [--threads N]
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import resource
import shutil
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
THREADS, PARALLEL = 2, 16
KV_TYPE = "q8_0"  # Both servers store KV in it.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_rows(path, count, tokens=16, words=40, opening="Row"):
    with open(path, "w") as file:
        for number in range(count):
            body = {"model": "tiny", "prompt": f"{opening} {number}: " + "a word " * words, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
            file.write(json.dumps({"custom_id": f"row-{number}", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")


class Watch(threading.Thread):
    """The largest memory of a process, in MiB, in its whole life and in the first and the last third of it."""

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
        return {"first_third": round(max(self.seen[:third]), 1), "last_third": round(max(self.seen[-third:]), 1), "all": round(max(self.seen), 1)}


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


async def ask_least(rows, url, concurrency):
    """The least client: plain sockets, one request after the other on each. Returns the tokens that were made."""
    lines = iter(open(rows))
    host, port = url.removeprefix("http://").split(":")

    async def connection():
        reader, writer = await asyncio.open_connection(host, int(port))
        tokens = 0
        for line in lines:
            body = json.dumps(json.loads(line)["body"]).encode()
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert head.startswith("http/1.1 200"), head
            text = await reader.readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))
            tokens += json.loads(text)["usage"]["completion_tokens"]
        writer.close()
        return tokens

    return sum(await asyncio.gather(*(connection() for _ in range(concurrency))))


def run_least(rows, url, concurrency):
    begun = time.perf_counter()
    tokens = asyncio.run(ask_least(rows, url, concurrency))
    return time.perf_counter() - begun, tokens


def run_aiperf(rows, url, folder, concurrency):
    """Returns seconds as aiperf itself counts them (without its start, which takes seconds), tokens, and CPU seconds with its start."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # It insists on a tokenizer, although the server counts.
    model = {"type": "WordLevel", "vocab": {"<unk>": 0, "</s>": 1}, "unk_token": "<unk>"}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "</s>"}')
    bodies = [json.loads(line)["body"] for line in open(rows)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"text": body["prompt"]}) + "\n" for body in bodies))
    more = [f"max_tokens:{bodies[0]['max_tokens']}", "temperature:0", "ignore_eos:true"]
    subprocess.run(
        [os.environ["PDJOB_AIPERF"], "profile", "--model", "tiny", "--url", url, "--endpoint-type", "completions", "--custom-dataset-type", "single_turn",
         "--input-file", folder / "prompts.jsonl", "--tokenizer", folder, "--use-server-token-count", "--concurrency", str(concurrency), "--ui", "none",
         "--request-count", str(len(bodies)), "--output-artifact-dir", folder / "out", *(word for each in more for word in ("--extra-inputs", each))],
        check=True, capture_output=True)
    facts = json.loads((folder / "out/profile_export_aiperf.json").read_text())
    assert facts["completed_request_count"]["avg"] == len(bodies) and facts["request_error_rate"]["avg"] == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return facts["benchmark_duration"]["avg"], facts["total_usage_completion_tokens"]["avg"], cpu


def spread(values):
    return {"min": round(min(values), 3), "median": round(statistics.median(values), 3), "max": round(max(values), 3)}


@contextlib.contextmanager
def server(argv, url, path):
    """A program that serves at `url`, once it answers `path`."""
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert child.poll() is None, argv
            try:
                urllib.request.urlopen(url + path, timeout=1).read()
                break
            except OSError:
                time.sleep(0.05)
        yield url, child.pid
    finally:
        child.kill()
        child.wait()


def backend():
    port = free_port()
    return server([BACKEND, str(port)], f"http://127.0.0.1:{port}", "/stats")


def bench_cost(options, folder):
    with backend() as (url, _):
        write_rows(folder / "many.jsonl", options.rows)
        write_rows(folder / "few.jsonl", options.python_rows)
        write_rows(folder / "fewer.jsonl", options.python_rows // 4)
        ratios, cpu_ratios, of_aiperf = [], [], []
        for turn in range(options.rounds):
            python = run_python(folder / "few.jsonl", url, folder / "python.jsonl")
            ours = run_pdjob(folder / "many.jsonl", url, folder / f"out{turn}")
            rates = options.rows / ours[0], options.python_rows / python[0]
            cpu = ours[1] / options.rows * 1e6, python[1] / options.python_rows * 1e6
            ratios.append(rates[0] / rates[1])
            cpu_ratios.append(cpu[1] / cpu[0])
            print(json.dumps({
                "round": turn, "rows": options.rows, "pdjob_rows_per_s": round(rates[0]), "python_rows_per_s": round(rates[1]),
                "pdjob_cpu_us_per_row": round(cpu[0], 1), "python_cpu_us_per_row": round(cpu[1], 1), "pdjob_mib": ours[2],
            }), flush=True)
            if "PDJOB_AIPERF" in os.environ:
                # Two runs of different lengths: the difference has no start in it.
                few, fewer = (run_aiperf(folder / f"{name}.jsonl", url, folder / "aiperf", CONCURRENCY) for name in ("few", "fewer"))
                per_s, us = options.python_rows / few[0], (few[2] - fewer[2]) / (options.python_rows - options.python_rows // 4) * 1e6
                of_aiperf.append((rates[0] / per_s, us / cpu[0]))
                print(json.dumps({"round": turn, "aiperf_rows_per_s": round(per_s), "aiperf_cpu_us_per_row": round(us, 1)}), flush=True)
        print(json.dumps({"rows_per_s_ratio": spread(ratios), "cpu_per_row_ratio": spread(cpu_ratios)}), flush=True)
        if of_aiperf:
            print(json.dumps({"rows_per_s_to_aiperf": spread([each[0] for each in of_aiperf]),
                              "cpu_per_row_to_aiperf": spread([each[1] for each in of_aiperf])}), flush=True)


def bench_memory(options, folder):
    with backend() as (url, _):
        before = None
        for rows in map(int, options.memory_rows.split(",")):
            write_rows(folder / "tiny.jsonl", rows, words=1)
            wall, cpu, mib = run_pdjob(folder / "tiny.jsonl", url, folder / "memory")
            fact = {"rows": rows, "rows_per_s": round(rows / wall), "mib": mib}
            fact["ledger_bytes_per_row"] = round((folder / "memory/ledger.sqlite").stat().st_size / rows, 1)
            if before:
                fact["bytes_per_further_row"] = round((mib["all"] - before[1]) * 2**20 / (rows - before[0]), 2)
            before = rows, mib["all"]
            print(json.dumps(fact), flush=True)
            shutil.rmtree(folder / "memory")


def worker(folder, threads=THREADS):
    """Does both roles: what differs is only who asks."""
    argv = ["pdjob", "worker", "--role", "both", "--model", os.environ["PDJOB_TEST_MODEL"], "--listen", "127.0.0.1:0", "--set", "engine.sequences=8",
            "--set", f"engine.threads={threads}", "--set", f"engine.kv_type={KV_TYPE}", "--set", "served_name=tiny"]
    return Process(argv, folder).wait_ready()


def cpu_seconds(pid):
    """Of all threads of a process, and of its children that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def bench_real(options, folder):
    """Each turn of each side has prompts of its own from the first token on: both servers keep prompts, and would answer old ones faster."""
    rows = folder / "real.jsonl"
    ours = worker(folder, options.threads)

    def batch(url):
        wall, _, _ = run_pdjob(rows, url, folder / "real", ["--concurrency", str(PARALLEL)])
        tokens = sum(json.loads(line)["response"]["body"]["usage"]["completion_tokens"] for line in open(folder / "real/output.jsonl"))
        shutil.rmtree(folder / "real")
        return tokens / wall

    def least(url, concurrency=PARALLEL):
        wall, tokens = run_least(rows, url, concurrency)
        return tokens / wall

    def python(url):
        wall, _, tokens = run_python(rows, url, folder / "python.jsonl", PARALLEL)
        return tokens / wall

    def aiperf(url):
        wall, tokens, _ = run_aiperf(rows, url, folder / "aiperf", PARALLEL)
        return tokens / wall

    with contextlib.ExitStack() as stack:
        stack.callback(ours.stop)
        sides = {"batch": lambda: batch(ours.url), "ceiling_8": lambda: least(ours.url, 8), "ceiling_16": lambda: least(ours.url, 16),
                 "openai_client": lambda: python(ours.url)}
        if "PDJOB_AIPERF" in os.environ:
            sides["aiperf"] = lambda: aiperf(ours.url)
        if peer := os.environ.get("PDJOB_LLAMA_SERVER"):
            port = free_port()
            argv = [peer, "-m", os.environ["PDJOB_TEST_MODEL"], "--port", str(port), "-t", str(options.threads), "-np", "8", "-c", "4096",
                    "-ctk", KV_TYPE, "-ctv", KV_TYPE, "--alias", "tiny"]
            url, peer_pid = stack.enter_context(server(argv, f"http://127.0.0.1:{port}", "/health"))
            sides |= {"llama_server": lambda: least(url), "batch_on_llama_server": lambda: batch(url)}
        rates = {side: [] for side in sides}
        cpu = {side: [] for side in sides}  # Of the server, in ms per token.
        for turn in range(options.rounds + 1):
            for number, (side, measure) in enumerate(sides.items()):
                write_rows(rows, options.real_rows, tokens=48, words=10, opening=f"{turn * len(sides) + number} is the turn of row")
                pid = peer_pid if "llama_server" in side else ours.pid
                before = cpu_seconds(pid)
                rate = measure()
                if turn > 0:  # The first round warms up.
                    rates[side].append(rate)
                    cpu[side].append((cpu_seconds(pid) - before) / (options.real_rows * 48) * 1000)
            if turn > 0:
                now = {side: [round(rates[side][-1], 1), round(cpu[side][-1], 2)] for side in sides}
                print(json.dumps({"round": turn, "tokens_per_s_and_cpu_ms_per_token": now}), flush=True)
    best = [max(found) for found in zip(*(rates[side] for side in rates if side.startswith("ceiling")))]
    ratio = lambda above, below: spread([a / b for a, b in zip(above, below)])
    print(json.dumps({"batch_to_ceiling": ratio(rates["batch"], best), "batch_to_openai_client": ratio(rates["batch"], rates["openai_client"])}))
    if "aiperf" in rates:
        print(json.dumps({"batch_to_aiperf": ratio(rates["batch"], rates["aiperf"])}))
    if peer:
        print(json.dumps({"batch_to_llama_server": ratio(rates["batch"], rates["llama_server"]),
                          "batch_on_llama_server_to_llama_server": ratio(rates["batch_on_llama_server"], rates["llama_server"]),
                          "cpu_of_llama_server_to_ours": ratio(cpu["llama_server"], cpu["ceiling_8"])}))


def bench_tail(options, folder):
    """Rows of 8 tokens, and a few of 64 at the end of the file. In flight one after the other they would leave the engine empty at the end."""
    rows = folder / "tail.jsonl"
    write_rows(rows, options.real_rows, tokens=8, words=4)
    long = folder / "long.jsonl"
    write_rows(long, 4, tokens=64, words=4)
    with open(rows, "a") as file:
        file.write(long.read_text().replace("row-", "long-"))
    ours, ratios = worker(folder, options.threads), []
    for turn in range(options.rounds + 1):
        least, _ = run_least(rows, ours.url, 8)
        mine, _, _ = run_pdjob(rows, ours.url, folder / "tail", ["--concurrency", "8"])
        shutil.rmtree(folder / "tail")
        if turn > 0:
            ratios.append(least / mine)
    ours.stop()
    print(json.dumps({"tail_speed_beside_file_order": spread(ratios)}), flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--python-rows", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--real-rows", type=int, default=100)
    options.add_argument("--threads", type=int, default=THREADS, help="of each engine, for real and tail")
    options.add_argument("--memory-rows", default="100000,1000000")
    options.add_argument("--only", choices=["cost", "memory", "real", "tail"])
    options = options.parse_args()
    for bench in (bench_cost, bench_memory, bench_real, bench_tail):
        if options.only in (None, bench.__name__.removeprefix("bench_")):
            with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
                bench(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
