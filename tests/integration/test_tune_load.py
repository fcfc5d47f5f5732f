"""`pdjob tune`: the workers that a load needs, found by simulations."""

import json
import subprocess

import pytest

from conftest import BIN

JOB = """\
name: sizes
model: any
prefill: {workers: 1}
decode: {workers: 1}
engine: {sequences: 16, tokens_per_sequence: 2048}
"""
LOAD = ["--rate", "2", "--prompt", "200", "--output", "20", "--slo", "ttft=1500ms,itl=60ms", "--duration", "5s"]


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def tune(*words):
    return subprocess.run([BIN, "tune", *map(str, words)], capture_output=True, text=True, timeout=120)


def test_a_job_file_with_the_smallest_fleet_is_written_and_planned(job, tmp_path):
    out = tmp_path / "tuned.yaml"
    done = tune(job, *LOAD, "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Enough: ") and "With 20 % more load: " in done.stdout and not done.stderr
    told = json.loads(tune(job, *LOAD, "--json").stdout)
    best, runner_up = told["best"], told["runner_up"]
    assert best["share_with_margin"] >= 0.95
    assert bool(best["both"]) != bool(runner_up["both"]), "of the other kind"
    fleet = best["prefill"] + best["decode"] + best["both"]
    assert fleet <= runner_up["prefill"] + runner_up["decode"] + runner_up["both"]
    one_less = [each for each in told["neighbours"] if "less" in each["what"]]
    assert any(each["figures"]["share_within_slo"] < 0.95 for each in one_less), "one worker less is not enough"
    boxes = tmp_path / "boxes.yaml"
    boxes.write_text("nodes:\n  box: {cores: 64, memory: 100GiB}\n")
    planned = subprocess.run([BIN, "plan", str(out), "--assume", str(boxes), "--json"], capture_output=True, text=True)
    assert planned.returncode == 0, planned.stderr
    roles = [process["role"] for process in json.loads(planned.stdout)["processes"]]
    assert (roles.count("prefill"), roles.count("decode"), roles.count("both")) == (best["prefill"], best["decode"], best["both"])


def test_what_no_fleet_can_do_is_said(job):
    alone = tune(job, *LOAD[:-4], "--slo", "ttft=10ms,itl=60ms", "--duration", "5s")
    assert alone.returncode == 1 and alone.stdout.startswith("No number of workers is enough: even one at a time, only 0.0 % ")
    few = tune(job, *LOAD, "--most", "1")
    assert few.returncode == 1 and few.stdout.startswith("No fleet of up to 1 workers has 95.0 % within ")
    assert "The nearest, " in few.stdout


def test_exactly_so_many_workers_are_used_as_well_as_they_can_be(job):
    told = json.loads(tune(job, *LOAD, "--workers", "3", "--json").stdout)
    assert told["headline"].startswith("Of 3 workers, ")
    assert told["best"]["prefill"] + told["best"]["decode"] + told["best"]["both"] == 3


def test_wrong_words_are_refused_with_what_is_right(job):
    for words, why in [([job], "give the load"), ([], "name the job file: --config FILE"), ([job, *LOAD, "--margin", "0.5"], "--margin"),
                       (["--measure", "http://127.0.0.1:9"], "--out FILE")]:
        done = tune(*words)
        assert done.returncode == 2 and why in done.stderr, done
