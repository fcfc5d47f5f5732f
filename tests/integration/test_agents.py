"""Several machines: `pdjob agent` on each, in network namespaces. One job runs on them, and nothing of it is left when something dies."""

import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import httpx
import pytest

import netns
from conftest import BIN, MODEL, READY_SECONDS, Job, Process, eventually, job_yaml, metric

pytestmark = pytest.mark.skipif(bool(netns.unavailable()), reason=netns.unavailable())

PROMPT = list(range(400, 460))
BODY = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 16, "temperature": 0, "return_token_ids": True}
PORT = 7700


def make_key(path):
    subprocess.run([BIN, "agent", "--new-key", str(path)], check=True)
    return path


class Machines:
    """A network of machines, with agents on those but the first, which is the launcher's."""

    def __init__(self, lan, folder):
        self.lan = lan
        self.folder = pathlib.Path(folder)
        self.key = make_key(self.folder / "lab.key")
        self.agents = {}
        self.front = lan.hosts["front"]  # The launcher's address.
        self.here = ""  # Another cluster.

    def start_agent(self, machine, *flags, key=None, name=None, env=None):
        with self.lan.inside(machine):
            join = ["--join", self.address(), "--key-file", str(key or self.key)]
            names = ["--name", name or machine, "--log-dir", str(self.folder / f"logs-{machine}")]
            agent = Process(["pdjob", "agent", *join, *names, *flags], self.folder, env)
        self.agents[machine] = agent
        return agent

    def address(self):
        return f"[{self.front}]:{PORT}" if ":" in self.front else f"{self.front}:{PORT}"

    def clusters(self, nodes, extra=""):
        return f"clusters: {{{self.here} lab: {{kind: agents, listen: '{self.address()}', key_file: {self.key}, nodes: {nodes}, lease: 3s, {extra}}}}}"

    def pids(self, machine):
        """The processes of pdjob on this machine, but for its agent."""
        agent = self.agents.get(machine)
        return self.lan.pids(machine) - ({agent.pid} if agent else set())


@contextlib.contextmanager
def machines(*names, v6=False):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, netns.Lan(["front", *names], v6=v6) as lan:
        made = Machines(lan, folder)
        try:
            yield made
        finally:
            for agent in made.agents.values():
                agent._kill()


@contextlib.contextmanager
def running(made, nodes=2, clusters="", **options):
    """A job of which the launcher and the router run on the first machine. This thread is there, too."""
    with made.lan.inside("front"):
        job = Job(job_yaml(made.folder, extra=made.clusters(nodes, clusters), **options), made.folder)
        try:
            yield job.wait_ready()
        except BaseException:
            print(job.log_tail())
            for agent in made.agents.values():
                print(agent.log_tail())
            raise
        finally:
            job.stop()


