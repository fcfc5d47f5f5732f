"""Workers on a made-up machine with two GPUs, of which each has a NIC and a core near it."""

import json
import os
import pathlib
import subprocess

import pytest

import gpu_box
from conftest import BIN, Job
from test_foreign_engines import engine_pid, yaml
from test_gpus import environment_of

pytestmark = pytest.mark.skipif(gpu_box.unavailable() != "", reason=gpu_box.unavailable())


def job_on(box, folder, env=None, engine="gpu: true"):
    return Job(yaml(folder, engine=engine), folder, {**box.environment, **(env or {})}, enter=box.enter).wait_ready()


def test_each_engine_uses_the_nic_the_core_and_the_memory_near_its_gpu(tmp_path):
    box = gpu_box.Box(tmp_path)
    job = job_on(box, tmp_path, {"NCCL_IB_HCA": "chosen_by_hand"})
    try:
        for name, number in (("prefill-0", 0), ("decode-0", 1)):
            worker, engine = job.processes()[name]["pid"], engine_pid(job, name)
            environment = environment_of(engine)
            assert environment["CUDA_VISIBLE_DEVICES"] == str(number)
            assert environment["UCX_NET_DEVICES"] == f"mlx5_{number}:1"
            assert environment["NCCL_IB_HCA"] == "chosen_by_hand"
            assert os.sched_getaffinity(worker) == os.sched_getaffinity(engine) == {box.cores[number]}
        assert os.sched_getaffinity(job.processes()["router-0"]["pid"]) == os.sched_getaffinity(0)
        maps = pathlib.Path(f"/proc/{engine_pid(job, 'prefill-0')}/numa_maps")
        assert not maps.exists() or "prefer" in maps.read_text()
    finally:
        assert job.stop() == 0, job.log_tail()


def test_a_job_that_wants_none_of_it_gets_none(tmp_path):
    job = job_on(gpu_box.Box(tmp_path), tmp_path, engine="gpu: true, near: false")
    try:
        engine = engine_pid(job, "prefill-0")
        assert "UCX_NET_DEVICES" not in environment_of(engine)
        assert os.sched_getaffinity(engine) == os.sched_getaffinity(0)
    finally:
        assert job.stop() == 0, job.log_tail()


def test_a_plan_shows_what_is_near(tmp_path):
    box = gpu_box.Box(tmp_path)
    file = tmp_path / "job.yaml"
    file.write_text(yaml(tmp_path, engine="gpu: true"))
    environment = {**os.environ, **box.environment}
    plan = subprocess.run(
        [BIN, "plan", "--json", str(file)], env=environment, preexec_fn=box.enter, capture_output=True, text=True, timeout=60, check=True
    )
    found = {process["name"]: process for process in json.loads(plan.stdout)["processes"]}
    near = {key: found["decode-0"].get(key) for key in ("gpu", "gpu_why", "nics", "cpus", "memory_node")}
    assert near == {"gpu": "1", "gpu_why": "NVLink island 0", "nics": ["mlx5_1"], "cpus": str(box.cores[1]), "memory_node": "1"}
