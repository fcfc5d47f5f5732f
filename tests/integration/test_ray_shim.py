"""The Ray shim on a double of Ray, and a double of a guest's dashboard: what it refuses, and how it says so. Needs no Ray."""

import contextlib
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from conftest import eventually  # noqa: E402
from ray_hosts import SOURCE, Shim, ShimRefused  # noqa: E402

DOUBLE = {"PYTHONPATH": str(ROOT / "tests/unit/launcher/ray/ray_double")}
OPEN = dict(name="a", address="home:1", job="j", lease_s=60, reconnect_s=600)
ORDER = {"ray": "2.60.0", "python": "3.11.7", "cluster": "b", "home": "127.0.0.1:1", "job": "j", "slot": "b.0", "resource": "r", "reconnect_s": 1, "gpus": 0, "token_file": "", "namespace": "pdjob",
         "keeper": "pdjob-keeper/j"}
JOIN = dict(slot="b.0", submission="s1", cluster="b", python="python3", cpus=1, gpus=0, memory=0, token_file="", home_token_file="")


class Dashboard(http.server.BaseHTTPRequestHandler):
    """A double of a guest's Jobs API. It keeps what is submitted."""

    def answer(self):
        server = self.server
        if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
            return self.reply(401, {})
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        if self.path == "/api/version":
            return self.reply(200, {"ray_version": server.ray})
        if self.path == "/api/jobs/":
            server.submitted.append(body)
            return self.reply(200, {})
        if self.path.endswith("/stop"):
            return self.reply(404, {})
        return self.reply(200, {"status": "FAILED", "message": "exit code 3"} if not self.path.endswith("/logs") else {"logs": server.logs})

    do_GET = do_POST = answer

    def reply(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def guest(ray="2.60.0", token="", logs=""):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dashboard)
    server.ray, server.token, server.logs, server.submitted = ray, token, logs, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def opened(folder, **options):
    """A shim on the double of Ray, whose world is the folder."""
    made = Shim(None, folder, env={**DOUBLE, "RAY_DOUBLE": str(folder)}, python=sys.executable)
    try:
        made.event("hello")
        made.ask("open", **{**OPEN, **options})
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def shim():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, opened(folder) as made:
        yield made


def calls(folder, call):
    """Returns how often the double of Ray was asked to start this."""
    return (folder / "calls").read_text().splitlines().count(call)


def test_a_guest_with_another_ray_is_refused_before_anything_is_submitted(shim):
    with guest(ray="2.9.0") as there:
        with pytest.raises(ShimRefused, match="cluster b runs Ray 2.9.0, and the home cluster Ray 2.60.0: install Ray 2.60.0 there") as refused:
            shim.ask("join", dashboard=there.url, **JOIN)
        assert refused.value.kind == "version_mismatch" and not there.submitted


def test_a_guest_that_wants_a_token_is_told_so(shim):
    with guest(token="t0ken-0f-b") as there, tempfile.NamedTemporaryFile("w") as token:
        with pytest.raises(ShimRefused, match="name the right one in `token_file`"):
            shim.ask("join", dashboard=there.url, **JOIN)
        token.write("t0ken-0f-b\n")
        token.flush()
        assert shim.ask("join", dashboard=there.url, **{**JOIN, "token_file": token.name}) == ""
        assert "t0ken-0f-b" not in json.dumps(there.submitted)


def test_a_guest_that_is_not_there_is_named(shim):
    with pytest.raises(ShimRefused, match="unreachable: http://127.0.0.1:1/api/version"):
        shim.ask("join", dashboard="http://127.0.0.1:1", **JOIN)


def test_why_a_guests_job_ended_is_told(shim):
    with guest(logs="noise\npdjob refuses: cluster b has Python 3.9.1\n") as there:
        shim.ask("join", dashboard=there.url, **{**JOIN, "submission": "s2"})
        ended = shim.event("guest_ended", submission="s2")
        assert ended["refused"] == 1 and ended["reason"] == "cluster b has Python 3.9.1"


def test_a_job_that_was_never_submitted_has_left(shim):
    with guest() as there:
        assert shim.ask("leave", submission="s3", dashboard=there.url, token_file="") == ""


