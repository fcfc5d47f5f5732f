"""OpenAI's Python client."""

import json

import openai
from shapes import MODEL, QUESTION, TOKENS, URL, GetTime, GetWeather, Person, Visit

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)
CHAT = {"model": MODEL, "messages": QUESTION, "temperature": 0}
RESPONSE = {"model": MODEL, "input": QUESTION[0]["content"], "temperature": 0}
TOOLS = [openai.pydantic_function_tool(GetWeather), openai.pydantic_function_tool(GetTime)]
# Otherwise the model would call on and on.
CALL = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": TOKENS}
RESPONSES_TOOLS = [openai.pydantic_responses_function_tool(GetWeather), openai.pydantic_responses_function_tool(GetTime)]
RESPONSES_CALL = {"tools": RESPONSES_TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
NAMED = {"type": "function", "function": {"name": "GetWeather"}}


def a_chat_has_a_text_a_reason_and_usage():
    reply = client.chat.completions.create(**CHAT, max_tokens=8)
    assert reply.choices[0].message.content and reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def a_stream_has_a_text_a_reason_and_usage():
    chunks = list(client.chat.completions.create(**CHAT, max_tokens=8, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] in ("stop", "length")
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


def parse_returns_nested_models():
    reply = client.chat.completions.parse(**CHAT, response_format=Person, max_tokens=TOKENS)
    assert isinstance(reply.choices[0].message.parsed, Person), reply


def parse_returns_dates_and_unions():
    reply = client.chat.completions.parse(**CHAT, response_format=Visit, max_completion_tokens=TOKENS)
    assert isinstance(reply.choices[0].message.parsed, Visit), reply


def the_stream_helper_parses():
    with client.chat.completions.stream(**CHAT, response_format=Person, max_tokens=TOKENS, stream_options={"include_usage": True}) as stream:
        kinds = {event.type: event for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= set(kinds)
    assert isinstance(kinds["content.done"].parsed, Person) and final.choices[0].message.parsed == kinds["content.done"].parsed
    assert final.usage.completion_tokens > 0


def a_tool_is_called_and_its_result_goes_back():
    messages = list(QUESTION)
    reply = client.chat.completions.parse(**{**CHAT, "messages": messages}, **CALL)
    assert reply.choices[0].finish_reason == "tool_calls"
    message = reply.choices[0].message
    for call in message.tool_calls:
        assert isinstance(call.function.parsed_arguments, (GetWeather, GetTime))
    messages.append(message)
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "14 degrees"} for call in message.tool_calls]
    answer = client.chat.completions.create(**{**CHAT, "messages": messages}, tools=TOOLS, tool_choice="none", max_tokens=8)
    assert answer.choices[0].message.tool_calls is None and answer.choices[0].finish_reason in ("stop", "length")


def the_stream_helper_parses_a_named_tools_arguments():
    with client.chat.completions.stream(**CHAT, **{**CALL, "tool_choice": NAMED}) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    assert [event.name for event in done] == ["GetWeather"] and isinstance(done[0].parsed_arguments, GetWeather)
    assert isinstance(final.message.tool_calls[0].function.parsed_arguments, GetWeather)


def an_answer_format_may_come_with_tools():
    reply = client.chat.completions.parse(**CHAT, **{**CALL, "tool_choice": "auto"}, response_format=Person)
    message = reply.choices[0].message
    assert isinstance(message.parsed, Person) or message.tool_calls[0].function.parsed_arguments


async def the_async_client_streams_and_parses():
    async with openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120) as asynchronous:
        reply = await asynchronous.chat.completions.parse(**CHAT, response_format=Person, max_tokens=TOKENS)
        assert isinstance(reply.choices[0].message.parsed, Person)
        async with asynchronous.chat.completions.stream(**CHAT, response_format=Visit, max_tokens=TOKENS) as stream:
            final = await stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Visit) and final.choices[0].finish_reason == "stop"


def a_refused_schema_is_a_bad_request():
    try:
        client.chat.completions.create(**CHAT, max_tokens=8, response_format={
            "type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {"type": "array", "uniqueItems": True}}})
    except openai.BadRequestError as error:
        assert error.type == "invalid_request_error" and "uniqueItems" in error.message, error
    else:
        raise AssertionError("it was not refused")


def a_response_has_a_text_and_usage():
    response = client.responses.create(**RESPONSE, max_output_tokens=16)
    assert response.output_text and response.status in ("completed", "incomplete")
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def a_response_streams():
    events = list(client.responses.create(**RESPONSE, max_output_tokens=16, stream=True))
    last = events[-1].response
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == last.output_text
    assert events[-1].type in ("response.completed", "response.incomplete") and last.usage.output_tokens > 0


def a_response_parses():
    response = client.responses.parse(**RESPONSE, text_format=Person, max_output_tokens=TOKENS)
    assert isinstance(response.output_parsed, Person), response
    with client.responses.stream(**RESPONSE, text_format=Visit, max_output_tokens=TOKENS) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Visit)


def a_response_calls_a_function_and_gets_its_result():
    conversation = list(QUESTION)
    response = client.responses.create(**{**RESPONSE, "input": conversation}, **RESPONSES_CALL, max_output_tokens=TOKENS)
    calls = [item for item in response.output if item.type == "function_call"]
    for call in calls:
        {"GetWeather": GetWeather, "GetTime": GetTime}[call.name].model_validate_json(call.arguments)
    conversation += response.output
    conversation += [{"type": "function_call_output", "call_id": call.call_id, "output": json.dumps({"celsius": 14})} for call in calls]
    answer = client.responses.create(**{**RESPONSE, "input": conversation}, **{**RESPONSES_CALL, "tool_choice": "none"}, max_output_tokens=16)
    assert calls and answer.output and not any(item.type == "function_call" for item in answer.output)


def a_response_streams_a_function_call():
    with client.responses.stream(**RESPONSE, **RESPONSES_CALL, max_output_tokens=TOKENS) as stream:
        kinds = [event.type for event in stream]
        [call] = stream.get_final_response().output
    assert "response.function_call_arguments.done" in kinds
    assert isinstance(call.parsed_arguments, {"GetWeather": GetWeather, "GetTime": GetTime}[call.name])
