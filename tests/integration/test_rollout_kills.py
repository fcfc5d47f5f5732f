"""Rollouts while a trainer changes the weights and processes are killed in each phase: each token has the right version and is that version's own."""

import json
import os
import pathlib
import shutil
import sys
import tempfile

import httpx
import pytest

from conftest import BIN, MODEL, Process, eventually, metric
from gguf_weights import swap_layers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))
import rollouts  # noqa: E402
from rollouts import Piece, Rollout, Update, judge, plan  # noqa: E402


def assert_right(ended, folder):
    report = ended.report()
    print(json.dumps(report, indent=1))
    logs = "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-4000:]}" for log in pathlib.Path(folder).glob("logs/**/*.log")) if ended.wrong or ended.troubles else ""
    assert not ended.wrong and not ended.troubles, f"{[(rollout.form, why) for rollout, why in ended.wrong[:3]]} {report}\n{logs}"
    assert report["updates_done"] == report["updates"]


def test_each_token_is_of_its_version_while_processes_are_killed(tmp_path):
    deck = [("launcher", "apply"), ("decode", "prepare"), ("router", "close")]
    updates = [Update(number, "ba"[number % 2], mode) for number, mode in enumerate(["keep", "abort", "wait"])]
    for update, (victim, phase) in zip(updates, deck):
        update.victim, update.phase = victim, phase
    ended = rollouts.run(BIN, MODEL, tmp_path, 24, updates)
    assert_right(ended, tmp_path)
    assert ended.report()["kills"], "nobody was killed"


@pytest.mark.heavy
@pytest.mark.parametrize("mode", rollouts.MODES)
def test_a_thousand_rollouts_over_thirty_updates(mode, tmp_path):
    ended = rollouts.run(BIN, MODEL, tmp_path, 1000, plan([mode], 30, 30, seed=19), workers=2)
    assert_right(ended, tmp_path)
    assert sum(ended.report()["kills"].values()) >= 25


def test_the_plan_kills_every_process_in_every_phase():
    planned = plan(["wait"], 30, 24, seed=3)
    assert {(update.victim, update.phase) for update in planned if update.victim} == {(v, p) for v in rollouts.VICTIMS for p in rollouts.PHASES}
    assert planned == plan(["wait"], 30, 24, seed=3)


# --- the canary: KV of other weights is refused, and seen


def test_kv_of_other_weights_is_refused_and_counted():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        other = pathlib.Path(folder) / "b.gguf"
        swap_layers(MODEL, other, 1, 4)
        settings = ["--listen", "127.0.0.1:0", "--set", "served_name=smollm2", "--set", "kvtransfer.lease=2s"]
        prefill = Process(["pdjob", "worker", "--role", "prefill", "--model", MODEL, *settings], folder).wait_ready()
        decode = Process(["pdjob", "worker", "--role", "decode", "--model", str(other), *settings], folder).wait_ready()
        twin = Process(["pdjob", "worker", "--role", "decode", "--model", MODEL, *settings], folder).wait_ready()
        try:
            assert metric(prefill.url, "pdjob_kv_fingerprints_refused_total") == 0
            assert hand_over(prefill, twin, 1).status_code == 200
            assert metric(prefill.url, "pdjob_kv_fingerprints_refused_total") == 0
            reply = hand_over(prefill, decode, 2)
            assert reply.status_code != 200 and "fingerprint" in reply.text, reply.text
            eventually(lambda: metric(prefill.url, "pdjob_kv_fingerprints_refused_total") >= 1, what="the refusal is counted")
            assert "KV fingerprint differs in model_digest" in prefill.log.read_text()
        finally:
            for process in (prefill, decode, twin):
                process.stop()


def hand_over(prefill, decode, number):
    """One request in vLLM's two-hop words. Returns the decode worker's reply."""
    body = {"model": "smollm2", "prompt": "The sea is", "temperature": 0}
    first = httpx.post(prefill.url + "/v1/completions", json={**body, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}, timeout=60)
    assert first.status_code == 200, first.text
    return httpx.post(decode.url + "/v1/completions", json={**body, "max_tokens": 8, "kv_transfer_params": first.json()["kv_transfer_params"]}, timeout=60)


# --- the judge itself

PROMPT = [1, 2]


class Books:
    """Weights a count upwards, weights b downwards."""

    def after(self, which, before, count):
        step = 1 if which == "a" else -1
        return [before[-1] + step * (i + 1) for i in range(count)]


def rollout(tokens, spans, begun=10.0, ended=11.0, logprobs=None):
    return Rollout(0, PROMPT, len(tokens), "generate", [Piece(PROMPT, tokens, [{"version": v, "start": s, "end": e} for v, s, e in spans], logprobs, begun, ended)])


STEPS = [Update(0, "b", "keep", ordered=10.2, done=10.6), Update(1, "a", "keep", ordered=10.7, done=10.9)]
B, A = "step-0-b", "step-1-a"


@pytest.mark.parametrize(
    "found, why",
    [
        (rollout([3, 4, 5], [("default", 0, 3)]), ""),
        (rollout([3, 4, 3, 2], [("default", 0, 2), (B, 2, 4)]), ""),
        (rollout([3, 2, 3], [("default", 0, 1), (B, 1, 2), (A, 2, 3)]), ""),
        (rollout([3, 4, 5, 6], [("default", 0, 2), (B, 2, 4)]), "alone it makes [3, 2]"),
        (rollout([3, 4, 9], [("default", 0, 3)]), "alone it makes [3, 4, 5]"),
        (rollout([3, 4, 5], [("default", 0, 2)]), "3 tokens, and spans"),
        (rollout([3, 4, 5], [("default", 0, 2), (B, 1, 3)]), "spans"),
        (rollout([3, 4, 5], []), "3 tokens, and spans"),
        (rollout([3, 4, 5], [("", 0, 3)]), "spans"),
        (rollout([3, 4, 5], [("step-9-a", 0, 3)]), "never ordered"),
        (rollout([1, 2], [(B, 0, 1), ("default", 1, 2)]), "after step 0"),
        (rollout([3, 4, 5], [("default", 0, 3)], begun=10.65), "step 0 was complete before the request"),
        (rollout([3, 4, 5], [(A, 0, 3)], ended=10.65), "before it was ordered"),
        (rollout([3, 4, 5], [("default", 0, 3)], logprobs=2), "2 logprobs"),
        (Rollout(0, PROMPT, 8, "generate"), "0 of 8 tokens"),
    ],
)
def test_the_judge_finds_each_kind_of_wrong_token(found, why):
    assert (judge(found, STEPS, Books()) == "") == (why == "") and why in judge(found, STEPS, Books())
