"""A job that ends leaves its workers warm (launcher.keep), and the next job of the same file has them at once."""

import json
import os
import pathlib
import signal
import subprocess
import time

import httpx
import pytest

from conftest import BIN, Job, eventually, job_yaml, processes_with
from test_failover import bodies, launchers, processes_of, tokens
from test_foreign_engines import engine_pid, expected, yaml
from test_two_launchers import agents  # noqa: F401

KEEP = {"orphan_timeout": "0s", "launcher": "keep: 60s"}


def workers(made):
    return {name: p["pid"] for name, p in made.job.processes().items() if p["role"] in ("prefill", "decode")}


def answers(made):
    with httpx.Client(base_url=made.job.url, timeout=120) as client:
        return [tokens(client, body, False) for body in bodies()[:2]]


def lines_of(made, word):
    return sum(word in line for line in processes_of(made.folder).values())


def test_the_next_job_of_the_same_file_has_the_workers_at_once():
    with launchers(prefill=2, **KEEP) as made:
        before = (made.start(), workers(made))[1]
        right = answers(made)
        for _ in range(3):
            url = made.job.url
            assert made.job.stop() == 0, made.job.log_tail()
            with pytest.raises(httpx.ConnectError):
                httpx.get(url + "/health")
            told = made.command("status")
            assert told.returncode == 1 and "its workers stay warm" in told.stderr, told
            begun = time.monotonic()
            made.start()
            print(f"from the command to ready: {time.monotonic() - begun:.2f} s")
            assert workers(made) == before
            assert answers(made) == right
        assert made.command("stop").returncode == 0
        made.ends()


def test_another_file_gets_workers_of_its_own_and_the_warm_ones_end():
    with launchers(**KEEP) as made:
        before = (made.start(), workers(made))[1]
        made.job.stop()
        made.config = made.config.replace("sequences: 8", "sequences: 4")
        made.start()
        assert "the warm workers of the last job end" in made.job.log_tail(200)
        assert not set(workers(made).values()) & set(before.values())
        assert lines_of(made, " worker ") == 2
        made.job.stop()
        assert made.command("stop").returncode == 0
        made.ends()


def test_warm_workers_end_when_their_time_is_over():
    with launchers(orphan_timeout="0s", launcher="keep: 6s") as made:
        made.start()
        assert made.job.stop() == 0
        time.sleep(2)  # What must not happen needs time to happen.
        assert lines_of(made, " worker ") == 2
        eventually(lambda: not processes_of(made.folder), 30, "nothing is left")
        made.start()
        assert "adopted" not in made.job.log_tail(200), "it is a new job"
        assert made.command("stop").returncode == 0
        made.ends()


def test_a_second_signal_or_a_killed_launcher_keeps_nothing():
    with launchers(**KEEP) as made:
        made.start()
        made.kill()
        eventually(lambda: not processes_of(made.folder), 20, "without an orphan timeout a killed launcher takes all with it")
        made.start()
        made.job.child.send_signal(signal.SIGTERM)
        made.job.child.send_signal(signal.SIGINT)
        made.job.child.wait(60)
        made.ends()


def test_a_warm_worker_that_dies_is_replaced_by_the_next_job():
    with launchers(decode=2, **KEEP) as made:
        before = (made.start(), workers(made))[1]
        right = answers(made)
        made.job.stop()
        os.kill(before["decode-1"], signal.SIGKILL)
        made.start()
        made.all_ready()
        now = workers(made)
        assert {name for name in now if now[name] != before[name]} == {"decode-1"}
        assert answers(made) == right
        assert made.command("stop", "--now").returncode == 0
        made.ends()


def test_batches_one_after_the_other_use_the_same_workers(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": {"model": "smollm2", "prompt": f"{i} and", "max_tokens": 4}}) + "\n" for i in range(6)))
    config = tmp_path / "job.yaml"
    config.write_text(job_yaml(tmp_path, launcher="keep: 60s"))
    marked = {**os.environ, "FAILOVER_TEST": str(tmp_path)}

    def run(out):
        command = [BIN, "batch", rows, "--config", config, "--out", tmp_path / out]
        done = subprocess.run(command, env=marked, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        found = [json.loads(line) for line in (tmp_path / out / "output.jsonl").read_text().splitlines()]
        assert [row["custom_id"] for row in found] == [f"r{i}" for i in range(6)]
        return {pid for pid, line in processes_of(tmp_path).items() if " worker " in line}

    try:
        first = run("one")
        assert len(first) == 2
        assert run("two") == first
        of_batches = tmp_path / "batches.yaml"
        of_batches.write_text(config.read_text().replace(f"name: test-{tmp_path.name}", f"name: test-{tmp_path.name}-batch"))
        stopped = subprocess.run([BIN, "stop", "--config", of_batches], env=marked, check=True, capture_output=True, text=True, timeout=90)
        assert "cannot be adopted" not in stopped.stderr, stopped
        eventually(lambda: not processes_of(tmp_path), 20, "nothing is left")
    finally:
        for pid in processes_of(tmp_path):
            os.kill(pid, signal.SIGKILL)


def test_another_job_gets_nodes_of_warm_workers_at_once(agents):  # noqa: F811
    first = agents.job("first", launcher="keep: 300s").wait_ready()
    before = {name: p["pid"] for name, p in first.processes().items() if name != "router-0"}
    assert first.stop() == 0
    again = agents.job("first", launcher="keep: 300s").wait_ready()
    assert {name: p["pid"] for name, p in again.processes().items() if name != "router-0"} == before
    assert again.stop() == 0
    begun = time.monotonic()
    second = agents.job("second").wait_ready()
    assert time.monotonic() - begun < 60
    assert all(not pathlib.Path(f"/proc/{pid}").exists() for pid in before.values())
    assert second.stop() == 0
    subprocess.run([BIN, "stop", "--now", "--config", first.config], check=True, timeout=90)  # Its own machine's agent.


def test_engines_of_another_make_stay_warm_too(tmp_path):
    text, names = yaml(tmp_path, launcher="keep: 60s"), ("prefill-0", "decode-0")
    first = Job(text, tmp_path).wait_ready()
    before = {name: engine_pid(first, name) for name in names}
    assert first.stop() == 0
    again = Job(text, tmp_path).wait_ready()
    assert {name: engine_pid(again, name) for name in names} == before
    reply = httpx.post(again.url + "/v1/completions", json={"model": "tiny", "prompt": "one two three", "max_tokens": 3}, timeout=60)
    assert reply.json()["choices"][0]["text"] == expected("one two three")
    assert again.stop() == 0
    subprocess.run([BIN, "stop", "--config", again.config], check=True, timeout=90)
    eventually(lambda: not processes_with(tmp_path), 10, "nothing is orphaned")
