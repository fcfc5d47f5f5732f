"""Whoever has the key of one cluster can do nothing to the processes of another one, and does not end the launcher."""

import contextlib
import json
import subprocess
import tempfile
import time

import httpx
import pytest

from conftest import BIN, Job, eventually, free_port
from rogue_agent import EXITED, HELLO, NODE_READY, WELCOME, Rogue, exited, hello, ready


class Clusters:
    """A job of which all runs on this machine, and which has another cluster that waits for agents."""

    def __init__(self, folder, orphan_timeout, lease):
        self.address = f"127.0.0.1:{free_port()}"
        key = f"{folder}/lab.key"
        subprocess.run([BIN, "agent", "--new-key", key], check=True)
        self.key = open(key).read().strip()
        self.job = Job(f"""\
name: test-rogue
served_name: tiny
engine: {{kind: fake, sequences: 16}}
prefill: {{workers: 1, cluster: here}}
decode: {{workers: 1, cluster: here}}
clusters: {{here: {{kind: local}}, lab: {{kind: agents, listen: '{self.address}', key_file: {key}, nodes: 0, lease: {lease}}}}}
router: {{listen: '127.0.0.1:0'}}
launcher: {{state_dir: {folder}/state, orphan_timeout: {orphan_timeout}}}
""", folder)

    def facts(self):
        return {name: (process["pid"], process["state"], process["restarts"], process["crashes"]) for name, process in self.job.processes().items()}

    def serves(self):
        reply = httpx.post(f"{self.job.url}/v1/completions", json={"model": "tiny", "prompt": "a", "max_tokens": 2}, timeout=30)
        return reply.status_code == 200


@contextlib.contextmanager
def clusters(orphan_timeout, lease="3s"):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        made = Clusters(folder, orphan_timeout, lease)
        try:
            made.job.wait_ready()
            yield made
        except BaseException:
            print(made.job.log_tail())
            raise
        finally:
            code = made.job.stop()
        assert code == 0, made.job.log_tail()


@pytest.mark.parametrize("orphan_timeout", ["0s", "60s"])
def test_a_key_of_one_cluster_neither_kills_nor_doubles_nor_buries_what_runs_on_another(orphan_timeout):
    numbers = [*range(1, 60), *((1 << 20) + number for number in range(60))]
    with clusters(orphan_timeout) as made, Rogue(made.address, made.key) as rogue:
        before = made.facts()
        rogue.join("evil", running=numbers, doors=[("router-0", 1), ("batch", 2)])
        rogue.beat(1)
        session = rogue.join("plain", instance=2)
        for number in numbers:
            rogue.send(EXITED, exited(number), session)
        rogue.beat(2)
        assert made.facts() == before, "nobody died, and nobody was said to"
        assert made.serves()
        log = subprocess.run([BIN, "logs", "launcher", "--config", str(made.job.config)], capture_output=True, text=True, timeout=30).stdout
        assert "node=local" in log and "node=lab/evil: signal 11" not in log


def test_as_many_nodes_as_a_cluster_can_have_do_not_end_the_launcher():
    with clusters("60s", lease="10min") as made, Rogue(made.address, made.key) as rogue:
        before = made.facts()
        for number in range(4096 + 20):
            rogue.send(HELLO, hello(f"n{number}", number + 1))
        joined, seen = 0, 0
        while seen < 4096 + 20 and (answer := rogue.receive()):
            seen += 1
            if answer[0] == WELCOME:
                rogue.send(NODE_READY, ready(), answer[1])
                joined += 1
        assert joined == 4096
        eventually(lambda: len(httpx.get(f"http://{admin(made.job)}/nodes", timeout=60).json()["nodes"]) > 4000, 60, "the nodes joined")
        time.sleep(0.5)  # The ledger is on disk.
        assert made.facts() == before and made.serves()
        assert made.job.child.poll() is None


def admin(job):
    return json.loads(next(job.folder.glob("state/*/launcher.json")).read_text())["admin"]
