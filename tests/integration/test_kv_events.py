"""`pdjob router` with prefix_aware, before engines that publish the contents of their prefix caches."""

import contextlib
import random
import sys

import httpx

from conftest import ROOT, Process, eventually, metric

sys.path.insert(0, str(ROOT / "tests/support"))
from engine_doubles import Fleet  # noqa: E402
from prefix_engine_double import PrefixEngineDouble  # noqa: E402


def text(seed, length=6000):
    letters = random.Random(seed)
    return "".join(letters.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(length))


class Bench:
    """A router before some doubles."""

    def __init__(self, process, engines):
        self.process, self.engines = process, engines

    def rows(self):
        return {f"http://{row['name']}": row for row in httpx.get(self.process.url + "/pdjob/workers").json()["workers"]}

    def row(self, engine):
        return self.rows()[engine.url.partition("?")[0]]

    def told(self, engine, blocks, complete=True):
        def is_told():
            events = self.row(engine).get("kv_events", {})
            return events == {"complete": complete, "blocks": blocks}
        eventually(is_told, 20, f"{engine.name} has told of {blocks} blocks: {self.row(engine).get('kv_events')}")

    def held(self, engine):
        self.told(engine, len(engine.cache))

    def metric(self, name, **labels):
        return metric(self.process.url, "pdjob_router_" + name, **labels)

    def send(self, prompt, at=None, **more):
        """Returns the engine that computed the prompt. `at` forces the engine."""
        headers = {"x-pdjob-pin-decode": at.url.partition("?")[0].removeprefix("http://")} if at else {}
        reply = httpx.post(self.process.url + "/v1/completions", json={"model": "double", "prompt": prompt, "max_tokens": 1, **more},
                           headers=headers, timeout=30)
        assert reply.status_code == 200, reply.text
        return next(engine for engine in self.engines if engine.url.partition("?")[0] == "http://" + reply.headers["x-pdjob-decode"])

    def learnt(self, prompts):
        """Waits until the router has learnt the tokens of so many prompts."""
        eventually(lambda: self.metric("tokenize_total", result="ok") == prompts, 20, "the tokens are known")


@contextlib.contextmanager
def running(folder, engines, *flags, replay=True):
    argv = ["pdjob", "router", "--listen", "127.0.0.1:0", "--policy", "prefix_aware", "--set", "router.kv_events.port=5557",
            "--set", "router.kv_events.topic=kv", *flags]
    for engine in engines:
        argv += ["--worker", engine.url if replay else engine.url.partition("&")[0]]
    process = Process(argv, folder)
    try:
        process.wait_ready()
        bench = Bench(process, engines)
        eventually(lambda: len(bench.rows()) == len(engines), 20, "all engines known")
        yield bench
    finally:
        code = process.stop()
        for engine in engines:
            if engine.live:
                engine.die()
    assert code == 0, process.log_tail()
    assert not engines[0].fleet.complaints


def pair(**options):
    fleet = Fleet()
    return [PrefixEngineDouble(fleet, name, **options) for name in ("first", "second")]


