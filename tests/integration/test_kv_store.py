"""The KV of prompts outlives the workers that computed it: workers load it from the store of their node. Tokens stay the same."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import threading

import httpx
import pytest

import netns
from conftest import assert_idle, eventually, kill_and_await, metric, running_job
from test_agents import machines, node_of

BLOCK = 64


def words(count, seed):
    """Returns random tokens of the vocabulary's plain range."""
    draw = random.Random(seed)
    return [draw.randrange(300, 40000) for _ in range(count)]


def complete(url, prompt, tokens=10, **headers):
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "return_token_ids": True, "ignore_eos": True}
    reply = httpx.post(url + "/v1/completions", json=body, headers=headers, timeout=120)
    assert reply.status_code == 200, reply.text
    return reply.json()


def tokens_of(reply):
    return reply["choices"][0]["token_ids"]


def blocks_of(count):
    """Returns how many of so many tokens lie in whole blocks."""
    return count // BLOCK * BLOCK


@contextlib.contextmanager
def job_with_store(disk="", **options):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        behind = f", disk: {{path: {disk}, bytes: 512MiB}}" if disk else ""
        with running_job(folder, extra=f"kv_store: {{memory: 256MiB{behind}}}\n", **options) as running:
            eventually(lambda: running.processes()["store-0"]["state"] == "ready", what="the store is ready")
            yield running


@pytest.fixture(scope="module")
def job():
    with job_with_store() as running:
        yield running


def stored(job):
    """Returns how many blocks the store has."""
    return metric(job.processes()["store-0"]["url"], "pdjob_store_blocks", tier="memory")


def store_gets(job, tokens, before):
    """Waits until the store has the blocks of so many tokens more."""
    eventually(lambda: stored(job) >= before + tokens // BLOCK, what=f"{tokens} tokens are in the store")


def test_workers_that_come_anew_load_what_the_dead_ones_computed(job, single):
    prompt = words(700, seed=1)
    expected = tokens_of(complete(single.url, prompt))
    before = stored(job)
    reply = complete(job.url, prompt)
    assert tokens_of(reply) == expected
    store_gets(job, 700, before)
    kill_and_await(job, "prefill-0", "decode-0")
    again = complete(job.url, prompt)
    assert tokens_of(again) == expected
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == blocks_of(699)
    assert metric(job.processes()["prefill-0"]["url"], "pdjob_kv_store_hits_total") == blocks_of(699)
    assert_idle(job)


def test_the_next_turn_loads_the_tokens_that_a_dead_worker_generated(job, single):
    prompt = words(100, seed=2)
    before = stored(job)
    answer = tokens_of(complete(job.url, prompt, tokens=120))
    store_gets(job, 219, before)
    kill_and_await(job, "prefill-0", "decode-0")
    turn = prompt + answer + words(20, seed=3)
    reply = complete(job.url, turn)
    assert tokens_of(reply) == tokens_of(complete(single.url, turn))
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= blocks_of(len(prompt) + len(answer) - 1)


def test_a_killed_store_costs_no_request(job, single):
    prompts = [words(200 + 10 * number, seed=10 + number) for number in range(6)]
    expected = [tokens_of(complete(single.url, prompt)) for prompt in prompts]
    answers, errors = {}, []

    def ask(number):
        try:
            for turn in range(4):
                answers[number, turn] = tokens_of(complete(job.url, prompts[number]))
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=[number]) for number in range(len(prompts))]
    for thread in threads:
        thread.start()
    for _ in range(2):
        kill_and_await(job, "store-0")
    for thread in threads:
        thread.join()
    assert not errors
    assert answers == {(number, turn): expected[number] for number in range(len(prompts)) for turn in range(4)}
    assert job.status()["state"] == "ready"


def test_a_store_that_came_anew_gets_what_workers_still_have(single):
    with job_with_store() as job:
        prompt = words(300, seed=4)
        expected = tokens_of(complete(job.url, prompt))
        kill_and_await(job, "store-0")
        complete(job.url, words(20, seed=5))  # It names the new store to the workers.
        store_gets(job, 300, 0)
        kill_and_await(job, "prefill-0")
        reply = complete(job.url, prompt)
        assert tokens_of(reply) == expected == tokens_of(complete(single.url, prompt))
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == blocks_of(299)


def test_a_hung_store_costs_no_request(single):
    with job_with_store() as job:
        prompt = words(300, seed=6)
        expected = tokens_of(complete(job.url, prompt))
        store_gets(job, 300, 0)
        kill_and_await(job, "prefill-0")
        complete(job.url, words(20, seed=7))
        os.kill(job.processes()["store-0"]["pid"], signal.SIGSTOP)
        for _ in range(3):
            assert tokens_of(complete(job.url, prompt)) == expected == tokens_of(complete(single.url, prompt))


