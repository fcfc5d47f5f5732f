"""Several models in one job. Workers serve only requests of their own model, and failures of one model leave the others alone."""

import json
import os
import signal
import subprocess
import tempfile
import time

import httpx
import pytest

from conftest import BIN, MODEL, Job, assert_idle, eventually
from test_kill import Load

YAML = """\
name: test-models
engine: {{threads: 1, tokens_per_sequence: 1024}}
models:
  small:
    model: {model}
    decode: {{workers: 2, engine: {{sequences: 4}}}}
  large:
    model: {model}
    served_name: org/Large-7B
    engine: {{kv_type: f16, sequences: 2}}
  toy:
    prefill: {{workers: 0}}
    engine: {{kind: fake}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""
WORKERS = {
    "small": {"small-prefill-0", "small-decode-0", "small-decode-1"},
    "org/Large-7B": {"large-prefill-0", "large-decode-0"},
    "toy": {"toy-decode-0"},
}
ASK = {"prompt": "Tell me a story about a river.", "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(YAML.format(model=MODEL, folder=folder), folder).wait_ready()
        yield job
        assert job.stop() == 0, job.log_tail()


def ask(job, model, path="/v1/completions", **more):
    return httpx.post(job.url + path, json={**ASK, "model": model, **more}, timeout=60)


def served_by(reply):
    return {reply.headers[name] for name in ("x-pdjob-prefill", "x-pdjob-decode") if name in reply.headers}


def pdjob(job, *argv):
    done = subprocess.run([BIN, *argv, "--config", str(job.config)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_request_is_served_by_workers_of_its_model(job):
    texts = {}
    for model, workers in WORKERS.items():
        seen = set()
        for i in range(6):
            reply = ask(job, model, prompt=f"{i}. {ASK['prompt']}")
            assert reply.status_code == 200, reply.text
            assert reply.json()["model"] == model
            assert served_by(reply) <= workers
            assert ("x-pdjob-prefill" in reply.headers) == (model != "toy")
            texts.setdefault(i, {})[model] = reply.json()["choices"][0]["text"]
            seen |= served_by(reply)
        assert len(seen) >= min(len(workers), 2)
    assert all(each["toy"] != each["small"] for each in texts.values()), texts
    for model, workers in WORKERS.items():
        assert served_by(ask(job, model, "/tokenize")) <= workers


def test_an_answer_of_one_model_is_that_of_the_model_alone(job, single):
    """With q8_0 KV: the same tokens as one process."""
    body = {**ASK, "max_tokens": 24}
    alone = httpx.post(single.url + "/v1/completions", json={**body, "model": "smollm2"}, timeout=60).json()
    assert ask(job, "small", max_tokens=24).json()["choices"][0]["text"] == alone["choices"][0]["text"]


def test_all_models_are_listed_and_no_other_is_there(job):
    listed = httpx.get(job.url + "/v1/models").json()["data"]
    assert {model["id"] for model in listed} == set(WORKERS)
    for unknown in ("large", "smollm2", "gpt-4o"):
        reply = ask(job, unknown)
        assert reply.status_code == 404
        assert reply.json()["error"]["code"] == "model_not_found"
    nameless = httpx.post(job.url + "/v1/completions", json=ASK, timeout=60)
    assert nameless.status_code == 400
    assert nameless.json()["error"]["param"] == "model"


def test_plan_status_and_links_tell_the_models_apart(job):
    plan = json.loads(pdjob(job, "plan", "--json"))
    assert [model["name"] for model in plan["models"]] == list(WORKERS)
    of = {row["name"]: row.get("model") for row in plan["processes"]}
    assert of == {"router-0": None, **{worker: model for model, workers in WORKERS.items() for worker in workers}}
    assert job.status()["models"] == list(WORKERS)
    assert {name: process.get("model") for name, process in job.processes().items()} == of
    assert "small-decode-1   small         decode   ready" in pdjob(job, "status")

    engines = {process["engine_id"]: name for name, process in job.processes().items()}
    pairs = set()
    for worker in json.loads(pdjob(job, "links", "--json"))["workers"]:
        pairs |= {(of[worker["name"]], of[engines[link["peer"]]]) for link in worker["links"]}
    assert pairs == {("small", "small"), ("org/Large-7B", "org/Large-7B")}


def test_a_dead_worker_of_one_model_is_no_matter_to_the_others(job):
    before = job.processes()
    with Load(job.url, model="small") as small, Load(job.url, model="toy") as toy:
        eventually(lambda: small.successes_after(0) >= 4 and toy.successes_after(0) >= 4, 60, "load under way")
        os.kill(before["large-decode-0"]["pid"], signal.SIGKILL)
        # The model has lost its only decode worker. Its requests wait for the next one.
        eventually(lambda: job.processes()["large-decode-0"]["pid"] not in (0, before["large-decode-0"]["pid"]), 30, "started again")
        reply = ask(job, "org/Large-7B")
        assert reply.status_code == 200, reply.text
        assert served_by(reply) == WORKERS["org/Large-7B"]
        eventually(lambda: all(p["state"] == "ready" for p in job.processes().values()), 60, "all ready again")
        back = time.monotonic()
        eventually(lambda: small.successes_after(back) >= 4 and toy.successes_after(back) >= 4, 60, "load goes on")
    assert {status for _, status, _ in small.answers + toy.answers} == {200}
    after = job.processes()
    assert {name for name in after if after[name]["pid"] != before[name]["pid"]} == {"large-decode-0"}
    eventually(lambda: assert_idle(job), 30, "no rows left in use")


def test_a_model_without_workers_is_not_unknown(job):
    """When both its workers are killed, the model is still listed, and its requests wait for the next workers."""
    for name in WORKERS["org/Large-7B"]:
        os.kill(job.processes()[name]["pid"], signal.SIGKILL)
    assert "org/Large-7B" in httpx.get(job.url + "/v1/models").text
    reply = ask(job, "org/Large-7B")
    assert reply.status_code == 200, reply.text
    eventually(lambda: all(p["state"] == "ready" for p in job.processes().values()), 60, "all ready again")
