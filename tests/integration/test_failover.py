"""The launcher dies; what it started serves on, and the next launcher goes on with the same processes."""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import threading
import time

import httpx
import pytest

from conftest import BIN, Job, Process, eventually, job_yaml

PROMPTS = ["Tell me a story about a river.", "The sea is", "Once upon a time there was", "A list of three things:"]
SETTINGS = [{"temperature": 0}, {"temperature": 0.9, "top_p": 0.95, "seed": 7}]


def bodies():
    return [{"model": "smollm2", "prompt": p, "max_tokens": 24, "return_token_ids": True, **s} for p in PROMPTS for s in SETTINGS]


def tokens(client, body, stream, begun=None):
    """Returns the tokens of a whole answer, or fails. Sets the event `begun` when a stream's first token has come."""
    if not stream:
        reply = client.post("/v1/completions", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["token_ids"]
    found, ended = [], False
    with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                found += [token for choice in event["choices"] for token in choice.get("token_ids") or []]
                if begun and found:
                    begun.set()
    assert ended, "the stream ended too early"
    return found


@pytest.fixture(scope="module")
def expected(single):
    with httpx.Client(base_url=single.url, timeout=120) as client:
        return [tokens(client, body, False) for body in bodies()]


class Clients:
    """Ask all the time, in turn with and without streaming. Each answer is known. A client that is not answered, or otherwise, is a failure."""

    def __init__(self, url, expected, count=3):
        self.url, self.expected = url, expected
        self.right, self.wrong = 0, []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(count)]

    def __enter__(self):
        [thread.start() for thread in self.threads]
        self.wait_for_more(3)
        return self

    def __exit__(self, *_):
        self.over.set()
        [thread.join(120) for thread in self.threads]

    def run(self, number):
        with httpx.Client(base_url=self.url, timeout=120) as client:
            while not self.over.is_set():
                which = number % len(self.expected)
                try:
                    got = tokens(client, bodies()[which], stream=number % 2 == 0)
                    if got != self.expected[which]:
                        self.wrong.append((bodies()[which], got))
                    self.right += 1
                except Exception as error:  # Whatever goes wrong is the client's to report.
                    self.wrong.append(error)
                number += 3

    def wait_for_more(self, count):
        before = self.right
        eventually(lambda: self.wrong or self.right >= before + count, 120, f"{count} more answers")
        assert not self.wrong, self.wrong[:3]


