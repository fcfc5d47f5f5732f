"""`pdjob links` shows the state of a running job's KV links, to people and to programs."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import time

import httpx
import pytest

from conftest import BIN, get, metric, running_job

BODY = {"model": "smollm2", "prompt": "Tell me a story about a river.", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder) as job:
            for _ in range(3):
                assert httpx.post(job.url + "/v1/completions", json=BODY, timeout=60).status_code == 200
            yield job


def links(job, *flags):
    done = subprocess.run([BIN, "links", "--config", str(job.config), *flags], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_json_has_both_ends_of_each_link(job):
    workers = {worker["name"]: worker for worker in json.loads(links(job, "--json"))["workers"]}
    assert set(workers) == {"prefill-0", "decode-0"}
    received, sent = workers["decode-0"]["links"][0], workers["prefill-0"]["links"][0]
    assert received["peer"] == workers["prefill-0"]["engine_id"] and received["direction"] == "receives"
    assert sent["peer"] == workers["decode-0"]["engine_id"] and sent["direction"] == "sends"
    for link in (received, sent):
        assert link["state"] == "open" and link["transport"] == "shm" and link["epoch"] == 1
        assert link["transfers"] >= 3 and link["bytes"] > 0 and link["gb_per_second"] > 0
        assert not any(link["failures"].values()) and not any(link["stalls"].values())
        assert link["transfers_alive"] == 0 and link["leases"] == 0
    assert received["bytes"] == sent["bytes"]


def test_table_in_a_pipe_is_plain(job):
    heading, *rows = links(job).splitlines()
    assert heading.split()[:4] == ["PAIR", "SEEN", "BY", "VIA"]
    assert [re.split(r"  +", row)[:4] for row in rows] == [
        ["prefill-0 > decode-0", "decode-0", "shm", "open"],
        ["prefill-0 > decode-0", "prefill-0", "shm", "open"],
    ]


def test_metrics_name_the_peer(job):
    processes = job.processes()
    labels = {"peer": processes["prefill-0"]["engine_id"], "transport": "shm", "direction": "receives"}
    url = processes["decode-0"]["url"]
    assert metric(url, "pdjob_kv_link_transfers_total", **labels) >= 3
    assert metric(url, "pdjob_kv_link_bytes_total", **labels) == metric(url, "pdjob_kv_received_bytes_total")
    assert metric(url, "pdjob_kv_link_up", **labels) == 1
    assert "# TYPE pdjob_kv_link_failures_total counter" in get(url + "/metrics")


def test_watch_in_a_pipe_is_a_line_of_json_per_look(job):
    watch = subprocess.Popen([BIN, "links", "--config", str(job.config), "--json", "--watch"], stdout=subprocess.PIPE, text=True)
    try:
        looks = [json.loads(watch.stdout.readline()) for _ in range(2)]
        assert all(look["workers"][0]["links"] for look in looks)
        watch.stdout.close()  # As `| head` does.
        assert watch.wait(10) in (0, -signal.SIGPIPE)
    finally:
        watch.kill()


def test_watch_on_a_terminal_writes_over_itself_until_ctrl_c(job):
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # It is ignored when the tests run in the background.
        os.execv(BIN, [BIN, "links", "--config", str(job.config), "--watch"])
    shown, deadline = "", time.monotonic() + 20
    while shown.count("\x1b[2J") < 2 and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65536).decode()
    assert shown.count("\x1b[2J") >= 2 and "prefill-0 > decode-0" in shown, shown
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGINT
    os.close(terminal)


def test_help_teaches():
    text = subprocess.run([BIN, "links", "--help"], capture_output=True, text=True, timeout=30).stdout
    for word in ("LEASES", "RETRIES", "suspect", "--watch", "Examples:"):
        assert word in text, text


def test_a_job_that_does_not_run_is_an_error():
    done = subprocess.run([BIN, "links", "--job", "no-such-job"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and done.stdout == "" and "no-such-job" in done.stderr
    assert subprocess.run([BIN, "links"], capture_output=True, text=True, timeout=30).returncode == 2
