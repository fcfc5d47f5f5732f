"""A double of a vLLM engine with a prefix cache. It computes nothing, but knows what it would have to compute. Its cache holds blocks of 16 tokens
and evicts the least recently used first, ends of prompts before their beginnings. It publishes events as vLLM does (vllm/distributed/kv_events.py
of vllm-project/vllm 0.31). A token is a byte of the prompt."""

import collections
import hashlib
import threading
import time

import msgspec
import zmq
from engine_doubles import EngineDouble

BLOCK = 16
END = (-1).to_bytes(8, "big", signed=True)


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list
    data_parallel_rank: int | None = None


class BlockStored(msgspec.Struct, omit_defaults=True, tag=True):
    block_hashes: list
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None


class BlockRemoved(msgspec.Struct, omit_defaults=True, tag=True):
    block_hashes: list
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, omit_defaults=True, tag=True):
    pass


class Publisher:
    """A PUB socket, and a ROUTER socket for replays of missed batches. Batches are numbered from 0 on."""

    def __init__(self, topic, port=0, replay_port=0):
        self.topic, self.sequence, self.kept = topic.encode(), 0, collections.deque(maxlen=10_000)
        self.context = zmq.Context()
        self.pub, self.router = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        self.port, self.replay_port = (self._bind(socket, wanted) for socket, wanted in ((self.pub, port), (self.router, replay_port)))
        self.lock, self.closed = threading.Lock(), False
        self.replays = 0
        self.thread = threading.Thread(target=self._serve_replays, daemon=True)
        self.thread.start()

    @staticmethod
    def _bind(socket, port):
        socket.linger = 0
        if port:
            socket.bind(f"tcp://127.0.0.1:{port}")
            return port
        return socket.bind_to_random_port("tcp://127.0.0.1")

    def publish(self, events, lost=False):
        """A `lost` batch is published only by a replay."""
        self.publish_bytes(msgspec.msgpack.encode(EventBatch(time.time(), events, 0)), lost)

    def publish_bytes(self, payload, lost=False):
        with self.lock:
            number = self.sequence.to_bytes(8, "big")
            if not lost:
                self.pub.send_multipart([self.topic, number, payload])
            self.kept.append((self.sequence, payload))
            self.sequence += 1

    def _serve_replays(self):
        while not self.closed:
            if not self.router.poll(20):
                continue
            client, _, start = self.router.recv_multipart()
            self.replays += 1
            with self.lock:
                kept = [(number, payload) for number, payload in self.kept if number >= int.from_bytes(start, "big")]
            for number, payload in kept:
                self.router.send_multipart([client, b"", self.topic, number.to_bytes(8, "big"), payload])
            self.router.send_multipart([client, b"", b"", END, b""])

    def close(self):
        self.closed = True
        self.thread.join()
        self.pub.close()
        self.router.close()
        self.context.term()


class PrefixEngineDouble(EngineDouble):
    """An engine of role both. Its hashes are its own: two engines never agree on them."""

    def __init__(self, fleet, name, blocks_max=100_000, topic="kv", publisher=Publisher):
        self.blocks_max, self.topic, self.make_publisher = blocks_max, topic, publisher
        self.publisher = None
        self.tokenized = 0
        super().__init__(fleet, name)

    def start(self):
        super().start()
        self.cache = collections.OrderedDict()  # Hash of a block: None. The oldest comes first.
        self.computed = []  # For each prompt, the tokens that were missing from the cache.
        self.lock = threading.Lock()
        old = self.publisher
        self.publisher = self.make_publisher(self.topic, old.port, old.replay_port) if old else self.make_publisher(self.topic)

    def die(self):
        super().die()
        self.publisher.close()

    @property
    def url(self):
        return f"{super().url}?kv_events_port={self.publisher.port}&kv_replay_port={self.publisher.replay_port}"

    def hashes(self, tokens):
        chain, parent = [], self.engine_ids[0].encode()
        for begin in range(0, len(tokens) - len(tokens) % BLOCK, BLOCK):
            parent = hashlib.sha256(parent + bytes(tokens[begin:begin + BLOCK])).digest()
            chain.append(parent)
        return chain

    def generate(self, http, body):
        if http.path == "/tokenize":
            self.tokenized += 1
            tokens = self.tokens(body)
            return {"count": len(tokens), "max_model_len": 1 << 20, "tokens": tokens, "token_strs": None}
        self.asked += 1
        tokens = self.tokens(body)
        with self.lock:
            self.compute(tokens)
        return self.text(http, "and so on")

    @staticmethod
    def tokens(body):
        if "messages" in body:  # Stands for a chat template.
            body = {"prompt": "".join(f"<{message['role']}>{message['content']}" for message in body["messages"]) + "<assistant>"}
        return list(body["prompt"].encode())

    def compute(self, tokens):
        chain = self.hashes(tokens)
        found = next((i for i, block in enumerate(chain) if block not in self.cache), len(chain))
        self.computed.append(len(tokens) - found * BLOCK)
        events = []
        for block in reversed(chain):
            self.cache[block] = None
            self.cache.move_to_end(block)
        if found < len(chain):
            events.append(BlockStored(chain[found:], chain[found - 1] if found else None, tokens[found * BLOCK:len(chain) * BLOCK], BLOCK, None, "GPU", None,
                                      [None] * (len(chain) - found), 0, "full_attention"))
        while len(self.cache) > self.blocks_max:
            events.append(BlockRemoved([self.cache.popitem(last=False)[0]], "GPU", 0))
        if events:
            self.publisher.publish(events)

    def evict(self, tokens_of_prompt, keep=0, lost=False):
        """Evicts all blocks of a prompt except the first `keep`, ends first."""
        with self.lock:
            gone = self.hashes(list(tokens_of_prompt.encode()))[keep:]
            for block in gone:
                self.cache.pop(block, None)
            self.publisher.publish([BlockRemoved([block], "GPU", 0) for block in reversed(gone)], lost)

    def reset(self):
        with self.lock:
            self.cache.clear()
            self.publisher.publish([AllBlocksCleared()])

