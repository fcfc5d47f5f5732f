"""vLLM's two-hop protocol by hand: first the prefill worker, later the decode worker. The tests check the KV in between."""

import contextlib
import signal
import subprocess
import tempfile
import threading
import time

import httpx
import pytest

from conftest import eventually, metric, real_worker

PROMPT = "Tell me a story about a river that forgot its way to the sea."
BODY = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 8, "temperature": 0}


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as name:
        yield name


def prefill_leg(url):
    """Returns the KV parameters for the decode leg."""
    params = {"do_remote_decode": True, "do_remote_prefill": False}
    reply = httpx.post(url + "/v1/completions", json={**BODY, "max_tokens": 1, "kv_transfer_params": params}, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()["kv_transfer_params"]


def decode_leg(url, params):
    return httpx.post(url + "/v1/completions", json={**BODY, "kv_transfer_params": params}, timeout=60)


def test_a_draining_prefill_worker_stays_until_its_kv_is_fetched(folder, single):
    expected = httpx.post(single.url + "/v1/completions", json=BODY, timeout=60).json()["choices"][0]["text"]
    # The lease of its KV counts too, not only the time that requests have to finish.
    with real_worker("prefill", folder, "launcher.stop_timeout=0s") as prefill, real_worker("decode", folder) as decode:
        params = prefill_leg(prefill.url)
        prefill.child.send_signal(signal.SIGTERM)
        eventually(lambda: httpx.get(prefill.url + "/health").status_code == 503, 10, "draining")
        refused = httpx.post(prefill.url + "/v1/completions", json=BODY, timeout=60)
        assert refused.status_code == 503, "it takes nothing new"
        with pytest.raises(subprocess.TimeoutExpired):  # It still holds rows that a decode worker will fetch.
            prefill.child.wait(1)
        reply = decode_leg(decode.url, params)
        assert reply.status_code == 200, reply.text
        assert reply.json()["choices"][0]["text"] == expected
        assert int(reply.headers["x-pdjob-kv-bytes"]) > 0
        # Its KV is fetched, so it exits before its drain's deadline.
        assert prefill.child.wait(10) == 0, prefill.log_tail()


def test_a_draining_prefill_worker_leaves_when_the_lease_of_its_kv_ends(folder):
    with real_worker("prefill", folder, "kvtransfer.lease=2s") as prefill:
        prefill_leg(prefill.url)
        asked = time.monotonic()
        prefill.child.send_signal(signal.SIGTERM)
        assert prefill.child.wait(15) == 0, prefill.log_tail()
        assert time.monotonic() - asked > 0.5, "not before the lease ended"


@contextlib.contextmanager
def busy(url):
    """The worker's only sequence generates for a while."""
    body = {"max_tokens": 800, "ignore_eos": True}
    long = threading.Thread(target=lambda: httpx.post(url + "/v1/completions", json={**BODY, **body}, timeout=180))
    long.start()
    try:
        eventually(lambda: metric(url, "pdjob_requests_running") == 1, 20, "the decode worker busy")
        yield
    finally:
        long.join()


def test_kv_outlives_its_lease_while_its_request_queues(folder):
    lease = 2
    with (
        real_worker("prefill", folder, f"kvtransfer.lease={lease}s") as prefill,
        real_worker("decode", folder, "engine.sequences=1", f"kvtransfer.lease={lease}s") as decode,
        busy(decode.url),
    ):
        params = prefill_leg(prefill.url)
        asked = time.monotonic()
        reply = httpx.post(decode.url + "/v1/completions", json={**BODY, "kv_transfer_params": params}, timeout=180)
        waited = time.monotonic() - asked
        assert waited > 1.5 * lease, f"it queued for {waited:.1f} s only: this proves nothing"
        assert reply.status_code == 200, reply.text
        assert int(reply.headers["x-pdjob-kv-bytes"]) > 0


def test_kv_is_freed_at_once_when_the_request_that_queues_is_given_up(folder):
    with (
        real_worker("prefill", folder) as prefill,
        real_worker("decode", folder, "engine.sequences=1") as decode,
        busy(decode.url),
    ):
        params = prefill_leg(prefill.url)
        assert metric(prefill.url, "pdjob_kv_rows_used") > 0
        with pytest.raises(httpx.TimeoutException):
            httpx.post(decode.url + "/v1/completions", json={**BODY, "kv_transfer_params": params}, timeout=1)
        eventually(lambda: metric(prefill.url, "pdjob_kv_rows_used") == 0, 5, "rows of a request that left the queue")
        assert metric(decode.url, "pdjob_requests_running") == 1, "it was queued all the time"


def test_kv_of_another_prompt_is_not_decoded(folder):
    # Regression: the missing rows came from the sequence's earlier owner, and the reply looked good.
    with real_worker("prefill", folder, "kvtransfer.lease=2s") as prefill, real_worker("decode", folder, "engine.sequences=1") as decode:
        expected = httpx.post(decode.url + "/v1/completions", json=BODY, timeout=60).json()["choices"][0]["text"]
        params = prefill_leg(prefill.url)
        longer = {**BODY, "prompt": PROMPT + " It begins in spring.", "kv_transfer_params": params}
        reply = httpx.post(decode.url + "/v1/completions", json=longer, timeout=60)
        assert reply.status_code == 502, reply.text
        assert "another prompt or tenant" in reply.text
        again = httpx.post(decode.url + "/v1/completions", json=BODY, timeout=60).json()["choices"][0]["text"]
        assert again == expected, "the sequence is whole"
