"""Two real, independent Ray clusters, each on a host of its own, merged into one by a job file. The guest's host has Ray and no pdjob.
tests/peers/test_ray_faults.py breaks them."""

import contextlib
import os
import pathlib
import sys
import tempfile

import httpx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from conftest import BIN  # noqa: E402
from hosts import Network, Unsupported, libraries_of  # noqa: E402
from ray_hosts import PYTHON, Clusters, HostJob, machine_without_pdjob  # noqa: E402

pytestmark = pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason=f"no Ray at {PYTHON}: run ./dev setup")


def programs_of_pdjob(host):
    """Returns the path, as the host sees it, of the program of each process of pdjob."""
    paths = []
    for process in host.processes():
        with contextlib.suppress(OSError):
            paths.append(os.readlink(f"/proc/{process}/exe"))
    return [path for path in paths if os.path.basename(path) == "pdjob"]


def test_one_job_serves_from_two_ray_clusters_and_gives_everything_back(single):
    with contextlib.ExitStack() as stack:
        root = machine_without_pdjob(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-test-")))
        try:
            network = stack.enter_context(Network(2, roots={1: root}))
        except Unsupported as error:
            pytest.skip(str(error))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-test-"))
        guest = network.hosts[1]
        lacking = [path for path in (BIN, *libraries_of(BIN)) if guest.run("sh", "-c", f"test -e {path}").returncode]
        assert {"pdjob", "libzmq.so.5", "libsodium.so.23"} <= {os.path.basename(path) for path in lacking} and len(lacking) > 10
        clusters = Clusters(network)
        zones = {f"{role}_extra": f'labels: {{zone: "{host.address}"}}' for role, host in (("prefill", clusters.b), ("decode", clusters.a))}
        job = HostJob(clusters.a, BIN, clusters.job_yaml(folder, **zones), folder)
        try:
            job.wait_ready()
            ask = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
            expected = httpx.post(single.url + "/v1/completions", json=ask, timeout=60).json()["choices"][0]["text"]
            reply = job.ask(ask)
            assert reply.status_code == 200 and reply.json()["choices"][0]["text"] == expected != "", reply.text
            processes = job.processes()
            urls = {name: processes[name]["url"] for name in ("prefill-0", "decode-0")}
            # Where their labels say.
            assert [url.rsplit(":", 1)[0].removeprefix("http://") for url in urls.values()] == [clusters.b.address, clusters.a.address]
            # One transfer was the probe's.
            assert job.metric(urls["decode-0"], "pdjob_kv_link_transfers_total", transport="tcp", direction="receives") == 2
            assert job.metric(urls["decode-0"], "pdjob_kv_link_bytes_total", transport="tcp", direction="receives") > 10_000
            assert clusters.free_cpus() == [1, 1]
            # The guest got pdjob, once, and the home has it already.
            assert job.log_has("pdjob was not there") == job.log_has("slot b.0: pdjob was not there") == 1
            assert {os.path.dirname(program).rpartition("/")[0] for program in programs_of_pdjob(guest)} == {str(pathlib.Path.home() / ".cache/pdjob/bundles")}
            assert set(programs_of_pdjob(clusters.a)) == {BIN}
            assert job.stop() == 0
            clusters.assert_free()
            for host in clusters.hosts:
                assert not programs_of_pdjob(host)
        except BaseException:
            print(job.tail())
            raise
