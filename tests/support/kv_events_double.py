"""What an engine with a prefix cache publishes, as vLLM does (vllm/distributed/kv_events.py of vllm-project/vllm 0.32). The cache holds blocks of
tokens and evicts the least recently used first, ends of prompts before their beginnings. A token is a byte of the prompt."""

import collections
import hashlib
import threading
import time

import msgspec
import zmq

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


class SglangBlockStored(msgspec.Struct, omit_defaults=True, tag="BlockStored"):
    """As in sglang/srt/disaggregation/kv_events.py of SGLang 0.5.22: one page each, and hashes are numbers."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None


class SglangBlockRemoved(msgspec.Struct, omit_defaults=True, tag="BlockRemoved"):
    block_hashes: list[int]
    medium: str | None = None


def number(block):
    return int.from_bytes(block[:8], "big", signed=True)


class Publisher:
    """A PUB socket, and a ROUTER socket for replays of missed batches. Batches are numbered from 0 on. `endpoints` of both are ZeroMQ's words."""

    def __init__(self, topic, port=0, replay_port=0, endpoints=None):
        self.topic, self.sequence, self.kept = topic.encode(), 0, collections.deque(maxlen=10_000)
        self.context = zmq.Context()
        self.pub, self.router = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        if endpoints:
            for socket, endpoint in zip((self.pub, self.router), endpoints):
                socket.linger = 0
                socket.bind(endpoint)
        else:
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


class PrefixCache:
    """The cache of one engine, or of one rank of it. Its hashes are its own: two caches never agree on them."""

    def __init__(self, seed, publisher, blocks_max=100_000, block=BLOCK, make="vllm"):
        self.seed, self.publisher, self.blocks_max, self.block, self.make = seed, publisher, blocks_max, block, make
        self.cache = collections.OrderedDict()  # Hash of a block: None. The oldest comes first.
        self.computed = []  # For each prompt, the tokens that were missing from the cache.
        self.lock = threading.Lock()

    def hashes(self, tokens):
        chain, parent = [], self.seed.encode()
        for begin in range(0, len(tokens) - len(tokens) % self.block, self.block):
            parent = hashlib.sha256(parent + bytes(tokens[begin:begin + self.block])).digest()
            chain.append(parent)
        return chain

    def compute(self, tokens):
        chain = self.hashes(tokens)
        found = next((i for i, block in enumerate(chain) if block not in self.cache), len(chain))
        self.computed.append(len(tokens) - found * self.block)
        events = []
        for block in reversed(chain):
            self.cache[block] = None
            self.cache.move_to_end(block)
        if found < len(chain):
            events += self.stored(chain, found, tokens)
        while len(self.cache) > self.blocks_max:
            events.append(self.removed(self.cache.popitem(last=False)[0]))
        if events:
            self.publisher.publish(events)

    def stored(self, chain, found, tokens):
        parents = [None, *chain]
        if self.make == "sglang":
            return [SglangBlockStored([number(chain[i])], number(parents[i]) if i else None, tokens[i * self.block:(i + 1) * self.block], self.block,
                                      None, "GPU") for i in range(found, len(chain))]
        return [BlockStored(chain[found:], parents[found], tokens[found * self.block:len(chain) * self.block], self.block, None, "GPU", None,
                            [None] * (len(chain) - found), 0, "full_attention")]

    def removed(self, block):
        return SglangBlockRemoved([number(block)], "GPU") if self.make == "sglang" else BlockRemoved([block], "GPU", 0)

    def evict(self, tokens_of_prompt, keep=0, lost=False):
        """Evicts all blocks of a prompt except the first `keep`, ends first."""
        with self.lock:
            gone = self.hashes(list(tokens_of_prompt.encode()))[keep:]
            for block in gone:
                self.cache.pop(block, None)
            self.publisher.publish([self.removed(block) for block in reversed(gone)], lost)

    def reset(self):
        with self.lock:
            self.cache.clear()
            self.publisher.publish([AllBlocksCleared()])
