"""Measures whether a disaggregated job is worse than one process with both roles on the same two cores. The job is 1P1D with `engine.threads` not set,
so its workers lend each other their threads. The process has both roles and two threads. They take turns, phase by phase, for prompts of 256 tokens
with 32 tokens out, and of 16 with 128 out:

- c1: one client, one request after the other: output tokens per second, TTFT.
- c8: eight such clients: output tokens per second.
- open: requests arrive at random at 70 % of the rate that the one process had at c8, at the same moments for both sides: TTFT, ITL.

With `--busy N`, N other programs of the same priority are busy all the time. Prints JSON, then Markdown tables of ratios. Absolute figures depend on the
machine. `others` is the CPU time of all other programs, in cores.

    ./dev bench colocated [--rounds N] [--busy N] [--workload 256/32] [--set router.decode_prefills=never]
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from busy_programs import busy_programs  # noqa: E402
from conftest import MODEL, Job, Process, metric  # noqa: E402

WORKLOADS = ["256/32", "16/128"]
OPEN_SHARE = 0.7
BARS = {  # Figure -> the bar on the ratio of 1P1D to one process.
    "c1 throughput": (">=", 0.9), "c1 TTFT": ("<=", 1.15), "c8 throughput": (">=", 0.9), "open TTFT p50": ("<=", 1.15), "open ITL p99": ("<=", 0.5),
    "c1 ITL p99": ("<=", 1), "c8 ITL p99": ("<=", 1), "c8 TTFT": ("<=", 1.2),
}


class Workload:
    def __init__(self, name):
        self.name = name
        self.prompt_tokens, self.output_tokens = map(int, name.split("/"))

    async def stream(self, client, seed):
        """Returns the times at which the tokens came. A token without a whole character has an event, too, because token ids are asked for."""
        draw = random.Random(seed)
        prompt = [draw.randrange(300, 3000) for _ in range(self.prompt_tokens)]
        body = {"prompt": prompt, "max_tokens": self.output_tokens, "temperature": 0, "stream": True, "ignore_eos": True,
                "return_token_ids": True}
        stamps = []
        async with client.stream("POST", "/v1/completions", json=body) as reply:
            assert reply.status_code == 200, await reply.aread()
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    stamps.append(time.perf_counter())
        assert len(stamps) == self.output_tokens, f"{len(stamps)} events of {self.output_tokens} tokens"
        return stamps

    async def closed(self, client, clients, requests, seed):
        """Each client asks so many requests, one after the other."""
        async def one(index):
            times = []
            for i in range(requests):
                started = time.perf_counter()
                times.append((started, await self.stream(client, seed * 1000 + index * 100 + i)))
            return times

        started = time.perf_counter()
        results = sum(await asyncio.gather(*(one(i) for i in range(clients))), [])
        return results, time.perf_counter() - started

    async def opened(self, client, rate, requests, seed):
        """The times of the requests' arrivals are drawn from the seed, before anything is sent."""
        draw, at, arrivals = random.Random(seed), 0.0, []
        for _ in range(requests):
            arrivals.append(at)
            at += draw.expovariate(rate)
        started = time.perf_counter()

        async def one(index, arrival):
            await asyncio.sleep(started + arrival - time.perf_counter())
            return started + arrival, await self.stream(client, seed * 1000 + index)

        results = await asyncio.gather(*(one(i, arrival) for i, arrival in enumerate(arrivals)))
        return results, time.perf_counter() - started


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures_of(phase, results, taken, output_tokens):
    ttft = [stamps[0] - started for started, stamps in results]
    gaps = [b - a for _, stamps in results for a, b in zip(stamps, stamps[1:])]
    return {
        f"{phase} throughput": len(results) * output_tokens / taken,
        f"{phase} TTFT": statistics.median(ttft),
        f"{phase} TTFT p50": statistics.median(ttft),
        f"{phase} TTFT p99": percentile(ttft, 0.99),
        f"{phase} ITL p50": statistics.median(gaps),
        f"{phase} ITL p99": percentile(gaps, 0.99),
        f"{phase} requests/s": len(results) / taken,
    }


def cpu_seconds(sessions):
    """Returns the CPU time of the machine, and of these sessions and ourselves."""
    tick = os.sysconf("SC_CLK_TCK")
    fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    own = sum(os.times()[:2])
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(words[3]) in sessions:
            own += (int(words[11]) + int(words[12])) / tick
    return (fields[0] + fields[1] + fields[2]) / tick, own