def test_a_keeper_that_has_ended_is_replaced_and_the_home_still_answers(tmp_path):
    with opened(tmp_path, lease_s=4) as shim:
        shim.event("home", reachable=1)
        (tmp_path / "dies").write_text("pdjob-keeper/j")
        eventually(lambda: calls(tmp_path, "actor pdjob-keeper/j") >= 2, 10, "there is a new keeper")
        with pytest.raises(AssertionError):
            shim.event("home", seconds=6)  # Longer than a home may be mute.


def test_the_end_waits_until_no_nested_node_is_left(tmp_path):
    with opened(tmp_path) as shim:
        (tmp_path / "nested").write_text("j")
        closing = shim.send("close")
        eventually(lambda: calls(tmp_path, "task end_nested_node") == 1, 10, "the node is asked to end")
        with pytest.raises(AssertionError):
            shim.answer(closing, seconds=1)
        (tmp_path / "nested").unlink()
        assert shim.answer(closing) == ""


def test_a_keeper_whose_lease_ends_stays_until_no_nested_node_is_left(tmp_path):
    (tmp_path / "nested").write_text("j")
    with opened(tmp_path, lease_s=1) as shim:
        os.kill(shim.child.pid, signal.SIGSTOP)  # The double's keeper lives in the shim: time passes for it all the same.
        time.sleep(1.5)
        os.kill(shim.child.pid, signal.SIGCONT)
        eventually(lambda: calls(tmp_path, "task end_nested_node") == 1, 10, "the node is asked to end")
        assert calls(tmp_path, "actor pdjob-keeper/j") == 1
        (tmp_path / "nested").unlink()
        eventually(lambda: calls(tmp_path, "actor pdjob-keeper/j") == 2, 10, "the keeper has ended, and the next lease has another one")


@pytest.mark.parametrize("kept", [True, False])
def test_a_node_that_joins_without_a_keeper_leaves_again(tmp_path, kept):
    if kept:
        (tmp_path / "keeps").write_text("yes")
    node = "import os, subprocess, sys; os.environ['PDJOB_GLIDE_WATCHES'] = str(os.getpid()); sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    environment = {**os.environ, **DOUBLE, "RAY_DOUBLE": str(tmp_path), "PDJOB_GLIDE_IN": json.dumps(ORDER)}
    ran = subprocess.run([sys.executable, "-c", node, sys.executable, SOURCE / "glide_in.py"], env=environment, timeout=30)
    assert ran.returncode == (0 if kept else -signal.SIGTERM)


def test_a_guest_is_left_without_a_home():
    with guest() as there, tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        shim = Shim(None, folder, env=DOUBLE, python=sys.executable)
        try:
            shim.event("hello")
            assert shim.ask("leave", submission="s4", dashboard=there.url, token_file="") == ""
            with pytest.raises(ShimRefused, match="`open` comes first"):
                shim.ask("close")
        finally:
            shim.end()


def test_unknown_requests_are_refused(shim):
    for op in ("nonsense", "_init__", "open"):
        with pytest.raises(ShimRefused):
            shim.ask(op)


def test_a_line_without_end_ends_the_shim():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        shim = Shim(None, folder, env=DOUBLE, python=sys.executable)
        shim.event("hello")
        with contextlib.suppress(OSError):
            shim.socket.sendall(b"x" * 300_000)
        assert shim.child.wait(20) != 0
        assert "too long" in shim.tail()
        shim.end()


@pytest.mark.parametrize("order, why", [({"ray": "2.61.0"}, "has Ray 2.60.0"), ({"python": "3.9.1"}, "and the home cluster has 3.9.1"), ({}, None)])
def test_a_nested_node_checks_the_versions_where_it_runs(order, why):
    version = ".".join(map(str, sys.version_info[:3]))
    order = {**ORDER, "python": version, **order}
    # The double has no `ray start`, so a node that may join ends with another error.
    environment = {**os.environ, **DOUBLE, "PDJOB_GLIDE_IN": json.dumps(order), "PDJOB_GLIDE_IN_TEXT": ""}
    ran = subprocess.run([sys.executable, SOURCE / "glide_in.py"], env=environment, capture_output=True, text=True, timeout=30)
    assert (ran.returncode == 3) == (why is not None), ran
    if why:
        assert ran.stdout.startswith("pdjob refuses: cluster b") and why in ran.stdout and "name an interpreter" in ran.stdout
    else:
        assert "ray.scripts" in ran.stderr
