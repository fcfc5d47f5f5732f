"""`router.bypass_busy_requests`: a prefill worker alone serves what the decode worker has too much of, also while there is no decode worker."""

import concurrent.futures
import json
import os
import signal
import tempfile
import threading

import httpx

from conftest import eventually, metric, running_job
from test_continuation import REQUESTS, stream

PROMPTS = ["The river", "A mill by the water", "Once, in winter,", "My grandmother said", "In the town of", "The first rule is", "Bread is", "Two dogs"]


def ask(url, prompt):
    body = {"prompt": prompt, "max_tokens": 24, "temperature": 0}
    reply = httpx.post(url + "/v1/completions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"], reply.headers["x-pdjob-decode"]


def choices(events):
    """Without `usage`: another worker has other rows in its cache."""
    return [event for event in events if event == "[DONE]" or event["choices"]]


def test_a_prefill_worker_serves_what_the_decode_worker_has_too_much_of_with_the_same_tokens():
    away = "restart: {backoff_min: 300s, backoff_max: 300s}"  # A killed worker stays away.
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, running_job(folder, router="bypass_busy_requests: 2", launcher=away) as job:
        alone = [ask(job.url, prompt) for prompt in PROMPTS]
        assert {worker for _, worker in alone} == {"decode-0"}, "a worker that is not busy keeps its work"
        undisturbed = stream(job.url, REQUESTS["seeded"])
        assert metric(job.url, "pdjob_router_bypassed_total", reason="busy") == 0

        begun = threading.Barrier(3, timeout=120)  # Two streams; a third one could go to the prefill worker, too.
        long = {**REQUESTS["seeded"], "max_tokens": 300, "ignore_eos": True}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            streams = [pool.submit(stream, job.url, long, lambda _, index: index == 2 and begun.wait()) for _ in range(2)]
            begun.wait()
            # The prefill worker's part of a stream may end after the stream has begun.
            eventually(lambda: ask(job.url, PROMPTS[0]) == (alone[0][0], "prefill-0"))
            assert [ask(job.url, prompt)[0] for prompt in PROMPTS] == [text for text, _ in alone]
            assert len({json.dumps(future.result()) for future in streams}) == 1
        assert metric(job.url, "pdjob_router_bypassed_total", reason="busy") > 0

        pid = job.processes()["decode-0"]["pid"]
        events = stream(job.url, REQUESTS["seeded"], lambda _, index: index == 5 and os.kill(pid, signal.SIGKILL))
        assert choices(events) == choices(undisturbed), "the prefill worker goes on with the stream"
        assert [ask(job.url, prompt) for prompt in PROMPTS] == [(text, "prefill-0") for text, _ in alone]
