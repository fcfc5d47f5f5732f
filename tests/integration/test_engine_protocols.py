"""`pdjob router` before engines that it did not start. They speak other protocols than pdjob's."""

import concurrent.futures
import contextlib
import socket
import subprocess
import sys

import httpx
import pytest

from conftest import MODEL, ROOT, Process, eventually, metric, real_worker

sys.path.insert(0, str(ROOT / "tests/support"))
from engine_doubles import Fleet, MooncakeDecodeDouble, MooncakePrefillDouble, PushDecodeDouble, PushPrefillDouble  # noqa: E402

PROMPTS = ["Tell me a story about a river that forgot its way to the sea.", "List three colours:", "The capital of France is"]


@contextlib.contextmanager
def router(folder, prefill, decode, *flags):
    argv = ["pdjob", "router", "--listen", "127.0.0.1:0"]
    argv += [word for url in prefill for word in ("--prefill", url)]
    argv += [word for url in decode for word in ("--decode", url)]
    process = Process([*argv, *flags], folder)
    try:
        process.wait_ready()
        members = len(prefill) + len(decode)
        eventually(lambda: len(httpx.get(process.url + "/pdjob/workers").json()["workers"]) == members, 20, "all workers known")
        yield process
    finally:
        code = process.stop()
    assert code == 0, process.log_tail()


def with_bootstrap(prefill):
    """A pdjob worker is its own bootstrap server, at its HTTP port."""
    return f"{prefill.url}?bootstrap_port={prefill.url.rsplit(':', 1)[1]}"


def complete(url, prompt, **more):
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": 12, "temperature": 0, **more}
    return httpx.post(url + "/v1/completions", json=body, timeout=60)


@pytest.fixture(scope="module")
def workers(folder):
    lease = "kvtransfer.lease=10s"  # They keep KV that nobody fetched for so long when they end.
    with real_worker("prefill", folder, lease) as first, real_worker("prefill", folder, lease) as second, real_worker("decode", folder) as decode:
        yield [first, second], decode


def test_sglangs_bootstrap_moves_kv_and_tells_the_same_texts(folder, workers):
    prefill, decode = workers
    with router(folder, [worker.url for worker in prefill], [decode.url]) as pdjob:
        expected = [complete(pdjob.url, prompt).json()["choices"][0]["text"] for prompt in PROMPTS]
    before = metric(decode.url, "pdjob_kv_received_total")
    addresses = [with_bootstrap(worker) for worker in prefill]
    with router(folder, addresses, [decode.url], "--protocol", "sglang", "--policy", "round_robin") as sglang:
        replies = [complete(sglang.url, prompt) for prompt in PROMPTS]
        assert [reply.json()["choices"][0]["text"] for reply in replies] == expected
        assert {reply.headers["x-pdjob-prefill"] for reply in replies} == {worker.url.removeprefix("http://") for worker in prefill}
        chat = {"model": "smollm2", "messages": [{"role": "user", "content": PROMPTS[0]}], "max_tokens": 6, "stream": True, "n": 2}
        streamed = httpx.post(sglang.url + "/v1/chat/completions", json=chat, timeout=60)
        assert streamed.status_code == 200 and streamed.text.endswith("data: [DONE]\n\n")
        assert metric(sglang.url, "pdjob_router_degraded_total") == 0
    assert metric(decode.url, "pdjob_kv_received_total") == before + len(PROMPTS) + 1
    for process in (*prefill, decode):
        eventually(lambda: metric(process.url, "pdjob_kv_rows_used") == 0, 10, "no row is left")


def test_sglangs_prefill_worker_dies_and_another_takes_over(folder, workers):
    prefill, decode = workers
    argv = ["pdjob", "worker", "--role", "prefill", "--model", MODEL, "--listen", "127.0.0.1:0", "--set", "served_name=smollm2"]
    mortal = Process(argv, folder).wait_ready()
    addresses = [with_bootstrap(mortal), with_bootstrap(prefill[0])]
    with router(folder, addresses, [decode.url], "--protocol", "sglang", "--policy", "round_robin") as sglang:
        mortal._kill()  # At once: a worker that drains says so, and the router asks it no more.
        for _ in range(4):
            reply = complete(sglang.url, PROMPTS[1])
            assert reply.status_code == 200, reply.text
            assert reply.headers["x-pdjob-prefill"] == prefill[0].url.removeprefix("http://")
        assert metric(sglang.url, "pdjob_router_retries_total") > 0


