"""A worker that computes slower than its peers is drained and replaced, and no request is lost or altered."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading

import httpx

from conftest import BIN, Job, assert_idle, eventually, get

FAKE = """\
name: stragglers
served_name: m
engine: {{kind: fake, fake_delay_per_token: 3ms, sequences: 8, tokens_per_sequence: 256}}
prefill: {{workers: 1}}
decode: {{workers: 3}}
router: {{listen: "127.0.0.1:0", queue_timeout: 60s}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs, stragglers: {{after: 4s}}}}
"""
SLOW = "decode-1"
BODIES = [
    {"model": "m", "prompt": f"river {number:02d}", "max_tokens": 60, "ignore_eos": True, "temperature": 0.9, "seed": number}
    for number in range(9)
]


class Slowness:
    """Stops the process most of the time, so that it runs a tenth of it. A new process of that name is not slow."""

    STOPPED, RUNS = 0.09, 0.01

    def __init__(self, pid):
        self.pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._handle = os.pidfd_open(self.pid)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        os.close(self._handle)

    def _run(self):
        try:
            while not self._over.wait(self.RUNS):
                signal.pidfd_send_signal(self._handle, signal.SIGSTOP)
                self._over.wait(self.STOPPED)
                signal.pidfd_send_signal(self._handle, signal.SIGCONT)
        except ProcessLookupError:
            pass  # It was replaced.


def ask(client, body):
    reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"]


class Load:
    """Each client asks its request again and again."""

    def __init__(self, url, expected):
        self.url, self.expected, self.errors, self.answered = url, expected, [], 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(body,)) for body in BODIES]

    def __enter__(self):
        [thread.start() for thread in self._threads]
        return self

    def __exit__(self, *_):
        self._stop.set()
        [thread.join(120) for thread in self._threads]

    def _run(self, body):
        with httpx.Client(base_url=self.url, timeout=120) as client:
            while not self._stop.is_set():
                try:
                    text = ask(client, body)
                    if text != self.expected[body["seed"]]:
                        self.errors.append(text)
                    self.answered += 1
                except (httpx.TransportError, AssertionError) as error:
                    self.errors.append(repr(error))


def replacements(job):
    return {name: process["replacements"] for name, process in job.processes().items() if process["replacements"]}


def replaced_under_load(job):
    """A process that is stopped for long counts as hung. That is another rule, so its successor is slowed down, too."""
    while True:
        before = job.processes()[SLOW]
        with Slowness(before["pid"]):
            eventually(lambda: job.processes()[SLOW]["pid"] not in (0, before["pid"]), 120, "the slow worker is replaced")
        eventually(lambda: job.processes()[SLOW]["state"] == "ready", 60, "its successor serves")
        if replacements(job):
            return


def test_a_slow_worker_is_drained_and_replaced_and_nothing_is_lost_or_altered():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(FAKE.format(folder=folder), folder).wait_ready()
        try:
            with httpx.Client(base_url=job.url, timeout=60) as client:
                expected = {body["seed"]: ask(client, body) for body in BODIES}
            with Load(job.url, expected) as load:
                replaced_under_load(job)
                before = load.answered
                eventually(lambda: load.answered >= before + len(BODIES), 60, "the load goes on")
            assert not load.errors, load.errors[:3]
            assert replacements(job) == {SLOW: 1}
            story = subprocess.run([BIN, "explain", "--config", str(job.config)], capture_output=True, text=True, timeout=30).stdout
            assert f"{SLOW} takes at least " in story and "it is drained, and a new process takes its place" in story, story
            (found,) = pathlib.Path(folder).glob("state/*/launcher.json")
            admin = "http://" + json.loads(found.read_text())["admin"]
            metrics = get(admin + "/metrics")
            assert f'pdjob_process_replacements_total{{name="{SLOW}",role="decode"}} 1' in metrics, metrics
            assert 'pdjob_node_distrust{node="local"} 1' in metrics, metrics
            assert "for " in get(admin + "/nodes?as=text"), "it is said that the node is avoided"
            eventually(lambda: assert_idle(job), 30, "no rows left in use")
        finally:
            assert job.stop() == 0, job.log_tail()
