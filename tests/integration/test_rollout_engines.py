"""A trainer changes the weights of engines of another make: all at once, and never a mixture. The engines are doubles
(tests/support/engine_weights_double.py), which add the word of their weights to each word of an answer."""

import contextlib
import json
import os
import pathlib
import signal
import threading
import time

import pytest

from conftest import eventually
from test_foreign_engines import ask, engine_pid, foreign_job, logs, plan
from test_rollout import call, fleet, rollout_yaml, versions

PROMPT = "one two three four five six seven eight"
SIZE_OF_SLOW = 1 << 30  # Sparse: its digest takes seconds.


def write_weights(folder, name, word, slow=False, shape=64):
    weights = folder / "weights" / name
    weights.mkdir(parents=True)
    (weights / "config.json").write_text(json.dumps({"architectures": ["Tiny"], "hidden_size": shape}))
    (weights / "model.safetensors").write_text(word)
    if slow:
        with (weights / "more.safetensors").open("wb") as file:
            file.truncate(SIZE_OF_SLOW)
    return weights


@contextlib.contextmanager
def rollout_job(tmp_path, kind="vllm", **options):
    write_weights(tmp_path, "a", "-a")
    write_weights(tmp_path, "b", "-b")
    extra = rollout_yaml(tmp_path / "weights")
    with foreign_job(str(tmp_path), kind=kind, extra=extra, **options) as job:
        job.folder = tmp_path
        yield job


def words_of(reply):
    assert reply.status_code == 200, reply.text
    return [word[len(asked):] for word, asked in zip(reply.json()["choices"][0]["text"].split(), PROMPT.split())]


def version_of(job, **more):
    """The one version that made an answer."""
    words = set(words_of(ask(job, PROMPT, **more)))
    assert len(words) == 1, f"an answer of several versions: {words}"
    return words.pop()


def update(job, name, version, **more):
    return call(job, "POST", "/v1/rl/update", {"path": name, "version": version, **more})


class Traffic:
    """Clients without a pause. Each notes which versions its answer could have, and which it has."""

    def __init__(self, job, clients=3):
        self.job, self.stop, self.wrong, self.answers = job, threading.Event(), [], 0
        self.ordered, self.done = [version_of(job)], 0  # Versions in their order, and the place of the one that is surely served.
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]

    def run(self):
        while not self.stop.is_set():
            begin = self.done
            try:
                got = version_of(self.job)
                if got not in self.ordered[begin:]:
                    self.wrong.append(f"{got!r} in place of {self.ordered[begin:]}")
                self.answers += 1
            except Exception as error:
                self.wrong.append(repr(error))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)

    @contextlib.contextmanager
    def ordering(self, word):
        self.ordered.append(word)
        yield
        self.done = len(self.ordered) - 1


@pytest.mark.parametrize(("kind", "prefill"), [("vllm", 1), ("sglang", 1), ("vllm", 0), ("sglang", 0)])
def test_a_fleet_of_engines_takes_new_weights_under_load(tmp_path, kind, prefill):
    with rollout_job(tmp_path, kind, prefill=prefill, decode=2, env=["DOUBLE_STEP_SECONDS=0.01"]) as job:
        pids = {name: engine_pid(job, name) for name in job.processes() if not name.startswith("router")}
        assert version_of(job) == ""
        with Traffic(job) as traffic:
            for number, name in enumerate("abab"):
                time.sleep(0.3)
                with traffic.ordering(f"-{name}"):
                    status, told = update(job, name, f"step-{number}" if number < 2 else "")
                assert status == 200, told
                assert version_of(job) == f"-{name}"
            time.sleep(0.3)
        assert not traffic.wrong, traffic.wrong[:5]
        assert traffic.answers > 20
        assert {name: engine_pid(job, name) for name in pids} == pids, "no engine started anew"
        assert set(versions(job).values()) == {fleet(job)["weight_version"]}
        assert fleet(job)["digest"]


