"""kill -9 of every kind of process under load. The job recovers without help, nothing leaks, and errors have OpenAI's shape."""

import contextlib
import os
import pathlib
import signal
import tempfile
import threading
import time

import httpx
import pytest

from conftest import Job, assert_idle, eventually, job_yaml, running_job

BODY = {"model": "smollm2", "prompt": "Tell me a story about a river.", "max_tokens": 24, "temperature": 0, "stream": False}


class Load:
    """A few clients that ask all the time and record the results."""

    def __init__(self, url, clients=4, model="smollm2"):
        self.url = url
        self.body = {**BODY, "model": model}
        self.answers = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self):
        [thread.start() for thread in self._threads]
        return self

    def __exit__(self, *_):
        self._stop.set()
        [thread.join(60) for thread in self._threads]

    def _run(self):
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self._stop.is_set():
                try:
                    reply = client.post("/v1/completions", json=self.body)
                    self.answers.append((time.monotonic(), reply.status_code, reply.text))
                except httpx.TransportError as error:
                    self.answers.append((time.monotonic(), 0, repr(error)))

    def successes_after(self, when):
        return sum(1 for at, status, _ in self.answers if at > when and status == 200)


def descendants(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    with contextlib.suppress(OSError):
        return [int(child) for child in children.read_text().split()]
    return []


def open_files(job):
    """Returns how many descriptors each process has open. HTTP connections between them do not count: they are kept for the next request."""
    processes = job.processes().values()
    ports = {int(p["url"].rsplit(":", 1)[1]) for p in processes}
    kept_alive = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *rest = line.split()
        if state == "01" and ports & {int(end.split(":")[1], 16) for end in (local, remote)}:
            kept_alive.add(f"socket:[{rest[5]}]")
    return {p["name"]: sum(link not in kept_alive for link in open_links(p["pid"])) for p in processes}


def open_links(pid):
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{descriptor}")


@pytest.mark.parametrize("victim", ["prefill-0", "decode-0", "router-0"])
def test_job_serves_again_after_kill_9(victim):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, prefill=2, decode=2) as job:
            before = job.processes()
            survivors = {p["name"]: p["pid"] for p in before.values() if p["name"] != victim}
            with Load(job.url) as load:
                eventually(lambda: load.successes_after(0) >= 4, 60, "load under way")
                files = open_files(job)
                os.kill(before[victim]["pid"], signal.SIGKILL)
                killed = time.monotonic()
                eventually(lambda: job.processes()[victim]["restarts"] == 1, 30, "restart noticed")
                eventually(lambda: all(p["state"] == "ready" for p in job.processes().values()), 60, "all ready again")
                back = time.monotonic()
                eventually(lambda: load.successes_after(back) >= 4, 60, "answers after the restart")
            failures = [(status, text) for at, status, text in load.answers if status != 200]
            for status, text in failures:
                # A request in the hands of the dead process itself breaks off. Every other failure is an OpenAI error.
                assert status == 0 or '"error"' in text, (status, text)
            assert len(failures) <= 8, failures
            assert load.successes_after(killed) > 0
            assert job.processes()[victim]["pid"] != before[victim]["pid"]
            assert {n: p["pid"] for n, p in job.processes().items() if n != victim} == survivors, "nobody else was restarted"
            # If a router dies between the two legs, the prompt's KV stays until its lease (60 s) expires: nobody else knows of it.
            eventually(lambda: assert_idle(job), 90, "no rows left in use")
            # A KV link is opened on first use, and to two peers at most.
            eventually(
                lambda: all(open_files(job)[name] <= files[name] + 2 for name in survivors), 20, "no descriptors leaked"
            )
            assert len(descendants(job.pid)) == len(before), "as many processes as before"


def test_one_dead_worker_of_two_costs_no_request():
    """The router retries with another pair before the first byte. With one prefill worker dead, clients see no error."""
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        extra = "\n"
        with running_job(folder, prefill=2, decode=1, extra=extra) as job:
            os.kill(job.processes()["prefill-1"]["pid"], signal.SIGKILL)
            with httpx.Client(base_url=job.url, timeout=60) as client:
                statuses = [client.post("/v1/completions", json={**BODY, "max_tokens": 2}).status_code for _ in range(30)]
            assert statuses == [200] * 30