class Bench:
    def __init__(self, processes):
        self.processes = processes
        self.urls = {side: process.wait_ready().url for side, process in processes.items()}
        self.sessions = {process.pid for process in processes.values()}
        self.others = []

    def phase(self, workload, side, name, run):
        async def measured():
            async with httpx.AsyncClient(base_url=self.urls[side], timeout=600, limits=httpx.Limits(max_connections=None)) as client:
                return await run(client)

        (machine, own), began = cpu_seconds(self.sessions), time.perf_counter()
        results, taken = asyncio.run(measured())
        machine_after, own_after = cpu_seconds(self.sessions)
        self.others.append(((machine_after - machine) - (own_after - own)) / (time.perf_counter() - began))
        return figures_of(name, results, taken, workload.output_tokens)

    def bypassed(self):
        url = self.urls["1p1d"]
        return metric(url, "pdjob_router_bypassed_total")

    def round(self, workload, seed, options):
        """Returns {side: {figure: value}}. The sides take turns; which one begins changes from round to round."""
        sides = ["single", "1p1d"] if seed % 2 else ["1p1d", "single"]
        found = {side: {} for side in sides}
        bypassed, requests = self.bypassed(), 0
        plans = [
            ("c1", lambda client: workload.closed(client, 1, options.c1_requests, seed), options.c1_requests),
            ("c8", lambda client: workload.closed(client, 8, options.c8_requests, seed + 500), 8 * options.c8_requests),
        ]
        for name, run, count in plans:
            for side in sides:
                found[side].update(self.phase(workload, side, name, run))
            requests += count
        rate = OPEN_SHARE * found["single"]["c8 requests/s"]
        for side in sides:
            found[side].update(self.phase(workload, side, "open", lambda client: workload.opened(client, rate, options.open_requests, seed)))
        requests += options.open_requests
        found["1p1d"]["bypassed share"] = (self.bypassed() - bypassed) / requests
        found["single"]["bypassed share"] = 0.0
        return found


def summary(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def text_of(name, value):
    return f"{value:.2f}" if "throughput" in name or "requests" in name or "share" in name else f"{1e3 * value:.1f} ms"


def print_table(workload, rounds):
    print(f"\n{workload}:\n\n| figure | one process | 1P1D | ratio (min/median/max) | bar |")
    print("|---" * 5 + "|")
    for name in rounds[0]["1p1d"]:
        one, job = ([each[side][name] for each in rounds] for side in ("single", "1p1d"))
        if name == "bypassed share":
            print(f"| {name} | - | {statistics.median(job):.2f} | - | - |")
            continue
        ratio = summary([b / a for a, b in zip(one, job)])
        sign, bar = BARS.get(name, ("", ""))
        met = "" if not sign else " met" if (ratio["median"] >= bar if sign == ">=" else ratio["median"] <= bar) else " NOT met"
        cells = [text_of(name, statistics.median(one)), text_of(name, statistics.median(job))]
        print(f"| {name} | {' | '.join(cells)} | {ratio['min']:.2f} / {ratio['median']:.2f} / {ratio['max']:.2f} | {sign} {bar}{met} |")


JOB = """\
name: bench
model: {model}
served_name: smollm2
router: {{listen: "127.0.0.1:0"}}
prefill: {{workers: 1}}
decode: {{workers: 1}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0, help="other programs that are busy")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="default: both")
    parser.add_argument("--c1-requests", type=int, default=4)
    parser.add_argument("--c8-requests", type=int, default=2)
    parser.add_argument("--open-requests", type=int, default=24)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the job, as pdjob --set; the one process is not changed")
    parser.add_argument("--json", help="also write the JSON to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder, busy_programs(options.busy):
        single = ["pdjob", "worker", "--role", "both", "--model", MODEL, "--set", "engine.threads=2", "--listen", "127.0.0.1:0"]
        processes = {"single": Process(single, folder), "1p1d": Job(JOB.format(model=MODEL, folder=folder), folder, settings=options.set)}
        bench, results, load = Bench(processes), {}, os.getloadavg()
        for name in options.workload or WORKLOADS:
            workload = Workload(name)
            for side in processes:  # Warms up.
                bench.phase(workload, side, "warm", lambda client: workload.closed(client, 4, 1, 9))
            bench.others.clear()
            rounds = [bench.round(workload, seed, options) for seed in range(1, options.rounds + 1)]
            results[name] = {"rounds": rounds, "others_cores": summary(bench.others)}
        assert all(process.stop() == 0 for process in processes.values())
    text = json.dumps({"settings": options.set, "busy": options.busy, "load_at_start": load, "load_at_end": os.getloadavg(), **results}, indent=1)
    print(text)
    if options.json:
        pathlib.Path(options.json).write_text(text)
    for name, result in results.items():
        print_table(name, result["rounds"])
        others = result["others_cores"]
        print(f"\nothers: {others['min']:.2f} / {others['median']:.2f} / {others['max']:.2f} cores (min/median/max of the phases)")


if __name__ == "__main__":
    main()
