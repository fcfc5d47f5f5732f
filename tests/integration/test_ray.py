"""Two real, independent Ray clusters, each on a host of its own, merged into one by a job file. tests/peers/test_ray_faults.py breaks them."""

import contextlib
import os
import pathlib
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from conftest import BIN  # noqa: E402
from hosts import Network, Unsupported  # noqa: E402
from ray_hosts import PYTHON, Clusters, HostJob  # noqa: E402

pytestmark = pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason=f"no Ray at {PYTHON}: run ./dev setup")


def test_one_job_serves_from_two_ray_clusters_and_gives_everything_back():
    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(Network(2))
        except Unsupported as error:
            pytest.skip(str(error))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-test-"))
        clusters = Clusters(network)
        job = HostJob(clusters.a, BIN, clusters.job_yaml(folder), folder)
        try:
            job.wait_ready()
            ask = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
            reply = job.ask(ask)
            assert reply.status_code == 200 and reply.json()["choices"][0]["text"].startswith(" Paris"), reply.text
            processes = job.processes()
            urls = {name: processes[name]["url"] for name in ("prefill-0", "decode-0")}
            assert {url.rsplit(":", 1)[0].removeprefix("http://") for url in urls.values()} == {clusters.a.address, clusters.b.address}
            # One transfer was the probe's.
            assert job.metric(urls["decode-0"], "pdjob_kv_link_transfers_total", transport="tcp", direction="receives") == 2
            assert job.metric(urls["decode-0"], "pdjob_kv_link_bytes_total", transport="tcp", direction="receives") > 100_000
            assert clusters.free_cpus() == [1, 1]
            assert job.stop() == 0
            clusters.assert_free()
            for host in clusters.hosts:
                assert not [line for line in host.processes().values() if line.startswith(BIN)]
        except BaseException:
            print(job.tail())
            raise
