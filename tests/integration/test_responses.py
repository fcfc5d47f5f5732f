"""OpenAI's Responses API, with the official client and the router of a disaggregated job."""

import json
import os
import signal

import httpx
import openai
import pydantic
import pytest

from conftest import WHOLE_MODEL, assert_idle, eventually, metric, running_job

MODEL = "smollm2"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get current temperature for a given location.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "maxLength": 24}},
        "required": ["location"],
        "additionalProperties": False,
    },
    "strict": True,
}
SKY = {"model": MODEL, "input": "Why is the sky blue?", "max_output_tokens": 24, "temperature": 0}
LONG = {"ignore_eos": True}
CALL = {"model": MODEL, "input": "What is the weather like in Paris today?", "tools": [WEATHER], "tool_choice": "required",
        "parallel_tool_calls": False, "temperature": 0, "max_output_tokens": 128}


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=1, le=99)


@pytest.fixture(scope="module")
def job(folder):
    with running_job(folder, model=WHOLE_MODEL, decode=2, launcher="restart: {backoff_min: 50ms, backoff_max: 50ms}") as running:
        yield running


def all_ready(job):
    return all(process["state"] == "ready" for process in job.processes().values())


def check_stream(events):
    """The rules of any stream: numbers, one response around items one after another. Returns the last response."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type in ("response.completed", "response.incomplete")
    open_items, texts = [], {}
    for event in events[2:-1]:
        if event.type == "response.output_item.added":
            open_items.append(event.item.id)
            assert event.output_index == len(open_items) - 1
        elif event.type == "response.output_item.done":
            assert event.item.id == open_items[-1]
            text = event.item.content[0].text if event.item.type == "message" else event.item.arguments
            assert text == texts.get(event.item.id, "")
        else:
            assert event.item_id == open_items[-1]
            if event.type.endswith(".delta"):
                texts[event.item_id] = texts.get(event.item_id, "") + event.delta
    last = events[-1].response
    assert [item.id for item in last.output] == open_items
    return last


def test_create_answers_as_a_chat_does(job, client):
    before = metric(job.url, "pdjob_router_requests_total", outcome="ok")
    response = client.responses.create(**SKY, instructions="Be brief.", metadata={"a": "b"}, extra_body=LONG)
    chat = client.chat.completions.create(
        model=MODEL, max_tokens=24, temperature=0, extra_body=LONG,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": SKY["input"]}])
    assert response.output_text == chat.choices[0].message.content
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert (response.usage.output_tokens, response.usage.total_tokens) == (24, 24 + response.usage.input_tokens)
    assert (response.model, response.instructions, response.metadata) == (MODEL, "Be brief.", {"a": "b"})
    assert response.id.startswith("resp_") and response.output[0].id.startswith("msg_")
    eventually(lambda: metric(job.url, "pdjob_router_requests_total", outcome="ok") >= before + 2, 30, "both are counted, beside probes")


def test_a_stream_is_the_whole_response_in_parts(client):
    whole = client.responses.create(**SKY)
    last = check_stream(list(client.responses.create(**SKY, stream=True)))
    assert last.output_text == whole.output_text
    assert last.usage.output_tokens == whole.usage.output_tokens
    with client.responses.stream(**SKY, extra_body={"stop": ["e"]}) as helped:  # It knows no response that was cut.
        for _ in helped:
            pass
        assert whole.output_text.startswith(helped.get_final_response().output_text)


def test_logprobs_come_with_each_text(client):
    events = list(client.responses.create(**SKY, stream=True, top_logprobs=2, include=["message.output_text.logprobs"], extra_body=LONG))
    last = check_stream(events)
    of_deltas = [one for event in events if event.type == "response.output_text.delta" for one in event.logprobs]
    assert len(of_deltas) == 24 and last.output[0].content[0].logprobs == []
    whole = client.responses.create(**SKY, top_logprobs=2, extra_body=LONG).output[0].content[0].logprobs
    assert [(one.token, one.logprob) for one in whole] == [(one.token, one.logprob) for one in of_deltas]
    assert all(len(one.top_logprobs) == 2 for one in of_deltas)


def test_parse_returns_a_pydantic_model(client):
    parsed = client.responses.parse(model=MODEL, input="Describe a person as JSON.", text_format=Person, max_output_tokens=128).output_parsed
    assert isinstance(parsed, Person) and 1 <= parsed.age <= 99
    with client.responses.stream(model=MODEL, input="Describe a person.", text_format=Person, max_output_tokens=128) as helped:
        for _ in helped:
            pass
        assert isinstance(helped.get_final_response().output_parsed, Person)


def test_a_function_is_called_and_its_result_comes_back(client):
    conversation = [{"role": "user", "content": CALL["input"]}]
    response = client.responses.create(**{**CALL, "input": conversation})
    [call] = response.output
    assert (response.status, call.type, call.name, call.status) == ("completed", "function_call", "get_weather", "completed")
    assert list(json.loads(call.arguments)) == ["location"]
    # As the client's own guide does it: the items go back as they came.
    conversation += response.output
    conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": "14 degrees"})
    answer = client.responses.create(**{**CALL, "input": conversation, "tool_choice": "none", "max_output_tokens": 24})
    assert answer.output_text and [item.type for item in answer.output] == ["message"]
    history = [{"role": "user", "content": CALL["input"]},
               {"role": "assistant", "tool_calls": [{"id": call.call_id, "type": "function",
                                                     "function": {"name": call.name, "arguments": call.arguments}}]},
               {"role": "tool", "tool_call_id": call.call_id, "content": "14 degrees"}]
    chat = client.chat.completions.create(model=MODEL, messages=history, temperature=0, max_tokens=24)
    assert answer.output_text == chat.choices[0].message.content, "both are the same prompt"


def test_a_stream_has_the_call_of_the_whole_response(client):
    [call] = client.responses.create(**CALL).output
    events = list(client.responses.create(**CALL, stream=True))
    [streamed] = check_stream(events).output
    assert (streamed.name, streamed.arguments) == (call.name, call.arguments)
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert [event.arguments for event in done] == [call.arguments]


@pytest.mark.parametrize("field, param", [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"background": True}, "background"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
    ({"max_output_tokens": 100000}, "max_output_tokens"),
    ({"tools": [{**WEATHER, "parameters": {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}}]}, "tools"),
])
def test_what_is_not_supported_is_refused_by_name(client, field, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**{**SKY, **field})
    assert refused.value.param == param


def test_no_response_is_stored(client):
    response = client.responses.create(**SKY, store=True)
    assert response.store is False
    with pytest.raises(openai.NotFoundError, match="No response is stored"):
        client.responses.retrieve(response.id)


ESSAY = {"type": "function", "name": "write_essay", "parameters": {
    "type": "object", "properties": {"text": {"type": "string", "minLength": 60, "maxLength": 80}}, "required": ["text"]}}


@pytest.mark.parametrize("fields", [
    {**SKY, "max_output_tokens": 40},
    {**SKY, "max_output_tokens": 40, "temperature": 0.9, "top_logprobs": 1, "extra_body": {"seed": 11}},
    {**CALL, "tools": [ESSAY], "max_output_tokens": 160},
])
def test_a_stream_survives_its_decode_worker(job, client, fields):
    """kill -9 in the middle of a stream: no event is lost, repeated or numbered twice."""
    def stream(kill_at=None):
        killed = None
        with client.responses.with_streaming_response.create(**fields, stream=True, extra_headers={"x-request-id": "one"}) as reply:
            events = []
            for line in reply.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line[6:]))
                    if len(events) == kill_at:
                        killed = reply.headers["x-pdjob-decode"]
                        os.kill(job.processes()[killed]["pid"], signal.SIGKILL)
        assert (killed is None) == (kill_at is None)
        calls = {}
        for event in events:
            if "response" in event:  # These differ from request to request.
                del event["response"]["created_at"], event["response"]["completed_at"]
                (event["response"]["usage"] or {}).pop("input_tokens_details", None)
            for item in [event.get("item"), *event.get("response", {}).get("output", [])]:
                if item and "call_id" in item:
                    calls.setdefault(item["id"], set()).add(item.pop("call_id"))
        assert all(len(ids) == 1 for ids in calls.values()), "a call keeps its id"
        return events

    undisturbed = stream()
    assert [event["sequence_number"] for event in undisturbed] == list(range(len(undisturbed)))
    continued = metric(job.url, "pdjob_router_continuations_total")
    for kill_at in range(5, len(undisturbed) - 6, 7):
        eventually(lambda: all_ready(job), 60, "all ready")
        assert stream(kill_at) == undisturbed, f"killed after {kill_at} events"
        if metric(job.url, "pdjob_router_continuations_total") >= continued + 2:
            break
    assert metric(job.url, "pdjob_router_continuations_total") > continued
    eventually(lambda: all_ready(job), 60, "all ready")
    eventually(lambda: assert_idle(job), 30, "no rows left in use")


def test_a_conversation_goes_on_with_the_prompt_of_a_chat(client):
    conversation = [{"role": "user", "content": "Tell me about rivers."}]
    first = client.responses.create(**{**SKY, "input": conversation})
    second = client.responses.create(**{**SKY, "input": [*conversation, *first.output, {"role": "user", "content": "And?"}]})
    chat = client.chat.completions.create(
        model=MODEL, max_tokens=24, temperature=0,
        messages=[*conversation, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "And?"}])
    assert second.usage.input_tokens == chat.usage.prompt_tokens
    assert second.output_text == chat.choices[0].message.content


def test_an_aborted_stream_is_cancelled(job, client):
    fields = {**SKY, "max_output_tokens": 400, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", job.url + "/v1/responses", json=fields, headers={"x-request-id": "stop-me"}, timeout=60) as reply:
        events = []
        for line in reply.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
                if len(events) == 6:
                    assert httpx.post(job.url + "/abort_requests", json={"request_ids": ["stop-me"]}, timeout=10).status_code == 200
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["status"] == "cancelled"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
