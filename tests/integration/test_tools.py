"""Calls of tools: the official client's own example, streams, histories, choices, and what hostile tools do (nothing)."""

import json
import os
import signal

import httpx
import openai
import pytest

from conftest import MODEL as MODEL_FILE, WHOLE_MODEL, Process, eventually, get, running_job
from gguf_weights import with_chat_template

MODEL = "smollm2"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get current temperature for a given location.",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string", "maxLength": 24, "description": "City and country e.g. Bogotá, Colombia"}},
            "required": ["location"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
TIME = {"type": "function", "function": {"name": "get_time", "description": "The time now."}}
QUESTION = [{"role": "user", "content": "What is the weather like in Paris today?"}]
ASK = {"model": MODEL, "messages": QUESTION, "tools": [WEATHER, TIME], "temperature": 0, "max_tokens": 128}


@pytest.fixture(scope="module")
def job(folder):
    with running_job(folder, model=WHOLE_MODEL, prefill=1, decode=2, launcher="restart: {backoff_min: 50ms, backoff_max: 50ms}") as running:
        yield running


@pytest.fixture
def client(job):
    return openai.OpenAI(base_url=job.url + "/v1", api_key="none", max_retries=0, timeout=120)


def check_call(call):
    assert call.id.startswith("call_") and call.type == "function"
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert list(arguments) == ["location"] and len(arguments["location"]) <= 24
    else:
        assert (call.function.name, arguments) == ("get_time", {})
    return call.function.name, arguments


def test_the_official_example_works_as_it_is(client):
    """OpenAI's guide to function calling, with the model's name and one call that is certain."""
    tools = [WEATHER]
    messages = list(QUESTION)
    completion = client.chat.completions.create(model=MODEL, messages=messages, tools=tools, tool_choice="required",
                                                parallel_tool_calls=False, max_tokens=128)
    choice = completion.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    tool_call = choice.message.tool_calls[0]
    check_call(tool_call)

    messages.append(choice.message)
    messages.append({"role": "tool", "tool_call_id": tool_call.id, "content": "14"})
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=tools, tool_choice="none", max_tokens=24)
    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason in ("stop", "length")


def test_the_clients_helper_for_pydantic_tools_works(client):
    import pydantic

    class GetWeather(pydantic.BaseModel):
        city: str = pydantic.Field(max_length=24)
        days: int = pydantic.Field(ge=1, le=7)

    tool = openai.pydantic_function_tool(GetWeather)
    completion = client.chat.completions.parse(model=MODEL, messages=QUESTION, tools=[tool], tool_choice="required",
                                               parallel_tool_calls=False, max_tokens=128)
    parsed = completion.choices[0].message.tool_calls[0].function.parsed_arguments
    assert isinstance(parsed, GetWeather) and 1 <= parsed.days <= 7


@pytest.mark.parametrize("choice, sampling", [
    ("required", {"temperature": 0}), ({"type": "function", "function": {"name": "get_time"}}, {"temperature": 1, "seed": 5})])
def test_a_stream_has_the_call_of_the_whole_reply(client, choice, sampling):
    ask = {**ASK, **sampling, "tool_choice": choice, "parallel_tool_calls": False}
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.finish_reason == "tool_calls" and len(whole.message.tool_calls) == 1
    name, arguments = check_call(whole.message.tool_calls[0])
    if choice != "required":
        assert name == "get_time"
    events = list(client.chat.completions.create(**ask, stream=True))
    deltas = [call for event in events for call in event.choices[0].delta.tool_calls or []]
    assert [delta.index for delta in deltas] == [0] * len(deltas)
    assert deltas[0].id.startswith("call_") and deltas[0].type == "function" and deltas[0].function.name == name
    assert all(delta.id is None and delta.function.name is None for delta in deltas[1:])
    assert json.loads("".join(delta.function.arguments for delta in deltas)) == arguments
    assert not any(event.choices[0].delta.content for event in events)
    assert events[-1].choices[0].finish_reason == "tool_calls"

    with client.chat.completions.stream(**ask) as helped:
        for _ in helped:
            pass
        final = helped.get_final_completion().choices[0]
    assert final.message.tool_calls[0].function.name == name
    assert json.loads(final.message.tool_calls[0].function.arguments) == arguments


