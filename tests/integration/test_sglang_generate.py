"""SGLang's own /generate on a router: tokens in, tokens and logprobs out, the same as from one process."""

import json
import math

import httpx
import pytest

from conftest import assert_idle, eventually

PROMPT = [1, 4093, 253, 655, 28, 665, 436, 253, 2429, 1431, 30, 378]
GREEDY = {"temperature": 0, "max_new_tokens": 24}


def ask(url, body, path="/generate", status=200):
    reply = httpx.post(url + path, json=body, timeout=120)
    assert reply.status_code == status, reply.text
    return reply.json()


def events(url, body):
    """Returns the events of a stream, which must end with [DONE]."""
    found = []
    with httpx.Client(timeout=120) as client, client.stream("POST", url + "/generate", json={**body, "stream": True}) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if line:
                assert line.startswith("data: "), line
                found.append(line[6:])
    assert found.pop() == "[DONE]"
    return [json.loads(event) for event in found]


def completion(url, prompt, tokens):
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "return_token_ids": True}
    return ask(url, body, "/v1/completions")["choices"][0]["token_ids"]


def test_greedy_tokens_are_those_of_the_openai_route_and_of_one_process(job, single):
    reply = ask(job.url, {"input_ids": PROMPT, "sampling_params": GREEDY})
    assert reply["output_ids"] == completion(job.url, PROMPT, 24) == completion(single.url, PROMPT, 24)
    assert reply == {**ask(single.url, {"input_ids": PROMPT, "sampling_params": GREEDY}), "meta_info": reply["meta_info"]}
    meta = reply["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 24}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(PROMPT), 24)
    assert meta["weight_version"] == "default"
    assert meta["weight_versions"] == [{"version": "default", "start": 0, "end": 24}]
    assert 0 < meta["e2e_latency"] < 120


def test_put_and_text_work(job):
    reply = httpx.put(job.url + "/generate", json={"text": "Once upon a time", "sampling_params": {**GREEDY, "max_new_tokens": 4}}, timeout=60)
    assert reply.status_code == 200 and len(reply.json()["output_ids"]) == 4


def test_logprobs_are_those_of_the_distribution_at_its_temperature(job, single):
    body = {
        "input_ids": PROMPT,
        "return_logprob": True,
        "top_logprobs_num": 5,
        "sampling_params": {"temperature": 0.7, "top_k": 5, "max_new_tokens": 12, "sampling_seed": 7},
    }
    meta = ask(job.url, body)["meta_info"]
    logprobs = meta["output_token_logprobs"]
    assert [token for _, token, _ in logprobs] == ask(job.url, body)["output_ids"]
    assert all(text is None for _, _, text in logprobs)
    for (logprob, token, _), top in zip(logprobs, meta["output_top_logprobs"], strict=True):
        assert [logprob, token, None] in top, "top_k is as large as the list"
    # On an invariant configuration, one process computes the same numbers.
    assert ask(single.url, body)["meta_info"]["output_token_logprobs"] == logprobs
    # The OpenAI route reports the model's own distribution: log p(a) - log p(b) = (log q(a) - log q(b)) * T.
    plain = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 1, "temperature": 0, "logprobs": 5, "return_tokens_as_token_ids": True}
    raw = ask(job.url, plain, "/v1/completions")["choices"][0]["logprobs"]["top_logprobs"][0]
    first = {f"token_id:{token}": logprob for logprob, token, _ in meta["output_top_logprobs"][0]}
    names = list(first)
    for name in names[1:]:
        assert math.isclose((first[names[0]] - first[name]) * 0.7, raw[names[0]] - raw[name], abs_tol=2e-4)


def test_several_choices_are_a_list_in_order(job):
    body = {"input_ids": PROMPT, "rid": "mine", "sampling_params": {"max_new_tokens": 8, "n": 3, "sampling_seed": 3}}
    replies = ask(job.url, body)
    assert [reply["meta_info"]["id"] for reply in replies] == ["mine_0", "mine_1", "mine_2"]
    assert len({tuple(reply["output_ids"]) for reply in replies}) > 1
    assert replies == [{**old, "meta_info": new["meta_info"]} for old, new in zip(ask(job.url, body), replies, strict=True)], "seeded"


