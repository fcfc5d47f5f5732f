"""A key holder, a stranger and a neighbour attack a real job. No process dies, other tenants are answered, and memory stays bounded.

Each attack once killed, hung or filled a process, opened what was not the attacker's, or is a variant of one that did. After each attack the same
four facts are checked (`Fort.stands`). The expected answer to an attack is written beside it.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import pathlib
import re
import socket
import subprocess
import tempfile
import time

import httpx
import pytest

from conftest import BIN, eventually, job_yaml, metric, running_job

KEYS = {"alice": "sk-alice-0123456789", "mallory": "sk-mallory-666", "poor": "sk-poor-1357"}
GROWTH_BYTES_MAX = 300 << 20
ANSWER_SECONDS_MAX = 5
MIB = 1 << 20


def tenants():
    limits = {"poor": "tokens_per_minute: 500", "alice": "priority: 5", "mallory": "priority: 5"}
    entries = [f"{name}: {{key_sha256: {hashlib.sha256(key.encode()).hexdigest()}, {limits[name]}}}" for name, key in KEYS.items()]
    return "tenants: {" + ", ".join(entries) + "}"


class Fort:
    """The job under attack, and its invariants."""

    def __init__(self, job, folder):
        self.job = job
        self.folder = pathlib.Path(folder)
        self.address = job.url.removeprefix("http://").rsplit(":", 1)
        self.pids = self.pids_now()
        self.alice = httpx.Client(base_url=job.url, headers=self.key("alice"), timeout=60)
        self.mallory = httpx.Client(base_url=job.url, headers=self.key("mallory"), timeout=120)
        self.greet()  # Warms the caches.
        begun = time.monotonic()
        self.reference = [self.greet() for _ in range(3)][0]
        self.usual_seconds = (time.monotonic() - begun) / 3
        self.memory = self.memory_now()

    @staticmethod
    def key(name):
        return {"Authorization": "Bearer " + KEYS[name]}

    def pids_now(self):
        return {name: process["pid"] for name, process in self.job.processes().items()}

    def memory_now(self):
        """Returns the bytes of memory that the job's processes own. The model is a mapped file, and does not count."""
        total = 0
        for pid in [self.job.pid, *self.pids_now().values()]:
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                total += int(line.split()[1]) * 1024 if line.startswith("RssAnon:") else 0
        return total

    def greet(self):
        """Returns alice's answer to one small greedy request."""
        body = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
        reply = self.alice.post("/v1/completions", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["text"]

    @contextlib.contextmanager
    def others_are_answered(self):
        """During the attack alice is answered in time, and gets the same answer as before."""
        worst = 0.0
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            going_on = True

            def ask():
                nonlocal worst
                while going_on:
                    begun = time.monotonic()
                    assert self.greet() == self.reference
                    worst = max(worst, time.monotonic() - begun)
                    time.sleep(0.05)

            asking = pool.submit(ask)
            try:
                yield
            finally:
                going_on = False
            asking.result(120)
        # A sanitizer build on a busy machine is slow anyway; an attack that stops a process delays it for longer.
        assert worst < ANSWER_SECONDS_MAX + 20 * self.usual_seconds, f"alice waited for {worst:.1f} s"

    def stands(self):
        assert self.greet() == self.reference
        assert self.pids_now() == self.pids, "a process died"
        assert all(process["state"] == "ready" for process in self.job.processes().values())
        eventually(lambda: self.memory_now() - self.memory < GROWTH_BYTES_MAX, 20, "memory to come back")

    def completion(self, client=None, **fields):
        body = {"model": "smollm2", "prompt": "Once", "max_tokens": 4, "temperature": 0, **fields}
        return (client or self.mallory).post("/v1/completions", json=body)

    def worker_urls(self):
        return [p["url"] for p in self.job.processes().values() if p["role"] in ("prefill", "decode")]

    def send_raw(self, data, wait=10.0):
        """Sends bytes on a new connection. Returns the status line, or "" without an answer."""
        with socket.create_connection((self.address[0], int(self.address[1])), timeout=wait) as peer:
            with contextlib.suppress(OSError):
                peer.sendall(data)
            with contextlib.suppress(OSError):
                return peer.recv(4096).split(b"\r\n")[0].decode()
        return ""


@pytest.fixture(scope="module")
def fort():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        # A sanitizer holds freed memory back to find late uses. That memory is not the job's.
        quiet = {"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}
        router = f"{tenants()}, async: {{file: {folder}/async.sqlite, results_max: 8}}"
        with running_job(folder, decode=2, router=router, env=quiet) as job:
            yield Fort(job, folder)


@pytest.fixture(autouse=True)
def what_must_hold(fort):
    with fort.others_are_answered():
        yield
    fort.stands()


# ---- Structured output

def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": value, "strict": True}}}


def doubling(levels):
    """Each level refers to the next one twice, so there are 2 ** levels ways."""
    definitions = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(levels)}
    definitions[f"d{levels}"] = {"type": "integer"}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def nested(levels):
    value = {"type": "integer"}
    for _ in range(levels):
        value = {"type": "array", "items": value}
    return value


REFUSED_SCHEMAS = {
    "endless_reference": {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "long_property_name": {"type": "object", "properties": {"_" * 60000: {"type": "integer"}}, "required": ["_" * 60000]},
    "long_name_beside_any_other": {"type": "object", "properties": {"a" * 60000: {}}, "additionalProperties": True},
    "long_const": {"const": "c" * 60000},
    "nested_arrays": nested(60),
    "huge_lengths": {"type": "string", "minLength": 900_000, "maxLength": 1_000_000},
    "unknown_keyword_that_constrains": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
}


@pytest.mark.parametrize("name", REFUSED_SCHEMAS)
def test_a_schema_that_is_too_much_is_refused(fort, name):
    reply = fort.completion(**schema(REFUSED_SCHEMAS[name]))
    assert reply.status_code == 400, reply.text[:300]
    assert reply.json()["error"]["type"] == "invalid_request_error"


ODD_SCHEMAS = {
    "doubles_at_each_level": doubling(40),
    "huge_item_counts": {"type": "array", "items": {"type": "array", "items": {"type": "string"}, "minItems": 5000}, "minItems": 5000},
}


@pytest.mark.parametrize("name", ODD_SCHEMAS)
def test_an_odd_schema_is_refused_or_served(fort, name):
    assert fort.completion(**schema(ODD_SCHEMAS[name])).status_code in (200, 400)


HOSTILE_GRAMMARS = {
    "ambiguous": "root ::= " + "x " * 40 + '\nx ::= "#" | "##"',
    "repeated_literal": 'root ::= "' + "a" * 5000 + '"{2000}',
    "left_recursive": 'root ::= root "a" | "a"',
    "repeated_nothing": "root ::= ((a?)*)*\n" + 'a ::= "a"?',
    "nested_repetition": 'root ::= ((("a"{500}){500}){500}){500}',
    "many_rules": "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} | r{i + 1} r{i + 1}" for i in range(3000)) + '\nr3000 ::= "a"',
}


@pytest.mark.parametrize("name", HOSTILE_GRAMMARS)
def test_a_hostile_grammar_costs_its_sender_only(fort, name):
    reply = fort.completion(structured_outputs={"grammar": HOSTILE_GRAMMARS[name]}, n=4, max_tokens=8)
    assert reply.status_code in (200, 400), reply.text[:300]


def test_many_hostile_grammars_at_once_cost_their_sender_only(fort):
    def attack(number):
        return fort.completion(structured_outputs={"grammar": HOSTILE_GRAMMARS["ambiguous"] + f"\n# {number}"}, max_tokens=8).status_code

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(attack, range(24))) <= {200, 400, 429, 503}