def test_a_prefix_that_was_evicted_is_not_looked_for_where_it_was(folder):
    with running(folder, pair()) as bench:
        first, second = bench.engines
        story = text(1)
        for engine in bench.engines:
            bench.told(engine, 0)
            assert bench.send(story + "?", at=engine) is engine
            bench.held(engine)
        bench.learnt(1)
        assert bench.metric("kv_blocks") == 2 * (len(story) // 16)
        for engine, other in ((first, second), (second, first)):
            engine.evict(story + "?", keep=2)
            bench.held(engine)
            chosen = [bench.send(story + ending) for ending in ("!", ".", ";")]
            assert chosen == [other] * 3, engine.name
            assert other.computed[-3:] == [len(story) % 16 + 1] * 3
            bench.send(story + "?", at=engine)
            bench.held(engine)


def test_a_cache_that_is_smaller_than_what_passes_through_it_is_known(folder):
    with running(folder, pair(blocks_max=400)) as bench:
        first, _ = bench.engines
        stories = [text(seed) for seed in range(3)]
        for story in stories:  # 375 blocks each: the next one evicts it.
            bench.send(story, at=first)
            bench.held(first)
        bench.learnt(3)
        assert bench.send(stories[2] + "more") is first
        assert first.computed[-1] < 32
        for seen in range(2):
            bench.send(stories[seen], at=bench.engines[1])
            bench.held(bench.engines[1])
        assert bench.send(stories[1] + "more") is bench.engines[1]
        assert bench.engines[1].computed[-1] < 32


def test_a_cache_that_was_reset_is_empty(folder):
    with running(folder, pair()) as bench:
        first, second = bench.engines
        story = text(2)
        bench.send(story, at=first)
        bench.send(story, at=second)
        bench.held(first)
        bench.learnt(1)
        first.reset()
        bench.told(first, 0)
        assert {bench.send(story + ending) for ending in "123"} == {second}


def test_an_engine_that_was_started_again_has_nothing(folder):
    with running(folder, pair()) as bench:
        first, second = bench.engines
        story = text(3)
        for engine in bench.engines:
            bench.send(story, at=engine)
            bench.held(engine)
        bench.learnt(1)
        first.die()
        first.start()
        bench.told(first, 0)
        assert {bench.send(story + ending) for ending in "123"} == {second}
        bench.send(story, at=first)
        bench.held(first)


def test_what_was_missed_is_told_again(folder):
    with running(folder, pair()) as bench:
        first, second = bench.engines
        story = text(4)
        for engine in bench.engines:
            bench.send(story, at=engine)
            bench.held(engine)
        bench.learnt(1)
        first.evict(story, lost=True)
        bench.send(text(5), at=first)
        bench.held(first)
        assert bench.metric("kv_event_gaps_total") == 1
        assert {bench.send(story + ending) for ending in "123"} == {second}


def test_what_was_missed_and_is_not_told_again_makes_all_uncertain(folder):
    with running(folder, pair(), replay=False) as bench:
        first, second = bench.engines
        for engine in bench.engines:
            # The first batch may have been published before the router listened.
            eventually(lambda: "kv_events" in bench.row(engine), 20, "listened to")
        story = text(6)
        bench.send(story, at=first)
        eventually(lambda: bench.row(first)["kv_events"]["blocks"] > 0, 20, "told")
        first.evict(text(7), lost=True)
        bench.send(text(8), at=first)
        bench.told(first, len(text(8)) // 16, complete=False)
        assert bench.metric("kv_event_gaps_total") == 1
        assert bench.send(story) is first  # The router's own history counts again.
        first.reset()
        bench.told(first, 0)
        bench.learnt(2)
        bench.send(story, at=second)
        eventually(lambda: bench.row(second)["kv_events"]["blocks"] > 0, 20, "told")
        assert bench.send(story) is second


def test_a_router_that_comes_later_is_told_the_past(folder):
    engines = pair()
    story = text(9)
    tokens = list(story.encode())
    engines[1].compute(tokens)
    for _ in range(1500):  # More than the queue of one socket holds.
        engines[0].compute(list(text(_, 16).encode()))
    with running(folder, engines) as bench:
        for engine in engines:
            bench.held(engine)
        bench.send(story, at=engines[0])
        bench.learnt(1)
        engines[0].reset()
        bench.told(engines[0], 0)
        assert bench.send(story) is engines[1]  # The router never sent it there.


def test_garbage_on_the_socket_harms_nothing(folder):
    with running(folder, pair()) as bench:
        first, _ = bench.engines
        story = text(10)
        bench.send(story, at=first)
        bench.held(first)
        for garbage in (b"", b"\xc1", b"\x93\xcb", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff" * 1000, random.Random(1).randbytes(100_000)):
            first.publisher.publish_bytes(garbage)
        bench.told(first, 0, complete=False)
        first.publisher.pub.send_multipart([b"kv", b"short", b"x"])
        first.publisher.pub.send_multipart([b"kv"])
        first.publisher.pub.send_multipart([b"other", b"\0" * 8, b"not for us"])
        assert bench.send(story) is first
        first.reset()
        bench.told(first, 0)
        bench.send(story + "more", at=first)
        assert bench.row(first)["health"] == "healthy"


def test_a_chat_is_known_by_its_tools_too(folder):
    with running(folder, pair()) as bench:
        first, second = bench.engines
        messages = [{"role": "user", "content": text(11)}]

        def send(**more):
            reply = httpx.post(bench.process.url + "/v1/chat/completions", json={"model": "double", "messages": messages, **more}, timeout=30)
            assert reply.status_code == 200
        send()
        bench.learnt(1)
        send(tools=[{"type": "function", "function": {"name": "f"}}])
        bench.learnt(2)
        send()
        assert bench.metric("tokenize_total", result="ok") == 2
        # Token ids cannot tell images apart.
        messages[0]["content"] = [{"type": "image_url", "image_url": {"url": "http://x"}}, {"type": "text", "text": text(12)}]
        httpx.post(bench.process.url + "/v1/chat/completions", json={"model": "double", "messages": messages}, timeout=30)
        assert first.tokenized + second.tokenized == 2


def test_ports_without_the_switch_are_refused(folder):
    process = Process(["pdjob", "router", "--listen", "127.0.0.1:0", "--worker", "http://127.0.0.1:1?kv_events_port=5"], folder)
    assert process.child.wait(20) != 0
    assert "set router.kv_events.port" in process.log.read_text()
