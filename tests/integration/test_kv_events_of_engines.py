"""Jobs whose engines are of another make, and a router that goes by what these say of their prefix caches. The engines are doubles, as processes of
their own (tests/support/engine_program_double.py)."""

import os
import pathlib
import random
import re
import signal
import sys

import httpx
import pytest

from conftest import Job, eventually, metric, processes_with
from test_foreign_engines import engine_pid, folder, foreign_job, logs, plan, yaml  # noqa: F401

BLOCK = 16
ROUTER = "prefill_policy: prefix_aware, prefill_in_flight: 0"
SGLANG = 'args: [--page-size, "16"]'


@pytest.fixture(autouse=True)
def path_with_zeromq(monkeypatch):
    """The doubles publish with the packages of the tests."""
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")


def story(seed, length=4096):
    letters = random.Random(seed)
    return "".join(letters.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(length))


def events_of(job):
    return {row["name"]: row.get("kv_events") for row in httpx.get(job.url + "/pdjob/workers").json()["workers"]}


def blocks_of(job, name):
    return (events_of(job)[name] or {"blocks": 0})["blocks"]


def is_complete(job, name):
    return bool((events_of(job)[name] or {"complete": False})["complete"])


def send(job, prompt, role="prefill", to=None):
    """Returns the name of the worker of this role. `to` forces it."""
    headers = {f"x-pdjob-pin-{role}": to} if to else {}
    reply = httpx.post(job.url + "/v1/completions", json={"model": "tiny", "prompt": prompt, "max_tokens": 1}, headers=headers, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.headers[f"x-pdjob-{role}"]


def told(job, name, prompt, role="prefill"):
    """Sends a prompt to this worker, and waits until the router was told of all its blocks."""
    before = blocks_of(job, name)
    assert send(job, prompt, role, to=name) == name
    eventually(lambda: blocks_of(job, name) == before + len(prompt) // BLOCK, 20, f"{name} has told of the prompt: {before}, {blocks_of(job, name)}")


def learnt(job, prompts):
    eventually(lambda: metric(job.url, "pdjob_router_tokenize_total", result="ok") >= prompts, 20, "the tokens are known")


@pytest.mark.parametrize("kind, engine", [("vllm", ""), ("sglang", SGLANG)])
def test_an_evicted_prefix_is_not_looked_for_where_it_was(folder, kind, engine):  # noqa: F811
    room = 600
    options = {"kind": kind, "engine": engine, "prefill": 2, "router": ROUTER, "env": [f"DOUBLE_CACHE_BLOCKS={room}"]}
    with foreign_job(folder, **options) as job:
        workers = ["prefill-0", "prefill-1"]
        eventually(lambda: all(is_complete(job, name) for name in workers), 20, f"both are followed from their beginning: {events_of(job)}")
        assert events_of(job)["decode-0"] is None, "no policy goes by what decode engines hold"
        one = story(1)
        for name in workers:
            told(job, name, one)
        learnt(job, 1)
        for seed, (gone, other) in enumerate([workers, reversed(workers)]):
            # As much as the engine has room for: it evicts the story.
            for piece in range(3):
                send(job, story(f"{seed} {piece}", room // 2 * BLOCK), to=gone)
            eventually(lambda: blocks_of(job, gone) == room, 20, f"{gone} is full")
            eventually(lambda: send(job, one + "?") == other, 20, "the router knows")
            assert [send(job, one + ending) for ending in ".!;"] == [other] * 3
            told(job, gone, one) if blocks_of(job, gone) < room else send(job, one, to=gone)
        assert metric(job.url, "pdjob_router_kv_event_gaps_total") == 0


def test_an_engine_that_starts_again_has_nothing(folder):  # noqa: F811
    with foreign_job(folder, prefill=2, router=ROUTER) as job:
        one = story(2)
        for name in ("prefill-0", "prefill-1"):
            eventually(lambda: is_complete(job, name), 20, "followed")
            told(job, name, one)
        learnt(job, 1)
        os.kill(engine_pid(job, "prefill-0"), signal.SIGKILL)
        eventually(lambda: "prefill-0" not in events_of(job), 20, "it has left")
        eventually(lambda: events_of(job).get("prefill-0") and is_complete(job, "prefill-0"), 30, "it is followed again")
        assert blocks_of(job, "prefill-0") < len(one) // BLOCK
        assert [send(job, one + ending) for ending in ".!;"] == ["prefill-1"] * 3


def test_each_data_parallel_rank_is_followed(folder):  # noqa: F811
    engine = "parallel: {data: 2}"
    with foreign_job(folder, prefill=0, engine=engine, router="decode_policy: prefix_aware") as job:
        eventually(lambda: is_complete(job, "decode-0"), 20, f"both ranks are followed: {events_of(job)}")
        for seed in range(4):  # The double gives each rank every other prompt.
            told(job, "decode-0", story(seed), role="decode")
        assert "decode-0, rank 1 tells what is in its prefix cache" in logs(folder)


@pytest.mark.parametrize("options", [
    {"router": ""},  # No policy goes by prefixes.
    {"router": ROUTER, "engine": "kv_events: false"},
    {"router": ROUTER + ", kv_events: {own_workers: false}"},
    {"router": ROUTER, "kind": "sglang"},  # Its pages have one token.
])
def test_an_engine_publishes_only_where_the_router_goes_by_it(folder, options):  # noqa: F811
    shown = plan(folder, **options)
    assert "--kv-events-config" not in shown.stdout, shown.stdout
    if options.get("kind") == "sglang":
        assert "sglang does not tell the router what is in its prefix cache: its blocks have 1 token" in shown.stdout + shown.stderr


def test_the_plan_shows_the_ports_of_events(folder):  # noqa: F811
    shown = plan(folder, router=ROUTER, engine="ports: 22000-22099").stdout
    prefill = next(line for line in shown.splitlines() if line.startswith("prefill-0 runs: "))
    assert '"endpoint":"tcp://*:0;127.0.0.1:22002","replay_endpoint":"tcp://127.0.0.1:22003"' in prefill
    assert "--kv-events-config" not in next(line for line in shown.splitlines() if line.startswith("decode-0 runs: "))
    assert re.search(r"vllm answers without a key: .*, its KV events, which have the tokens of prompts; it listens on 127.0.0.1", shown)


# --- features


def test_an_engine_that_is_too_old_for_a_feature_is_refused(folder):  # noqa: F811
    options = {"kind": "sglang", "engine": "features: [decode_radix_cache, kv_checksum]", "env": ["DOUBLE_VERSION=0.5.20"]}
    text = yaml(folder, launcher="restart: {backoff_min: 100ms, attempts: 1}", **options).replace("restart: {backoff_min: 100ms}, ", "")
    job = Job(text, folder)
    assert job.child.wait(60) == 1
    assert "sglang 0.5.20 is too old for kv_checksum of engine.features, which came with 0.5.21" in job.log_tail()
    assert not processes_with(folder)


def test_an_engine_with_priorities_knows_which_requests_are_in_the_background(folder):  # noqa: F811
    with foreign_job(folder, engine="features: [priority]", env=["DOUBLE_VERSION=0.32.0"]) as job:
        ask = {"model": "tiny", "max_tokens": 2}
        for more, headers in (({"prompt": "first is online"}, {}), ({"prompt": "second waits", "priority": -5}, {"x-pdjob-background": "1"}),
                              ({"prompt": "third waits", "service_tier": "flex"}, {}), ({"prompt": "fourth is online", "priority": 0}, {})):
            reply = httpx.post(job.url + "/v1/completions", json={**ask, **more}, headers=headers, timeout=60)
            assert reply.status_code == 200, reply.text
        text = logs(folder)
    assert sorted(re.findall(r"priority (\S+) of (.*)", text)) == [("0", "fourth is online")] * 2 + [("1", "second waits")] * 2 + [("1", "third waits")] * 2
    assert text.count("--scheduling-policy priority") == 2


def test_an_engine_has_its_features(folder):  # noqa: F811
    options = {"kind": "sglang", "engine": "features: [decode_radix_cache, kv_checksum]", "env": ["DOUBLE_VERSION=0.5.22"]}
    with foreign_job(folder, **options) as job:
        assert send(job, story(3)) == "prefill-0"
        text = logs(folder)
    prefill, decode = (next(line for line in text.splitlines() if "the engine: " in line and f"mode {role}" in line) for role in ("prefill", "decode"))
    assert "--disaggregation-enable-kv-checksum" in prefill and "--disaggregation-enable-kv-checksum" in decode
    assert "--disaggregation-decode-enable-radix-cache" in decode and "--disaggregation-decode-enable-radix-cache" not in prefill
