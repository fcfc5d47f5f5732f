"""`pdjob scale` on a running job with the real model: sizes change under load, and nothing is lost or altered."""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import httpx
import pytest

from conftest import BIN, Job, WORKER_KEYS, assert_idle, eventually, get, metric

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


def launcher_of(job):
    (found,) = job.folder.glob("state/*/launcher.json")
    return "http://" + json.loads(found.read_text())["admin"]


def role_changes_by_new_processes(job):
    """A worker whose rows a peer may still write cannot change its role in place: it ends, and a new process takes the role."""
    logs = pathlib.Path(job.folder).glob("logs/**/*.log")
    return sum(log.read_text(errors="replace").count("cannot change the role in place: a new process has to serve") for log in logs)


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
    processes = job.processes().values()
    assert all(process["crashes"] == 0 for process in processes)
    decided = {(group, way): metric(launcher_of(job), "pdjob_scaling_decisions_total", group=group, direction=way) for group in ("prefill", "decode") for way in ("up", "down")}
    assert decided == {("prefill", "up"): 1, ("prefill", "down"): 1, ("decode", "up"): 2, ("decode", "down"): 2}
    assert metric(launcher_of(job), "pdjob_group_workers_serving") == metric(launcher_of(job), "pdjob_group_workers_wanted") == 2
    assert sum(process["restarts"] for process in processes) <= role_changes_by_new_processes(job)
    eventually(lambda: assert_idle(job), 30, "no rows left in use")


def test_a_worker_changes_its_role_under_load_without_loading_its_model_again(job):
    body = REQUESTS[0] | {"stream": False}
    expected = text_of(httpx.post(job.url + "/v1/completions", json=body, timeout=60))
    assert scale(job, "prefill=2").returncode == 0
    ended_before = role_changes_by_new_processes(job)
    with SeededLoad(job.url) as load:
        load.goes_on()
        before = {name: process["pid"] for name, process in job.processes().items()}
        for words, roles in [(["prefill=1", "decode=2"], (1, 2)), (["prefill=2", "decode=1"], (2, 1))] * 2:
            answer = scale(job, *words)
            assert answer.returncode == 0, answer.stderr
            assert (len(ready(job, "prefill")), len(ready(job, "decode"))) == roles
            load.goes_on()
    assert not load.errors, load.errors[:5]
    assert {text for seed, text in load.answers if seed == body["seed"]} == {expected}
    now = {name: process["pid"] for name, process in job.processes().items()}
    assert now.keys() == before.keys()
    started = [name for name in now if now[name] != before[name]]
    assert len(started) <= role_changes_by_new_processes(job) - ended_before, "no process was started without need"
    changed = [p for p in pathlib.Path(job.folder).glob("logs/**/*.log") if "as decode on" in (t := p.read_text()) and "as prefill on" in t]
    assert changed, "one served as both"
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


