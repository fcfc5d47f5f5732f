"""pydantic-ai. VARIANT: chat or responses."""

import typing

from pydantic_ai import Agent, NativeOutput, PromptedOutput, Tool, ToolOutput
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from shapes import CLOSING, MODEL, OPENING, QUESTION, TOKENS, URL, VARIANT, Loose, Person, Visit

TEXT = QUESTION[0]["content"]


def agent(output_type=str, tokens=TOKENS, bias=None, **more):
    model = (OpenAIResponsesModel if VARIANT == "responses" else OpenAIChatModel)(MODEL, provider=OpenAIProvider(base_url=URL, api_key="none"))
    settings = {"temperature": 0, "max_tokens": tokens, "timeout": 120, "parallel_tool_calls": False}
    if bias:
        settings["extra_body"] = {"logit_bias": bias}
    return Agent(model, output_type=output_type, model_settings=settings, retries=0, **more)


class Once:
    """A tool that the model sees until it has called it: a model without sense would call it again and again."""

    def __init__(self):
        self.called = 0

    def tool(self):
        return Tool(self.get_weather, prepare=self.prepare)

    async def prepare(self, context, definition):
        return None if self.called else definition

    def get_weather(self, city: typing.Literal["Paris", "Rome"], days: typing.Literal[1, 2]) -> str:
        """Gets the weather of a city."""
        self.called += 1
        return "14 degrees"


async def an_answer_has_a_text_and_usage():
    told = await agent(tokens=16).run(TEXT)
    assert told.output and told.usage.output_tokens > 0 and told.usage.input_tokens > 0


async def a_stream_has_a_text_and_usage():
    async with agent(tokens=16).run_stream(TEXT) as told:
        parts = [part async for part in told.stream_text(delta=True)]
    assert "".join(parts) and told.usage.output_tokens > 0


async def an_output_tool_gives_a_model():
    for shape in (Person, Visit):
        assert isinstance((await agent(shape).run(TEXT)).output, shape)


async def one_of_two_output_tools_gives_a_model():
    told = await agent([ToolOutput(Person, name="person"), ToolOutput(Visit, name="visit")]).run(TEXT)
    assert isinstance(told.output, (Person, Visit))


async def an_output_tool_streams_a_model():
    async with agent(Person).run_stream(TEXT) as told:
        parts = [part async for part in told.stream_output()]
        assert isinstance(await told.get_output(), Person) and parts and told.usage.output_tokens > 0


async def native_output_gives_a_model():
    for shape in (Person, Visit):
        assert isinstance((await agent(NativeOutput(shape)).run(TEXT)).output, shape)


async def native_output_streams_a_model():
    async with agent(NativeOutput(Person, strict=True)).run_stream(TEXT) as told:
        async for _ in told.stream_output():
            pass
        assert isinstance(await told.get_output(), Person)


async def native_output_may_come_with_tools():
    once = Once()
    told = await agent(NativeOutput(Person), bias=OPENING, tools=[once.tool()]).run(TEXT)
    assert isinstance(told.output, Person)


async def prompted_output_gives_a_model():
    assert isinstance((await agent(PromptedOutput(Loose), bias=CLOSING).run(TEXT)).output, Loose)


async def a_tool_is_called_and_its_result_goes_back():
    once = Once()
    told = await agent(Person, tools=[once.tool()]).run(TEXT)
    parts = [part for message in told.all_messages() for part in message.parts]
    assert isinstance(told.output, Person) and once.called
    calls = {part.tool_call_id for part in parts if isinstance(part, ToolCallPart)}
    assert calls == {part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)}


async def an_agents_stream_has_its_events():
    once = Once()
    kinds = []
    async with agent(Person, tools=[once.tool()]).run_stream_events(TEXT) as events:
        async for event in events:
            kinds.append(event.event_kind)
    assert {"part_start", "part_delta", "agent_run_result"} <= set(kinds), kinds
