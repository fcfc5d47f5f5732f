"""Two launchers on one merged pair of Ray clusters. Each job needs all of both clusters. Whenever one job ends, two others compete for its place."""

import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

import pytest

for folder in ("support", "integration"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / folder))
from conftest import BIN  # noqa: E402
from hosts import Network, Unsupported, wait_until  # noqa: E402
from ray_hosts import PYTHON, Clusters, HostJob, dashboard, gcs  # noqa: E402

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason=f"no Ray at {PYTHON}: run ./dev setup")]

ROUNDS = int(os.environ.get("PDJOB_GANG_ROUNDS", 50))
GATHERS = 180  # Seconds that a job may hold a part of its nodes while it waits for the others: twice gather_timeout of ray_session.h.


def config(made, folder):
    """The fake engine answers at once. Everything else is real."""
    extra = [f'{name}: {{kind: ray, {where}, python: {PYTHON}, cpus: 2, wait: 15min}}'
             for name, where in (("a", f'address: "{gcs(made.head)}", listen: "{made.a.address}:0"'), ("b", f'dashboard: "{dashboard(made.b)}"'))]
    return f"""\
name: {pathlib.Path(folder).name.replace("_", "-")[-40:]}
served_name: tiny
engine: {{kind: fake, sequences: 4}}
prefill: {{workers: 1, cluster: a}}
decode: {{workers: 1, cluster: b}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
clusters: {{{", ".join(extra)}}}
"""


class Holders(threading.Thread):
    """Looks all the time which jobs hold something of the clusters. A job is complete with its node of the guest and its placement group."""

    def __init__(self, observer):
        super().__init__(daemon=True)
        self.observer, self.going, self.looks = observer, True, 0
        self.since, self.longest = {}, 0.0  # How long a job held only a part.
        self.complete, self.both = set(), 0

    def run(self):
        while self.going:
            look, now = self.observer.look(), time.monotonic()
            groups = [name.split("/")[1] for name, state in look["groups"].items() if state == "CREATED"]
            holders = {*groups, *look["nested"]}
            complete = {job for job in holders if job in groups and job in look["nested"]}
            self.both += len(complete) > 1
            # A job that was complete is about to end when it holds only a part.
            self.since = {job: self.since.get(job, now) for job in holders - complete - self.complete}
            self.longest = max([self.longest, *(now - since for since in self.since.values())])
            self.complete |= complete
            self.looks += 1
            time.sleep(0.05)


def test_two_jobs_that_cannot_both_fit_take_turns():
    try:
        network = Network(2).__enter__()
    except Unsupported as error:
        pytest.skip(str(error))
    try:
        made = Clusters(network)
        holders = Holders(made.observers[0])
        times = take_turns(made, holders)
        holders.going = False
        holders.join(10)
        print(f"\n{len(times)} rounds: one job always started after the other's end, after {statistics.median(times):.1f} s "
              f"({min(times):.1f} to {max(times):.1f}). A job held a part for at most {holders.longest:.1f} s ({holders.looks} looks)")
        assert holders.both == 0 and holders.longest < GATHERS
        made.assert_free(60)
    finally:
        network.__exit__()


def take_turns(made, holders):
    """Returns how long each round took, from the end of the one that ran until the next one is ready."""
    times, jobs = [], []
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as root:

        def start():
            folder = pathlib.Path(root) / f"{len(times)}-{time.monotonic_ns()}"
            folder.mkdir()
            jobs.append(HostJob(made.a, BIN, config(made, folder), folder))

        def the_ready_one():
            ready = [job for job in jobs if job.url]
            assert len(ready) < 2, "both run"
            assert all(job.child.poll() is None for job in jobs), "\n".join(job.tail() for job in jobs)
            return ready[0] if ready else None

        try:
            start()
            wait_until(the_ready_one, 180, "the first job starts")
            holders.start()
            start()
            for _ in range(ROUNDS):
                before = the_ready_one()
                jobs.remove(before)
                begin = time.monotonic()
                # The next one comes while the one that ran leaves.
                leaving = threading.Thread(target=before.stop)
                leaving.start()
                start()
                wait_until(the_ready_one, 300, f"round {len(times)}: one of the two starts")
                times.append(time.monotonic() - begin)
                leaving.join()
                print(f"{times[-1]:.1f}", end=" ", flush=True)
            return times
        except BaseException:
            print("\n".join(job.tail() for job in jobs))
            raise
        finally:
            for job in jobs:
                if job.child.poll() is None:
                    job.stop()