def test_without_a_prefill_worker_sglangs_decode_workers_are_not_asked(folder, workers):
    prefill, decode = workers
    with router(folder, [with_bootstrap(prefill[0])], [decode.url], "--protocol", "sglang", "--set", "router.queue_timeout=1s",
                "--set", "router.bootstrap_port=1") as sglang:
        wrong_port = complete(sglang.url, PROMPTS[1])
        assert wrong_port.status_code == 200, "the URL's own port counts"
    with router(folder, [prefill[0].url], [decode.url], "--protocol", "sglang", "--set", "router.queue_timeout=1s",
                "--set", "router.bootstrap_port=1") as sglang:
        before = metric(decode.url, "pdjob_kv_received_total")
        assert complete(sglang.url, PROMPTS[1]).status_code == 502, "nobody is at the bootstrap port"
        assert metric(decode.url, "pdjob_kv_received_total") == before


# --- before doubles


@contextlib.contextmanager
def doubles(*engines):
    try:
        yield engines[0].fleet
        assert engines[0].fleet.complaints == []
    finally:
        for engine in engines:
            engine.go.set()
            engine.die()


def ask(url, prompt, **more):
    reply = httpx.post(url + "/v1/completions", json={"model": "double", "prompt": prompt, "max_tokens": 8, **more}, timeout=30)
    assert reply.status_code == 200, reply.text
    return reply


def text_of(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"]


@pytest.fixture
def mooncake(folder):
    """Prefill and decode doubles with their shared fleet, and a router before them."""
    fleet = Fleet()
    prefill = [MooncakePrefillDouble(fleet, "p0", ranks=2), MooncakePrefillDouble(fleet, "p1")]
    decode = [MooncakeDecodeDouble(fleet, "d0"), MooncakeDecodeDouble(fleet, "d1")]
    flags = ["--protocol", "mooncake", "--policy", "round_robin", "--set", "router.fallback=refuse"]
    with doubles(*prefill, *decode), router(folder, [p.url for p in prefill], [d.url for d in decode], *flags) as process:
        yield fleet, prefill, decode, process.url


def test_mooncakes_legs_meet_at_the_rank_that_was_chosen(mooncake):
    fleet, prefill, decode, url = mooncake
    prompts = [f"prompt {number}" for number in range(40)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda prompt: text_of(ask(url, prompt, n=2, min_tokens=3)), prompts))
    assert replies == [f"{prompt} and so on" for prompt in prompts]
    assert len(fleet.moved) == len(prompts)
    assert all(engine.asked == len(prompts) // 2 for engine in prefill)
    streamed = ask(url, "a stream", stream=True, stream_options={"include_usage": True})
    assert "a stream and so on" in streamed.text and streamed.text.endswith("data: [DONE]\n\n")


def test_mooncakes_legs_leave_at_once(mooncake):
    fleet, prefill, decode, url = mooncake
    for engine in prefill:
        engine.go.clear()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, url, "slow")
        eventually(lambda: sum(engine.asked for engine in prefill) == 1 and sum(engine.asked for engine in decode) == 1, 5, "both asked")
        for engine in prefill:
            engine.go.set()
        assert text_of(reply.result()) == "slow and so on"


def test_a_mooncake_prefill_engine_dies_and_comes_back_as_another(mooncake):
    fleet, prefill, decode, url = mooncake
    prefill[0].go.clear()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        replies = [pool.submit(ask, url, f"dying {number}") for number in range(2)]
        eventually(lambda: prefill[0].asked == 1, 5, "the prefill engine asked")
        prefill[0].die()
        assert [text_of(reply.result()) for reply in replies] == ["dying 0 and so on", "dying 1 and so on"]
    prefill[0].go.set()
    prefill[0].start()
    # For at most a second the router still names the old id, which the decode engine cannot find. That costs an attempt, but the request
    # succeeds.
    for number in range(10):
        assert text_of(ask(url, f"again {number}")) == f"again {number} and so on"
    eventually(lambda: text_of(ask(url, "once more")) == "once more and so on" and prefill[0].asked > 1, 10, "it serves again")


