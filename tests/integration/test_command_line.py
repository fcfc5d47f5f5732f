"""What the command line answers to people who mistype, and to people who run one job."""

import os
import pathlib
import subprocess

import pytest

from conftest import BIN, running_job


def run(*argv, **more):
    return subprocess.run([BIN, *argv], capture_output=True, text=True, timeout=30, **more)


@pytest.mark.parametrize("argv,meant", [
    (["--confg", "job.yaml"], "--config"),
    (["statsu"], "status"),
    (["router", "--polcy", "random"], "--policy"),
])
def test_a_mistyped_word_is_answered_with_the_word_that_was_meant(argv, meant):
    answer = run(*argv)
    assert answer.returncode == 2
    assert f"did you mean {meant}?" in answer.stderr


@pytest.mark.parametrize("page", ["job-file", "headers", "metrics"])
def test_each_reference_page_is_markdown_with_tables(page):
    answer = run("reference", page)
    assert answer.returncode == 0 and answer.stdout.startswith("# ") and "\n|---|" in answer.stdout


def test_status_shows_the_only_job_without_being_told_its_name(tmp_path):
    home = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    answer = run("status", env=home)
    assert answer.returncode == 2 and "no job is running here" in answer.stderr
    (tmp_path / "pdjob").symlink_to(tmp_path / "state")  # Where jobs are by default.
    with running_job(tmp_path) as job:
        answer = run("status", env=home)
        assert answer.returncode == 0 and "decode-0" in answer.stdout, answer.stderr
        names = {pathlib.Path(f"/proc/{each['pid']}/comm").read_text().strip() for each in job.processes().values()}
        assert names == {"pdjob:prefill-0", "pdjob:decode-0", "pdjob:router-0"}, "as ps shows them"


def test_paths_of_a_job_file_start_at_its_own_folder(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text("name: here\nmodel: models/m.gguf\nrouter: {listen: '127.0.0.1:0'}\n")
    answer = run("plan", "--config", "jobs/job.yaml", cwd=tmp_path)
    assert answer.returncode == 2 and "not found: no file jobs/models/m.gguf\n" in answer.stderr, answer.stderr
