"""Two launchers want the same agents. Agents serve one launcher at a time: the second one waits, and starts when the first has ended."""

import pathlib
import signal
import subprocess
import tempfile
import time

import httpx
import pytest

from conftest import BIN, MODEL, READY_SECONDS, Job, Process, eventually, free_port


class Agents:
    """Two clusters with one agent each, on this machine. A job needs both."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.key = self.folder / "lab.key"
        subprocess.run([BIN, "agent", "--new-key", str(self.key)], check=True)
        self.ports = {"one": free_port(), "two": free_port()}
        self.agents = []
        for name, port in self.ports.items():
            argv = ["pdjob", "agent", "--join", f"127.0.0.1:{port}", "--key-file", str(self.key), "--name", name, "--log-dir", str(self.folder / name)]
            self.agents.append(Process(argv, self.folder))

    def close(self):
        for agent in self.agents:
            agent._kill()

    def job(self, name, order=("one", "two"), wait="60s", launcher=""):
        """Starts a job whose file lists the clusters in this order. Jobs have one state folder, but for those with settings of the launcher."""
        clusters = ", ".join(f"{one}: {{kind: agents, listen: '127.0.0.1:{self.ports[one]}', key_file: {self.key}, nodes: 1, wait: {wait}}}" for one in order)
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        state = (folder if launcher else self.folder) / "state"
        return Job(
            f"""\
name: {name}
model: {MODEL}
served_name: fake
engine: {{kind: fake, sequences: 4}}
prefill: {{workers: 1, cluster: [one]}}
decode: {{workers: 1, cluster: [two]}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {state}, log_dir: {folder}/logs, {launcher}}}
clusters: {{{clusters}}}
""",
            folder,
        )


@pytest.fixture
def agents():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        made = Agents(folder)
        yield made
        made.close()


def answers(job):
    reply = httpx.post(job.url + "/v1/completions", json={"prompt": [1, 2, 3], "max_tokens": 2}, timeout=60)
    assert reply.status_code == 200, reply.text


def test_a_second_launcher_names_the_job_that_has_the_agents_and_starts_when_it_has_ended(agents):
    first = agents.job("first").wait_ready()
    second = agents.job("second", order=("two", "one"))
    eventually(lambda: f"job first, pid {first.pid}" in second.log_tail(), 30, "the owner is named")
    assert "the agents of cluster" in second.log_tail() and second.url is None
    answers(first)
    assert first.stop() == 0
    answers(second.wait_ready())
    late = agents.job("late", wait="1s")
    assert late.child.wait(30) == 3
    assert "the job has waited long enough" in late.log_tail() and "job second" in late.log_tail()
    stopped = agents.job("stopped")
    eventually(lambda: "waiting for agents" in stopped.log_tail(), 30, "it waits")
    assert stopped.stop(signal.SIGINT) == 130
    assert second.stop() == 0


def test_orphans_of_a_lost_launcher_are_kept_for_it_though_another_job_wants_their_nodes(agents):
    first = agents.job("first", launcher="orphan_timeout: 60s").wait_ready()
    workers = {name: process["pid"] for name, process in first.processes().items()}
    first.child.kill()
    first.child.wait()
    other = agents.job("other", wait="3s")
    assert other.child.wait(30) == 3
    assert "it keeps the processes of job first" in (agents.folder / "other/logs/launcher.log").read_text()
    again = agents.job("first", launcher="orphan_timeout: 60s").wait_ready()
    assert workers == {name: process["pid"] for name, process in again.processes().items()}, "they are adopted"
    assert again.stop() == 0


@pytest.mark.heavy
def test_two_launchers_that_want_the_same_two_clusters_take_turns_50_times(agents):
    """They start at the same moment, and list the clusters in opposite orders. One gets both clusters, and the other one gets them next."""
    begin = time.monotonic()
    longest = 0.0
    for turn in range(50):
        jobs = [agents.job("first"), agents.job("second", order=("two", "one"))]
        started = time.monotonic()
        eventually(lambda: any(job.url for job in jobs), READY_SECONDS, f"turn {turn}: one of them is ready")
        winner, waiter = sorted(jobs, key=lambda job: job.url is None)
        assert waiter.url is None, "agents serve one launcher at a time"
        answers(winner)
        assert winner.stop() == 0
        answers(waiter.wait_ready())
        assert waiter.stop() == 0
        longest = max(longest, time.monotonic() - started)
    print(f"50 turns in {time.monotonic() - begin:.0f} s, the longest took {longest:.1f} s")
