"""kill -9 of the decode worker in the middle of a stream. The client gets the whole stream, with the same tokens as without the kill."""

import json
import os
import random
import signal
import tempfile
import threading

import httpx
import pytest

from conftest import assert_idle, eventually, metric, running_job

# How many kills to run. Set it higher for a longer test; each takes two seconds.
KILLS = int(os.environ.get("PDJOB_TEST_KILLS", 8))

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
STORY = {"messages": [{"role": "user", "content": "Tell me a story about a river and a mill."}], "max_tokens": 40}
# On an invariant configuration (docs/explanation/determinism.md) each draws the same tokens again.
REQUESTS = {
    "greedy": {**STORY, "temperature": 0},
    "seeded": {**STORY, "temperature": 0.9, "seed": 11, "repetition_penalty": 1.1, "logprobs": True, "top_logprobs": 2},
    "json_schema": {
        **STORY,
        "messages": [{"role": "user", "content": "Describe a person as JSON."}],
        "temperature": 0.8,
        "seed": 3,
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
    },
    "tool_call": {
        "messages": [{"role": "user", "content": "Note a person."}],
        "max_tokens": 80,
        "temperature": 0.8,
        "seed": 4,
        "tools": [{"type": "function", "function": {"name": "note", "parameters": SCHEMA}}],
        "tool_choice": "required",
    },
    "two_choices": {**STORY, "n": 2, "seed": 5, "temperature": 0.7, "max_tokens": 32},
}
FAST_RESTARTS = "restart: {backoff_min: 50ms, backoff_max: 50ms}"


def stream(url, fields, at_event=None):
    """Returns the events of a stream, without the fields that differ from request to request. Calls `at_event(headers, index)` after each."""
    events, ids, calls = [], set(), {}
    body = {"model": "smollm2", "stream": True, "stream_options": {"include_usage": True}, **fields}
    with httpx.Client(timeout=120) as client, client.stream("POST", url + "/v1/chat/completions", json=body) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if not line:
                continue
            assert line.startswith("data: "), line
            if line == "data: [DONE]":
                events.append("[DONE]")
            else:
                event = json.loads(line[6:])
                assert "error" not in event, event
                ids.add((event.pop("id"), event.pop("created")))
                if event.get("usage"):
                    del event["usage"]["prompt_tokens_details"]  # What a worker had kept differs from time to time.
                for choice in event["choices"]:
                    for call in choice["delta"].get("tool_calls", []):
                        calls.update({(choice["index"], call["index"]): call.pop("id")} if "id" in call else {})
                events.append(event)
            if at_event:
                at_event(reply.headers, len(events))
    assert len(ids) == 1, "one stream has one id"
    assert len(set(calls.values())) == len(calls), "each call has an id of its own"
    return events


def by_choice(events):
    """Groups events by choice. Choices take turns, and a continuation may change whose turn it is."""
    rows = {}
    for event in events:
        choice = event["choices"][0]["index"] if event != "[DONE]" and event["choices"] else None
        rows.setdefault(choice, []).append(event)
    return rows


def killer(job, when):
    """Kills the worker that decodes the stream, once, after `when` events."""
    done = []

    def at_event(headers, count):
        if count >= when and not done:
            done.append(headers["x-pdjob-decode"])
            os.kill(job.processes()[done[0]]["pid"], signal.SIGKILL)

    return at_event, done


def all_ready(job):
    return all(process["state"] == "ready" for process in job.processes().values())


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, prefill=1, decode=2, launcher=FAST_RESTARTS) as job:
            yield job


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_stream_survives_its_decode_worker(job, kind):
    draw = random.Random(kind)
    undisturbed = stream(job.url, REQUESTS[kind])
    assert stream(job.url, REQUESTS[kind]) == undisturbed, "the request itself is repeatable"
    continued = metric(job.url, "pdjob_router_continuations_total")
    kills = 0
    # A stream that had already ended within the router when its worker died needs no continuation.
    while kills < KILLS // len(REQUESTS) or (kills < 10 and metric(job.url, "pdjob_router_continuations_total") == continued):
        kills += 1
        eventually(lambda: all_ready(job), 60, "all ready")
        when = draw.randrange(1, len(undisturbed) - 2)
        at_event, killed = killer(job, when)
        events = stream(job.url, REQUESTS[kind], at_event)
        assert killed, "nobody was killed"
        assert by_choice(events) == by_choice(undisturbed), f"killed after {when} events"
        if kind != "two_choices":
            assert events == undisturbed
    assert metric(job.url, "pdjob_router_continuations_total") > continued
    eventually(lambda: all_ready(job), 60, "all ready")
    eventually(lambda: assert_idle(job), 30, "no rows left in use")


def test_a_stream_waits_for_its_only_decode_worker_to_come_back():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, launcher=FAST_RESTARTS) as job:
            undisturbed = stream(job.url, REQUESTS["greedy"])
            at_event, killed = killer(job, 20)
            assert stream(job.url, REQUESTS["greedy"], at_event) == undisturbed
            assert killed == ["decode-0"]


def test_a_stream_breaks_off_where_continuations_are_switched_off():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, decode=2, router="continuations: 0") as job:
            at_event, killed = killer(job, 5)
            with pytest.raises(httpx.TransportError):
                stream(job.url, {**REQUESTS["greedy"], "max_tokens": 400, "ignore_eos": True}, at_event)
            assert killed


def test_many_streams_survive_one_death(job):
    eventually(lambda: all_ready(job), 60, "all ready")
    undisturbed = stream(job.url, REQUESTS["seeded"])
    results = {}

    def ask(index):
        results[index] = stream(job.url, REQUESTS["seeded"])

    def generated():
        return metric(job.processes()["decode-0"]["url"], "pdjob_generation_tokens_total")

    before = generated()
    threads = [threading.Thread(target=ask, args=(index,)) for index in range(8)]
    [thread.start() for thread in threads]
    eventually(lambda: job.processes()["decode-0"]["load"]["requests_running"] >= 2 and generated() >= before + 4, 30, "streams under way")
    os.kill(job.processes()["decode-0"]["pid"], signal.SIGKILL)
    [thread.join(120) for thread in threads]
    assert [results.get(index) for index in range(8)] == [undisturbed] * 8
