"""A short run of `./dev chaos`: each kind of fault on each kind of process, under load whose answers are known."""

import pathlib
import sys

import pytest

from conftest import BIN, MODEL

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))
import chaos  # noqa: E402
import plan  # noqa: E402
import report  # noqa: E402
from load import Asked  # noqa: E402
from strike import Strike, Striker  # noqa: E402

DECK = {
    ("prefill", "kill"): 1,
    ("decode", "kill"): 1,
    ("router", "kill"): 1,
    ("launcher", "kill"): 1,
    ("agent", "kill"): 1,
    ("decode", "stop"): 1,
    ("router", "stop"): 1,
    ("prefill", "pause"): 1,
    ("launcher", "pause"): 1,
    ("prefill", "slow"): 1,
    ("agent", "slow"): 1,
}
RECOVERY_SECONDS = 60.0  # Of a loaded machine. What a quiet one needs is in docs/reliability.md.


def test_nothing_is_lost_or_altered_and_all_recovers_while_each_kind_of_process_is_hurt(tmp_path, monkeypatch):
    monkeypatch.setenv("PDJOB_BIN", BIN)
    monkeypatch.setenv("PDJOB_TEST_MODEL", MODEL)
    faults = [fault for fault, _ in zip(plan.plan(20261124, DECK), range(sum(DECK.values())))]
    ended = chaos.run(faults, tmp_path, chaos.Console())
    found = report.judge(ended.requests, ended.strikes)
    bad = [asked.to_json(0) for asked in found["lost"] + found["altered"]]
    logs = "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}" for log in tmp_path.glob("logs/**/*.log")) if bad or not ended.well else ""
    assert not bad, f"{bad[:3]}\n{logs}"
    assert ended.well and not ended.left, logs
    assert len(found["right"]) > len(ended.strikes)
    for row in report.rows([report.recovery(ended.requests, strike) for strike in ended.strikes]):
        assert (row["next_token"]["max"] or 0) < RECOVERY_SECONDS and (row["next_answer"]["max"] or 0) < RECOVERY_SECONDS, row


def test_a_seed_decides_the_plan():
    first = [fault for fault, _ in zip(plan.plan(7), range(200))]
    assert first == [fault for fault, _ in zip(plan.plan(7), range(200))]
    assert first != [fault for fault, _ in zip(plan.plan(8), range(200))]
    assert {(fault.role, fault.kind) for fault in first} == set(plan.DECK)


def asked(outcome, begun=10.0, ended=11.0, **more):
    return Asked(begun=begun, which=0, max_tokens=4, stream=True, ended=ended, outcome=outcome, connected=begun, **more)


@pytest.mark.parametrize(
    "strike, request_, verdict",
    [
        (Strike(1, "router", "kill", at=10.5, replaced=True, clients={5000: 10.5}), asked("broken", port=5000), "apart"),
        (Strike(1, "router", "kill", at=10.5, replaced=True, clients={5000: 10.5}), asked("broken", port=5001), "lost"),
        (Strike(1, "router", "kill", at=9.0, replaced=True, clients={5000: 9.0}), asked("broken", port=5000), "lost"),
        (Strike(1, "router", "pause", at=10.5, replaced=False, clients={5000: 10.5}), asked("broken", port=5000), "lost"),
        (Strike(1, "decode", "kill", at=10.5, replaced=True), asked("broken", port=5000), "lost"),
        (Strike(1, "decode", "kill", at=10.5, replaced=True), asked("refused"), "lost"),
        (Strike(1, "agent", "kill", at=10.5, replaced=True, well_at=14.0), asked("broken", begun=12.0, ended=12.1), "apart"),
        (Strike(1, "agent", "kill", at=10.5, replaced=True, well_at=14.0), asked("broken", begun=14.5, ended=14.6), "lost"),
        (Strike(1, "agent", "kill", at=10.5, replaced=True, well_at=14.0), asked("altered"), "altered"),
    ],
)
def test_only_requests_whose_router_died_are_counted_apart(strike, request_, verdict):
    assert report.judge([request_], [strike])[verdict] == [request_]


class TargetDouble:
    def __init__(self, role, name):
        self.role, self.name = role, name

    def stop(self):
        pass

    def signal(self, number):
        pass

    def alive(self):
        return False

    def close(self):
        pass


class JobDouble:
    def targets(self, role):
        return [TargetDouble(role, f"{role}-{number}") for number in range(2)]

    def pids(self):
        return {}

    def wait_well(self, seconds, replaced):
        return True


def test_a_fault_has_a_peer_at_hand_only_if_nobody_else_is_hurt_until_all_is_well():
    def kill(role, pick, hurried=False):
        return plan.Fault(role, "kill", pick, seconds=0.0, restart=0.0, before=0.0, hurried=hurried)

    striker = Striker(JobDouble())
    faults = [kill("decode", 0.0), kill("decode", 0.9, hurried=True), kill("decode", 0.0), kill("prefill", 0.0)]
    striker.run(faults, lambda: False, lambda strike: None)
    assert [strike.peer_at_hand for strike in striker.strikes] == [False, False, True, True]


def test_recovery_is_the_time_from_the_fault_to_the_next_token_of_a_stream_that_was_there():
    strike = Strike(1, "decode", "kill", name="decode-0", at=10.0)
    there = asked("right", begun=9.0, ended=12.0, decode="decode-0", times=[9.5, 9.9, 10.01, 11.25, 11.3])
    elsewhere = asked("right", begun=9.0, ended=12.0, decode="decode-1", times=[9.5, 10.2])
    later = asked("right", begun=10.5, ended=12.0, decode="decode-1", times=[10.75])
    found = report.recovery([there, elsewhere, later], strike)
    assert found.tokens == [1.25], "the token at 10.01 was on its way"
    assert (found.answer, found.slowest) == (0.75, 0.25)
