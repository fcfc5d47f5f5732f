"""Keys inside a job: who may speak to a worker, and on a worker's behalf."""

import concurrent.futures
import hashlib
import http.server
import json
import os
import subprocess
import tempfile
import threading

import httpx
import pytest

from conftest import BIN, MODEL, Process, eventually, get, key_header, metric, running_job

TENANTS = {"alice": "sk-alice-0123456789", "bob": "sk-bob-9876543210"}
ASK = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
WORKER_PATHS = [
    ("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("POST", "/tokenize"), ("POST", "/detokenize"), ("GET", "/v1/models"),
    ("GET", "/metrics"), ("GET", "/pdjob/worker"), ("GET", "/pdjob/links"), ("GET", "/pdjob/kv_events"), ("GET", "/no/such/path"),
    ("DELETE", "/pdjob/transfers/" + "0" * 32),
]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def job():
    tenants = ", ".join(f"{name}: {{key_sha256: {hashlib.sha256(key.encode()).hexdigest()}}}" for name, key in TENANTS.items())
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, router=f"tenants: {{{tenants}}}") as running:
            yield running


def workers_of(job):
    return {name: process["url"] for name, process in job.processes().items() if process["role"] != "router"}


def test_a_worker_of_a_job_answers_nobody_without_its_own_key(job):
    urls, keys = workers_of(job), job.worker_keys()
    assert set(urls) == set(keys) == {"prefill-0", "decode-0"} and len(set(keys.values())) == 2
    for name, url in urls.items():
        other = next(key for owner, key in keys.items() if owner != name)
        for shown in ({}, bearer(TENANTS["alice"]), bearer(other), bearer(keys[name][:-1]), {"Authorization": keys[name]}):
            for method, path in WORKER_PATHS:
                reply = httpx.request(method, url + path, headers=shown, json=ASK if method == "POST" else None, timeout=20)
                assert reply.status_code == 401, (name, method, path)
                error = reply.json()["error"]
                assert error["code"] == "invalid_api_key" and "router" in error["message"] and "--key-file" in error["message"]
        assert httpx.get(url + "/pdjob/worker", headers=bearer(keys[name])).json()["name"] == name
        assert httpx.get(url + "/health").json() == {"status": "ok"}


def test_tenants_are_served_and_the_launcher_sees_its_workers(job):
    for key in TENANTS.values():
        reply = httpx.post(job.url + "/v1/completions", json=ASK, headers=bearer(key), timeout=60)
        assert reply.status_code == 200 and reply.headers["x-pdjob-decode"] == "decode-0", reply.text
    assert job.status()["state"] == "ready"
    links = subprocess.run([BIN, "links", "--config", str(job.config), "--json"], capture_output=True, text=True, timeout=30)
    assert links.returncode == 0, links.stderr
    told = json.loads(links.stdout)["workers"]
    assert {worker["name"] for worker in told} == {"prefill-0", "decode-0"} and all(worker["links"] for worker in told), told


def test_the_router_names_workers_to_tenants_only_and_no_key_to_anybody(job):
    for path in ("/pdjob/workers", "/pdjob/members"):
        assert httpx.get(job.url + path).status_code == 401
        assert httpx.get(job.url + path, headers=bearer("sk-mallory-000000000")).status_code == 401
        reply = httpx.get(job.url + path, headers=bearer(TENANTS["bob"]))
        assert reply.status_code == 200 and "prefill-0" in reply.text
        assert not any(key in reply.text for key in job.worker_keys().values())


def test_no_key_is_written_where_others_read(job):
    keys = list(job.worker_keys().values())
    (file,) = job.folder.glob("state/*/worker_keys.json")
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    for log in job.folder.glob("logs/**/*.log"):
        text = log.read_text(errors="replace")
        assert not any(key in text for key in keys), log
    assert not any(key in json.dumps(job.status()) for key in keys)
    for process in job.processes().values():
        with open(f"/proc/{process['pid']}/cmdline", "rb") as command, open(f"/proc/{process['pid']}/environ", "rb") as environment:
            told = command.read() + environment.read()
        assert not any(key.encode() in told for key in keys), process["name"]


