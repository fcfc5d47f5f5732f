"""Measures what lending threads gains or costs, alone and beside other programs. Two jobs of one prefill and one decode worker take turns, request by
request: the default job, and one with `engine.lend_threads=false`. Each request asks for 48 tokens. The figure is the ratio of their times, default to no
lending: below 1, lending pays.

- alone: nothing else runs.
- busy N: N programs of the same priority, each an endless loop.
- nice N: the same, at nice 15.
- quota: the jobs are in a cgroup with a quota of one core. Needs the right to make cgroups.

Prints JSON, then a Markdown table.

    ./dev bench busy [--rounds N] [--setting alone] [--set KEY=VALUE]
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from busy_programs import busy_programs  # noqa: E402
from colocated_bench import JOB  # noqa: E402
from conftest import MODEL, Job  # noqa: E402

SETTINGS = {"alone": 0, "busy 1": 1, "busy 2": 2, "nice 1": 1, "nice 2": 2, "quota": 0}
BARS = {"alone": 1.05, "busy 1": 1.15, "busy 2": 1.15, "quota": 1.15}
TOKENS, PROMPT = 48, 24


@contextlib.contextmanager
def quota_of_one_core():
    """A cgroup whose processes get one core's time, in periods of 100 ms. Yields the file that takes their ids."""
    v1 = pathlib.Path("/sys/fs/cgroup/cpu")
    root = v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")
    group = root / f"pdjob-bench-{os.getpid()}"
    group.mkdir()
    try:
        if v1.is_dir():
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("100000")
        else:
            (group / "cpu.max").write_text("100000 100000")
        yield group / "cgroup.procs"
    finally:
        for _ in range(100):  # It is in use until the kernel has buried its processes.
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


@contextlib.contextmanager
def in_cgroup(procs):
    """Processes that start meanwhile belong to the cgroup; this one comes back."""
    if procs is None:
        yield
        return
    before = next(line.split(":", 2)[2].strip() for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
                  if line.split(":")[1] in ("cpu", "cpu,cpuacct", ""))
    procs.write_text(str(os.getpid()))
    try:
        yield
    finally:
        (procs.parent.parent / before.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))


def timed_request(url, seed):
    prompt = [300 + (seed * 7919 + i * 104729) % 40000 for i in range(PROMPT)]
    body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    started = time.perf_counter()
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=600)
    assert reply.json()["usage"]["completion_tokens"] == TOKENS, reply.text
    return time.perf_counter() - started


def measure(setting, rounds, settings):
    """Returns {side: [seconds]}."""
    with contextlib.ExitStack() as stack:
        procs = stack.enter_context(quota_of_one_core()) if setting == "quota" else None
        jobs = {}
        for side, extra in {"default": [], "no lending": ["engine.lend_threads=false"]}.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-bench-"))
            with in_cgroup(procs):
                jobs[side] = Job(JOB.format(model=MODEL, folder=folder), folder, settings=[*settings, *extra])
            stack.callback(jobs[side].stop)
        urls = {side: job.wait_ready().url for side, job in jobs.items()}
        for url in urls.values():
            timed_request(url, 1)
        stack.enter_context(busy_programs(SETTINGS[setting], 15 if setting.startswith("nice") else 0))
        found = {side: [] for side in urls}
        for round_ in range(rounds):
            for side in urls if round_ % 2 else reversed(urls):
                found[side].append(timed_request(urls[side], 2 + round_))
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="default: all")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of both jobs, as pdjob --set")
    options = parser.parse_args()
    results = {setting: measure(setting, options.rounds, options.set) for setting in options.setting or SETTINGS}
    print(json.dumps(results, indent=1))
    print(f"\n| beside | default | no lending | ratio (min/median/max) | bar |\n{'|---' * 5}|")
    for setting, found in results.items():
        ratios = sorted(a / b for a, b in zip(found["default"], found["no lending"]))
        median, bar = statistics.median(ratios), BARS.get(setting)
        verdict = "-" if bar is None else f"<= {bar} {'met' if median <= bar else 'NOT met'}"
        default, without = (statistics.median(found[side]) for side in ("default", "no lending"))
        print(f"| {setting} | {default:.2f} s | {without:.2f} s | {ratios[0]:.2f} / {median:.2f} / {ratios[-1]:.2f} | {verdict} |")


if __name__ == "__main__":
    main()
