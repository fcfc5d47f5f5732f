"""What a job reads of prompts, with the official client: logprobs by `echo`, and embeddings. Both are those of libllama alone."""

import contextlib
import json
import math
import pathlib
import random
import subprocess

import httpx
import pytest

from conftest import BIN, MODEL, assert_idle, get, metric

REFERENCE = pathlib.Path(BIN).resolve().with_name("libllama_reference")
# With q8_0 KV, logits do not depend on how a prompt is cut, so only the last digits of a sum of exponentials differ.
NEAR = 1e-4
LENGTHS = (1, 2, 63, 64, 65, 130)
DIMENSIONS = 576
# 1 - cosine of the angle between two embeddings of one text: libllama's pooling adds in another order.
TURNED = 1e-6
TEXTS = ["Why is the sky blue?", "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.", "x", "one two three " * 25]


def words(count, seed):
    """Returns random tokens of the vocabulary's plain range."""
    draw = random.Random(seed)
    return [draw.randrange(300, 40000) for _ in range(count)]


class Reference:
    """libllama alone, with the engine's own type of KV."""

    def __init__(self):
        self.child = subprocess.Popen([REFERENCE, MODEL, "q8_0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _ask(self, what, tokens):
        self.child.stdin.write(" ".join([what, *map(str, tokens)]) + "\n")
        self.child.stdin.flush()
        return [float(word) for word in self.child.stdout.readline().split()]

    def logprobs(self, tokens):
        """Returns, for each token but the first, its logprob and the most likely token there."""
        numbers = self._ask("logprobs", tokens)
        return list(zip(numbers[::2], map(int, numbers[1::2])))

    def embedding(self, tokens):
        return self._ask("embedding", tokens)

    def tokens(self, text):
        return list(map(int, self._ask("tokens", [text.encode().hex()])))


@contextlib.contextmanager
def libllama():
    reference = Reference()
    try:
        yield reference
    finally:
        reference.child.stdin.close()
        assert reference.child.wait(60) == 0


def read_alone(job):
    """How many requests a prefill worker served alone, because there was nothing to decode."""
    return metric(job.url, "pdjob_router_bypassed_total", reason="prompt_only")


def test_scores_prompts_as_libllama_does(job, client):
    prompts = [words(length, seed=length) for length in LENGTHS]
    # Their rows are kept now, and must not be used.
    client.completions.create(model="smollm2", prompt=prompts[-1], max_tokens=1)
    before = read_alone(job)
    reply = client.completions.create(
        model="smollm2", prompt=prompts, max_tokens=0, echo=True, logprobs=5, extra_body={"return_tokens_as_token_ids": True}
    )
    assert reply.usage.prompt_tokens == sum(LENGTHS) and reply.usage.completion_tokens == 0
    with libllama() as reference:
        for prompt, choice in zip(prompts, reply.choices, strict=True):
            got = choice.logprobs
            assert [int(token.removeprefix("token_id:")) for token in got.tokens] == prompt
            assert got.token_logprobs[0] is None and got.top_logprobs[0] is None
            assert choice.finish_reason == "length"
            for at, (logprob, most_likely) in enumerate(reference.logprobs(prompt), start=1):
                assert math.isclose(got.token_logprobs[at], logprob, abs_tol=NEAR), (len(prompt), at)
                top = got.top_logprobs[at]
                assert len(top) in (5, 6) and top[f"token_id:{prompt[at]}"] == got.token_logprobs[at]
                assert top[f"token_id:{most_likely}"] >= max(top.values()) - NEAR
    assert read_alone(job) == before + 1
    assert_idle(job)


def test_says_what_bounds_a_text_as_vllm_does(job):
    info = json.loads(get(job.url + "/tokenizer_info"))
    assert (info["bos_token"], info["eos_token"]) == ("<|im_start|>", "<|im_end|>")


def test_offsets_are_those_of_the_echoed_text(client):
    choice = client.completions.create(model="smollm2", prompt="Zwölf Boxkämpfer jagen", max_tokens=1, echo=True, logprobs=0, temperature=0).choices[0]
    got = choice.logprobs
    assert choice.text.startswith("Zwölf Boxkämpfer jagen")
    ends = [*got.text_offset[1:], len(choice.text)]
    for token, start, end in zip(got.tokens, got.text_offset, ends, strict=True):
        assert "\ufffd" in token or choice.text[start:end] == token
    assert got.token_logprobs[0] is None and all(logprob < 0 for logprob in got.token_logprobs[1:])


@pytest.mark.parametrize("tokens, role", [(1, "prefill"), (12, "decode")])
def test_what_follows_the_prompt_is_the_same_as_without_echo(job, client, tokens, role):
    ask = dict(model="smollm2", prompt=words(100, seed=7), max_tokens=tokens, temperature=0, logprobs=2)
    plain = client.completions.create(**ask).choices[0]
    raw = client.completions.with_raw_response.create(**ask, echo=True)
    assert raw.headers["x-pdjob-worker"].startswith(role), "with nothing to decode, no decode worker has to do with it"
    echoed = raw.parse().choices[0]
    assert echoed.text.endswith(plain.text)
    assert echoed.logprobs.tokens[100:] == plain.logprobs.tokens
    assert echoed.logprobs.token_logprobs[100:] == pytest.approx(plain.logprobs.token_logprobs, abs=NEAR)
    streamed = list(client.completions.create(**ask, echo=True, stream=True))
    assert "".join(event.choices[0].text for event in streamed) == echoed.text
    together = [logprob for event in streamed if event.choices[0].logprobs for logprob in event.choices[0].logprobs.token_logprobs]
    assert together == echoed.logprobs.token_logprobs


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def test_openais_client_gets_the_embeddings_of_libllama(job, client):
    before = read_alone(job)
    # As in OpenAI's documentation. The client asks for base64, and decodes it.
    reply = client.embeddings.create(model="smollm2", input=TEXTS)
    assert [each.index for each in reply.data] == [0, 1, 2, 3]
    assert reply.usage.total_tokens == reply.usage.prompt_tokens > len(TEXTS)
    with libllama() as reference:
        for text, each in zip(TEXTS, reply.data, strict=True):
            assert len(each.embedding) == DIMENSIONS
            assert math.isclose(sum(x * x for x in each.embedding), 1, abs_tol=1e-5)
            assert 1 - cosine(each.embedding, reference.embedding(reference.tokens(text))) < TURNED
    assert read_alone(job) == before + 1
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
        ({"input": ["a"] * 2049}, "input"),
        ({}, "input"),
    ],
)
def test_refuses_what_it_cannot_do(job, fields, param):
    reply = httpx.post(job.url + "/v1/embeddings", json={"model": "smollm2", **fields}, timeout=60)
    assert reply.status_code == 400 and reply.json()["error"]["param"] == param, reply.text
