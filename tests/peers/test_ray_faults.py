"""Real Ray clusters merged into one, broken while clients ask. Each test prints what its clients saw; docs/explanation/ray.md has the last figures."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import httpx
import pytest

for folder in ("support", "integration"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / folder))
from conftest import BIN  # noqa: E402
from hosts import Network, Unsupported, wait_until  # noqa: E402
from ray_hosts import PYTHON, Clusters, HostJob, Shim, ShimRefused, dashboard, gcs  # noqa: E402

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason=f"no Ray at {PYTHON}: run ./dev setup")]

ASKS = [{"model": "smollm2", "prompt": f"Write about the number {number}.", "max_tokens": 8, "temperature": 0} for number in range(6)]


@contextlib.contextmanager
def clusters(count, **options):
    try:
        with Network(count) as network:
            yield Clusters(network, **options)
    except Unsupported as error:
        pytest.skip(str(error))


class Load(threading.Thread):
    """A client that asks one question after the other, and compares each answer with the one before the fault."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self.job = job
        self.expected = [self._text(ask) for ask in ASKS]
        self.right, self.wrong, self.failures, self.slowest, self.going = 0, 0, {}, 0.0, True

    def _text(self, ask):
        reply = self.job.ask(ask, timeout=60)
        return reply.json()["choices"][0]["text"] if reply.status_code == 200 else f"status {reply.status_code}"

    def run(self):
        number = 0
        while self.going:
            begin = time.monotonic()
            try:
                text = self._text(ASKS[number % len(ASKS)])
            except httpx.HTTPError as error:
                text = f"status {type(error).__name__}"
            if text.startswith("status "):
                self.failures[text] = self.failures.get(text, 0) + 1
                time.sleep(0.2)
            elif text == self.expected[number % len(ASKS)]:
                self.right += 1
            else:
                self.wrong += 1
            self.slowest = max(self.slowest, time.monotonic() - begin)
            number += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.going = False
        self.join(90)

    def report(self, what):
        print(f"\n{what}: {self.right} right, {self.wrong} wrong, failed {self.failures or 0}, the slowest answer took {self.slowest:.1f} s")


def all_ready(job):
    return all(process["state"] == "ready" for process in job.processes().values())


def incarnations(job):
    return {name: process["pid"] for name, process in job.processes().items()}


@contextlib.contextmanager
def running(made, **options):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = HostJob(made.a, BIN, made.job_yaml(folder, prefill=len(made.hosts), decode=len(made.hosts), **{"keys": "cpus: 2, ", **options}), folder)
        try:
            yield job.wait_ready(180)
        except BaseException:
            print(job.tail())
            raise
        finally:
            if job.child.poll() is None:
                job.stop()


def survives(job, what, fault, back=lambda: True, seconds=120):
    """Runs `fault` under load, and waits until all processes are ready again."""
    with Load(job) as load:
        time.sleep(2)
        begin = time.monotonic()
        assert fault() != 0, f"{what}: nothing happened"
        wait_until(back, seconds, f"{what}: the loss is noticed")
        wait_until(lambda: all_ready(job), seconds, f"{what}: all is ready again")
        healed = time.monotonic() - begin
        time.sleep(2)
    load.report(f"{what}: healed after {healed:.0f} s")
    assert load.wrong == 0 and load.right > 0
    return load


def stop_jobs(made):
    """As an operator of the guest would."""
    with made.b.inside():
        for job in httpx.get(dashboard(made.b) + "/api/jobs/").json():
            if (job["submission_id"] or "").startswith("pdjob-") and job["status"] == "RUNNING":
                httpx.post(dashboard(made.b) + f"/api/jobs/{job['submission_id']}/stop").raise_for_status()


@pytest.fixture(scope="module")
def pair():
    with clusters(2) as made:
        yield made


@pytest.fixture(scope="module")
def three():
    with clusters(4, apart=True) as made:
        yield made


def cut_for_30_seconds(made):
    made.network.cut(made.b)
    time.sleep(30)
    made.network.mend(made.b)


