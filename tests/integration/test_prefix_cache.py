"""A prompt that begins like an earlier one computes only the rest. Its tokens are the same as if it were computed whole."""

import random
import tempfile

import httpx
import pytest

from conftest import assert_idle, eventually, metric, real_worker, running_job

GREEDY = {"temperature": 0}
SEEDED = {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "seed": 7}
# Around the edges of quantised blocks and of chunks (256 tokens in a prefill worker, 128 in a decode worker).
BEGINNINGS = [1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 299, 300]


def words(count, seed):
    """Returns random tokens of the vocabulary's plain range."""
    draw = random.Random(seed)
    return [draw.randrange(300, 40000) for _ in range(count)]


def complete(url, prompt, mode, tokens=10):
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": tokens, "return_token_ids": True, **mode}
    reply = httpx.post(url + "/v1/completions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    return reply.json()


def tokens_of(reply):
    return reply["choices"][0]["token_ids"]


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, transport="shm") as running:
            yield running


@pytest.fixture(scope="module")
def both():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with real_worker("both", folder) as running:
            yield running


def counts(url):
    return [metric(url, f"pdjob_prefix_cache_{what}_total") for what in ("queries", "hits")]


@pytest.mark.parametrize("mode", [GREEDY, SEEDED])
def test_each_turn_of_a_conversation_computes_only_what_is_new(job, single, mode):
    prefill = job.processes()["prefill-0"]["url"]
    prompt, there = words(333, seed=len(mode)), 0
    for turn in range(4):
        queries, hits = counts(prefill)
        reply = complete(job.url, prompt, mode)
        assert tokens_of(reply) == tokens_of(complete(single.url, prompt, mode)), turn
        assert [after - before for after, before in zip(counts(prefill), (queries, hits))] == [len(prompt), there]
        there = len(prompt)
        prompt = prompt + tokens_of(reply) + words(40, seed=turn)
        eventually(lambda: assert_idle(job), what="an idle job")
    assert counts(single.url)[1] == 0


@pytest.mark.parametrize("mode", [GREEDY, SEEDED])
def test_tokens_are_the_same_whatever_part_is_reused(job, both, single, mode):
    base = words(300, seed=50 + len(mode))
    expected = {0: tokens_of(complete(single.url, base, mode))}
    for url in (job.url, both.url):
        assert tokens_of(complete(url, base, mode)) == expected[0]
    for shared in reversed(BEGINNINGS):  # So each one is cached when its turn comes.
        prompt = base[:shared] + words(30, seed=shared)
        expected[shared] = tokens_of(complete(single.url, prompt, mode))
        for url in (job.url, both.url):
            assert tokens_of(complete(url, prompt, mode)) == expected[shared], shared
    # Rows that were copied from and trimmed are still right.
    for url in (job.url, both.url):
        assert tokens_of(complete(url, base, mode)) == expected[0]
        assert counts(url if url == both.url else job.processes()["prefill-0"]["url"])[1] > 1000


def test_the_reply_says_how_many_tokens_were_cached(both):
    prompt = words(60, seed=99)
    assert complete(both.url, prompt, GREEDY)["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert complete(both.url, prompt + [500], GREEDY)["usage"]["prompt_tokens_details"] == {"cached_tokens": 60}


def test_a_prompt_with_a_cache_salt_shares_nothing(both):
    prompt = words(60, seed=98)
    for mode in ({**GREEDY, "cache_salt": "mine"}, {**GREEDY, "cache_salt": "mine"}, GREEDY):
        assert complete(both.url, prompt, mode)["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert complete(both.url, prompt, GREEDY)["usage"]["prompt_tokens_details"] == {"cached_tokens": 59}


def test_several_choices_go_on_from_the_same_rows(both, single):
    prompt = words(100, seed=3)
    complete(both.url, prompt, SEEDED)
    replies = [complete(url, prompt + [600, 601], {**SEEDED, "n": 3}) for url in (both.url, single.url)]
    assert replies[0]["usage"]["prompt_tokens_details"] == {"cached_tokens": 100}
    assert replies[0]["choices"] == replies[1]["choices"]
