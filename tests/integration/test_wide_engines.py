"""Engines of other makes that take several GPUs, or several nodes. The engines are doubles (tests/support/engine_program_double.py), which refuse to run
with fewer GPUs than they have ranks, and end when they lose a rank or a node, as the real ones do."""

import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

import netns
from conftest import BIN, Job, eventually, metric, processes_with
from test_agents import machines
from test_foreign_engines import DOUBLE, LONG, ask, expected, foreign_job, logs

EXTERNAL = "vllm:prompt_tokens_by_source_total"
EIGHT_GPUS = {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}


def ranks(folder):
    """The processes of ranks, by number; of several engines, in no order."""
    return [(int(re.search(r"rank (\d+) of", line).group(1)), pid) for pid, line in processes_with(folder).items() if " of the double" in line]


def variables(pid):
    return dict(text.split("=", 1) for text in pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") if "=" in text)


def answers(job):
    reply = ask(job)
    return reply.status_code == 200 and reply.json()["choices"][0]["text"] == expected(LONG)


def engines(folder, flag="--port"):
    """{value of a flag: pid} of the engines that run."""
    found = {}
    for pid, line in processes_with(folder).items():
        words = line.split()
        if str(DOUBLE) in words and flag in words and "guard-engine" not in words:
            found[words[words.index(flag) + 1]] = pid
    return found


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_each_engine_sees_as_many_gpus_as_it_has_ranks(folder, kind):
    wide = "prefill: {engine: {parallel: {tensor: 2}}}\ndecode: {engine: {parallel: {tensor: 2, data: 2}}}\n"
    with job_with_gpus(folder, kind, wide) as job:
        assert answers(job)
        seen = {}
        for _, pid in ranks(folder):
            seen.setdefault(variables(pid)["CUDA_VISIBLE_DEVICES"], []).append(pid)
        assert sorted(len(pids) for pids in seen.values()) == [2, 4], seen
        assert [len(gpus.split(",")) for gpus in seen] == [len(pids) for pids in seen.values()]
        assert len({gpu for gpus in seen for gpu in gpus.split(",")}) == 6, "no GPU has two engines"


class job_with_gpus:
    """A job on a machine that says it has eight GPUs. `roles` replaces its sections for prefill and decode."""

    def __init__(self, folder, kind, roles):
        self.folder = folder
        text = f"""\
name: wide-{pathlib.Path(folder).name.lower().replace("_", "-")}
model: tiny
engine: {{kind: {kind}, program: {DOUBLE}, gpu: true, env: ["PDJOB_TEST_FOLDER={folder}"]}}
kvtransfer: {{lease: 1s}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs, restart: {{backoff_min: 100ms}}}}
{roles}"""
        self.job = Job(text, folder, env=EIGHT_GPUS)

    def __enter__(self):
        try:
            return self.job.wait_ready()
        except BaseException:
            print(self.job.log_tail(), logs(self.folder)[-12000:])
            self.job.stop()
            raise

    def __exit__(self, *failure):
        if failure[0]:
            print(self.job.log_tail(), logs(self.folder)[-12000:])
        assert self.job.stop() == 0, self.job.log_tail()
        assert "COMPLAINT" not in logs(self.folder)
        eventually(lambda: not processes_with(self.folder), 5, "nothing is orphaned")


def test_a_dead_rank_replaces_its_whole_engine_which_gets_other_ports(folder):
    with job_with_gpus(folder, "vllm", "decode: {engine: {parallel: {tensor: 2, data: 2}}}\n") as job:
        assert answers(job)
        old, before = set(processes_with(folder)), engines(folder)
        pid = job.processes()["decode-0"]["pid"]
        victim = next(pid for number, pid in ranks(folder) if number == 3)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: job.processes()["decode-0"]["pid"] not in (0, pid) and job.processes()["decode-0"]["state"] == "ready", 60, "decode-0 is back")
        assert answers(job)
        after = engines(folder)
        assert len(set(before) & set(after)) == 1, "prefill's; the successor's is another"
        gone = {dead for dead in old if not pathlib.Path(f"/proc/{dead}").exists()}
        assert len(gone) >= 5, "all ranks of the old engine have ended"


def test_a_plan_names_what_is_short_before_anything_starts(folder):
    path = pathlib.Path(folder) / "job.yaml"
    path.write_text("name: x\nmodel: m\nengine: {kind: vllm, gpus: 16, parallel: {tensor: 16}}\nprefill: {workers: 0}\n")
    planned = subprocess.run([BIN, "plan", str(path)], env={**os.environ, **EIGHT_GPUS}, capture_output=True, text=True)
    shortage = "warning: node local has 8 GPUs for 1 worker that wants 16: an engine with fewer GPUs than ranks does not start"
    assert shortage in planned.stdout + planned.stderr, planned


