"""configs/kubernetes/rayjob.yaml: it suits KubeRay's schema, and its entry point is a job of Ray's job API on a real Ray cluster.

KubeRay and Kueue themselves have not run: three hosts stand for the pods, with the environment that KubeRay gives them.
"""

import contextlib
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import httpx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from conftest import BIN, MODEL, ROOT  # noqa: E402
from hosts import Network, Unsupported, wait_until  # noqa: E402
from ray_hosts import GCS_PORT, PYTHON, Observer, dashboard, start_head, start_node, wait_head  # noqa: E402

pytestmark = pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason=f"no Ray at {PYTHON}: run ./dev setup")

MANIFEST = ROOT / "configs/kubernetes/rayjob.yaml"
SCHEMA = ROOT / "tests/data/kuberay_rayjob_schema.json"
# Ray brings both packages.
READ = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
CHECK = """import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
said = [[e.json_path + ": " + e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(each)] for each in json.load(sys.stdin)]
print(json.dumps(said))"""
# This machine has no GPU, and a smaller model. The rest of the job is that of the manifest.
HERE = [f"model={MODEL}", "served_name=smollm2", "engine.kind=llama", "engine.gpu=false", "engine.threads=1", "clusters.ray.cpus=1",
        "clusters.ray.gpus=0"]

ASK = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}


def in_ray_python(program, *words, stdin=""):
    ran = subprocess.run([PYTHON, "-c", program, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def manifest():
    """Returns {kind: document}."""
    return {document["kind"]: document for document in in_ray_python(READ, MANIFEST)}


def pods(manifest):
    """Returns {group: pod template}."""
    cluster = manifest["RayJob"]["spec"]["rayClusterSpec"]
    return {"head": cluster["headGroupSpec"]["template"], **{group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]}}


def changed(document, change):
    document = copy.deepcopy(document)
    change(document["spec"])
    return document


def test_the_manifest_suits_the_schema_of_kuberay(manifest):
    job = manifest["RayJob"]
    wrong = {
        "shutdownAfterJobFinish": lambda spec: spec.update(shutdownAfterJobFinish=True),
        "'2'": lambda spec: spec.update(backoffLimit="2"),
        "groupName": lambda spec: spec["rayClusterSpec"]["workerGroupSpecs"][0].pop("groupName"),
        "replica": lambda spec: spec["rayClusterSpec"]["workerGroupSpecs"][1].update(replica=2),
        "containerPorts": lambda spec: spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0].update(containerPorts=[]),
        "'name' is a required property": lambda spec: spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0].pop("name"),
    }
    right, *said = in_ray_python(CHECK, SCHEMA, stdin=json.dumps([job, *(changed(job, change) for change in wrong.values())]))
    assert right == []
    for word, errors in zip(wrong, said, strict=True):
        assert len(errors) == 1 and word in errors[0], (word, errors)


