"""API keys, rates and limits, as the official client sees them."""

import hashlib
import pathlib
import tempfile

import openai
import pytest

from conftest import Process, eventually, fake_worker, get, metric

KEYS = {"alice": "sk-alice-0123456789", "bob": "sk-bob-9876543210", "carol": "sk-carol-2468013579"}
ASK = {"model": "fake", "prompt": "the quick brown fox", "max_tokens": 4}


@pytest.fixture(scope="module")
def router():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        workers = [fake_worker(role, folder, role).wait_ready() for role in ("prefill", "decode")]
        settings = [f"router.tenants.{name}.key_sha256={hashlib.sha256(key.encode()).hexdigest()}" for name, key in KEYS.items()]
        settings += ["router.tenants.bob.requests_per_minute=2", "router.tenants.alice.tokens_per_minute=100000",
                     "router.tenants.carol.tokens_per_minute=100"]
        flags = [part for setting in settings for part in ("--set", setting)]
        router = Process(
            ["pdjob", "router", "--listen", "127.0.0.1:0", "--prefill", workers[0].url, "--decode", workers[1].url, *flags], folder
        ).wait_ready()
        eventually(lambda: get(router.url + "/pdjob/workers", headers={"Authorization": f"Bearer {KEYS['alice']}"}).count('"healthy"') == 2, 20, "both workers known")
        yield router
        for process in [router, *workers]:
            assert process.stop() == 0, process.log_tail()
        logs = "".join(path.read_text() for path in pathlib.Path(folder).glob("*.log"))
        assert "is denied: wrong_key" in logs
        assert not any(key in logs for key in [*KEYS.values(), "sk-mallory"]), "no key is logged"


def client(router, key):
    return openai.OpenAI(base_url=router.url + "/v1", api_key=key, max_retries=0, timeout=30)


def test_a_key_opens_and_no_other_does(router):
    model = client(router, KEYS["alice"]).models.list().data[0].id
    assert client(router, KEYS["alice"]).completions.create(**{**ASK, "model": model}).usage.completion_tokens > 0
    for ask in (lambda c: c.completions.create(**ASK), lambda c: c.models.list()):
        with pytest.raises(openai.AuthenticationError) as refusal:
            ask(client(router, "sk-mallory"))
        assert refusal.value.code == "invalid_api_key"
    assert metric(router.url, "pdjob_router_denials_total", reason="wrong_key") == 2


def test_a_rate_is_kept_and_the_refusal_says_when_to_come_again(router):
    bob = client(router, KEYS["bob"])
    model = bob.models.list().data[0].id
    bob.completions.create(**{**ASK, "model": model})
    second = bob.completions.with_raw_response.create(**{**ASK, "model": model})
    left = {name: second.headers[f"x-ratelimit-{name}-requests"] for name in ("limit", "remaining")}
    assert left == {"limit": "2", "remaining": "0"}
    with pytest.raises(openai.RateLimitError) as refusal:
        bob.completions.create(**{**ASK, "model": model})
    assert refusal.value.code == "rate_limit_exceeded"
    assert 1 <= int(refusal.value.response.headers["retry-after"]) <= 30
    client(router, KEYS["alice"]).completions.create(**{**ASK, "model": model})


def test_what_no_minute_has_room_for_is_called_wrong(router):
    with pytest.raises(openai.BadRequestError) as refusal:
        client(router, KEYS["alice"]).completions.create(**{**ASK, "max_tokens": 200000})
    assert refusal.value.code == "request_too_large"


def test_what_no_worker_saw_costs_no_tokens(router):
    carol = client(router, KEYS["carol"])
    for _ in range(5):
        with pytest.raises(openai.NotFoundError):
            carol.completions.create(**{**ASK, "model": "nobody-serves-it", "max_tokens": 60})
    model = carol.models.list().data[0].id
    carol.completions.create(**{**ASK, "model": model, "max_tokens": 60})
    with pytest.raises(openai.RateLimitError):
        carol.completions.create(**{**ASK, "model": model, "max_tokens": 60})
