"""How long does a job take to start on three Ray clusters that are merged into one, part by part, and how much of that is Ray's own time?

Three hosts are network namespaces, each with a Ray cluster of its own. The two guests lack pdjob at first. Two other starts stand beside it, in turn:
Ray alone, where a short script takes the same nodes by the same calls of Ray and starts an idle actor on each; and the same job on one machine, without
any cluster.

    ./dev bench ray_start [--rounds N]
"""

import argparse
import contextlib
import datetime
import json
import pathlib
import re
import statistics
import sys
import tempfile
import time

for folder in ("support", "integration"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / folder))
from conftest import BIN, Job, job_yaml  # noqa: E402
from hosts import Network, wait_until  # noqa: E402
from ray_hosts import PYTHON, Clusters, HostJob, dashboard, gcs, machine_without_pdjob  # noqa: E402

# (part, what the launcher's line has that ends it)
PARTS = (
    ("the shim starts and connects", "Ray: the home cluster answers"),
    ("guests join", "Ray: a node of cluster"),
    ("all are reserved", "Ray: all required nodes are reserved"),
    ("agents start and join", r"node \S+ joined: "),
    ("processes, models and engines", "Registered"),
    ("probes", "ReportReady"),
)
ALONE = """
import json, shlex, sys, time, urllib.request
begin = time.time()
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
home, guests, python = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
ray.init(home, logging_level="error", log_to_driver=False)
said = lambda what: print(json.dumps([what, time.time() - begin]), flush=True)
said("the shim starts and connects")
for dashboard, address in guests.items():
    argv = [python, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", "--address=" + home, "--node-ip-address=" + address, "--num-cpus=0",
            '--resources={"nested": 1}', "--object-store-memory=80000000", "--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=52400"]
    become = f"import os; os.execve({python!r}, {argv!r}, {{k: v for k, v in os.environ.items() if not k.startswith('RAY_')}})"
    body = json.dumps({"entrypoint": f"exec {python} -c {shlex.quote(become)}", "submission_id": sys.argv[4], "entrypoint_num_cpus": 2}).encode()
    request = urllib.request.Request(dashboard + "/api/jobs/", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).read()
while ray.cluster_resources().get("nested", 0) < len(guests):
    time.sleep(0.1)
said("guests join")
group = ray.util.placement_group([{"CPU": 2}] + [{"nested": 1}] * len(guests), strategy="STRICT_SPREAD")
assert group.wait(30)
said("all are reserved")

@ray.remote(num_cpus=0)
class Idle:
    def ready(self):
        return True

actors = [Idle.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, at)).remote() for at in range(1 + len(guests))]
ray.get([actor.ready.remote() for actor in actors])
said("agents start and join")
for dashboard in guests:
    urllib.request.urlopen(urllib.request.Request(dashboard + f"/api/jobs/{sys.argv[4]}/stop", b"", method="POST"), timeout=10).read()
"""


def seconds_of(line):
    stamp = datetime.datetime.strptime(line.split()[0], "%Y-%m-%dT%H:%M:%S.%fZ")
    return stamp.replace(tzinfo=datetime.timezone.utc).timestamp()


def parts_of(log, begin):
    """Returns {part: seconds}: each lasts from the end of the part before it to the last line that ends it."""
    lines = log.read_text(errors="replace").splitlines()
    found, before = {}, begin
    for part, words in PARTS:
        ends = [seconds_of(line) for line in lines if re.search(words, line)]
        if ends:
            found[part], before = max(ends) - before, max(before, *ends)
    return found | {"all": before - begin}


def merged(clusters):
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        yaml = clusters.job_yaml(folder, prefill=3, decode=3, keys="cpus: 2, ")
        begin = time.time()
        job = HostJob(clusters.a, BIN, yaml, folder)
        try:
            job.wait_ready(300)
            log = pathlib.Path(folder) / "logs/launcher.log"
            wait_until(lambda: "ReportReady" in log.read_text(), 5, "the log is written")
            found = parts_of(log, begin)
            sent = re.findall(r"pdjob was not there; .*", log.read_text())
        except BaseException:
            print(job.tail(), file=sys.stderr)
            raise
        assert job.stop() == 0
    clusters.assert_free(60)
    return found, sent


def alone(clusters, name):
    guests = {dashboard(host): host.address for host in clusters.hosts[1:]}
    ran = clusters.a.run(PYTHON, "-c", ALONE, gcs(clusters.a), json.dumps(guests), PYTHON, name, timeout=180)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    times = dict(map(json.loads, (line for line in ran.stdout.splitlines() if line.startswith("["))))
    clusters.assert_free(60)
    before, found = 0, {}
    for part, at in times.items():
        found[part], before = at - before, at
    return found | {"all": before}


def on_one_machine():
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        begin = time.time()
        job = Job(job_yaml(folder, prefill=3, decode=3), folder)
        job.wait_ready()
        log = pathlib.Path(folder) / "logs/launcher.log"
        wait_until(lambda: "ReportReady" in log.read_text(), 5, "the log is written")
        found = parts_of(log, begin)
        assert job.stop() == 0
    return found


def text(rounds, part):
    values = sorted(one[part] for one in rounds if part in one)
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else "-"
    return f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    ours, rays, locals_ = [], [], []
    with contextlib.ExitStack() as stack:
        bare = [machine_without_pdjob(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-bench-"))) for _ in range(2)]
        clusters = Clusters(stack.enter_context(Network(3, roots=dict(enumerate(bare, 1)))))
        alone(clusters, "warm")  # Ray's first worker of each cluster is slow.
        first, sent = merged(clusters)  # The guests have no pdjob yet.
        print("\n".join(sent))
        for number in range(rounds):
            rays.append(alone(clusters, f"alone-{number}"))
            found, again = merged(clusters)
            assert not again
            ours.append(found)
            locals_.append(on_one_machine())
            print(json.dumps({"pdjob": ours[-1], "Ray alone": rays[-1], "one machine": locals_[-1]}), flush=True)
    print("\nSeconds: median (least to most)\n\n| part | pdjob, its first time | pdjob on three clusters | Ray alone | pdjob on one machine |\n|---|---|---|---|---|")
    for part in [*(part for part, _ in PARTS), "all"]:
        print(f"| {part} | {text([first], part)} | {text(ours, part)} | {text(rays, part)} | {text(locals_, part)} |")


if __name__ == "__main__":
    main()
