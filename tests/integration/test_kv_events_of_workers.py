"""pdjob's own workers tell routers which prompts they keep, and prefix_aware uses it."""

import contextlib
import random
import signal
import urllib.parse

import httpx
import pytest

from conftest import MODEL, Process, eventually, metric, running_job

SEQUENCES = 2
PREFIX_AWARE = ["--policy", "prefix_aware"]


def text(seed, length=1800):
    draw = random.Random(seed)
    return " ".join(draw.choice(["red", "blue", "green", "fast", "slow", "cat", "dog", "house"]) for _ in range(length // 5))[:length]


def worker(folder, name, *settings):
    """A worker whose fake engine keeps two prompts. Everything else is real."""
    options = ["engine.kind=fake", f"engine.sequences={SEQUENCES}", "engine.tokens_per_sequence=4096", *settings]
    argv = ["pdjob", "worker", "--role", "both", "--model", MODEL, "--name", name, "--listen", "127.0.0.1:0"]
    return Process(argv + [word for option in options for word in ("--set", option)], folder)


class Bench:
    def __init__(self, router, workers):
        self.router, self.workers = router, workers

    def row(self, worker):
        port = urllib.parse.urlparse(worker.url).port
        return next(row for row in httpx.get(self.router.url + "/pdjob/workers").json()["workers"] if row["port"] == port)

    def events(self, worker):
        return self.row(worker).get("kv_events")

    def told(self, worker, check, what):
        eventually(lambda: (told := self.events(worker)) is not None and told["complete"] and check(told["blocks"]), 20, what)

    def send(self, prompt, at=None):
        headers = {"x-pdjob-pin-decode": self.row(at)["name"]} if at else {}
        reply = httpx.post(self.router.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1}, headers=headers, timeout=60)
        assert reply.status_code == 200, reply.text
        name = reply.headers["x-pdjob-decode"]
        return next(one for one in self.workers if self.row(one)["name"] == name)

    def learnt(self, prompts):
        eventually(lambda: metric(self.router.url, "pdjob_router_tokenize_total", result="ok") == prompts, 20, "the tokens are known")


@contextlib.contextmanager
def running(folder, *flags, settings=()):
    workers = [worker(folder, name, *settings) for name in ("first", "second")]
    addresses = [word for one in workers for word in ("--worker", one.wait_ready().url)]
    router = Process(["pdjob", "router", "--listen", "127.0.0.1:0", *(flags or PREFIX_AWARE), *addresses], folder)
    try:
        router.wait_ready()
        eventually(lambda: len(httpx.get(router.url + "/pdjob/workers").json()["workers"]) == 2, 20, "both workers known")
        yield Bench(router, workers)
    finally:
        codes = [process.stop() for process in (router, *workers)]
    assert all(code in (0, -signal.SIGKILL) for code in codes), codes


def test_a_worker_that_computed_other_prompts_since_is_not_sent_what_it_has_lost(folder):
    with running(folder) as bench:
        first, second = bench.workers
        story = text(1)
        for one in bench.workers:
            bench.told(one, lambda blocks: blocks == 0, "nothing is kept at first")
        bench.send(story + " one", at=first)
        bench.learnt(1)
        bench.told(first, lambda blocks: blocks > 10, "it keeps the prompt")
        assert [bench.send(story + ending) for ending in (" a", " b")] == [first, first]

        # The second worker keeps the story too. Then other prompts take the two sequences of the first worker.
        bench.send(story + " two", at=second)
        for seed in range(2, 2 + SEQUENCES):
            bench.send(text(seed), at=first)
        assert [bench.send(story + ending) for ending in (" c", " d", " e")] == [second] * 3


def test_a_worker_does_not_wait_for_its_listeners_when_it_drains(folder):
    with running(folder) as bench:
        first, second = bench.workers
        bench.send(text(1), at=first)
        bench.told(first, lambda blocks: blocks > 10, "it keeps the prompt")
        assert first.stop(timeout=10) == 0
        assert bench.send(text(1) + " more") is second


def test_a_worker_that_died_has_nothing_and_the_others_are_still_heard(folder):
    with running(folder) as bench:
        first, second = bench.workers
        bench.send(text(1), at=first)
        bench.learnt(1)
        bench.told(first, lambda blocks: blocks > 10, "it keeps the prompt")
        first.child.kill()
        eventually(lambda: not bench.events(first)["complete"], 20, "its stream broke")
        assert bench.events(first)["blocks"] == 0
        assert bench.send(text(1) + " more") is second
        bench.told(second, lambda blocks: blocks > 10, "the other one tells")


@pytest.mark.parametrize("flags", [[*PREFIX_AWARE, "--set", "router.kv_events.own_workers=false"], ["--policy", "least_loaded"]])
def test_nobody_is_asked_who_would_not_be_listened_to(folder, flags):
    with running(folder, *flags) as bench:
        bench.send(text(1))
        assert [bench.events(one) for one in bench.workers] == [None, None]
        assert metric(bench.router.url, "pdjob_router_tokenize_total") == 0


def test_a_worker_without_a_prefix_cache_keeps_nothing(folder):
    with running(folder, settings=["decode.prefix_cache=false"]) as bench:
        first, _ = bench.workers
        bench.send(text(1), at=first)
        bench.learnt(1)
        bench.told(first, lambda blocks: blocks == 0, "nothing is kept")


def test_the_prefill_workers_of_a_job_are_heard(folder):
    with running_job(folder, prefill=2, router="prefill_policy: prefix_aware") as job:
        def blocks():
            rows = httpx.get(job.url + "/pdjob/workers").json()["workers"]
            assert all("kv_events" not in row for row in rows if row["role"] == "decode")
            told = [row["kv_events"] for row in rows if row["role"] == "prefill"]
            assert all(one["complete"] for one in told)
            return sorted(one["blocks"] for one in told)
        story = text(1, 900)
        chosen = []
        for ending in (" a", " b", " c"):
            reply = httpx.post(job.url + "/v1/completions", json={"prompt": story + ending, "max_tokens": 1, "temperature": 0}, timeout=120)
            assert reply.status_code == 200, reply.text
            chosen.append(reply.headers["x-pdjob-prefill"])
            eventually(lambda: blocks()[1] > 5, 20, "one keeps the prompt, and the router has heard it")
        assert len(set(chosen)) == 1
        # Its events reveal the prompts, so they need a key.
        for worker in job.processes().values():
            if worker["role"] == "prefill":
                assert httpx.get(worker["url"] + "/pdjob/kv_events").status_code == 401
                assert httpx.get(worker["url"] + "/pdjob/kv_events", headers={"Authorization": "Bearer guess"}).status_code == 401
