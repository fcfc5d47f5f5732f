"""What does structured output cost? First it runs `grammar_bench` on the ten schemas of tests/data/schemas. Then one real worker gets the same
prompts with and without a schema, in turn, alone and four at a time. It reports tokens per second, and their ratio with the schema to without.
Prints JSON lines.

    ./dev bench structured [--rounds N] [--tokens N]
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
from conftest import Process  # noqa: E402

PEOPLE = {
    "type": "array",
    "minItems": 100,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "city": {"type": "string", "maxLength": 12},
            "tags": {"type": "array", "items": {"enum": ["tall", "quiet", "kind"]}, "maxItems": 3},
        },
        "required": ["name", "age", "city", "tags"],
    },
}
PROMPTS = ["Many people as a JSON list:", "A table of guests, as JSON:", "JSON of everybody in town:", "All employees, as JSON:"]


def generate(url, prompt, tokens, structured):
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0.7, "seed": 5, "ignore_eos": True, "cache_salt": str(time.time())}
    body |= {"guided_json": PEOPLE} if structured else {}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        made = json.load(reply)["usage"]["completion_tokens"]
    assert made == tokens, made


def rate(url, at_once, tokens, structured, turn):
    begun = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(generate, url, PROMPTS[(turn + i) % len(PROMPTS)], tokens, structured) for i in range(at_once)]:
            done.result()
    return at_once * tokens / (time.perf_counter() - begun)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--tokens", type=int, default=128)
    options = options.parse_args()
    schemas = sorted(str(path) for path in (HERE.parent / "data" / "schemas").glob("*.json"))
    subprocess.run([os.environ["PDJOB_GRAMMAR_BENCH"], os.environ["PDJOB_TEST_MODEL"], *schemas], check=True)
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        worker = Process(["pdjob", "worker", "--model", os.environ["PDJOB_TEST_MODEL"], "--listen", "127.0.0.1:0"], folder).wait_ready()
        for at_once in (1, 4):
            rates = {False: [], True: []}
            for structured in (True, False):
                rate(worker.url, at_once, options.tokens, structured, 0)  # Compiles the schema and warms up.
            for turn in range(options.rounds):
                for structured in (False, True) if turn % 2 else (True, False):
                    rates[structured].append(rate(worker.url, at_once, options.tokens, structured, turn))
            ratios = [on / off for on, off in zip(rates[True], rates[False])]
            print(json.dumps({
                "at_once": at_once, "tokens": options.tokens, "rounds": options.rounds,
                "free_tokens_per_s": round(statistics.median(rates[False]), 1),
                "structured_tokens_per_s": round(statistics.median(rates[True]), 1),
                "ratio": {"min": round(min(ratios), 3), "median": round(statistics.median(ratios), 3), "max": round(max(ratios), 3)},
            }))
        worker.stop()


if __name__ == "__main__":
    main()
