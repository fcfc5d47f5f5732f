"""Hostile and broken HTTP gets a clear 4xx, and harms nobody else. Tested against the router and, directly, a decode worker."""

import json
import socket
import urllib.parse

import httpx
import pytest

from conftest import key_header

GOOD = {"model": "smollm2", "prompt": "One, two,", "max_tokens": 2, "temperature": 0}


@pytest.fixture(params=["router", "decode"])
def url(job, request):
    return job.url if request.param == "router" else job.processes()["decode-0"]["url"]


def raw(url, data, expect_reply=True):
    """Sends bytes. Returns the status and body of the reply. For a worker of a job it adds the worker's key."""
    for name, value in key_header(url).items():
        data = data.replace(b"Host: x\r\n", f"Host: x\r\n{name}: {value}\r\n".encode(), 1)
    address = urllib.parse.urlparse(url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # Refused during the send: the reply may still be there.
        reply = b""
        try:
            while chunk := connection.recv(65536):
                reply += chunk
                head, separator, body = reply.partition(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if separator and length and len(body) >= int(length[0].split(b":")[1]):
                    break
        except ConnectionResetError:
            pass
    if not reply:
        assert not expect_reply, "no reply at all"
        return 0, b""
    return int(reply.split(b" ", 2)[1]), reply.partition(b"\r\n\r\n")[2]


def head(method="POST", path="/v1/completions", *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    "data, status",
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # A TLS hello.
        (b"GET /health HTTP/9.9\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (head("POST", "/v1/completions", "Content-Length: 5", "Content-Length: 6"), 400),
        (head("POST", "/v1/completions", "Content-Length: 5", "Transfer-Encoding: chunked"), 400),
        (head("POST", "/v1/completions", "Content-Length: -1"), 400),
        (head("POST", "/v1/completions", "Content-Length: 99999999999999999999"), (400, 413)),
        (head("POST", "/v1/completions", "Transfer-Encoding: gzip"), (400, 501)),
        (head("POST", "/v1/completions", "Transfer-Encoding: chunked") + b"zz\r\n", 400),
        (head("POST", "/v1/completions", "Bad Header: 1", "Content-Length: 0"), 400),
        (head("POST", "/v1/completions", "X: " + "y" * 100_000), 431),
        (head("POST", "/v1/completions", *[f"X-{i}: 1" for i in range(500)]), 431),
        (head("POST", "/v1/completions", "Content-Length: 104857600"), 413),
        (head("GET", "/nowhere"), 404),
        (head("DELETE", "/v1/completions"), 405),
    ],
)
def test_malformed_http_is_refused(url, data, status):
    got, body = raw(url, data)
    assert got in (status if isinstance(status, tuple) else (status,)), body
    assert json.loads(body)["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}{}",
        b'{"prompt": "x"} trailing',
        b'{"prompt": NaN}',
        b'{"prompt": 5}',
        b'{"prompt": {"a": 1}}',
        b'{"prompt": [1, "x"]}',
        b'{"prompt": [-5]}',
        b'{"prompt": [99999999]}',
        b'{"prompt": "x", "max_tokens": "many"}',
        b'{"prompt": "x", "max_tokens": 1e99}',
        b'{"prompt": "x", "temperature": [1]}',
        b'{"prompt": "x", "stream": "yes"}',
        b'{"prompt": "x", "n": 1000000}',
        b'{"prompt": "x", "stop": [[]]}',
        b'{"prompt": "x", "logit_bias": {"a": 1}}',
        b'{"prompt": "\xff\xfe"}',
        b'{"max_tokens": 5}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
    ],
)
def test_bad_bodies_are_refused_and_say_why(url, body):
    reply = httpx.post(url + "/v1/completions", content=body, headers={"content-type": "application/json", **key_header(url)}, timeout=30)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"]


def test_kv_transfer_params_of_the_wrong_type_are_refused_by_workers(job):
    """The router drops a client's kv_transfer_params, because it makes its own."""
    body = {**GOOD, "kv_transfer_params": 7}
    decode = job.processes()["decode-0"]["url"]
    reply = httpx.post(decode + "/v1/completions", json=body, headers=key_header(decode), timeout=30)
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "kv_transfer_params"
    assert httpx.post(job.url + "/v1/completions", json=body, timeout=30).status_code == 200


def test_a_hundred_megabytes_are_refused_early(url):
    status, body = raw(url, head("POST", "/v1/completions", f"Content-Length: {100 << 20}") + b"x" * (8 << 20))
    assert status == 413 and json.loads(body)["error"]["message"]


def test_others_are_served_while_bad_input_rains(job, url):
    with httpx.Client(base_url=url, headers=key_header(url), timeout=60) as client:
        expected = client.post("/v1/completions", json=GOOD).json()["choices"][0]["text"]
        for _ in range(20):
            raw(url, b"NONSENSE\r\n\r\n")
            assert client.post("/v1/completions", content=b"{").status_code == 400
            assert client.post("/v1/completions", json=GOOD).json()["choices"][0]["text"] == expected


def test_half_a_request_does_not_hold_up_others(job, url):
    address = urllib.parse.urlparse(url)
    half = [socket.create_connection((address.hostname, address.port)) for _ in range(50)]
    for connection in half:
        connection.sendall(head("POST", "/v1/completions", "Content-Length: 1000") + b"{")
    assert httpx.post(url + "/v1/completions", json=GOOD, headers=key_header(url), timeout=60).status_code == 200
    [connection.close() for connection in half]
