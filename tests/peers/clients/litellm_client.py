"""LiteLLM's SDK, as programs and its proxy use it for any OpenAI-compatible server."""

import json

import litellm
import openai
from shapes import CLOSING, MODEL, QUESTION, TOKENS, URL, GetTime, GetWeather, Person, Visit

litellm.telemetry = False
ASK = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": "none", "messages": QUESTION, "temperature": 0, "num_retries": 0, "timeout": 120}
TOOLS = [openai.pydantic_function_tool(GetWeather), openai.pydantic_function_tool(GetTime)]
# Otherwise the model would call on and on.
CALL = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": TOKENS}
NAMED = {"type": "function", "function": {"name": "GetWeather"}}
RESPONSE = {**ASK, "input": QUESTION[0]["content"]}
del RESPONSE["messages"]


def check_calls(calls):
    assert calls
    for call in calls:
        {"GetWeather": GetWeather, "GetTime": GetTime}[call.function.name].model_validate_json(call.function.arguments)


def an_answer_has_a_text_and_usage():
    reply = litellm.completion(**ASK, max_tokens=16)
    assert reply.choices[0].message.content and reply.usage.completion_tokens > 0


def a_stream_has_a_text_and_usage():
    chunks = list(litellm.completion(**ASK, max_tokens=16, stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    assert whole.choices[0].message.content and whole.choices[0].finish_reason in ("stop", "length")
    assert chunks[-1].usage.completion_tokens > 0 and whole.usage.completion_tokens == chunks[-1].usage.completion_tokens


async def the_async_client_streams():
    stream = await litellm.acompletion(**ASK, max_tokens=16, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


def a_response_format_gives_a_model():
    for shape in (Person, Visit):
        reply = litellm.completion(**ASK, response_format=shape, max_tokens=TOKENS)
        shape.model_validate_json(reply.choices[0].message.content)


def json_mode_gives_json():
    reply = litellm.completion(**ASK, response_format={"type": "json_object"}, logit_bias=CLOSING, max_tokens=TOKENS)
    assert isinstance(json.loads(reply.choices[0].message.content), dict)


def a_tool_is_called_and_its_result_goes_back():
    reply = litellm.completion(**ASK, **CALL)
    message = reply.choices[0].message
    check_calls(message.tool_calls)
    assert reply.choices[0].finish_reason == "tool_calls"
    messages = [*QUESTION, message, *({"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": "14"} for call in message.tool_calls)]
    answer = litellm.completion(**{**ASK, "messages": messages}, tools=TOOLS, tool_choice="none", max_tokens=8)
    assert not answer.choices[0].message.tool_calls and answer.choices[0].finish_reason in ("stop", "length")


def a_streamed_call_is_put_together():
    chunks = list(litellm.completion(**ASK, **{**CALL, "tool_choice": NAMED}, stream=True))
    whole = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    check_calls(whole.choices[0].message.tool_calls)
    assert [call.function.name for call in whole.choices[0].message.tool_calls] == ["GetWeather"]


def a_response_has_a_text_and_usage():
    response = litellm.responses(**RESPONSE, max_output_tokens=16)
    assert response.output[0].content[0].text and response.usage.output_tokens > 0


def a_response_streams():
    events = list(litellm.responses(**RESPONSE, max_output_tokens=16, stream=True))
    assert any(event.type == "response.output_text.delta" for event in events)
    assert events[-1].type in ("response.completed", "response.incomplete"), events[-1]


def a_response_calls_a_function():
    tool = {"type": "function", **openai.pydantic_function_tool(GetWeather)["function"]}
    response = litellm.responses(**RESPONSE, tools=[tool], tool_choice="required", parallel_tool_calls=False, max_output_tokens=TOKENS)
    GetWeather.model_validate_json(response.output[0].arguments)