FAULTS = {
    "the guest's nested node is killed": lambda made: made.b.kill(f"--gcs-address={gcs(made.head)}"),
    "the guest's job is stopped": stop_jobs,
    "the guest's machine is switched off and on": lambda made: made.restart(made.b),
    "the guest's agent is killed": lambda made: made.b.kill("pdjob agent"),
    "the guest is cut off for 30 s": cut_for_30_seconds,
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_guest_is_lost_and_comes_back(three, what):
    with running(three) as job:
        before = incarnations(job)
        load = survives(job, what, lambda: FAULTS[what](three), lambda: incarnations(job) != before and job.log_has("node b/0 joined") == 2, seconds=180)
        assert not load.failures
        assert job.stop() == 0
    three.assert_free()


def test_two_guests_do_not_reach_each_other_for_30_seconds(three):
    b, c = three.hosts[1:3]

    def cut():
        for host, other in ((b, c), (c, b)):
            host.run("ip", "route", "add", "blackhole", other.address + "/32").check_returncode()
        time.sleep(30)
        for host, other in ((b, c), (c, b)):
            host.run("ip", "route", "del", "blackhole", other.address + "/32").check_returncode()

    with running(three) as job:
        before = incarnations(job)
        load = survives(job, "two guests do not reach each other for 30 s", cut)
        assert incarnations(job) == before and not load.failures
        assert job.stop() == 0
    three.assert_free()


def test_the_shim_is_killed(three):
    with running(three) as job:
        before = incarnations(job)
        load = survives(job, "the shim is killed", lambda: three.a.kill("ray_shim.py"), lambda: any("ray_shim.py" in line for line in three.a.processes().values()))
        assert incarnations(job) == before and not load.failures
        assert job.stop() == 0
    three.assert_free()


def test_the_launcher_is_killed(three):
    with running(three) as job:
        job.stop(9)
        three.assert_free(60)
        for host in three.hosts:
            wait_until(lambda: not [line for line in host.processes().values() if line.startswith(BIN)], 30, "no process of pdjob is left")


def test_everything_of_pdjob_is_killed(three):
    with running(three) as job:
        for host in three.hosts:
            for words in (BIN, "ray_shim.py", "ray::Keeper", "ray::Starter"):
                host.kill(words)
        job.child.wait(10)
        three.assert_free(90)


def test_the_machine_of_the_homes_head_dies():
    with clusters(4, apart=True) as made, running(made) as job:
        before = incarnations(job)
        with Load(job) as load:
            time.sleep(2)
            made.head.kill_all()
            time.sleep(90)
        load.report("the machine of the home's head is dead for 90 s")
        assert incarnations(job) == before and all_ready(job)
        assert load.wrong == 0 and not load.failures and load.right > 0
        job.stop()
        for observer in made.observers[1:]:
            wait_until(lambda: observer.look()["cpus"] == 2, 30, "the guests have their CPUs back, although the home is dead")


def test_the_shim_keeps_its_secret_and_a_killed_one_leaves_nothing(pair):
    made = pair
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        shim = Shim(made.a, folder)
        try:
            assert shim.event("hello")["protocol"] == 1
            shim.ask("open", name="a", address=gcs(made.a), job="j1", lease_s=3, reconnect_s=600)
            home = shim.event("node", cluster="a", alive=1)
            order = dict(submission="pdjob-j1-b-0", cluster="b", dashboard=dashboard(made.b), python=PYTHON, cpus=1, gpus=0, memory=0, token_file="", home_token_file="")
            wait_until(lambda: joined(shim, slot="b.0", **order), 30, "the guest takes jobs")
            guest = shim.event("node", cluster="b", slot="b.0", alive=1)
            assert guest["address"] == made.b.address
            bundles = [{"guest": guest, "slot": f"{cluster}.0", "cpus": 1, "gpus": 0, "memory": 0} for cluster, guest in (("a", False), ("b", True))]
            assert shim.ask("reserve", name="all", bundles=bundles, timeout_s=20) == home["node"] + "," + guest["node"]
            assert made.free_cpus() == [1, 1]
            with pytest.raises(ShimRefused, match="no_room"):
                shim.ask("reserve", name="more", bundles=bundles, timeout_s=0.2)
            agent = dict(program="/bin/sh", arguments=["-c", "read secret; echo has $secret; cat; echo ended"], log="/tmp/ray/agent.log")
            shim.ask("start_agent", slot="b.0", reservation="all", bundle=1, secret="hush-hush", **agent)
            wait_until(lambda: made.b.run("cat", agent["log"]).stdout == "has hush-hush\n", 10, "the agent has its secret")
            for host in made.hosts:
                for process in host.processes():
                    with contextlib.suppress(OSError):
                        seen = pathlib.Path(f"/proc/{process}/cmdline").read_bytes() + pathlib.Path(f"/proc/{process}/environ").read_bytes()
                        assert b"hush-hush" not in seen
                logs = host.run("grep", "-rl", "hush-hush", "/tmp/ray").stdout.split()
                assert logs == ([agent["log"]] if host is made.b else [])
            made.a.kill("ray_shim.py")
            made.assert_free()
            wait_until(lambda: made.b.run("cat", agent["log"]).stdout.endswith("ended\n"), 10, "the agent sees that its reservation is gone")
        finally:
            shim.end()


def joined(shim, **order):
    try:  # A guest that has just started may have nobody yet who runs jobs.
        return shim.ask("join", **order) == ""
    except ShimRefused:
        return False


def test_the_homes_control_store_dies():
    with clusters(2) as made, running(made) as job:
        with Load(job) as load:
            time.sleep(2)
            assert made.a.kill("gcs/gcs_server") == 1
            time.sleep(40)
        load.report("the home's control store is dead for 40 s")
        assert load.wrong == 0 and not load.failures and load.right > 0
        job.stop()
        wait_until(lambda: made.observers[1].look()["cpus"] == 2, 30, "the guest has its CPUs back, although the home is dead")


def test_three_clusters(three):
    with running(three) as job:
        places = {process["url"].rsplit(":", 1)[0] for name, process in job.processes().items() if not name.startswith("router")}
        assert len(places) == 3
        with Load(job) as load:
            time.sleep(5)
        load.report("three clusters")
        assert load.wrong == 0 and not load.failures
        assert job.stop() == 0
    three.assert_free()


def test_clusters_with_tokens():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        token = pathlib.Path(folder) / "token"
        token.write_text("a" * 64)
        token.chmod(0o600)
        env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        with clusters(2, env=env) as made:
            with running(made, keys=f"cpus: 2, token_file: {token}, ", guest_keys=f"home_token_file: {token}") as job:
                assert job.ask(ASKS[0]).status_code == 200
                assert job.stop() == 0
                made.assert_free()
