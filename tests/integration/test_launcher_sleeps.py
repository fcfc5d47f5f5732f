"""A launcher that stood still goes on with everything: what lived is left alone, and what died meanwhile is replaced alone."""

import os
import signal
import time

import pytest

from conftest import eventually
from test_failover import launchers


@pytest.mark.parametrize("killed", [(), ("decode-0",), ("prefill-0", "decode-0")])
def test_a_launcher_that_stood_still_for_longer_than_its_connections_live_ends_nothing(killed):
    with launchers() as made:
        job = made.start()
        before = {name: process["pid"] for name, process in job.processes().items()}
        os.kill(job.child.pid, signal.SIGSTOP)
        time.sleep(14)  # ZeroMQ ends connections after 10 s without a sign.
        for name in killed:
            os.kill(before[name], signal.SIGKILL)
        os.kill(job.child.pid, signal.SIGCONT)

        def healed():
            now = job.processes()
            return all(process["state"] == "ready" for process in now.values()) and all((now[name]["pid"] != before[name]) == (name in killed) for name in before)

        eventually(healed, 60, "only what died is replaced")
        time.sleep(3)
        now = job.processes()
        assert {name for name in before if now[name]["pid"] != before[name]} == set(killed)
        assert all(now[name]["restarts"] == (name in killed) for name in before)
        assert "ending everything" not in next(job.folder.glob("logs/agent.log")).read_text()
