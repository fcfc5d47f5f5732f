"""Third-party routers under the launcher (router.type: command), unmodified. They serve our workers and KV moves. They notice when a worker leaves
and when one joins."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import openai
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import BIN, CACHE, Process, eventually, get, metric, running_job, single  # noqa: E402, F401

PEERS = CACHE / "peers"
ROUTERS = ["vllm-router", "sglang-router", "toy-proxy"]


def router_section(recipe):
    """Returns the router section of the job file. Skips the test if the router is missing here."""
    if recipe == "toy-proxy":
        if "VLLM_TOY_PROXY" not in os.environ:
            pytest.skip("toy_proxy_server.py is in vLLM's sources only: name it in VLLM_TOY_PROXY")
        return f"type: command, recipe: toy-proxy, program: {os.environ.get('VLLM_TOY_PROXY_PYTHON', 'python3')}"
    folder = PEERS / ("sglang-router" if recipe == "sglang-router" else "vllm-router")
    program = folder / "bin" / folder.name
    if not program.exists():
        pytest.skip(f"no {program}: run ./dev setup")
    return f"type: command, recipe: {recipe}, program: {program}"


def client_of(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="any", max_retries=0, timeout=120)


def asks(count):
    return [dict(model="smollm2", prompt=f"Tell me about the number {i}.", max_tokens=8, **sampling)
            for i in range(count) for sampling in ({"temperature": 0}, {"temperature": 1, "seed": i})]


def children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def requests_of(job, name):
    return metric(job.processes()[name]["url"], "pdjob_requests_total")


def check_answers(job, single, count=3):
    client, direct = client_of(job.url), client_of(single.url)
    for ask in asks(count):
        expected = direct.completions.create(**ask).choices[0].text
        assert client.completions.create(**ask).choices[0].text == expected
        assert "".join(e.choices[0].text for e in client.completions.create(**ask, stream=True) if e.choices) == expected


@pytest.mark.parametrize("recipe", ROUTERS)
def test_official_router_serves_our_workers_and_learns_who_leaves_and_who_joins(recipe, single):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, prefill=2, decode=2, router=router_section(recipe)) as job:
            check_answers(job, single)
            decode = [job.processes()[name]["url"] for name in ("decode-0", "decode-1")]
            assert all(metric(url, "pdjob_kv_received_bytes_total") > 0 for url in decode)
            before = job.processes()
            os.kill(before["prefill-0"]["pid"], signal.SIGKILL)
            eventually(lambda: job.processes()["prefill-0"]["pid"] not in (0, before["prefill-0"]["pid"]), seconds=90, what="a new prefill-0")
            eventually(lambda: job.processes()["prefill-0"]["state"] == "ready", seconds=90, what="a ready prefill-0")
            # The worker that joined gets requests, and the one that left gets none.
            client = client_of(job.url)
            served = requests_of(job, "prefill-0")

            def joined():
                # The router's last instance may still ask the dead worker, until the next one has started. It then ends, and so does a connection to it
                # that a client kept.
                with contextlib.suppress(openai.InternalServerError, openai.APIConnectionError):
                    client.completions.create(model="smollm2", prompt="Hello", max_tokens=2)
                return requests_of(job, "prefill-0") > served

            eventually(joined, seconds=90, what="a request at the new prefill-0")
            check_answers(job, single)
            assert len(children_of(job.processes()["router-0"]["pid"])) == 1


@pytest.mark.parametrize("recipe", ["vllm-router", "sglang-router"])
def test_a_router_that_is_killed_is_started_again_and_clients_keep_their_address(recipe, single):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, router=router_section(recipe)) as job:
            check_answers(job, single, count=1)
            wrapper = job.processes()["router-0"]["pid"]
            (program,) = children_of(wrapper)
            os.kill(int(program), signal.SIGKILL)
            # A connection made while there is no router waits for the next one.
            eventually(lambda: children_of(wrapper) not in ([], [program]), what="a new instance")
            check_answers(job, single, count=1)
            assert job.processes()["router-0"]["pid"] == wrapper
            # The program dies with the process that watches it.
            (program,) = children_of(wrapper)
            os.kill(wrapper, signal.SIGKILL)
            eventually(lambda: not pathlib.Path(f"/proc/{program}").exists(), what="the router's end")
            eventually(lambda: job.processes()["router-0"]["state"] == "ready", seconds=90, what="a ready router-0")
            check_answers(job, single, count=1)


def test_a_router_serves_workers_that_no_launcher_started(single):
    program = PEERS / "vllm-router/bin/vllm-router"
    if not program.exists():
        pytest.skip(f"no {program}: run ./dev setup")
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        settings = ["router.type=command", "router.recipe=vllm-router", f"router.program={program}"]
        router = Process(["pdjob", "router", "--worker", single.url, "--listen", "127.0.0.1:0"] + [part for s in settings for part in ("--set", s)], folder)
        try:
            router.wait_ready()
            assert json.loads(get(router.url + "/v1/models"))["data"][0]["id"] == "smollm2"
            check_answers(router, single, count=1)
        finally:
            assert router.stop() == 0, router.log_tail()


def test_a_program_that_is_not_there_is_named_with_what_to_do():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        answer = subprocess.run(
            [BIN, "router", "--worker", "127.0.0.1:9", "--set", "router.type=command", "--set", "router.recipe=vlm-router"],
            capture_output=True, text=True, timeout=30, cwd=folder)
        assert answer.returncode == 2
        assert "there is no recipe vlm-router: known are" in answer.stderr
