"""The router's response cache as the official client sees it: real workers, two tenants, and an embeddings double for similar prompts."""

import hashlib
import os
import signal
import sys

import openai
import pytest

from conftest import ROOT, eventually, metric, running_job

sys.path.insert(0, str(ROOT / "tests/support"))
from embeddings_double import EmbeddingsDouble  # noqa: E402

KEYS = {"alice": "sk-alice-0123456789", "bob": "sk-bob-9876543210"}
GREEDY = {"model": "smollm2", "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def embedder():
    double = EmbeddingsDouble()
    yield double
    double.close()


@pytest.fixture(scope="module")
def job(folder, embedder):
    tenants = ", ".join(f"{name}: {{key_sha256: {hashlib.sha256(key.encode()).hexdigest()}}}" for name, key in KEYS.items())
    similarity = f"{{url: '{embedder.url}', model: bag-of-words, threshold: 0.9, timeout: 5s}}"
    cache = f"{{bytes_max: 10000000, similarity: {similarity}}}"
    with running_job(folder, router=f"tenants: {{{tenants}}}, cache: {cache}") as job:
        yield job


def client(job, name="alice"):
    return openai.OpenAI(base_url=job.url + "/v1", api_key=KEYS[name], max_retries=0, timeout=60)


def complete(job, prompt, name="alice", headers=None, **fields):
    """Returns the cache's verdict and the answer."""
    raw = client(job, name).completions.with_raw_response.create(**{**GREEDY, "prompt": prompt, **fields}, extra_headers=headers)
    return raw.headers.get("x-pdjob-cache"), raw.parse()


def chat(job, text, name="alice", **fields):
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": text}]
    raw = client(job, name).chat.completions.with_raw_response.create(**{**GREEDY, "messages": messages, **fields})
    return raw.headers.get("x-pdjob-cache"), raw.parse()


def decode_legs(job):
    return metric(job.url, "pdjob_router_picks_total", stage="decode")


def test_an_equal_request_has_the_same_answer_and_costs_no_worker(job):
    before = decode_legs(job)
    first, second = complete(job, "One, two, three,"), complete(job, "One, two, three,")
    assert (first[0], second[0]) == ("miss", "hit")
    assert second[1] == first[1] and first[1].choices[0].text
    assert decode_legs(job) == before + 1
    assert metric(job.url, "pdjob_router_cache_total", result="hit") >= 1
    assert metric(job.url, "pdjob_router_cache_entries") >= 1
    assert metric(job.url, "pdjob_router_cache_bytes") > 400


def test_a_stream_is_answered_by_the_same_stream(job):
    ask = {**GREEDY, "prompt": "Red, green,", "stream": True, "stream_options": {"include_usage": True}}
    replies = []
    for _ in range(2):
        with client(job).completions.with_streaming_response.create(**ask) as raw:
            replies.append((raw.headers["x-pdjob-cache"], list(raw.parse())))
    assert [reply[0] for reply in replies] == ["miss", "hit"]
    assert replies[1][1] == replies[0][1] and len(replies[0][1]) >= 8
    text = "".join(event.choices[0].text for event in replies[1][1] if event.choices)
    assert text == complete(job, "Red, green,")[1].choices[0].text


def test_tenants_do_not_see_each_others_answers(job):
    assert complete(job, "Monday, Tuesday,")[0] == "miss"
    assert complete(job, "Monday, Tuesday,", "bob")[0] == "miss"
    assert complete(job, "Monday, Tuesday,", "bob")[0] == "hit"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=job.url + "/v1", api_key="sk-mallory", max_retries=0).completions.create(**GREEDY, prompt="Monday, Tuesday,")


def test_what_is_sampled_is_kept_only_where_that_is_asked_for(job):
    always = {"x-pdjob-cache": "always"}
    sampled = {"temperature": 1, "max_tokens": 16}
    assert complete(job, "Once upon a time", **sampled)[0] is None
    first = complete(job, "Once upon a time", headers=always, **sampled)
    second = complete(job, "Once upon a time", headers=always, **sampled)
    assert (first[0], second[0]) == ("miss", "hit") and first[1] == second[1]
    assert complete(job, "Once upon a time", seed=1, **sampled)[0] == "miss"
    assert complete(job, "Once upon a time", seed=1, **sampled)[0] == "hit"
    assert complete(job, "Once upon a time", seed=1, headers={"Cache-Control": "no-store"}, **sampled)[0] is None


def test_a_prompt_in_other_words_has_the_same_answer(job):
    first = chat(job, "What is the capital of France?")
    assert first[0] == "miss"
    similar = chat(job, "the capital of France is what")
    assert similar[0] == "similar" and similar[1] == first[1]
    assert chat(job, "Name three rivers in Asia")[0] == "miss"
    assert chat(job, "What is the capital of France")[0] == "similar"
    assert chat(job, "the capital of France is what", max_tokens=9)[0] == "miss", "all but the question must be equal"
    assert chat(job, "the capital of France is what", "bob")[0] == "miss"


def test_without_the_embedder_requests_go_on(job, embedder):
    embedder.close()
    failures = metric(job.url, "pdjob_router_cache_embedding_failures_total")
    assert chat(job, "How far away is the moon?")[0] == "miss"
    assert chat(job, "How far away is the moon?")[0] == "hit"
    assert metric(job.url, "pdjob_router_cache_embedding_failures_total") == failures + 1


def test_a_decode_worker_that_starts_again_has_its_answers_forgotten(job):
    assert complete(job, "North, east,")[0] == "miss"
    assert complete(job, "North, east,")[0] == "hit"
    worker = job.processes()["decode-0"]
    os.kill(worker["pid"], signal.SIGKILL)
    eventually(lambda: job.processes()["decode-0"]["pid"] not in (0, worker["pid"]), 60, "another decode-0")
    eventually(lambda: complete(job, "North, east,")[0] == "miss", 60, "an answer of the new one")