def tokens(url, body=BODY):
    reply = httpx.post(url + "/v1/completions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["token_ids"], reply.headers


@pytest.fixture(scope="module")
def expected(single):
    return tokens(single.url)[0]


def test_prefill_and_decode_on_two_machines_answer_with_the_tokens_of_one_process(expected):
    with machines("a", "b") as made:
        made.start_agent("a", "--label", "rack=7")
        made.start_agent("b", "--label", "rack=8")
        with running(made, prefill_extra='labels: {rack: "7"}', decode_extra='labels: {rack: "8"}') as job:
            got, headers = tokens(job.url)
            assert got == expected
            assert headers["x-pdjob-kv-transport"] == "tcp" and int(headers["x-pdjob-kv-bytes"]) > 0
            processes = job.processes()
            assert {processes["prefill-0"]["node"], processes["decode-0"]["node"]} == {"lab/a", "lab/b"}
            assert metric(processes["decode-0"]["url"], "pdjob_kv_received_bytes_total") > 0
            assert made.pids("a") and made.pids("b")
            look_from_another_terminal(made, job)
        ends_everywhere(made, "a", "b")
        assert all(agent.child.poll() is None for agent in made.agents.values()), "agents stay"


def command(job, *words):
    return subprocess.run([BIN, *words, "--config", str(job.config)], capture_output=True, text=True, timeout=60)


def nodes(job):
    done = command(job, "nodes", "--json")
    assert done.returncode == 0, done.stderr
    return {node["name"]: node for node in json.loads(done.stdout)["nodes"]}


def look_from_another_terminal(made, job):
    """Asks with nodes, logs and links. Then it stops the job."""
    there = nodes(job)
    assert there["local"]["routers_only"] and there["local"]["processes"] == ["router-0"]
    assert there["lab/a"]["labels"] == {"rack": "7"} and there["lab/a"]["host"] == made.lan.hosts["a"]
    assert sorted(there["lab/a"]["processes"] + there["lab/b"]["processes"]) == ["decode-0", "prefill-0"]
    assert there["lab/a"]["cores_reserved"] == 1
    links = command(job, "links").stdout
    assert ("lab/a > lab/b" in links or "lab/b > lab/a" in links) and "tcp, tls" in links, links

    log = command(job, "logs", "decode-0")
    assert log.returncode == 0 and "decode-0" in log.stdout, log.stderr
    assert command(job, "logs", "nobody").returncode == 1
    admin = json.loads(next(made.folder.glob("state/*/launcher.json")).read_text())["admin"]
    assert httpx.get(f"http://{admin}/logs?process=decode-0").status_code == 401, "logs are for the job's owner"
    follow = subprocess.Popen([BIN, "logs", "-f", "router-0", "--config", str(job.config)], stdout=subprocess.PIPE, text=True)
    assert select.select([follow.stdout], [], [], 30)[0], "it follows before the job stops"
    first = follow.stdout.readline()

    stopped = command(job, "stop")
    assert stopped.returncode == 0, stopped.stderr
    assert job.child.wait(10) == 0
    assert follow.wait(10) == 0 and "router-0" in first + follow.stdout.read()
    again = command(job, "stop")
    assert again.returncode == 1 and "no job" in again.stderr


def ends_everywhere(made, *names):
    eventually(lambda: not any(made.pids(name) for name in names), 30, "nothing of the job is left")


class Client(threading.Thread):
    """Asks one request after the other. Each must be answered, once, with the right tokens. It lives on the machine of the thread that makes it."""

    def __init__(self, url, expected):
        super().__init__(daemon=True)
        self.url, self.expected = url, expected
        self.right, self.wrong = 0, []
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.is_set():
            try:
                got = tokens(self.url)[0]
                self.right += got == self.expected
                if got != self.expected:
                    self.wrong.append(got)
            except Exception as error:  # Whatever goes wrong is the client's to report.
                self.wrong.append(error)

    def wait_for_more(self, count):
        before = self.right
        eventually(lambda: self.wrong or self.right >= before + count, 60, f"{count} more answers")

    def finish(self):
        self.over.set()
        self.join(120)
        assert not self.wrong and self.right, self.wrong[:3]


def node_of(job, process):
    return job.processes()[process].get("node", "").removeprefix("lab/")


def test_a_dead_agent_and_then_a_cut_link_cost_no_request_and_leave_nothing(expected):
    names = ["a", "b", "c", "d"]  # The first is for the prefill worker. One of the others is free at the beginning.
    with machines(*names) as made:
        for name in names:
            made.start_agent(name, "--label", f"for={'prefill' if name == 'a' else 'decode'}")
        groups = {"prefill_extra": "labels: {for: prefill}", "decode_extra": "labels: {for: decode}"}
        with running(made, nodes=4, decode=2, **groups) as job:
            client = Client(job.url, expected)
            client.wait_for_more(2)

            dead = node_of(job, "decode-0")
            made.agents[dead].child.kill()
            made.agents[dead].child.wait()
            eventually(lambda: not made.lan.pids(dead), 20, "its processes die with it")
            heals(job, client, "decode-0", dead)
            made.start_agent(dead)
            eventually(lambda: f"lab/{dead}" in nodes(job), 30, "the node comes back")

            cut = node_of(job, "decode-1")
            assert cut not in (node_of(job, "decode-0"), node_of(job, "prefill-0"))
            made.lan.cut(cut)
            eventually(lambda: not made.pids(cut), 30, "the cut-off agent ends what it runs")
            heals(job, client, "decode-1", cut)
            made.lan.mend(cut)
            eventually(lambda: f"lab/{cut}" in nodes(job), 30, "the node comes back")
            client.wait_for_more(2)
            client.finish()
        ends_everywhere(made, *names)


def heals(job, client, process, lost):
    """The client is answered meanwhile, and the process is on another node."""
    client.wait_for_more(2)
    eventually(lambda: job.processes()[process]["state"] == "ready" and node_of(job, process) != lost, 60, f"{process} is ready elsewhere")


def test_a_dead_launcher_leaves_nothing_and_the_next_one_finds_clean_nodes(expected):
    with machines("a", "b") as made:
        made.start_agent("a")
        made.start_agent("b")
        with made.lan.inside("front"):
            job = Job(job_yaml(made.folder, extra=made.clusters(2)), made.folder).wait_ready()
            job.child.kill()
            job.child.wait()
            ends_everywhere(made, "a", "b", "front")
        with running(made) as job:
            assert tokens(job.url)[0] == expected
        ends_everywhere(made, "a", "b", "front")


def test_a_new_launcher_adopts_orphans_and_without_one_the_orphan_timeout_ends_them(expected):
    with machines("a", "b") as made:
        made.start_agent("a", "--label", "for=prefill")
        made.start_agent("b", "--label", "for=decode")
        groups = {"prefill_extra": "labels: {for: prefill}", "decode_extra": "labels: {for: decode}"}
        with made.lan.inside("front"):
            config = job_yaml(made.folder, extra=made.clusters(2), launcher="orphan_timeout: 12s", **groups)
            job = Job(config, made.folder).wait_ready()
            orphans = made.pids("a") | made.pids("b")
            before = {name: process["pid"] for name, process in job.processes().items()}
            clients = [Client(job.url, expected) for _ in range(2)]
            for client in clients:
                client.wait_for_more(1)
            job.child.kill()
            job.child.wait()
            clients[0].wait_for_more(1)
            job = Job(config, made.folder).wait_ready()
            assert len(orphans) == 2 and orphans == made.pids("a") | made.pids("b"), "they are adopted"
            assert before == {name: process["pid"] for name, process in job.processes().items()}
            for client in clients:
                client.wait_for_more(1)
            for client in clients:
                client.finish()
            job.child.kill()
            job.child.wait()
            killed = time.monotonic()
            time.sleep(2)  # What must not happen needs time to happen.
            assert made.pids("a") | made.pids("b") == orphans, "the processes outlive their launcher"
            ends_everywhere(made, "a", "b", "front")
            assert 11 < time.monotonic() - killed < 25


def test_a_job_that_lacks_nodes_says_which_are_short():
    with machines("a") as made:
        made.start_agent("a")
        with made.lan.inside("front"):
            config = made.folder / "job.yaml"
            config.write_text(job_yaml(made.folder, extra=made.clusters(2, "wait: 3s")))
            done = subprocess.run([BIN, "--config", str(config)], capture_output=True, text=True, timeout=60)
            assert done.returncode == 3, done.stdout + done.stderr
            assert "cluster lab: 1 of 2 nodes joined" in done.stdout + done.stderr and "lab/a" in done.stdout + done.stderr


class Recorder(threading.Thread):
    """Passes one connection on, and keeps what the client sent. It refuses clients until there is a server."""

    def __init__(self, listener, target):
        super().__init__(daemon=True)
        self.listener, self.target, self.sent = listener, target, b""

    def connected(self):
        while True:
            client, _ = self.listener.accept()
            try:
                return client, socket.create_connection(self.target)
            except OSError:
                client.close()

    def run(self):
        client, server = self.connected()
        with client, server:
            pair = {client: server, server: client}
            while True:
                for ready in select.select(pair, [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    self.sent += data if ready is client else b""
                    pair[ready].sendall(data)


def test_a_wrong_key_a_replayed_hello_and_a_taken_name_are_refused_and_logged_once():
    with machines("a", "b") as made:
        front = (made.lan.hosts["front"], PORT)
        with made.lan.inside("front"):
            listener = socket.create_server((made.lan.hosts["front"], PORT + 1))
            recorder = Recorder(listener, front)
            recorder.start()
        with made.lan.inside("a"):
            join = ["--join", f"{made.lan.hosts['front']}:{PORT + 1}", "--key-file", str(made.key), "--name", "a"]
            made.agents["a"] = Process(["pdjob", "agent", *join, "--log-dir", str(made.folder / "logs-a")], made.folder)
        with running(made, nodes=1) as job:
            wrong = made.start_agent("b", key=make_key(made.folder / "wrong.key"))
            twin = made.start_agent("front", name="a")
            for _ in range(5):  # The whole conversation of an agent that was admitted, once more.
                with socket.create_connection(front) as replay:
                    replay.sendall(recorder.sent)
                    replay.settimeout(2)
                    with contextlib.suppress(OSError):
                        while replay.recv(65536):
                            pass
            eventually(lambda: "do not prove themselves" in wrong.log_tail(), 20, "the agent says that its key is refused")
            eventually(lambda: "refused this agent" in twin.log_tail(), 20, "a second agent of that name is refused")
            assert set(nodes(job)) == {"local", "lab/a"}
            log = (made.folder / "logs/launcher.log").read_text()
            assert 1 <= log.count("a peer was refused") <= 2, log
            assert tokens(job.url)[0], "the job does not mind"
            secret = made.key.read_text().strip()
            for text in (log, wrong.log_tail(), made.agents["a"].log_tail()):
                assert secret not in text
            for pid in made.lan.pids("a") | made.lan.pids("front"):
                with contextlib.suppress(OSError):
                    assert secret.encode() not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                    assert secret.encode() not in pathlib.Path(f"/proc/{pid}/environ").read_bytes()


def test_an_impostor_of_a_launcher_gets_nothing_from_an_agent():
    with machines("a") as made:
        agent = made.start_agent("a")
        made.key = make_key(made.folder / "other.key")
        with made.lan.inside("front"):
            config = made.folder / "job.yaml"
            config.write_text(job_yaml(made.folder, extra=made.clusters(1, "wait: 3s")))
            done = subprocess.run([BIN, "--config", str(config)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 3
        assert not made.pids("a") and "serving" not in agent.log_tail()


def test_an_agent_ends_when_the_program_that_gave_it_the_key_is_gone():
    with machines("a") as made, made.lan.inside("a"):
        reader, writer = os.pipe()
        argv = [BIN, "agent", "--join", "10.77.0.1:7700", "--key-fd", str(reader), "--log-dir", str(made.folder / "logs")]
        agent = subprocess.Popen(argv, pass_fds=[reader], stderr=subprocess.DEVNULL)
        os.close(reader)
        os.write(writer, b"0123456789abcdef0123456789abcdef\n")
        with pytest.raises(subprocess.TimeoutExpired):
            agent.wait(1)
        os.close(writer)
        assert agent.wait(10) == 0


def test_nodes_with_different_files_under_the_path_of_the_model_fail_the_start_and_both_are_named(tmp_path):
    other = tmp_path / "other.gguf"
    shutil.copy(MODEL, other)
    with other.open("ab") as file:
        file.write(bytes(4096))
    with machines("b") as made:
        # On that machine, another file is where the model is.
        script = 'mount --bind "$0" "$1" && shift && exec "$@"'
        join = ["--join", made.address(), "--key-file", str(made.key), "--name", "b", "--log-dir", str(made.folder / "logs-b")]
        with made.lan.inside("b"):
            agent = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, str(other), MODEL, BIN, "agent", *join], stderr=subprocess.DEVNULL)
        try:
            made.here = "here: {kind: local},"
            with made.lan.inside("front"):
                job = Job(job_yaml(made.folder, extra=made.clusters(1), prefill_extra="cluster: [here]", decode_extra="cluster: [lab]"), made.folder)
                assert job.child.wait(READY_SECONDS) == 1
            said = job.log_tail()
            assert "the nodes have different files of model smollm2: " in said and "Put the same file on all nodes" in said, said
            assert re.search(r"prefill-0 on node \S+ has digest [0-9a-f]{32}", said) and re.search(r"decode-0 on node lab/b has digest [0-9a-f]{32}", said)
        finally:
            agent.kill()
            agent.wait()


def test_a_key_file_that_others_can_read_is_refused(tmp_path):
    key = make_key(tmp_path / "lab.key")
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    done = subprocess.run([BIN, "agent", "--join", "127.0.0.1:1", "--key-file", str(key)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "chmod 600" in done.stderr
    again = subprocess.run([BIN, "agent", "--new-key", str(key)], capture_output=True, text=True, timeout=30)
    assert again.returncode == 2, "an existing key is kept"


def test_a_far_and_lossy_link_between_local_and_another_machine_changes_no_token(expected):
    with machines("b") as made:
        try:
            link = netns.FarLink(made.lan, "front", "b")
        except OSError as error:
            pytest.skip(f"no TUN devices here: {error}")
        try:
            made.front = "10.78.0.1"
            made.here = "here: {kind: local},"
            made.start_agent("b")
            with running(made, nodes=1, prefill_extra="cluster: [here]", decode_extra="cluster: [lab]") as job:
                assert {node_of(job, name) for name in ("prefill-0", "decode-0")} == {"local", "b"}
                assert tokens(job.url)[0] == expected
                assert {process["url"].split(":")[1] for name, process in job.processes().items() if name != "router-0"} == {"//10.78.0.1", "//10.78.0.2"}
                for delay in (0.005, 0.05):
                    far = {"delay": delay, "loss": 0.01, "rate": 12.5e6, "queue": 0.1}
                    link.set(**far)
                    requests = lost = 0
                    while requests < 3 or (lost == 0 and requests < 200):
                        got, headers = tokens(job.url)
                        assert got == expected and headers["x-pdjob-kv-transport"] == "tcp"
                        seen = link.set(**far)
                        assert seen["bytes"] > int(headers["x-pdjob-kv-bytes"]), seen
                        requests, lost = requests + 1, lost + seen["lost"]
                    assert lost > 0, f"{requests} requests"
        finally:
            link.close()


@pytest.mark.skipif(bool(netns.v6_unavailable()), reason=netns.v6_unavailable())
def test_a_job_runs_on_machines_that_have_only_ipv6(expected):
    with machines("a", "b", v6=True) as made:
        made.start_agent("a", "--label", "for=prefill")
        made.start_agent("b", "--label", "for=decode")
        groups = {"prefill_extra": "labels: {for: prefill}", "decode_extra": "labels: {for: decode}", "listen": "[::1]:0"}
        with running(made, clusters="host: 'fd77::/64'", **groups) as job:
            assert job.url.startswith("http://[::1]:")
            got, headers = tokens(job.url)
            assert got == expected and headers["x-pdjob-kv-transport"] == "tcp"
            processes = job.processes()
            assert processes["prefill-0"]["url"].startswith("http://[fd77::2]:") and processes["decode-0"]["url"].startswith("http://[fd77::3]:")
            assert nodes(job)["lab/a"]["host"] == "fd77::2"
            links = command(job, "links").stdout
            assert "lab/a > lab/b" in links and "tcp, tls" in links, links
            assert "prefill-0" in command(job, "status").stdout
        ends_everywhere(made, "a", "b")
