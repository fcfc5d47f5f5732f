"""Two real, independent Ray clusters, each on a host of its own, merged into one."""

import contextlib
import os
import pathlib
import signal
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from hosts import Network, Unsupported, wait_until  # noqa: E402
from ray_hosts import PYTHON, Observer, Shim, ShimError, dashboard, gcs, start_head, wait_head  # noqa: E402

pytestmark = pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason=f"no Ray at {PYTHON}: run ./dev setup")


class Pair:
    """Host `a` has the home cluster, host `b` a guest."""

    def __init__(self, network):
        self.network, (self.a, self.b) = network, network
        heads = [start_head(self.a, dashboard=False), start_head(self.b)]
        for head in heads:
            wait_head(head)
        self.home, self.guest = Observer(self.a), Observer(self.b)

    def assert_free(self, seconds=20):
        free = {"cpus": 2.0, "nodes": 1, "groups": []}
        wait_until(lambda: self.home.look() == free and self.guest.look() == free, seconds, "everything is free in both clusters")


@pytest.fixture(scope="module")
def pair():
    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(Network(2))
        except Unsupported as error:
            pytest.skip(str(error))
        yield Pair(network)


def test_a_guests_node_joins_and_everything_is_given_back_when_the_shim_is_killed(pair):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        shim = Shim(pair.a, folder)
        try:
            assert shim.event(event="hello")["protocol"] == 1
            shim.ask("open", name="a", address=gcs(pair.a), job="j1", lease_s=3, reconnect_s=600)
            home = shim.event(event="node", cluster="a", alive=True)
            order = dict(cluster="b", dashboard=dashboard(pair.b), python=PYTHON, cpus=1, gpus=0, memory=0, token_file="", home_token_file="")
            wait_until(lambda: joined(shim, slot="b-0", **order), 30, "the guest takes jobs")
            guest = shim.event(event="node", cluster="b", slot="b-0", alive=True)
            assert guest["address"] == pair.b.address
            bundles = [{"cluster": cluster, "cpus": 1, "gpus": 0, "memory": 0} for cluster in ("a", "b")]
            assert shim.ask("reserve", name="all", bundles=bundles, timeout_s=20)["nodes"] == [home["node"], guest["node"]]
            assert (pair.home.look()["cpus"], pair.guest.look()["cpus"]) == (1, 1)
            with pytest.raises(ShimError, match="no_room"):
                shim.ask("reserve", name="more", bundles=bundles, timeout_s=0.2)
            agent = dict(program="/bin/sh", arguments=["-c", "read secret; echo has $secret; exec sleep 1000"], log="/tmp/ray/agent.log")
            shim.ask("start_agent", reservation="all", bundle=1, secret="hush-hush\n", **agent)
            wait_until(lambda: pair.b.run("cat", agent["log"]).stdout == "has hush-hush\n", 10, "the agent has its secret")
            for process in pair.a.processes() | pair.b.processes():
                with contextlib.suppress(OSError):
                    seen = pathlib.Path(f"/proc/{process}/cmdline").read_bytes() + pathlib.Path(f"/proc/{process}/environ").read_bytes()
                    assert b"hush-hush" not in seen
            pair.a.kill("ray_shim.py", signal.SIGKILL)
            pair.assert_free()
            assert pair.b.kill("sleep 1000") == 1  # An agent is no child of Ray: it ends by its own lease, which this double has not.
        finally:
            shim.end()


def joined(shim, **order):
    with contextlib.suppress(ShimError):  # A guest that has just started may have nobody yet who runs jobs.
        return shim.ask("join", **order)
