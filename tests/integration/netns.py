"""Network namespaces for the tests of several machines: each stands for one, and veth pairs join them to a bridge.

They need the right to make namespaces, which a container may not have: `unavailable()` says why not, or nothing.
"""

import collections
import contextlib
import ctypes
import fcntl
import functools
import os
import random
import select
import struct
import subprocess
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
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


def enter(space):
    if LIBC.setns(space.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Lan:
    """Machines with the addresses 10.77.0.1, .2, ... on one network, which is itself a namespace."""

    def __init__(self, machines, tag=""):
        self.names = [f"pdj{os.getpid()}{tag}{machine}" for machine in machines]
        self.hosts = {machine: f"10.77.0.{number}" for number, machine in enumerate(machines, 1)}
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
                run("ip", "-n", space, "addr", "add", f"{self.hosts[machine]}/24", "dev", "eth0")
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


class FarLink(threading.Thread):
    """A second network between two machines, 10.78.0.1 and 10.78.0.2, on which each packet takes `delay` seconds or is lost.

    It is made of TUN devices, because not every kernel has `tc netem`.
    """

    def __init__(self, lan, near, far):
        super().__init__(daemon=True)
        self.delay, self.loss = 0.0, 0.0
        self.lost = 0
        self.random = random.Random(20261124)
        self.ends = []
        for number, machine in enumerate([near, far], 1):
            with lan.inside(machine):
                end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", b"far0", IFF_TUN | IFF_NO_PI))
                run("ip", "addr", "add", f"10.78.0.{number}/24", "dev", "far0")
                run("ip", "link", "set", "far0", "mtu", "9000", "up")
            self.ends.append(end)
        self.start()

    def run(self):
        other = dict(zip(self.ends, reversed(self.ends)))
        waiting = collections.deque()  # In order of their times, unless the delay shrinks.
        while self.ends:
            due = max(0, waiting[0][0] - time.monotonic()) if waiting else 0.2
            for end in select.select(self.ends, [], [], due)[0]:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        packet = os.read(end, 65536)
                        if self.random.random() < self.loss:
                            self.lost += 1
                        else:
                            waiting.append((time.monotonic() + self.delay, other[end], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, end, packet = waiting.popleft()
                with contextlib.suppress(OSError):
                    os.write(end, packet)

    def close(self):
        ends, self.ends = self.ends, []
        self.join()
        for end in ends:
            os.close(end)
