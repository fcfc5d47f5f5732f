"""Real Ray clusters on test hosts, and the launcher's end of the Ray shim."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import Job, job_yaml, metric  # noqa: E402
from hosts import Root, wait_until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("PDJOB_CACHE", pathlib.Path.home() / ".cache/pdjob"))
PYTHON = os.environ.get("PDJOB_RAY_PYTHON", str(CACHE / "ray-venv/bin/python"))
SOURCE = ROOT / "launcher/ray"
BOOTSTRAP = """import os,sys
for at, name in (1, 'bundle.py'), (2, 'ray_shim.py'):
  exec(compile(os.fdopen(int(sys.argv[at])).read(), name, 'exec'))"""
GCS_PORT, DASHBOARD_PORT = 6379, 8265
# What docs/how-to/ray.md recommends: a lost node is noticed in 3 s instead of 17 s.
HEALTH = {"RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "1000",
          "RAY_health_check_failure_threshold": "3"}


def machine_without_pdjob(folder):
    """Returns the files of a machine that has Ray, the models, and nothing of pdjob."""
    venv, python = pathlib.Path(PYTHON).parents[1], pathlib.Path(PYTHON).resolve()
    home = python.parents[1]
    whole = home != pathlib.Path("/usr")
    return Root(folder, [venv, CACHE / "models", home if whole else home / "lib" / python.name], [] if whole else [python])


def start_head(host, cpus=2, dashboard=True, env=None):
    """Returns at once; wait_head() waits. All heads of a test start at the same time. Each cluster has a label `zone` with the address of its head."""
    argv = [PYTHON, "-m", "ray.scripts.scripts", "start", "--head", f"--node-ip-address={host.address}", f"--port={GCS_PORT}", f"--num-cpus={cpus}",
            "--disable-usage-stats", "--object-store-memory=80000000", f"--include-dashboard={'true' if dashboard else 'false'}",
            f"--dashboard-host={host.address}", f"--labels=zone={host.address}"]
    return host.popen(*argv, env={**HEALTH, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def start_node(host, head, cpus=2, env=None):
    """As start_head(), for one more node of the head's cluster."""
    argv = [PYTHON, "-m", "ray.scripts.scripts", "start", f"--address={gcs(head)}", f"--node-ip-address={host.address}", f"--num-cpus={cpus}", "--disable-usage-stats",
            "--object-store-memory=80000000", f"--labels=zone={head.address}"]
    return host.popen(*argv, env={**HEALTH, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_head(head, host=None, again=None):
    """`again`: starts it once more on the host. Ray gives itself 30 s to start, which a busy machine may not have."""
    output = head.communicate(timeout=240)[0]
    for _ in range(3):
        if head.returncode == 0 or again is None or "timed out during startup" not in output:
            break
        host.kill_all()
        head = again()
        output = head.communicate(timeout=240)[0]
    assert head.returncode == 0, output


def gcs(host):
    return f"{host.address}:{GCS_PORT}"


def dashboard(host):
    return f"http://{host.address}:{DASHBOARD_PORT}"


class ShimRefused(Exception):
    def __init__(self, line):
        super().__init__(f"{line['kind']}: {line['text']}")
        self.kind = line["kind"]


class Shim:
    """The launcher's end of a shim. `host`: None is this machine."""

    def __init__(self, host, folder, env=None, python=PYTHON):
        self.log = pathlib.Path(folder) / f"shim-{time.monotonic_ns()}.log"
        ours, theirs = socket.socketpair()
        files = [open(SOURCE / name) for name in ("bundle.py", "ray_shim.py", "glide_in.py")]
        passed = [file.fileno() for file in files] + [theirs.fileno()]
        argv = [python, "-c", BOOTSTRAP, *map(str, passed)]
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(host.command(*argv) if host else argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=passed,
                                          env={**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "600", **(env or {})})
        for file in (*files, theirs):
            file.close()
        self.socket, self.lines = ours, ours.makefile("r")
        self.replies, self.events, self.next, self.news = {}, [], 0, threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(OSError):
            for text in self.lines:
                line = json.loads(text)
                with self.news:
                    if "id" in line:
                        self.replies[line["id"]] = line
                    else:
                        self.events.append(line)
                    self.news.notify_all()

    def send(self, op, **fields):
        self.next += 1
        self.socket.sendall(json.dumps({"id": self.next, "op": op, **fields}).encode() + b"\n")
        return self.next

    def ask(self, op, seconds=60, **fields):
        return self.answer(self.send(op, **fields), seconds)

    def answer(self, number, seconds=60):
        with self.news:
            assert self.news.wait_for(lambda: number in self.replies, seconds), f"request {number}: no answer\n{self.tail()}"
            line = self.replies.pop(number)
        if line["type"] == "refused":
            raise ShimRefused(line)
        return line["text"]

    def event(self, kind, seconds=60, **wanted):
        """Waits for an event with these fields, and returns it. Each is returned once."""
        found = []

        def come():
            found[:] = [e for e in self.events if e["type"] == kind and all(e.get(k) == v for k, v in wanted.items())][:1]
            return found

        with self.news:
            assert self.news.wait_for(come, seconds), f"no {kind} {wanted} in {seconds} s: {self.events}\n{self.tail()}"
            self.events.remove(found[0])
            return found[0]

    def tail(self):
        return self.log.read_text(errors="replace")[-3000:]

    def end(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(10)
        self.child.kill()
        self.child.wait()
        self.socket.close()


class Clusters:
    """Independent Ray clusters, one on each host: the first one is the home, without a dashboard; the others are its guests. With `apart`, the last host
    is the head of the home instead: a machine where nothing of pdjob runs."""

    def __init__(self, network, home_env=None, env=None, apart=False):
        self.network, self.hosts = network, list(network)
        self.a, self.b = self.hosts[:2]
        self.head = self.hosts.pop() if apart else self.a
        self.home_env, self.env = {**(env or {}), **(home_env or {})}, env
        starts = {self.head: lambda: start_head(self.head, cpus=0 if apart else 2, dashboard=False, env=self.home_env)}
        starts.update({host: lambda host=host: start_head(host, env=env) for host in self.hosts[1:]})
        for host, head in [(host, start()) for host, start in starts.items()]:
            wait_head(head, host, starts[host])
        if apart:
            def start():
                return start_node(self.a, self.head, env=self.home_env)

            wait_head(start(), self.a, start)
        self.observers = [self._observer(host) for host in self.hosts]

    def _observer(self, host):
        return Observer(host, self.env, head=self.head if host is self.a else host)

    def restart(self, host):
        """The machine of a guest cluster is switched off, and on again."""
        host.kill_all()
        wait_head(start_head(host, env=self.env))
        self.observers[self.hosts.index(host)] = self._observer(host)

    def free_cpus(self):
        return [observer.look()["cpus"] for observer in self.observers]

    def assert_free(self, seconds=30):
        free = [{"cpus": 2.0, "nodes": 2 if host is self.a is not self.head else 1, "groups": {}, "nested": []} for host in self.hosts]
        looks = []

        def all_free():
            looks[:] = [observer.look() for observer in self.observers]
            return looks == free

        try:
            wait_until(all_free, seconds, "everything is free in all clusters")
        except AssertionError as error:
            raise AssertionError(f"{error}: {looks}") from error

    def job_yaml(self, folder, keys="", guest_keys="", **options):
        """Workers run on all clusters, the launcher and the router on the home's host."""
        guests = "".join(f'  {chr(ord("b") + n)}: {{kind: ray, dashboard: "{dashboard(host)}", python: {PYTHON}, {keys}{guest_keys}}}\n'
                         for n, host in enumerate(self.hosts[1:]))
        extra = f'clusters:\n  a: {{kind: ray, address: "{gcs(self.head)}", python: {PYTHON}, listen: "{self.a.address}:0", {keys}}}\n{guests}'
        return job_yaml(folder, extra=extra, **options)


class HostJob:
    """A whole job whose launcher runs on a host."""

    def __init__(self, host, binary, config, folder, env=None):
        self.host, self.binary, self.folder, self.url, self.lines = host, binary, pathlib.Path(folder), None, []
        path = self.folder / "job.yaml"
        path.write_text(config)
        self.log = self.folder / "launcher-stderr.log"
        with open(self.log, "wb") as log:
            self.child = host.popen(binary, "--config", path, env={"CUDA_VISIBLE_DEVICES": "", **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=log, text=True)
        self.ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("ready url="):
                self.url = line.strip().removeprefix("ready url=")
                self.ready.set()
        self.ready.set()

    def wait_ready(self, seconds=120):
        assert self.ready.wait(seconds) and self.url, f"not ready:\n{self.tail()}"
        return self

    def tail(self):
        logs = sorted(self.folder.glob("logs/*.log"))
        texts = [f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]) for log in [self.log, *logs]]
        return "\n".join([*self.lines[-30:], *texts])

    def status(self):
        with self.host.inside():
            return Job.status(self)

    def processes(self):
        return Job.processes(self)

    def worker_keys(self):
        return Job.worker_keys(self)

    def log_has(self, words):
        return (self.folder / "logs/launcher.log").read_text(errors="replace").count(words)

    def metric(self, url, name, **labels):
        with self.host.inside():
            return metric(url, name, **labels)

    def ask(self, body, timeout=60):
        with self.host.inside():
            return httpx.post(self.url + "/v1/completions", json=body, timeout=timeout)

    def stop(self, signal=15, seconds=60):
        self.host.kill(f"{self.binary} --config {self.folder}/", signal)
        return self.child.wait(seconds)


class Observer:
    """A driver of a cluster's own, which says what is free there."""

    SCRIPT = """
import json, sys, ray
ray.init(sys.argv[1], logging_level="error", log_to_driver=False)
for _ in sys.stdin:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    groups = {g["name"]: g["state"] for g in ray.util.placement_group_table().values() if g["state"] != "REMOVED"}
    print("observed " + json.dumps({"cpus": ray.available_resources().get("CPU", 0), "nodes": len(nodes), "groups": groups,
                                    "nested": [node["Labels"]["pdjob-job"] for node in nodes if "pdjob-job" in node["Labels"]]}), flush=True)
"""

    def __init__(self, host, env=None, head=None):
        self.child = host.popen(PYTHON, "-c", self.SCRIPT, gcs(head or host), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def look(self):
        """Returns {cpus: free ones, nodes: alive ones, groups: {name of a placement group: its state}, nested: the job of each nested node}."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        for line in self.child.stdout:
            if line.startswith("observed "):
                return json.loads(line.removeprefix("observed "))
        raise AssertionError("the observer has ended")
