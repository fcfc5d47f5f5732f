"""Real vLLM beside real LMCache and real Mooncake, on CPUs: `./dev peers vllm_stores`. Engines and stores are processes of a job."""

import contextlib
import os
import pathlib
import signal

import pytest

from test_vllm import VLLM, ask, family_of, prompts, text_of, vllm_job, yaml  # isort: skip
from conftest import eventually, free_port, metric  # isort: skip

pytestmark = pytest.mark.heavy

PROGRAMS = {"lmcache": ["lmcache"], "mooncake": ["mooncake_client", "mooncake_master"]}
LONG = prompts()[-2:]  # More than 1,200 tokens.


def yaml_beside(kind, folder):
    return yaml(folder) + f"kv_store: {{kind: {kind}, memory: 1GiB, port: {free_port()}, programs: {VLLM}/bin}}\n"


def tokens_loaded(job):
    """From the store, by the prefill engine."""
    return metric(job.processes()["prefill-0"]["url"], "vllm:external_prefix_cache_hits_total")


def store_pid(job, name, program):
    """Of the program itself: the worker's grandchild, behind the guard, or what took its place."""
    for pid in family_of(job.processes()[name]["pid"])[2:]:
        with contextlib.suppress(OSError):
            if program in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
                return pid
    raise AssertionError(f"{name} has no {program}")


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_prompt_is_loaded_from_the_store_and_a_killed_store_costs_no_request(kind, tmp_path):
    with vllm_job(yaml_beside(kind, tmp_path), tmp_path) as job:
        first = [text_of(ask(job.url, prompt)) for prompt in LONG]
        eventually(lambda: [text_of(ask(job.url, prompt)) for prompt in LONG] == first and tokens_loaded(job) > 1000, 60, "KV comes from the store")
        for program, name in zip(PROGRAMS[kind], ["store-0", "store-master"], strict=False):
            restarts = job.processes()[name]["restarts"]
            os.kill(store_pid(job, name, program), signal.SIGKILL)
            assert [text_of(ask(job.url, prompt)) for prompt in LONG] == first
            eventually(lambda: job.processes()[name]["restarts"] > restarts and job.processes()[name]["state"].startswith("ready"), 120, "it is back")
            before = tokens_loaded(job)
            eventually(lambda: [text_of(ask(job.url, prompt)) for prompt in LONG] == first and tokens_loaded(job) > before, 120, "it serves")
