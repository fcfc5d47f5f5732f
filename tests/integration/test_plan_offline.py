"""`pdjob plan` plans jobs of machines that are not there, and jobs that run."""

import json
import os
import subprocess

import pytest

from conftest import BIN, Process, free_port

REMOTE = """\
name: remote
model: /models/not-here-70b.gguf
engine: {gpu: true}
prefill: {workers: 2, labels: {for: prefill}, scaling: {max: 6, ttft: 500ms}}
decode: {workers: 2}
router:
  listen: 203.0.113.7:8443
  tls: {certificate: /etc/not-here.pem, key: /etc/not-here.key}
clusters:
  lab: {kind: agents, listen: "203.0.113.7:7700", key_file: /etc/not-here.lab, nodes: 2}
"""
NODES = """\
nodes:
  box: {count: 2, cores: 64, memory: 512GiB, gpus: 8, labels: {for: prefill}}
"""


def plan(folder, *words, text=REMOTE, nodes=NODES):
    (folder / "job.yaml").write_text(text)
    (folder / "nodes.yaml").write_text(nodes)
    return subprocess.run([BIN, "plan", "job.yaml", *words], cwd=folder, capture_output=True, text=True, timeout=60)


def test_a_job_of_other_machines_is_planned_on_those_that_are_assumed(tmp_path):
    answer = plan(tmp_path, "--assume", "nodes.yaml")
    assert answer.returncode == 0, answer.stderr
    assert "router.tls.certificate: " in answer.stderr, "what is not here is told"
    rows = [line.split() for line in answer.stdout.splitlines() if line.startswith(("prefill", "decode"))]
    assert sorted(row[0] for row in rows) == ["decode-0", "decode-1", "prefill-0", "prefill-1"]
    assert {row[2] for row in rows} == {"lab"} and {row[3] for row in rows} == {"box-0", "box-1"}
    assert "clients: https, no tenants" in answer.stdout and "scaling: prefill has 2 to 6 workers" not in answer.stdout
    assert "scaling: prefill has 1 to 6 workers, ttft 500ms" in answer.stdout
    assert "is not on this machine: the plan does not count its memory" in answer.stdout
    told = json.loads(plan(tmp_path, "--assume", "nodes.yaml", "--json").stdout)
    assert told["clients"] == {"listen": "203.0.113.7:8443", "tls": True, "tenants": []}
    assert told["scaling"]["groups"][0]["max"] == 6


def test_without_machines_it_says_which_workers_have_no_place_and_waits_for_nobody(tmp_path):
    text = REMOTE.replace("  tls: {certificate: /etc/not-here.pem, key: /etc/not-here.key}\n", "")
    answer = plan(tmp_path, text=text)
    assert answer.returncode == 0, answer.stderr
    assert "waits for a node" in answer.stdout and "--assume FILE describes them" in answer.stdout
    assert plan(tmp_path, "--strict", text=text).returncode == 3


@pytest.mark.parametrize("nodes,said", [
    ("nodes: {a: {cores: 4, memory: 8GiB}}\n", "the job does not fit"),
    ("nodes: {a: {cores: 4, memory: 8GiB, gpus: 8, cluster: bal}}\n", "node a: the job has no cluster bal"),
    ("nodes: {a: {cores: 4}}\n", "nodes.a.memory: is missing"),
    ("nodes: {}\n", "nodes: is missing"),
])
def test_machines_that_do_not_suit_are_refused_by_name(tmp_path, nodes, said):
    answer = plan(tmp_path, "--assume", "nodes.yaml", nodes=nodes)
    assert answer.returncode in (2, 3) and said in answer.stderr, answer


def test_a_job_of_one_machine_is_planned_for_another_one(tmp_path):
    text = "name: x\nmodel: nowhere-70b\nengine: {gpu: true, threads: 4}\nprefill: {workers: 3}\nrouter: {listen: '127.0.0.1:0'}\n"
    one = "nodes: {big: {cores: 64, memory: 512GiB, gpus: 4}}\n"
    answer = plan(tmp_path, "--assume", "nodes.yaml", text=text, nodes=one)
    assert answer.returncode == 0 and "  big  " in answer.stdout and "no GPU" not in answer.stdout, answer
    assert plan(tmp_path, "--assume", "nodes.yaml", text=text, nodes=one.replace("gpus: 4", "gpus: 2")).stdout.count("2 GPUs for 4 workers") == 1
    assert plan(tmp_path, text=text).returncode == 2, "here it must have its model"
    assert plan(tmp_path, "--assume", "nodes.yaml", text=text).returncode == 2, "one machine"


def test_a_running_job_is_planned_on_the_machines_that_it_has(tmp_path):
    port = free_port()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    subprocess.run([BIN, "agent", "--new-key", str(tmp_path / "key")], check=True)
    text = f"""\
name: agents
engine: {{kind: fake}}
decode: {{labels: {{for: decode}}}}
router: {{listen: '127.0.0.1:0'}}
clusters:
  lab: {{kind: agents, listen: "127.0.0.1:{port}", key_file: key, nodes: 1}}
"""
    (tmp_path / "job.yaml").write_text(text)
    agent = Process(["pdjob", "agent", "--join", f"127.0.0.1:{port}", "--key-file", str(tmp_path / "key"), "--name", "one", "--label", "for=decode", "--cores", "3"], tmp_path, environment)
    job = Process(["pdjob", str(tmp_path / "job.yaml")], tmp_path, environment)
    try:
        job.wait_ready()
        answer = subprocess.run([BIN, "plan", "job.yaml", "--set", "engine.sequences=3"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert answer.returncode == 0 and "the job runs now" in answer.stderr, answer
        assert [line.split()[3] for line in answer.stdout.splitlines() if line.startswith("decode")] == ["lab/one"], answer.stdout
        yaml = subprocess.run([BIN, "nodes", "agents", "--yaml"], env=environment, capture_output=True, text=True, timeout=60)
        assert yaml.returncode == 0 and '"lab/one":\n    cores: ' in yaml.stdout, yaml
        assumed = plan(tmp_path, "--assume", "nodes.yaml", text=text, nodes=yaml.stdout)
        assert assumed.returncode == 0 and "lab/one" in assumed.stdout, assumed
    finally:
        job.stop()
        agent.stop()
