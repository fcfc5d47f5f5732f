"""LangChain's ChatOpenAI. VARIANT: chat or responses."""

import typing

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from shapes import CLOSING, MODEL, OPENING, QUESTION, TOKENS, URL, VARIANT, GetTime, GetWeather, Loose, Person, Visit

TEXT = QUESTION[0]["content"]


def chat(tokens=TOKENS, **more):
    more.setdefault("temperature", 0)
    return ChatOpenAI(model=MODEL, base_url=URL, api_key="none", max_retries=0, timeout=120, max_tokens=tokens, stream_usage=True,
                      use_responses_api=VARIANT == "responses", **more)


def check_calls(message):
    assert message.tool_calls and not message.invalid_tool_calls, message
    for call in message.tool_calls:
        {"GetWeather": GetWeather, "GetTime": GetTime}[call["name"]].model_validate(call["args"])


def an_answer_has_a_text_and_usage():
    message = chat(16).invoke(TEXT)
    assert message.text and message.usage_metadata["output_tokens"] > 0, message


def a_stream_has_a_text_and_usage():
    whole = None
    for chunk in chat(16).stream(TEXT):
        whole = chunk if whole is None else whole + chunk
    assert whole.text and whole.usage_metadata["output_tokens"] > 0, whole
    assert whole.chunk_position == "last"


async def several_answers_come_at_once():
    messages = await chat(8).abatch([TEXT, "Hello.", "Bye."])
    assert len(messages) == 3 and all(message.text for message in messages)
    events = [event["event"] async for event in chat(8).astream_events(TEXT)]
    assert "on_chat_model_stream" in events and events[-1] == "on_chat_model_end"


def json_schema_gives_a_model():
    for shape in (Person, Visit):
        assert isinstance(chat().with_structured_output(shape, method="json_schema").invoke(TEXT), shape)


def json_schema_streams_a_model():
    assert isinstance(list(chat().with_structured_output(Person, method="json_schema").stream(TEXT))[-1], Person)


def a_strict_json_schema_gives_a_model():
    assert isinstance(chat().with_structured_output(Person, method="json_schema", strict=True).invoke(TEXT), Person)


def function_calling_gives_a_model():
    for strict in (None, True):
        assert isinstance(chat().with_structured_output(Person, method="function_calling", strict=strict).invoke(TEXT), Person)


def function_calling_with_a_schema_gives_a_dict():
    told = chat().with_structured_output(Visit.model_json_schema(), method="function_calling").invoke(TEXT)
    Visit.model_validate(told)


def json_mode_gives_json():
    told = chat(extra_body={"logit_bias": CLOSING}).with_structured_output(Loose, method="json_mode").invoke(TEXT + " Answer in JSON.")
    assert isinstance(told, Loose), told


def a_tool_is_called_and_its_result_goes_back():
    bound = chat().bind_tools([GetWeather, GetTime], tool_choice="any", parallel_tool_calls=False)
    messages = [HumanMessage(TEXT), bound.invoke(TEXT)]
    check_calls(messages[1])
    messages += [ToolMessage("14 degrees", tool_call_id=call["id"]) for call in messages[1].tool_calls]
    answer = chat(8).bind_tools([GetWeather, GetTime], tool_choice="none").invoke(messages)
    assert not answer.tool_calls and answer.usage_metadata["input_tokens"] > 0


def a_named_strict_tool_streams():
    whole = None
    for chunk in chat().bind_tools([GetWeather, GetTime], tool_choice="GetWeather", strict=True, parallel_tool_calls=False).stream(TEXT):
        whole = chunk if whole is None else whole + chunk
    check_calls(whole)
    assert [call["name"] for call in whole.tool_calls] == ["GetWeather"] and whole.usage_metadata["output_tokens"] > 0


def an_agent_answers_by_a_tool():
    agent = create_agent(chat(model_kwargs={"parallel_tool_calls": False}), tools=[], response_format=ToolStrategy(Person))
    assert isinstance(agent.invoke({"messages": QUESTION})["structured_response"], Person)


def an_agent_with_tools_answers_in_a_format():
    def get_time(zone: typing.Literal["UTC", "CET"]) -> str:
        """Gets the time."""
        return "12:00"

    agent = create_agent(chat(extra_body={"logit_bias": OPENING}), tools=[get_time], response_format=ProviderStrategy(Person))
    assert isinstance(agent.invoke({"messages": QUESTION})["structured_response"], Person)