def test_a_pattern_is_enforced_or_refused(fort):
    reply = fort.completion(prompt="def my_function():", max_tokens=24, **schema({"type": "string", "pattern": "[0-9]{3}"}))
    assert reply.status_code in (200, 400)
    if reply.status_code == 200 and reply.json()["choices"][0]["finish_reason"] == "stop":
            assert re.search("[0-9]{3}", json.loads(reply.json()["choices"][0]["text"]))


def test_no_line_of_a_log_is_written_by_a_client(fort):
    forged = "2026-01-01T00:00:00.000Z error kv: the link to prefill-0 ended"
    for field in ({"model": "x\n" + forged}, schema({"type": "string", "pattern": "(?<a>\n" + forged}), {"user": "\n" + forged}):
        fort.completion(**field)
    fort.mallory.get("/v1/nowhere%0A" + forged.replace(" ", "%20"))
    fort.completion(structured_outputs={"grammar": f"root ::= \n{forged}"})
    for log in fort.folder.glob("logs/*.log"):
        assert not any(line.startswith(forged) for line in log.read_text(errors="replace").splitlines()), log


# ---- Large and odd bodies

def test_a_body_of_many_long_prompts_stops_nobody(fort):
    prompts = ["word " * 24000] * 256  # 31 MB.
    assert fort.completion(prompt=prompts).status_code == 400


