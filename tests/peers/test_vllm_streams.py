"""Streams of real vLLM engines on CPUs while decode engines are killed: `./dev peers` runs this. The engines' kernels are not batch-invariant on CPUs:
a token that is nearly as likely as another may change with what is computed beside it. So each token of a stream is judged by what an engine says of
it afterwards: it is the likeliest one after all tokens before it, or nearly so."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import time

import httpx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import eventually, metric  # noqa: E402
from test_vllm import START_SECONDS, all_ready, body, engine_of, family_of, new_folder, prompts, vllm_job, yaml  # noqa: E402

pytestmark = pytest.mark.heavy

ROUNDS = int(os.environ.get("PDJOB_TEST_ROUNDS", 2))  # A kill in each.
STREAMS = 10  # Of a round.
TOKENS = 120
TIE = 0.15  # Logarithm of how much likelier the likeliest token may be. These weights are random, in bfloat16.


class Stream:
    """A greedy stream: its tokens, when they came, and which worker began it. It is in `under_way` from the beginning to the end of its reply."""

    def __init__(self, url, prompt, chat, under_way):
        self.prompt, self.tokens, self.times, self.heads, self.usage, self.reasons, self.decode = prompt, [], [], set(), None, [], None
        fields = {"stream": True, "max_tokens": TOKENS, "return_token_ids": True, "stream_options": {"include_usage": True}}
        request = body(prompt, **fields)
        if chat:
            request["messages"] = [{"role": "user", "content": "word " * (len(request.pop("prompt")) % 40 + 1)}]
        with httpx.stream("POST", url + f"/v1/{'chat/' if chat else ''}completions", json=request, timeout=600) as reply:
            assert reply.status_code == 200, reply.read()
            self.decode = reply.headers["x-pdjob-decode"]
            under_way.append(self)
            lines = [line for line in reply.iter_lines() if self.note(line)]
            under_way.remove(self)
        assert lines[-1] == "data: [DONE]"

    def note(self, line):
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            self.heads.add((event["id"], event["created"], event["object"]))
            self.usage = event.get("usage") or self.usage
            if event.get("prompt_token_ids"):
                self.prompt = event["prompt_token_ids"]
            for choice in event["choices"]:
                self.tokens += choice.get("token_ids") or []
                self.times += [time.monotonic()]
                self.reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
        return line

    @property
    def pause(self):
        return max(later - earlier for earlier, later in zip(self.times, self.times[1:]))


def margins(url, stream):
    """Returns by how much the likeliest token was likelier than each token of the stream."""
    reply = httpx.post(url + "/v1/completions", json=body([*stream.prompt, *stream.tokens], max_tokens=1, prompt_logprobs=1), timeout=600)
    assert reply.status_code == 200, reply.text
    found = []
    for token, told in zip(stream.tokens, reply.json()["choices"][0]["prompt_logprobs"][-len(stream.tokens):]):
        best = max(each["logprob"] for each in told.values())
        found.append(best - told[str(token)]["logprob"])
    return found


SHAPES = {"1P2D": {"decode": 2}, "2P2D": {"prefill": 2, "decode": 2}, "a spare": {"spares": 1}}


@contextlib.contextmanager
def job_of(shape):
    settings = "heartbeat_timeout: 10s, progress_timeout: 1min, restart: {backoff_min: 100ms, backoff_max: 100ms}"
    with new_folder() as folder, vllm_job(yaml(folder, launcher=settings, **SHAPES[shape]), folder) as job:
        yield job


def serving_decode(job):
    return sorted(name for name, process in job.processes().items() if process["role"] == "decode" and process["state"] == "ready" and not process["spare"])


@pytest.mark.parametrize("shape", SHAPES)
def test_no_stream_is_cut_and_no_token_is_wrong_while_decode_engines_are_killed(shape):
    chance, worst, pauses = random.Random(11), [], []
    with job_of(shape) as job:
        for number in range(ROUNDS):
            eventually(lambda: all_ready(job), START_SECONDS, "all ready")
            continued = metric(job.url, "pdjob_router_continuations_total")
            serving = serving_decode(job)
            victim = serving[number % len(serving)]
            engine = engine_of(job, victim)
            with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
                chosen = chance.sample(prompts()[:40], STREAMS)
                under_way = []
                asked = [pool.submit(Stream, job.url, prompt, index % 2 == 1, under_way) for index, prompt in enumerate(chosen)]
                wanted = chance.randrange(1, TOKENS // 2)
                in_the_middle = lambda: any(each.decode == victim and wanted <= len(each.tokens) < TOKENS * 3 // 4 for each in list(under_way))  # noqa: E731
                eventually(in_the_middle, 300, "a stream of the victim in the middle")
                with contextlib.suppress(ProcessLookupError):
                    for pid in family_of(engine):
                        os.kill(pid, signal.SIGKILL)
                streams = [stream.result() for stream in asked]
            assert metric(job.url, "pdjob_router_continuations_total") > continued, "some went on"
            for stream in streams:
                assert len(stream.heads) == 1, stream.heads
                assert len(stream.tokens) == TOKENS and stream.reasons == ["length"]
                assert stream.usage == {"prompt_tokens": len(stream.prompt), "completion_tokens": TOKENS, "total_tokens": len(stream.prompt) + TOKENS} | {
                    key: value for key, value in stream.usage.items() if key.endswith("details")}
            pauses += [stream.pause for stream in streams if stream.decode == victim]
            worst += [max(margins(job.url, stream)) for stream in streams]
            assert max(worst) <= TIE, worst
        print(f"{shape}: {len(worst)} streams, none cut; the least likely tokens: {sorted(worst)[-5:]}; pauses of those that went on: {sorted(pauses)}")
        assert metric(job.url, "pdjob_router_streams_cut_total") == 0