def test_a_pause_holds_requests_and_the_old_version_comes_back_as_it_was(tmp_path):
    with rollout_job(tmp_path) as job:
        assert update(job, "a", "step-1")[0] == 200
        assert call(job, "POST", "/pause?mode=wait", {})[0] == 200
        held = []
        waiter = threading.Thread(target=lambda: held.append(version_of(job)))
        waiter.start()
        assert call(job, "POST", "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path / "weights/b")}})[0] == 200
        time.sleep(0.3)
        assert not held, "admission is closed"
        assert call(job, "POST", "/resume", {})[0] == 200
        waiter.join(60)
        assert held == ["-b"]
        status, told = update(job, "a", "step-1")
        assert status == 200 and told["weight_version"] == "step-1" and version_of(job) == "-a"
        status, told = update(job, "b", "step-1")
        assert (status, told["message"]) == (400, told["message"]) and version_of(job) == "-a"
        status, told = call(job, "POST", "/update_weight_version", {"new_version": "named"})
        assert status == 200 and fleet(job)["weight_version"] == "named", told
        assert version_of(job) == "-a"
        eventually(lambda: call(job, "POST", "/v1/rl/flush", {})[0] == 200, what="a flush of an idle fleet")
        assert version_of(job) == "-a"


def test_orders_that_no_engine_could_take_change_nothing(tmp_path):
    with rollout_job(tmp_path) as job:
        assert update(job, "a", "step-1")[0] == 200
        write_weights(tmp_path, "other", "-other", shape=128)
        (tmp_path / "weights/empty").mkdir()
        (tmp_path / "weights/link").symlink_to("/etc")
        before = versions(job)
        for path, why in [("other", "weights of another model: hidden_size is 128, must be 64"), ("empty", "no .safetensors"), ("link", "not below"),
                          ("/etc", "not below"), ("missing", "No such file"), ("a/config.json", "is no folder")]:
            status, told = update(job, path, "wrong")
            assert status == 400 and why in told["message"], told
        assert versions(job) == before and version_of(job) == "-a"


def test_an_engine_that_starts_again_has_the_newest_weights_before_it_serves(tmp_path):
    with rollout_job(tmp_path, env=["DOUBLE_LOAD_SECONDS=0.5"]) as job:
        assert update(job, "a", "step-1")[0] == 200
        for name in ("decode-0", "prefill-0"):
            old = engine_pid(job, name)
            os.kill(old, signal.SIGKILL)
            eventually(lambda old=old, name=name: has_other_engine(job, name, old), 60, f"{name} is back")
            assert version_of(job) == "-a"
        assert set(versions(job).values()) == {"step-1"}
        # Other bytes under its name: such an engine never serves.
        (tmp_path / "weights/a/model.safetensors").write_text("-changed")
        os.kill(engine_pid(job, "decode-0"), signal.SIGKILL)
        eventually(lambda: "the weights of version step-1 have digest" in logs(tmp_path), 60, "the worker refuses")
        assert not is_ready(job, "decode-0")
        (tmp_path / "weights/a/model.safetensors").write_text("-a")
        eventually(lambda: is_ready(job, "decode-0"), 60, "the bytes are back")
        assert version_of(job) == "-a"


def has_other_engine(job, name, old):
    with contextlib.suppress(StopIteration, ValueError, OSError):
        return is_ready(job, name) and engine_pid(job, name) != old
    return False


def is_ready(job, name):
    return job.processes()[name]["state"] == "ready"


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("victim", ["decode-0", "prefill-0"])
@pytest.mark.parametrize("phase", ["preparing", "applying"])
def test_an_engine_that_dies_in_a_phase_never_serves_other_weights(tmp_path, kind, victim, phase):
    with rollout_job(tmp_path, kind, prefill=2, decode=2, env=["DOUBLE_LOAD_SECONDS=1"]) as job:
        write_weights(tmp_path, "slow", "-slow", slow=phase == "preparing")
        with Traffic(job, clients=2) as traffic:
            told = []
            order = threading.Thread(target=lambda: told.append(update(job, "slow", "step-1")))
            with traffic.ordering("-slow"):
                order.start()
                eventually(lambda: fleet(job)["message"] == phase, what=phase)
                time.sleep(0.3)
                os.kill(engine_pid(job, victim), signal.SIGKILL)
                order.join(120)
                assert told and told[0][0] in (200, 207), told  # 207: without the victim, which comes later.
            assert version_of(job) == "-slow"
            eventually(lambda: set(versions(job).values()) == {"step-1"}, 120, "all serve it")
        assert not [why for why in traffic.wrong if "several versions" in why or "in place of" in why], traffic.wrong[:5]


def test_an_engine_that_fails_to_load_starts_again(tmp_path):
    fault = tmp_path / "fault"
    with rollout_job(tmp_path, env=[f"DOUBLE_LOAD_FILE={fault}"]) as job:
        fault.touch()
        told = []
        order = threading.Thread(target=lambda: told.append(update(job, "a", "step-1")))
        order.start()
        eventually(lambda: "cannot take the weights: POST /collective_rpc: status 500" in logs(tmp_path), 60, "it is seen")
        fault.unlink()
        order.join(120)
        assert told and told[0][0] == 200, told
        assert version_of(job) == "-a" and set(versions(job).values()) == {"step-1"}


def test_the_plan_shows_what_it_opens_and_refuses_what_cannot_change(tmp_path):
    extra = rollout_yaml(tmp_path)
    shown = plan(str(tmp_path), extra=extra).stdout
    assert "VLLM_SERVER_DEV_MODE=1" in shown
    assert "the calls that change its weights" in shown
    assert "VLLM_SERVER_DEV_MODE" not in plan(str(tmp_path)).stdout
    recipe = "recipe: {command: [x], ready: /health}"
    refused = plan(str(tmp_path), kind="command", engine=recipe, extra=extra)
    assert "its recipe has no `weights`" in refused.stderr, refused.stderr
    refused = plan(str(tmp_path), engine="nodes: 2", extra=extra)
    assert "rollout is for engines that are on one node each" in refused.stderr, refused.stderr
