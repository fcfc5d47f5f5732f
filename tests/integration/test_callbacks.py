"""Callbacks with answers: to receivers of every kind, across the death of the router, and at its end."""

import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import os
import pathlib
import signal
import sqlite3
import ssl
import subprocess
import threading
import time

import pytest

from conftest import eventually, metric, running_job
from test_async_requests import answer, ask, call

KEY = b"a secret of thirty-two bytes ..."
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Receiver:
    """Answers each call with the next of `statuses`, and repeats the last one. "hang": it answers only when it is closed."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver = self.server.receiver
            with receiver.lock:
                receiver.calls.append((dict(self.headers), body))
                status = receiver.statuses[0] if len(receiver.statuses) == 1 else receiver.statuses.pop(0)
            if status == "hang":
                receiver.closed.wait(60)
                return
            time.sleep(receiver.delay)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    def __init__(self, *statuses, delay=0.0, certificate=None):
        self.statuses, self.delay, self.calls = list(statuses), delay, []
        self.lock, self.closed = threading.Lock(), threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.Handler)
        self._server.daemon_threads = True
        self._server.receiver = self
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"{'https' if certificate else 'http'}://{self.host}/done?token=of-the-receiver"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def ids(self):
        return [headers["webhook-id"] for headers, _ in self.calls]


def submit(job, url, prompt="The sky is"):
    return call(job.url + "/v1/async/completions", "POST", ask(prompt), {"x-pdjob-callback": url})


def callback(job, name):
    return answer(job, name)["callback"]


@contextlib.contextmanager
def calling_job(folder, *receivers, more=""):
    """A job whose router may call these receivers, each with its own limits."""
    secret = pathlib.Path(folder, "secret")
    secret.write_text(SECRET + "\n")
    allowed = ", ".join(f'"{receiver.host}"' for receiver in receivers)
    callbacks = f"callbacks: {{allowed: [{allowed}], secret_file: {secret}, {more}}}"
    with running_job(folder, router=f"async: {{file: {folder}/requests.db, {callbacks}}}") as job:
        yield job


@pytest.fixture(scope="module")
def receivers():
    known = {"well": Receiver(204), "twice": Receiver(500, 302, 200), "hangs": Receiver("hang")}
    yield known
    for receiver in known.values():
        receiver.close()


@pytest.fixture(scope="module")
def job(folder, receivers):
    with calling_job(folder, *receivers.values(), more="timeout: 30s, in_flight_max: 1") as job:
        yield job
    for log in pathlib.Path(folder).glob("logs/**/*.log"):
        text = log.read_text(errors="replace")
        assert SECRET not in text and SECRET[6:] not in text and "of-the-receiver" not in text, log


def test_a_call_is_what_would_be_fetched_and_signed(job, receivers):
    status, submitted = submit(job, receivers["well"].url)
    assert status == 202
    assert submitted["callback"] == {"url": receivers["well"].url, "status": "pending", "attempts": 0}
    name = submitted["id"]
    eventually(lambda: callback(job, name)["status"] == "delivered", 60, "the call")
    assert receivers["well"].ids() == [name]
    headers, body = receivers["well"].calls[0]
    signed = f"{name}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == "v1," + signature
    assert headers["Content-Type"] == "application/json"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    fetched = answer(job, name)
    assert fetched.pop("callback") == {"url": receivers["well"].url, "status": "delivered", "attempts": 1}
    told = json.loads(body)
    told.pop("callback")
    assert told == fetched


def test_a_receiver_that_fails_twice_is_called_a_third_time(job, receivers):
    name = submit(job, receivers["twice"].url)[1]["id"]
    eventually(lambda: callback(job, name)["status"] == "delivered", 60, "the third call")
    assert callback(job, name)["attempts"] == 3
    assert receivers["twice"].ids() == [name] * 3
    assert metric(job.url, "pdjob_router_callbacks_total", outcome="retried") == 2


def test_who_is_not_listed_is_not_called(job, receivers):
    status, reply = submit(job, receivers["well"].url.replace("127.0.0.1", "localhost"))
    assert status == 400 and "may not be called" in reply["error"]["message"]
    assert reply["error"]["param"] == "x-pdjob-callback"
    status, reply = submit(job, receivers["well"].url.replace("http:", "ftp:"))
    assert status == 400 and "A callback is http://host:port/path or https://" in reply["error"]["message"]


def test_a_receiver_that_hangs_costs_nobody_else(job, receivers):
    """A receiver that was not reached before the router was killed is called by the next router."""
    hung = [submit(job, receivers["hangs"].url)[1]["id"] for _ in range(3)]
    eventually(lambda: all(answer(job, name)["status"] == "completed" for name in hung), 60, "their answers")
    eventually(lambda: len(receivers["hangs"].calls) == 1, 30, "the call that hangs")
    well = [submit(job, receivers["well"].url, f"{i} and")[1]["id"] for i in range(10)]
    eventually(lambda: all(callback(job, name)["status"] == "delivered" for name in well), 60, "the calls to another")
    assert len(receivers["hangs"].calls) == 1
    assert [callback(job, name)["status"] for name in hung] == ["pending"] * 3

    router = job.processes()["router-0"]["pid"]
    receivers["hangs"].statuses = [200]
    os.kill(router, signal.SIGKILL)
    eventually(lambda: job.processes()["router-0"]["pid"] not in (0, router), 60, "another router")
    eventually(lambda: all(callback(job, name)["status"] == "delivered" for name in hung), 60, "the calls after the kill")
    first, *rest = receivers["hangs"].ids()
    assert first in hung and sorted(rest) == sorted(hung)  # The call that hung came twice, with one id.
    assert sorted(receivers["well"].ids()[1:]) == sorted(well)  # A delivered callback is never repeated.


def test_a_router_that_ends_finishes_its_calls_and_leaves_the_rest(tmp_path):
    slow = Receiver(200, delay=8.0)
    with calling_job(tmp_path, slow, more="timeout: 30s, in_flight_max: 1") as job:
        names = [submit(job, slow.url)[1]["id"] for _ in range(2)]
        eventually(lambda: all(answer(job, name)["status"] == "completed" for name in names), 60, "the answers")
        eventually(lambda: len(slow.calls) == 1, 10, "the first call")
    slow.close()
    assert len(slow.calls) == 1
    (called,) = slow.ids()
    (left,) = set(names) - {called}
    with contextlib.closing(sqlite3.connect(tmp_path / "requests.db")) as file:
        rows = file.execute("SELECT r.id, c.status, c.attempts FROM callbacks c JOIN requests r USING (arrival)").fetchall()
    delivered, pending = 1, 0  # CallbackStatus of router/async/async_database.h.
    assert sorted(rows) == sorted([(called, delivered, 1), (left, pending, 0)])


def make_certificate(folder, name):
    """Returns a file with a self-signed certificate for 127.0.0.1, and its key."""
    file = pathlib.Path(folder, name + ".pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=" + name]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", file, "-out", file], check=True, capture_output=True)
    return file


def test_a_receiver_behind_https_is_called_only_if_its_certificate_is_trusted(tmp_path):
    known, unknown = (make_certificate(tmp_path, name) for name in ("known", "unknown"))
    receivers = [Receiver(204, certificate=known), Receiver(204, certificate=unknown)]
    with calling_job(tmp_path, *receivers, more=f"attempts: 1, ca_file: {known}") as job:
        good, bad = (submit(job, receiver.url)[1]["id"] for receiver in receivers)
        eventually(lambda: callback(job, good)["status"] == "delivered", 60, "the call")
        eventually(lambda: callback(job, bad)["status"] == "failed", 60, "the refused call")
        log = next(pathlib.Path(tmp_path).glob("logs/**/router-0.log")).read_text()
        assert "certificate" in log
    assert receivers[0].ids() == [good] and receivers[1].calls == []
    for receiver in receivers:
        receiver.close()


def test_a_name_that_leads_inside_is_not_called_unless_its_block_is_listed(tmp_path):
    """libcurl lets every name under .localhost lead to loopback, as a hostile name server could make any name do."""
    receiver = Receiver(204)
    port = receiver.host.rsplit(":", 1)[1]
    name = "inside.localhost"
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    callbacks = f"callbacks: {{allowed: ['{name}:{port}'], secret_file: {secret}, attempts: 1}}"
    with running_job(tmp_path, router=f"async: {{file: {tmp_path}/requests.db, {callbacks}}}") as job:
        status, reply = submit(job, f"http://{name}:{port}/done")
        assert status == 202, reply
        eventually(lambda: callback(job, reply["id"])["status"] == "failed", 60, "the refused call")
        assert "is not allowed" in next(pathlib.Path(tmp_path).glob("logs/**/router-0.log")).read_text()
    assert receiver.calls == []
    receiver.close()
