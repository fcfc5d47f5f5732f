"""Real processes on loopback, for the integration tests.

`./dev test` sets PDJOB_BIN (the binary under test) and PDJOB_TEST_MODEL (a GGUF) for them. Without a model they fail, so that they cannot pass
unnoticed.
"""

import atexit
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import httpx
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.environ.get("PDJOB_BIN", str(ROOT / "build/dev/pdjob"))
CACHE = pathlib.Path(os.environ.get("PDJOB_CACHE", pathlib.Path.home() / ".cache/pdjob"))
MODEL = os.environ.get("PDJOB_TEST_MODEL", str(CACHE / "models/smollm2-6-layers-q8_0.gguf"))
# The test model has only some of its layers, and makes no sense. For the few tests to which sense matters:
WHOLE_MODEL = str(pathlib.Path(MODEL).with_name("smollm2-135m-instruct-q8_0.gguf"))
READY_SECONDS = 120


class Process:
    """One pdjob process. Its stdout says `ready url=...`; its stderr goes to a file. `enter` runs in it before pdjob does."""

    def __init__(self, argv, folder, env=None, enter=None):
        self.log = pathlib.Path(folder) / f"{argv[1].lstrip('-')}-{time.monotonic_ns()}.log"
        self._log_file = open(self.log, "wb")
        self.child = subprocess.Popen(
            [BIN, *argv[1:]],
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **(env or {})},  # Hides real GPUs: tests use doubles.
            start_new_session=True,
            preexec_fn=enter,
        )
        atexit.register(self._kill)  # Stops the process even if a test fails half-way.
        self.url = None
        self.stdout = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _kill(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def _read(self):
        for line in self.child.stdout:
            self.stdout.append(line.rstrip("\n"))
            if line.startswith("ready url="):
                self.url = line.strip().removeprefix("ready url=")
                self._ready.set()
        self._ready.set()

    def wait_ready(self):
        assert self._ready.wait(READY_SECONDS), f"not ready in {READY_SECONDS} s:\n{self.log_tail()}"
        assert self.url, f"ended before it was ready ({self.child.poll()}):\n{self.log_tail()}"
        return self

    def log_tail(self, lines=60):
        return "\n".join(self.stdout[-lines:] + self.log.read_text(errors="replace").splitlines()[-lines:])

    @property
    def pid(self):
        return self.child.pid

    def stop(self, sig=signal.SIGTERM, timeout=60):
        if self.child.poll() is None:
            self.child.send_signal(sig)
        try:
            code = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            raise AssertionError(f"did not stop in {timeout} s:\n{self.log_tail()}") from None
        finally:
            self._log_file.close()
        return code


def fake_worker(role, folder, name):
    """A worker with the fake engine, which answers at once. Everything else is real."""
    options = ["--set", "engine.kind=fake", "--set", "engine.sequences=32", "--listen", "127.0.0.1:0"]
    return Process(["pdjob", "worker", "--role", role, "--model", MODEL, "--name", name, *options], folder)


@contextlib.contextmanager
def real_worker(role, folder, *settings):
    """A stand-alone worker with the real model."""
    argv = ["pdjob", "worker", "--role", role, "--model", MODEL, "--listen", "127.0.0.1:0", "--set", "served_name=smollm2"]
    argv += [word for setting in settings for word in ("--set", setting)]
    process = Process(argv, folder)
    try:
        yield process.wait_ready()
    finally:
        code = process.stop()
    assert code == 0, process.log_tail()


class Job(Process):
    """A whole job under the launcher."""

    def __init__(self, config, folder, env=None, settings=(), enter=None):
        self.folder = pathlib.Path(folder)
        self.config = self.folder / "job.yaml"
        self.config.write_text(config)
        flags = [word for setting in settings for word in ("--set", setting)]
        super().__init__(["pdjob", "--config", str(self.config), *flags], folder, env, enter)

    def status(self):
        """Asks as `pdjob status --json` does, without a process for each question."""
        found = list(self.folder.glob("state/*/launcher.json"))
        assert found, "the launcher has not begun"
        return json.loads(get(f"http://{json.loads(found[0].read_text())['admin']}/status", timeout=30))

    def processes(self):
        found = {process["name"]: process for process in self.status()["processes"]}
        for name, key in self.worker_keys().items():
            if name in found:  # It may have been added since.
                WORKER_KEYS[found[name]["url"]] = key
        return found

    def worker_keys(self):
        """Returns, by name, the key for each worker's HTTP port. Only the job's owner can read it."""
        (file,) = self.folder.glob("state/*/worker_keys.json")
        return json.loads(file.read_text())


# The keys of workers by URL, filled by processes().
WORKER_KEYS = {}


def key_header(url):
    """Returns the headers that a request to this URL needs. They are empty unless the URL is a worker of a job."""
    key = next((key for base, key in WORKER_KEYS.items() if key and (url == base or url.startswith(base + "/"))), None)
    return {"Authorization": f"Bearer {key}"} if key else {}


def get(url, timeout=10, headers=None):
    request = urllib.request.Request(url, headers={**key_header(url), **(headers or {})})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return reply.read().decode()


def metric(url, name, **labels):
    """Returns the sum of a metric's samples that carry the labels."""
    total = 0.0
    for line in get(url + "/metrics").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        series, value = line.rsplit(" ", 1)
        if series.split("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items()):
            total += float(value)
    return total


# The kernel chooses higher ports for those who ask for any. Each worker of pytest-xdist has ports of its own.
FIRST_PORT = 24000 + 100 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 80)
PORTS = random.sample(range(FIRST_PORT, FIRST_PORT + 100), 100)


def free_port():
    """Returns a port that nobody takes before the test's own process does."""
    while PORTS:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port := PORTS.pop()))
            return port
    raise AssertionError("no port is free")