def test_a_mooncake_decode_engine_dies_before_its_first_byte(mooncake):
    fleet, prefill, decode, url = mooncake
    decode[0].go.clear()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        replies = [pool.submit(ask, url, f"early {number}") for number in range(2)]
        eventually(lambda: decode[0].asked == 1, 5, "the decode engine asked")
        decode[0].die()
        assert sorted(text_of(reply.result()) for reply in replies) == ["early 0 and so on", "early 1 and so on"]


def test_both_mooncake_legs_end_when_the_client_leaves(mooncake):
    fleet, prefill, decode, url = mooncake
    for engine in prefill:
        engine.go.clear()
    with pytest.raises(httpx.TimeoutException):
        httpx.post(url + "/v1/completions", json={"model": "double", "prompt": "left", "max_tokens": 8}, timeout=0.5)
    eventually(lambda: len(fleet.cancelled) == 2, 5, "both legs closed")
    assert {name[0] for name in fleet.cancelled} == {"p", "d"}
    assert fleet.kv == {}


def test_an_engine_whose_health_checks_stand_still_gets_nothing_new_and_keeps_what_it_computes(folder):
    fleet = Fleet(wait_seconds=120)  # The router needs about 9 s to notice, longer on a busy machine.
    prefill, decode = MooncakePrefillDouble(fleet, "p0"), MooncakeDecodeDouble(fleet, "d0")
    flags = ["--protocol", "mooncake", "--set", "router.fallback=refuse", "--set", "router.queue_timeout=60s"]
    with doubles(prefill, decode), router(folder, [prefill.url], [decode.url], *flags) as process:
        prefill.go.clear()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            long_prompt = pool.submit(ask, process.url, "long")
            eventually(lambda: prefill.asked == 1 and decode.asked == 1, 20, "both legs under way")
            prefill.deaf.set()
            eventually(lambda: "does not answer its health checks" in process.log.read_text(), 60, "the router notices")
            meanwhile = pool.submit(ask, process.url, "meanwhile")
            eventually(lambda: metric(process.url, "pdjob_router_requests_queued") == 1, 20, "a new request waits")
            assert prefill.asked == 1 and fleet.cancelled == [], "what runs is left alone"
            prefill.go.set()
            assert text_of(long_prompt.result()) == "long and so on"
            prefill.deaf.clear()
            assert text_of(meanwhile.result()) == "meanwhile and so on"
        assert metric(process.url, "pdjob_router_retries_total") == 0
        assert "is gone" not in process.log.read_text()
        # An address that refuses connections means a dead engine.
        prefill.die()
        eventually(lambda: "is gone" in process.log.read_text(), 60, "a dead engine leaves")


def test_a_mooncake_prefill_engine_without_a_bootstrap_server_is_no_member(folder):
    fleet = Fleet()
    silent, decode = MooncakeDecodeDouble(fleet, "p0"), MooncakeDecodeDouble(fleet, "d0")
    with doubles(silent, decode), router(folder, [], [decode.url], "--protocol", "mooncake", "--prefill", silent.url + "?bootstrap_port=1") as process:
        reply = ask(process.url, "alone")
        assert text_of(reply) == "alone by myself" and reply.headers["x-pdjob-degraded"] == "no_prefill_worker"
        assert "names no engine" in process.log.read_text()
        assert metric(process.url, "pdjob_router_degraded_total") == 1


@contextlib.contextmanager
def push(folder, ranks=1):
    fleet = Fleet()
    prefill, decode = PushPrefillDouble(fleet, "p0", ranks), PushDecodeDouble(fleet, "d0")
    with doubles(prefill, decode), router(folder, [prefill.url], [decode.url], "--protocol", "nixl_push") as process:
        yield fleet, prefill, decode, process.url


def hop_count(url):
    return {worker["role"]: worker["protocol"] for worker in httpx.get(url + "/pdjob/workers").json()["workers"]}["prefill"]


