"""Compares tokens per second of our engine with llama.cpp's own benchmarks: llama-bench for one sequence, llama-batched-bench for eight. They are
built from the source that our engine is linked with. Both sides use the same model file, threads, KV type and batches, with flash attention on.
For each figure see engine_bench.cc. The two sides take turns, and alternate in who starts. Prints JSON, then a Markdown table.

    ./dev bench engine [--rounds N] [--threads N] [--model FILE]
"""

import argparse
import json
import os
import statistics
import subprocess

BATCHED = ["-c", "8192", "-b", "512", "-ub", "512", "-npp", "128", "-ntg", "64", "-npl", "8"]


def run(argv):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def ours(model, threads, sequences):
    return json.loads(run([os.environ["PDJOB_ENGINE_BENCH"], model, str(sequences), threads]))


def theirs(model, threads, sequences):
    folder = os.environ["PDJOB_LLAMA_BIN"]
    common = ["-m", model, "-t", threads, "-ctk", "q8_0", "-ctv", "q8_0"]
    if sequences == 1:
        tests = json.loads(run([f"{folder}/llama-bench", *common, "-fa", "1", "-p", "512", "-n", "64", "-r", "3", "-o", "json"]))
        return {"prompt" if test["n_prompt"] else "decode": statistics.median(test["samples_ts"]) for test in tests}
    lines = run([f"{folder}/llama-batched-bench", *common, "-fa", "on", *BATCHED, "--output-format", "jsonl"]).splitlines()
    test = json.loads(next(line for line in lines if line.startswith("{")))
    return {"prompt": test["speed_pp"], "decode": test["speed_tg"]}


def summary(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1")
    parser.add_argument("--model", default=os.environ["PDJOB_TEST_MODEL"])
    options = parser.parse_args()
    results = {}
    for round_ in range(options.rounds):
        for sequences in (1, 8):
            rates = {}
            for side in (ours, theirs) if round_ % 2 == 0 else (theirs, ours):
                rates[side.__name__] = side(options.model, options.threads, sequences)
            for metric in ("prompt", "decode"):
                result = results.setdefault(f"{metric}, sequences: {sequences}", {"ours": [], "theirs": [], "ratio": []})
                result["ours"].append(rates["ours"][metric])
                result["theirs"].append(rates["theirs"][metric])
                result["ratio"].append(rates["ours"][metric] / rates["theirs"][metric])
    results = {name: {of: summary(values) for of, values in result.items()} for name, result in results.items()}
    print(json.dumps(results, indent=1))
    print("\n| tokens/s | ours | llama.cpp | ours / llama.cpp (min/median/max) |\n|---|---|---|---|")
    for name, result in results.items():
        ratio = "{min:.2f} / {median:.2f} / {max:.2f}".format(**result["ratio"])
        print(f"| {name} | {result['ours']['median']:.1f} | {result['theirs']['median']:.1f} | {ratio} |")


if __name__ == "__main__":
    main()