def processes_with(folder):
    """Returns {pid: command line} of the processes that were started with PDJOB_TEST_FOLDER=folder: those of a job's engines, and what these started."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"PDJOB_TEST_FOLDER={folder}\0".encode() in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def eventually(condition, seconds=30, what="condition"):
    """Waits until `condition` returns something true. If it never does, the error names the last exception that it raised."""
    deadline = time.monotonic() + seconds
    reason = None
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (OSError, httpx.TransportError, AssertionError, KeyError) as error:
            reason = error
        time.sleep(0.05)
    raise AssertionError(f"{what} did not become true in {seconds} s: {reason}")


def kill_and_await(job, *names):
    """Kills these processes with kill -9, and waits until their successors serve."""
    before = job.processes()
    for name in names:
        os.kill(before[name]["pid"], signal.SIGKILL)

    def came_back():
        now = job.processes()
        return all(now[name]["pid"] != before[name]["pid"] and now[name]["state"] == "ready" for name in names)

    eventually(came_back, seconds=120, what=f"{names} serve again")


def assert_idle(job):
    """Asserts that no engine worker of the job holds a request or a row."""
    for name, process in job.processes().items():
        if process["role"] in ("prefill", "decode"):
            for gauge in ("pdjob_kv_rows_used", "pdjob_requests_running", "pdjob_requests_waiting"):
                held = metric(process["url"], gauge)
                assert held == 0, f"{name}: {gauge} is {held}"
    return True


# The doubles of a GPU's libraries are beside the program under test.
FAKE_NCCL = f"nccl: {{library: {pathlib.Path(BIN).resolve().parent}/libfakenccl.so}}"
FAKE_GPU = f"cuda_library: {pathlib.Path(BIN).resolve().parent}/libfakecudart.so"


def job_yaml(folder, prefill=1, decode=1, transport="auto", prefill_extra="", decode_extra="", tcp="", router="", launcher="", extra="", listen="127.0.0.1:0", model=MODEL):
    return f"""\
name: test-{pathlib.Path(folder).name}
model: {model}
served_name: smollm2
engine: {{kv_type: q8_0, threads: 1, tokens_per_sequence: 2048, sequences: 8}}
prefill: {{workers: {prefill}, {prefill_extra}}}
decode: {{workers: {decode}, {decode_extra}}}
kvtransfer: {{transport: {transport}, tcp: {{{tcp}}}, {FAKE_NCCL}}}
gpu: {{{FAKE_GPU}}}
router: {{listen: "{listen}", {router}}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs, {launcher}}}
{extra}"""


@pytest.fixture(scope="session", autouse=True)
def model():
    assert pathlib.Path(MODEL).exists(), f"no model at {MODEL}: run ./dev model"
    return MODEL


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as name:
        yield name


@pytest.fixture(scope="session")
def single():
    """The single-process engine, the reference for all comparisons. It computes each prompt whole."""
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as name:
        process = Process(
            ["pdjob", "worker", "--role", "both", "--model", MODEL, "--listen", "127.0.0.1:0"]
            + ["--set", "served_name=smollm2", "--set", "decode.prefix_cache=false"],
            name,
        )
        yield process.wait_ready()
        assert process.stop() == 0, process.log_tail()


@contextlib.contextmanager
def running_job(folder, env=None, **options):
    job = Job(job_yaml(folder, **options), folder, env)
    try:
        yield job.wait_ready()
    except BaseException:
        print(job.log_tail(), file=sys.stderr)
        for log in sorted(pathlib.Path(folder).glob("logs/**/*.log")):
            print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-20:]), file=sys.stderr)
        raise
    finally:
        code = job.stop()
    assert code == 0, job.log_tail()


@pytest.fixture(scope="module")
def job(folder):
    """A plain job: one prefill and one decode worker. A file whose job is another one has a fixture of its own."""
    with running_job(folder) as running:
        yield running


@pytest.fixture(scope="module")
def client(job):
    return openai.OpenAI(base_url=job.url + "/v1", api_key="any", max_retries=0, timeout=120)
