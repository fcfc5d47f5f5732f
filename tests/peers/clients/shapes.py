"""What the Python clients ask for. Each text has a bound, because the model makes no sense and would fill any."""

import datetime
import enum
import sys
import typing
import uuid

import pydantic

URL = sys.argv[2] + "/v1"
VARIANT = sys.argv[3]
MODEL = "smollm2"
QUESTION = [{"role": "user", "content": "What is the weather like in Paris today?"}]
# More than any answer of these shapes needs.
TOKENS = 1000
# Biases to the tokens } and {. With }, JSON without a schema ends at once. With {, an answer in JSON comes before any call of a tool.
CLOSING = {"109": 100}
OPENING = {"107": 100}


class Mood(enum.Enum):
    CALM = "calm"
    MERRY = "merry"


class Address(pydantic.BaseModel):
    """Where somebody lives."""

    street: str = pydantic.Field(max_length=12, description="Without a number.")
    number: int = pydantic.Field(ge=1, le=999)


class Person(pydantic.BaseModel):
    """A nested shape with references, a union with null and two kinds of enums."""

    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(gt=0, lt=100)
    mood: Mood
    pet: typing.Literal["cat", "dog"]
    home: Address | None
    others: list[Address] = pydantic.Field(min_length=1, max_length=2)


class Visit(pydantic.BaseModel):
    """Formats, a union of shapes, and defaults."""

    visit: uuid.UUID
    day: datetime.date
    at: datetime.datetime
    fee: float = pydantic.Field(ge=0, le=1000)
    who: Address | Mood
    note: typing.Literal["late", "early"] | None = None


class GetWeather(pydantic.BaseModel):
    """Gets the weather of a city."""

    city: str = pydantic.Field(max_length=16)
    days: int = pydantic.Field(ge=1, le=7)
    unit: typing.Literal["celsius", "fahrenheit"]


class GetTime(pydantic.BaseModel):
    """Gets the time of a zone."""

    zone: typing.Literal["UTC", "CET"]


class Loose(pydantic.BaseModel):
    """Any JSON object is one: for modes that send no schema."""

    model_config = pydantic.ConfigDict(extra="allow")
