"""A double of a vLLM engine with a prefix cache, in the process of a test. It computes nothing, but knows what it would have to compute."""

from engine_doubles import EngineDouble
from kv_events_double import PrefixCache, Publisher


class PrefixEngineDouble(EngineDouble):
    """An engine of role both. Its hashes are its own: two engines never agree on them."""

    def __init__(self, fleet, name, blocks_max=100_000, topic="kv", publisher=Publisher):
        self.blocks_max, self.topic, self.make_publisher = blocks_max, topic, publisher
        self.publisher = None
        self.tokenized = 0
        super().__init__(fleet, name)

    def start(self):
        super().start()
        old = self.publisher
        self.publisher = self.make_publisher(self.topic, old.port, old.replay_port) if old else self.make_publisher(self.topic)
        self.prefixes = PrefixCache(self.engine_ids[0], self.publisher, self.blocks_max)

    def die(self):
        super().die()
        self.publisher.close()

    @property
    def url(self):
        return f"{super().url}?kv_events_port={self.publisher.port}&kv_replay_port={self.publisher.replay_port}"

    def generate(self, http, body):
        if http.path == "/tokenize":
            self.tokenized += 1
            tokens = self.tokens(body)
            return {"count": len(tokens), "max_model_len": 1 << 20, "tokens": tokens, "token_strs": None}
        self.asked += 1
        tokens = self.tokens(body)
        with self.prefixes.lock:
            self.compute(tokens)
        return self.text(http, "and so on")

    @staticmethod
    def tokens(body):
        if "messages" in body:  # Stands for a chat template.
            body = {"prompt": "".join(f"<{message['role']}>{message['content']}" for message in body["messages"]) + "<assistant>"}
        return list(body["prompt"].encode())

    # What tests ask of its cache.
    cache = property(lambda self: self.prefixes.cache)
    computed = property(lambda self: self.prefixes.computed)

    def compute(self, tokens):
        self.prefixes.compute(tokens)

    def evict(self, *args, **options):
        self.prefixes.evict(*args, **options)

    def reset(self):
        self.prefixes.reset()
