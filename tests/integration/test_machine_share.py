"""The cores and the memory that pdjob counts as its own: under real control groups, under an affinity, and by the operator's word."""

import json
import os
import subprocess

import pytest

import cgroups
from conftest import BIN, Job, Process, free_port

limited = pytest.mark.skipif(bool(cgroups.unavailable()), reason=cgroups.unavailable())

FAKE = """\
name: share
served_name: tiny
engine: {{kind: fake, threads: 2}}
prefill: {{workers: 0}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
{extra}
"""
GIB = 1 << 30


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(FAKE.format(folder=tmp_path, extra=""))
    return path


def plan(config, *words, enter=None):
    done = subprocess.run([BIN, "plan", "--config", str(config), *words], capture_output=True, text=True, timeout=60, preexec_fn=enter)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@limited
def test_a_plan_says_which_control_group_bounds_cores_and_memory(config):
    with cgroups.limits(cpus=0.5, memory=GIB) as group:
        text = plan(config, enter=group.enter)
        cores = f"1 core (CPU quota 0.50 of cgroup {group.name})"
        assert f"node local: {cores}, 1.0 GiB of memory (memory." in text and f" of cgroup {group.name})\n" in text, text
        assert f"a worker of decode computes with 2 threads, and node local has {cores}" in text, text
        (node,) = json.loads(plan(config, "--json", enter=group.enter))["nodes"]
        assert node["cores"] == 1 and node["memory_bytes"] == GIB


@limited
def test_a_model_that_the_control_group_cannot_hold_is_refused_with_its_name(config):
    model = config.parent / "large.gguf"
    with open(model, "wb") as file:
        file.truncate(2 * GIB)
    with cgroups.limits(memory=GIB) as group:
        argv = [BIN, "plan", "--config", str(config), "--set", f"model={model}", "--set", "engine.kind=llama"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, preexec_fn=group.enter)
        assert done.returncode == 3 and "has 1.0 GiB of memory (memory." in done.stderr and group.name in done.stderr, done.stderr


def test_a_plan_says_when_the_affinity_bounds_the_cores(config):
    core = min(os.sched_getaffinity(0))
    text = plan(config, enter=lambda: os.sched_setaffinity(0, {core}))
    if os.cpu_count() > 1:
        assert "node local: 1 core (affinity), " in text, text
    assert "node local has 1 core" in text, text


def test_the_operator_lowers_what_the_local_machine_offers(config):
    config.write_text(FAKE.format(folder=config.parent, extra="clusters: {here: {kind: local, cpus: 1, memory_bytes: 104857600}}"))
    text = plan(config)
    if len(os.sched_getaffinity(0)) > 1:
        assert "node local: 1 core (clusters.here.cpus), 0.1 GiB of memory (clusters.here.memory_bytes)\n" in text, text
    config.write_text(FAKE.format(folder=config.parent, extra="clusters: {here: {kind: local, cpus: 60000, memory_bytes: 1125899906842624}}"))
    assert "clusters.here" not in plan(config)


@pytest.fixture
def agent_config(tmp_path):
    """A job whose workers run at an agent, with the arguments of the agent."""
    port = free_port()
    key = tmp_path / "lab.key"
    subprocess.run([BIN, "agent", "--new-key", str(key)], check=True)
    path = tmp_path / "job.yaml"
    extra = f"clusters: {{lab: {{kind: agents, listen: '127.0.0.1:{port}', key_file: {key}, wait: 60s}}}}"
    path.write_text(FAKE.format(folder=tmp_path, extra=extra).replace("threads: 2", "threads: 1"))
    yield path, ["pdjob", "agent", "--join", f"127.0.0.1:{port}", "--key-file", str(key), "--name", "a", "--log-dir", str(tmp_path / "a")]


@limited
def test_nodes_says_what_bounds_an_agent(agent_config):
    path, argv = agent_config
    with cgroups.limits(cpus=0.5, memory=4 * GIB) as group:
        agent = Process(argv, path.parent, enter=group.enter)
        job = Job(path.read_text(), path.parent)
        try:
            job.wait_ready()
            ask = [BIN, "nodes", "--config", str(path)]
            node = next(node for node in json.loads(subprocess.check_output([*ask, "--json"]))["nodes"] if node["name"] == "lab/a")
            assert node["cores"] == 1 and node["cores_bound"] == f"CPU quota 0.50 of cgroup {group.name}", node
            assert node["memory_bound"].endswith(f" of cgroup {group.name}") and node["memory_bytes"] == 4 * GIB, node
            text = subprocess.check_output(ask, text=True)
            assert f"node lab/a: 1 core (CPU quota 0.50 of cgroup {group.name}), 4.0 GiB of memory (memory." in text, text
        finally:
            job.stop()
            agent.stop()


def test_an_agent_offers_at_most_what_it_is_told(agent_config):
    path, argv = agent_config
    agent = Process([*argv, "--cores", "1", "--memory", str(GIB)], path.parent)
    try:
        text = plan(path, "--ask-nodes")
        assert "1.0 GiB of memory (--memory)\n" in text, text
        if len(os.sched_getaffinity(0)) > 1:
            assert "node lab/a: 1 core (--cores), " in text, text
    finally:
        agent.stop()
    agent = Process([*argv, "--cores", "60000", "--memory", str(1 << 50)], path.parent)
    try:
        assert "(--" not in plan(path, "--ask-nodes")
    finally:
        agent.stop()


def test_an_agent_of_ray_offers_what_ray_granted(agent_config):
    path, argv = agent_config
    agent = Process([*argv, "--cores", "60000", "--memory", str(1 << 50), "--granted"], path.parent)
    try:
        assert "node lab/a: 60000 cores (granted by Ray), 1048576.0 GiB of memory (granted by Ray)\n" in plan(path, "--ask-nodes")
    finally:
        agent.stop()
