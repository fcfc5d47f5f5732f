"""Streams of engines of another make, whose engine is killed in the middle. The engines are doubles (tests/support/stream_double.py): what follows
depends on all tokens before it, so a stream that goes on from other tokens than the client has does not end as it should."""

import contextlib
import json
import os
import random
import signal

import httpx
import pytest

from conftest import eventually, metric
from test_foreign_engines import engine_below, engine_pid, folder, foreign_job  # noqa: F401

SLOW = ["DOUBLE_STEP_SECONDS=0.01"]
FAST = "backoff_min: 50ms, backoff_max: 50ms"
TOOLS = [{"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}]
CHAT = {"messages": [{"role": "user", "content": "Tell me of a mill."}]}
GREEDY = {"max_tokens": 48, "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
# Each of these goes on, and nobody can see where.
GOES_ON = {
    "completion": {"prompt": "Once", **GREEDY},
    "token_ids": {"prompt": "Once", "return_token_ids": True, "min_tokens": 40, **GREEDY},
    "logprobs": {"prompt": "Once", "logprobs": 1, **GREEDY},
    "drawn": {"prompt": "Once", "max_tokens": 48, "ignore_eos": True, "user": "somebody"},
    "chat": {**CHAT, **GREEDY},
    "seeded": {"prompt": "Once", **GREEDY, "temperature": 0.7, "seed": 5},
    "stop_string": {"prompt": "Once", **GREEDY, "stop": ["no such text"]},
    "stopped": {"prompt": "Once", **GREEDY},
    "tools": {**CHAT, **GREEDY, "tools": TOOLS},
}
# In no other way than by chance would these have the same tokens again.
BREAKS_OFF = {
    "choices": {"prompt": "Once", "max_tokens": 48, "ignore_eos": True, "n": 2},
    "structure": {"prompt": "Once", "max_tokens": 48, "ignore_eos": True, "structured_outputs": {"regex": ".*"}},
    "sampling": {"prompt": "Once", "max_tokens": 48, "ignore_eos": True, "presence_penalty": 0.5},
    "member": {"prompt": "Once", "max_tokens": 48, "ignore_eos": True, "made_up": 1},
}


def stream(job, fields, at_event=None):
    """Returns the events without what differs from request to request. Calls `at_event(headers, count)` after each."""
    events, ids, calls = [], set(), []
    path = "/v1/chat/completions" if "messages" in fields else "/v1/completions"
    with httpx.stream("POST", job.url + path, json={"model": "tiny", "stream": True, **fields}, timeout=60) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if not line:
                continue
            event = line.removeprefix("data: ")
            if event != "[DONE]":
                event = json.loads(event)
                ids.add((event.pop("id"), event.pop("created"), event["model"], event["object"]))
                for choice in event["choices"]:
                    calls += [call.pop("id") for call in choice.get("delta", {}).get("tool_calls", []) if "id" in call]
                    choice.setdefault("stop_reason", None)
            events.append(event)
            if at_event:
                at_event(reply.headers, len(events))
    assert len(ids) == 1, f"one stream has one head: {ids}"
    assert len(calls) <= 1, "a call begins once"
    return events


def killer(job, when):
    killed = []

    def at_event(headers, count):
        if count >= when and not killed:
            killed.append(headers["x-pdjob-decode"])
            os.kill(engine_pid(job, killed[0]), signal.SIGKILL)

    return at_event, killed


def has_engine(worker):
    with contextlib.suppress(OSError, ValueError, StopIteration):
        return engine_below(worker["pid"]) > 0
    return False


def settled(job):
    """For a moment, status does not know of an engine's death."""
    found = job.processes().values()
    return all(each["state"] == "ready" and (each["role"] == "router" or has_engine(each)) for each in found)


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def job(request, tmp_path_factory):
    with foreign_job(str(tmp_path_factory.mktemp("streams")), kind=request.param, decode=2, env=SLOW, restart=FAST) as job:
        yield job


@pytest.mark.parametrize("kind", GOES_ON)
def test_a_stream_goes_on_as_if_nothing_had_been(job, kind):
    request = GOES_ON[kind]
    if kind == "stopped":
        text = "".join(choice["text"] for event in stream(job, request)[:-1] for choice in event["choices"])
        request = {**request, "stop": [text[30:36]]}
    undisturbed = stream(job, request)
    assert stream(job, request) == undisturbed
    continued = metric(job.url, "pdjob_router_continuations_total")
    when = random.Random(kind).randrange(2, len(undisturbed) - 4)
    for when in (when, when // 2 + 1):
        eventually(lambda: settled(job), 30, "all ready")
        at_event, killed = killer(job, when)
        assert stream(job, request, at_event) == undisturbed, f"killed after {when} events"
        assert killed
    assert metric(job.url, "pdjob_router_continuations_total") == continued + 2


@pytest.mark.parametrize("kind", BREAKS_OFF)
def test_a_stream_that_could_go_wrong_breaks_off_and_says_why(job, kind):
    eventually(lambda: settled(job), 30, "all ready")
    cut = metric(job.url, "pdjob_router_streams_cut_total", reason=kind)
    at_event, killed = killer(job, 3)
    with pytest.raises(httpx.TransportError):
        stream(job, BREAKS_OFF[kind], at_event)
    assert killed
    assert metric(job.url, "pdjob_router_streams_cut_total", reason=kind) == cut + 1


def test_reasoning_goes_on_by_repeating_it(folder):  # noqa: F811
    with foreign_job(folder, decode=2, env=[*SLOW, "DOUBLE_REASONS=20"], restart=FAST) as job:
        request = {**CHAT, **GREEDY}
        undisturbed = stream(job, request)
        assert undisturbed[3]["choices"][0]["delta"]["reasoning_content"]
        for when in (8, 40):
            eventually(lambda: settled(job), 30, "all ready")
            at_event, killed = killer(job, when)
            assert stream(job, request, at_event) == undisturbed
            assert killed
