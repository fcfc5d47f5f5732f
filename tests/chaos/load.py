"""Constant load with known answers: greedy and seeded requests, streamed and not, of mixed lengths. """

import dataclasses
import http.client
import json
import random
import threading
import time
import urllib.parse

ANSWER_SECONDS = 60.0  # A request without a byte for so long is lost.
TOKENS = (4, 24, 96, 192)  # Lengths of answers.
THINK_SECONDS = 0.5  # At most, between two requests of a client.
BEAT_BODY = 2  # A short prompt.
WORDS = "river stone light winter garden letter engine market silver forest window sailor".split()


def bodies(words_max):
    """Short and long prompts: a long one takes long enough to be caught in its prefill."""
    draw = random.Random(19)
    long = [" ".join(draw.choice(WORDS) for _ in range(words_max * part // 6)) for part in (1, 3, 6)]
    prompts = ["Tell me a story about a river.", "The sea is", "Once upon a time there was", *long]
    return [{"prompt": prompt, "return_token_ids": True, **setting} for prompt in prompts for setting in SETTINGS]


SETTINGS = [{"temperature": 0}, {"temperature": 0.9, "top_p": 0.95, "seed": 7}]


def connect(url, seconds=ANSWER_SECONDS):
    address = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(address.hostname, address.port, timeout=seconds)


def oracle(url, asked):
    """Returns the tokens of the longest answer to each body, by one undisturbed process."""
    answers = []
    for body in asked:
        connection = connect(url)
        connection.request("POST", "/v1/completions", json.dumps({**body, "max_tokens": max(TOKENS)}), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status == 200, text
        answers.append(json.loads(text)["choices"][0]["token_ids"])
        connection.close()
    return answers


@dataclasses.dataclass
class Asked:
    """One request, as its client saw it. Times are monotonic seconds."""

    begun: float
    which: int
    max_tokens: int
    stream: bool
    port: int = 0  # Of the client's end.
    connected: float = 0.0
    prefill: str = ""
    decode: str = ""
    times: list = dataclasses.field(default_factory=list)  # Of each token of a stream; of the answer otherwise.
    tokens: list = dataclasses.field(default_factory=list)
    ended: float = 0.0
    outcome: str = ""  # right, altered, refused, or broken: its connection ended early
    why: str = ""

    def to_json(self, zero):
        return {"begun": round(self.begun - zero, 3), "ended": round(self.ended - zero, 3), "which": self.which, "max_tokens": self.max_tokens, "stream": self.stream,
                "prefill": self.prefill, "decode": self.decode, "tokens": self.tokens, "outcome": self.outcome, "why": self.why}  # fmt: skip


class Load:
    """Clients in a closed loop, and a metronome that sends a small request ten times a second, if few of them
    are under way. A client whose connection breaks asks anew."""

    BEAT = 0.1
    BEATS_MAX = 4  # Small requests under way.

    def __init__(self, url, asked, answers, seed, clients):
        self.url, self.bodies, self.answers = url, asked, answers
        self.done, self.open = [], {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._client, args=(seed, i), daemon=True) for i in range(clients)]
        self._threads.append(threading.Thread(target=self._metronome, daemon=True))

    def __enter__(self):
        [thread.start() for thread in self._threads]
        return self

    def __exit__(self, *_):
        self._over.set()
        [thread.join(2 * ANSWER_SECONDS) for thread in self._threads]
        for asked in self.requests():
            asked.outcome = asked.outcome or "broken"  # It hangs: no client waits longer.

    def requests(self):
        with self._lock:
            return [*self.done, *self.open.values()]

    def _client(self, seed, number):
        draw = random.Random(f"{seed} {number}")
        connection = None
        while not self._over.is_set():
            keep = draw.random() < 0.5
            connection = self._until_answered(draw.randrange(len(self.bodies)), draw.choice(TOKENS), draw.random() < 0.7, connection)
            if connection and not keep:
                connection.close()
                connection = None
            self._over.wait(draw.uniform(0, THINK_SECONDS))
        if connection:
            connection.close()

    def _metronome(self):
        beats = []
        next_beat = time.monotonic()
        while not self._over.wait(max(0.0, next_beat - time.monotonic())):
            next_beat = max(next_beat + self.BEAT, time.monotonic())
            beats = [beat for beat in beats if beat.is_alive()]
            if len(beats) < self.BEATS_MAX:
                beats.append(threading.Thread(target=self._beat, daemon=True))
                beats[-1].start()
        [beat.join(2 * ANSWER_SECONDS) for beat in beats]

    def _beat(self):
        connection = self._until_answered(BEAT_BODY, 1, True, None)
        if connection:
            connection.close()

    def _until_answered(self, which, max_tokens, stream, connection):
        """Asks, and asks anew if the connection breaks. Returns the connection, if it can be used again."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            asked = Asked(begun=time.monotonic(), which=which, max_tokens=max_tokens, stream=stream)
            with self._lock:
                self.open[id(asked)] = asked
            connection = self._ask(asked, connection)
            asked.ended = time.monotonic()
            with self._lock:
                del self.open[id(asked)]
                self.done.append(asked)
            if asked.outcome != "broken":
                return connection
            if time.monotonic() > deadline or self._over.is_set():
                return None
            time.sleep(0.05)

    def _ask(self, asked, connection):
        expected = self.answers[asked.which][: asked.max_tokens]
        try:
            connection = self._send(asked, connection)
            self._receive(asked, connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            asked.why, asked.outcome = repr(error), "broken"
        except ValueError as error:
            asked.why, asked.outcome = str(error), "refused"
        if asked.tokens != expected[: len(asked.tokens)]:  # What came before a break counts, too.
            asked.outcome, asked.why = "altered", f"{asked.why} expected {expected}"
        if asked.outcome:
            if connection:
                connection.close()
            return None
        asked.outcome = "right" if asked.tokens == expected else "altered"
        asked.why = "" if asked.outcome == "right" else f"expected {expected}"
        return connection

    def _send(self, asked, connection):
        asked.connected = time.monotonic()
        if connection and connection.sock:
            asked.connected = connection.opened
        else:
            connection = connect(self.url)
            connection.connect()
            connection.opened = asked.connected
        asked.port = connection.sock.getsockname()[1]
        body = {**self.bodies[asked.which], "max_tokens": asked.max_tokens, "stream": asked.stream}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection

    def _receive(self, asked, reply):
        asked.prefill, asked.decode = reply.headers.get("x-pdjob-prefill", ""), reply.headers.get("x-pdjob-decode", "")
        if reply.status != 200:
            raise ValueError(f"{reply.status} {reply.read().decode(errors='replace')}")
        if not asked.stream:
            asked.tokens = json.loads(reply.read())["choices"][0]["token_ids"]
            asked.times.append(time.monotonic())
            return
        ended = False
        while line := reply.readline():
            if line.startswith(b"data: {"):
                event = json.loads(line.removeprefix(b"data: "))
                if "error" in event:
                    raise ValueError(line.decode())
                new = [token for choice in event["choices"] for token in choice.get("token_ids") or []]
                asked.times += [time.monotonic()] * len(new)
                asked.tokens += new
            ended = ended or line.startswith(b"data: [DONE]")
        if not ended:
            raise http.client.IncompleteRead(b"")
