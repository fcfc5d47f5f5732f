"""Compares the tokens of a 1P1D job with those of one worker that has both roles. Wants Python's own library only.

    gpu_end_to_end.py PDJOB MODEL [--cudart FILE] [--kv-type q8_0] [--kills N] [--tokens-max N] [--out FOLDER] [--decode-on-cpu]

With --cudart, GPUs compute, and KV must move over cuda_ipc; with --decode-on-cpu, one GPU computes prompts, and KV must move over shm. With KV of q8_0,
prompts that are asked one after the other must give equal tokens. In a batch a GPU may choose other kernels, so there the count of equal answers is a
figure; on a CPU it must be all of them. With other KV, or with a GPU and a CPU, no equality is promised, and all counts are figures. While prefill workers
are killed, no request may be lost.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

LENGTHS = (1, 2, 7, 8, 9, 16, 31, 33, 64, 100, 127, 129, 255, 256, 257, 400, 511, 512, 513, 1000, 1500)
AT_ONCE = 8
CHUNK_TOKENS = 256
READY_SECONDS, ANSWER_SECONDS, STOP_SECONDS, KILL_EVERY = 90, 60, 20, 1.5


def say(text):
    print(f"e2e: {text}", flush=True)


class Program:
    """A pdjob that serves. Its output goes to a file."""

    def __init__(self, command, folder, name):
        self.output = pathlib.Path(folder) / f"{name}.out"
        with open(self.output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
        self.url = self._ready_url(name)

    def _ready_url(self, name):
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            for line in self.output.read_text(errors="replace").splitlines():
                if line.startswith("ready url="):
                    return line.partition("=")[2].split()[0]
            time.sleep(0.05)
        text = self.output.read_text(errors="replace")[-3000:]
        self.stop()
        sys.exit(f"e2e: cannot start {name}: {text}")

    def stop(self):
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 5)):
            try:
                os.killpg(self.process.pid, number)
                return self.process.wait(seconds)
            except ProcessLookupError:
                return self.process.wait(5)
            except subprocess.TimeoutExpired:
                continue
        return None


def make_bodies(lengths):
    draw = random.Random(20261121)
    fixed = {"max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return [{"prompt": [draw.randrange(300, 40000) for _ in range(length)], **fixed} for length in lengths]


def ask(url, body):
    """Returns the token ids, or what went wrong."""
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as reply:
            return json.load(reply)["choices"][0]["token_ids"]
    except (OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"


def one_by_one(url, bodies):
    return [ask(url, body) for body in bodies]


def at_once(url, bodies):
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda body: ask(url, body), bodies))


def equal(what, bodies, got, expected):
    """Says how many are equal, and by prompt length which token is the first that differs. Returns whether all are."""
    differing = {}
    for body, mine, theirs in zip(bodies, got, expected):
        if mine != theirs:
            pairs = zip(mine, theirs) if isinstance(mine, list) else ()
            differing[len(body["prompt"])] = next((index for index, (a, b) in enumerate(pairs) if a != b), mine)
    say(f"{what}: {len(expected) - len(differing)} of {len(expected)} equal{f'; first difference by prompt length: {differing}' if differing else ''}")
    return not differing


def pids_of(pdjob, config, role):
    status = subprocess.run([pdjob, "status", "--config", config, "--json"], capture_output=True, text=True, timeout=30, check=True).stdout
    return [process["pid"] for process in json.loads(status)["processes"] if process["role"] == role and process["pid"] > 0]


def killed(job, pdjob, config, kills, bodies, expected):
    """Returns whether nothing was lost while prefill workers died."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answers = pool.submit(at_once, job.url, bodies * 3)
        for _ in range(kills):
            time.sleep(KILL_EVERY)
            for pid in pids_of(pdjob, config, "prefill"):
                os.kill(pid, signal.SIGKILL)
                say(f"killed prefill worker {pid}")
        got = answers.result()
    lost = [answer for answer in got if isinstance(answer, str)]
    same = sum(a == b for a, b in zip(got, expected * 3))
    say(f"while prefill workers were killed: {len(lost)} of {len(got)} lost {lost[:2]}, {same} equal")
    return not lost


