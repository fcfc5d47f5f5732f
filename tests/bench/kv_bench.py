"""Measures the transfer of KV rows between two processes, in one interleaved run. It compares the transports shm and tcp with memcpy, with a plain
loop over a loopback socket, and with NIXL and Mooncake where they are installed (--peers fetches them). Then it runs many transfers at once.
Senders are pinned to the first core and receivers to the second, the same in all ways. Prints JSON, then Markdown tables.

    ./dev bench kv [--peers] [--rounds N]
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

BYTES_PER_TOKEN = 12240
SIZES = {mib: mib * 2**20 // BYTES_PER_TOKEN for mib in (16, 64, 256, 1024)}
PROMPT_TOKENS = 1000
WAYS = ["memcpy", "shm", "tcp", "tls", "socket", "socket-default", "socket-zerocopy"]
# Bytes per request, and requests per batch. The best shape counts.
MOONCAKE_SHAPES = [(2**16, 64), (2**20, 16), (2**22, 4)]


def summary(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


class Mover:
    """A pair of processes, kv_bench or kv_nixl_probe, that moves rows on order."""

    def __init__(self, argv, environment=None):
        sizes = [str(tokens) for tokens in (*SIZES.values(), PROMPT_TOKENS)]
        self.process = subprocess.Popen(
            [*argv, *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )

    def seconds(self, way, pace, tokens):
        self.process.stdin.write(f"{way} {pace} {tokens}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Mooncake:
    """Mooncake's own benchmark. It writes the same bytes again and again, because it cannot write fresh ones."""

    COMMON = ["--metadata_server=P2PHANDSHAKE", "--protocol=tcp", "--local_server_name=127.0.0.1"]

    def __init__(self, root):
        self.program = str(root / "mooncake/transfer_engine_bench")
        libraries = f"{root}/mooncake_transfer_engine_non_cuda.libs:{root}/mooncake"
        self.options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": {**os.environ, "LD_LIBRARY_PATH": libraries}}
        self.target = subprocess.Popen([self.program, "--mode=target", *self.COMMON], **self.options)
        for line in self.target.stdout:
            if match := re.search(r"listening on (\S+)", line):
                self.segment = match[1]
            if "DRAM is used" in line:
                return
        sys.exit("kv_bench: Mooncake's target did not start")

    def rate(self, shape):
        argv = ["--mode=initiator", f"--segment_id={self.segment}", "--operation=write", "--threads=1", "--duration=1"]
        argv += [f"--block_size={shape[0]}", f"--batch_size={shape[1]}"]
        said = subprocess.run([self.program, *argv, *self.COMMON], timeout=60, **self.options).stdout
        return 1e9 * float(re.search(r"throughput (\S+) GB/s", said)[1])

    def close(self):
        self.target.kill()
        self.target.wait()


def nixl(program, root):
    libraries = root / ".nixl_cu13.mesonpy.libs"
    return Mover(
        [program, str(libraries / "libnixl_capi.so")],
        {
            "NIXL_PLUGIN_DIR": str(libraries / "plugins"),
            "UCX_MODULE_DIR": str(root / "nixl_cu13.libs/ucx"),
            "LD_LIBRARY_PATH": str(root / "nixl_cu13.libs"),
            "NIXL_LOG_LEVEL": "ERROR",
        },
    )


