"""Doubles of vLLM's engines, for KV protocols that no engine on this machine speaks. They compute nothing, but check every word of a leg. They
complain about everything that the real engine would fail to understand, or would silently misread. A decode double answers only with KV that a
prefill double of the same fleet has for it.

The real ones, in vllm-project/vllm: vllm/distributed/kv_transfer/kv_connector/v1/mooncake/{mooncake_connector,mooncake_utils}.py,
nixl/push_scheduler.py beside them, and in examples/disaggregated mooncake_connector/mooncake_connector_proxy.py and
disaggregated_serving/disagg_proxy_pushconnector_demo.py.
"""

import contextlib
import http.server
import itertools
import json
import select
import socket
import threading
import time
import urllib.request


class Fleet:
    """The engines' shared state: their complaints, and where each prompt's KV is. An engine waits `wait_seconds` for KV, or for leave to go
    on; the real ones wait for 480."""

    def __init__(self, wait_seconds=10):
        self.wait_seconds = wait_seconds
        self.complaints = []
        self.cancelled = []  # The names of doubles whose leg was closed while it waited.
        self.kv = {}  # (engine_id, id of the transfer): prompt
        self.moved = []  # The ids of transfers that were taken.
        self._used = set()
        self._changed = threading.Condition()

    def use_once(self, what):
        with self._changed:
            assert what not in self._used, f"{what} is used twice"
            self._used.add(what)

    def keep(self, engine_id, hand_over, prompt):
        with self._changed:
            self.kv[engine_id, hand_over] = prompt
            self._changed.notify_all()

    def take(self, engine_id, hand_over):
        """Returns the prompt, or None while there is none."""
        with self._changed:
            self._changed.wait_for(lambda: (engine_id, hand_over) in self.kv, 0.02)
            prompt = self.kv.pop((engine_id, hand_over), None)
            if prompt is not None:
                self.moved.append(hand_over)
            return prompt

    def forget(self, engine_ids):
        with self._changed:
            self.kv = {key: prompt for key, prompt in self.kv.items() if not any(engine_id in key[0] for engine_id in engine_ids)}


