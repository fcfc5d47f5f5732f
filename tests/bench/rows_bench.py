"""Measures what `pdjob batch` saves of the work on its rows. Prints JSON lines.

- kills: a batch is killed again and again. How many tokens are generated twice? The engine is fake, and sleeps for each step.
- beginnings: rows about the same documents come mixed, and document by document. How many prompt tokens does the worker know already? The model is real.

    ./dev bench rows [--only kills|beginnings] [--rows N] [--kills N] [--tokens N] [--documents N] [--questions N]
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import urllib.request

BIN = os.environ["PDJOB_BIN"]
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
from conftest import Process  # noqa: E402

SEQUENCES = 8


def worker(folder, model, *settings):
    argv = ["pdjob", "worker", "--role", "both", "--model", model, "--listen", "127.0.0.1:0", "--set", f"engine.sequences={SEQUENCES}"]
    return Process([*argv, *(part for each in settings for part in ("--set", each))], folder).wait_ready()


def start(rows, out, url):
    return subprocess.Popen([BIN, "batch", str(rows), "--out", str(out), "--url", url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(batch):
    text, _ = batch.communicate()
    assert batch.returncode == 0, text


def write_rows(path, bodies):
    with open(path, "w") as file:
        for number, body in enumerate(bodies):
            file.write(json.dumps({"custom_id": f"row-{number}", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
    return path


def usages(out):
    records = [json.loads(line) for line in (out / "output.jsonl").read_text().splitlines()]
    assert len({record["custom_id"] for record in records}) == len(records), "a row twice"
    return [record["response"]["body"]["usage"] for record in records]


def generated(url):
    lines = urllib.request.urlopen(url + "/metrics", timeout=10).read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("pdjob_generation_tokens_total"))


def bench_kills(options, folder):
    engine = worker(folder, "fake", "engine.kind=fake", "engine.tokens_per_sequence=1024", "engine.fake_delay_per_step=10ms")
    rows = write_rows(folder / "rows.jsonl", [
        {"prompt": f"Row {number} of many", "max_tokens": options.tokens, "temperature": 0.8, "seed": number, "ignore_eos": True} for number in range(options.rows)
    ])
    step = options.rows * options.tokens / (options.kills + 1)
    begun = time.perf_counter()
    for kill in range(options.kills):
        batch = start(rows, folder / "out", engine.url)
        goal = (kill + random.uniform(0.7, 1.0)) * step
        while generated(engine.url) < goal:
            time.sleep(0.05)
        batch.kill()
        batch.communicate()
    finish(start(rows, folder / "out", engine.url))
    tokens = sum(usage["completion_tokens"] for usage in usages(folder / "out"))
    print(json.dumps({"rows": options.rows, "tokens": tokens, "kills": options.kills, "generated_twice": round(generated(engine.url) / tokens - 1, 4),
                      "seconds": round(time.perf_counter() - begun)}), flush=True)
    engine.stop()


def bench_beginnings(options, folder):
    words = "river mountain cloud stone bridge harbour lantern meadow winter engine paper copper violin garden market thunder".split()
    bodies = []
    for document in range(options.documents):
        choose = random.Random(document)
        text = " ".join(choose.choice(words) for _ in range(400))
        bodies += [{"prompt": f"Document {document}: {text}\nQuestion {question}: what is it about?", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
                   for question in range(options.questions)]
    mixed = random.Random(1).sample(bodies, len(bodies))
    for name, ordered in (("mixed", mixed), ("by_document", bodies)):
        engine = worker(folder, os.environ["PDJOB_TEST_MODEL"])
        begun = time.perf_counter()
        finish(start(write_rows(folder / f"{name}.jsonl", ordered), folder / name, engine.url))
        seconds = time.perf_counter() - begun
        engine.stop()
        found = usages(folder / name)
        cached = sum((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for usage in found)
        print(json.dumps({"order": name, "rows": len(found), "prompt_tokens": sum(usage["prompt_tokens"] for usage in found),
                          "known": round(cached / sum(usage["prompt_tokens"] for usage in found), 3), "seconds": round(seconds, 1)}), flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1000)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--tokens", type=int, default=240, help="of each row that is killed")
    options.add_argument("--documents", type=int, default=8)
    options.add_argument("--questions", type=int, default=24)
    options.add_argument("--only", choices=["kills", "beginnings"])
    options = options.parse_args()
    for bench in (bench_kills, bench_beginnings):
        if options.only in (None, bench.__name__.removeprefix("bench_")):
            with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
                bench(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
