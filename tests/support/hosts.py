"""Hosts for tests of several machines: each has its own network, processes, /dev/shm and /tmp/ray, and they meet at a switch.

A host's processes all end with the host, also those that became daemons. Nothing listens outside these namespaces.
"""

import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess
import time

PREPARE = "mount -t tmpfs shm /dev/shm && mkdir -p /tmp/ray && mount -t tmpfs ray /tmp/ray && ip link set lo up && echo ready && exec sleep infinity"


# The host's files are those of `root` from then on: nothing else of this machine is left to it, besides the folders of SHARED.
PIVOT = """cd "$ROOT" && mount --bind . . && cd "$ROOT" && mkdir -p proc sys dev tmp root old && mount -t proc proc proc && mount --rbind /sys sys &&
mount --rbind /dev dev && for folder in $SHARED; do mkdir -p "./$folder" && mount --bind -o ro "$folder" "./$folder" || exit; done && pivot_root . old && cd / && umount -l old && """


class Unsupported(Exception):
    """This machine forbids namespaces."""


def _namespaces(*kinds, script, env=None):
    child = subprocess.Popen(["unshare", *kinds, "sh", "-c", script], env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if child.stdout.readline() != "ready\n":
        child.kill()
        raise Unsupported(f"no namespaces here: {child.communicate()[1].strip()}")
    return child


def _enter(namespace):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace.fileno(), 0x40000000) != 0:  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def libraries_of(*files):
    """Returns the paths of the shared libraries, and of the loader, that these files need."""
    ran = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True)
    return {word for line in ran.stdout.splitlines() if line.startswith("\t") for word in line.split() if word.startswith("/")}


class Root:
    """Another machine's files: a few tools, the libraries that they and the code in shared folders need, and nothing else. `shared`: folders that it has
    as this one does."""

    TOOLS = ("sh", "bash", "cat", "grep", "ip", "mkdir", "mount", "setsid", "sleep", "umount")

    def __init__(self, folder, shared, tools=()):
        self.folder, self.shared = pathlib.Path(folder), [pathlib.Path(path) for path in shared]
        tools = [*map(shutil.which, self.TOOLS), *map(str, tools)]
        code = [path for path in self._code() if path.stat().st_size and path.read_bytes()[:4] == b"\x7fELF"]
        missing = libraries_of(*tools, *code)
        for path in map(pathlib.Path, [*tools, *missing]):
            if not any(path.is_relative_to(folder) for folder in self.shared):
                there = self.folder / path.relative_to("/")
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, there)
        (self.folder / "bin").symlink_to("usr/bin")
        (self.folder / "etc").mkdir()
        (self.folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")

    def _code(self):
        for folder in self.shared:
            yield from (path for path in folder.rglob("*.so*") if path.is_file())
            yield from (path for path in folder.glob("bin/*") if path.is_file())
            yield from (path for name in ("raylet", "gcs_server") for path in folder.rglob(name) if path.is_file())


class Host:
    def __init__(self, index, root=None):
        self.address = f"10.77.0.{index + 1}"
        self.port = f"port{index}"  # Of the switch.
        script, env = PREPARE, {}
        if root is not None:
            script, env = PIVOT + PREPARE, {"ROOT": str(root.folder), "SHARED": " ".join(map(str, root.shared))}
        self._unshare = _namespaces("--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", script=script, env=env)
        children = pathlib.Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
        self.pid = int(children[0])

    def command(self, *argv):
        return ["nsenter", f"--target={self.pid}", "--net", "--pid", "--mount", "--", *map(str, argv)]

    def run(self, *argv, env=None, timeout=60):
        return subprocess.run(self.command(*argv), env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=timeout)

    def popen(self, *argv, env=None, **options):
        return subprocess.Popen(self.command(*argv), env={**os.environ, **(env or {})}, **options)

    @contextlib.contextmanager
    def inside(self):
        """Inside, this thread is on the host's network."""
        with open("/proc/thread-self/ns/net") as home, open(f"/proc/{self.pid}/ns/net") as there:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)

    def processes(self):
        """Returns {pid as this machine counts: command line} of what runs on the host."""
        found = {}
        own = os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.stat(entry / "ns/pid").st_ino == own:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def kill(self, words, signal=9):
        """Sends a signal to each process whose command line has `words`. Returns how many there were."""
        victims = [pid for pid, line in self.processes().items() if words in line]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal)
        return len(victims)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        self._unshare.kill()
        self._unshare.wait()
        self._unshare.stdout.close()
        self._unshare.stderr.close()


class Network:
    """`with Network(2) as (a, b)`: hosts that reach each other. `roots`: {number of a host: its Root}."""

    def __init__(self, count, roots=None):
        self.count, self.roots = count, roots or {}

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            try:
                self.switch = _namespaces("--net", script="ip link add switch type bridge && ip link set switch up && echo ready && exec sleep infinity")
                stack.callback(self._end_switch)
                self.hosts = []
                for index in range(self.count):
                    host = Host(index, self.roots.get(index))
                    stack.callback(host.end)
                    self._plug(host)
                    self.hosts.append(host)
            except (OSError, subprocess.CalledProcessError) as error:
                raise Unsupported(f"no namespaces here: {error}") from error
            self._stack = stack.pop_all()
        return self

    def __iter__(self):
        return iter(self.hosts)

    def __exit__(self, *_):
        self._stack.close()

    def _end_switch(self):
        self.switch.kill()
        self.switch.wait()
        self.switch.stdout.close()
        self.switch.stderr.close()

    def _at_switch(self, *argv):
        subprocess.run(["nsenter", f"--target={self.switch.pid}", "--net", "--", *argv], check=True, capture_output=True, text=True)

    def _plug(self, host):
        # The two ends have names of their own for the moment that they are on this machine's network.
        near, far = f"pdj{host.pid}h", f"pdj{host.pid}s"
        _ip("link", "add", near, "type", "veth", "peer", "name", far)
        _ip("link", "set", near, "netns", str(host.pid), "name", "eth0")
        _ip("link", "set", far, "netns", str(self.switch.pid), "name", host.port)
        self._at_switch("ip", "link", "set", host.port, "master", "switch", "up")
        host.run("sh", "-c", f"ip addr add {host.address}/24 dev eth0 && ip link set eth0 up").check_returncode()

    def cut(self, host):
        """The host loses its cable: it still has its address, and nobody answers."""
        self._at_switch("ip", "link", "set", host.port, "down")

    def mend(self, host):
        self._at_switch("ip", "link", "set", host.port, "up")

    def shape(self, host, *netem):
        """For example shape(host, "delay", "5ms", "loss", "1%"): of what the host receives."""
        self._at_switch("tc", "qdisc", "replace", "dev", host.port, "root", "netem", *netem)


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.1)
    return found