def test_what_is_on_disk_outlives_all_processes_and_the_job(single, tmp_path):
    disk = tmp_path / "kv"
    prompt = words(500, seed=9)
    expected = tokens_of(complete(single.url, prompt))

    def loads(job):
        reply = complete(job.url, prompt)
        assert tokens_of(reply) == expected
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == blocks_of(499)
        assert metric(job.processes()["store-0"]["url"], "pdjob_store_disk_blocks_read_total") == 499 // BLOCK

    with job_with_store(disk=disk) as job:
        assert tokens_of(complete(job.url, prompt)) == expected
        eventually(lambda: metric(job.processes()["store-0"]["url"], "pdjob_store_blocks", tier="disk") >= 500 // BLOCK, what="the blocks are on disk")
        kill_and_await(job, "store-0", "prefill-0", "decode-0")
        loads(job)
    with job_with_store(disk=disk) as job:
        loads(job)


def test_a_disk_that_goes_away_costs_no_request(single, tmp_path):
    disk = tmp_path / "kv"
    with job_with_store(disk=disk) as job:
        shutil.rmtree(disk)
        for seed in range(20, 24):
            prompt = words(200, seed=seed)
            expected = tokens_of(complete(single.url, prompt))
            before = stored(job)
            assert tokens_of(complete(job.url, prompt)) == expected
            store_gets(job, 200, before)
            kill_and_await(job, "prefill-0")
            assert tokens_of(complete(job.url, prompt)) == expected
        assert metric(job.processes()["store-0"]["url"], "pdjob_store_disk_failures_total") >= 1
        assert metric(job.processes()["prefill-0"]["url"], "pdjob_kv_store_hits_total") == blocks_of(199)
        assert "the disk behind the store: " in "".join(log.read_text() for log in pathlib.Path(job.folder).glob("**/store-0*.log"))


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of this size."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", folder], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a file system here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_costs_no_request(single, tmp_path):
    prompts = [words(700, seed) for seed in range(30, 34)]
    with small_disk(tmp_path / "kv", "4m"), job_with_store(disk=tmp_path / "kv") as job:
        for prompt in prompts:
            assert tokens_of(complete(job.url, prompt)) == tokens_of(complete(single.url, prompt))
        store = job.processes()["store-0"]
        eventually(lambda: metric(store["url"], "pdjob_store_disk_failures_total") > 0, what="the disk is full")
        said = "".join(log.read_text() for log in pathlib.Path(job.folder).glob("**/store-0*.log"))
        assert "No space left on device" in said, said
        kill_and_await(job, "prefill-0")
        for prompt in prompts:
            assert tokens_of(complete(job.url, prompt)) == tokens_of(complete(single.url, prompt))
        assert job.processes()["store-0"]["pid"] == store["pid"]


@pytest.mark.skipif(bool(netns.unavailable()), reason=netns.unavailable())
def test_what_the_own_store_lacks_comes_from_the_store_of_another_machine(single):
    prompt = words(700, seed=40)
    expected = tokens_of(complete(single.url, prompt))
    with machines("a", "b") as made:
        for name in ("a", "b"):
            made.start_agent(name)
        with made.lan.inside("front"), running_job(made.folder, prefill=2, extra=made.clusters(2) + "\nkv_store: {memory: 256MiB}\n") as job:
            assert node_of(job, "prefill-0") != node_of(job, "prefill-1")
            urls = [process["url"] for name, process in job.processes().items() if name.startswith("store-")]
            held = lambda: sum(metric(url, "pdjob_store_blocks", tier="memory") for url in urls)

            def loaded(worker):
                before = metric(job.processes()[worker]["url"], "pdjob_kv_store_hits_total")
                assert tokens_of(complete(job.url, prompt, **{"x-pdjob-pin-prefill": worker})) == expected
                return metric(job.processes()[worker]["url"], "pdjob_kv_store_hits_total") - before

            assert loaded("prefill-0") == 0
            eventually(lambda: held() >= 700 // BLOCK, what="the store of the first machine has the prompt")
            before = held()
            assert loaded("prefill-1") == blocks_of(699)
            eventually(lambda: held() >= before + 699 // BLOCK, what="so has that of the second one")
            kill_and_await(job, "prefill-1")
            assert loaded("prefill-1") == blocks_of(699)


def test_a_stream_that_goes_on_loads_what_the_dead_worker_generated(single):
    with job_with_store(decode=2) as job:
        prompt, answer, victim = words(70, seed=8), [], []
        body = {"model": "smollm2", "prompt": prompt, "max_tokens": 330, "temperature": 0, "return_token_ids": True, "ignore_eos": True}
        with httpx.stream("POST", job.url + "/v1/completions", json={**body, "stream": True}, timeout=120) as reply:
            worker = reply.headers["x-pdjob-worker"]
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    answer += json.loads(line.removeprefix("data: "))["choices"][0].get("token_ids") or []
                if len(answer) >= 300 and not victim:
                    store_gets(job, 70 + 280, 0)
                    victim.append(worker)
                    os.kill(job.processes()[worker]["pid"], signal.SIGKILL)
        assert answer == tokens_of(complete(single.url, prompt, tokens=330))
        other = {"decode-0": "decode-1", "decode-1": "decode-0"}[victim[0]]
        assert metric(job.processes()[other]["url"], "pdjob_kv_store_hits_total") >= blocks_of(70 + 280) - blocks_of(70) - BLOCK
