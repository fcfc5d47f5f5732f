"""A double of Ray: one node with labels, reservations that always fit, and actors that are plain objects in this process.

A test can change the world by files in $RAY_DOUBLE: `nested` (a node of that job is there), `dies` (the actor of that name has died), `keeps` (an actor
of any name is there, and says so). The double notes in `calls` which actors and tasks were started.
"""

import os
import pathlib

from . import util  # noqa: F401

__version__ = "2.60.0"
_ACTORS = {}
_WORLD = pathlib.Path(os.environ.get("RAY_DOUBLE", "/nonexistent"))


def _said(name):
    try:
        return (_WORLD / name).read_text()
    except OSError:
        return ""


def _note(call):
    if _WORLD.is_dir():
        with open(_WORLD / "calls", "a") as calls:
            calls.write(call + "\n")


def init(address="", **_):
    if address == "refused:1":
        raise RuntimeError("Version mismatch: The cluster was started with: Ray: 2.9.0")


def shutdown():
    pass


def nodes():
    labels = {"n1": {}, **({"n2": {"pdjob-job": _said("nested"), "pdjob-slot": "b.0"}} if _said("nested") else {})}
    return [{"NodeID": node, "Alive": True, "Labels": own, "NodeManagerAddress": "10.0.0.1", "DeathReasonMessage": ""} for node, own in labels.items()]


class _Call:
    def __init__(self, function):
        self.remote = function


class _Actor:
    def __init__(self, name, made):
        self._name, self._made = name, made

    def __getattr__(self, name):
        def call(*words):
            if _said("dies") == self._name and _ACTORS.get(self._name) is self:
                (_WORLD / "dies").unlink()
                kill(self)
            if _ACTORS.get(self._name) is not self:
                raise RuntimeError(f"actor {self._name} has died")
            return getattr(self._made, name)(*words)

        return _Call(call)


def remote(what):
    class Maker:
        @staticmethod
        def options(name="", get_if_exists=False, **_):
            def make(*words):
                if not isinstance(what, type):
                    return _note(f"task {what.__name__}")
                if not get_if_exists or name not in _ACTORS:
                    _note(f"actor {name}")
                    _ACTORS[name] = _Actor(name, what(*words))
                return _ACTORS[name]

            return _Call(make)

    return Maker


class _Kept:
    @staticmethod
    def keeps():
        return True


def get_actor(name, namespace):
    if _said("keeps") and name not in _ACTORS:
        _ACTORS[name] = _Actor(name, _Kept)
    if name not in _ACTORS:
        raise ValueError(name)
    return _ACTORS[name]


def kill(actor):
    for name in [name for name, other in _ACTORS.items() if other is actor]:
        del _ACTORS[name]


def get(value, timeout=None):
    return value


def put(value):
    return value


def wait(things, num_returns, timeout):
    return [], things


def get_runtime_context():
    class Context:
        @staticmethod
        def get_node_id():
            return "n1"

        @staticmethod
        def get_node_labels():
            return {"zone": "west", "ray.io/node-id": "n1"}

        @staticmethod
        def get_accelerator_ids():
            return {}

    return Context