class Refused(Exception):
    """An engine's answer with an error status of its own."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.double.connections.append(self.connection)

    def do_GET(self):
        double = self.server.double
        is_front_end = self.server in double.live[:1]  # A bootstrap server has a thread of its own, and goes on answering.
        while is_front_end and double.deaf.is_set() and self.client_is_here():
            time.sleep(0.02)
        status, body = double.get(self.server, self.path)
        self.reply(status, body, "text/plain") if isinstance(body, str) else self.reply(status, json.dumps(body))

    def do_POST(self):
        double = self.server.double
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if double.post(self, raw):
            return
        body = json.loads(raw)
        try:
            reply = double.generate(self, body)
        except ConnectionAbortedError:
            double.fleet.cancelled.append(double.name)
            self.close_connection = True
            return
        except Refused as refused:
            self.reply(500, json.dumps({"error": {"message": str(refused), "type": "InternalServerError", "param": None, "code": 500}}))
            return
        except (AssertionError, KeyError, TypeError) as complaint:
            double.fleet.complaints.append(f"{double.name}: {complaint!r} in {body}")
            self.reply(400, json.dumps({"error": {"message": repr(complaint), "type": "BadRequestError", "param": None, "code": 400}}))
            return
        if body.get("stream"):
            double.stream(self, body, reply)
        else:
            self.reply(200, json.dumps(reply))

    def reply(self, status, text, kind="application/json"):
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    def client_is_here(self):
        readable, _, _ = select.select([self.connection], [], [], 0)
        return not readable or self.connection.recv(1, socket.MSG_PEEK) != b""

    def wait_until(self, happened):
        """Returns the result of `happened` once it is true. Raises ConnectionAbortedError as soon as the client has left."""
        deadline = time.monotonic() + self.server.double.fleet.wait_seconds
        while time.monotonic() < deadline:
            if result := happened():
                return result
            if not self.client_is_here():
                raise ConnectionAbortedError
        raise Refused("KV load failed")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, double, port=0, host="127.0.0.1"):
        super().__init__((host, port), Handler)
        self.double = double
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, *_):
        pass


class EngineDouble:
    """An engine that serves one model over HTTP. It can die, and be started again as another engine."""

    incarnations = itertools.count()
    servers = 1

    def __init__(self, fleet, name, ports=None, host="127.0.0.1"):
        self.fleet, self.name, self.host = fleet, name, host
        self.go = threading.Event()  # While cleared, the engine does not finish.
        self.go.set()
        self.deaf = threading.Event()  # While set, its front end answers no GET though the engine computes, like vLLM's during a long prompt.
        self.asked = 0
        self.ports = ports or [0] * self.servers
        self.start()

    def start(self):
        self.connections = []
        self.engine_ids = [f"{self.name}-{next(self.incarnations)}"]
        self.live = [Server(self, port, self.host) for port in self.ports]
        self.ports = [server.server_address[1] for server in self.live]

    def die(self):
        for server in self.live:
            server.shutdown()
            server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.live = []
        self.fleet.forget(self.engine_ids)

    @property
    def url(self):
        return f"http://{self.host}:{self.ports[0]}"

    def post(self, http, raw):
        """Answers a POST that generates nothing, and returns True; otherwise False."""
        return False

    def get(self, server, path):
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "double", "object": "model"}]}
        return (200, {}) if path == "/health" else (404, {"detail": "Not Found"})

    def generate(self, http, body):
        self.asked += 1
        for bootstrap in ("bootstrap_host", "bootstrap_port", "bootstrap_room"):
            assert bootstrap not in body, "that is SGLang's"
        return self.answer(http, body, body["prompt"], body.get("kv_transfer_params"))

    def text(self, http, text):
        return {"id": "cmpl-" + http.headers["X-Request-Id"], "choices": [{"index": 0, "text": text, "finish_reason": "length"}],
                "kv_transfer_params": None}

    def stream(self, http, _, reply):
        http.reply(200, "".join(f"data: {event}\n\n" for event in (json.dumps(reply), "[DONE]")), "text/event-stream")


def check_prefill(body):
    assert body["max_tokens"] == 1
    assert not body.get("stream") and "stream_options" not in body
    assert body.get("n", 1) == 1


class RankedPrefillDouble(EngineDouble):
    """A prefill engine of `ranks` data-parallel engines."""

    def __init__(self, fleet, name, ranks=1):
        self.ranks = ranks
        super().__init__(fleet, name)

    def start(self):
        super().start()
        self.engine_ids = [f"{self.engine_ids[0]}_dp{rank}" for rank in range(self.ranks)]


class MooncakePrefillDouble(RankedPrefillDouble):
    """MooncakeConnector as kv_producer, with a bootstrap server and `ranks` data-parallel engines."""

    servers = 2

    @property
    def url(self):
        return f"{super().url}?bootstrap_port={self.ports[1]}"

    def get(self, server, path):
        if server.server_address[1] != self.ports[1]:
            return super().get(server, path)
        if path != "/query":
            return 404, {"detail": "Not Found"}
        return 200, {str(rank): {"engine_id": engine_id, "worker_addr": {"0": {"0": f"tcp://127.0.0.1:{1024 + rank}"}}}
                     for rank, engine_id in enumerate(self.engine_ids)}

    def answer(self, http, body, prompt, params):
        check_prefill(body)
        assert params == {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": params["transfer_id"]}
        rank = int(http.headers["X-data-parallel-rank"])
        assert 0 <= rank < self.ranks
        self.fleet.use_once(("transfer", params["transfer_id"]))
        engine_id = self.engine_ids[rank]
        http.wait_until(self.go.is_set)
        self.fleet.keep(engine_id, params["transfer_id"], prompt)
        return self.text(http, "?")


class MooncakeDecodeDouble(EngineDouble):
    """MooncakeConnector as kv_consumer. It asks the bootstrap server for the engine that it fetches from."""

    def answer(self, http, body, prompt, params):
        if params is None:
            return self.text(http, f"{prompt} by myself")
        assert "X-data-parallel-rank" not in http.headers, "that is the prefill engine's rank"
        expected = {"do_remote_decode", "do_remote_prefill", "transfer_id", "remote_bootstrap_addr", "remote_engine_id"}
        assert set(params) == expected
        assert params["do_remote_prefill"] is True and params["do_remote_decode"] is False
        assert params["remote_bootstrap_addr"].startswith("http://")
        try:
            with urllib.request.urlopen(params["remote_bootstrap_addr"] + "/query", timeout=5) as reply:
                engines = {entry["engine_id"] for entry in json.load(reply).values()}
        except OSError as error:
            raise Refused(f"bootstrap: {error}") from None
        if params["remote_engine_id"] not in engines:
            raise Refused(f"no engine {params['remote_engine_id']}")
        fetched = http.wait_until(lambda: self.fleet.take(params["remote_engine_id"], params["transfer_id"]))
        assert fetched == prompt, "KV of another prompt"
        http.wait_until(self.go.is_set)
        return self.text(http, f"{prompt} and so on")


def base_id(http):
    """Returns the part of the request id that both engines share. Each engine appends eight random digits of its own."""
    return f"cmpl-{http.headers['X-Request-Id']}-0"


class PushPrefillDouble(RankedPrefillDouble):
    """NixlPushConnector, which writes KV to the decode engine that asks for it. Requests go to its data-parallel ranks in turn."""

    def address(self, rank):
        return {"remote_engine_id": self.engine_ids[rank], "remote_host": "10.9.8.7", "remote_port": 5600 + rank, "tp_size": 2}

    def answer(self, http, body, prompt, params):
        check_prefill(body)
        nulls = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")
        assert params == {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": params["transfer_id"], **dict.fromkeys(nulls)}
        self.fleet.use_once(("transfer", params["transfer_id"]))
        self.fleet.use_once(("request", base_id(http)))
        rank = self.asked % self.ranks
        address = self.address(rank)
        http.wait_until(self.go.is_set)
        self.fleet.keep(json.dumps(address), base_id(http), prompt)
        returned = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[1, 2]], **address,
                    "remote_request_id": base_id(http) + "-0123abcd", "pp_size": 1, "remote_num_tokens": len(prompt), "transfer_mode": "push"}
        return {**self.text(http, "?"), "kv_transfer_params": returned}


class PushDecodeDouble(EngineDouble):
    """The other end of NixlPushConnector. It tells where its blocks are, and waits."""

    def answer(self, http, body, prompt, params):
        if params is None:
            return self.text(http, f"{prompt} by myself")
        assert params["do_remote_prefill"] is True and params["do_remote_decode"] is False
        assert params["transfer_mode"] == "push" and params["transfer_id"]
        assert params["remote_request_id"].startswith((http.headers["X-Request-Id"], base_id(http)))
        engine = json.dumps({key: params[key] for key in ("remote_engine_id", "remote_host", "remote_port", "tp_size")})
        pushed = http.wait_until(lambda: self.fleet.take(engine, base_id(http)))
        assert pushed == prompt, "KV of another prompt"
        http.wait_until(self.go.is_set)
        return self.text(http, f"{prompt} and so on")
