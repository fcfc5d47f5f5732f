"""A job with encrypted KV links answers like any other. A worker started by hand has no key, and reports that it cannot encrypt."""

import asyncio
import subprocess
import tempfile

import httpx
import pytest

from conftest import BIN, MODEL, running_job

BODIES = [
    {"model": "smollm2", "prompt": [300 + 7 * i % 4000 for i in range(length)], "max_tokens": 16, "temperature": 0, "return_token_ids": True}
    for length in (1, 33, 200, 700)
]


async def ask(url):
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        return await asyncio.gather(*(client.post("/v1/completions", json=body) for body in BODIES))


def tokens_of(replies):
    assert all(reply.status_code == 200 for reply in replies), [reply.text for reply in replies]
    return [reply.json()["choices"][0]["token_ids"] for reply in replies]


@pytest.fixture(scope="module")
def expected(single):
    return tokens_of(asyncio.run(ask(single.url)))


@pytest.mark.parametrize("transport, tcp", [("tcp", "encrypt: true"), ("nccl", "encrypt: true"), ("tcp", "encrypt: true, streams: 3")])
def test_tokens_of_an_encrypted_job_are_those_of_one_process(expected, transport, tcp):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, prefill=2, decode=2, transport=transport, tcp=tcp) as job:
            replies = asyncio.run(ask(job.url))
    assert tokens_of(replies) == expected
    for reply in replies:
        assert reply.headers["x-pdjob-kv-transport"] == transport and int(reply.headers["x-pdjob-kv-bytes"]) > 0


def test_a_worker_by_hand_says_that_it_has_no_key():
    argv = [BIN, "worker", "--role", "prefill", "--model", MODEL, "--listen", "127.0.0.1:0", "--set", "kvtransfer.tcp.encrypt=true"]
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert answer.returncode != 0
    assert "kvtransfer.tcp.encrypt needs the keys of a job" in answer.stderr
