"""Requests whose answers are fetched later, across the death of the router, and until they end."""

import json
import os
import signal
import urllib.error
import urllib.request

import pytest

from conftest import eventually, running_job

COUNT = 50


def ask(prompt):
    return {"model": "smollm2", "prompt": prompt, "max_tokens": 4, "temperature": 0}


def call(url, method="GET", body=None, headers={}):
    """Returns status and body. A missing router raises OSError, which eventually() retries."""
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, body and json.dumps(body).encode(), headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def submit(job, prompt):
    status, reply = call(job.url + "/v1/async/completions", "POST", ask(prompt))
    assert status == 202, reply
    return reply["id"]


def answer(job, name):
    status, reply = call(f"{job.url}/pdjob/requests/{name}")
    assert status == 200, reply
    return reply


def completed(job, name):
    return answer(job, name)["status"] == "completed"


def text(reply):
    return reply["choices"][0]["text"]


@pytest.fixture(scope="module")
def job(folder):
    with running_job(folder, router=f"async: {{file: {folder}/requests.db, in_flight_max: 2}}") as job:
        yield job


def test_all_requests_are_answered_once_though_the_router_is_killed(job):
    prompts = [f"The number after {i} is" for i in range(COUNT)]
    direct = [text(call(job.url + "/v1/completions", "POST", ask(prompt))[1]) for prompt in prompts]
    names = [submit(job, prompt) for prompt in prompts]
    assert len(set(names)) == COUNT
    eventually(lambda: completed(job, names[4]), 60, "the fifth answer")
    router = job.processes()["router-0"]["pid"]
    os.kill(router, signal.SIGKILL)
    eventually(lambda: job.processes()["router-0"]["pid"] not in (0, router), 60, "another router")
    answers = {}

    def all_answered():
        for name in set(names) - set(answers):
            reply = answer(job, name)
            if reply["status"] not in ("queued", "in_progress"):
                answers[name] = reply
        return len(answers) == COUNT

    eventually(all_answered, 120, "all answers")
    for name, expected in zip(names, direct):
        reply = answers[name]["response"]
        assert reply["status_code"] == 200 and text(reply["body"]) == expected
        assert reply["body"]["id"].endswith(name)


def test_a_cancelled_request_is_gone(job):
    name = submit(job, "One, two,")
    status, reply = call(f"{job.url}/pdjob/requests/{name}", "DELETE")
    assert (status, reply["deleted"]) == (200, True)
    assert call(f"{job.url}/pdjob/requests/{name}")[0] == 404
