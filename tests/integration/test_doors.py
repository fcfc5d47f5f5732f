"""Clients who hold what a process has little of, pages of other sites, files that are none, and pdjob as the first process of a container."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

import httpx
import pytest

from conftest import BIN, MODEL, Job, Process, eventually, get, job_yaml

FEW = 1024


@contextlib.contextmanager
def silent_connections(url, count):
    """Connections that never send a byte."""
    host, port = url.removeprefix("http://").split(":")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8 * FEW), hard))
    held = []
    try:
        for _ in range(count):
            held.append(socket.create_connection((host, int(port)), timeout=30))
        yield
    finally:
        for each in held:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(scope="module")
def job(folder):
    running = Job(job_yaml(folder), folder, settings=["engine.kind=fake"], enter=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW)))
    yield running.wait_ready()
    assert running.stop() == 0, running.log_tail()


def test_more_connections_than_descriptors_keep_nobody_out(job):
    with silent_connections(job.url, FEW + 100):
        for _ in range(4):
            assert get(job.url + "/health") == '{"status":"ok"}'
        answer = httpx.post(job.url + "/v1/completions", json={"model": "smollm2", "prompt": "hi", "max_tokens": 2}, timeout=60)
        assert answer.status_code == 200, answer.text


def test_more_connections_than_descriptors_at_the_admin_port_keep_nobody_out(job):
    processes = job.processes()
    (found,) = job.folder.glob("state/*/launcher.json")
    admin = "http://" + json.loads(found.read_text())["admin"]
    with silent_connections(admin, FEW + 100):
        for _ in range(4):
            assert {name: each["pid"] for name, each in job.processes().items()} == {name: each["pid"] for name, each in processes.items()}
    assert "Too many open files" not in job.log.read_text()


def test_a_page_of_another_site_gets_no_answer(job):
    ask = {"model": "smollm2", "prompt": "hi", "max_tokens": 2}
    for headers, status in (
        ({"Host": "evil.example"}, 403),
        ({"Origin": "https://evil.example", "Content-Type": "text/plain"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Host": "localhost:1"}, 200),
    ):
        answer = httpx.post(job.url + "/v1/completions", json=ask, headers=headers, timeout=60)
        assert answer.status_code == status, (headers, answer.text)
        assert httpx.get(job.url + "/health", headers=headers).status_code == status


def test_processes_may_have_as_many_descriptors_as_the_system_allows(tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    argv = ["pdjob", "worker", "--model", MODEL, "--set", "engine.kind=fake", "--listen", "127.0.0.1:0"]
    worker = Process(argv, tmp_path, enter=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))).wait_ready()
    assert resource.prlimit(worker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    assert worker.stop() == 0, worker.log_tail()


def test_a_plan_never_waits_for_a_pipe_or_a_device(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    job = tmp_path / "job.yaml"
    for keys in (f"engine: {{kind: command, recipe: {pipe}}}", f"router: {{tls: {{certificate: {pipe}, key: {pipe}}}}}"):
        job.write_text(f"model: {MODEL}\n{keys}\n")
        done = subprocess.run([BIN, "plan", "--config", str(job)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "not a regular file" in done.stderr, done.stdout + done.stderr
    worker = [BIN, "worker", "--model", MODEL, "--set", "engine.kind=fake", "--key-file", str(pipe)]
    done = subprocess.run(worker, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "not a regular file" in done.stderr, done.stdout + done.stderr
    for path in (pipe, "/dev/zero"):
        done = subprocess.run([BIN, "plan", "--config", str(path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "it is not a regular file" in done.stderr, done.stderr


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[0]


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_first_process_of_a_container_reaps_orphans_and_passes_signals_on(tmp_path):
    argv = ["unshare", "-r", "--pid", "--fork", "--kill-child", "--mount-proc", BIN]
    if subprocess.run([*argv[:-1], "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may not make a namespace of processes")
    argv += ["worker", "--model", MODEL, "--set", "engine.kind=fake", "--listen", "127.0.0.1:0"]
    with open(tmp_path / "log", "wb") as log:
        outer = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        eventually(lambda: "ready url=" in (tmp_path / "log").read_text(), 60, "the worker")
        (first,) = children_of(outer.pid)
        (main,) = children_of(first)
        # Their parents end at once, so they become children of the first process, and then end.
        subprocess.run(["nsenter", "-U", "--preserve-credentials", "-p", "-t", str(first), "sh", "-c", "for i in 1 2 3 4; do (sleep 0.2 &) ; done"], check=True)
        time.sleep(0.5)
        eventually(lambda: children_of(first) == [main], 30, "no orphan is left")
        assert state_of(main) != "Z"
        os.kill(first, signal.SIGTERM)
        assert outer.wait(60) == 0, (tmp_path / "log").read_text()
    finally:
        outer.kill()
        outer.wait()
