"""router.tls on real jobs: clients speak HTTPS, certificates change under load, and whoever speaks something else is turned away."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import httpx
import openai
import pytest

from conftest import BIN, MODEL, Process, assert_idle, eventually, fake_worker, metric, running_job

FAST = "restart: {backoff_min: 50ms, backoff_max: 50ms}"


class Authority:
    """A certificate authority of our own, and the certificates that it signs."""

    def __init__(self, folder):
        self.folder, self.ca = folder, f"{folder}/ca.pem"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test authority",
                      "-keyout", f"{folder}/ca.key", "-out", self.ca)
        self.context = ssl.create_default_context(cafile=self.ca)

    def _openssl(self, *words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)

    def issue(self, name, at):
        """Writes AT.pem and AT.key, each at once."""
        new = f"{self.folder}/{name}"
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", new + ".key", "-out", new + ".csr")
        with open(new + ".ext", "w") as extensions:
            extensions.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self._openssl("x509", "-req", "-in", new + ".csr", "-CA", self.ca, "-CAkey", f"{self.folder}/ca.key", "-days", "1", "-extfile", new + ".ext", "-out", new + ".pem")
        os.chmod(new + ".key", 0o600)
        os.replace(new + ".pem", at + ".pem")
        os.replace(new + ".key", at + ".key")

    def shown_by(self, port):
        """The name in the certificate that a new connection gets."""
        with socket.create_connection(("127.0.0.1", port), 30) as raw, self.context.wrap_socket(raw, server_hostname="localhost") as tls:
            return dict(pair for row in tls.getpeercert()["subject"] for pair in row)["commonName"]


@pytest.fixture(scope="module")
def authority():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        yield Authority(folder)


@pytest.fixture(scope="module")
def job(authority):
    at = f"{authority.folder}/server"
    authority.issue("first", at)
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        router = f"replicas: 2, tls: {{certificate: {at}.pem, key: {at}.key}}"
        with running_job(folder, prefill=1, decode=2, router=router, launcher=FAST, extra=f"batch_api: {{dir: {folder}/api}}\n") as running:
            running.port = int(running.url.rsplit(":", 1)[1])
            running.at = at
            yield running


@pytest.fixture
def client(job, authority):
    with httpx.Client(verify=authority.context, timeout=60) as made:
        yield openai.OpenAI(base_url=job.url + "/v1", api_key="none", http_client=made, max_retries=0)


def router_urls(job):
    return [process["url"] for name, process in job.processes().items() if process["role"] == "router"]


def test_clients_speak_https(job, authority, client):
    assert job.url.startswith("https://")
    whole = client.completions.create(model="smollm2", prompt="Once upon a time", max_tokens=8, temperature=0)
    pieces = client.completions.create(model="smollm2", prompt="Once upon a time", max_tokens=8, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == whole.choices[0].text
    curl = ["curl", "--silent", "--show-error", "--max-time", "60"]
    seen = subprocess.run([*curl, "--cacert", authority.ca, "--write-out", "\n%{http_version}", job.url + "/v1/models"], capture_output=True, text=True)
    assert '"smollm2"' in seen.stdout and seen.stdout.endswith("\n1.1"), seen
    old = subprocess.run([*curl, "--cacert", authority.ca, "--tlsv1.2", "--tls-max", "1.2", job.url + "/v1/models"], capture_output=True, text=True)
    assert '"smollm2"' in old.stdout, old
    unknown = subprocess.run([*curl, job.url + "/v1/models"], capture_output=True, text=True)
    assert unknown.returncode == 60, "a client that does not know the authority stays away"
    plain = subprocess.run([*curl, job.url.replace("https", "http") + "/v1/models"], capture_output=True, text=True)
    assert "this port speaks HTTPS" in plain.stdout, plain


def test_the_job_itself_goes_on_behind_it(job, client):
    shown = subprocess.run([BIN, "status", "--config", str(job.config)], capture_output=True, text=True, timeout=60)
    assert job.url in shown.stdout, shown
    urls = router_urls(job)
    assert len(urls) == 2 and all(url.startswith("http://127.0.0.1:") for url in urls), "their own ports are for this machine"
    assert all(metric(url, "pdjob_router_certificate_expires_seconds") > time.time() for url in urls)
    row = {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "smollm2", "prompt": "Hello", "max_tokens": 2}}
    file = client.files.create(file=("rows.jsonl", json.dumps(row).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    eventually(lambda: client.batches.retrieve(batch.id).status == "completed", 60, "the batch")
    answer = json.loads(client.files.content(client.batches.retrieve(batch.id).output_file_id).text)
    assert answer["response"]["status_code"] == 200


def test_a_stream_goes_on_when_its_decode_worker_is_killed(job, authority):
    body = {"model": "smollm2", "prompt": "Tell me a story about a river.", "max_tokens": 48, "temperature": 0.9, "seed": 5}

    def read(at_line):
        text = ""
        with httpx.Client(verify=authority.context, timeout=120) as client, client.stream("POST", job.url + "/v1/completions", json={**body, "stream": True}) as reply:
            assert reply.status_code == 200
            for line in filter(None, reply.iter_lines()):
                if line == "data: [DONE]":
                    return text
                text += json.loads(line[6:])["choices"][0]["text"]
                at_line(reply.headers)
        raise AssertionError("the stream was cut")

    expected = read(lambda headers: None)
    killed, pids = [], {name: process["pid"] for name, process in job.processes().items()}

    def kill_once(headers):
        if not killed:
            killed.append(headers["x-pdjob-decode"])
            os.kill(pids[killed[0]], signal.SIGKILL)

    assert read(kill_once) == expected
    eventually(lambda: job.processes()[killed[0]]["restarts"] == 1, 60, "it is noticed")
    eventually(lambda: all(process["state"] == "ready" for process in job.processes().values()), 60, "it serves again")
    eventually(lambda: assert_idle(job), 30, "no rows left in use")


class Load:
    """Clients that ask on and on: one connection for each request, or one for all."""

    def __init__(self, job, context, threads=4):
        self.url, self.context, self.done, self.errors, self.answers = job.url, context, threading.Event(), [], 0
        self.threads = [threading.Thread(target=self._run, args=(bool(i % 2),)) for i in range(threads)]

    def _run(self, fresh):
        body = {"model": "smollm2", "prompt": "Hello there, my dear friend.", "max_tokens": 4, "temperature": 0}
        client = httpx.Client(verify=self.context, timeout=60)
        while not self.done.is_set():
            try:
                reply = client.post(self.url + "/v1/completions", json=body)
                assert reply.status_code == 200, reply.text
                self.answers += 1
            except (httpx.HTTPError, AssertionError) as error:
                self.errors.append(repr(error))
            if fresh:
                client.close()
                client = httpx.Client(verify=self.context, timeout=60)
        client.close()

    def goes_on(self):
        before = self.answers
        eventually(lambda: self.answers >= before + 8 or self.errors, 60, "answers")

    def __enter__(self):
        [thread.start() for thread in self.threads]
        return self

    def __exit__(self, *_):
        self.done.set()
        [thread.join() for thread in self.threads]


def test_certificates_change_under_load_and_nothing_is_lost(job, authority):
    def sum_of(outcome):
        return sum(metric(url, "pdjob_router_certificates_total", outcome=outcome) for url in router_urls(job))

    def hang_up():
        for process in job.processes().values():
            if process["role"] == "router":
                os.kill(process["pid"], signal.SIGHUP)

    def all_show(name):  # The kernel chooses one of both routers for each connection.
        return {authority.shown_by(job.port) for _ in range(16)} == {name}

    with Load(job, authority.context) as load:
        load.goes_on()
        authority.issue("second", job.at)
        eventually(lambda: all_show("second"), 30, "the routers have looked")
        load.goes_on()
        with open(job.at + ".pem", "w") as file:
            file.write("not a certificate\n")
        hang_up()
        eventually(lambda: sum_of("refused") >= 2, 30, "both routers refuse it")
        assert all_show("second"), "the old one stays"
        load.goes_on()
        authority.issue("third", job.at)
        hang_up()
        eventually(lambda: all_show("third"), 30, "they were told to look")
        load.goes_on()
    assert not load.errors, load.errors[:5]
    logs = "".join(log.read_text() for log in job.folder.glob("logs/**/router-*.log"))
    assert "the new certificate is refused, and the old one stays" in logs and "CN=third serves new connections" in logs


def test_slow_and_false_handshakes_delay_nobody(job, authority):
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", job.port), 30)) for _ in range(200)]
        for number, raw in enumerate(slow):
            raw.sendall(b"\x16\x03\x01\x02\x00\x01\x00"[: number % 8])  # The beginning of a ClientHello, or nothing.
        for bytes_ in (os.urandom(4096), b"\x16\x03\x01\xff\xff" + bytes(70_000), b"SSH-2.0-x\r\n"):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", job.port), 30) as raw:
                raw.sendall(bytes_)
                raw.settimeout(30)
                while raw.recv(4096):
                    pass
        with Load(job, authority.context) as load:
            load.goes_on()
        assert not load.errors, load.errors[:5]
        assert sum(metric(url, "pdjob_router_tls_handshakes_total", outcome="failed") for url in router_urls(job)) >= 2


def test_a_router_by_hand_speaks_https(authority):
    at = f"{authority.folder}/by-hand"
    authority.issue("by-hand", at)
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        worker = fake_worker("both", folder, "w").wait_ready()
        router = Process(["pdjob", "router", "--worker", worker.url, "--listen", "127.0.0.1:0", "--set", f"router.tls.certificate={at}.pem", "--set", f"router.tls.key={at}.key"], folder)
        try:
            assert router.wait_ready().url.startswith("https://")
            eventually(lambda: httpx.get(router.url + "/health", verify=authority.context, timeout=60).status_code == 200, 20, "the worker known")
        finally:
            assert router.stop() == 0 and worker.stop() == 0


def test_mistakes_are_told_at_their_place(authority, tmp_path):
    at = f"{authority.folder}/plan"
    authority.issue("plan", at)
    authority.issue("another", f"{authority.folder}/another")

    def plan(tls):
        job = tmp_path / "job.yaml"
        job.write_text(f"name: x\nmodel: {MODEL}\nengine: {{kind: fake}}\nrouter:\n  tls:\n    {tls}\n")
        ran = subprocess.run([BIN, "plan", "--config", str(job)], capture_output=True, text=True, timeout=60)
        return ran.returncode, ran.stderr

    assert plan(f"certificate: {at}.pem\n    key: {at}.key")[0] == 0
    for tls, place, why in [
        (f"certificate: {at}.pem", "5:", "router.tls.key: is missing"),
        (f"certificate: none.pem\n    key: {at}.key", "6:18: ", "router.tls.certificate: cannot read"),
        (f"certificate: {at}.pem\n    key: {authority.folder}/another.key", "7:10: ", "router.tls.key: "),
        (f"certificate: {at}.pem\n    key: {at}.key\n    keys: x", "8:", "router.tls.keys"),
    ]:
        code, said = plan(tls)
        assert code == 2 and f"job.yaml:{place}" in said and why in said, said
    os.chmod(at + ".key", 0o644)
    code, said = plan(f"certificate: {at}.pem\n    key: {at}.key")
    assert code == 2 and "run `chmod 600" in said, said


ADMIN_KEY = "a-key-of-the-people-on-duty"


def guarded_launcher(authority, folder):
    """The address of a launcher that others may reach, and the keys of its job file."""
    at = f"{authority.folder}/launcher"
    authority.issue("launcher", at)
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))  # Counts as an address that others reach.
        address = f"127.0.0.2:{taken.getsockname()[1]}"
    with open(f"{folder}/admin.key", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(ADMIN_KEY + "\n")
    return address, f"admin: '{address}', admin_key_file: {folder}/admin.key, admin_tls: {{certificate: {at}.pem, key: {at}.key}}"


def test_the_launchers_address_beyond_loopback_wants_its_key_over_https(authority):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        address, launcher = guarded_launcher(authority, folder)
        with running_job(folder, launcher=launcher) as job, httpx.Client(verify=False, base_url=f"https://{address}", timeout=60) as visitor:
            assert job.status()["state"] == "ready", "this machine's commands go on to ask at loopback, without that key"
            assert visitor.get("/").status_code == 200 and "key-form" in visitor.get("/").text, "the page itself has no secret"
            began = time.monotonic()
            for key in ("", "Bearer wrong"):
                refused = visitor.get("/status", headers={"Authorization": key})
                assert refused.status_code == 401 and "ready" not in refused.text
            assert time.monotonic() - began >= 1.9, "a wrong key is answered a second later"
            key = {"Authorization": "Bearer " + ADMIN_KEY}
            assert visitor.get("/status", headers=key).json()["state"] == "ready"
            found = visitor.get("/sd", headers=key).json()
            assert {target["labels"]["__scheme__"] for target in found} == {"https"} and found[0]["targets"] == [address]
            assert visitor.get("/metrics/all", headers=key).status_code == 200
            assert visitor.post("/scale", headers=key, content="decode=2").status_code == 401, "an order wants the owner's key"
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"http://{address}/status", headers=key, timeout=30).raise_for_status()
