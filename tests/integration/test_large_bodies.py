"""A large body never stops a worker. Others are answered meanwhile, and the worker's memory stays bounded."""

import json
import pathlib
import tempfile
import threading

import httpx
import pytest

from conftest import real_worker

BYTES = 31_000_000
# Seconds. Generous, for busy machines. When the loop stood still, it did so for up to 25 seconds on an idle machine.
ANSWERED_WITHIN = 20
MEMORY_GROWTH_MAX = 300 << 20


@pytest.fixture(scope="module")
def worker():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, real_worker("both", folder, "engine.sequences=4") as running:
        yield running


def memory(worker):
    lines = pathlib.Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) << 10


def short(worker):
    return httpx.post(
        worker.url + "/v1/completions",
        json={"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 1},
        timeout=60,
    )


def text_prompts():
    """Prompts that might fit by their bytes alone, but are all too long."""
    sentence = "the quick brown fox jumps over the lazy dog "
    return {"prompt": [(sentence * (BYTES // 256 // len(sentence) + 1))[: BYTES // 256]] * 256}


def fitting_prompts():
    """256 prompts that fit: about 500,000 tokens."""
    return {"prompt": ["the quick brown fox jumps over the lazy dog " * 180] * 256, "max_tokens": 1, "n": 2}


def token_ids():
    return {"prompt": [1] * (BYTES // 2)}


def token_lists():
    return {"prompt": [[7] * (BYTES // 512)] * 256}


def one_word():
    return {"prompt": "a" * BYTES}


def resumed():
    return {"prompt": "a", "pdjob_resume": [[1] * (BYTES // 2)]}


def send(worker, body, seconds):
    """Sends a body from a thread, which ends with the reply or after `seconds`. Its status arrives in the returned list."""
    statuses = []

    def run():
        try:
            statuses.append(httpx.post(worker.url + "/v1/completions", content=body, timeout=seconds).status_code)
        except httpx.TimeoutException:
            statuses.append("left")

    sender = threading.Thread(target=run)
    sender.start()
    return sender, statuses


def assert_alive(worker, before):
    health = httpx.get(worker.url + "/health", timeout=60)
    assert health.status_code == 200 and health.elapsed.total_seconds() < ANSWERED_WITHIN
    assert memory(worker) - before < MEMORY_GROWTH_MAX


@pytest.mark.parametrize("make", [text_prompts, token_ids, token_lists, one_word, resumed])
def test_others_are_answered_while_it_is_refused(worker, make):
    assert short(worker).status_code == 200
    before = memory(worker)
    sender, statuses = send(worker, json.dumps(make(), separators=(",", ":")), seconds=120)
    while sender.is_alive():
        reply = short(worker)
        assert reply.status_code == 200, reply.text
        assert reply.elapsed.total_seconds() < ANSWERED_WITHIN
        assert_alive(worker, before)
    assert statuses == [400]
    assert short(worker).status_code == 200


def test_what_fits_stops_nobody_and_is_dropped_with_its_client(worker):
    assert short(worker).status_code == 200
    before = memory(worker)
    sender, statuses = send(worker, json.dumps(fitting_prompts()), seconds=6)
    while sender.is_alive():
        assert_alive(worker, before)
    assert statuses == ["left"]
    assert short(worker).status_code == 200


def test_tokens_of_a_text_have_a_bound(worker):
    def tokenize(text):
        return httpx.post(worker.url + "/tokenize", json={"prompt": text}, timeout=60)

    assert tokenize("word " * 20_000).json()["count"] >= 20_000, "longer than the context"
    assert tokenize("a" * 2_000_000).status_code == 400
    assert tokenize("a" * 20_000_000).status_code == 400
    assert httpx.post(worker.url + "/detokenize", json={"tokens": [1] * 1_000_000}, timeout=60).status_code == 400
    assert short(worker).status_code == 200