def test_a_batch_is_a_list_in_order(job):
    prompts = [PROMPT, PROMPT[:5], PROMPT[:8]]
    replies = ask(job.url, {"input_ids": prompts, "rid": ["a", "b", "c"], "sampling_params": GREEDY})
    assert [reply["meta_info"]["id"] for reply in replies] == ["a", "b", "c"]
    assert [reply["output_ids"] for reply in replies] == [completion(job.url, prompt, 24) for prompt in prompts]
    one = ask(job.url, {"input_ids": [PROMPT], "sampling_params": GREEDY})
    assert isinstance(one, list) and one[0]["output_ids"] == replies[0]["output_ids"]


def test_a_stop_string_and_a_stop_token_say_so(job):
    whole = ask(job.url, {"input_ids": PROMPT, "sampling_params": GREEDY})
    word = whole["text"][8:12]
    assert word in whole["text"]
    reply = ask(job.url, {"input_ids": PROMPT, "sampling_params": {**GREEDY, "stop": ["never so", word]}})
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": word}
    assert reply["text"] == whole["text"][: whole["text"].index(word)]
    kept = ask(job.url, {"input_ids": PROMPT, "sampling_params": {**GREEDY, "stop": word, "no_stop_trim": True}})
    assert kept["text"] == reply["text"] + word

    ids = whole["output_ids"]
    token = ids[5]
    stopped = ask(job.url, {"input_ids": PROMPT, "return_logprob": True, "sampling_params": {**GREEDY, "stop_token_ids": [token]}})
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}
    assert stopped["output_ids"] == ids[: ids.index(token) + 1], "the token that ended it is a part of the output"
    assert len(stopped["meta_info"]["output_token_logprobs"]) == len(stopped["output_ids"])


def test_streams_are_cumulative(job):
    body = {"input_ids": PROMPT, "return_logprob": True, "sampling_params": GREEDY}
    whole = ask(job.url, body)
    parts = events(job.url, body)
    assert len(parts) > 5
    for before, after in zip(parts, parts[1:]):
        assert after["text"].startswith(before["text"])
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert before["meta_info"]["finish_reason"] is None
    last = parts[-1]
    assert (last["text"], last["output_ids"]) == (whole["text"], whole["output_ids"])
    assert last["meta_info"]["output_token_logprobs"] == whole["meta_info"]["output_token_logprobs"]
    assert last["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]


def test_prompt_and_partial_output_go_on_as_if_uninterrupted(job):
    whole = ask(job.url, {"input_ids": PROMPT, "sampling_params": GREEDY})["output_ids"]
    for cut in (1, 7, 23):
        rest = ask(job.url, {"input_ids": PROMPT + whole[:cut], "sampling_params": {**GREEDY, "max_new_tokens": 24 - cut}})
        assert whole[:cut] + rest["output_ids"] == whole


@pytest.mark.parametrize(
    "body",
    [
        {"input_ids": [1], "text": "both"},
        {"sampling_params": {}},
        {"input_ids": "text"},
        {"input_ids": [1], "sampling_params": {"temperature": "hot"}},
        {"input_ids": [1], "sampling_params": {"max_new_tokens": "9"}},
        {"input_ids": [1], "sampling_params": {"max_new_tokens": 100000}},
        {"input_ids": [10**6], "sampling_params": GREEDY},
        {"input_ids": [1], "return_logprob": True, "logprob_start_len": 1},
        {"input_ids": [1], "sampling_params": {"stop_regex": "a+"}},
        {"input_ids": [1], "sampling_params": {"max_tokens": 2}},
        {"input_ids": [1], "max_new_tokens": 2},
    ],
)
def test_wrong_requests_get_400(job, body):
    assert ask(job.url, body, status=400)["error"]["message"]


def test_unknown_fields_are_ignored(job):
    ask(job.url, {"input_ids": PROMPT, "priority": 3, "odd": [{}], "sampling_params": {"max_new_tokens": 2, "odd": None}})


def test_nothing_is_held_afterwards(job):
    eventually(lambda: assert_idle(job), what="an idle job")
