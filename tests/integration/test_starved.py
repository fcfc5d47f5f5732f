"""A process without a core is slow, not sick: it is told of, its requests are answered, and nobody kills it."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

import httpx

from conftest import BIN, Job, eventually

# A process that hangs would be killed within seconds.
JOB = """\
name: starved
served_name: m
engine: {{kind: fake, fake_delay_per_token: 1ms, sequences: 8, tokens_per_sequence: 256}}
prefill: {{workers: 1}}
decode: {{workers: 1}}
router: {{listen: "127.0.0.1:0", queue_timeout: 120s}}
launcher:
  {{state_dir: {folder}/state, log_dir: {folder}/logs, heartbeat_timeout: 1s, hang_timeout: 3s, progress_timeout: 5s}}
"""
BUSY = 6
LOW_PRIORITY = 10  # A tenth of the weight of each busy program.


def threads_of(pid):
    return [int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]


@contextlib.contextmanager
def starving(pid):
    """The process shares one core with busy programs that come first."""
    core = {min(os.sched_getaffinity(0))}
    cores = os.sched_getaffinity(pid)
    for thread in threads_of(pid):
        os.sched_setaffinity(thread, core)
        os.setpriority(os.PRIO_PROCESS, thread, LOW_PRIORITY)
    pin = lambda: os.sched_setaffinity(0, core)
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=pin) for _ in range(BUSY)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()
        for thread in threads_of(pid):
            os.sched_setaffinity(thread, cores)


class Load:
    """Clients that ask again and again."""

    def __init__(self, url):
        self.url, self.answered, self.errors = url, 0, []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def __enter__(self):
        [thread.start() for thread in self._threads]
        return self

    def __exit__(self, *_):
        self._stop.set()
        [thread.join(300) for thread in self._threads]

    def _run(self):
        with httpx.Client(base_url=self.url, timeout=300) as client:
            while not self._stop.is_set():
                try:
                    reply = client.post("/v1/completions", json={"model": "m", "prompt": "river", "max_tokens": 20, "ignore_eos": True})
                    assert reply.status_code == 200, reply.text
                    self.answered += 1
                except (httpx.TransportError, AssertionError) as error:
                    self.errors.append(repr(error))


def incidents(job):
    lines = (job.folder / "logs/launcher.log").read_text().splitlines()
    return [line.partition("ReportStarved ")[2] for line in lines if "ReportStarved decode-0" in line]


def test_a_starved_worker_is_told_of_and_not_killed_and_answers():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(JOB.format(folder=folder), folder).wait_ready()
        try:
            pids = {name: process["pid"] for name, process in job.processes().items()}
            with Load(job.url) as load, starving(pids["decode-0"]):
                eventually(lambda: job.processes()["decode-0"]["starved"], 60, "it is told of")
                shown = subprocess.run([BIN, "status", "--config", job.config], capture_output=True, text=True, check=True).stdout
                assert re.search(r"^decode-0 is starved: \d+ % of its time it waited for a core$", shown, re.M), shown
                before = load.answered
                eventually(lambda: load.answered >= before + 8, 240, "its requests are answered")
            assert not load.errors, load.errors[:3]
            eventually(lambda: not job.processes()["decode-0"]["starved"], 120, "it has its core again")
            assert {name: process["pid"] for name, process in job.processes().items()} == pids, job.log_tail()
            assert re.fullmatch(r"decode-0 is starved: \d+ % of its time it waited for a core", incidents(job)[0])
            assert incidents(job)[-1].startswith("decode-0 is starved no more, after ")

            os.kill(pids["decode-0"], signal.SIGSTOP)
            eventually(lambda: job.processes()["decode-0"]["pid"] not in (0, pids["decode-0"]), 60, "a stopped one is replaced")
            assert job.processes()["decode-0"]["last_exit"].startswith("stopped, then ")
        finally:
            job.stop()