def measure_sizes(ours, peer, rounds):
    """Returns the seconds by size and way, round by round. The first round warms up and is returned separately."""
    figures, first = {}, {}
    for mib, tokens in SIZES.items():
        repeats = max(3, rounds * 64 // (mib + 48))
        for round_ in range(repeats + 1):
            for way in WAYS + (["nixl"] if peer else []):
                taken = (peer if way == "nixl" else ours).seconds(way, "at-once", tokens)
                (figures if round_ else first).setdefault(mib, {}).setdefault(way, []).append(taken)
    return figures, first


def measure_mooncake(mooncake, ours, rounds):
    """Returns bytes per second. Ours move 16 MiB, as much as each of Mooncake's batches. Mooncake's figure is its best shape of each round."""
    figures = {"shm": [], "tcp": [], "mooncake": []}
    for _ in range(rounds):
        figures["mooncake"].append(max(mooncake.rate(shape) for shape in MOONCAKE_SHAPES))
        for way in ("shm", "tcp"):
            taken = statistics.median(ours.seconds(way, "at-once", SIZES[16]) for _ in range(5))
            figures[way].append(SIZES[16] * BYTES_PER_TOKEN / taken)
    return figures


def measure_prompt(ours, rounds):
    figures = {}
    for round_ in range(rounds + 2):
        for pace in ("chunks", "rest"):
            for way in ("memcpy", "shm", "tcp"):
                taken = ours.seconds(way, pace, PROMPT_TOKENS)
                if round_ > 1:
                    figures.setdefault(f"{pace}, {way}", []).append(taken)
    return figures


def ratio(slow, fast):
    """Summarises how many times faster the second one is, round by round."""
    return summary([a / b for a, b in zip(slow, fast)])


def show(ratios):
    return "{min:.2f} / **{median:.2f}** / {max:.2f}".format(**ratios)


def print_sizes(figures, first):
    print("\n| ms, median | " + " | ".join(f"{mib} MiB" for mib in figures) + " |\n|---" + "|---" * len(figures) + "|")
    for way in next(iter(figures.values())):
        print(f"| {way} | " + " | ".join(f"{1e3 * statistics.median(of[way]):.2f}" for of in figures.values()) + " |")
    print("| shm, the first time | " + " | ".join(f"{1e3 * of['shm'][0]:.2f}" for of in first.values()) + " |")
    print("\n| times as fast (min/median/max) | " + " | ".join(f"{mib} MiB" for mib in figures) + " |\n|---" + "|---" * len(figures) + "|")
    pairs = [("shm", "memcpy"), ("tcp", "socket"), ("tcp", "socket-default"), ("tls", "tcp"), ("socket-zerocopy", "socket"), ("shm", "nixl"), ("tcp", "nixl")]
    for fast, slow in pairs:
        if slow in next(iter(figures.values())):
            print(f"| {fast} / {slow} | " + " | ".join(show(ratio(of[slow], of[fast])) for of in figures.values()) + " |")


def print_prompt(figures):
    print("\n| visible, ms | min | median | max | median / memcpy |\n|---|---|---|---|---|")
    for name, values in figures.items():
        of, base = summary(values), statistics.median(figures[name.split(",")[0] + ", memcpy"])
        print(f"| {name} | {1e3 * of['min']:.2f} | {1e3 * of['median']:.2f} | {1e3 * of['max']:.2f} | {of['median'] / base:.2f} |")


def print_fairness(results):
    print("\n| 64 at once | slowest / median | 64 at once / one at a time |\n|---|---|---|")
    for way in ("shm", "tcp"):
        of = [result for result in results if result["transport"] == way]
        print(
            f"| {way} | {show(summary([result['worst'] / result['median'] for result in of]))} | "
            f"{show(summary([result['bytes_per_second'] / result['bytes_per_second_alone'] for result in of]))} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    programs, peers = pathlib.Path(os.environ["PDJOB_BENCH_DIR"]), pathlib.Path(os.environ["PDJOB_KV_PEERS"])
    has_nixl = (peers / ".nixl_cu13.mesonpy.libs/libnixl_capi.so").exists()
    has_mooncake = (peers / "mooncake/transfer_engine_bench").exists()
    ours = Mover([str(programs / "kv_bench")])
    peer = nixl(str(programs / "kv_nixl_probe"), peers) if has_nixl else None
    results = {}
    results["sizes"], results["first"] = measure_sizes(ours, peer, options.rounds)
    if peer:
        peer.close()
    results["prompt"] = measure_prompt(ours, options.rounds)
    if has_mooncake:
        mooncake = Mooncake(peers)
        results["mooncake"] = measure_mooncake(mooncake, ours, 3)
        mooncake.close()
    ours.close()
    fairness = subprocess.run([str(programs / "kv_fairness_bench"), "5"], check=True, stdout=subprocess.PIPE, text=True).stdout
    results["fairness"] = [json.loads(line) for line in fairness.splitlines()]
    print(json.dumps(results))
    print_sizes(results["sizes"], results["first"])
    print("\nNIXL: not installed (--peers)" if not has_nixl else "")
    if has_mooncake:
        of = results["mooncake"]
        rates = ", ".join(f"{way} {statistics.median(of[way]) / 1e9:.2f}" for way in of)
        print(f"Mooncake, 16 MiB at once, GB/s: {rates}; shm / Mooncake {show(ratio(of['shm'], of['mooncake']))}, "
              f"tcp / Mooncake {show(ratio(of['tcp'], of['mooncake']))}")
    else:
        print("Mooncake: not installed (--peers)")
    print_prompt(results["prompt"])
    print_fairness(results["fairness"])


if __name__ == "__main__":
    main()
