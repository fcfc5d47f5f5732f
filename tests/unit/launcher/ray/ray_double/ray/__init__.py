"""A double of Ray: one node with labels, reservations that always fit, and actors that are plain objects in this process."""

import time

from . import util  # noqa: F401

__version__ = "2.60.0"
_ACTORS = {}


def init(address="", **_):
    if address == "refused:1":
        raise RuntimeError("Version mismatch: The cluster was started with: Ray: 2.9.0")


def shutdown():
    pass


def nodes():
    return [{"NodeID": "n1", "Alive": True, "Labels": {}, "NodeManagerAddress": "10.0.0.1", "DeathReasonMessage": ""}]


class _Call:
    def __init__(self, function):
        self.remote = function


class _Actor:
    def __init__(self, made):
        self._made = made

    def __getattr__(self, name):
        return _Call(getattr(self._made, name))


def remote(cls):
    class Maker:
        @staticmethod
        def options(name="", **_):
            def make(*words):
                _ACTORS[name] = _Actor(cls(*words))
                return _ACTORS[name]

            return _Call(make)

    return Maker


def get_actor(name, namespace):
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
    time.sleep(0)


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
