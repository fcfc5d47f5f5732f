"""Real Ray clusters on test hosts, and the launcher's end of the Ray shim."""

import contextlib
import json
import os
import pathlib
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("PDJOB_CACHE", pathlib.Path.home() / ".cache/pdjob"))
PYTHON = os.environ.get("PDJOB_RAY_PYTHON", str(CACHE / "ray-venv/bin/python"))
SOURCE = ROOT / "launcher/ray"
BOOTSTRAP = "import os,sys; exec(compile(os.fdopen(int(sys.argv[1])).read(), 'ray_shim.py', 'exec'))"
GCS_PORT, DASHBOARD_PORT = 6379, 8265
# What docs/how-to/ray.md recommends: a lost node is noticed in 3 s instead of 17 s.
HEALTH = {"RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "1000",
          "RAY_health_check_failure_threshold": "3"}


def start_head(host, cpus=2, dashboard=True, env=None):
    """Returns at once; wait_head() waits. Both heads of a test start at the same time."""
    argv = [PYTHON, "-m", "ray.scripts.scripts", "start", "--head", f"--node-ip-address={host.address}", f"--port={GCS_PORT}", f"--num-cpus={cpus}",
            "--disable-usage-stats", "--object-store-memory=80000000", f"--include-dashboard={'true' if dashboard else 'false'}",
            f"--dashboard-host={host.address}"]
    return host.popen(*argv, env={**HEALTH, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_head(head):
    output = head.communicate(timeout=120)[0]
    assert head.returncode == 0, output


def gcs(host):
    return f"{host.address}:{GCS_PORT}"


def dashboard(host):
    return f"http://{host.address}:{DASHBOARD_PORT}"


class ShimError(Exception):
    def __init__(self, error):
        super().__init__(f"{error['kind']}: {error['message']}")
        self.kind = error["kind"]


class Shim:
    def __init__(self, host, folder, env=None, python=PYTHON):
        self.log = pathlib.Path(folder) / f"shim-{time.monotonic_ns()}.log"
        files = [open(SOURCE / name) for name in ("ray_shim.py", "glide_in.py")]
        numbers = [str(file.fileno()) for file in files]
        with open(self.log, "wb") as log:
            self.child = host.popen(python, "-c", BOOTSTRAP, *numbers, env={"RAY_gcs_rpc_server_reconnect_timeout_s": "600", **(env or {})},
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, pass_fds=[file.fileno() for file in files], text=True, bufsize=1)
        for file in files:
            file.close()
        self.replies, self.events, self.next, self.news = {}, [], 0, threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for text in self.child.stdout:
            line = json.loads(text)
            with self.news:
                if "id" in line:
                    self.replies[line["id"]] = line
                else:
                    self.events.append(line)
                self.news.notify_all()

    def send(self, op, **fields):
        self.next += 1
        self.child.stdin.write(json.dumps({"id": self.next, "op": op, **fields}) + "\n")
        return self.next

    def ask(self, op, seconds=60, **fields):
        return self.answer(self.send(op, **fields), seconds)

    def answer(self, number, seconds=60):
        with self.news:
            assert self.news.wait_for(lambda: number in self.replies, seconds), f"request {number}: no answer\n{self.tail()}"
            line = self.replies.pop(number)
        if "error" in line:
            raise ShimError(line["error"])
        return line["result"]

    def event(self, seconds=60, **wanted):
        """Waits for an event with these fields, and returns it. Each is returned once."""
        found = []

        def come():
            found[:] = [e for e in self.events if all(e.get(k) == v for k, v in wanted.items())][:1]
            return found

        with self.news:
            assert self.news.wait_for(come, seconds), f"no event {wanted} in {seconds} s: {self.events}\n{self.tail()}"
            self.events.remove(found[0])
            return found[0]

    def tail(self):
        return self.log.read_text(errors="replace")[-3000:]

    def end(self):
        with contextlib.suppress(OSError):
            self.child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(10)
        self.child.kill()
        self.child.wait()


class Observer:
    """A driver of a cluster's own, which says what is free there."""

    SCRIPT = """
import json, sys, ray
ray.init(sys.argv[1], logging_level="error", log_to_driver=False)
for _ in sys.stdin:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    groups = [g["name"] for g in ray.util.placement_group_table().values() if g["state"] != "REMOVED"]
    print("observed " + json.dumps({"cpus": ray.available_resources().get("CPU", 0), "nodes": len(nodes), "groups": groups}), flush=True)
"""

    def __init__(self, host, env=None):
        self.child = host.popen(PYTHON, "-c", self.SCRIPT, gcs(host), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def look(self):
        """Returns {cpus: free ones, nodes: alive ones, groups: names of placement groups}."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        for line in self.child.stdout:
            if line.startswith("observed "):
                return json.loads(line.removeprefix("observed "))
        raise AssertionError("the observer has ended")
