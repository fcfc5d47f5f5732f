"""Stores of KV that are programs of other makes, beside engines of other makes. All of them are doubles, as processes of their own
(tests/support/store_programs_double.py, engine_program_double.py)."""

import json
import os
import pathlib
import signal
import socket

import pytest

from conftest import ROOT, Job, eventually
from test_foreign_engines import ask, foreign_job, logs, yaml

DOUBLE = ROOT / "tests/support/store_programs_double.py"
GIB = 1 << 30
NEW = ["DOUBLE_VERSION=0.32.0"]


@pytest.fixture
def programs(tmp_path):
    """A folder with the programs of both makes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("mooncake_master", "mooncake_client", "lmcache"):
        (folder / name).symlink_to(DOUBLE)
    os.environ["STORE_DOUBLE_FOLDER"] = str(tmp_path)
    yield folder
    del os.environ["STORE_DOUBLE_FOLDER"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def kv_store(programs, kind, more=""):
    return f"kv_store: {{kind: {kind}, memory: 1GiB, port: {free_port()}, programs: {programs}{more}}}"


def starts(folder, name):
    """Of the programs of that name: pids and options."""
    lines = map(json.loads, pathlib.Path(folder, "starts").read_text().splitlines())
    return [(pid, options) for program, pid, options in lines if program == name]


def gone(pid):
    return not pathlib.Path(f"/proc/{pid}").exists()


def test_engines_use_the_lmcache_of_their_node(tmp_path, programs):
    with foreign_job(tmp_path, env=NEW, extra=kv_store(programs, "lmcache", ", args: [--chunk-size, '128']")) as job:
        assert ask(job).status_code == 200
        ((pid, options),) = starts(tmp_path, "lmcache")
        assert options["host"] == options["http_host"] == "127.0.0.1" and options["l1_size_gb"] == 1 and options["chunk_size"] == 128
        assert logs(tmp_path).count(f"uses the store at 127.0.0.1:{options['port']}") == 2
        assert job.processes()["store-0"]["role"] == "store"
        eventually(lambda: job.processes()["store-0"]["state"] == "ready", 10, "the store is ready")
    assert gone(pid)


def test_a_killed_store_comes_back_and_no_request_is_lost(tmp_path, programs):
    with foreign_job(tmp_path, env=NEW, extra=kv_store(programs, "lmcache")) as job:
        ((pid, _),) = starts(tmp_path, "lmcache")
        os.kill(pid, signal.SIGKILL)
        assert ask(job).status_code == 200
        eventually(lambda: len(starts(tmp_path, "lmcache")) == 2, 15, "another store has started")
        assert ask(job).status_code == 200
        assert job.processes()["decode-0"]["restarts"] == 0


def test_mooncake_has_one_master_that_stores_and_engines_know(tmp_path, programs):
    with foreign_job(tmp_path, env=NEW, extra=kv_store(programs, "mooncake")) as job:
        assert ask(job).status_code == 200
        ((_, master),) = starts(tmp_path, "mooncake_master")
        (_, client) = starts(tmp_path, "mooncake_client")[-1]
        at = f"{master['rpc_address']}:{master['rpc_port']}"
        assert client["master_server_address"] == at and client["global_segment_size"] == GIB
        assert logs(tmp_path).count(f"uses the store at {at}") == 2
        roles = {name: process["role"] for name, process in job.processes().items()}
        assert roles["store-master"] == roles["store-0"] == "store"


def test_sglang_has_mooncake_behind_its_own_cache(tmp_path, programs):
    with foreign_job(tmp_path, kind="sglang", env=NEW, extra=kv_store(programs, "mooncake")) as job:
        assert ask(job).status_code == 200
        ((_, master),) = starts(tmp_path, "mooncake_master")
        assert logs(tmp_path).count(f"uses the store at {master['rpc_address']}:{master['rpc_port']}") == 2


def test_without_its_programs_a_job_serves_without_a_store(tmp_path):
    with foreign_job(tmp_path, env=NEW, launcher="start_timeout: 20s", extra=kv_store("/nowhere", "lmcache")) as job:
        assert ask(job).status_code == 200
        assert "the engine starts without one" in logs(tmp_path)
        assert "pip install lmcache" in logs(tmp_path)


def test_an_engine_that_is_too_old_for_its_store_says_so(tmp_path, programs):
    job = Job(yaml(tmp_path, env=["DOUBLE_VERSION=0.20.2"], extra=kv_store(programs, "lmcache"), restart="backoff_min: 100ms, attempts: 1"), tmp_path)
    assert job.child.wait(60) == 1
    assert "vllm 0.20.2 is too old for lmcache of kv_store, which came with 0.21.0" in job.log_tail()
