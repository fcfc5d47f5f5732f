"""The official `openai` client with the router of a disaggregated job."""

import json
import threading
import time

import openai
import pytest

from conftest import WHOLE_MODEL, assert_idle, eventually, get, metric, running_job

MODEL = "smollm2"


@pytest.fixture(scope="module")
def job(folder):
    with running_job(folder, model=WHOLE_MODEL) as running:
        yield running


def test_lists_the_model(client):
    assert [model.id for model in client.models.list()] == [MODEL]


def test_chat_answers(client):
    reply = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Why is the sky blue?"}], max_tokens=24, temperature=0
    )
    assert "light" in reply.choices[0].message.content
    assert reply.choices[0].message.role == "assistant"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_completion_answers(client):
    reply = client.completions.create(model=MODEL, prompt="One, two, three,", max_tokens=8, temperature=0)
    assert "four" in reply.choices[0].text
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 8


@pytest.mark.parametrize("seeded", [{"temperature": 0}, {"temperature": 1, "seed": 11}])
def test_a_stream_is_the_whole_reply_in_parts(client, seeded):
    ask = dict(model=MODEL, messages=[{"role": "user", "content": "Count to five."}], max_tokens=24, **seeded)
    whole = client.chat.completions.create(**ask)
    events = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == whole.choices[0].message.content
    assert events[0].choices[0].delta.role == "assistant"
    assert [e.choices[0].finish_reason for e in events if e.choices][-1] == whole.choices[0].finish_reason
    kept = {"prompt_tokens_details"}  # What a worker had kept of the prompt.
    assert events[-1].usage.model_dump(exclude=kept) == whole.usage.model_dump(exclude=kept)


def test_stream_never_splits_a_character(client):
    """A unicorn is three tokens. A part of one would be a replacement character, or a lone surrogate."""
    ask = dict(model=MODEL, prompt="🦄" * 8, max_tokens=30, temperature=0)
    whole = client.completions.create(**ask).choices[0].text
    assert whole == "🦄" * 10
    pieces = [event.choices[0].text for event in client.completions.create(**ask, stream=True)]
    assert "".join(pieces) == whole
    for piece in pieces:
        assert "\ufffd" not in piece
        piece.encode()  # Fails on lone surrogates.


def test_several_choices_differ_and_are_numbered(client):
    reply = client.completions.create(model=MODEL, prompt="My favourite colour is", n=3, max_tokens=8, temperature=1.2, seed=5,
                                      extra_body={"ignore_eos": True})
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert len({choice.text for choice in reply.choices}) > 1
    assert reply.usage.completion_tokens == 24


def test_several_prompts_are_answered_in_order(client):
    reply = client.completions.create(model=MODEL, prompt=["One, two,", "Red, green,"], max_tokens=4, temperature=0)
    alone = [client.completions.create(model=MODEL, prompt=p, max_tokens=4, temperature=0).choices[0].text for p in ["One, two,", "Red, green,"]]
    assert [choice.text for choice in reply.choices] == alone


def test_text_ends_before_the_stop_string(client):
    reply = client.completions.create(model=MODEL, prompt="One, two, three,", max_tokens=32, temperature=0, stop=["six"])
    assert reply.choices[0].finish_reason == "stop"
    assert "five" in reply.choices[0].text and "six" not in reply.choices[0].text


def test_same_seed_same_text_other_seed_other_text(client):
    def draw(seed):
        return client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=16, temperature=1, seed=seed).choices[0].text

    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(4)}) > 1


def test_logprobs_of_chat_and_completion(client):
    chat = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    content = chat.choices[0].logprobs.content
    assert len(content) >= 1
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob == max(t.logprob for t in token.top_logprobs)
        assert token.top_logprobs[0].token == token.token, "greedy takes the most likely"
    completion = client.completions.create(model=MODEL, prompt="One, two,", max_tokens=4, temperature=0, logprobs=2)
    logprobs = completion.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 4
    assert "".join(logprobs.tokens) == completion.choices[0].text


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "seed": 2}])
def test_json_schema_is_obeyed(client, sampling):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "population": {"type": "integer"}},
        "required": ["city", "population"],
        "additionalProperties": False,
    }
    reply = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Name a city and its population."}],
        response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}},
        max_tokens=64,
        **sampling,
    )
    answer = json.loads(reply.choices[0].message.content)
    assert set(answer) == {"city", "population"} and isinstance(answer["population"], int)


def test_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as error:
        client.completions.create(model="gpt-17", prompt="Hi")
    assert error.value.code == "model_not_found"


@pytest.mark.parametrize(
    "field, value",
    [("temperature", 3), ("top_p", -1), ("n", 0), ("max_tokens", -2), ("stop", ["a"] * 99), ("logit_bias", {"1": 1000}), ("presence_penalty", 5)],
)
def test_values_out_of_range_name_their_field(client, field, value):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model=MODEL, prompt="Hi", **{field: value})
    assert error.value.body["param"].split(".")[0] == field
    assert error.value.body["type"] == "invalid_request_error"


def test_prompt_longer_than_the_context_is_refused(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model=MODEL, prompt=[5] * 3000, max_tokens=4)
    assert error.value.code == "context_length_exceeded"


def test_impossible_schema_is_refused_and_harms_nobody(client):
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hi"}],
            response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"$ref": "#/nowhere"}}},
        )
    assert client.completions.create(model=MODEL, prompt="One, two,", max_tokens=2).choices[0].text


def test_leaving_a_stream_frees_everything(client, job):
    stream = client.completions.create(model=MODEL, prompt="Tell me a long story.", max_tokens=1500, stream=True, extra_body={"ignore_eos": True})
    for index, _ in enumerate(stream):
        if index == 3:
            stream.close()
            break
    eventually(lambda: assert_idle(job), what="rows of the cancelled request freed")
    decode = next(p["url"] for p in job.processes().values() if p["role"] == "decode")
    assert metric(decode, "pdjob_requests_total", outcome="cancelled") >= 1


def test_cancelling_during_prefill_frees_everything(client, job):
    impatient = client.with_options(timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        impatient.completions.create(model=MODEL, prompt=[7] * 1500, max_tokens=100)
    eventually(lambda: assert_idle(job), what="rows of the cancelled request freed")


def test_many_at_once_are_all_answered(client):
    texts = {}

    def ask(index):
        texts[index] = client.completions.create(model=MODEL, prompt=f"Number {index}:", max_tokens=8, temperature=0).choices[0].text

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(24)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(texts) == 24 and all(texts.values())


def test_health_and_models_say_what_is_served(job):
    assert get(job.url + "/health")
    assert json.loads(get(job.url + "/v1/models"))["data"][0]["id"] == MODEL
    started = time.monotonic()
    assert "pdjob_" in get(job.url + "/metrics")
    assert time.monotonic() - started < 5
