"""Tokens per second of our engine beside llama.cpp's own benchmarks, built from the source our engine is linked with: llama-bench for one
sequence, llama-batched-bench for eight. Same model file, threads, KV type and batches, flash attention on; see engine_bench.cc for what
each figure is. The two sides take turns, and who is first alternates. Prints JSON, then a Markdown table.

    ./dev bench engine
"""

import argparse
import json
import os
import statistics
import subprocess

FIGURES = {"prompt_1": "prompt, 1 sequence", "decode_1": "decode, 1 sequence", "prompt_8": "prompts, 8 sequences", "decode_8": "decode, 8 sequences"}
KV = ["-ctk", "q8_0", "-ctv", "q8_0"]


def run(argv):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def ours(program, model, threads):
    return json.loads(run([program, model, threads]))


def theirs(folder, model, threads):
    common = ["-m", model, "-t", threads, *KV]
    tests = json.loads(run([f"{folder}/llama-bench", *common, "-fa", "1", "-p", "512", "-n", "64", "-r", "1", "-o", "json"]))
    rates = {"prompt_1" if test["n_prompt"] else "decode_1": test["avg_ts"] for test in tests}
    sizes = ["-c", "8192", "-b", "512", "-ub", "512", "-npp", "128", "-ntg", "64", "-npl", "8"]
    lines = run([f"{folder}/llama-batched-bench", *common, "-fa", "on", *sizes, "--output-format", "jsonl"]).splitlines()
    test = json.loads(next(line for line in lines if line.startswith("{")))
    return rates | {"prompt_8": test["speed_pp"], "decode_8": test["speed_tg"]}


def summary(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1")
    options = parser.parse_args()
    model = os.environ["PDJOB_TEST_MODEL"]
    sides = {
        "ours": lambda: ours(os.environ["PDJOB_ENGINE_BENCH"], model, options.threads),
        "llama.cpp": lambda: theirs(os.environ["PDJOB_LLAMA_BIN"], model, options.threads),
    }
    rates = {name: [] for name in sides}
    for round_ in range(options.rounds):
        for name in sorted(sides, reverse=round_ % 2 == 1):
            rates[name].append(sides[name]())
    results = {}
    for figure in FIGURES:
        pairs = [(a[figure], b[figure]) for a, b in zip(rates["ours"], rates["llama.cpp"])]
        results[figure] = {
            "ours_tokens_per_second": summary([a for a, _ in pairs]),
            "llama_cpp_tokens_per_second": summary([b for _, b in pairs]),
            "ratio": summary([a / b for a, b in pairs]),
        }
    print(json.dumps(results, indent=1))
    print("\n| tokens/s | ours | llama.cpp | ours / llama.cpp (min/median/max) |\n|---|---|---|---|")
    for figure, title in FIGURES.items():
        result = results[figure]
        ratio = result["ratio"]
        print(
            f"| {title} | {result['ours_tokens_per_second']['median']:.1f} | {result['llama_cpp_tokens_per_second']['median']:.1f} "
            f"| {ratio['min']:.2f} / {ratio['median']:.2f} / {ratio['max']:.2f} |"
        )


if __name__ == "__main__":
    main()