def test_auto_is_free_text_or_a_whole_call(client):
    """A small model may answer either way. With calls in the history, it calls again."""
    plain = client.chat.completions.create(**{**ASK, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}).choices[0]
    assert plain.message.content and plain.message.tool_calls is None
    history = []
    for city in ("Rome", "Oslo", "Lima"):
        call = {"id": "call_" + city, "type": "function",
                "function": {"name": "get_weather", "arguments": json.dumps({"location": city})}}
        history += [{"role": "user", "content": f"What is the weather in {city}?"}, {"role": "assistant", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": call["id"], "content": "14"}, {"role": "assistant", "content": "It is 14 degrees."}]
    ask = {**ASK, "messages": history + [{"role": "user", "content": "What is the weather in Paris?"}]}
    choice = client.chat.completions.create(**ask).choices[0]
    assert choice.finish_reason == "tool_calls", choice
    assert check_call(choice.message.tool_calls[0])[0] == "get_weather"
    assert "<tool_call>" not in (choice.message.content or "")


def test_several_calls_are_numbered(client):
    ask = {**ASK, "tools": [TIME], "tool_choice": "required", "n": 2, "temperature": 1, "seed": 3, "max_tokens": 64}
    reply = client.chat.completions.create(**ask)
    ids = set()
    for choice in reply.choices:
        # A call that max_tokens cuts has arguments without an end.
        whole = choice.message.tool_calls if choice.finish_reason == "tool_calls" else choice.message.tool_calls[:-1]
        assert choice.message.tool_calls
        for call in whole:
            check_call(call)
        ids |= {call.id for call in choice.message.tool_calls}
    assert len(ids) == sum(len(choice.message.tool_calls) for choice in reply.choices), "ids are unique"


def test_a_cut_call_says_so(client):
    choice = client.chat.completions.create(**{**ASK, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 20}).choices[0]
    assert choice.finish_reason == "length"


def test_both_legs_and_tokenize_render_the_same_prompt(job, client):
    body = {"model": MODEL, "messages": QUESTION, "tools": [WEATHER]}
    tokens = httpx.post(job.url + "/tokenize", json=body, timeout=60).json()
    reply = client.chat.completions.create(**{**body, "max_tokens": 1})
    assert reply.usage.prompt_tokens == tokens["count"]
    bare = httpx.post(job.url + "/tokenize", json={"model": MODEL, "messages": QUESTION}, timeout=60).json()
    assert tokens["count"] > bare["count"] + 50, "the tools are in the prompt"


def test_a_call_survives_its_decode_worker(job, client):
    """kill -9 in the middle of a call's arguments: the client still gets one whole call with one id."""
    tool = {"type": "function", "function": {"name": "write_essay", "parameters": {
        "type": "object", "properties": {"text": {"type": "string", "minLength": 60, "maxLength": 80}, "stars": {"type": "integer", "minimum": 1,
                                                                                                              "maximum": 5}},
        "required": ["text", "stars"]}}}
    ask = {"model": MODEL, "messages": QUESTION, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False,
           "temperature": 0, "max_tokens": 160}
    expected = client.chat.completions.create(**ask).choices[0].message.tool_calls[0].function.arguments
    killed, name, ids, arguments, finish = None, "", [], "", None
    eventually(lambda: all(process["state"] == "ready" for process in job.processes().values()), 60, "all ready")
    with httpx.stream("POST", job.url + "/v1/chat/completions", json={**ask, "stream": True}, timeout=120) as reply:
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            choice = json.loads(line[6:])["choices"][0]
            finish = choice["finish_reason"] or finish
            for call in choice["delta"].get("tool_calls", []):
                ids += [call["id"]] if "id" in call else []
                name += call["function"].get("name", "")
                arguments += call["function"]["arguments"]
            if len(arguments) > 10 and killed is None:
                killed = reply.headers["x-pdjob-decode"]
                os.kill(job.processes()[killed]["pid"], signal.SIGKILL)
    assert killed and name == "write_essay" and len(ids) == 1 and finish == "tool_calls"
    assert arguments == expected
    parsed = json.loads(arguments)
    assert 60 <= len(parsed["text"]) <= 80 and 1 <= parsed["stars"] <= 5
    eventually(lambda: all(process["state"] == "ready" for process in job.processes().values()), 60, "all ready")


TEMPLATE_WITH_TOOLS = """\
{%- if tools %}<|im_start|>system
TOOLS OF THE TEMPLATE:{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_a_template_that_knows_tools_renders_them(folder):
    model = with_chat_template(MODEL_FILE, folder + "/model.gguf", TEMPLATE_WITH_TOOLS)
    worker = Process(["pdjob", "worker", "--role", "both", "--model", model, "--listen", "127.0.0.1:0", "--set", "served_name=smollm2"], folder)
    try:
        url = worker.wait_ready().url
        call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"location": "Paris"}'}}
        messages = [*QUESTION, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "RESULT"}]
        tokens = httpx.post(url + "/tokenize", json={"messages": messages, "tools": [WEATHER]}, timeout=60).json()["tokens"]
        prompt = httpx.post(url + "/detokenize", json={"tokens": tokens}, timeout=60).json()["prompt"]
        assert "TOOLS OF THE TEMPLATE:" in prompt and "Get current temperature" in prompt
        assert '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Paris"}}\n</tool_call>' in prompt
        assert "<|im_start|>tool\nRESULT<|im_end|>" in prompt and "# Tools" not in prompt
        reply = httpx.post(url + "/v1/chat/completions", json={**ASK, "tool_choice": "required", "parallel_tool_calls": False}, timeout=120).json()
        assert reply["choices"][0]["finish_reason"] == "tool_calls"
    finally:
        code = worker.stop()
    assert code == 0, worker.log_tail()


def function(name="f", **fields):
    return {"type": "function", "function": {"name": name, **fields}}


def with_parameters(**properties):
    return function(parameters={"type": "object", "properties": properties})


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


# A kind of hostile tools -> the tools, and the field that the refusal names.
REFUSED = {
    "a name with control characters": ([function("a\x1b[31m\x00b")], "tools[0].function.name"),
    "a name that closes the prompt's turn": ([function("<|im_end|>")], "tools[0].function.name"),
    "a name of 65 characters": ([function("n" * 65)], "tools[0].function.name"),
    "129 tools": ([function(f"t{i}") for i in range(129)], "tools"),
    "two tools of one name": ([function(), function()], "tools[1].function.name"),
    "descriptions of 5 MiB": ([function(description="d" * 5_000_000)], "tools"),
    "60 levels of objects": ([with_parameters(a=nested(60))], None),
    "a strict tool with a reference to nothing": ([function(parameters={"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}, strict=True)], "tools"),
    "a schema that leads back to itself": (
        [function(parameters={"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}})], "tools"),
    "a strict tool with what cannot be held": (
        [function(parameters={"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}, strict=True)], "tools"),
    "5,000 properties": ([function(parameters={"type": "object", "properties": {f"p{i}": {} for i in range(5000)}})], "tools"),
    "a property of 60,000 characters": ([with_parameters(**{"a" * 60_000: {}})], "tools"),
}


@pytest.mark.parametrize("attack", REFUSED)
def test_hostile_tools_are_refused_and_hurt_nobody(job, client, attack):
    tools, field = REFUSED[attack]
    before = {name: process["pid"] for name, process in job.processes().items()}
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model=MODEL, messages=QUESTION, tools=tools, max_tokens=4)
    assert refusal.value.body["param"] == field, refusal.value.body
    assert len(refusal.value.body["message"]) < 500
    assert {name: process["pid"] for name, process in job.processes().items()} == before, "nobody died"
    assert client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=2).choices[0].message.content
    assert get(job.url + "/health")
