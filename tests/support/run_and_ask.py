"""Starts a job and asks each of its models one question, as a client would. Shows each answer and the workers that gave it. Then serves until
Ctrl-C.

    run_and_ask.py [--once] -- COMMAND...       COMMAND prints `ready url=URL` on its standard output
"""

import argparse
import functools
import http.client
import json
import signal
import subprocess
import sys
import time
import urllib.parse

QUESTION = "What is the capital of France? Answer in one sentence."
STOP_SECONDS = 60
print = functools.partial(print, flush=True)  # The job writes to the same terminal or pipe.


def wait_ready(job):
    """Returns the job's URL. The launcher itself shows its progress on standard error."""
    for line in job.stdout:
        if line.startswith("ready url="):
            return line.strip().removeprefix("ready url=")
        print(line, end="")
    sys.exit(job.wait() or 1)


def connect(url):
    place = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(place.hostname, place.port, timeout=120)


def ask_all(url):
    """Returns whether each model's answer ended as it should."""
    connection = connect(url)
    connection.request("GET", "/v1/models")
    models = [model["id"] for model in json.load(connection.getresponse())["data"]]
    return all(ask(url, model) for model in models)


def ask(url, model):
    """Runs one streamed chat completion. Returns whether it ended as it should."""
    connection = connect(url)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 48,
        "temperature": 0,
        "stream": True,
    }
    print(f"\nPOST {url}/v1/chat/completions, model {model}\n  {QUESTION}")
    started = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        print(f"HTTP {reply.status}: {reply.read().decode(errors='replace')}")
        return False
    finished = show_stream(reply, started)
    show_route(reply)
    return finished


def show_stream(reply, started):
    first, pieces = None, 0
    print("  ", end="")
    for line in reply:
        event = line.decode().strip().removeprefix("data: ")
        if event == "[DONE]":
            break
        if not event.startswith("{"):
            continue
        chunk = json.loads(event)
        if "error" in chunk:
            print(f"\n{chunk['error']}")
            return False
        for choice in chunk["choices"]:
            text = choice["delta"].get("content") or ""
            first = first or (time.monotonic() if text else None)
            pieces += bool(text)
            print(text, end="")
    else:
        print("\nthe stream ended without [DONE]")
        return False
    first = first or time.monotonic()
    rate = (pieces - 1) / max(time.monotonic() - first, 1e-6)
    print(f"\n\nfirst token after {(first - started) * 1000:.0f} ms, then {max(rate, 0):.1f} pieces/s")
    return pieces > 0


def show_route(reply):
    prefill, decode = reply.getheader("x-pdjob-prefill"), reply.getheader("x-pdjob-decode")
    if decode and not prefill:
        print(f"prompt and answer by {decode}: it shares its cores with the prefill workers, or there are none")
        return
    print(f"prefill by {prefill or 'none'}, decode by {decode or 'none'}")
    if reply.getheader("x-pdjob-kv-bytes"):
        megabytes = int(reply.getheader("x-pdjob-kv-bytes")) / 1e6
        transport = reply.getheader("x-pdjob-kv-transport", "?")
        total, tail = (float(reply.getheader(f"x-pdjob-kv-{name}", 0)) * 1000 for name in ("seconds", "visible-seconds"))
        print(f"KV cache moved: {megabytes:.2f} MB by {transport}, while the prompt was computed: {total:.1f} ms in all,")
        print(f"  {tail:.2f} ms of them after its last row was ready")


def wait_stopped(job):
    """Returns the job's exit code, once all its processes have ended."""
    try:
        return job.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        job.kill()  # Its processes die with it.
        print(f"the job did not stop within {STOP_SECONDS} s: killed", file=sys.stderr)
        return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="end after the answer")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()

    # The job is in this script's process group, so Ctrl-C reaches both. This script passes SIGTERM on.
    job = subprocess.Popen(options.command, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGTERM, lambda *_: job.terminate())
    try:
        url = wait_ready(job)
        answered = ask_all(url)
        if not options.once:
            print(f"\nserving at {url}/v1 until Ctrl-C")
            return job.wait()
        job.terminate()
        return wait_stopped(job) or (0 if answered else 1)
    except KeyboardInterrupt:
        return wait_stopped(job)
    finally:
        if job.poll() is None:
            job.terminate()
            wait_stopped(job)


if __name__ == "__main__":
    sys.exit(main())