@pytest.mark.parametrize("fields", [
    {"prompt": [1] * 5_000_000},
    {"prompt": [[1, 2, 3]] * 256, "n": 16, "logprobs": 20, "max_tokens": 1},
    {"logit_bias": {str(i): 1 for i in range(200_000)}},
    {"stop": ["s" * 1000] * 20_000},
    {"pdjob_resume": [[1] * 1_000_000]},
    {"max_tokens": 1e308},
    {"prompt": "x" * 20_000_000},
    {"model": "m" * 20_000_000},
], ids=lambda fields: "+".join(fields))
def test_an_odd_body_stops_nobody(fort, fields):
    assert fort.completion(**fields).status_code in (200, 400, 404, 413, 422, 429)


def test_a_conversation_of_thousands_of_messages_stops_nobody(fort):
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": "word " * 1000} for i in range(4001)]
    reply = fort.mallory.post("/v1/chat/completions", json={"model": "smollm2", "messages": messages, "max_tokens": 1})
    assert reply.status_code == 400, reply.text[:200]


@pytest.mark.parametrize("path,body", [("/detokenize", {"tokens": [1] * 5_000_000}), ("/tokenize", {"prompt": "word " * 5_000_000})])
def test_tokenizing_too_much_is_refused(fort, path, body):
    assert fort.mallory.post(path, json={"model": "smollm2", **body}).status_code in (400, 413)


def test_json_that_nests_without_end_is_refused(fort):
    for body in ('{"prompt":' + "[" * 1_000_000, '{"a":[}' + ',"prompt":"x"}', '{"prompt":"x","a":' * 100_000):
        reply = fort.mallory.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code == 400


# ---- Without a key

def head(length, key=None):
    authorization = f"Authorization: Bearer {KEYS[key]}\r\n" if key else ""
    return (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{authorization}Content-Type: application/json\r\n"
            f"Content-Length: {length}\r\n\r\n").encode()


def test_bodies_without_a_key_are_refused_before_they_are_kept(fort):
    begun = fort.memory_now()
    peers = [socket.create_connection((fort.address[0], int(fort.address[1])), timeout=10) for _ in range(40)]
    part = b'{"prompt":"' + b"x" * (16 * MIB)
    for peer in peers:
        peer.settimeout(0.5)
        with contextlib.suppress(OSError):
            peer.sendall(head(32 * MIB))
            peer.sendall(part)
    assert fort.memory_now() - begun < 100 * MIB
    for peer in peers:
        peer.close()
    assert "401" in fort.send_raw(head(32 * MIB))


def test_connections_that_send_no_whole_head_keep_nobody_out(fort):
    peers = [socket.create_connection((fort.address[0], int(fort.address[1])), timeout=10) for _ in range(500)]
    for peer in peers:
        peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 4096)
    fort.greet()
    for peer in peers:
        peer.close()


