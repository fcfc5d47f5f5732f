"""A disaggregated job gives the same tokens as one process: for every prompt, every transport, and several requests at once."""

import asyncio
import random
import tempfile

import httpx
import pytest

from conftest import running_job

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
LENGTHS = (
    list(range(1, 21)) + [25, 31, 32, 33, 40, 47, 48, 55, 63, 64, 65, 71, 80, 96, 100, 111, 127, 128, 129, 150]
    + [200, 255, 256, 257, 300, 400, 511, 512, 513, 700, 1000, 1500]
)
GREEDY = {"temperature": 0}
SEEDED = {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "seed": 7}
CONSTRAINED = {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}}


def prompts():
    """Returns a prompt of token ids for each length, from the vocabulary's plain range. They are the same in every run."""
    draw = random.Random(20261121)
    return [[draw.randrange(300, 40000) for _ in range(length)] for length in LENGTHS]


def requests():
    modes = [GREEDY, SEEDED, {**GREEDY, **CONSTRAINED}, {**SEEDED, **CONSTRAINED}]
    bodies = []
    for index, prompt in enumerate(prompts()):
        # A long prompt takes seconds, so it uses one mode. A short one uses all four.
        for mode in modes if len(prompt) <= 64 else [modes[index % 4]]:
            bodies.append({"model": "smollm2", "prompt": prompt, "max_tokens": 12, "return_token_ids": True, **mode})
    return bodies


async def run_all(url, bodies, concurrency=8):
    gate = asyncio.Semaphore(concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=300) as client:

        async def one(body):
            async with gate:
                reply = await client.post("/v1/completions", json=body)
                assert reply.status_code == 200, reply.text
                return reply

        return await asyncio.gather(*(one(body) for body in bodies))


def outcome(reply):
    choice = reply.json()["choices"][0]
    return choice["token_ids"], choice["text"], choice["finish_reason"]


@pytest.fixture(scope="session")
def reference(single):
    replies = asyncio.run(run_all(single.url, requests()))
    return [outcome(reply) for reply in replies]


# The workers of 1P1D lend each other their threads, and share the same cores. Prompts go to the prefill worker though.
LENDS = {f"{role}_extra": "engine: {lend_threads: true}" for role in ("prefill", "decode")} | {"router": "decode_prefills: never"}


# 2P2D over shm takes every request. Three other jobs share them. The doubles of NCCL and CUDA are slow and take a fifth.
@pytest.mark.parametrize(
    "prefill, decode, transport, part",
    [
        (1, 1, "shm", slice(0, None, 3)),
        (1, 1, "tcp", slice(1, None, 3)),
        (2, 2, "tcp", slice(2, None, 3)),
        (2, 2, "shm", slice(None)),
        (1, 1, "nccl", slice(0, None, 5)),
    ],
)
def test_tokens_equal_those_of_a_single_process(reference, prefill, decode, transport, part):
    assert len(LENGTHS) >= 50
    bodies, reference = requests()[part], reference[part]
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, prefill=prefill, decode=decode, transport=transport, **(LENDS if prefill == 1 else {})) as job:
            replies = asyncio.run(run_all(job.url, bodies))
    for body, reply, expected in zip(bodies, replies, reference):
        assert outcome(reply) == expected, f"{len(body['prompt'])} tokens, {body}"
        assert int(reply.headers["x-pdjob-kv-bytes"]) > 0
        assert reply.headers["x-pdjob-kv-transport"] == transport
    used = {(reply.headers["x-pdjob-prefill"], reply.headers["x-pdjob-decode"]) for reply in replies}
    assert len({p for p, _ in used}) == prefill and len({d for _, d in used}) == decode, used


def test_a_chat_of_several_messages_is_handed_over(single):
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Name a river."}, {"role": "assistant", "content": "The Nile."}]
    body = {"model": "smollm2", "messages": [*messages, {"role": "user", "content": "And one more?"}], "max_tokens": 12, "temperature": 0}
    expected = httpx.post(single.url + "/v1/chat/completions", json=body, timeout=60).json()["choices"]
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder) as job:
            reply = httpx.post(job.url + "/v1/chat/completions", json=body, timeout=60)
    assert reply.json()["choices"] == expected
    assert int(reply.headers["x-pdjob-kv-bytes"]) > 0


def test_several_choices_of_one_prompt_equal_those_of_a_single_process(single):
    body = {"model": "smollm2", "prompt": "Once upon a time", "max_tokens": 12, "n": 3, "return_token_ids": True, **SEEDED}
    expected = asyncio.run(run_all(single.url, [body]))[0].json()["choices"]
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder) as job:
            reply = asyncio.run(run_all(job.url, [body]))[0]
    assert [c["token_ids"] for c in reply.json()["choices"]] == [c["token_ids"] for c in expected]
    assert len({tuple(c["token_ids"]) for c in expected}) > 1, "three seeds should not draw the same text"
    assert int(reply.headers["x-pdjob-kv-bytes"]) > 0