def test_a_pushing_engines_address_is_learnt_in_two_hops_and_then_used_at_once(folder):
    with push(folder) as (fleet, prefill, decode, url):
        assert hop_count(url) == "two_hop"
        # Clients may repeat their ids. Engines must still keep the KV of two requests apart.
        headers = {"x-request-id": "mine"}
        body = {"model": "double", "max_tokens": 8}
        for number in range(3):
            reply = httpx.post(url + "/v1/completions", json={**body, "prompt": f"prompt {number}"}, headers=headers, timeout=30)
            assert reply.headers["x-request-id"] == "mine"
            assert text_of(reply) == f"prompt {number} and so on"
            assert hop_count(url) == "concurrent"
        prefill.go.clear()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            slow = pool.submit(ask, url, "slow", stream=True)
            eventually(lambda: prefill.asked == 4 and decode.asked == 4, 5, "both asked")
            prefill.go.set()
            assert "slow and so on" in slow.result().text
        assert len(fleet.moved) == 4


def test_a_pushing_engine_of_several_ranks_is_asked_in_two_hops(folder):
    with push(folder, ranks=2) as (fleet, prefill, decode, url):
        for number in range(6):
            assert text_of(ask(url, f"prompt {number}")) == f"prompt {number} and so on"
        assert hop_count(url) == "two_hop"
        # The decode leg of the second request was sent to another rank.
        assert len(fleet.moved) == prefill.asked == 6 and decode.asked == 7


def test_a_pushing_engine_dies_and_comes_back_as_another(folder):
    with push(folder) as (fleet, prefill, decode, url):
        assert text_of(ask(url, "first")) == "first and so on"
        prefill.go.clear()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            dying = pool.submit(ask, url, "dying")
            eventually(lambda: prefill.asked == 2, 5, "the prefill engine asked")
            prefill.die()
            assert text_of(dying.result()) == "dying by myself"
        prefill.go.set()
        prefill.start()
        eventually(lambda: text_of(ask(url, "again")) == "again and so on", 10, "it serves again")
        # The router does not notice the restart below. The prefill leg's reply reveals that the decode leg waits for the dead engine.
        assert text_of(ask(url, "concurrent")) == "concurrent and so on"
        prefill.die()
        prefill.start()
        assert text_of(ask(url, "unnoticed")) in ("unnoticed and so on", "unnoticed by myself")


def test_both_legs_to_pushing_engines_end_when_the_client_leaves(folder):
    with push(folder) as (fleet, prefill, decode, url):
        ask(url, "first")
        prefill.go.clear()
        with pytest.raises(httpx.TimeoutException):
            httpx.post(url + "/v1/completions", json={"model": "double", "prompt": "left", "max_tokens": 8}, timeout=0.5)
        eventually(lambda: sorted(fleet.cancelled) == ["d0", "p0"], 5, "both legs closed")


@contextlib.contextmanager
def engine_program(*flags):
    """The double of vLLM's program. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = str(ROOT / "tests/support/engine_program_double.py")
    child = subprocess.Popen([sys.executable, program, "serve", "tiny", "--host", "127.0.0.1", "--port", str(port), *flags], start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        for pid in subprocess.run(["ps", "-o", "pid=", "--ppid", str(child.pid)], capture_output=True, text=True).stdout.split():
            subprocess.run(["kill", "-9", pid])
        child.kill()
        child.wait()


def test_an_engine_by_address_serves_the_routes_of_its_make_and_its_adapters(folder):
    with engine_program("--enable-lora", "--lora-modules", "sql=/adapters/sql") as url, router(folder, [], [], "--worker", url) as pdjob:
        eventually(lambda: "sql" in httpx.get(pdjob.url + "/v1/models").text, 20, "its list is known")
        cards = {card["id"]: card for card in httpx.get(pdjob.url + "/v1/models").json()["data"]}
        assert cards["sql"]["parent"] == "tiny" and cards["sql"]["max_model_len"] == 2048
        message = {"model": "sql", "max_tokens": 2, "messages": [{"role": "user", "content": "one two three"}]}
        reply = httpx.post(pdjob.url + "/v1/messages", json=message, timeout=30)
        assert reply.json()["content"][0]["text"] == "eno owt"
        # The router knows its make, and not its model: the engine says that it lacks the route.
        assert httpx.post(pdjob.url + "/v1/rerank", json={"query": "a", "documents": ["b"]}, timeout=30).json() == {"detail": "Not Found"}
        assert httpx.post(pdjob.url + "/v1/load_lora_adapter", json={}, timeout=30).status_code == 403
