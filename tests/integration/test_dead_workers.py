"""A stand-alone router with one dead worker: no request fails, and the dead worker is rarely asked. The engines are fake: they answer at once."""

import concurrent.futures
import os
import signal
import tempfile
import time

import httpx
import pytest

from conftest import Process, eventually, fake_worker, get, metric

REQUESTS = 1000
BODY = {"prompt": "the quick brown fox", "max_tokens": 2}
# The router retries a suspect after 0.1 s, then 0.2 s, up to every 5 s: this often in a minute. Requests under way may also hit it, until
# the first failure is known.
PROBES = 20
CLIENTS = 16


@pytest.mark.parametrize("victim", ["prefill-1", "decode-1"])
def test_one_of_two_workers_is_dead_and_no_request_fails(victim):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        names = ["prefill-0", "prefill-1", "decode-0", "decode-1"]
        processes = {name: fake_worker(name[:-2], folder, name) for name in names}
        flags = [part for name in names for part in (f"--{name[:-2]}", processes[name].wait_ready().url)]
        router = Process(["pdjob", "router", "--listen", "127.0.0.1:0", *flags], folder).wait_ready()
        try:
            eventually(lambda: get(router.url + "/pdjob/workers").count('"healthy"') == 4, 20, "all workers known")
            with httpx.Client(base_url=router.url, timeout=60, limits=httpx.Limits(max_connections=CLIENTS)) as client:

                def ask(_):
                    return client.post("/v1/completions", json=BODY).status_code

                with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                    assert set(pool.map(ask, range(100))) == {200}
                    asked = metric(router.url, "pdjob_router_picks_total", worker=victim)
                    assert asked > 0, "it had work before it died"
                    os.kill(processes[victim].pid, signal.SIGKILL)
                    started = time.monotonic()
                    assert list(pool.map(ask, range(REQUESTS))) == [200] * REQUESTS
            minutes = 1 + (time.monotonic() - started) // 60
            probes = metric(router.url, "pdjob_router_picks_total", worker=victim) - asked
            assert probes <= PROBES * minutes + CLIENTS, f"the dead worker was tried {probes} times"
        finally:
            for process in [router, *processes.values()]:
                process.stop(signal.SIGKILL if process is processes[victim] else signal.SIGTERM)
