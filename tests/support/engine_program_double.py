#!/usr/bin/env python3
"""Doubles of the programs `vllm serve` and `python3 -m sglang.launch_server`. They compute nothing, and say so in their logs. They take the
flags, variables, routes and KV words that the real ones take, refuse all others, and move each prompt's "KV" over a real socket from one process
to another. Like the real ones they start slowly, take long for their first request, and leave processes of their own.

    engine_program_double.py serve MODEL ...                    vLLM with NixlConnector
    engine_program_double.py -m sglang.launch_server ...        SGLang with disaggregation

With --kv-events-config it publishes what is in its prefix cache (kv_events_double.py), and only then it needs msgspec and pyzmq.

Variables for tests: DOUBLE_FAULT=memory|traceback|package (the start fails), DOUBLE_START_SECONDS, DOUBLE_HANG_FILE (while that file exists,
requests run without progress), DOUBLE_DEAF_FILE (while it exists, GETs take 6 s), DOUBLE_STEP_SECONDS (of a reply), DOUBLE_TASK=transcription (the model
transcribes), DOUBLE_FLIP_FILE (a decode engine whose port is in that file computes with one word of the KV changed), DOUBLE_STALE_FILE (a
decode engine whose port is in that file has a wrong address of the first prefill engine that it fetches from then), DOUBLE_VERSION,
DOUBLE_CACHE_BLOCKS (of its prefix cache).
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import socketserver
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from engine_doubles import EngineDouble, Fleet, Refused, check_prefill  # noqa: E402
from engine_routes_double import Routes  # noqa: E402
from engine_weights_double import Weights  # noqa: E402
from stream_double import StreamWriter, ids_of, text_of  # noqa: E402

BLOCK_TOKENS = 128
START_SECONDS = float(os.environ.get("DOUBLE_START_SECONDS", "0.3"))
COMPILE_SECONDS = 0.5  # Of the first request.
TOKEN_SECONDS = float(os.environ.get("DOUBLE_STEP_SECONDS", "0"))


def say(text):
    print(text, file=sys.stderr, flush=True)


def file_is_there(variable):
    return variable in os.environ and os.path.exists(os.environ[variable])


def fail_at_start():
    fault = os.environ.get("DOUBLE_FAULT", "")
    if fault == "memory":
        say("ERROR EngineCore failed to start.\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.")
        sys.exit(1)
    if fault == "package":
        say("Traceback (most recent call last):\nModuleNotFoundError: No module named 'nixl'")
        sys.exit(1)
    if fault == "traceback":
        raise RuntimeError("Engine core initialization failed. See root cause above.")


class KvServer(socketserver.ThreadingTCPServer):
    """Gives a prompt's KV away, once: a line with its key is answered with a line of JSON."""

    daemon_threads = True
    allow_reuse_address = True

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            key = self.rfile.readline().decode().strip()
            self.wfile.write(json.dumps(self.server.take(key)).encode() + b"\n")

    def __init__(self, host, port):
        self._kept, self._changed = {}, threading.Condition()
        super().__init__((host, port), self.Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def keep(self, key, prompt, seconds):
        with self._changed:
            self._kept[key] = (prompt, time.monotonic() + seconds)
            self._changed.notify_all()

    def take(self, key):
        with self._changed:
            self._changed.wait_for(lambda: key in self._kept, 5)
            prompt, expires = self._kept.pop(key, (None, 0))
            return prompt if time.monotonic() < expires else None


def fetch_kv(host, port, key):
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.sendall(f"{key}\n".encode())
            prompt = json.loads(connection.makefile().readline() or "null")
    except OSError as error:
        raise Refused(f"KV load failed: {error}") from None
    if prompt is None:
        raise Refused("KV load failed: it is not there")
    return prompt


class Ranks:
    """The processes of one engine on this node, and its meeting with the other nodes. As with the real programs, whoever loses a rank or a node ends."""

    def __init__(self, sizes, nodes, node, address, here):
        world = 1
        for size in sizes:
            world *= size
        assert world % nodes == 0, f"{world} ranks on {nodes} nodes"
        self.nodes, self.node, self.address, self.here, self.local = nodes, node, address, here, world // nodes
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        if seen:
            assert len(seen.split(",")) >= self.local, f"{self.local} ranks see only the GPUs {seen}"

    def start(self):
        for rank in range(self.local if self.local * self.nodes > 1 else 0):
            child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(1000)  # rank {self.node * self.local + rank} of the double"])
            threading.Thread(target=lambda child=child: (child.wait(), lost("a rank")), daemon=True).start()
        if self.nodes > 1:
            self.meet()

    def meet(self):
        host, port = self.address
        if self.node > 0:
            connection = self.reach(host, port)
            connection.sendall(f"{self.node}\n".encode())
            threading.Thread(target=lambda: (connection.recv(1), lost("the first node")), daemon=True).start()
            return
        assert host == self.here, f"the first node is {self.here}, not {host}"
        door = socket.create_server((host, port))
        door.settimeout(60)
        came = set()
        while len(came) < self.nodes - 1:
            connection, _ = door.accept()
            number = int(connection.makefile().readline())
            assert number not in came and 0 < number < self.nodes
            came.add(number)
            threading.Thread(target=lambda c=connection: (c.recv(1), lost("a node")), daemon=True).start()
        say(f"DOUBLE: all {self.nodes} nodes are here")

    @staticmethod
    def reach(host, port):
        deadline = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection((host, port), timeout=None)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def lost(what):
    say(f"DOUBLE: {what} is gone")
    os._exit(1)


class ProgramDouble(EngineDouble):
    """What both programs have in common: one model, a key, metrics, and a slow first request."""

    counts_load = False
    caches = ()  # Of each data-parallel rank, where they are published.

    def __init__(self, name, host, port, model, key, routes):
        self.routes, self.weights = routes, Weights(self, name)
        self.model, self.key, self.counts = model, key, {"prompt": 0, "generation": 0, "external": 0}
        self.passed = 0  # Requests that generate no text.
        self.in_flight, self.running = 0, 0  # A request counts as running from its first step on.
        self.seen = {}  # Kept prompts: the weights that computed them.
        self.times = {phase: [0.0, 0] for phase in ("queue", "prefill", "kv")}  # Seconds, and how often.
        self.lock = threading.Lock()
        super().__init__(Fleet(), name, [port], host or "127.0.0.1")
        say(f"DOUBLE of {name}: it computes nothing. Serving on port {port}")

    def get(self, server, path):
        if file_is_there("DOUBLE_DEAF_FILE"):
            time.sleep(6)
        if path == "/v1/models":
            return 200, self.routes.models(int(time.time()))  # As the real ones, at each answer.
        if path == "/openapi.json":
            return 200, self.routes.openapi()
        if path == "/metrics":
            return 200, self.metrics()
        if path == "/load":
            return 200, {"server_load": self.in_flight if self.counts_load else 0}
        if path in ("/version", "/get_server_info"):
            return 200, {"version": os.environ.get("DOUBLE_VERSION", "0.0-double")}
        return super().get(server, path)

    def post(self, http, raw):
        guarded = http.path.startswith("/v1") and http.path not in self.routes.generating
        if self.key and guarded and http.headers["Authorization"] != f"Bearer {self.key}":
            http.reply(401, json.dumps({"error": "Unauthorized"}))
            return True
        try:
            answer = self.weights.answer(http.path, raw) or self.routes.answer(http, raw)
        except (AssertionError, KeyError, TypeError) as complaint:
            say(f"COMPLAINT of the double: {complaint!r} in {raw[:500]}")
            answer = 400, {"error": {"message": repr(complaint), "type": "BadRequestError", "param": None, "code": 400}}
        if answer is None:
            return False
        status, body = answer
        http.reply(status, body, "text/event-stream") if isinstance(body, str) and "event:" in body else http.reply(
            status, body if isinstance(body, str) else json.dumps(body))
        with self.lock:
            self.passed += 1
        return True

    def generate(self, http, body):
        assert not self.key or http.headers["Authorization"] == f"Bearer {self.key}", "the key is missing"
        assert self.routes.knows(body["model"]), f"the model {body['model']} does not exist"
        assert not self.weights.paused, "a request while it is paused"
        with self.lock:
            self.in_flight += 1
        stepped = False
        try:
            prompt = self.prompt_of(body)
            prompt = text_of(prompt) if isinstance(prompt, list) else prompt
            with self.timed("queue"):
                while file_is_there("DOUBLE_HANG_FILE"):
                    time.sleep(0.05)
                if self.asked == 0:
                    time.sleep(COMPILE_SECONDS)
            with self.lock:
                self.asked += 1
                self.running += 1
            stepped = True
            return self.answer(http, body, prompt, body.get("kv_transfer_params"))
        except (AssertionError, KeyError, TypeError) as complaint:
            say(f"COMPLAINT of the double: {complaint!r} in {json.dumps(body)[:500]}")
            raise
        finally:
            with self.lock:
                self.in_flight -= 1
                self.running -= stepped

    def prompt_of(self, body):
        """Returns a text, or token ids."""
        if "prompt" in body:
            return body["prompt"]
        prompt = body["messages"] if "messages" in body else body["input"]
        return prompt if isinstance(prompt, str) else json.dumps(prompt)

    def stream(self, http, body, _):
        prompt = self.prompt_of(body)
        ids = ids_of(prompt) if isinstance(prompt, str) else prompt
        with contextlib.suppress(OSError):
            StreamWriter(http, body, ids, self.model, TOKEN_SECONDS, self.count_token).write()

    @contextlib.contextmanager
    def timed(self, phase):
        began = time.monotonic()
        yield
        with self.lock:
            self.times[phase][0] += time.monotonic() - began
            self.times[phase][1] += 1

    def histogram(self, name, labels, phase):
        """Without its buckets."""
        seconds, count = self.times[phase]
        return f"{name}_sum{{{labels}}} {seconds}\n{name}_count{{{labels}}} {count}\n"

    def kv_of(self, prompt):
        return [self.weights.word, prompt]

    def count_token(self):
        with self.lock:
            self.counts["generation"] += 1

    def take_in(self, prompt, external):
        with self.lock:
            assert self.seen.get(prompt, self.weights.word) == self.weights.word, "a kept prompt of other weights"
            self.counts["prompt"] += len(prompt.split())
            if external and prompt not in self.seen and len(prompt.split()) >= BLOCK_TOKENS:
                self.counts["external"] += len(prompt.split())
            self.seen[prompt] = self.weights.word
        if self.caches:
            cache = self.caches[self.asked % len(self.caches)]
            with cache.lock:
                cache.compute(list(prompt.encode()))

    def complete(self, http, body, prompt):
        if "priority" in body:
            print(f"priority {body['priority']} of {prompt}", flush=True)
        tokens = body.get("max_output_tokens" if http.path == "/v1/responses" else "max_tokens", 16)
        weights = []  # Of each token.
        for _ in range(0 if body.get("stream") else tokens):
            if TOKEN_SECONDS:
                time.sleep(TOKEN_SECONDS)
            self.count_token()
            weights.append(self.weights.word)
        words = [word[::-1] + by for word, by in zip(prompt.split(), weights)]
        if http.path == "/v1/responses":
            content = [{"type": "output_text", "text": " ".join(words), "annotations": []}]
            return {"id": "resp_1", "object": "response", "model": body["model"], "kv_transfer_params": None,
                    "output": [{"type": "message", "role": "assistant", "content": content}]}
        reply = {**self.text(http, " ".join(words)), "object": "text_completion", "model": body["model"]}
        if body.get("logprobs") is not None:
            pieces = [" " * (number > 0) + word for number, word in enumerate(words)]
            reply["choices"][0]["logprobs"] = {"tokens": pieces, "token_logprobs": [-0.01] * len(pieces),
                                               "top_logprobs": [{piece: -0.01, " other": -4.6} for piece in pieces]}
        return reply

    def text(self, http, text):
        return {"id": f"cmpl-{http.headers.get('X-Request-Id', 'none')}", "choices": [{"index": 0, "text": text, "finish_reason": "length"}],
                "kv_transfer_params": None}


class VllmDouble(ProgramDouble):
    def __init__(self, args, config):
        self.config, self.counts_load, self.stale = config, args.enable_server_load_tracking, None
        self.lease = config.get("kv_connector_extra_config", {}).get("kv_lease_duration", 30)
        self.role = config.get("kv_role")
        if config:
            self.side_host, self.side_port = os.environ["VLLM_NIXL_SIDE_CHANNEL_HOST"], int(os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"])
            self.kv = [KvServer(self.side_host, self.side_port + rank) for rank in range(args.data_parallel_size)]
        if args.kv_events_config and args.kv_events_config["enable_kv_cache_events"] and args.enable_prefix_caching:
            self.caches = published_caches("vllm", args.kv_events_config, args.data_parallel_size, args.block_size or 16)
        super().__init__("vllm", args.host, args.port, args.served_model_name or args.model, os.environ.get("VLLM_API_KEY"),
                         Routes("vllm", args.served_model_name or args.model, os.environ.get("DOUBLE_TASK", args.runner), adapters_of(args),
                                os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") in ("1", "True", "true")))

    def metrics(self):
        counts = self.counts
        return (f'vllm:num_requests_running{{engine="0"}} {self.running}\nvllm:num_requests_waiting{{engine="0"}} 0\n'
                f'vllm:kv_cache_usage_perc{{engine="0"}} 0.25\nvllm:generation_tokens_total{{engine="0"}} {counts["generation"]}\n'
                f'vllm:prompt_tokens_total{{engine="0"}} {counts["prompt"]}\n'
                f'vllm:prompt_tokens_by_source_total{{engine="0",source="local_compute"}} {counts["prompt"] - counts["external"]}\n'
                f'vllm:prompt_tokens_by_source_total{{engine="0",source="external_kv_transfer"}} {counts["external"]}\n'
                + self.histogram("vllm:request_queue_time_seconds", 'engine="0"', "queue")
                + self.histogram("vllm:request_prefill_time_seconds", 'engine="0"', "prefill")
                + self.histogram("vllm:nixl_xfer_time_seconds", 'engine="0"', "kv"))

    def answer(self, http, body, prompt, params):
        assert not {"bootstrap_host", "bootstrap_port", "bootstrap_room"} & set(body), "that is SGLang's"
        if params and params.get("do_remote_decode"):
            return self.prefill(http, body, prompt, params)
        if params:
            return self.decode(http, body, prompt, params)
        self.take_in(prompt, external=False)
        return self.complete(http, body, prompt)

    def prefill(self, http, body, prompt, params):
        assert self.role == "kv_producer"
        if http.path == "/v1/responses":
            assert body["max_output_tokens"] == 1 and body["store"] is False and not body.get("stream"), "a prefill leg makes one token"
        else:
            check_prefill(body)
        nulls = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")
        assert params == {"do_remote_decode": True, "do_remote_prefill": False, **dict.fromkeys(nulls)}, params
        self.take_in(prompt, external=False)
        request_id = f"{http.headers['X-Request-Id']}-{self.asked}"
        rank = self.asked % len(self.kv)
        self.kv[rank].keep(f"{self.config['engine_id']} {request_id}", self.kv_of(prompt), self.lease)
        returned = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[1]], "remote_engine_id": self.config["engine_id"],
                    "remote_request_id": request_id, "remote_host": self.side_host, "remote_port": self.side_port + rank, "tp_size": 1}
        with self.timed("prefill"):
            return {**self.complete(http, body, prompt), "kv_transfer_params": returned}

    def decode(self, http, body, prompt, params):
        assert self.role == "kv_consumer"
        assert params["do_remote_prefill"] is True and params["do_remote_decode"] is False
        with self.timed("kv"):
            if self.is_stale(params["remote_engine_id"]):
                raise Refused("KV load failed: Connection refused")
            fetched = fetch_kv(params["remote_host"], params["remote_port"], f"{params['remote_engine_id']} {params['remote_request_id']}")
        assert fetched == self.kv_of(prompt), "KV of another prompt or of other weights"
        self.take_in(prompt, external=True)
        return self.complete(http, body, self.flipped(prompt))

    def is_in(self, variable):
        file = pathlib.Path(os.environ.get(variable, "/nowhere"))
        return file.exists() and str(self.ports[0]) in file.read_text().split()

    def is_stale(self, engine_id):
        with self.lock:
            if self.stale is None and self.is_in("DOUBLE_STALE_FILE"):
                self.stale = engine_id
            return self.stale == engine_id

    def flipped(self, prompt):
        """The prompt as this engine's KV says it."""
        if not self.is_in("DOUBLE_FLIP_FILE"):
            return prompt
        words = prompt.split()
        return " ".join([*words[:2], "flipped", *words[3:]])


class SglangDouble(ProgramDouble):
    def __init__(self, args):
        self.mode, self.has_metrics = args.disaggregation_mode, args.enable_metrics
        if self.mode == "prefill":
            self.kv = KvServer(args.host, args.disaggregation_bootstrap_port)
            self.bootstrap = (args.host, args.disaggregation_bootstrap_port)
        if args.kv_events_config and (self.mode != "decode" or args.disaggregation_decode_enable_radix_cache):
            self.caches = published_caches("sglang", args.kv_events_config, args.dp_size, args.page_size or 1)
        super().__init__("sglang", args.host, args.port, args.served_model_name or args.model_path, None,
                         Routes("sglang", args.served_model_name or args.model_path, "generate", adapters_of(args), loads=True))

    def metrics(self):
        assert self.has_metrics
        # A prefill engine counts what it computes, a decode engine only what it received.
        prompt = self.counts["external"] if self.mode == "decode" else self.counts["prompt"]
        return (f'sglang:num_running_reqs{{tp_rank="0"}} {self.running}\nsglang:num_queue_reqs{{tp_rank="0"}} 0\n'
                f'sglang:num_used_tokens{{tp_rank="0"}} 10\nsglang:max_total_num_tokens{{tp_rank="0"}} 1000\n'
                f'sglang:prompt_tokens_total{{tp_rank="0"}} {prompt}\nsglang:generation_tokens_total{{tp_rank="0"}} {self.counts["generation"]}\n'
                + self.histogram("sglang:queue_time_seconds", 'tp_rank="0"', "queue")
                + self.histogram("sglang:per_stage_req_latency_seconds", 'stage="prefill_forward",tp_rank="0"', "prefill")
                + self.histogram("sglang:per_stage_req_latency_seconds", 'stage="prefill_transfer_kv_cache",tp_rank="0"', "kv"))

    def prompt_of(self, body):
        return body["input_ids"] if body.get("input_ids") else super().prompt_of(body)

    def answer(self, http, body, prompt, params):
        assert params is None, "that is vLLM's"
        if self.mode == "null":
            self.take_in(prompt, external=False)
            return self.complete(http, body, prompt)
        host, port, room = body["bootstrap_host"], body["bootstrap_port"], body["bootstrap_room"]
        assert isinstance(port, int) and isinstance(room, int) and 0 < room < 2**63
        if self.mode == "prefill":
            assert (host, port) == self.bootstrap, "another prefill engine's bootstrap server"
            self.fleet.use_once(("room", room))
            self.take_in(prompt, external=False)
            with self.timed("prefill"):
                answer = self.complete(http, {**body, "max_tokens": 1, "stream": False}, prompt)
            with self.timed("kv"):
                self.kv.keep(str(room), self.kv_of(prompt), 300)
            return answer
        assert fetch_kv(host, port, str(room)) == self.kv_of(prompt), "KV of another prompt or of other weights"
        self.take_in(prompt, external=True)
        return self.complete(http, body, prompt)

    def stream(self, http, body, answer):
        super().stream(http, {**body, "max_tokens": 1} if self.mode == "prefill" else body, answer)


def adapters_of(args):
    """NAME=PATH of each adapter; None: the engine has no place for any."""
    return dict(module.split("=", 1) for module in args.adapters or []) if args.enable_lora else None


KV_EVENTS_KEYS = {"publisher", "endpoint", "replay_endpoint", "buffer_steps", "hwm", "max_queue_size", "topic"}


def kv_events_config(text, more=()):
    config = json.loads(text)
    assert set(config) <= KV_EVENTS_KEYS | set(more), f"unknown words: {config}"
    assert config["publisher"] == "zmq", config
    return config


def of_rank(endpoint, rank):
    """As both programs do: the number behind the last colon grows."""
    base, port = endpoint.rsplit(":", 1)
    return f"{base}:{int(port) + rank}"


def published_caches(make, config, ranks, block):
    from kv_events_double import PrefixCache, Publisher
    # Both programs connect a publisher whose endpoint has no wildcard, so nobody could listen to it.
    assert "*" in config["endpoint"], config["endpoint"]
    blocks_max = int(os.environ.get("DOUBLE_CACHE_BLOCKS", "100000"))
    caches = []
    for rank in range(ranks):
        publisher = Publisher(config.get("topic", ""), endpoints=[of_rank(config["endpoint"], rank), of_rank(config["replay_endpoint"], rank)])
        caches.append(PrefixCache(f"{os.getpid()} {rank}", publisher, blocks_max, block, make))
    return caches


def fail_unless(condition, why):
    assert condition, why
    return False


def vllm(argv):
    parser = argparse.ArgumentParser(prog="vllm serve", allow_abbrev=False)
    parser.add_argument("model")
    for flag in ("--served-model-name", "--host", "--kv-transfer-config", "--dtype", "--distributed-executor-backend", "--attention-backend"):
        parser.add_argument(flag)
    for flag in ("--speculative-config", "--compilation-config"):
        parser.add_argument(flag, type=json.loads)
    parser.add_argument("--kv-events-config", type=lambda text: kv_events_config(text, ["enable_kv_cache_events"]))
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    for flag in ("--port", "--max-model-len", "--max-num-seqs", "--block-size", "--master-port", "--data-parallel-rpc-port"):
        parser.add_argument(flag, type=int)
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--scheduling-policy", default="fcfs", choices=["fcfs", "priority"])
    parser.add_argument("--quantization", "-q")
    for flags in (("--tensor-parallel-size", "-tp"), ("--pipeline-parallel-size", "-pp"), ("--data-parallel-size", "-dp"), ("--nnodes", "-n")):
        parser.add_argument(*flags, type=int, default=1)
    parser.add_argument("--node-rank", "-r", type=int, default=0)
    parser.add_argument("--master-addr", default="127.0.0.1")
    parser.add_argument("--runner", default="generate", choices=["generate", "pooling"])
    parser.add_argument("--lora-modules", nargs="+", dest="adapters")
    parser.add_argument("--max-loras", type=int)
    for flag in ("--enable-lora", "--enforce-eager", "--enable-server-load-tracking", "--enable-expert-parallel", "--headless", "--trust-remote-code"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args(argv)
    args.headless = args.headless or fail_unless(args.node_rank == 0, "only --headless nodes follow")
    args.ranks = Ranks((args.tensor_parallel_size, args.pipeline_parallel_size, args.data_parallel_size), args.nnodes, args.node_rank,
                       (args.master_addr, args.master_port), args.host)
    config = without_store(json.loads(args.kv_transfer_config or "{}"))
    assert set(config) <= {"kv_connector", "kv_role", "engine_id", "kv_buffer_device", "kv_load_failure_policy", "kv_connector_extra_config"}
    assert set(config.get("kv_connector_extra_config", {})) <= {"kv_lease_duration", "bidirectional_kv_xfer"}
    assert not config or (config["kv_connector"] == "NixlConnector" and config["kv_role"] in ("kv_producer", "kv_consumer", "kv_both"))
    return args, lambda: VllmDouble(args, config)


def without_store(config):
    """The connector between engines, of a MultiConnector with a store behind it. Like the real one, an engine does not start without its store."""
    if config.get("kv_connector") in ("MooncakeStoreConnector", "LMCacheMPConnector"):
        check_store(config)
        return {}
    if config.get("kv_connector") != "MultiConnector":
        return config
    first, store = config["kv_connector_extra_config"]["connectors"]
    # Only the one at the top counts.
    assert config["kv_load_failure_policy"] == ("recompute" if first["kv_role"] == "kv_producer" else "fail")
    assert "engine_id" not in store and "engine_id" not in first, "theirs is that of the top"
    check_store(store)
    return {**first, "engine_id": config["engine_id"]}


def check_store(config):
    extra = config.get("kv_connector_extra_config", {})
    assert config["kv_role"] == "kv_both" and os.environ["PYTHONHASHSEED"] == "0"
    if config["kv_connector"] == "LMCacheMPConnector":
        assert set(extra) == {"lmcache.mp.host", "lmcache.mp.port", "lmcache.mp.mq_timeout", "lmcache.mp.heartbeat_interval"}
        host, port = extra["lmcache.mp.host"].removeprefix("tcp://"), extra["lmcache.mp.port"]
    else:
        assert config["kv_connector"] == "MooncakeStoreConnector" and extra == {"load_async": True, "lookup_async": True}
        file = json.loads(pathlib.Path(os.environ["MOONCAKE_CONFIG_PATH"]).read_text(encoding="utf-8"))
        assert file["mode"] == "standalone-store" and file["global_segment_size"] == 0 and file["metadata_server"] == "P2PHANDSHAKE"
        assert file["protocol"] in ("tcp", "rdma")
        host, port = file["master_server_address"].rsplit(":", 1)
    connect_store(host, port)


def connect_store(host, port):
    socket.create_connection((host, int(port)), timeout=2).close()
    say(f"uses the store at {host}:{port}")


def check_hicache(args):
    """As its ServerArgs and its MooncakeStore do."""
    if args.hicache_storage_backend is None:
        assert not args.disaggregation_decode_enable_offload_kvcache, "only supported when hicache-storage-backend is provided"
        return
    assert args.enable_hierarchical_cache != args.disaggregation_decode_enable_offload_kvcache
    assert (args.disaggregation_mode == "decode") == args.disaggregation_decode_enable_offload_kvcache, "only supported for decode side"
    assert args.page_size > 1, "pages of one token would be one object each"
    assert os.environ["MOONCAKE_TE_META_DATA_SERVER"] == "P2PHANDSHAKE" and os.environ["MOONCAKE_PROTOCOL"] in ("tcp", "rdma")
    assert os.environ["MOONCAKE_GLOBAL_SEGMENT_SIZE"] == "0", "it would give memory of its own"
    assert os.environ["MOONCAKE_LOCAL_HOSTNAME"] == args.host
    connect_store(*os.environ["MOONCAKE_MASTER"].rsplit(":", 1))


def sglang(argv):
    parser = argparse.ArgumentParser(prog="launch_server", allow_abbrev=False)
    for flag in ("--model-path", "--served-model-name", "--host", "--device"):
        parser.add_argument(flag)
    parser.add_argument("--disaggregation-ib-device")
    parser.add_argument("--kv-events-config", type=kv_events_config)
    for flag in ("--port", "--disaggregation-bootstrap-port", "--page-size"):
        parser.add_argument(flag, type=int)
    parser.add_argument("--disaggregation-mode", default="null", choices=["null", "prefill", "decode"])
    for flags in (("--tp-size", "--tp"), ("--dp-size", "--dp"), ("--ep-size", "--ep"), ("--nnodes",)):
        parser.add_argument(*flags, type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--dist-init-addr", default="127.0.0.1:0")
    parser.add_argument("--disaggregation-transfer-backend", default="mooncake", choices=["mooncake", "nixl", "ascend", "mori", "fake"])
    parser.add_argument("--lora-paths", nargs="+", dest="adapters")
    for flag in ("--enable-lora", "--enable-metrics", "--enable-dp-attention", "--disaggregation-enable-kv-checksum",
                 "--disaggregation-decode-enable-radix-cache", "--enable-hierarchical-cache", "--disaggregation-decode-enable-offload-kvcache"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--hicache-storage-backend", choices=["mooncake"])
    parser.add_argument("--hicache-storage-prefetch-policy", default="best_effort", choices=["best_effort", "wait_complete", "timeout"])
    args = parser.parse_args(argv)
    check_hicache(args)
    args.headless = args.node_rank > 0  # A follower answers /health alone, and nobody asks it.
    host, port = args.dist_init_addr.rsplit(":", 1)
    args.ranks = Ranks((args.tp_size, 1 if args.enable_dp_attention else args.dp_size), args.nnodes, args.node_rank, (host, int(port)), args.host)
    return args, lambda: SglangDouble(args)


def main():
    say("DOUBLE: this is no real engine")
    argv = sys.argv[1:]
    args, make = vllm(argv[1:]) if argv[0] == "serve" else sglang(argv[2:])
    assert argv[0] == "serve" or argv[:2] == ["-m", "sglang.launch_server"], argv
    # As vLLM's EngineCore and workers. The second one leaves the process group.
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    time.sleep(START_SECONDS)
    fail_at_start()
    args.ranks.start()
    if not args.headless:
        make()
    threading.Event().wait()


if __name__ == "__main__":
    main()
