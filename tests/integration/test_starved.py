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
import time

import httpx
import pytest

from conftest import BIN, MODEL, Job, eventually

HANG_SECONDS = 2
# One worker for both roles: nobody lends it threads. If it hung, it would be killed within seconds.
JOB = """\
name: starved
model: {model}
served_name: m
engine: {{threads: 1, tokens_per_sequence: 512, sequences: 4}}
prefill: {{workers: 0}}
decode: {{workers: 1}}
router: {{listen: "127.0.0.1:0", queue_timeout: 120s}}
launcher:
  {{state_dir: {folder}/state, log_dir: {folder}/logs, heartbeat_timeout: 1s, hang_timeout: {hang}s, progress_timeout: 5s}}
"""
WORKER = "decode-0"
BUSY = 6


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        running = Job(JOB.format(folder=folder, model=MODEL, hang=HANG_SECONDS), folder).wait_ready()
        yield running
        running.stop()


def worker(job):
    return job.processes()[WORKER]


def pids(job):
    return {name: process["pid"] for name, process in job.processes().items()}


def post(client):
    return client.post("/v1/completions", json={"model": "m", "prompt": "river", "max_tokens": 20, "ignore_eos": True})


def ask(client):
    reply = post(client)
    assert reply.status_code == 200, reply.text


def ask_until_served(client):
    """The only worker leaves the membership whenever it is silent. A request that has met this too often is refused, and asked again."""
    while (reply := post(client)).status_code == 503:
        time.sleep(0.2)
    assert reply.status_code == 200, reply.text


def threads_of(pid):
    return [int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]


@contextlib.contextmanager
def beside_busy_programs(pid):
    """The process shares one core with them."""
    core = {min(os.sched_getaffinity(0))}
    cores = os.sched_getaffinity(pid)
    for thread in threads_of(pid):
        os.sched_setaffinity(thread, core)
    # The kernel may share a core among sessions.
    spin = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {core})\nwhile True: pass"]
    programs = [subprocess.Popen(spin, start_new_session=True) for _ in range(BUSY)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()
        for thread in threads_of(pid):
            os.sched_setaffinity(thread, cores)


@contextlib.contextmanager
def under_quota(pid):
    """The process may run for 1 ms of each second."""
    v1, v2 = pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup")
    if (v1 / "cpu.shares").exists() or (v1 / "cgroup.procs").exists():
        root, limits = v1, {"cpu.cfs_period_us": "1000000", "cpu.cfs_quota_us": "1000"}
    elif (v2 / "cgroup.subtree_control").exists() and "cpu" in (v2 / "cgroup.subtree_control").read_text().split():
        root, limits = v2, {"cpu.max": "1000 1000000"}
    else:
        pytest.skip("there is no CPU controller")
    before = next((line.rpartition(":")[2] for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if root == v2 or re.search(r":(cpu|cpu,cpuacct):", line)), "/")
    group = root / f"pdjob-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        for name, limit in limits.items():
            (group / name).write_text(limit)
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            (root / before.lstrip("/") / "cgroup.procs").write_text(str(pid))
        eventually(lambda: group.rmdir() is None, 60, "the group is empty")


class Load:
    """Clients that ask again and again."""

    def __init__(self, url, ask=ask):
        self.url, self.ask, self.answered, self.errors = url, ask, 0, []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(2)]

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
                    self.ask(client)
                    self.answered += 1
                except (httpx.TransportError, AssertionError) as error:
                    self.errors.append(repr(error))


def incidents(job):
    lines = (job.folder / "logs/launcher.log").read_text().splitlines()
    return [line.partition("ReportStarved ")[2] for line in lines if f"ReportStarved {WORKER}" in line]


def test_a_worker_beside_busy_programs_is_told_of_and_answers_and_is_not_killed(job):
    before = pids(job)
    with Load(job.url) as load, beside_busy_programs(before[WORKER]):
        eventually(lambda: worker(job)["starved"], 60, "it is told of")
        shown = subprocess.run([BIN, "status", "--config", job.config], capture_output=True, text=True, check=True).stdout
        assert re.search(rf"^{WORKER} is starved: \d+ % of its time it waited for a core$", shown, re.M), shown
        answered = load.answered
        eventually(lambda: load.answered >= answered + 4, 240, "its requests are answered")
    assert not load.errors, load.errors[:3]
    eventually(lambda: not worker(job)["starved"], 120, "it has its core again")
    assert pids(job) == before, job.log_tail()
    assert re.fullmatch(rf"{WORKER} is starved: \d+ % of its time it waited for a core", incidents(job)[0])
    assert incidents(job)[-1].startswith(f"{WORKER} is starved no more, after ")


def test_a_worker_whose_heartbeats_stop_because_its_quota_is_spent_is_not_killed(job):
    before = pids(job)
    with Load(job.url, ask_until_served) as load:
        with under_quota(before[WORKER]):
            eventually(lambda: worker(job)["suspected"], 60, "no heartbeat comes")
            time.sleep(5 * HANG_SECONDS)
            assert worker(job)["starved"]
        answered = load.answered
        eventually(lambda: load.answered >= answered + 4, 120, "its requests are answered")
    assert not load.errors, load.errors[:3]
    eventually(lambda: not worker(job)["starved"], 120, "it has its core again")
    assert pids(job) == before, job.log_tail()


def test_a_stopped_worker_is_not_starved_and_is_replaced(job):
    pid = worker(job)["pid"]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: worker(job)["pid"] not in (0, pid), 60, "it is replaced")
    assert worker(job)["last_exit"].startswith("stopped, then ")
