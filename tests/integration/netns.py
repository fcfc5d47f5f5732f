"""Network namespaces for the tests of several machines: each stands for one, and veth pairs join them to a bridge.

They need the right to make namespaces, which a container may not have: `unavailable()` says why not, or nothing.
"""

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import pathlib
import socket
import struct
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
FAR_LINK = str(pathlib.Path(os.environ.get("PDJOB_BIN", pathlib.Path(__file__).resolve().parents[2] / "build/dev/pdjob")).with_name("far_link"))
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def run(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


@functools.cache
def unavailable():
    """Says why no namespaces can be made here. Empty: they can."""
    name = f"pdj{os.getpid()}x"
    try:
        run("ip", "netns", "add", name)
        try:
            run("ip", "-n", name, "link", "add", "br0", "type", "bridge")
            run("ip", "-n", name, "link", "set", "lo", "up")
        finally:
            run("ip", "netns", "del", name, check=False)
    except FileNotFoundError:
        return "there is no `ip`"
    except subprocess.CalledProcessError as error:
        return f"network namespaces are forbidden here: {error.stderr.strip()}"
    return ""


def v6_unavailable():
    """Says why there is no IPv6 here. Empty: there is."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return f"there is no IPv6 here: {error}"
    return ""


def enter(space):
    if LIBC.setns(space.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Lan:
    """Machines with the addresses 10.77.0.1, .2, ... on one network, which is itself a namespace. With `v6`: fd77::1, fd77::2, ... and no IPv4."""

    def __init__(self, machines, tag="", v6=False):
        self.names = [f"pdj{os.getpid()}{tag}{machine}" for machine in machines]
        self.hosts = {machine: f"fd77::{number}" if v6 else f"10.77.0.{number}" for number, machine in enumerate(machines, 1)}
        self.length = ["/64", "nodad"] if v6 else ["/24"]
        self.spaces = dict(zip(machines, self.names))
        self.switch = f"pdj{os.getpid()}{tag}sw"
        self.ports = {machine: f"p{number}" for number, machine in enumerate(machines, 1)}

    def __enter__(self):
        try:
            run("ip", "netns", "add", self.switch)
            run("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
            run("ip", "-n", self.switch, "link", "set", "br0", "up")
            for machine, space in self.spaces.items():
                port = self.ports[machine]
                run("ip", "netns", "add", space)
                run("ip", "-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
                run("ip", "-n", self.switch, "link", "set", port, "master", "br0")
                run("ip", "-n", self.switch, "link", "set", port, "up")
                run("ip", "-n", space, "addr", "add", self.hosts[machine] + self.length[0], "dev", "eth0", *self.length[1:])
                run("ip", "-n", space, "link", "set", "eth0", "up")
                run("ip", "-n", space, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in [*self.spaces.values(), self.switch]:
            run("ip", "netns", "del", space, check=False)

    @contextlib.contextmanager
    def inside(self, machine):
        """Inside, this thread is on that machine: its sockets, and the processes and threads that it starts."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.spaces[machine]}") as there:
            enter(there)
            try:
                yield
            finally:
                enter(home)

    def cut(self, machine):
        run("ip", "-n", self.switch, "link", "set", self.ports[machine], "down")

    def mend(self, machine):
        run("ip", "-n", self.switch, "link", "set", self.ports[machine], "up")

    def pids(self, machine):
        """Returns the processes that live on this machine, but for this one, which may look in."""
        space = os.stat(f"/run/netns/{self.spaces[machine]}").st_ino
        found = set()
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):  # It has just ended, or is dead and waits for its parent.
                if os.stat(f"/proc/{pid}/ns/net").st_ino == space:
                    found.add(pid)
        return found - {os.getpid()}


class FarLink:
    """A second network between two machines, 10.78.0.1 and 10.78.0.2: a long line, which `far_link` (tests/support/far_link.cc) plays between TUN devices.

    Not every kernel has `tc netem`. The same seed and the same order of packets lose the same packets.
    """

    NEAR, FAR = "10.78.0.1", "10.78.0.2"
    SEED = "20261124"

    def __init__(self, lan, near, far, control=None):
        """`control`: the congestion control of TCP over this line, such as "cubic"."""
        ends = []
        try:
            for address, machine in zip([self.NEAR, self.FAR], [near, far]):
                with lan.inside(machine):
                    ends.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
                    fcntl.ioctl(ends[-1], TUNSETIFF, struct.pack("16sH", b"far0", IFF_TUN | IFF_NO_PI))
                    run("ip", "addr", "add", f"{address}/24", "dev", "far0")
                    run("ip", "link", "set", "far0", "mtu", "1500", "txqueuelen", "10000", "up")
                    if control:
                        run("ip", "route", "replace", "10.78.0.0/24", "dev", "far0", "src", address, "congctl", control)
            argv = [FAR_LINK, *map(str, ends), self.SEED]
            self.child = subprocess.Popen(argv, pass_fds=ends, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        finally:
            for end in ends:
                os.close(end)

    def set(self, delay=0.0, loss=0.0, rate=0.0, queue=0.0):
        """Seconds each way, a share of the packets, bytes a second (0: no limit), seconds of the line's time that may queue.

        Returns how many packets and bytes have gone since the last call, and how many packets were lost and overflowed.
        """
        self.child.stdin.write(f"{round(1e6 * delay)} {round(1e6 * loss)} {rate} {rate * queue}\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.wait(10)
        self.child.stdout.close()
