"""A stand-alone router before engines of another make, one of which answers every request badly while its health checks are fine: clients notice
nothing, requests do not go there, and the operator is told."""

import concurrent.futures
import http.server
import json
import tempfile
import threading

import httpx
import pytest

from conftest import Process, eventually, get, metric

REQUESTS = 300
BODY = {"model": "m", "prompt": "the quick brown fox", "max_tokens": 2}
ANSWER = {"id": "x", "object": "text_completion", "model": "m", "choices": [{"index": 0, "text": "ok", "finish_reason": "stop"}]}
# It is tried 0.1 s, 0.2 s, ... after each failure, so a dozen times in the time that a test takes; and three times before it is known.
TRIES = 60


class Engine:
    """Answers health checks, and `status` to each request; with `key`, 401 to requests with another one."""

    def __init__(self, status=200, key=None, headers=()):
        self.status, self.key, self.headers, self.asked = status, key, dict(headers), 0
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                known = {"/health": {}, "/v1/models": {"object": "list", "data": [{"id": "m", "object": "model"}]}}
                self.answer(200, known[self.path]) if self.path in known else self.answer(404, {})

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                owner.asked += 1
                wrong = owner.key is not None and self.headers["authorization"] != f"Bearer {owner.key}"
                status = 401 if wrong else owner.status
                self.answer(status, ANSWER if status == 200 else {"error": {"message": "no", "code": status}})

            def answer(self, status, body):
                text = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", "content-length": str(len(text)), **owner.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Routed:
    """A router before these engines."""

    def __init__(self, *engines, words=()):
        self.engines, self.words = engines, words

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="pdjob-test-")
        flags = [part for engine in self.engines for part in ("--worker", engine.url)]
        self.router = Process(["pdjob", "router", "--listen", "127.0.0.1:0", *flags, *self.words], self.folder.name).wait_ready()
        self.url = self.router.url
        eventually(lambda: get(self.url + "/pdjob/workers").count('"healthy"') == len(self.engines), 20, "all engines known")
        return self

    def __exit__(self, *_):
        self.router.stop()
        [engine.stop() for engine in self.engines]
        self.folder.cleanup()

    def statuses(self, count, headers=None):
        """Asked four at a time: one after the other, a policy may give all to the same engine."""
        with httpx.Client(base_url=self.url, timeout=60, headers=headers) as client, concurrent.futures.ThreadPoolExecutor(4) as four:
            return list(four.map(lambda _: client.post("/v1/completions", json=BODY).status_code, range(count)))

    def workers(self):
        return {f"http://{worker['host']}:{worker['port']}": worker for worker in json.loads(get(self.url + "/pdjob/workers"))["workers"]}


@pytest.mark.parametrize("policy", ["least_loaded", "round_robin", "prefix_aware", "power_of_two", "random", "consistent_hash"])
def test_an_engine_that_always_says_503_attracts_nobody(policy):
    bad, good = Engine(503), Engine()
    with Routed(bad, good, words=["--policy", policy]) as routed:
        assert routed.statuses(REQUESTS) == [200] * REQUESTS
        assert bad.asked <= TRIES
        assert routed.workers()[bad.url]["trouble"] == "it answered 503"
        assert "trouble" not in routed.workers()[good.url]


@pytest.mark.parametrize("status, headers", [(401, {}), (403, {}), (404, {}), (429, {"retry-after": "1"}), (500, {}), (502, {}), (302, {"location": "/"})])
def test_what_one_engine_refuses_another_one_answers(status, headers):
    bad, good = Engine(status, headers=headers), Engine()
    with Routed(bad, good) as routed:
        assert routed.statuses(REQUESTS) == [200] * REQUESTS
        assert bad.asked <= TRIES


def test_an_engine_with_another_key_is_the_operators_matter(tmp_path):
    (tmp_path / "key").write_text("k" * 32 + "\n")
    (tmp_path / "key").chmod(0o600)
    bad, good = Engine(key="another"), Engine(key="k" * 32)
    with Routed(bad, good, words=["--worker-key-file", str(tmp_path / "key")]) as routed:
        assert routed.statuses(REQUESTS) == [200] * REQUESTS
        assert bad.asked <= TRIES
        assert routed.workers()[bad.url]["trouble"] == "it answered 401: it refuses the key of its requests"
    with Routed(Engine(key="another"), words=["--worker-key-file", str(tmp_path / "key")]) as routed:
        reply = httpx.post(routed.url + "/v1/completions", json=BODY, timeout=60)
        assert reply.status_code == 503 and "it answered 401" in reply.json()["error"]["message"]


def test_a_clients_wrong_key_is_the_clients_matter():
    engines = Engine(key="right"), Engine(key="right")
    with Routed(*engines) as routed:
        assert routed.statuses(20, {"authorization": "Bearer wrong"}) == [401] * 20
        assert routed.statuses(20, {"authorization": "Bearer right"}) == [200] * 20
        assert metric(routed.url, "pdjob_router_out_of_retries_total") == 0


def test_an_engine_that_was_mended_serves_again():
    bad, good = Engine(500), Engine()
    with Routed(bad, good) as routed:
        assert routed.statuses(50) == [200] * 50
        bad.status = 200
        before = bad.asked
        eventually(lambda: routed.statuses(10) == [200] * 10 and bad.asked > before + 20, 60, "it serves again")
        assert "trouble" not in routed.workers()[bad.url]