def test_the_manifest_is_one_that_kuberay_and_kueue_accept(manifest):
    """Rules of theirs that no schema has: ray-operator/controllers/ray/utils/validation.go, and Kueue's webhook for RayJobs."""
    job, spec = manifest["RayJob"], manifest["RayJob"]["spec"]
    assert len(job["metadata"]["name"]) <= 41
    # KubeRay removes the cluster after ttlSecondsAfterFinished only with this, and Kueue admits nothing else.
    assert spec["shutdownAfterJobFinishes"] is True and spec["ttlSecondsAfterFinished"] > 0 and spec["backoffLimit"] > 0
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    # Kueue's webhook sets it. Without Kueue, a job that is suspended never starts.
    assert "suspend" not in spec
    cluster = spec["rayClusterSpec"]
    assert not cluster.get("enableInTreeAutoscaling") and len(cluster["workerGroupSpecs"]) <= 7
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for name, template in pods(manifest).items():
        (container,) = template["spec"]["containers"]
        assert container["image"] == "pdjob-ray", name
        # Kueue counts requests. A GPU's request must be its limit.
        assert container["resources"]["requests"] == container["resources"]["limits"], name
        assert {volume["name"] for volume in template["spec"]["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}, name


def test_the_service_finds_the_router_and_the_launcher_its_files(manifest):
    head = pods(manifest)["head"]
    (container,) = head["spec"]["containers"]
    service = manifest["Service"]["spec"]
    assert service["selector"] == head["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports[service["ports"][0]["targetPort"]] == service["ports"][0]["port"] == 8000
    assert ports["gcs-server"] == GCS_PORT
    (volume,) = head["spec"]["volumes"]
    assert volume["configMap"]["name"] == manifest["ConfigMap"]["metadata"]["name"]
    assert manifest["RayJob"]["spec"]["entrypoint"] == f"exec sh {container['volumeMounts'][0]['mountPath']}/start.sh"
    # With any of them, Ray chooses a node for the launcher. Without, it is the head.
    assert not {"entrypointNumCpus", "entrypointNumGpus", "entrypointResources"} & set(manifest["RayJob"]["spec"])


def write_files(manifest, folder):
    """Writes the files of the ConfigMap as the head's pod has them, with another path."""
    for name, text in manifest["ConfigMap"]["data"].items():
        (folder / name).write_text(text.replace("/etc/pdjob", str(folder)))
    (folder / "bin").mkdir()
    (folder / "bin/pdjob").symlink_to(BIN)
    return {"PATH": f"{folder}/bin:{pathlib.Path(PYTHON).parent}:{os.environ['PATH']}", "XDG_STATE_HOME": f"{folder}/state"}


def test_each_worker_is_planned_on_the_pod_of_its_group(manifest, tmp_path):
    limits = {name: template["spec"]["containers"][0]["resources"]["limits"] for name, template in pods(manifest).items()}
    nodes = "".join(f"  {name}: {{cores: {limits[name]['cpu']}, memory: {limits[name]['memory']}B, gpus: {limits[name]['nvidia.com/gpu']}, "
                    f"labels: {{ray.io/node-group: {name}}}}}\n" for name in ("prefill", "decode"))
    (tmp_path / "nodes.yaml").write_text("nodes:\n" + nodes)
    env = {**os.environ, **write_files(manifest, tmp_path), "RAY_ADDRESS": "10.0.0.1:6379", "POD_IP": "10.0.0.1"}
    argv = ["sh", tmp_path / "start.sh", "plan", "--assume", tmp_path / "nodes.yaml", "--json"]
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    where = {each["name"]: each["node"] for each in json.loads(ran.stdout)["processes"]}
    assert where == {"router-0": "local", "prefill-0": "prefill", "decode-0": "decode"}


class RayCluster:
    """A Ray cluster as KubeRay makes it of the manifest: one host stands for each pod."""

    def __init__(self, network, manifest, folder):
        self.hosts, self.folder = list(network), folder
        self.head = self.hosts[0]
        cluster = manifest["RayJob"]["spec"]["rayClusterSpec"]
        (container,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
        env = {each["name"]: each.get("value", self.head.address) for each in container["env"]}
        # KubeRay sets RAY_ADDRESS in each pod, too. The entry point sees the one that Ray's job API sets.
        env = {**env, "RAY_ADDRESS": f"127.0.0.1:{GCS_PORT}", "CUDA_VISIBLE_DEVICES": "", **write_files(manifest, folder)}
        wait_head(start_head(self.head, cpus=int(cluster["headGroupSpec"]["rayStartParams"]["num-cpus"]), env=env))
        # KubeRay names the group of a pod in this variable. Agents keep their logs in $HOME.
        nodes = [start_node(host, self.head, env={"RAY_NODE_TYPE_NAME": group["groupName"], "HOME": str(folder)})
                 for host, group in zip(self.hosts[1:], cluster["workerGroupSpecs"], strict=True)]
        for node in nodes:
            wait_head(node)
        self.observer = Observer(self.head)
        self.entrypoint = manifest["RayJob"]["spec"]["entrypoint"].replace("/etc/pdjob", str(folder)).split()

    def ray_job(self, *words):
        ran = self.head.run(PYTHON, "-m", "ray.scripts.scripts", "job", words[0], f"--address={dashboard(self.head)}", *words[1:], timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def submit(self, name, *settings):
        """Submits the entry point of the manifest, as KubeRay's submitter does."""
        words = [word for setting in [*HERE, *settings] for word in ("--set", setting)]
        self.ray_job("submit", "--no-wait", f"--submission-id={name}", "--", *self.entrypoint, *words)

    def info(self, name):
        with self.head.inside():
            return httpx.get(f"{dashboard(self.head)}/api/jobs/{name}", timeout=30).json()

    def logs(self, name):
        with self.head.inside():
            return httpx.get(f"{dashboard(self.head)}/api/jobs/{name}/logs", timeout=30).json()["logs"]

    def wait(self, name, what, condition, seconds=120):
        try:
            wait_until(condition, seconds, what)
        except AssertionError as error:
            logs = [f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.rglob("*.log")]
            raise AssertionError("\n".join([str(error), self.logs(name), *logs])) from error

    def wait_ready(self, name):
        self.wait(name, f"{name} is ready", lambda: "ready url=" in self.logs(name) or self.info(name)["status"] == "FAILED")
        assert self.info(name)["status"] == "RUNNING", self.logs(name)

    def ask(self):
        with self.head.inside():
            return httpx.post(f"http://{self.head.address}:8000/v1/completions", json=ASK, timeout=60)

    def launcher(self):
        """Returns the launcher's process. It is on the head, where Ray has no CPU to give."""
        (found,) = [pid for pid, line in self.head.processes().items() if f"--config {self.folder}/" in line and line.startswith("pdjob")]
        return found

    def left(self):
        """Returns the command lines of what holds something for a job: pdjob's processes, the shim, and the actors that start agents."""
        return [line for host in self.hosts for pid, line in host.processes().items() if is_pdjob(pid, line)]

    def assert_free(self, name, seconds):
        free = {"cpus": 4.0, "nodes": 3, "groups": {}, "nested": []}
        self.wait(name, f"everything of {name} is free", lambda: self.observer.look() == free and not self.left(), seconds)


def is_pdjob(pid, line):
    with contextlib.suppress(OSError):  # It has ended.
        return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(BIN) or "ray_shim.py" in line or line.startswith("ray::Starter")
    return False


@pytest.fixture(scope="module")
def cluster(manifest):
    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(Network(3))
        except Unsupported as error:
            pytest.skip(str(error))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdjob-test-")))
        yield RayCluster(network, manifest, folder)


def assert_serves(cluster, name, single):
    cluster.wait_ready(name)
    expected = httpx.post(single.url + "/v1/completions", json=ASK, timeout=60).json()["choices"][0]["text"]
    reply = cluster.ask()
    assert reply.status_code == 200 and reply.json()["choices"][0]["text"] == expected != "", reply.text
    look = cluster.observer.look()
    assert look["cpus"] == 2 and list(look["groups"].values()) == ["CREATED"], "one CPU of each worker's node is taken"
    status = cluster.head.run(BIN, "status", env={"XDG_STATE_HOME": f"{cluster.folder}/state"})
    assert status.returncode == 0 and "prefill-0" in status.stdout, status
    # The launcher, its router and its shim; on each worker's node an agent, a worker, and the actor that started the agent.
    assert len(cluster.left()) == 9, cluster.left()


def test_a_job_of_rays_job_api_serves_and_gives_everything_back_when_it_is_stopped(cluster, single):
    cluster.submit("stopped")
    assert_serves(cluster, "stopped", single)
    begin = time.monotonic()
    cluster.ray_job("stop", "stopped")
    assert cluster.info("stopped")["status"] == "STOPPED"
    assert time.monotonic() - begin < 30, "Ray sees the launcher's end, and does not wait until it may kill it"
    assert "stopping: finishing what is under way" in cluster.logs("stopped")
    assert "not everything could be given back" not in (cluster.folder / "state/pdjob/qwen/logs/launcher.log").read_text()
    cluster.assert_free("stopped", 10)


@pytest.mark.heavy
def test_a_batch_succeeds_and_gives_everything_back(cluster):
    bodies = [{"prompt": f"The {n}. river is", "max_tokens": 4} for n in range(20)]
    rows = [{"custom_id": str(n), "method": "POST", "url": "/v1/completions", "body": body} for n, body in enumerate(bodies)]
    (cluster.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cluster.submit("batch", "mode=batch", f"batch.in=[{cluster.folder}/rows.jsonl]", f"batch.out={cluster.folder}/results")
    cluster.wait("batch", "the batch has ended", lambda: cluster.info("batch")["status"] in ("SUCCEEDED", "FAILED"))
    assert cluster.info("batch")["status"] == "SUCCEEDED", cluster.logs("batch")
    assert len((cluster.folder / "results/output.jsonl").read_text().splitlines()) == len(rows)
    cluster.assert_free("batch", 45)


def test_after_kill_9_of_the_launcher_the_job_has_failed_and_everything_is_given_back(cluster, single):
    cluster.submit("killed")
    assert_serves(cluster, "killed", single)
    os.kill(cluster.launcher(), 9)
    cluster.wait("killed", "the job has failed", lambda: cluster.info("killed")["status"] == "FAILED", 10)
    cluster.assert_free("killed", 45)
    # The keepers of all these jobs end by themselves. They hold no CPU.
    wait_until(lambda: not any(host.kill("ray::Keeper", 0) for host in cluster.hosts), 30, "no keeper is left")