def processes_of(folder):
    """Returns the command lines of all processes that a job in this folder started, by pid. Launchers are not among them."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"FAILOVER_TEST={folder}\0".encode() in (path / "environ").read_bytes():
                line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if "--config" not in line:
                    found[int(path.name)] = line
    return found


class Launchers:
    """One job, and the launchers that it has one after the other."""

    def __init__(self, folder, orphan_timeout="60s", launcher="", **options):
        self.folder = folder
        self.config = job_yaml(folder, launcher=f"orphan_timeout: {orphan_timeout}, {launcher}", **options)
        self.job = None

    def begin(self):
        self.job = Job(self.config, self.folder, {"FAILOVER_TEST": str(self.folder)})
        return self.job

    def start(self):
        """Starts a launcher, and waits until clients are served, or were all the time."""
        return self.begin().wait_ready()

    def kill(self):
        self.job.child.kill()
        self.job.child.wait()

    def expire_lease(self):
        """As if the launcher, which must stand still, had done so for long."""
        (lease,) = pathlib.Path(self.folder).glob("state/*/lease")
        launcher, pid, _ = lease.read_text().split()
        lease.write_text(f"{launcher} {pid} 0\n")

    def adopted(self):
        """Returns how many processes the launcher adopted, of how many, and how many milliseconds that took."""
        found = re.search(r"adopted (\d+) of (\d+) processes in (\d+) ms", self.job.log_tail(1000))
        return found and tuple(map(int, found.groups()))

    def pids(self):
        return {name: p["pid"] for name, p in self.job.processes().items()}

    def all_ready(self):
        eventually(lambda: all(p["state"] == "ready" for p in self.job.processes().values()), 90, "all are ready")

    def command(self, *words):
        return subprocess.run([BIN, *words, "--config", str(self.job.config)], capture_output=True, text=True, timeout=90)

    def ends(self, seconds=20):
        eventually(lambda: not processes_of(self.folder), seconds, "nothing is left")
        left = {path.name for path in pathlib.Path(self.folder).glob("state/*/*")}
        assert not left, left


@contextlib.contextmanager
def launchers(**options):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        made = Launchers(folder, **options)
        try:
            yield made
        except BaseException:
            if made.job:
                print(made.job.log_tail())
            for log in sorted(pathlib.Path(folder).glob("logs/**/*.log")):
                print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-60:]))
            raise
        finally:
            if made.job and made.job.child.poll() is None:
                made.job.child.kill()
                made.job.child.wait()
            left = processes_of(folder)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_a_killed_launcher_costs_no_request_and_the_next_one_heals_as_before(expected):
    with launchers(prefill=2, decode=2) as made:
        before = (made.start(), made.pids())[1]
        with Clients(made.job.url, expected) as clients:
            made.kill()
            clients.wait_for_more(6)  # They are served without a launcher.
            told = subprocess.run([BIN, "status", "--config", str(made.job.config)], capture_output=True, text=True)
            assert told.returncode == 1 and "has no launcher now" in told.stderr, told
            killed = time.monotonic()
            made.start()
            print(f"started to ready: {time.monotonic() - killed:.2f} s; adopted {made.adopted()}")
            assert made.adopted()[:2] == (5, 5)
            assert made.pids() == before, "the same processes"
            clients.wait_for_more(6)

            os.kill(before["decode-0"], signal.SIGKILL)
            eventually(lambda: made.job.processes()["decode-0"]["restarts"] == 1, 60, "the new launcher notices")
            made.all_ready()
            clients.wait_for_more(6)
            assert {n: p for n, p in made.pids().items() if n != "decode-0"} == {n: p for n, p in before.items() if n != "decode-0"}
        assert not clients.wrong, clients.wrong[:3]
        assert made.job.stop() == 0, made.job.log_tail()
        made.ends()


def test_ten_launchers_are_killed_one_after_the_other(expected):
    draw = random.Random(20261124)
    with launchers(decode=2) as made:
        before = (made.start(), made.pids())[1]
        with Clients(made.job.url, expected) as clients:
            for _ in range(10):
                made.kill()
                made.begin()
                time.sleep(draw.uniform(0, 1.5))  # Before, while and after it adopts.
            made.kill()
            made.start()
            assert made.pids() == before
            clients.wait_for_more(6)
        assert not clients.wrong, clients.wrong[:3]
        assert all(p["restarts"] == 0 for p in made.job.processes().values())
        assert made.job.stop() == 0
        made.ends()


def test_a_worker_that_died_or_was_starting_without_a_launcher_comes_back(expected):
    # Until the next launcher is there, which may take seconds, routers meet two dead workers again and again.
    with launchers(prefill=2, decode=2, router="attempts: 16") as made:
        before = (made.start(), made.pids())[1]
        with Clients(made.job.url, expected) as clients:
            os.kill(before["decode-0"], signal.SIGKILL)
            made.kill()
            os.kill(before["prefill-1"], signal.SIGKILL)  # Nobody is there to notice.
            made.start()
            eventually(lambda: len(made.job.processes()) == 5, 30, "the launcher answers")
            # A killed process takes a while to end, so this launcher may adopt it first.
            replaced = lambda: [name for name, pid in made.pids().items() if pid not in (0, before[name])]  # noqa: E731
            eventually(lambda: replaced() == ["prefill-1", "decode-0"], 60, "the dead ones are started again")
            made.all_ready()
            assert replaced() == ["prefill-1", "decode-0"]
            now = made.pids()

            os.kill(now["prefill-0"], signal.SIGKILL)
            eventually(lambda: made.job.processes()["prefill-0"]["restarts"] == 1, 30, "it starts again")
            starting = made.pids()["prefill-0"]
            made.kill()
            made.start()
            made.all_ready()
            if starting:
                assert made.pids()["prefill-0"] == starting, "the one that was starting is adopted"
            clients.wait_for_more(6)
        assert not clients.wrong, clients.wrong[:3]
        assert made.job.stop() == 0
        made.ends()


def test_without_a_new_launcher_everything_ends_after_the_orphan_timeout():
    with launchers(orphan_timeout="6s") as made:
        made.start()
        processes = processes_of(made.folder)
        assert len(processes) == 4, "an agent, a router and two workers"
        made.kill()
        killed = time.monotonic()
        time.sleep(2)  # What must not happen needs time to happen.
        assert processes_of(made.folder) == processes
        eventually(lambda: not processes_of(made.folder), 40, "nothing is left")
        assert time.monotonic() - killed > 5.5
        made.start()
        assert made.adopted()[:2] == (0, 3), "the next one starts all of them"
        assert made.job.stop() == 0
        made.ends()


def test_without_an_orphan_timeout_nothing_outlives_the_launcher():
    with launchers(orphan_timeout="0s") as made:
        made.start()
        assert len(processes_of(made.folder)) == 3, "no agent"
        assert not list(pathlib.Path(made.folder).glob("state/*/ledger"))
        made.kill()
        eventually(lambda: not processes_of(made.folder), 10, "nothing is left")


def test_a_second_launcher_is_refused_while_the_first_lives_and_takes_over_from_one_that_stands_still(expected):
    with launchers() as made:
        before = (made.start(), made.pids())[1]
        first = made.job
        with Clients(first.url, expected) as clients:
            twin = made.command()
            assert twin.returncode == 2 and "already running" in twin.stderr, twin
            assert made.pids() == before

            first.child.send_signal(signal.SIGSTOP)
            twin = made.command()
            assert twin.returncode == 2, "it has only just stopped"
            made.expire_lease()
            made.start()
            assert made.adopted()[:2] == (3, 3) and made.pids() == before
            first.child.send_signal(signal.SIGCONT)
            assert first.child.wait(10) == -signal.SIGKILL, "the one that stood still was ended"
            clients.wait_for_more(6)
        assert not clients.wrong, clients.wrong[:3]
        assert made.pids() == before
        assert made.job.stop() == 0
        made.ends()


def test_a_launcher_that_lost_its_lease_ends_itself_and_nothing_else(expected):
    with launchers() as made:
        before = (made.start(), made.pids())[1]
        with Clients(made.job.url, expected) as clients:
            (lease,) = pathlib.Path(made.folder).glob("state/*/lease")
            lease.with_suffix(".next").write_text(f"9 {os.getpid()} 0\n")
            lease.with_suffix(".next").rename(lease)
            assert made.job.child.wait(10) == 1
            assert "has taken over" in made.job.log_tail()
            clients.wait_for_more(6)
            lease.unlink()
            made.start()
            assert made.pids() == before
        assert not clients.wrong, clients.wrong[:3]
        assert made.job.stop() == 0
        made.ends()


@pytest.mark.parametrize("now", [False, True])
def test_stop_ends_what_a_dead_launcher_left(expected, now):
    long = next(i for i, answer in enumerate(expected) if len(answer) == 24)  # Some prompts have an empty answer.
    with launchers() as made:
        made.start()
        made.kill()
        with httpx.Client(base_url=made.job.url, timeout=120) as client:
            got, begun = [], threading.Event()
            asking = threading.Thread(target=lambda: got.append(tokens(client, {**bodies()[long], "max_tokens": 200}, True, begun)))
            if not now:
                asking.start()
                assert begun.wait(60), "the request is under way"
            stopped = made.command("stop", *(["--now"] if now else []))
            assert stopped.returncode == 0 and "has ended" in stopped.stdout, stopped
            assert not processes_of(made.folder)
            if not now:
                asking.join(60)
                assert got and got[0][:24] == expected[long], "the request under way was finished"
        made.ends()
        again = made.command("stop")
        assert again.returncode == 1 and "no job" in again.stderr


def test_a_launcher_that_is_stopped_while_it_adopts_ends_everything():
    with launchers() as made:
        made.start()
        made.kill()
        made.begin()
        eventually(lambda: "logs:" in made.job.log_tail() or made.adopted(), 30, "it has begun")
        assert made.job.stop() == 0, made.job.log_tail()
        made.ends()


def test_a_worker_that_changed_its_role_is_heard_by_the_next_launchers():
    """Also by those that adopt it while it changes."""
    draw = random.Random(20261125)
    with launchers(decode=2, launcher="heartbeat_timeout: 2s, hang_timeout: 4s") as made:
        before = (made.start(), made.pids())[1]
        for sizes in (["prefill=2", "decode=1"], ["prefill=1", "decode=2"]):
            made.command("scale", *sizes, "--no-wait")
            time.sleep(draw.uniform(0, 0.3))
            made.kill()
            made.start()
            made.all_ready()
            assert made.command("scale", *sizes).returncode == 0  # The order may have been lost with its launcher.
            made.kill()
            made.start()
            time.sleep(6)  # For longer than a worker may be silent.
            made.all_ready()
            assert made.pids() == before, "the same processes"
        assert made.job.stop() == 0
        made.ends()


def test_a_node_on_which_workers_died_is_avoided_by_the_next_launcher_too():
    with launchers() as made:
        made.start()

        def distrust():
            (found,) = pathlib.Path(made.folder).glob("state/*/launcher.json")
            lines = httpx.get("http://" + json.loads(found.read_text())["admin"] + "/metrics").text.splitlines()
            return [line for line in lines if line.startswith("pdjob_node_distrust{")]

        for deaths in range(1, 5):
            os.kill(made.pids()["decode-0"], signal.SIGKILL)
            eventually(lambda: made.job.processes()["decode-0"]["restarts"] == deaths, 60, "the launcher notices")
            made.all_ready()
            time.sleep(1)  # Faults of one second are one.
        before = distrust()
        assert before and before[0].endswith(" 1"), before
        made.kill()
        made.start()
        assert distrust() == before
        assert made.job.stop() == 0
        made.ends()


@pytest.mark.parametrize("orphan_timeout", ["0s", "60s"])
def test_stop_ends_a_job_whose_launcher_is_stopped(orphan_timeout):
    with launchers(orphan_timeout=orphan_timeout) as made:
        made.start()
        made.job.child.send_signal(signal.SIGSTOP)
        stopped = made.command("stop")
        assert stopped.returncode == 0 and "has ended" in stopped.stdout, stopped
        assert made.job.child.wait(10) == 0, "it went on, and ended the job in order"
        made.ends()


def test_stop_ends_a_job_whose_launcher_stands_still_for_good():
    with launchers() as made:
        made.start()
        made.expire_lease()
        again = threading.Event()

        def hold():  # As a debugger: whatever lets it go on, it does not.
            while not again.wait(0.001):
                made.job.child.send_signal(signal.SIGSTOP)

        made.job.child.send_signal(signal.SIGSTOP)
        made.expire_lease()
        holds = threading.Thread(target=hold, daemon=True)
        holds.start()
        try:
            stopped = made.command("stop")
        finally:
            again.set()
            holds.join(5)
        assert stopped.returncode == 0 and "has ended" in stopped.stdout, stopped
        made.ends()


def test_stop_ends_a_job_whose_launcher_dies_of_the_stop_itself():
    with launchers() as made:
        made.start()
        made.kill()
        made.begin()  # It may not handle signals yet.
        stopped = made.command("stop")
        assert stopped.returncode == 0 and "has ended" in stopped.stdout, stopped
        made.ends()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_costs_neither_the_launcher_nor_the_next_one():
    with launchers() as made:
        state = pathlib.Path(made.folder) / "state"
        state.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(state)], check=False).returncode != 0:
            pytest.skip("this machine lets nobody mount")
        try:
            before = (made.start(), made.pids())[1]
            made.kill()
            made.start()  # So that both files of the ledger are there.
            with contextlib.suppress(OSError), open(state / "full", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            twin = made.command()
            assert twin.returncode == 2 and "already running" in twin.stderr, twin
            time.sleep(12)  # Longer than the lease.
            twin = made.command()
            assert twin.returncode == 2 and "already running" in twin.stderr, twin
            os.kill(before["decode-0"], signal.SIGKILL)  # What comes next must reach the disk.
            eventually(lambda: made.pids()["decode-0"] not in (before["decode-0"], 0), 60, "it starts again")
            made.all_ready()
            now = made.pids()
            made.kill()
            made.start()
            made.all_ready()
            assert made.pids() == now
            assert made.job.stop() == 0
            (state / "full").unlink()
            made.ends()
        finally:
            subprocess.run(["umount", "-l", str(state)], check=False)


def test_a_run_that_was_told_to_stop_is_over_for_the_next_launcher():
    with launchers() as made:
        before = (made.start(), set(made.pids().values()))[1]
        workers = [made.pids()[name] for name in ("prefill-0", "decode-0")]
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)  # So that the stop takes its time.
        made.job.child.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping" in made.job.log_tail(), 10, "it stops")
        eventually(lambda: made.job.processes()["router-0"]["state"] != "ready", 10, "the router goes")
        made.kill()
        made.start()
        assert not before & set(made.pids().values()), "all are new"
        assert made.job.stop() == 0
        made.ends()


def test_a_changed_job_file_is_not_applied_to_what_runs():
    with launchers() as made:
        before = (made.start(), made.pids())[1]
        made.kill()
        old = made.config
        made.config = old.replace("tokens_per_sequence: 2048", "tokens_per_sequence: 1024")
        job = made.begin()
        assert job.child.wait(60) == 2
        assert "its job file was another one" in job.log_tail() and "pdjob stop --job" in job.log_tail()
        made.config = old
        made.start()
        assert made.pids() == before
        made.kill()
        made.config = old.replace("tokens_per_sequence: 2048", "tokens_per_sequence: 1024")
        made.job.config.write_text(made.config)
        assert made.command("stop").returncode == 0, "the old run ends by its own file"
        made.ends()


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stopped_agent_of_this_machine_is_replaced(expected, sig):
    with launchers() as made:
        before = (made.start(), made.pids())[1]
        url = made.job.url
        (lock,) = pathlib.Path(made.folder).glob("state/*/agent.lock")
        os.kill(int(lock.read_text()), sig)
        eventually(lambda: not set(before.values()) & set(processes_of(made.folder)), 20, "its processes die with it")
        eventually(lambda: set(made.pids().values()).isdisjoint({*before.values(), 0}), 60, "all run again")
        assert "was refused" not in (pathlib.Path(made.folder) / "logs/launcher.log").read_text(), "the next agent need not wait for the lease of the dead one"
        made.all_ready()
        with httpx.Client(base_url=url, timeout=120) as client:
            assert tokens(client, bodies()[0], True) == expected[0], "at the same address"
        assert made.job.stop() == 0
        made.ends()


def test_the_ledger_and_the_keys_are_for_the_owner_alone():
    with launchers() as made:
        made.start()
        for path in pathlib.Path(made.folder).glob("state/*/*"):
            assert path.stat().st_mode & 0o077 == 0, path
        assert made.job.stop() == 0


def test_a_stopped_process_of_an_agent_is_replaced_long_before_the_timeout_of_hung_ones():
    with launchers(launcher="hang_timeout: 1h") as made:
        stopped = (made.start(), made.pids())[1]["decode-0"]
        os.kill(stopped, signal.SIGSTOP)
        eventually(lambda: made.pids()["decode-0"] not in (stopped, 0), 60, "stopped process replaced")
        assert made.job.processes()["decode-0"]["last_exit"].startswith("stopped, then ")
        assert made.job.stop() == 0
