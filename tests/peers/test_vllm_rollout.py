"""Weights of real vLLM engines on CPUs change while they serve: `./dev peers` runs this. The new weights are the model's own with two layers
exchanged. What the fleet says with them is what an engine says that was started with them."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import eventually, free_port, get  # noqa: E402
from test_rollout import call, rollout_yaml, versions  # noqa: E402
from test_vllm import ARGUMENTS, ENVIRONMENT, MODEL, START_SECONDS, VLLM, all_ready, ask, engine_of, family_of, new_folder, prompts, text_of, vllm_job, yaml  # noqa: E402

pytestmark = pytest.mark.heavy

ASKED = prompts()[20:48:3]


def exchange_layers(source, target):
    """Copies a checkpoint. The names of the tensors of layers 1 and 2 are exchanged in its header."""
    shutil.copytree(source, target)
    raw = bytearray((source / "model.safetensors").read_bytes())
    (size,) = struct.unpack("<Q", raw[:8])
    header = bytes(raw[8:8 + size])
    changed = header.replace(b"layers.1.", b"layers.@.").replace(b"layers.2.", b"layers.1.").replace(b"layers.@.", b"layers.2.")
    assert changed != header and json.loads(changed).keys() == json.loads(header).keys()
    raw[8:8 + size] = changed
    (target / "model.safetensors").write_bytes(raw)


def said(url):
    return [text_of(ask(url, prompt)) for prompt in ASKED]


@contextlib.contextmanager
def alone(model, folder):
    port = free_port()
    command = [VLLM / "bin/vllm", "serve", model, "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), *ARGUMENTS]
    environment = {**os.environ, **dict(each.split("=") for each in ENVIRONMENT), "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with open(f"{folder}/alone.log", "wb") as log:
        engine = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: engine.poll() is not None or get(url + "/health") == "", START_SECONDS, "vLLM alone")
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()


def test_real_engines_take_new_weights_and_say_what_these_say():
    with new_folder() as folder:
        weights = pathlib.Path(folder) / "weights"
        weights.mkdir()
        shutil.copytree(MODEL, weights / "own")
        exchange_layers(MODEL, weights / "exchanged")
        with alone(weights / "exchanged", folder) as url:
            expected = said(url)
        settings = "restart: {backoff_min: 100ms, backoff_max: 100ms}"
        text = yaml(folder, launcher=settings).replace('"--no-enable-prefix-caching"', '"--enable-prefix-caching"') + rollout_yaml(weights)
        with vllm_job(text, folder) as job:
            job.folder = pathlib.Path(folder)
            before = said(job.url)
            assert before != expected, "the two sets of weights must differ in what they say"
            engines = [engine_of(job, name) for name in ("prefill-0", "decode-0")]
            status, told = call(job, "POST", "/v1/rl/update", {"path": "exchanged", "version": "step-1"}, timeout=600)
            assert status == 200, told
            assert said(job.url) == expected, "the same prompts: nothing of the old weights is kept"
            status, told = call(job, "POST", "/v1/rl/update", {"path": "own", "version": "step-2"}, timeout=600)
            assert status == 200, told
            assert said(job.url) == before
            assert [engine_of(job, name) for name in ("prefill-0", "decode-0")] == engines, "no engine started anew"
            status, told = call(job, "POST", "/v1/rl/update", {"path": "exchanged", "version": "step-1"}, timeout=600)
            assert status == 200, told
            for pid in family_of(engine_of(job, "decode-0")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            eventually(lambda: not all_ready(job), 60, "it is gone")
            eventually(lambda: all_ready(job), START_SECONDS, "it is back")
            assert said(job.url) == expected and set(versions(job).values()) == {"step-1"}