two_machines = pytest.mark.skipif(bool(netns.unavailable()), reason=netns.unavailable())


class wide_job:
    """A job whose decode engine spans two of the machines, each with two GPUs."""

    def __init__(self, made, kind="vllm", nodes=2):
        self.made = made
        text = f"""\
name: wide
model: tiny
engine: {{kind: {kind}, program: {DOUBLE}, env: ["PDJOB_TEST_FOLDER={made.folder}"]}}
prefill: {{workers: 0}}
decode: {{engine: {{gpus: 4, nodes: 2, parallel: {{tensor: 4}}}}}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {made.folder}/state, log_dir: {made.folder}/logs, restart: {{backoff_min: 100ms}}}}
{made.clusters(nodes)}
"""
        with made.lan.inside("front"):
            self.job = Job(text, made.folder)

    def __enter__(self):
        with self.made.lan.inside("front"):
            try:
                return self.job.wait_ready()
            except BaseException:
                self.show()
                raise

    def show(self):
        print(self.job.log_tail())
        for machine in self.made.agents:
            print(f"--- {machine}", *(log.read_text(errors="replace")[-3000:] for log in self.made.folder.glob(f"logs-{machine}/*.log")), sep="\n")

    def __exit__(self, *failure):
        if failure[0]:
            self.show()
        with self.made.lan.inside("front"):
            assert self.job.stop() == 0, self.job.log_tail()
        eventually(lambda: not processes_with(self.made.folder), 10, "nothing is orphaned")


def two_gpus(made, *names):
    for name in names:
        made.start_agent(name, env={"CUDA_VISIBLE_DEVICES": "0,1"})


def on_each_node(made):
    """{machine: pids of its ranks}"""
    pids = {pid for _, pid in ranks(made.folder)}
    return {machine: sorted(pids & made.lan.pids(machine)) for machine in made.agents}


@two_machines
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_one_engine_over_two_machines_answers_and_ends_as_one(kind):
    with machines("a", "b") as made:
        two_gpus(made, "a", "b")
        with wide_job(made, kind) as job, made.lan.inside("front"):
            assert answers(job)
            assert {machine: len(pids) for machine, pids in on_each_node(made).items()} == {"a": 2, "b": 2}
            loopbacks = [pid for _, pid in ranks(made.folder) if variables(pid)["GLOO_SOCKET_IFNAME"] in ("", "lo")]
            assert not loopbacks, "ranks meet where other machines reach them"
            there = json.loads(subprocess.run([BIN, "nodes", "--json", "--config", str(job.config)], capture_output=True, text=True, check=True).stdout)
            used = {node["name"]: node["processes"] for node in there["nodes"] if node["name"].startswith("lab/")}
            assert used == {"lab/a": ["decode-0"], "lab/b": ["decode-0"]}, used


@two_machines
def test_a_follower_that_is_killed_replaces_the_engine_on_both_machines():
    with machines("a", "b") as made:
        two_gpus(made, "a", "b")
        with wide_job(made) as job, made.lan.inside("front"):
            assert answers(job)
            old = {pid for pids in on_each_node(made).values() for pid in pids}
            ports = set(engines(made.folder, "--master-port"))
            head = job.processes()["decode-0"]["pid"]
            (follower,) = [pid for pid, line in processes_with(made.folder).items() if "--headless" in line and "guard-engine" not in line]
            os.kill(follower, signal.SIGKILL)
            eventually(lambda: job.processes()["decode-0"]["pid"] not in (0, head) and job.processes()["decode-0"]["state"] == "ready", 60, "it is back")
            assert answers(job)
            now = {pid for pids in on_each_node(made).values() for pid in pids}
            assert len(now) == 4 and not now & old
            assert not set(engines(made.folder, "--master-port")) & ports, "peers remember the old ports"


@two_machines
def test_a_lost_machine_is_replaced_by_another_one_for_all_of_the_engine():
    with machines("a", "b", "c") as made:
        two_gpus(made, "a", "b")
        with wide_job(made) as job, made.lan.inside("front"):
            assert answers(job)
            made.agents.pop("b")._kill()
            eventually(lambda: job.processes()["decode-0"]["state"] == "waiting", 30, "it waits for a second node")
            assert not on_each_node(made)["a"], "no part runs alone"
            made.start_agent("c", env={"CUDA_VISIBLE_DEVICES": "0,1"})
            eventually(lambda: job.processes()["decode-0"]["state"] == "ready", 60, "it is back")
            assert answers(job)
            assert {machine: len(pids) for machine, pids in on_each_node(made).items()} == {"a": 2, "c": 2}
