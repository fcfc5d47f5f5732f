"""`echo` with `logprobs`: a job scores prompts as libllama does, with the official client."""

import contextlib
import json
import math
import pathlib
import random
import subprocess
import tempfile

import openai
import pytest

from conftest import BIN, MODEL, assert_idle, get, metric, running_job

REFERENCE = pathlib.Path(BIN).resolve().with_name("libllama_reference")
# libllama computes a prompt whole, a worker in steps of 64 tokens: sums are rounded in another order.
NEAR = 0.02
LENGTHS = (1, 2, 63, 64, 65, 130)


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


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder) as running:
            yield running


@pytest.fixture(scope="module")
def client(job):
    return openai.OpenAI(base_url=job.url + "/v1", api_key="any", max_retries=0, timeout=120)


def test_scores_prompts_as_libllama_does(job, client):
    prompts = [words(length, seed=length) for length in LENGTHS]
    # Their rows are kept now, and must not be used.
    client.completions.create(model="smollm2", prompt=prompts[-1], max_tokens=1)
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
    assert metric(job.url, "pdjob_router_bypassed_total", reason="prompt_only") == 1
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
