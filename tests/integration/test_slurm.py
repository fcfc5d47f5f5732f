"""configs/slurm/pdjob.sbatch with a double of srun: its agents are processes of this machine."""

import json
import os
import signal
import subprocess
import sys
import threading

import httpx
import pytest

from conftest import BIN, MODEL, READY_SECONDS, ROOT, eventually, free_port, processes_with

SCRIPT = ROOT / "configs/slurm/pdjob.sbatch"


class Batch:
    """The script as sbatch runs it on the first node of an allocation."""

    def __init__(self, folder, nodes, *flags):
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        (programs / "pdjob").symlink_to(BIN)
        (programs / "srun").write_text(f"#!/bin/sh\nexec {sys.executable} {ROOT}/tests/support/srun_double.py \"$@\"\n")
        (programs / "srun").chmod(0o755)
        (folder / "job.yaml").write_text(
            f"name: slurm-{folder.name.replace('_', '-')[-20:].lower()}\nmodel: {MODEL}\nserved_name: m\n"
            f"engine: {{kind: fake}}\nprefill: {{workers: 1}}\ndecode: {{workers: 2}}\n"
            f"router: {{listen: '127.0.0.1:0'}}\nlauncher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}\n")
        allocation = {"SLURM_JOB_ID": "17", "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_CPUS_ON_NODE": "2", "PDJOB_HOST": "127.0.0.1",
                      "PDJOB_PORT": str(free_port()), "PATH": f"{programs}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "",
                      "PDJOB_TEST_FOLDER": str(folder)}
        self.errors = open(folder / "errors", "wb")
        self.child = subprocess.Popen(["bash", str(SCRIPT), "job.yaml", *flags], cwd=folder, env={**os.environ, **allocation}, text=True,
                                      stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True)
        self.url = None
        self.ready = threading.Event()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            if line.startswith("ready url="):
                self.url = line.strip().removeprefix("ready url=")
                self.ready.set()
        self.ready.set()

    def log(self):
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in [self.folder / "errors", self.folder / "pdjob-17/agents.log"]
                         if path.exists())

    def wait_ready(self):
        assert self.ready.wait(READY_SECONDS) and self.url, self.log()
        return self

    def end(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.errors.close()


@pytest.fixture
def batch(tmp_path):
    made = []

    def start(nodes, *flags):
        made.append(Batch(tmp_path, nodes, *flags))
        return made[-1]

    yield start
    for each in made:
        each.end()


def test_a_job_runs_on_the_nodes_of_an_allocation_and_ends_with_it(batch, tmp_path):
    job = batch(2).wait_ready()
    answer = httpx.post(f"{job.url}/v1/completions", json={"model": "m", "prompt": "The sea", "max_tokens": 4}, timeout=30)
    assert answer.status_code == 200, answer.text
    nodes = json.loads(subprocess.run([BIN, "nodes", "--config", "job.yaml", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=30).stdout)
    names = json.dumps(nodes)
    assert "slurm/double0" in names and "slurm/double1" in names
    job.child.send_signal(signal.SIGTERM)  # As SLURM sends it before the time is up, and for scancel.
    assert job.child.wait(60) == 0, job.log()
    assert not (tmp_path / "pdjob-17/agents.key").exists()
    eventually(lambda: not processes_with(tmp_path), what="nothing of the job is left")


def test_a_job_file_that_is_wrong_ends_the_allocation(batch, tmp_path):
    job = batch(1, "--set", "decode.workers=many")
    assert job.child.wait(60) == 2
    assert "decode.workers" in job.log()
    eventually(lambda: not processes_with(tmp_path), what="nothing of the job is left")
