"""Requests that are aborted: each is answered with the tokens that it has."""

import contextlib
import threading
import time

import httpx

from conftest import assert_idle, eventually, metric

PROMPT = [1, 4093, 253, 655, 28, 665, 436, 253, 2429, 1431, 30, 378]
LONG = {"temperature": 0, "max_new_tokens": 1500, "ignore_eos": True}


class Running(threading.Thread):
    """One request, in a thread of its own."""

    def __init__(self, url, body, path="/generate", headers=None):
        super().__init__(daemon=True)
        self.url, self.body, self.headers = url + path, body, headers
        self.reply = None
        self.start()

    def run(self):
        self.reply = httpx.post(self.url, json=self.body, headers=self.headers, timeout=120)

    def result(self):
        self.join(120)
        assert self.reply is not None and self.reply.status_code == 200, self.reply and self.reply.text
        return self.reply.json()


def post(url, path, body):
    reply = httpx.post(url + path, json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply


def of_decode_workers(job, name):
    return sum(metric(process["url"], name) for worker, process in job.processes().items() if worker.startswith("decode"))


def tokens_generated(job):
    return of_decode_workers(job, "pdjob_generation_tokens_total")


@contextlib.contextmanager
def waiting_for_tokens(job, count=10):
    """Waits at its end until the decode workers have generated this many more tokens."""
    before = tokens_generated(job)
    yield
    eventually(lambda: tokens_generated(job) >= before + count, seconds=60, what="new tokens")


def wait_until_all_have_tokens(job, requests):
    eventually(lambda: of_decode_workers(job, "pdjob_requests_running") == requests, seconds=60, what="requests that run")
    with waiting_for_tokens(job, 10 * requests):
        pass


def assert_aborted(reply):
    """The reply has tokens, and everything in it agrees with them."""
    meta, tokens = reply["meta_info"], reply["output_ids"]
    assert meta["finish_reason"]["type"] == "abort", meta
    assert 0 < len(tokens) == meta["completion_tokens"] < 1500
    assert [token for _, token, _ in meta["output_token_logprobs"]] == tokens
    assert meta["weight_versions"] == [{"version": "default", "start": 0, "end": len(tokens)}]


def first_tokens(job, body):
    """Returns the first tokens of the same request, uninterrupted."""
    params = {**body["sampling_params"], "max_new_tokens": 64}
    return post(job.url, "/generate", {"input_ids": PROMPT, "sampling_params": params}).json()["output_ids"]


def test_by_rid_it_returns_its_tokens_and_goes_on_from_them(job):
    body = {"input_ids": PROMPT, "rid": "sample-1", "return_logprob": True, "sampling_params": LONG}
    whole = first_tokens(job, body)
    with waiting_for_tokens(job):
        request = Running(job.url, body)
    with waiting_for_tokens(job, 100):
        other = Running(job.url, {**body, "rid": "sample-2"})
    assert post(job.url, "/abort_request", {"rid": "sample-1", "abort_all": False}).text == ""
    began = time.monotonic()
    reply = request.result()
    assert time.monotonic() - began < 10
    assert reply["meta_info"]["id"] == "sample-1"
    assert_aborted(reply)
    tokens = reply["output_ids"]
    common = min(len(tokens), len(whole))
    assert tokens[:common] == whole[:common]
    # Prompt and partial output go on as if nothing had happened.
    cut = tokens[:20]
    rest = post(job.url, "/generate", {"input_ids": PROMPT + cut, "sampling_params": {**LONG, "max_new_tokens": 20}}).json()["output_ids"]
    assert cut + rest == whole[: len(cut) + 20]
    assert other.is_alive(), "another rid is not meant"
    post(job.url, "/abort_request", {"rid": "sample-2"})
    assert_aborted(other.result())


def test_a_shared_request_id_does_not_mix_up_rids(job):
    body = {"input_ids": PROMPT, "return_logprob": True, "sampling_params": LONG}
    first, second = (Running(job.url, {**body, "rid": rid}, headers={"x-request-id": "shared"}) for rid in ("first", "second"))
    wait_until_all_have_tokens(job, 2)
    post(job.url, "/abort_request", {"rid": "second"})
    assert_aborted(second.result())
    with waiting_for_tokens(job):
        pass
    assert first.is_alive()
    post(job.url, "/abort_requests", {"request_ids": ["shared"]})
    assert_aborted(first.result())


def test_one_rid_of_a_batch_leaves_the_other(job):
    params = {**LONG, "max_new_tokens": 150}
    with waiting_for_tokens(job):
        batch = Running(job.url, {"input_ids": [PROMPT, PROMPT[:7]], "rid": ["one", "two"], "return_logprob": True, "sampling_params": params})
    post(job.url, "/abort_request", {"rid": "one"})
    one, two = batch.result()
    assert one["meta_info"]["id"] == "one" and one["meta_info"]["finish_reason"]["type"] == "abort"
    assert len(one["output_ids"]) < 150
    assert two["meta_info"]["id"] == "two" and two["meta_info"]["finish_reason"] == {"type": "length", "length": 150}
    assert len(two["output_ids"]) == 150


def test_many_calls_lose_nothing(job):
    body = {"input_ids": PROMPT, "return_logprob": True, "sampling_params": LONG}
    requests = [Running(job.url, {**body, "rid": f"again-{i}"}) for i in range(3)]
    stream = Running(job.url, {"model": "smollm2", "prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": True}, "/v1/completions")
    wait_until_all_have_tokens(job, 4)
    for _ in range(10):
        post(job.url, "/abort_requests", {})
    for request in requests:
        assert_aborted(request.result())
    stream.join(60)
    assert stream.reply.text.endswith("data: [DONE]\n\n") and '"finish_reason":"abort"' in stream.reply.text
    assert stream.reply.text.count("data: ") > 3


def test_all_at_once_whatever_they_wait_for(job):
    # More than the sequences of the workers: some run, some queue.
    body = {"input_ids": PROMPT, "return_logprob": True, "sampling_params": LONG}
    requests = [Running(job.url, {**body, "rid": f"all-{i}"}) for i in range(20)]
    chat = Running(job.url, {"model": "smollm2", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1500, "ignore_eos": True}, "/v1/chat/completions")
    eventually(lambda: metric(job.url, "pdjob_router_requests_alive") == 21, what="requests that the router knows")
    with waiting_for_tokens(job, 60):
        pass
    began = time.monotonic()
    assert post(job.url, "/abort_requests", {}).json() == {"status": "aborted", "aborted": 21}
    replies = [request.result() for request in requests]
    assert time.monotonic() - began < 20
    for i, reply in enumerate(replies):
        assert reply["meta_info"]["id"] == f"all-{i}"
        assert reply["meta_info"]["finish_reason"]["type"] == "abort"
        assert len(reply["meta_info"]["output_token_logprobs"]) == len(reply["output_ids"])
    with_tokens = [reply for reply in replies if reply["output_ids"]]
    assert with_tokens, "some have run"
    for reply in with_tokens:
        assert_aborted(reply)
    assert chat.result()["choices"][0]["finish_reason"] == "abort"
    eventually(lambda: assert_idle(job), what="an idle job")


def test_a_rid_may_be_used_again(job):
    body = {"input_ids": PROMPT, "rid": "again", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
    both = [Running(job.url, body), Running(job.url, body)]
    assert both[0].result()["output_ids"] == both[1].result()["output_ids"]


def test_an_unknown_rid_does_nothing(job):
    assert post(job.url, "/abort_requests", {"request_ids": ["nobody"]}).json()["aborted"] == 0
    post(job.url, "/abort_request", {"rid": ""})


def test_vllms_route_returns_what_it_has(job):
    body = {"token_ids": PROMPT, "request_id": "v-1", "sampling_params": {"logprobs": 0, "ignore_eos": True}}
    with waiting_for_tokens(job):
        request = Running(job.url, body, "/inference/v1/generate")
    post(job.url, "/abort_requests", {"request_ids": ["v-1"]})
    choice = request.result()["choices"][0]
    assert choice["finish_reason"] == "abort"
    assert choice["token_ids"]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [f"token_id:{token}" for token in choice["token_ids"]]


def test_tokens_of_vllms_route_are_those_of_the_others(job):
    reply = post(job.url, "/inference/v1/generate", {"token_ids": PROMPT, "sampling_params": {"temperature": 0, "max_tokens": 24, "logprobs": 1}}).json()
    choice = reply["choices"][0]
    same = post(job.url, "/v1/completions", {"model": "smollm2", "prompt": PROMPT, "temperature": 0, "max_tokens": 24, "logprobs": 1, "return_token_ids": True}).json()
    assert choice["token_ids"] == same["choices"][0]["token_ids"]
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == same["choices"][0]["logprobs"]["token_logprobs"]
    assert choice["finish_reason"] == "length"
    for versions in (choice, same["choices"][0]):
        assert versions["weight_versions"] == [{"version": "default", "start": 0, "end": 24}]
    assert reply["weight_version"] == same["weight_version"] == "default"


def test_the_end_token_is_a_part_of_the_ids(job):
    chat = {"model": "smollm2", "messages": [{"role": "user", "content": "Say only: hi"}], "temperature": 0, "max_tokens": 600, "return_token_ids": True, "logprobs": True}
    reply = post(job.url, "/v1/chat/completions", chat).json()
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == reply["usage"]["completion_tokens"]
    ended = post(job.url, "/generate", {"input_ids": reply["prompt_token_ids"], "sampling_params": {"temperature": 0, "max_new_tokens": 600}}).json()
    assert ended["output_ids"] == choice["token_ids"]
    assert ended["meta_info"]["finish_reason"] == {"type": "stop", "matched": choice["token_ids"][-1]}


def test_nothing_is_held_afterwards(job):
    eventually(lambda: assert_idle(job), what="an idle job")
