"""Jobs whose workers keep KV in GPUs, on the doubles of tests/support, with the fake engine."""

import json
import subprocess
import tempfile

import httpx

from conftest import BIN, FAKE_GPU, Job

# GPU 3 is unused: each worker sees one GPU, which has number 0 there.
CONFIG = f"""\
name: gpus
served_name: fake
engine: {{kind: fake, gpu: true}}
kvtransfer: {{transport: cuda_ipc}}
gpu: {{device: 3, {FAKE_GPU}}}
router: {{listen: "127.0.0.1:0"}}
"""
TWO_GPUS = {"CUDA_VISIBLE_DEVICES": "5,GPU-8a1", "FAKE_CUDA_DEVICES": "1"}


def environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return dict(entry.split("=", 1) for entry in file.read().decode().split("\0") if "=" in entry)


def test_each_worker_sees_a_gpu_of_its_own_and_kv_goes_from_one_to_the_other():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(CONFIG + f"launcher: {{state_dir: {folder}/state}}\n", folder, TWO_GPUS).wait_ready()
        try:
            pids = {name: process["pid"] for name, process in job.processes().items()}
            seen = {name: environment_of(pid)["CUDA_VISIBLE_DEVICES"] for name, pid in pids.items()}
            assert seen == {"router-0": "5,GPU-8a1", "prefill-0": "5", "decode-0": "GPU-8a1"}
            body = {"model": "fake", "prompt": "Tell me a story.", "max_tokens": 4}
            assert httpx.post(job.url + "/v1/completions", json=body, timeout=60).status_code == 200
            links = subprocess.run([BIN, "links", "--config", str(job.config), "--json"], capture_output=True, text=True, timeout=30)
            transports = {link["transport"] for worker in json.loads(links.stdout)["workers"] for link in worker["links"]}
            assert transports == {"cuda_ipc"}
        finally:
            assert job.stop() == 0, job.log_tail()
