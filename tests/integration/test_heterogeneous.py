"""Prefill and decode workers with different settings. Allowed differences give the same tokens; the others are refused with a reason."""

import asyncio
import contextlib
import tempfile

import httpx
import pytest

from conftest import MODEL, Process, metric, running_job

BODY = {"model": "smollm2", "max_tokens": 16, "temperature": 0, "return_token_ids": True}
LENGTHS = (1, 5, 33, 64, 200, 400)
# The two ends differ in the length of a window, in the number of windows, and in the place of a sequence in memory.
SMALL = "engine: {tokens_per_sequence: 512, sequences: 3, batch_tokens: 96}"
LARGE = "engine: {tokens_per_sequence: 3072, sequences: 11, batch_tokens: 200}"


def bodies():
    return [{**BODY, "prompt": [300 + 7 * i % 4000 for i in range(length)]} for length in LENGTHS] + [
        {**BODY, "prompt": [9000 + i for i in range(70)], "temperature": 0.8, "seed": 5}
    ]


async def ask(url, requests):
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        return await asyncio.gather(*(client.post("/v1/completions", json=body) for body in requests))


@pytest.fixture(scope="module")
def expected(single):
    replies = asyncio.run(ask(single.url, bodies()))
    return [reply.json()["choices"][0]["token_ids"] for reply in replies]


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("prefill, decode", [(SMALL, LARGE), (LARGE, SMALL)], ids=["to-larger", "to-smaller"])
def test_ends_of_different_shapes_give_the_tokens_of_one_process(expected, prefill, decode, transport):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, transport=transport, prefill_extra=prefill, decode_extra=decode) as job:
            replies = asyncio.run(ask(job.url, bodies()))
    for reply, tokens in zip(replies, expected):
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-pdjob-kv-transport"] == transport and int(reply.headers["x-pdjob-kv-bytes"]) > 0
        assert reply.json()["choices"][0]["token_ids"] == tokens


@contextlib.contextmanager
def by_hand(folder, prefill_settings, decode_settings):
    """A prefill worker, a decode worker and a router, started without a launcher. No file holds the settings of both workers."""
    with contextlib.ExitStack() as stack:

        def start(*argv):
            process = Process(["pdjob", *argv, "--listen", "127.0.0.1:0"], folder)
            stack.callback(process.stop)
            return process.wait_ready()

        def worker(role, settings):
            chosen = [word for setting in ["served_name=smollm2", *settings] for word in ("--set", setting)]
            return start("worker", "--role", role, "--model", MODEL, *chosen)

        prefill, decode = worker("prefill", prefill_settings), worker("decode", decode_settings)
        yield prefill, decode, start("router", "--prefill", prefill.url, "--decode", decode.url)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_another_kv_type_is_refused_with_both_values(transport, single, folder):
    """The router finds another way and the log names the reason. Without a router the client gets the reason."""
    reason = "KV fingerprint differs in kv_type: sender 'f16', receiver 'q8_0'"
    body = {**BODY, "prompt": "Once upon a time"}
    common = [f"kvtransfer.transport={transport}"]
    with by_hand(folder, [*common, "engine.kv_type=f16"], [*common, "engine.kv_type=q8_0"]) as (prefill, decode, router):
        (expected,), (reply,) = asyncio.run(ask(single.url, [body])), asyncio.run(ask(router.url, [body]))
        assert reply.status_code == 200, reply.text
        assert reply.json()["choices"][0]["token_ids"] == expected.json()["choices"][0]["token_ids"]
        assert reply.headers.get("x-pdjob-kv-bytes", "0") == "0"
        assert "their KV means different things" in router.log.read_text()

        first = {**body, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
        (offered,) = asyncio.run(ask(prefill.url, [first]))
        second = {**body, "kv_transfer_params": offered.json()["kv_transfer_params"]}
        (refused,) = asyncio.run(ask(decode.url, [second]))
        assert refused.status_code == 502, refused.text
        assert reason in refused.json()["error"]["message"]
        for gauge in ("pdjob_kv_rows_used", "pdjob_requests_running"):
            assert metric(decode.url, gauge) == 0
        # Otherwise the prefill worker would keep its KV until the lease expires, because somebody might still fetch it.
        transfer = offered.json()["kv_transfer_params"]["transfer_id"]
        assert httpx.delete(f"{prefill.url}/pdjob/transfers/{transfer}").status_code == 204