def test_no_process_outlives_a_killed_launcher():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(job_yaml(folder), folder).wait_ready()
        children = descendants(job.pid)
        assert len(children) >= 3
        job.stop(signal.SIGKILL)
        eventually(lambda: not any(pathlib.Path(f"/proc/{child}").exists() for child in children), 10, "children gone")
        # The same job can be started again at once.
        with running_job(folder) as again:
            assert httpx.post(again.url + "/v1/completions", json=BODY, timeout=60).status_code == 200


@pytest.mark.parametrize("sig, code", [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_stop_finishes_what_is_under_way_and_leaves_nothing(sig, code):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(job_yaml(folder), folder).wait_ready()
        children = descendants(job.pid)
        begun, lines = threading.Event(), []

        def read():
            body = {**BODY, "max_tokens": 250, "ignore_eos": True, "stream": True}
            with httpx.stream("POST", job.url + "/v1/completions", json=body, timeout=60) as reply:
                for line in reply.iter_lines():
                    lines.append(line)
                    begun.set()

        client = threading.Thread(target=read)
        client.start()
        assert begun.wait(60)
        assert job.stop(sig) == code, job.log_tail()
        client.join()
        assert len(lines) > 250 and "data: [DONE]" in lines
        assert not any(pathlib.Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.parametrize("name", ["prefill-0", "decode-0", "router-0"])
def test_a_stopped_process_is_replaced_long_before_the_timeout_of_hung_ones(tmp_path, name):
    """SIGSTOP: the process is alive for the kernel, and dead for everybody else. A look at it shows that it sleeps."""
    with running_job(tmp_path, prefill=1, decode=1, launcher="hang_timeout: 1h") as job:
        victim = job.processes()[name]["pid"]
        os.kill(victim, signal.SIGSTOP)
        eventually(lambda: job.processes()[name]["pid"] not in (victim, 0), 60, "stopped process replaced")
        assert job.processes()[name]["last_exit"].startswith("stopped, then ")
        eventually(lambda: all(p["state"] == "ready" for p in job.processes().values()), 60, "all ready again")
        assert httpx.post(job.url + "/v1/completions", json=BODY, timeout=60).status_code == 200


def test_the_first_answer_of_a_restarted_router_is_that_it_is_healthy(tmp_path):
    with running_job(tmp_path) as job:
        router = job.processes()["router-0"]
        os.kill(router["pid"], signal.SIGKILL)
        answers = []

        def ask():
            with contextlib.suppress(httpx.TransportError):  # The dead one's connections.
                answers.append(httpx.get(job.url + "/health", timeout=30).status_code)
            return len(answers) >= 20

        eventually(ask, 30, "the next router answers")
        assert set(answers) == {200}


def kill_named(job, name):
    """Kills the process of that name, if there is one."""
    for pid in descendants(job.pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == f"pdjob:{name}":
                os.kill(pid, signal.SIGKILL)


def test_a_worker_that_never_gets_ready_keeps_no_job_from_serving_and_joins_when_it_can(tmp_path):
    job = Job(job_yaml(tmp_path, decode=2, launcher="restart: {attempts: 2, backoff_min: 50ms, backoff_max: 1s}"), tmp_path)
    killing = True

    def kill_again_and_again():
        while killing:
            kill_named(job, "decode-1")
            time.sleep(0.01)

    killer = threading.Thread(target=kill_again_and_again)
    killer.start()
    try:
        job.wait_ready()
        assert job.processes()["decode-1"]["state"] in ("backoff", "starting")
        assert httpx.post(job.url + "/v1/completions", json=BODY, timeout=60).status_code == 200
        eventually(lambda: "decode-1 died: signal 9" in job.log_tail(), 10, "the console tells of it")
    finally:
        killing = False
        killer.join()
    eventually(lambda: job.processes()["decode-1"]["state"] == "ready", 60, "it joins")
    eventually(lambda: "decode-1 serves again" in job.log_tail(), 10, "the console tells of it")
    assert job.stop() == 0, job.log_tail()
