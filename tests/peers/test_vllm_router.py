"""The unmodified official vllm-router (PyPI) in PD mode, before pdjob's own workers. Streamed and plain requests complete, and KV moves."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import openai
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import CACHE, MODEL, Process, free_port, get, metric  # noqa: E402

ROUTER = os.environ.get("PDJOB_VLLM_ROUTER", str(CACHE / "peers/vllm-router/bin/vllm-router"))


def worker(role, folder):
    return Process(
        ["pdjob", "worker", "--role", role, "--model", MODEL, "--set", "served_name=smollm2", "--listen", "127.0.0.1:0"], folder
    )


@contextlib.contextmanager
def vllm_router(prefill, decode, folder):
    port, metrics_port = free_port(), free_port()
    log = open(pathlib.Path(folder) / "vllm-router.log", "wb")
    child = subprocess.Popen(
        [ROUTER, "--host", "127.0.0.1", "--port", str(port), "--vllm-pd-disaggregation"]
        + [part for url in prefill for part in ("--prefill", url)]
        + [part for url in decode for part in ("--decode", url)]
        + ["--policy", "round_robin", "--kv-connector", "nixl", "--prometheus-port", str(metrics_port)]
        + ["--worker-startup-check-interval", "1"],
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            assert child.poll() is None and time.monotonic() < deadline, pathlib.Path(log.name).read_text()
            with contextlib.suppress(OSError):
                get(url + "/readiness")
                break
            time.sleep(0.2)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        log.close()


@pytest.mark.skipif(not shutil.which(ROUTER), reason=f"no vllm-router at {ROUTER}: run ./dev setup")
def test_official_router_serves_our_workers_and_kv_moves():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, contextlib.ExitStack() as stack:
        workers = [worker(role, folder) for role in ("prefill", "prefill", "decode", "decode", "both")]
        for process in workers:
            stack.callback(process.stop)
        for process in workers:
            process.wait_ready()
        prefill, decode, single = [w.url for w in workers[:2]], [w.url for w in workers[2:4]], workers[4].url
        url = stack.enter_context(vllm_router(prefill, decode, folder))
        client = openai.OpenAI(base_url=url + "/v1", api_key="any", max_retries=0, timeout=120)
        direct = openai.OpenAI(base_url=single + "/v1", api_key="any", max_retries=0, timeout=120)
        asks = [dict(model="smollm2", prompt=f"Tell me about the number {i}.", max_tokens=12, **sampling)
                for i in range(6) for sampling in ({"temperature": 0}, {"temperature": 1, "seed": i})]
        for ask in asks:
            expected = direct.completions.create(**ask).choices[0].text
            assert client.completions.create(**ask).choices[0].text == expected
            assert "".join(e.choices[0].text for e in client.completions.create(**ask, stream=True) if e.choices) == expected
        chat = dict(model="smollm2", messages=[{"role": "user", "content": "Why is the sky blue?"}], max_tokens=12, temperature=0)
        assert client.chat.completions.create(**chat).choices[0].message.content == direct.chat.completions.create(**chat).choices[0].message.content
        moved = [metric(w, "pdjob_kv_received_total") for w in decode]
        assert sum(moved) == 2 * len(asks) + 1 and all(moved), moved
        assert all(metric(w, "pdjob_kv_received_bytes_total") > 0 for w in decode)