def links(pdjob, config):
    found = subprocess.run([pdjob, "links", "--config", config, "--json"], capture_output=True, text=True, timeout=30, check=True).stdout
    return [link for worker in json.loads(found)["workers"] for link in worker["links"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pdjob")
    parser.add_argument("model")
    parser.add_argument("--cudart", default="", help="the CUDA runtime; without it, CPUs compute")
    parser.add_argument("--kv-type", default="q8_0")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--tokens-max", type=int, default=max(LENGTHS), help="of the longest prompt")
    parser.add_argument("--decode-on-cpu", action="store_true", help="with --cudart: no equality is promised then")
    parser.add_argument("--out", type=pathlib.Path, help="keeps the outputs and logs there")
    options = parser.parse_args()
    gpu = bool(options.cudart)
    promised = options.kv_type == "q8_0" and not options.decode_on_cpu
    transport = "shm" if options.decode_on_cpu else "cuda_ipc"
    bodies = make_bodies([length for length in LENGTHS if length <= options.tokens_max])
    fine = True
    with tempfile.TemporaryDirectory(prefix="pdjob-e2e-") as folder:
        logs = (options.out or pathlib.Path(folder)).absolute()
        logs.mkdir(parents=True, exist_ok=True)
        settings = [f"engine.kv_type={options.kv_type}", "engine.tokens_per_sequence=2048", "engine.sequences=8", "decode.prefix_cache=false"]
        # Then an idle worker with both roles computes a prompt in the chunks of a prefill worker.
        settings += [f"decode.local_chunk_tokens={CHUNK_TOKENS // 4}"]
        settings += ["engine.gpu=true", f"gpu.cuda_library={options.cudart}"] if gpu else []
        command = [options.pdjob, "worker", "--role", "both", "--model", options.model, "--listen", "127.0.0.1:0"]
        single = Program(command + [word for setting in settings for word in ("--set", setting)], logs, "one worker")
        begun = time.monotonic()
        expected = one_by_one(single.url, bodies)
        say(f"one worker, one after the other: {time.monotonic() - begun:.2f} s")
        fine &= equal("one worker, again", bodies, one_by_one(single.url, bodies), expected)
        fine &= equal(f"one worker, {AT_ONCE} at once", bodies, at_once(single.url, bodies), expected) or gpu or not promised
        single.stop()

        config = pathlib.Path(folder) / "job.yaml"
        config.write_text(
            f"name: e2e\nmodel: {options.model}\nserved_name: m\n"
            f"engine: {{kv_type: {options.kv_type}, gpu: {str(gpu).lower()}, tokens_per_sequence: 2048, sequences: 8}}\n"
            f"prefill: {{workers: 1, prefix_cache: false, chunk_tokens: {CHUNK_TOKENS}}}\n"
            f"decode: {{workers: 1, prefix_cache: false{', engine: {gpu: false}' if options.decode_on_cpu else ''}}}\n"
            f"{f'gpu: {{cuda_library: {options.cudart}}}' if gpu else ''}\n"
            f"kvtransfer: {{transport: {'cuda_ipc' if gpu and not options.decode_on_cpu else 'auto'}}}\n"
            f'router: {{listen: "127.0.0.1:0", decode_prefills: never}}\nlauncher: {{state_dir: {folder}/state, log_dir: {logs}}}\n')
        job = Program([options.pdjob, "--config", str(config)], logs, "the job")
        begun = time.monotonic()
        fine &= equal("1P1D, one after the other", bodies, one_by_one(job.url, bodies), expected) or not promised
        say(f"1P1D, one after the other: {time.monotonic() - begun:.2f} s")
        fine &= equal(f"1P1D, {AT_ONCE} at once", bodies, at_once(job.url, bodies), expected) or gpu or not promised
        transports = {link["transport"] for link in links(options.pdjob, config)}
        say(f"KV moved over {', '.join(sorted(transports))}")
        fine &= transports == {transport} or not gpu
        if options.kills:
            fine &= killed(job, options.pdjob, config, options.kills, bodies, expected)
        say(f"the job ended with {job.stop()}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
