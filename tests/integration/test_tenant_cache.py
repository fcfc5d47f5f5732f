"""A prompt's rows belong to its tenant. Another tenant's equal prompt finds none of them, and gets no faster."""

import hashlib
import random
import tempfile

import httpx
import pytest

from conftest import get, metric, real_worker, running_job

KEYS = {"alice": "sk-alice-0123456789", "bob": "sk-bob-9876543210"}
TENANTS = ", ".join(f"{name}: {{key_sha256: {hashlib.sha256(key.encode()).hexdigest()}}}" for name, key in KEYS.items())


def words(count, seed):
    """Returns random tokens of the vocabulary's plain range."""
    draw = random.Random(seed)
    return [draw.randrange(300, 40000) for _ in range(count)]


def complete(url, prompt, headers):
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": 6, "temperature": 0, "return_token_ids": True}
    reply = httpx.post(url + "/v1/completions", json=body, headers=headers, timeout=120)
    assert reply.status_code == 200, reply.text
    return reply.json()


def cached(reply):
    return (reply["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, router=f"prefill_policy: prefix_aware, tenants: {{{TENANTS}}}") as running:
            yield running


def ask(job, tenant, prompt):
    """Returns the reply, and how many rows the prefill worker reused."""
    prefill = job.processes()["prefill-0"]["url"]
    before = metric(prefill, "pdjob_prefix_cache_hits_total")
    reply = complete(job.url, prompt, {"Authorization": f"Bearer {KEYS[tenant]}"})
    return reply, metric(prefill, "pdjob_prefix_cache_hits_total") - before


def test_a_guess_of_another_tenants_prompt_finds_nothing(job):
    secret = words(400, seed=1)
    first, hits = ask(job, "alice", secret)
    assert hits == 0
    guess, hits = ask(job, "bob", secret)
    assert hits == 0 and cached(guess) == 0
    assert guess["choices"][0]["token_ids"] == first["choices"][0]["token_ids"]
    # The next turn of each tenant begins with that tenant's own rows.
    for tenant in ("alice", "bob"):
        reply, hits = ask(job, tenant, secret + words(40, seed=2))
        assert hits == 400, tenant


def test_a_worker_tells_only_the_asking_tenant_what_was_cached():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, real_worker("both", folder) as worker:
        secret = words(300, seed=3)
        counts = [cached(complete(worker.url, secret, {"x-pdjob-tenant": name})) for name in ("a", "b", "a", "b", "")]
        assert counts == [0, 0, 299, 299, 0]


def test_a_client_cannot_name_its_tenant(job):
    secret = words(350, seed=4)
    ask(job, "alice", secret)
    prefill = job.processes()["prefill-0"]["url"]
    before = metric(prefill, "pdjob_prefix_cache_hits_total")
    complete(job.url, secret, {"Authorization": f"Bearer {KEYS['bob']}", "x-pdjob-tenant": "alice"})
    assert metric(prefill, "pdjob_prefix_cache_hits_total") == before