def test_a_key_is_wanted_at_every_door_of_a_worker(fort):
    doors = [("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("POST", "/tokenize"), ("POST", "/detokenize"),
             ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/pdjob/worker"), ("GET", "/pdjob/links"), ("GET", "/pdjob/kv_events"),
             ("DELETE", "/pdjob/transfers/" + "0" * 32)]
    urls = fort.worker_urls()
    assert len(urls) == 3
    for url in urls:
        for headers in ({}, Fort.key("mallory"), {"Authorization": "Bearer x"}):
            for method, path in doors:
                body = {"model": "smollm2", "prompt": "x"} if method == "POST" else None
                reply = httpx.request(method, url + path, json=body, headers=headers, timeout=20)
                assert reply.status_code == 401, (url, path, reply.status_code)


def test_the_router_tells_strangers_nothing_of_its_workers(fort):
    for path in ("/pdjob/workers", "/pdjob/members", "/v1/models"):
        assert httpx.get(fort.job.url + path, timeout=20).status_code == 401


# ---- Attacks on other tenants

def tokens_reused(fort, secret, client, headers=None):
    """Returns how many tokens of a prompt the prefill worker reused. A few of alice's greetings may be counted too."""
    (prefill,) = [process["url"] for process in fort.job.processes().values() if process["role"] == "prefill"]
    before = metric(prefill, "pdjob_prefix_cache_hits_total")
    reply = client.post("/v1/completions", json={"model": "smollm2", "prompt": secret, "max_tokens": 1}, headers=headers)
    assert reply.status_code == 200, reply.text
    told = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert told == metric(prefill, "pdjob_prefix_cache_hits_total") - before
    return told


@pytest.mark.parametrize("headers", [None, {"x-pdjob-tenant": "alice"}], ids=["as_oneself", "by_her_name"])
def test_a_tenant_shares_no_computed_prompt_with_another(fort, headers):
    secret = f"My secret plan {headers} is to buy the island of Bornholm and to paint it blue. " * 16
    tokens_reused(fort, secret, fort.alice)
    assert tokens_reused(fort, secret, fort.alice) > 200, "her own next turn is cheap"
    assert tokens_reused(fort, secret, fort.mallory, headers) < 100


def test_no_number_form_and_no_list_gets_around_a_token_rate(fort):
    with httpx.Client(base_url=fort.job.url, headers=Fort.key("poor"), timeout=60) as poor:
        raw = '{"model":"smollm2","prompt":"Once","ignore_eos":true,%s}'
        forms = ['"max_tokens":600.0', '"max_tokens":6e2', '"max_tokens":100,"n":8', '"max\\u005ftokens":600',
                 '"max_tokens":1,"max_tokens":600', '"max_completion_tokens":null,"max_tokens":600']
        for form in forms:
            reply = poor.post("/v1/completions", content=raw % form, headers={"Content-Type": "application/json"})
            assert reply.status_code in (400, 429), (form, reply.text[:200])
        reply = poor.post("/v1/completions", json={"model": "smollm2", "prompt": ["Once"] * 64, "max_tokens": 10})
        assert reply.status_code in (400, 429), reply.text[:200]


def test_a_tenant_evicts_no_answer_of_another(fort):
    def submit(client, count):
        ids = []
        for _ in range(count):
            reply = client.post("/v1/async/completions", json={"model": "smollm2", "prompt": "Once", "max_tokens": 1})
            if reply.status_code == 202:
                ids.append(reply.json()["id"])
        return ids

    def completed(client, name):
        reply = client.get(f"/pdjob/requests/{name}")
        return reply.status_code == 200 and reply.json()["status"] == "completed"

    (hers,) = submit(fort.alice, 1)
    eventually(lambda: completed(fort.alice, hers), 30, "her answer")
    for _ in range(3):  # More than the server keeps.
        for name in submit(fort.mallory, 8):
            eventually(lambda name=name: completed(fort.mallory, name), 30, "an answer")
    assert completed(fort.alice, hers)


def test_a_list_of_no_tenants_opens_nothing(fort, tmp_path):
    config = tmp_path / "job.yaml"
    config.write_text(job_yaml(tmp_path, router="tenants: {}"))
    refusal = subprocess.run([BIN, "plan", "--config", str(config)], capture_output=True, text=True, timeout=60)
    assert refusal.returncode == 2
    assert "tenants" in refusal.stderr