class Recorder(http.server.BaseHTTPRequestHandler):
    """A foreign worker that records the heads of its requests."""

    heads = []

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "POST":
            Recorder.heads.append(list(self.headers.items()))
        body = b'{"choices":[{"text":"x"}]}' if self.command == "POST" else b"{}"
        self.send_response(404 if self.path.startswith("/pdjob") else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


def key_file(folder, name, key, mode=0o600):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(key + "\n")
    os.chmod(path, mode)
    return path


def test_what_a_client_says_of_itself_never_reaches_a_worker(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = [f"router.tenants.{name}.key_sha256={hashlib.sha256(key.encode()).hexdigest()}" for name, key in TENANTS.items()]
    argv = ["pdjob", "router", "--listen", "127.0.0.1:0", "--worker", f"http://127.0.0.1:{server.server_port}"]
    argv += ["--worker-key-file", key_file(folder, "worker.key", "the-key-of-the-worker")]
    router = Process(argv + [word for setting in settings for word in ("--set", setting)], folder).wait_ready()
    try:
        shown = {**bearer(TENANTS["bob"]), "x-pdjob-tenant": "alice", "X-Mine": "passes"}
        eventually(lambda: "healthy" in get(router.url + "/pdjob/workers", headers=bearer(TENANTS["bob"])), 20, "the worker known")
        assert httpx.post(router.url + "/v1/completions", json=ASK, headers=shown, timeout=20).status_code == 200
        (head,) = Recorder.heads
        values = {name.lower(): [v for n, v in head if n.lower() == name.lower()] for name, _ in head}
        assert values["authorization"] == ["Bearer the-key-of-the-worker"]
        assert values["x-pdjob-tenant"] == ["bob"] and values["x-mine"] == ["passes"]
    finally:
        assert router.stop() == 0, router.log_tail()
        server.shutdown()


def by_hand(role, folder, name, *options):
    argv = ["pdjob", "worker", "--role", role, "--model", MODEL, "--name", name, "--listen", "127.0.0.1:0", "--set", "engine.kind=fake"]
    return Process([*argv, *options], folder)


def post(url, body, headers=None, timeout=20):
    return httpx.post(url + "/v1/completions", json=body, headers=headers or {}, timeout=timeout)


def test_workers_of_one_key_file_are_one_job_and_those_of_another_are_not(folder):
    files = [key_file(folder, f"{owner}.key", f"the-key-of-{owner}-0123456789") for owner in ("us", "them")]
    # The prefill worker keeps, for its lease, the KV that the stranger fails to fetch.
    prefill = by_hand("prefill", folder, "p", "--key-file", files[0], "--set", "kvtransfer.lease=2s")
    decode = by_hand("decode", folder, "d", "--key-file", files[0])
    stranger = by_hand("decode", folder, "s", "--key-file", files[1])
    workers = [worker.wait_ready() for worker in (prefill, decode, stranger)]
    router = Process(["pdjob", "router", "--listen", "127.0.0.1:0", "--prefill", prefill.url, "--decode", decode.url,
                      "--worker-key-file", files[0]], folder).wait_ready()
    try:
        ours, theirs = (bearer(f"the-key-of-{owner}-0123456789") for owner in ("us", "them"))
        assert post(prefill.url, ASK).status_code == post(prefill.url, ASK, theirs).status_code == 401
        eventually(lambda: get(router.url + "/pdjob/workers").count('"healthy"') == 2, 20, "both workers known")
        reply = post(router.url, ASK)
        assert reply.status_code == 200 and int(reply.headers["x-pdjob-kv-bytes"]) > 0, reply.text
        # A worker with the stranger's key cannot fetch our KV over its links.
        offer = post(prefill.url, {**ASK, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}, ours)
        refused = post(stranger.url, {**ASK, "kv_transfer_params": offer.json()["kv_transfer_params"]}, theirs)
        assert refused.status_code >= 400 and "does not prove" in refused.text, refused.text
    finally:
        for process in [router, *workers]:
            assert process.stop() == 0, process.log_tail()


def test_a_key_file_that_others_can_read_and_an_open_port_for_others_are_refused(folder):
    loose = key_file(folder, "loose.key", "a-key-that-all-can-read", 0o644)
    for options, said in ((["--key-file", loose], "chmod 600"), (["--listen", "0.0.0.0:0"], "--no-key"),
                          (["--key-file", key_file(folder, "short.key", "short")], "openssl rand")):
        argv = [BIN, "worker", "--model", MODEL, "--set", "engine.kind=fake", *options]
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=30)
        assert answer.returncode == 2 and said in answer.stderr, answer.stderr


@pytest.mark.parametrize("prompt, tenant", [(list(range(21, 61)), "alice"), (list(range(20, 60)), "mallory")])
def test_a_fetch_that_knows_only_the_id_gets_nobodys_kv(folder, prompt, tenant):
    """Regression: the first fetch of another tenant's transfer got that tenant's answer, with any prompt of the same length."""
    prefill, decode, thief = (by_hand(role, folder, name) for role, name in (("prefill", "p"), ("decode", "d"), ("decode", "t")))
    workers = [worker.wait_ready() for worker in (prefill, decode, thief)]
    try:
        address = httpx.get(prefill.url + "/pdjob/worker").json()["kv_address"]
        transfer = "0123456789abcdef0123456789abcdef"
        fetch = {"do_remote_prefill": True, "transfer_id": transfer, **address}
        victim = {"prompt": list(range(20, 60)), "max_tokens": 6, "temperature": 0}
        alice = {"x-pdjob-tenant": "alice"}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            stolen = pool.submit(post, thief.url, {**victim, "prompt": prompt, "kv_transfer_params": fetch}, {"x-pdjob-tenant": tenant}, 8)
            eventually(lambda: metric(thief.url, "pdjob_kv_fetches_alive") == 1, 8, "the thief waits")
            offer = pool.submit(post, prefill.url,
                                {**victim, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "transfer_id": transfer}}, alice)
            answer = post(decode.url, {**victim, "kv_transfer_params": fetch}, alice)
            assert answer.status_code == 200 and int(answer.headers["x-pdjob-kv-bytes"]) > 0, answer.text
            assert offer.result().status_code == 200
            refused = stolen.result()
            assert refused.status_code == 502 and "another prompt or tenant" in refused.text
        assert metric(thief.url, "pdjob_kv_received_total") == 0
    finally:
        for worker in workers:
            assert worker.stop() == 0, worker.log_tail()
