"""Answers that are computed a second time without a hand-over (router.audit): of doubles, one of which gets wrong KV without noticing, and of pdjob's
own engine."""

import json
import pathlib
import re

import httpx
import pytest

from conftest import eventually, get, metric, running_job
from test_foreign_engines import ask, expected, folder, foreign_job, logs  # noqa: F401

AUDITS = "pdjob_router_audits_total"
PROMPTS = [f"The mill number {number} stands at a river and grinds all day long" for number in range(40)]


def audited(job, result):
    return metric(job.url, AUDITS, result=result)


def greedy(job, prompt, **more):
    reply = ask(job, prompt, temperature=0, **more)
    assert reply.status_code == 200, reply.text
    return reply


def port_of(job, name):
    return int(re.search(r":(\d+)$", job.processes()[name]["url"]).group(1))


@pytest.fixture
def job(folder):  # noqa: F811
    with foreign_job(folder, decode=2, env=[f"DOUBLE_FLIP_FILE={folder}/flip"], router="audit: {share: 1}") as job:
        job.flip = pathlib.Path(folder) / "flip"
        yield job


def test_healthy_answers_accuse_nobody_and_a_wrong_pair_is_found_and_avoided(job, folder):  # noqa: F811
    for number, prompt in enumerate(PROMPTS[:12]):
        victim = greedy(job, prompt).headers["x-pdjob-decode"]
        eventually(lambda: audited(job, "equal") == number + 1, 10, "it is computed again")
    assert ask(job, PROMPTS[0]).status_code == 200, "what is drawn is not audited"
    job.flip.write_text(str(port_of(job, victim)))
    wrong = 0
    for prompt in PROMPTS:
        reply = greedy(job, prompt)
        answer = reply.json()["choices"][0]["text"]
        done = audited(job, "equal") + audited(job, "differs")
        wrong += answer != expected(prompt)
        assert (answer != expected(prompt)) == (reply.headers["x-pdjob-decode"] == victim)
        eventually(lambda: audited(job, "differs") == wrong, 10, f"each wrong answer is found: {done}")
    assert wrong == 2, "after two, the pair is avoided"
    assert metric(job.url, "pdjob_router_audit_mismatches_total", prefill="prefill-0", decode=victim) == 2
    assert audited(job, "failed") == audited(job, "dropped") == audited(job, "tie") == 0
    said = re.search(r"request (\S+): KV from prefill-0 to decode-. is suspect: .* parts at token (\d+), .* leads by (\S+)", logs(folder))
    assert said and said.group(2) == "2" and float(said.group(3)) == pytest.approx(4.59)
    (pair,) = json.loads(get(job.url + "/pdjob/workers"))["avoided_pairs"]
    assert (pair["prefill"], pair["decode"]) == ("prefill-0", victim)
    eventually(lambda: (victim, "prefill-0") in [(each["worker"], each.get("partner")) for each in job.status()["troubles"]], 5, "status says so")


def test_streams_are_audited_too_and_nothing_is_by_default(folder):  # noqa: F811
    with foreign_job(folder, router="audit: {share: 1}") as job:
        reply = greedy(job, "Once upon a time", stream=True, ignore_eos=True)
        assert reply.text.endswith("data: [DONE]\n\n")
        eventually(lambda: audited(job, "differs") == 1, 10, "it is computed again: this double writes other words in a stream")
    with foreign_job(folder) as job:
        greedy(job, "Once upon a time")
        assert not [line for line in get(job.url + "/metrics").splitlines() if line.startswith(AUDITS) and not line.endswith(" 0")]


def test_pdjobs_own_engine_agrees_with_itself_whether_kv_was_handed_over_or_not(folder):  # noqa: F811
    with running_job(folder, router="audit: {share: 1, tie: 0}") as job:
        for number, prompt in enumerate(PROMPTS[:8]):
            request = {"model": "smollm2", "temperature": 0, "max_tokens": 12, "stream": number % 2 == 1}
            request |= {"prompt": prompt} if number < 4 else {"messages": [{"role": "user", "content": prompt}]}
            reply = httpx.post(job.url + f"/v1/{'' if number < 4 else 'chat/'}completions", json=request, timeout=60)
            assert reply.status_code == 200, reply.text
            eventually(lambda: audited(job, "equal") == number + 1, 30, "it is computed again")
