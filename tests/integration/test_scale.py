"""`pdjob scale` on a running job with the real model: sizes change under load, and nothing is lost or altered."""

import json
import pathlib
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import httpx
import pytest

from conftest import BIN, WORKER_KEYS, assert_idle, eventually, get, metric, running_job

REQUESTS = [
    {
        "model": "smollm2",
        "prompt": f"Tell me a story about river number {number}.",
        "max_tokens": 24,
        "temperature": 0.9,
        "seed": number,
        "stream": number % 2 == 0,
    }
    for number in range(6)
]


def scale(job, *words, timeout=120):
    return subprocess.run(
        [BIN, "scale", *words, "--config", str(job.config)], capture_output=True, text=True, timeout=timeout
    )


def text_of(reply):
    """The generated text of a reply or of a whole stream; a stream that was cut has no end."""
    assert reply.status_code == 200, reply.text
    if not reply.headers["content-type"].startswith("text/event-stream"):
        return reply.json()["choices"][0]["text"]
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", reply.text
    return "".join(choice["text"] for line in lines[:-1] for choice in json.loads(line)["choices"])


class SeededLoad:
    """Clients that ask the same seeded requests again and again, and keep all answers."""

    def __init__(self, url):
        self.url, self.answers, self.errors = url, [], []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(body,)) for body in REQUESTS]

    def __enter__(self):
        [thread.start() for thread in self._threads]
        return self

    def __exit__(self, *_):
        self._stop.set()
        [thread.join(60) for thread in self._threads]

    def _run(self, body):
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self._stop.is_set():
                try:
                    self.answers.append((body["seed"], text_of(client.post("/v1/completions", json=body))))
                except (httpx.TransportError, AssertionError) as error:
                    self.errors.append(repr(error))

    def goes_on(self):
        before = len(self.answers)
        eventually(lambda: len(self.answers) >= before + len(REQUESTS), 60, "answers of the load")


def ready(job, role):
    return sorted(p["name"] for p in job.processes().values() if p["role"] == role and p["state"] == "ready")


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder) as job:
            yield job


def test_sizes_change_under_load_and_nothing_is_lost_or_altered(job):
    expected = {body["seed"]: text_of(httpx.post(job.url + "/v1/completions", json=body, timeout=60)) for body in REQUESTS}
    with SeededLoad(job.url) as load:
        load.goes_on()
        for words, prefill, decode in [
            (["decode=2"], 1, 2),
            (["decode=1"], 1, 1),
            (["prefill=2"], 2, 1),
            (["prefill=1", "decode=2"], 1, 2),  # A worker changes its role.
            (["decode=1"], 1, 1),
        ]:
            answer = scale(job, *words)
            assert answer.returncode == 0, answer.stderr
            assert f"decode: {decode} of {decode} serve" in answer.stdout, answer.stdout
            assert (len(ready(job, "prefill")), len(ready(job, "decode"))) == (prefill, decode)
            load.goes_on()
    assert not load.errors, load.errors[:5]
    wrong = [(seed, text) for seed, text in load.answers if text != expected[seed]]
    assert not wrong, (wrong[0], expected[wrong[0][0]])
    assert all(process["restarts"] <= 1 and process["crashes"] == 0 for process in job.processes().values())
    eventually(lambda: assert_idle(job), 30, "no rows left in use")


def test_a_worker_that_retires_stays_until_its_kv_is_fetched(job):
    assert scale(job, "prefill=2").returncode == 0
    body = {"model": "smollm2", "prompt": "Tell me a story about the sea.", "max_tokens": 8, "temperature": 0}
    expected = text_of(httpx.post(job.url + "/v1/completions", json=body, timeout=60))

    def ask(process, params, **more):
        headers = {"Authorization": f"Bearer {WORKER_KEYS[process['url']]}"}
        return httpx.post(
            process["url"] + "/v1/completions", json={**body, **more, "kv_transfer_params": params}, headers=headers, timeout=60
        )

    workers = job.processes()
    kept = {}
    for name in ready(job, "prefill"):  # Both hold KV, so the one that goes does.
        reply = ask(workers[name], {"do_remote_decode": True, "do_remote_prefill": False}, max_tokens=1)
        assert reply.status_code == 200, reply.text
        kept[name] = reply.json()["kv_transfer_params"]
    assert scale(job, "prefill=1", "--no-wait").returncode == 0
    eventually(lambda: any(job.processes()[name]["state"] == "draining" for name in kept), 20, "one drains")
    (leaving,) = [name for name in kept if job.processes()[name]["state"] == "draining"]
    eventually(lambda: httpx.get(workers[leaving]["url"] + "/health").status_code == 503, 20, "told to drain")
    time.sleep(1)
    assert leaving in job.processes() and metric(workers[leaving]["url"], "pdjob_kv_rows_used") > 0
    (decode,) = [workers[name] for name in ready(job, "decode")]
    reply = ask(decode, kept[leaving])
    assert text_of(reply) == expected and int(reply.headers["x-pdjob-kv-bytes"]) > 0
    eventually(lambda: leaving not in job.processes(), 30, "it ends once its KV is fetched")


def test_wrong_orders_are_refused_and_change_nothing(job):
    before = scale(job).stdout
    for words, code, what in [
        (["decode=two"], 2, "'decode=two' is no size"),
        (["decod=2"], 2, "there is no group decod: this job has prefill, decode"),
        (["decode=0"], 2, "decode can have 1 to"),
        (["decode=2", "decode=3"], 2, "named twice"),
        (["decode=99999"], 2, "decode can have 1 to"),
    ]:
        answer = scale(job, *words)
        assert (answer.returncode, what in answer.stderr) == (code, True), (words, answer)
    assert scale(job).stdout == before


def test_an_order_without_the_owners_key_is_refused(job):
    (found,) = pathlib.Path(job.folder).glob("state/*/launcher.json")
    admin = "http://" + json.loads(found.read_text())["admin"]
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        request = urllib.request.Request(admin + "/scale", data=b"decode=3", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert refused.value.code == 401
    assert "decode: 1 of 1 serves" in get(admin + "/scale?as=text")