FAKE = """\
name: scales
served_name: m
engine: {{kind: fake, fake_delay_per_token: 5ms, sequences: 16, tokens_per_sequence: 256}}
prefill: {{workers: 1, scaling: {{max: 3, ttft: 500ms, down_after: 3s}}}}
decode: {{workers: 1, scaling: {{max: 3, itl: 15ms, down_after: 3s}}}}
scaling: {{zero_after: 4s}}
router: {{listen: "127.0.0.1:0", queue_timeout: 60s, async: {{file: requests.db}}}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


def test_workers_come_with_load_leave_without_it_and_the_next_request_brings_them_back():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(FAKE.format(folder=folder), folder).wait_ready()
        try:
            check_a_job_that_scales(job)
        finally:
            assert job.stop() == 0, job.log_tail()


def check_a_job_that_scales(job):
    stop, failures, seen = threading.Event(), [], set()

    def load(number):
        body = {"model": "m", "prompt": f"{number:040d}", "max_tokens": 40, "ignore_eos": True, "seed": number}
        with httpx.Client(base_url=job.url, timeout=120) as client:
            while not stop.is_set():
                reply = client.post("/v1/completions", json=body)
                if reply.status_code != 200 or reply.json()["usage"]["completion_tokens"] != 40:
                    failures.append(reply.text)

    def workers():
        names = {name for name, process in job.processes().items() if process["role"] != "router"}
        seen.add(len(names))
        return len(names)

    clients = [threading.Thread(target=load, args=(number,)) for number in range(10)]
    [client.start() for client in clients]
    try:
        eventually(lambda: workers() >= 3, 60, "more workers")
    finally:
        stop.set()
        [client.join(120) for client in clients]
    eventually(lambda: workers() == 0, 120, "no workers without requests")
    assert not failures, failures[:3]
    healths = [httpx.get(job.url + "/health", timeout=10).status_code]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, job.url + "/v1/completions", json={"model": "m", "prompt": "hello", "max_tokens": 3}, timeout=90)
        while not waiting.done():
            healths.append(httpx.get(job.url + "/health", timeout=10).status_code)
    held = waiting.result()
    assert held.status_code == 200, held.text
    assert set(healths) == {200}, "a load balancer would hold back the request that wakes the job"
    eventually(lambda: workers() == 0, 120, "no workers without requests")
    stored = httpx.post(job.url + "/v1/async/completions", json={"model": "m", "prompt": "hello", "max_tokens": 3}, timeout=30).json()
    state = lambda: httpx.get(f"{job.url}/pdjob/requests/{stored['id']}", timeout=10).json()["status"]  # noqa: E731
    eventually(lambda: state() == "completed", 90, "an asynchronous request brings them back, too")
    story = subprocess.run([BIN, "explain", "--config", str(job.config)], capture_output=True, text=True, timeout=30).stdout
    for what in ["from 1 to 2 workers: ", "no request for 4 s", "wait at a router"]:
        assert what in story, story


SLOW = """name: drains
model: m
engine: {{kind: fake, fake_delay_per_token: 40ms, sequences: 16, tokens_per_sequence: 512}}
decode: {{workers: 2}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


def test_a_worker_that_is_stopped_while_it_drains_is_killed_and_its_stream_goes_on():
    body = {"model": "m", "prompt": "hello", "max_tokens": 150, "temperature": 0, "ignore_eos": True, "stream": True}
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(SLOW.format(folder=folder), folder).wait_ready()
        try:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                streams = [pool.submit(httpx.post, job.url + "/v1/completions", json=body, timeout=120) for _ in range(2)]
                decode = {name: process for name, process in job.processes().items() if process["role"] == "decode"}
                eventually(lambda: all(metric(process["url"], "pdjob_requests_running") == 1 for process in decode.values()), 30, "one at each")
                assert scale(job, "decode=1", "--no-wait").returncode == 0
                eventually(lambda: "draining" in {job.processes()[name]["state"] for name in decode}, 30, "one drains")
                (leaving,) = [name for name in decode if job.processes()[name]["state"] == "draining"]
                os.kill(decode[leaving]["pid"], signal.SIGSTOP)
                first, second = (text_of(stream.result()) for stream in streams)
            assert first == second != ""
            eventually(lambda: leaving not in job.processes(), 30, "it is gone")
        finally:
            assert job.stop() == 0, job.log_tail()


def test_a_ramp_of_load_is_followed_up_and_down_and_loses_nothing():
    """The bench's ramp in short. Its engines sleep, so workers add capacity on any machine. How well the SLO is held is the bench's business."""
    bench = pathlib.Path(__file__).resolve().parents[1] / "bench/scale_bench.py"
    done = subprocess.run(
        [sys.executable, bench, "--pdjob", BIN, "--seconds", "30", "--settle", "120"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["lost"] == [], result
    assert result["peak"]["prefill"] >= 2 and result["peak"]["decode"] >= 2, result
    assert result["end"] == {"prefill": 1, "decode": 1}, result
    assert max(result["turns"].values()) <= 3, result
