"""What does a conversation's next turn cost when its prefix is kept? Runs two real jobs, 1P1D over shm with one engine thread each: one with
`prefix_cache`, one without. A turn of 1,000 tokens is followed by one that adds 40 tokens to it and its answer. The bench reports the time to the
first token of both. The jobs take turns, conversation by conversation. Prints JSON, then a Markdown table.

    ./dev bench prefix
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import Job, job_yaml  # noqa: E402

TURN_TOKENS, NEW_TOKENS, ANSWER_TOKENS = 1000, 40, 16
JOBS = {"kept": "prefix_cache: true", "computed again": "prefix_cache: false"}


def ask(url, prompt, tokens):
    """Returns the time to the first token, in seconds, and the tokens of the answer."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True, "return_token_ids": True}
    started, first, answer = time.perf_counter(), None, []
    with httpx.stream("POST", url + "/v1/completions", json=body, timeout=300) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                first = first or time.perf_counter() - started
                answer += json.loads(line.removeprefix("data: "))["choices"][0].get("token_ids") or []
    return first, answer


def converse(url, seed):
    prompt = [300 + (seed * 7919 + i * 104729) % 40000 for i in range(TURN_TOKENS)]
    first, answer = ask(url, prompt, ANSWER_TOKENS)
    time.sleep(0.2)  # The user reads the answer.
    new = [300 + (seed * 104729 + i * 7919) % 40000 for i in range(NEW_TOKENS)]
    second, answer = ask(url, prompt + answer + new, ANSWER_TOKENS)
    return {"first turn": first, "second turn": second}, answer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    figures = {}
    with contextlib.ExitStack() as stack:
        running = {}
        for name, setting in JOBS.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-bench-"))
            job = Job(job_yaml(folder, transport="shm", prefill_extra=setting, decode_extra=setting), folder)
            running[name] = job.wait_ready()
        for round_ in range(rounds + 1):
            answers = []
            for name, job in running.items():
                measured, answer = converse(job.url, round_)
                answers.append(answer)
                for turn, seconds in measured.items():
                    print(f"{turn}, {name}: {1e3 * seconds:.0f} ms", file=sys.stderr, flush=True)
                    if round_ > 0:  # The first round warms up.
                        figures.setdefault(turn, {}).setdefault(name, []).append(seconds)
            assert answers[0] == answers[1], "the tokens are the same"
        assert all(job.stop() == 0 for job in running.values())
    print(json.dumps(figures))
    print("\n| time to the first token | kept | computed again | ratio (min/median/max) |\n|---|---|---|---|")
    for turn, of in figures.items():
        kept, again = (of[name] for name in JOBS)
        ratios = [a / b for a, b in zip(kept, again)]
        cells = [f"{1e3 * statistics.median(values):.0f} ms" for values in (kept, again)]
        print(f"| {turn} | {cells[0]} | {cells[1]} | {min(ratios):.3f} / {statistics.median(ratios):.3f} / {max(ratios):.3f} |")


if __name__ == "__main__":
    main()
