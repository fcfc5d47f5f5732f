"""The job under fire: its processes by name, signals that reach only them, and what clients its routers had when they were hurt."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

MARK = "PDJOB_CHAOS"


def yaml(folder, model, engine):
    return f"""\
name: chaos
model: {model}
served_name: smollm2
engine: {{{engine}}}
prefill: {{workers: 2}}
decode: {{workers: 2}}
router: {{listen: "127.0.0.1:0", replicas: 2}}
launcher: {{orphan_timeout: 10min, state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


class Target:
    """One process. A signal never reaches another one that got its number later."""

    def __init__(self, name, role, pid):
        self.name, self.role, self.pid = name, role, pid
        self._fd = os.pidfd_open(pid)

    def close(self):
        os.close(self._fd)

    def alive(self):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, 0)
            return self.state() not in ("Z", "X", "")
        return False

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def state(self):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return ""

    def stop(self):
        """Returns once it stands still."""
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while self.state() not in ("T", "Z", "X", "") and time.monotonic() < deadline:
            time.sleep(0.0005)


class Job:
    def __init__(self, binary, model, engine, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.config = self.folder / "job.yaml"
        self.config.write_text(yaml(folder, model, engine))
        self.child, self.url = None, ""
        self._known = {}

    # --- the launcher

    def start_launcher(self):
        """Starts a launcher, and does not wait for it."""
        if self.child and self.child.poll() is None:
            return
        with open(self.folder / "launcher.log", "ab") as log:
            self.child = subprocess.Popen(
                [self.binary, "--config", str(self.config)],
                stdout=log, stderr=log, env={**os.environ, MARK: str(self.folder), "CUDA_VISIBLE_DEVICES": ""}, start_new_session=True,
            )  # fmt: skip

    def log(self):
        path = self.folder / "launcher.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_ready(self, seconds=300):
        deadline = time.monotonic() + seconds
        while not self.url:
            assert self.child.poll() is None and time.monotonic() < deadline, f"the job does not start:\n{self.log()[-4000:]}"
            for line in self.log().splitlines():
                if "ready url=" in line:
                    self.url = line.split("ready url=")[1].strip()
            time.sleep(0.05)
        self.wait_well(seconds)

    # --- what runs

    def processes(self):
        """Returns the launcher's view, or nothing if it does not answer."""
        with contextlib.suppress(OSError, ValueError, StopIteration, KeyError):
            address = json.loads(next(self.folder.glob("state/*/launcher.json")).read_text())["admin"]
            with urllib.request.urlopen(f"http://{address}/status", timeout=2) as reply:
                found = {process["name"]: process for process in json.loads(reply.read())["processes"]}
            self._known = {**self._known, **{name: process for name, process in found.items() if process["pid"]}}
            return found
        return {}

    def well(self):
        """Everything is there and ready, and the launcher says so."""
        found = self.processes()
        return self.child.poll() is None and len(found) == 6 and all(process["state"] == "ready" for process in found.values())

    def wait_well(self, seconds=120, more=lambda: True):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.well() and more():
                return True
            if self.child.poll() is not None:
                return False
            time.sleep(0.05)
        return False

    def pids(self):
        found = {name: process["pid"] for name, process in self._known.items()}
        return {**found, **self._agent(), "launcher": self.child.pid}

    def _agent(self):
        return {"agent": int(path.read_text() or 0) for path in self.folder.glob("state/*/agent.lock")}

    def targets(self, role):
        """Returns the role's living processes, as far as is known. The caller closes them."""
        if role == "launcher":
            found = {"launcher": self.child.pid}
        elif role == "agent":
            found = self._agent()
        else:
            found = {name: process["pid"] for name, process in sorted(self._known.items()) if process["role"] == role}
        targets = []
        for name, pid in found.items():
            with contextlib.suppress(OSError):
                targets.append(Target(name, role, pid))
        alive = [target for target in targets if target.alive()]
        [target.close() for target in targets if target not in alive]
        return alive

    # --- whose router lived

    def clients_of(self, target):
        """Returns the client's port of each connection of a router that stands still, with the time. A connection that it had not accepted belongs to
        the next router."""
        inodes = set()
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{target.pid}/fd"):
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(f"/proc/{target.pid}/fd/{fd}").removeprefix("socket:[").removesuffix("]"))
        door, now = int(self.url.rsplit(":", 1)[1]), time.monotonic()
        lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return {int(line[2].split(":")[1], 16): now for line in lines if int(line[1].split(":")[1], 16) == door and line[9] in inodes}

    # --- the end

    def left(self):
        """Returns the pids of all processes of this job, launchers among them."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{MARK}={self.folder}\0".encode() in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found

    def stop(self):
        """Ends the job as a user would. Returns what is left of it."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if self.child and self.child.poll() is None:
            self.child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(60)
        left = self.left()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.child:
            self.child.wait()
        return left
