"""`pdjob router` before engines that it did not start and that speak another protocol than pdjob's."""

import contextlib
import tempfile

import httpx
import pytest

from conftest import MODEL, Process, eventually, metric

PROMPTS = ["Tell me a story about a river that forgot its way to the sea.", "List three colours:", "The capital of France is"]


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as name:
        yield name


@contextlib.contextmanager
def worker(role, folder):
    argv = ["pdjob", "worker", "--role", role, "--model", MODEL, "--listen", "127.0.0.1:0", "--set", "served_name=smollm2"]
    process = Process(argv, folder)
    try:
        yield process.wait_ready()
    finally:
        code = process.stop()
    assert code == 0, process.log_tail()


@contextlib.contextmanager
def router(folder, prefill, decode, *flags):
    argv = ["pdjob", "router", "--listen", "127.0.0.1:0"]
    argv += [word for url in prefill for word in ("--prefill", url)]
    argv += [word for url in decode for word in ("--decode", url)]
    process = Process([*argv, *flags], folder)
    try:
        process.wait_ready()
        members = len(prefill) + len(decode)
        eventually(lambda: len(httpx.get(process.url + "/pdjob/workers").json()["workers"]) == members, 20, "all workers known")
        yield process
    finally:
        code = process.stop()
    assert code == 0, process.log_tail()


def with_bootstrap(prefill):
    """A pdjob worker is its own bootstrap server, at its HTTP port."""
    return f"{prefill.url}?bootstrap_port={prefill.url.rsplit(':', 1)[1]}"


def complete(url, prompt, **more):
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": 12, "temperature": 0, **more}
    return httpx.post(url + "/v1/completions", json=body, timeout=60)


@pytest.fixture(scope="module")
def workers(folder):
    with worker("prefill", folder) as first, worker("prefill", folder) as second, worker("decode", folder) as decode:
        yield [first, second], decode


def test_sglangs_bootstrap_moves_kv_and_tells_the_same_texts(folder, workers):
    prefill, decode = workers
    with router(folder, [worker.url for worker in prefill], [decode.url]) as pdjob:
        expected = [complete(pdjob.url, prompt).json()["choices"][0]["text"] for prompt in PROMPTS]
    before = metric(decode.url, "pdjob_kv_received_total")
    addresses = [with_bootstrap(worker) for worker in prefill]
    with router(folder, addresses, [decode.url], "--protocol", "sglang", "--policy", "round_robin") as sglang:
        replies = [complete(sglang.url, prompt) for prompt in PROMPTS]
        assert [reply.json()["choices"][0]["text"] for reply in replies] == expected
        assert {reply.headers["x-pdjob-prefill"] for reply in replies} == {worker.url.removeprefix("http://") for worker in prefill}
        chat = {"model": "smollm2", "messages": [{"role": "user", "content": PROMPTS[0]}], "max_tokens": 6, "stream": True, "n": 2}
        streamed = httpx.post(sglang.url + "/v1/chat/completions", json=chat, timeout=60)
        assert streamed.status_code == 200 and streamed.text.endswith("data: [DONE]\n\n")
        assert metric(sglang.url, "pdjob_router_degraded_total") == 0
    assert metric(decode.url, "pdjob_kv_received_total") == before + len(PROMPTS) + 1
    for process in (*prefill, decode):
        eventually(lambda: metric(process.url, "pdjob_kv_rows_used") == 0, 10, "no row is left")


def test_sglangs_prefill_worker_dies_and_another_takes_over(folder, workers):
    prefill, decode = workers
    with worker("prefill", folder) as mortal:
        addresses = [with_bootstrap(mortal), with_bootstrap(prefill[0])]
        with router(folder, addresses, [decode.url], "--protocol", "sglang", "--policy", "round_robin") as sglang:
            mortal.stop()
            for _ in range(4):
                reply = complete(sglang.url, PROMPTS[1])
                assert reply.status_code == 200, reply.text
                assert reply.headers["x-pdjob-prefill"] == prefill[0].url.removeprefix("http://")
            assert metric(sglang.url, "pdjob_router_retries_total") > 0


def test_without_a_prefill_worker_sglangs_decode_workers_are_not_asked(folder, workers):
    prefill, decode = workers
    with router(folder, [with_bootstrap(prefill[0])], [decode.url], "--protocol", "sglang", "--set", "router.queue_timeout=1s",
                "--set", "router.bootstrap_port=1") as sglang:
        wrong_port = complete(sglang.url, PROMPTS[1])
        assert wrong_port.status_code == 200, "the URL's own port counts"
    with router(folder, [prefill[0].url], [decode.url], "--protocol", "sglang", "--set", "router.queue_timeout=1s",
                "--set", "router.bootstrap_port=1") as sglang:
        before = metric(decode.url, "pdjob_kv_received_total")
        assert complete(sglang.url, PROMPTS[1]).status_code == 502, "nobody is at the bootstrap port"
        assert metric(decode.url, "pdjob_kv_received_total") == before
