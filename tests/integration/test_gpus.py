"""Jobs whose workers keep KV in GPUs, on the doubles of tests/support, with the fake engine."""

import concurrent.futures
import json
import pathlib
import subprocess
import tempfile

import httpx

from conftest import BIN, FAKE_GPU, Job, eventually

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


def test_two_workers_have_parts_of_one_gpu_and_kv_goes_between_them():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        text = CONFIG.replace("gpu: true", "gpu: 0.3") + "decode: {engine: {gpu: 0.6}}\n"
        job = Job(text + f"launcher: {{state_dir: {folder}/state}}\n", folder, TWO_GPUS).wait_ready()
        try:
            seen = {name: environment_of(process["pid"]) for name, process in job.processes().items()}
            parts = {name: (variables["CUDA_VISIBLE_DEVICES"], variables.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")) for name, variables in seen.items()}
            assert parts == {"router-0": ("5,GPU-8a1", None), "prefill-0": ("5", "30"), "decode-0": ("5", "60")}
            body = {"model": "fake", "prompt": "Tell me a story.", "max_tokens": 4}
            assert httpx.post(job.url + "/v1/completions", json=body, timeout=60).status_code == 200
            nodes = subprocess.run([BIN, "nodes", "--config", str(job.config), "--json"], capture_output=True, text=True, timeout=30)
            gpus = {gpu["name"]: gpu["free"] for gpu in json.loads(nodes.stdout)["nodes"][0]["gpus"]}
            assert gpus == {"5": 0.1, "GPU-8a1": 1}
        finally:
            assert job.stop() == 0, job.log_tail()


def test_a_worker_whose_kv_thread_hangs_in_the_driver_is_replaced_though_its_engine_only_waits():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, concurrent.futures.ThreadPoolExecutor() as client:
        hang = pathlib.Path(folder) / "hang"
        launcher = f"launcher: {{state_dir: {folder}/state, progress_timeout: 2s, restart: {{backoff_min: 100ms}}}}\n"
        job = Job(CONFIG + launcher, folder, {**TWO_GPUS, "FAKE_CUDA_HANG_FILE": str(hang)}).wait_ready()
        try:
            hang.touch()
            body = {"model": "fake", "prompt": "Tell me a story.", "max_tokens": 4}
            reply = client.submit(httpx.post, job.url + "/v1/completions", json=body, timeout=120)
            eventually(lambda: job.processes()["prefill-0"]["hangs"] > 0, 60, "the hang is found")
            hang.unlink()
            assert reply.result().status_code == 200
            eventually(lambda: job.processes()["prefill-0"]["state"] == "ready", 60, "another process serves")
            assert job.processes()["prefill-0"]["last_exit"].startswith("hung, then signal 9")
            assert job.processes()["decode-0"]["hangs"] == 0
        finally:
            hang.unlink(missing_ok=True)
            assert job.stop() == 0, job.log_tail()
