"""A job's folder: who is trusted with it, what is read to find it, and what the next launcher finds there."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import httpx
import pytest

from conftest import BIN, Job, eventually

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def text_of(folder, extra="", orphan_timeout="60s"):
    return f"""\
name: test-folder
served_name: tiny
engine: {{kind: fake, sequences: 16}}
prefill: {{workers: 1}}
decode: {{workers: 1}}
router: {{listen: '127.0.0.1:0'}}
launcher: {{state_dir: {folder}/state, orphan_timeout: {orphan_timeout}}}
{extra}"""


@contextlib.contextmanager
def running(extra="", **options):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(text_of(folder, extra, **options), folder)
        try:
            yield job.wait_ready()
        except BaseException:
            print(job.log_tail())
            for log in sorted(pathlib.Path(folder).glob("state/*/logs/*.log")):
                print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-40:]))
            raise
        finally:
            command("stop", job.config, "--now")
            job._kill()


def command(name, config, *words):
    return subprocess.run([BIN, *name.split(), *words, "--config", str(config)], capture_output=True, text=True, timeout=90)


def start_again(job):
    """Another launcher takes over from one that was killed."""
    job.child.kill()
    job.child.wait()
    return Job(job.config.read_text(), job.folder).wait_ready()


@needs_root
def test_what_another_user_planted_is_neither_believed_nor_obeyed():
    victim = subprocess.Popen(["sleep", "600"])
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, socket.create_server(("127.0.0.1", 0)) as server:
        state = pathlib.Path(folder) / "state"
        planted = state / "test-folder"
        planted.mkdir(parents=True)
        os.chmod(folder, 0o755)
        os.chmod(state, 0o1777)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (planted / "launcher.json").write_text(json.dumps({"pid": victim.pid, "admin": address, "key": "k" * 32}))
        for path in (planted, planted / "launcher.json"):
            os.chown(path, NOBODY, NOBODY)
        lock = os.open(planted, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        config = pathlib.Path(folder) / "job.yaml"
        config.write_text(text_of(folder))
        server.settimeout(0.5)
        for words in (["stop"], ["stop", "--now"], ["status"], ["status", "--json"], ["logs", "launcher"], ["scale", "decode=2"], ["explain"], ["links"]):
            answer = command(words[0], config, *words[1:])
            assert answer.returncode == 1 and "belongs to another user" in answer.stderr, answer
        with pytest.raises(TimeoutError):
            server.accept()
        assert victim.poll() is None
        os.close(lock)
    victim.kill()
    victim.wait()


def test_a_process_that_has_the_number_of_a_dead_launcher_is_not_signalled():
    victim = subprocess.Popen(["sleep", "600"])
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        own = pathlib.Path(folder) / "state" / "test-folder"
        own.mkdir(parents=True, mode=0o700)
        (own / "launcher.json").write_text(json.dumps({"pid": victim.pid, "admin": "127.0.0.1:1", "key": "k" * 32}))
        lock = os.open(own, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        config = pathlib.Path(folder) / "job.yaml"
        config.write_text(text_of(folder))
        assert command("stop", config).returncode == 1
        assert victim.poll() is None
        os.close(lock)
    victim.kill()
    victim.wait()


def test_a_running_job_is_found_without_the_files_that_it_needs():
    with running() as job:
        moved = job.folder / "elsewhere.yaml"
        moved.write_text(job.config.read_text() + "model: nowhere.gguf\nan_old_key: 1\n")
        moved.write_text(moved.read_text().replace("router: {", "router: {tls: {certificate: no.pem, key: no.pem}, "))
        assert command("plan", moved).returncode == 2
        for words in (["status"], ["logs", "launcher"], ["scale"], ["explain"], ["nodes"]):
            answer = command(words[0], moved, *words[1:])
            assert answer.returncode == 0, answer.stderr
        bad = job.folder / "bad.yaml"
        bad.write_text("engine: {kind: fake}\n")
        assert command("status", bad).returncode == 2 and "name" in command("status", bad).stderr
        stopped = command("stop", moved)
        assert stopped.returncode == 0, stopped.stderr
        assert job.child.wait(30) == 0


def test_every_command_says_the_same_of_a_job_that_does_not_run():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        for words in ("stop", "status", "top", "links", "nodes", "logs launcher", "scale", "explain", "rollout status"):
            answer = subprocess.run([BIN, *words.split(), "--job", "nope"], capture_output=True, text=True, timeout=60, env={**os.environ, "XDG_STATE_HOME": folder})
            assert answer.returncode == 1 and "no job called nope is running" in answer.stderr, (words, answer)


def test_the_next_launcher_knows_what_was_decided_and_counts_no_work_twice():
    with running() as job:
        assert command("scale", job.config, "decode=2").returncode == 0
        for _ in range(20):
            reply = httpx.post(f"{job.url}/v1/completions", json={"model": "tiny", "prompt": "a b c d " * 50, "max_tokens": 50}, timeout=60)
            assert reply.status_code == 200
        time.sleep(1.5)  # Heartbeats have told it.
        job = start_again(job)
        story = command("explain", job.config).stdout
        assert "decode: from 1 to 2 workers, by `pdjob scale`" in story and "adopted 4 of 4 processes" in story, story
        assert "nothing has been decided" not in story
        told = json.loads(command("explain", job.config, "--json").stdout)
        assert [one["text"] for one in told["decisions"]] == [line.split("  ", 1)[1] for line in story.splitlines()]
        assert all(0 <= one["seconds_ago"] < 600 for one in told["decisions"])
        time.sleep(4)
        admin = json.loads(next(job.folder.glob("state/*/launcher.json")).read_text())["admin"]
        points = httpx.get(f"http://{admin}/history", timeout=30).json()["points"]
        assert points and max(point[3] for point in points) == 0, points


@needs_root
def test_nobody_else_can_take_the_ports_of_a_launcher_that_died():
    with running() as job:
        (agent,) = (path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(job.folder).encode() in path.read_bytes() and b"--join" in path.read_bytes())
        words = agent.read_bytes().split(b"\0")
        join = words[words.index(b"--join") + 1].decode().rsplit(":", 1)
        control = control_port(job)
        before = {name: process["pid"] for name, process in job.processes().items()}
        job.child.kill()
        job.child.wait()
        for port in (int(join[1]), control):
            for shared in (False, True):
                taken = subprocess.run(["python3", "-c", TAKE, str(port), str(int(shared))], user=NOBODY, group=NOBODY, capture_output=True, text=True, timeout=30)
                assert "Address already in use" in taken.stderr, (port, shared, taken)
        job = Job(job.config.read_text(), job.folder).wait_ready()
        assert {name: process["pid"] for name, process in job.processes().items()} == before


TAKE = """
import socket, sys
port, shared = int(sys.argv[1]), sys.argv[2] == "1"
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if shared:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
one.bind(("127.0.0.1", port))
one.listen()
"""


def control_port(job):
    """Where the launcher listens for its processes: one of them is connected there."""
    pid = job.processes()["decode-0"]["pid"]
    inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    launcher = {os.readlink(f"/proc/{job.child.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{job.child.pid}/fd")}
    listening = set()
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    for row in rows:
        if row[3] == "0A" and f"socket:[{row[9]}]" in launcher:
            listening.add(row[1].split(":")[1])
    for row in rows:
        if row[3] == "01" and f"socket:[{row[9]}]" in inodes and row[2].split(":")[1] in listening:
            return int(row[2].split(":")[1], 16)
    raise AssertionError("it is connected to no port of its launcher")


def test_stop_ends_what_a_dead_launcher_left_where_its_port_is_taken():
    with running() as job:
        processes = [process["pid"] for process in job.processes().values()]
        job.child.kill()
        job.child.wait()
        ledger = next(job.folder.glob("state/*/ledger"))
        assert ledger.stat().st_size > 0
        (agent,) = (path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(job.folder).encode() in path.read_bytes() and b"--join" in path.read_bytes())
        words = agent.read_bytes().split(b"\0")
        port = int(words[words.index(b"--join") + 1].decode().rsplit(":", 1)[1])
        with socket.socket() as squatter:  # A program of this user, which shares the port.
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            squatter.bind(("127.0.0.1", port))
            squatter.listen()
            squatter_only = subprocess.run([BIN, "stop", "--config", str(job.config)], capture_output=True, text=True, timeout=90)
        assert squatter_only.returncode == 0, squatter_only
        eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in processes), 30, "nothing is left")


def test_a_plan_runs_nothing_that_the_file_names(tmp_path):
    library = tmp_path / "own.so"
    source = tmp_path / "own.c"
    mark = tmp_path / "was-run"
    source.write_text(f'#include <fcntl.h>\n__attribute__((constructor)) static void begin(void) {{ creat("{mark}", 0600); }}\n')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    config = tmp_path / "job.yaml"
    plain = text_of(tmp_path)
    config.write_text(plain + f"kvtransfer: {{transport: nccl, nccl: {{library: {library}}}}}\n")
    assert command("plan", config).returncode == 0
    config.write_text(plain + f"kvtransfer: {{transport: nccl, nccl: {{library: {tmp_path}/none.so}}}}\n")
    missing = command("plan", config)
    assert missing.returncode == 0 and "there is no" in missing.stdout + missing.stderr, missing
    config.write_text(plain + f"clusters: {{a: {{kind: ray, address: '127.0.0.1:6379', listen: '127.0.0.1:0', nodes: 1, python: {script}, wait: 1s}}}}\n")
    ray = command("plan", config)
    assert ray.returncode == 0 and "--ask-nodes" in ray.stdout + ray.stderr, ray
    assert not mark.exists()
    assert command("plan", config, "--ask-nodes").returncode != 2
    assert mark.exists(), "whoever asks the nodes runs it"


@pytest.mark.parametrize("orphan_timeout", ["60s", "0s"])
def test_a_folder_that_somebody_removes_is_made_anew_and_the_job_goes_on(orphan_timeout):
    with running(orphan_timeout=orphan_timeout) as job:
        pids = {name: process["pid"] for name, process in job.processes().items()}
        for _ in range(50):  # The launcher writes there meanwhile.
            shutil.rmtree(job.folder / "state", ignore_errors=True)
            if not list(job.folder.glob("state/*/launcher.json")):
                break
        eventually(lambda: list(job.folder.glob("state/*/launcher.json")), 30, "the folder is there again")
        eventually(lambda: "it is made anew" in job.log_tail(), 30, "the launcher has said so, once all files are there")
        os.kill(pids["decode-0"], signal.SIGKILL)
        eventually(lambda: job.processes()["decode-0"]["restarts"] == 1 and job.processes()["decode-0"]["state"] == "ready", 60, "the worker comes back")
        assert {name for name, process in job.processes().items() if process["pid"] != pids[name]} == {"decode-0"}
        if orphan_timeout != "0s":
            eventually(lambda: list(job.folder.glob("state/*/agent.lock")), 30, "the agent holds its lock there")
            before = {name: process["pid"] for name, process in job.processes().items()}
            job = start_again(job)
            assert {name: process["pid"] for name, process in job.processes().items()} == before
        assert command("logs", job.config, "decode-0").returncode == 0
        stopped = command("stop", job.config)
        assert stopped.returncode == 0, stopped.stderr
