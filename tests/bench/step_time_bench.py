"""Fits the simulation's model of a step's time (launcher/simulator/step_time.h) to the real engine, and says how far it is off, also for
steps with prompts and decoding sequences together, to which it is not fitted.

    ./dev bench step_time [--steps FILE]    FILE: what an earlier run of step_time_bench printed
"""

import argparse
import json
import os
import subprocess

NAMES = ["fixed", "per_prompt_token", "per_sequence", "per_prompt_read", "per_context_read"]


def features(items):
    row = [1.0, 0.0, 0.0, 0.0, 0.0]
    for rows, tokens in items:
        reads = rows * tokens + tokens * (tokens + 1) / 2
        if tokens == 1:
            row[2] += 1
            row[4] += reads
        else:
            row[1] += tokens
            row[3] += reads
    return row


def solve(matrix, right):
    """Gauss with pivots."""
    size = len(right)
    rows = [line + [value] for line, value in zip(matrix, right)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(size):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    return [rows[i][size] / rows[i][i] for i in range(size)]


def fit(steps):
    """Least squares of the relative error."""
    weighted = [[value / step["ms"] for value in features(step["items"])] for step in steps]
    matrix = [[sum(line[i] * line[j] for line in weighted) for j in range(5)] for i in range(5)]
    return solve(matrix, [sum(line[i] for line in weighted) for i in range(5)])


def errors(steps, model):
    return sorted(abs(sum(a * b for a, b in zip(model, features(step["items"]))) / step["ms"] - 1) for step in steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps")
    file = parser.parse_args().steps
    if file:
        output = open(file).read()
    else:
        command = [os.environ["PDJOB_STEP_TIME_BENCH"], os.environ["PDJOB_TEST_MODEL"]]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    steps = [json.loads(line) for line in output.splitlines()]
    fitted = [step for step in steps if step["kind"] != "mixed"]
    result = fit(fitted)
    for step in steps:
        print(json.dumps({**step, "model_ms": round(sum(a * b for a, b in zip(result, features(step["items"]))), 2)}))
    for name, value in zip(NAMES, result):
        print(f"{name}: {1e3 * value:.2f} us")
    print("--step " + ",".join(str(round(1e6 * value)) for value in result))
    for kind in ("prompt", "decode", "mixed"):
        off = errors([step for step in steps if step["kind"] == kind], result)
        print(f"{kind}: error median {100 * off[len(off) // 2]:.1f} %, largest {100 * off[-1]:.1f} %")


if __name__ == "__main__":
    main()
