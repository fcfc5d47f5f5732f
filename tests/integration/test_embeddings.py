"""`/v1/embeddings`: the official client gets the embeddings that libllama makes, from a prefill worker."""

import math
import tempfile

import httpx
import openai
import pytest

from conftest import assert_idle, metric, running_job
from test_prompt_logprobs import libllama, words

DIMENSIONS = 576
# The angle between two embeddings of one prompt, as 1 - cosine: the sums of libllama's pooling are in another order.
NEAR = 1e-5
TEXTS = ["Why is the sky blue?", "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.", "x", "one two three " * 25]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder) as running:
            yield running


@pytest.fixture(scope="module")
def client(job):
    return openai.OpenAI(base_url=job.url + "/v1", api_key="any", max_retries=0, timeout=120)


def test_openais_client_gets_the_embeddings_of_libllama(job, client):
    # As in OpenAI's documentation. The client asks for base64, and decodes it.
    reply = client.embeddings.create(model="smollm2", input=TEXTS)
    assert [each.index for each in reply.data] == [0, 1, 2, 3]
    assert reply.usage.total_tokens == reply.usage.prompt_tokens > len(TEXTS)
    with libllama() as reference:
        for text, each in zip(TEXTS, reply.data, strict=True):
            assert len(each.embedding) == DIMENSIONS
            assert math.isclose(sum(x * x for x in each.embedding), 1, abs_tol=1e-5)
            assert 1 - cosine(each.embedding, reference.embedding(reference.tokens(text))) < NEAR
    assert metric(job.url, "pdjob_router_bypassed_total", reason="prompt_only") == 1
    assert_idle(job)


def test_an_embedding_does_not_depend_on_its_neighbours(client):
    together = client.embeddings.create(model="smollm2", input=TEXTS + [text * 2 for text in TEXTS]).data
    for index, text in enumerate(TEXTS):
        assert client.embeddings.create(model="smollm2", input=text).data[0].embedding == together[index].embedding


def test_inputs_are_texts_or_token_ids_and_outputs_numbers_or_base64(job, client):
    prompt = words(130, seed=1)
    one = client.embeddings.create(model="smollm2", input=prompt, encoding_format="float")
    assert one.usage.prompt_tokens == 130
    both = client.embeddings.create(model="smollm2", input=[prompt, prompt[:7]], encoding_format="base64")
    assert httpx.post(job.url + "/v1/embeddings", json={"input": prompt}, timeout=60).json()["data"][0]["embedding"] == one.data[0].embedding
    decoded = client.embeddings.create(model="smollm2", input=[prompt, prompt[:7]])
    assert decoded.data[0].embedding == pytest.approx(one.data[0].embedding, abs=1e-7)
    assert isinstance(both.data[0].embedding, str)


def test_fewer_dimensions_have_length_1_again(client):
    whole = client.embeddings.create(model="smollm2", input=TEXTS[0], encoding_format="float").data[0].embedding
    short = client.embeddings.create(model="smollm2", input=TEXTS[0], dimensions=64, encoding_format="float").data[0].embedding
    assert len(short) == 64 and math.isclose(sum(x * x for x in short), 1, abs_tol=1e-5)
    assert 1 - cosine(short, whole[:64]) < 1e-6


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"input": "a", "dimensions": DIMENSIONS + 1}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": [1, 10**6]}, "input"),
        ({"input": ""}, "input"),
        ({"input": words(3000, seed=2)}, "input"),
        ({"input": ["a"] * 257}, "input"),
        ({}, "input"),
    ],
)
def test_refuses_what_it_cannot_do(job, fields, param):
    reply = httpx.post(job.url + "/v1/embeddings", json={"model": "smollm2", **fields}, timeout=60)
    assert reply.status_code == 400 and reply.json()["error"]["param"] == param, reply.text
