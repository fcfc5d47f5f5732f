"""Bounds on the router's memory per client: before the client's key is known, and within its tenant's share."""

import contextlib
import hashlib
import json
import pathlib
import socket
import tempfile
import urllib.parse

import pytest

from conftest import Process, eventually, fake_worker, get

KEY = "sk-alice-0123456789"
BODY_BYTES = 31_000_000
MIB = 1 << 20


@contextlib.contextmanager
def router_with(*settings):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        workers = [fake_worker(role, folder, role).wait_ready() for role in ("prefill", "decode")]
        flags = [part for setting in settings for part in ("--set", setting)]
        router = Process(
            ["pdjob", "router", "--listen", "127.0.0.1:0", "--prefill", workers[0].url, "--decode", workers[1].url, *flags], folder
        ).wait_ready()
        key = {"Authorization": f"Bearer {KEY}"}
        eventually(lambda: get(router.url + "/pdjob/workers", headers=key).count('"healthy"') == 2, 20, "both workers known")
        yield router
        for process in [router, *workers]:
            assert process.stop() == 0, process.log_tail()


@pytest.fixture(scope="module")
def router():
    with router_with(f"router.tenants.alice.key_sha256={hashlib.sha256(KEY.encode()).hexdigest()}") as running:
        yield running


def memory(process):
    """Returns the process's peak memory, in bytes."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def connect(router):
    address = urllib.parse.urlparse(router.url)
    connection = socket.create_connection((address.hostname, address.port), timeout=20)
    return connection


def head(length, key=None, *lines):
    lines = [*lines, *([f"Authorization: Bearer {key}"] if key else [])]
    return "\r\n".join(["POST /v1/completions HTTP/1.1", "Host: x", f"Content-Length: {length}", *lines, "", ""]).encode()


def push(connection, data):
    """Sends as much as the other end takes. A refused client may be cut off."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(data)


def status_of(connection):
    reply = b""
    with contextlib.suppress(ConnectionResetError):
        while b"\r\n\r\n" not in reply and (more := connection.recv(65536)):
            reply += more
    return int(reply.split(b" ", 2)[1]) if reply else 0


def ask(router, key=None):
    body = json.dumps({"prompt": "the quick brown fox", "max_tokens": 4}).encode()
    with connect(router) as connection:
        connection.sendall(head(len(body), key) + body)
        return status_of(connection)


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_without_a_key_take_no_memory(router, chunked):
    before = memory(router)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(router)) for _ in range(40)]
        part = b"x" * MIB
        if chunked:
            begin = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            part = b"100000\r\n" + part + b"\r\n"
        else:
            begin = head(BODY_BYTES)
        for connection in connections:
            push(connection, begin)
        for connection in connections:
            for _ in range(30):
                push(connection, part)
        assert memory(router) - before < 100_000_000
        refusals = [status_of(connection) for connection in connections]
        assert set(refusals) <= {401, 0} and 401 in refusals, "a client that went on sending may have been cut off"
    assert ask(router, KEY) == 200


def test_a_client_that_waits_for_leave_is_not_asked_for_its_body(router):
    with connect(router) as connection:
        connection.sendall(head(BODY_BYTES, "sk-wrong", "Expect: 100-continue"))
        assert status_of(connection) == 401
    with connect(router) as connection:
        connection.sendall(head(BODY_BYTES, KEY, "Expect: 100-continue"))
        assert status_of(connection) == 100


def test_a_large_body_to_a_route_without_a_key_is_refused(router):
    with connect(router) as connection:
        connection.sendall(head(BODY_BYTES).replace(b"/v1/completions", b"/pdjob/workers"))
        assert status_of(connection) == 413


def test_without_keys_all_bodies_have_a_bound_and_small_requests_come_in():
    with router_with("router.request_bytes_max=134217728") as router:
        before = memory(router)
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(connect(router)) for _ in range(40)]
            for connection in slow:
                push(connection, head(BODY_BYTES))
            for connection in slow:
                for _ in range(29):
                    push(connection, b"x" * MIB)
            assert memory(router) - before < 700_000_000, "with room for what a sanitizer keeps of freed memory"
            assert ask(router) == 200, "while the large ones are under way"
