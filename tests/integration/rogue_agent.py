"""An agent that lies: it has the key of one cluster, and speaks the protocol of agents (docs/reference/wire-format.md) by itself."""

import functools
import hashlib
import struct
import subprocess
import time

import zmq
import zmq.utils.z85

from conftest import BIN

VERSION = 9
HELLO, NODE_READY, WELCOME, SIGNAL, BEAT, EXITED = 1, 2, 5, 11, 13, 18


def _blake2b(purpose, *parts, key=b""):
    digest = hashlib.blake2b(digest_size=32, key=key, person=purpose.ljust(16, b"\0"))
    for part in parts:
        digest.update(part)
    return digest.digest()


def _curve_keys(cluster_key, name):
    root = _blake2b(b"pdjob root text", cluster_key.encode())
    secret = _blake2b(b"pdjob job key 1", struct.pack("<Q", len("agents")), b"agents", name.encode(), key=root)
    secret = zmq.utils.z85.encode(secret)
    return zmq.curve_public(secret), secret


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


@functools.cache
def build():
    return subprocess.run([BIN, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def hello(name, instance):
    return text(name) + struct.pack("<QQQ", instance, 0, 0) + text(build()) + struct.pack("<I", 4) + text("") + struct.pack("<Q", 1 << 33) + text("") + struct.pack("<IIIIIQ", 0, 0, 0, 0, 0, 0)


def ready(host="127.0.0.1", running=(), doors=()):
    facts = text(host) + struct.pack("<I", len(running)) + b"".join(struct.pack("<Qq", one, 1) for one in running)
    return facts + struct.pack("<I", len(doors)) + b"".join(text(name) + struct.pack("<H", port) for name, port in doors)


def exited(incarnation, how="signal 11", crashed=True):
    return struct.pack("<Q", incarnation) + text(how) + struct.pack("<B", crashed)


class Rogue:
    """A connection with the cluster's key. Each node that it pretends to be has a session on it."""

    def __init__(self, address, cluster_key):
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.curve_serverkey = _curve_keys(cluster_key, "launcher")[0]
        self.socket.curve_publickey, self.socket.curve_secretkey = _curve_keys(cluster_key, "agent")
        self.socket.linger = 0
        self.socket.connect(f"tcp://{address}")
        self.numbers = {}  # Sent, by session.
        self.signals = []  # (incarnation, signal) that it was ordered to send.

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, kind, fields=b"", session=0):
        number = self.numbers[session] = self.numbers.get(session, 0) + 1 if session else 0
        self.socket.send(b"pdjg" + struct.pack("<HHQQ", VERSION, kind, session, number) + fields)

    def receive(self, timeout=10.0):
        """Returns the kind and the session of the next message, or None."""
        if not self.socket.poll(timeout * 1000):
            return None
        message = self.socket.recv()
        _, kind, session, _ = struct.unpack("<HHQQ", message[4:24])
        if kind == SIGNAL:
            self.signals.append(struct.unpack("<QB", message[24:]))
        return kind, session

    def join(self, name, instance=1, **facts):
        """Joins as a new node, and says what runs there. Returns its session."""
        self.send(HELLO, hello(name, instance))
        while (answer := self.receive()) and answer[0] != WELCOME:
            pass
        assert answer, "no launcher welcomes it"
        self.send(NODE_READY, ready(**facts), answer[1])
        return answer[1]

    def beat(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for session in self.numbers:
                if session:
                    self.send(BEAT, session=session)
            self.receive(0.3)
