"""instructor. VARIANT: the name of a mode."""

import instructor
import openai
from shapes import CLOSING, MODEL, QUESTION, TOKENS, URL, VARIANT, GetWeather, Loose, Person, Visit

MODE = instructor.Mode[VARIANT]
client = instructor.from_openai(openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120), mode=MODE)
ASK = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": TOKENS, "max_retries": 0}
if "TOOLS" in VARIANT:
    ASK["parallel_tool_calls"] = False
SHAPES = [Person, Visit]
if VARIANT == "JSON":
    # It describes the schema in the prompt, and sends none.
    SHAPES = [Loose]
    ASK["logit_bias"] = CLOSING


def an_answer_is_a_model():
    for shape in SHAPES:
        assert isinstance(client.chat.completions.create(response_model=shape, **ASK), shape)


def an_answer_has_usage():
    told, completion = client.chat.completions.create_with_completion(response_model=SHAPES[0], **ASK)
    assert isinstance(told, SHAPES[0]) and completion.usage


def a_stream_fills_a_model():
    # Its streams take no enums.
    shape = Loose if VARIANT == "JSON" else GetWeather
    parts = list(client.chat.completions.create_partial(response_model=shape, **ASK))
    shape.model_validate(parts[-1].model_dump())


async def the_async_client_gets_a_model():
    async with openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120) as asynchronous:
        told = await instructor.from_openai(asynchronous, mode=MODE).chat.completions.create(response_model=SHAPES[0], **ASK)
    assert isinstance(told, SHAPES[0])
