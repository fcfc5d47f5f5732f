"""A pool: a keeper and two agents on one machine, for several jobs of the real model. No core is promised twice, and nothing is lost."""

import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time

import httpx
import pytest
from conftest import BIN, FAKE_GPU, MODEL, Process, eventually

import test_batch

CORES = 2  # Of each agent.
MINUTES = float(os.environ.get("PDJOB_TEST_MINUTES", 10))  # Of the long test.
MEMORY = 8 << 30


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Pool:
    def __init__(self, folder, gpus=""):
        self.folder = pathlib.Path(folder)
        self.environment = {**os.environ, "XDG_STATE_HOME": f"{folder}/state", "CUDA_VISIBLE_DEVICES": gpus, "FAKE_CUDA_DEVICES": "1"}
        self.key = self.folder / "pool.key"
        self.run("agent", "--new-key", self.key)
        self.port = free_port()
        self.first_port = free_port()
        self.standby_port = free_port()
        self.keeper = None
        self.agents = {}
        self.start_keeper()
        for name in ("a", "b"):
            self.start_agent(name)
        eventually(lambda: len(self.jobs()["nodes"]) == 2)

    def spawn(self, *words):
        return Process(["pdjob", *map(str, words)], self.folder, self.environment)

    def start_keeper(self, *flags, port=None):
        ports = f"{self.first_port}-{self.first_port + 20}"
        address = f"127.0.0.1:{port or self.port}"
        self.keeper = self.spawn("keeper", "--listen", address, "--key-file", self.key, "--ports", ports, "--orphan-timeout", 60, *flags)
        eventually(lambda: self.run("jobs", "--json", check=False).returncode == 0)
        return self.keeper

    def start_agent(self, name):
        bounds = ["--cores", CORES, "--memory", MEMORY]
        join = [word for port in (self.port, self.standby_port) for word in ("--join", f"127.0.0.1:{port}")]
        self.agents[name] = self.spawn("agent", *join, "--key-file", self.key, "--name", name, *bounds)

    def run(self, *words, check=True):
        done = subprocess.run([BIN, *map(str, words)], env=self.environment, capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def jobs(self):
        done = self.run("jobs", "--json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"nodes": [], "jobs": []}

    def job(self, name):
        return next((job for job in reversed(self.jobs()["jobs"]) if job["name"] == name), {"state": "", "why": ""})

    def state(self, name):
        return self.job(name)["state"]

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def online(self, name, prefill=1, decode=1, extra=""):
        """A job that serves, with a core for each worker; and its address."""
        port = free_port()
        path = self.write(
            f"{name}.yaml",
            f"name: {name}\nmodel: {MODEL}\nserved_name: tiny\nengine: {{threads: 1, sequences: 4}}\n"
            f"prefill: {{workers: {prefill}}}\ndecode: {{workers: {decode}}}\nrouter: {{listen: 127.0.0.1:{port}}}\n{extra}",
        )
        return path, f"http://127.0.0.1:{port}"

    def batch(self, name, rows, of=None, extra=""):
        of = of or name
        test_batch.write_rows(self.folder / f"{of}.jsonl", rows)
        return self.write(
            f"{of}.yaml",
            f"name: {name}\nmode: batch\nmodel: {MODEL}\nserved_name: tiny\nengine: {{threads: 1, sequences: 4}}\n"
            f"prefill: {{workers: 0}}\nbatch: {{in: [{of}.jsonl], out: out-{of}}}\n{extra}",
        )

    def rows_done(self, of):
        lines = (self.folder / f"out-{of}" / "output.jsonl").read_text().splitlines()
        return sorted(json.loads(line)["custom_id"] for line in lines)

    def pids(self, word):
        """Processes of this pool whose name in `ps` begins so."""
        found = subprocess.run(["pgrep", "-f", f"^pdjob {word}"], capture_output=True, text=True).stdout.split()
        own = f"XDG_STATE_HOME={self.folder}/state"
        return [int(pid) for pid in found if own in self.environment_of(pid)]

    @staticmethod
    def environment_of(pid):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return ""

    def close(self):
        for process in [*self.agents.values(), self.keeper]:
            process.child.terminate()
            process.child.wait(30)


@pytest.fixture
def pool(request):
    """Agents a and b; a parameter names the GPUs that each of them has."""
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        pool = Pool(folder, getattr(request, "param", ""))
        yield pool
        pool.close()
        eventually(lambda: not pool.pids(""))


def answer(url):
    body = {"model": "tiny", "prompt": "One two three", "max_tokens": 8, "temperature": 0}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]


def serves(url):
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    return False


def held(pool):
    """Cores by node, from the shares of all jobs."""
    cores = {}
    for job in pool.jobs()["jobs"]:
        for share in job["shares"]:
            cores[share["node"]] = cores.get(share["node"], 0) + share["cores"]
    return cores


@pytest.mark.parametrize("pool", ["5"], indirect=True)
def test_jobs_have_parts_of_gpus_and_no_part_is_given_twice(pool):
    for name in ("one", "two", "three"):
        text = f"name: {name}\nserved_name: fake\nengine: {{kind: fake, gpu: 0.6, threads: 1}}\ngpu: {{{FAKE_GPU}}}\n"
        pool.run("submit", pool.write(f"{name}.yaml", text + f"prefill: {{workers: 0}}\nrouter: {{listen: 127.0.0.1:{free_port()}}}\n"))
    eventually(lambda: len(pool.pids("decode-0")) == 2, 60)
    eventually(lambda: "0.6 of a GPU" in pool.job("three")["why"], 60)
    text = pool.run("jobs").stdout
    assert "2 of 4 cores and 0.8 of 2 GPUs are free" in text
    page = json.loads((pool.folder / "state/pdjob/keepers/main/launcher.json").read_text())["admin"]
    assert httpx.get(f"http://{page}/").text == text, "what a browser shows"
    assert httpx.get(f"http://{page}/status").text.startswith("here are: / (the jobs)")
    shares = [share for name in ("one", "two") for share in pool.job(name)["shares"]]
    assert [share["gpu_parts"] for share in shares] == [{"5": 0.6}, {"5": 0.6}]
    assert len({share["node"] for share in shares}) == 2
    for pid in pool.pids("decode-0"):
        variables = pool.environment_of(pid).split("\0")
        assert {"CUDA_VISIBLE_DEVICES=5", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60"} <= set(variables)
    pool.run("cancel", "one")
    eventually(lambda: pool.state("three") == "running", 60)
    for name in ("two", "three"):
        pool.run("cancel", name)
    eventually(lambda: not pool.pids("share-"), 60)


def test_jobs_share_machines_and_the_next_one_waits_for_room(pool):
    first, first_url = pool.online("first")
    second, second_url = pool.online("second")
    third, third_url = pool.online("third")
    for path in (first, second, third):
        pool.run("submit", path)
    eventually(lambda: serves(first_url) and serves(second_url), 60)
    assert held(pool) == {"main/a": 2, "main/b": 2}
    assert pool.state("third") == "queued" and "does not fit" in pool.job("third")["why"]
    text = answer(first_url)
    assert answer(second_url) == text
    pool.run("cancel", "first", "--wait")
    eventually(lambda: serves(third_url), 60)
    assert answer(third_url) == text
    refused = pool.run("submit", second, check=False)
    assert refused.returncode == 3 and "a job of the name second is running" in refused.stderr
    assert "ready url=" in pool.run("jobs", "third").stdout


def test_a_batch_makes_room_for_a_job_that_serves_and_answers_each_row_once(pool):
    rows = 60
    pool.run("submit", pool.batch("night", rows))
    eventually(lambda: pool.state("night") == "running" and any((pool.folder / "out-night").glob("*")), 60)
    path, url = pool.online("online", prefill=2, decode=2)  # All four cores.
    pool.run("submit", path, "--wait")
    eventually(lambda: serves(url), 60)
    assert pool.state("night") == "queued" and pool.job("night")["cores"] == 0
    answer(url)
    pool.run("cancel", "online")
    eventually(lambda: pool.state("night") == "ended", 200)
    assert pool.job("night")["why"] == "done"
    assert pool.rows_done("night") == sorted(f"r{number}" for number in range(rows))


def test_the_next_batch_of_a_name_has_the_warm_workers_of_the_last_one_until_others_need_their_room(pool):
    keep = "launcher: {keep: 5min}\n"
    pool.run("submit", pool.batch("night", 2, of="one", extra=keep), "--wait")
    assert pool.job("night")["state"] == "warm" and pool.job("night")["why"] == "done"
    workers = pool.pids("decode-")
    assert len(workers) == 1
    pool.run("submit", pool.batch("night", 3, of="two", extra=keep), "--wait")
    assert pool.pids("decode-") == workers
    assert [job["state"] for job in pool.jobs()["jobs"]] == ["ended", "warm"]
    assert [len(pool.rows_done(of)) for of in ("one", "two")] == [2, 3]
    path, url = pool.online("online", prefill=2, decode=2)  # All four cores.
    pool.run("submit", path, "--wait")
    eventually(lambda: serves(url), 60)
    assert pool.state("night") == "ended" and not set(pool.pids("decode-")) & set(workers)
    for pid in pool.pids("agent .* --name local"):
        os.kill(pid, signal.SIGTERM)  # It has no processes, and would wait for 5 minutes.


def test_a_killed_keeper_and_a_killed_agent_lose_no_job(pool):
    path, url = pool.online("steady")
    pool.run("submit", path)
    eventually(lambda: serves(url), 60)
    text = answer(url)
    before = pool.job("steady")
    launcher = pool.pids("launcher-steady")
    pool.keeper.child.kill()
    pool.keeper.child.wait()
    assert answer(url) == text
    assert pool.run("jobs", check=False).returncode == 1
    pool.start_keeper()
    eventually(lambda: len(pool.jobs()["nodes"]) == 2)
    assert pool.job("steady") == before
    assert pool.pids("launcher-steady") == launcher
    node = before["shares"][0]["node"].split("/")[1]
    pool.agents[node].child.kill()
    pool.agents[node].child.wait()
    pool.start_agent(node)
    eventually(lambda: pool.pids("launcher-steady") not in ([], launcher) and serves(url), 90)
    assert answer(url) == text
    os.kill(pool.pids("launcher-steady")[0], signal.SIGKILL)
    eventually(lambda: serves(url) and answer(url) == text, 90)
    assert pool.state("steady") == "running"


def test_a_second_keeper_takes_over_from_one_that_died_or_stands_still(pool):
    path, url = pool.online("steady")
    pool.run("submit", path)
    eventually(lambda: serves(url), 60)
    launcher = pool.pids("launcher-steady")
    first = pool.keeper
    pool.start_keeper("--standby", port=pool.standby_port)
    first.child.kill()
    first.child.wait()
    eventually(lambda: len(pool.jobs()["nodes"]) == 2)
    assert pool.pids("launcher-steady") == launcher
    second = pool.keeper
    pool.start_keeper("--standby")
    second.child.send_signal(signal.SIGSTOP)
    eventually(lambda: second.child.poll() is not None, 60)
    eventually(lambda: len(pool.jobs()["nodes"]) == 2)
    assert pool.pids("launcher-steady") == launcher and serves(url)


def test_a_job_that_cannot_be_read_is_refused_and_one_that_fails_says_why(pool):
    wrong = pool.write("wrong.yaml", f"name: wrong\nmodel: {MODEL}\nrouter: {{listten: 127.0.0.1:0}}\n")
    refused = pool.run("submit", wrong, check=False)
    assert refused.returncode == 2 and "listten" in refused.stderr
    missing = pool.batch("missing", 1)
    (pool.folder / "missing.jsonl").unlink()
    done = pool.run("submit", missing, "--wait", check=False)
    assert done.returncode == 1 and "failed: its launcher ended with exit code 2" in done.stderr
    assert pool.run("cancel", "nobody", check=False).returncode == 2
    pool.run("quota", "default", "--cores", "1")
    path, _ = pool.online("big")
    assert "queued" in pool.run("submit", path).stdout
    eventually(lambda: "its quota is 1" in pool.job("big")["why"])
    assert pool.run("cancel", "big").stdout.startswith("job big is ended: cancelled")


class Client(threading.Thread):
    """Asks the same again and again. A request that is not answered, or refused, is asked again; a wrong answer is an error."""

    def __init__(self, url, right):
        super().__init__(daemon=True)
        self.url, self.right = url, right
        self.answered, self.again, self.wrong, self.waited = 0, 0, [], 0
        self.stop = threading.Event()
        self.start()

    def run(self):
        begun = time.monotonic()
        while not self.stop.is_set():
            try:
                text = answer(self.url)
            except (httpx.HTTPError, KeyError, json.JSONDecodeError):
                self.again += 1
                self.stop.wait(0.2)
                continue
            if text != self.right:
                self.wrong.append(text)
            self.waited = max(self.waited, time.monotonic() - begun)
            self.answered += 1
            begun = time.monotonic()


def children():
    """Parents by pid, and the first word of each pdjob process's title."""
    parents, titles = {}, {}
    for line in subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout.splitlines()[1:]:
        pid, parent, *words = line.split()
        parents[int(pid)] = int(parent)
        if words[0] == "pdjob" and len(words) > 1:
            titles[int(pid)] = words[1]
    return parents, titles


def workers_under(agent):
    """Workers of all jobs that run under this agent of the pool, by pid. Each computes with one thread."""
    parents, titles = children()

    def is_under(pid):
        while pid in parents and pid != agent:
            pid = parents[pid]
        return pid == agent

    return {pid: title for pid, title in titles.items() if title.startswith(("prefill-", "decode-")) and is_under(pid)}


@pytest.mark.heavy
def test_three_jobs_survive_minutes_of_kills():
    chosen = random.Random(os.environ.get("PDJOB_TEST_SEED", "1"))
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        pool = Pool(folder)
        steady, steady_url = pool.online("steady")
        trainer, trainer_url = pool.online("trainer", prefill=0, extra=f"mode: rollout\nrollout: {{weights_dir: {folder}}}\n")
        urgent, _ = pool.online("urgent", prefill=0)
        for path in (steady, trainer):
            pool.run("submit", path)
        eventually(lambda: serves(steady_url) and serves(trainer_url), 120)
        right = answer(steady_url)
        clients = [Client(steady_url, right), Client(trainer_url, right)]
        kills, batches, most, preempted, rows = collections.Counter(), 0, 0, 0, 400

        def victim():
            kind = chosen.choice(["keeper", "agent", "launcher", "share", "worker"])
            if kind == "keeper":
                return kind, pool.keeper.child.pid
            if kind == "agent":
                return kind, chosen.choice(list(pool.agents.values())).child.pid
            _, titles = children()
            begins = {"launcher": ("launcher-",), "share": ("share-",), "worker": ("prefill-", "decode-", "router-")}[kind]
            own = [pid for pid, title in titles.items() if title.startswith(begins) and str(pool.folder) in pool.environment_of(pid)]
            return kind, chosen.choice(own) if own else None

        def mend():
            if pool.keeper.child.poll() is not None:
                time.sleep(chosen.uniform(0, 3))
                pool.start_keeper()
            for name, agent in list(pool.agents.items()):
                if agent.child.poll() is not None:
                    time.sleep(chosen.uniform(0, 3))
                    pool.start_agent(name)

        def check():
            nonlocal most
            for agent in pool.agents.values():
                found = workers_under(agent.child.pid)
                later = workers_under(agent.child.pid)  # What ps saw first may have died before it saw the last.
                both = {pid: title for pid, title in found.items() if pid in later}
                most = max(most, len(both))
                assert len(both) <= CORES, (both, pool.jobs())
            assert max(held(pool).values(), default=0) <= CORES

        def look_at_batch():
            nonlocal batches, preempted
            name = f"night{batches}"
            job = pool.job(name)
            if job["state"] == "":
                pool.run("submit", pool.batch(name, rows), check=False)
            elif job["state"] == "ended":
                assert job["why"] == "done", job
                records = test_batch.lines(pool.folder / f"out-{name}" / "output.jsonl")
                assert sorted(record["custom_id"] for record in records) == sorted(f"r{number}" for number in range(rows))
                batches += 1
            elif chosen.random() < 0.05 and pool.state("urgent") in ("", "ended"):
                preempted += pool.run("submit", urgent, check=False).returncode == 0
            elif chosen.random() < 0.1 and pool.state("urgent") == "running":
                pool.run("cancel", "urgent", check=False)

        end = time.monotonic() + 60 * MINUTES
        while time.monotonic() < end:
            kind, pid = victim()
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills[kind] += 1
            for process in [pool.keeper, *pool.agents.values()]:
                if process.child.pid == pid:
                    process.child.wait()
            mend()
            pause = time.monotonic() + chosen.uniform(2, 10)
            while time.monotonic() < pause:
                check()
                look_at_batch()
                time.sleep(0.2)
        pool.run("cancel", "urgent", check=False)

        def is_done():
            look_at_batch()
            return batches > 0 and pool.state(f"night{batches}") == ""

        eventually(lambda: serves(steady_url) and serves(trainer_url), 120)
        eventually(is_done, 600)
        for client in clients:
            client.stop.set()
            client.join()
            assert client.wrong == []
        print(f"{MINUTES} min, kills {dict(kills)}; {batches} batches of {rows} rows, each row once; {preempted} times one made room;")
        print(f"at most {most} workers of one thread on an agent of {CORES} cores; " + "; ".join(f"{c.answered} right answers, asked again {c.again} times, longest wait {c.waited:.1f} s" for c in clients))
        pool.close()
