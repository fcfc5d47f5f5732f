"""A third-party policy: built as its header says, and loaded by its own router."""

import subprocess
import tempfile

import openai
import pytest

from conftest import ROOT, Process, eventually, fake_worker, get


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    made = tmp_path_factory.mktemp("plugin") / "fewest_requests.so"
    source = ROOT / "router/policies/plugins/fewest_requests.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-I", str(ROOT), str(source), "-o", str(made)], check=True, timeout=60)
    return made


def router_of(workers, folder, *settings):
    flags = [part for setting in settings for part in ("--set", f"router.{setting}")]
    addresses = [part for worker in workers for part in ("--worker", worker)]
    return Process(["pdjob", "router", "--listen", "127.0.0.1:0", *addresses, *flags], folder)


def test_the_plugin_chooses_the_worker_of_each_request(library):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        workers = [fake_worker("both", folder, name).wait_ready() for name in ("spot-0", "own-0", "spot-1")]
        router = router_of([worker.url for worker in workers], folder, "decode_policy=plugin", f"policy_plugin={library}", "policy_options=own-").wait_ready()
        eventually(lambda: get(router.url + "/pdjob/workers").count('"healthy"') == 3, 20, "all workers known")
        client = openai.OpenAI(base_url=router.url + "/v1", api_key="none", max_retries=0, timeout=30)
        model = client.models.list().data[0].id
        for _ in range(5):
            reply = client.completions.with_raw_response.create(model=model, prompt="Once", max_tokens=2)
            assert reply.headers["x-pdjob-decode"] == "own-0"
        for process in [router, *workers]:
            assert process.stop() == 0, process.log_tail()


def test_a_library_that_is_no_plugin_keeps_the_router_from_starting():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        router = router_of(["http://127.0.0.1:9"], folder, "decode_policy=plugin", "policy_plugin=/nowhere/mine.so")
        assert router.child.wait(20) == 1
        assert "cannot start: cannot load /nowhere/mine.so" in router.log_tail()
