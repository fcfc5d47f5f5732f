"""Trainers' client libraries, unmodified, against a rollout job: SkyRL, prime-rl's renderers, the OpenAI client, SGLang's decoder, the routers of SGLang and vLLM."""

import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import urllib.request

import httpx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
from conftest import CACHE, MODEL, Process, eventually, free_port, running_job  # noqa: E402
from gguf_weights import swap_layers  # noqa: E402

PYTHON = CACHE / "peers/rollout-clients/bin/python"
SGLANG_ROUTER = CACHE / "peers/sglang-router/bin/sglang-router"
VLLM_ROUTER = CACHE / "peers/vllm-router/bin/vllm-router"
PROMPT = [1, 4093, 253, 655, 28, 665, 436, 253, 2429, 1431, 30, 378]
TOKENS = 12
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no clients at {PYTHON}: run ./dev test")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pdjob-clients")
    (folder / "weights").mkdir()
    shutil.copy(MODEL, folder / "weights/a.gguf")
    swap_layers(MODEL, folder / "weights/b.gguf", 1, 4)
    extra = f"mode: rollout\nrollout: {{weights_dir: {folder}/weights, control: same_address, open: true}}\n"
    with running_job(folder, extra=extra) as job:
        job.weights = folder / "weights"
        yield job


@pytest.fixture(scope="module")
def expected(job, tmp_path_factory):
    """What one process says with each set of weights."""
    said = {}
    for which in "ab":
        argv = ["pdjob", "worker", "--role", "both", "--model", str(job.weights / f"{which}.gguf"), "--listen", "127.0.0.1:0"]
        alone = Process(argv, tmp_path_factory.mktemp("pdjob-alone")).wait_ready()
        said[which] = generate(alone.url)["output_ids"]
        alone.stop()
    assert said["a"] != said["b"]
    return said


def generate(url):
    params = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    reply = httpx.post(url + "/generate", json={"input_ids": PROMPT, "sampling_params": params}, timeout=120)
    assert reply.status_code == 200, reply.text
    return reply.json()


def client(name, job, **given):
    words = [str(PYTHON), str(ROOT / "tests/support/rollout_clients.py"), name, job.url, json.dumps({"prompt": PROMPT, "tokens": TOKENS, **given})]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout)


def use(job, which, version):
    """The weights `which`, whatever the tests before left."""
    request = urllib.request.Request(job.url + "/v1/rl/update", json.dumps({"path": f"{which}.gguf", "version": version}).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=180) as reply:
        assert reply.status == 200


def test_openais_client_gets_tokens_and_versions(job, expected):
    for choice in client("openai", job):
        assert choice["token_ids"] == expected["a"] and choice["prompt_token_ids"] == PROMPT
        assert choice["versions"] == [{"version": "default", "start": 0, "end": TOKENS}] and len(choice["logprobs"]) == TOKENS


def test_prime_rls_renderers_sample(job, expected):
    told = client("renderers", job)
    assert told["completion_ids"] == expected["a"] and told["prompt_ids"] == PROMPT
    assert told["finish_reason"] == "length" and len(told["completion_logprobs"]) == TOKENS
    assert "maximum context length (2048)" in told["overlong"]


def test_sglangs_own_decoder_takes_each_reply(job, expected):
    for told in client("sglang", job):
        assert told["output_ids"] == expected["a"]
        assert told["meta"]["weight_versions"] == [{"version": "default", "start": 0, "end": TOKENS}]
        assert [token for _, token, _ in told["meta"]["output_token_logprobs"]] == expected["a"]


def test_skyrl_samples_pauses_and_goes_on_with_new_weights(job, expected):
    told = client("skyrl", job, weights=str(job.weights / "b.gguf"))
    assert told["world"] == [1, 1]
    assert told["before"]["response_ids"] == [expected["a"]] * 2
    assert [len(each) for each in told["before"]["response_logprobs"]] == [TOKENS] * 2
    assert not told["done_while_paused"] and len(told["over_the_pause"]["response_ids"][0]) == 200
    assert told["after"]["response_ids"] == [expected["b"]] * 2 and told["after"]["stop_reasons"] == ["length"] * 2
    assert told["refusal"].startswith("400 "), "SkyRL's own transports need torch"


def test_sglangs_router_in_front_passes_versions_on(job, expected, tmp_path):
    use(job, "b", "behind")
    with router_in_front([str(SGLANG_ROUTER), "launch"], job, tmp_path) as url:
        reply = generate(url)
    assert reply["output_ids"] == expected["b"]
    assert reply["meta_info"]["weight_versions"] == [{"version": "behind", "start": 0, "end": TOKENS}]


def test_vllms_router_in_front_passes_versions_on(job, expected, tmp_path):
    use(job, "b", "behind")
    asked = {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    with router_in_front([str(VLLM_ROUTER)], job, tmp_path) as url:
        reply = httpx.post(url + "/v1/completions", json={"model": "smollm2", **asked}, timeout=120)
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    assert choice["token_ids"] == expected["b"]
    assert choice["weight_versions"] == [{"version": "behind", "start": 0, "end": TOKENS}]


@contextlib.contextmanager
def router_in_front(words, job, folder):
    ports = [free_port() for _ in range(2)]
    words = [*words, "--worker-urls", job.url, "--host", "127.0.0.1", "--policy", "round_robin", "--worker-startup-check-interval", "1"]
    with open(folder / "router.log", "wb") as log:
        router = subprocess.Popen([*words, "--port", str(ports[0]), "--prometheus-host", "127.0.0.1", "--prometheus-port", str(ports[1])], stdout=log, stderr=log)
        url = f"http://127.0.0.1:{ports[0]}"
        try:
            eventually(lambda: ready(url), 60, "the router is ready")
            yield url
        finally:
            router.kill()
            router.wait()


def ready(url):
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url + "/readiness", timeout=5).status_code == 200
    return False
