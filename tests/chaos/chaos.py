"""Hurts every kind of process of a job under constant load with known answers: SIGKILL, SIGSTOP, and slow-down. Says which requests were lost or
altered, and how long recovery took.

    ./dev chaos [--minutes N] [--seed S]

The seed decides the faults and their order, not their timing. A request whose router died is asked anew, and counted apart. Exit code 1: a request
was lost or altered, or the job did not recover.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import report  # noqa: E402
from job import MARK, Job  # noqa: E402
from load import Load, bodies, oracle  # noqa: E402
from plan import DECK, KINDS, plan  # noqa: E402
from strike import Striker  # noqa: E402

ENGINES = {
    "real": "kv_type: q8_0, threads: 1, tokens_per_sequence: 2048, sequences: 8",
    "fake": "kind: fake, tokens_per_sequence: 2048, sequences: 8, fake_delay_per_token: 2ms",
}
WORDS = {"real": 240, "fake": 30}  # Of the longest prompt. Each byte is a token of the fake engine.


@contextlib.contextmanager
def undisturbed(binary, model, engine, folder):
    """One process with both roles, which nobody hurts. Yields its URL."""
    settings = [word for setting in engine.split(", ") for word in ("--set", "engine." + setting.replace(": ", "="))]
    log = open(pathlib.Path(folder) / "oracle.log", "wb")
    child = subprocess.Popen(
        [binary, "worker", "--role", "both", "--model", model, "--listen", "127.0.0.1:0", *settings, "--set", "served_name=smollm2"],
        stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, MARK: str(folder)}, start_new_session=True,
    )  # fmt: skip
    try:
        url = next((line.strip().removeprefix("ready url=") for line in child.stdout if line.startswith("ready url=")), None)
        assert url, f"the oracle does not start: {log.name}"
        yield url
    finally:
        child.terminate()
        child.wait(60)
        log.close()


class Console:
    def __init__(self):
        self.colours = sys.stdout.isatty()
        self.begun = time.monotonic()

    def say(self, text="", colour=None):
        print(f"\033[{colour}m{text}\033[0m" if self.colours and colour else text, flush=True)

    def strike(self, each, broken):
        strike = each.strike
        longest = max(each.tokens, default=None)
        words = [f"{strike.at - self.begun:7.1f} s  {strike.name:<11} {strike.kind:<8}"]
        words.append(f"next token {report.seconds(longest):>5} ({len(each.tokens)} streams)" if each.tokens else f"{'':<28}")
        words.append(f"next answer {report.seconds(each.answer):>5}   all well after {strike.well_at - strike.at:5.1f} s")
        if strike.replaced and strike.kind in ("pause", "slow"):
            words.append("REPLACED THOUGH IT LIVED")
        self.say("  ".join(words), "31" if broken else None)


def arguments():
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults go on (default: 10)")
    parser.add_argument("--seed", type=int, default=None, help="of the plan (default: a new one)")
    parser.add_argument("--engine", choices=ENGINES, default="real", help="fake: deterministic, sleeps instead of computing")
    parser.add_argument("--clients", type=int, default=4, help="that ask all the time (default: 4)")
    parser.add_argument("--only", default="", metavar="ROLE[:KIND],...", help=f"only these faults; kinds: {', '.join(KINDS)}")
    parser.add_argument("--out", default="build/chaos", help="folder of report.md, report.json and, after a failure, logs (default: build/chaos)")
    parser.add_argument("--keep-logs", action="store_true", help="keep them also if all went well")
    parser.add_argument("--plan", action="store_true", help="print the first 40 faults of the plan, and end")
    return parser.parse_args()


def deck_of(only):
    wanted = [word.partition(":") for word in only.split(",") if word]
    deck = {card: count for card, count in DECK.items() if not wanted or any(card[0] == r and k in ("", card[1]) for r, _, k in wanted)}
    assert deck, f"no fault is like {only}"
    return deck


@dataclasses.dataclass
class Outcome:
    requests: list
    strikes: list
    well: bool  # The job recovered from the last fault.
    left: list  # Processes that the job's end left behind.


def run(faults, folder, console, engine="fake", clients=4, seed=0, over=lambda: False):
    """Carries out the faults on a job in this folder, until they end or `over()`."""
    binary, model = os.environ["PDJOB_BIN"], os.environ["PDJOB_TEST_MODEL"]
    console.say("one undisturbed process answers all requests first")
    with undisturbed(binary, model, ENGINES[engine], folder) as url:
        answers = oracle(url, bodies(WORDS[engine]))
    job, strikes, requests, well, left = Job(binary, model, ENGINES[engine], folder), [], [], False, []
    try:
        job.start_launcher()
        job.wait_ready()
        console.say(f"2 prefill, 2 decode, 2 routers, agent and launcher are ready at {job.url}")
        with Load(job.url, bodies(WORDS[engine]), answers, seed, clients) as load:
            striker = Striker(job)
            strikes = striker.strikes
            told = set()

            def ended(strike):
                time.sleep(0.3)
                requests = load.requests()
                judged = report.judge(requests, strikes)
                bad = {id(asked) for asked in judged["lost"] + judged["altered"]}
                console.strike(report.recovery(requests, strike), bad - told)
                told.update(bad)

            try:
                well = striker.run(faults, over, ended)
            except KeyboardInterrupt:
                console.say("interrupted: the job ends, and what was measured follows")
                well = striker.recovered(ended)
        requests = load.requests()
    finally:
        left = job.stop()
        console.say(f"the job has ended{f'; killed what was left: {left}' if left else ''}")
    return Outcome(requests, strikes, well, left)


def machine():
    models = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {"cpu": models[0] if models else platform.machine(), "cores": os.cpu_count(), "load_average": os.getloadavg()}


def main():
    options = arguments()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    if options.plan:
        for number, fault in zip(range(1, 41), plan(seed, deck_of(options.only))):
            print(f"{number:3} {fault.role:<9} {fault.kind:<8} {fault.seconds:5.1f} s  {'at once' if fault.hurried else ''}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Cleans up, too.
    console = Console()
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    console.say(f"seed {seed}, {options.minutes:g} minutes, engine {options.engine}")
    with tempfile.TemporaryDirectory(prefix="pdjob-chaos-") as folder:
        before = machine()
        deadline = time.monotonic() + 60 * options.minutes
        ended = run(
            plan(seed, deck_of(options.only)), folder, console, options.engine, options.clients, seed, lambda: time.monotonic() > deadline
        )
        found = report.judge(ended.requests, ended.strikes)
        recoveries = [report.recovery(ended.requests, strike) for strike in ended.strikes]
        rows = report.rows(recoveries)
        bad = found["lost"] + found["altered"]
        counts = {name: len(group) for name, group in found.items()}
        result = {"seed": seed, "minutes": options.minutes, "engine": options.engine, "faults": len(ended.strikes), "requests": counts,
                  "recovered": ended.well, "machine": before, "rows": rows, "bad": [asked.to_json(console.begun) for asked in bad],
                  "faults_in_order": [
                      {**each.strike.to_json(console.begun), "next_token": each.tokens, "next_answer": each.answer,
                       "slow_streams": [asked.to_json(console.begun) for asked in each.slow]} for each in recoveries]}  # fmt: skip
        (out / "report.json").write_text(json.dumps(result, indent=1) + "\n")
        (out / "report.md").write_text(report.table(rows) + "\n")
        if bad or not ended.well or options.keep_logs:
            subprocess.run(["cp", "--recursive", "--force", f"{folder}/.", str(out / "job")], check=False)
    console.say()
    console.say(report.table(rows))
    console.say()
    for role, kind, bar, worst, held in report.bars(rows):
        console.say(f"{role} {kind}: p99 {worst:.2f} s, wanted less than {bar} s: {'held' if held else 'MISSED'}", None if held else "33")
    for asked in bad[:5]:
        console.say(f"{asked.outcome}: {json.dumps(asked.to_json(console.begun))}", "31")
    console.say(f"{len(ended.strikes)} faults. Requests: " + ", ".join(f"{count} {name}" for name, count in counts.items()), "31" if bad else "32")
    if not ended.well:
        console.say(f"the job did not recover; its logs are in {out / 'job'}", "31")
    return 0 if ended.well and not bad and not ended.left else 1


if __name__ == "__main__":
    sys.exit(main())
