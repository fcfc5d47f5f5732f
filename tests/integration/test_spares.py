"""Spares: warm workers without requests, one of which serves when another worker is lost (`prefill.spares`, `decode.spares`)."""

import os
import signal
import subprocess

import httpx
import pytest

from conftest import BIN, eventually, running_job
from test_foreign_engines import foreign_job
from test_foreign_streams import FAST, GOES_ON, SLOW, killer, settled, stream

# A worker that ends does not come back within the test. Only a spare can serve.
NEVER = "restart: {backoff_min: 10min, backoff_max: 10min}"


def spares(job):
    return sorted(name for name, process in job.processes().items() if process["spare"])


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_stream_goes_on_at_the_spare_and_the_killed_worker_comes_back_as_the_spare(kind, tmp_path):
    with foreign_job(str(tmp_path), kind=kind, decode="1, spares: 1", env=SLOW, restart=FAST) as job:
        (spare,) = spares(job)
        undisturbed = stream(job, GOES_ON["completion"])
        for when in (7, 20):
            at_event, killed = killer(job, when)
            assert stream(job, GOES_ON["completion"], at_event) == undisturbed
            assert killed != [spare], "a spare has no requests"
            eventually(lambda: settled(job) and spares(job) == killed, 30, "the killed worker is the spare")
            (spare,) = killed


def test_without_a_restart_a_spare_serves_and_status_says_so(folder):
    with running_job(folder, prefill_extra="spares: 1", decode_extra="spares: 1", launcher=NEVER) as job:
        ask = {"model": "smollm2", "prompt": "The river", "max_tokens": 8, "temperature": 0}
        first = httpx.post(job.url + "/v1/completions", json=ask, timeout=60)
        served_by = {first.headers["x-pdjob-prefill"], first.headers["x-pdjob-decode"]}
        assert len(spares(job)) == 2
        assert not served_by & set(spares(job))
        status = subprocess.run([BIN, "status", "--config", str(job.config)], capture_output=True, text=True, timeout=30)
        assert status.stdout.count("ready (spare)") == 2, status.stdout + status.stderr
        for name in served_by:
            os.kill(job.processes()[name]["pid"], signal.SIGKILL)
        eventually(lambda: spares(job) == [], 10, "both spares serve")
        again = httpx.post(job.url + "/v1/completions", json=ask, timeout=60)
        assert again.status_code == 200
        assert again.json()["choices"] == first.json()["choices"]
        assert not {again.headers["x-pdjob-prefill"], again.headers["x-pdjob-decode"]} & served_by
