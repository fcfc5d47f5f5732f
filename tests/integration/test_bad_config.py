"""The real binary refuses a wrong job file with the whole error text, and starts nothing."""

import os
import pathlib
import subprocess

import pytest

from conftest import BIN, ROOT

CASES = {}
for block in (ROOT / "tests/unit/launcher/plan/bad_configs.txt").read_text().split("\n=== ")[1:]:
    name, _, rest = block.partition("\n")
    yaml, _, errors = ("\n" + rest + "\n").partition("\n--- errors\n")
    CASES[name] = (yaml.removeprefix("\n") + "\n", errors)

NAMES = ["broken YAML", "tab as indentation", "duplicate key", "unknown key in a section", "name is a list", "roles with different KV types"]
NAMES += ["mistakes inside of models", "two models of one served name"]


def run(argv, folder):
    return subprocess.run(
        [BIN, *argv], capture_output=True, text=True, timeout=30, cwd=folder, env={**os.environ, "HOME": str(folder), "PDJOB_MODELS": ""}
    )


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_job_file_is_refused_with_place_line_and_caret(name, command, tmp_path):
    yaml, errors = CASES[name]
    (tmp_path / "job.yaml").write_text(yaml)
    answer = run([*(["plan"] if command == "plan" else []), "--config", "job.yaml"], tmp_path)
    assert answer.returncode == 2, answer.stderr
    assert answer.stderr == errors
    place, source, caret = answer.stderr.splitlines()[:3]
    line, column = (int(number) for number in place.split(":")[1:3])
    assert source == "    " + yaml.splitlines()[line - 1]
    assert caret.strip() == "^" and len(caret) >= 4 + column
    assert answer.stdout == ""
    assert [each.name for each in tmp_path.iterdir()] == ["job.yaml"], "nothing was started, nothing written"


@pytest.mark.parametrize("wrong", [".", "missing.yaml"])
def test_what_is_no_file_is_refused(wrong, tmp_path):
    answer = run(["--config", wrong], tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == f"{wrong}: cannot be read\n"
    assert not list(tmp_path.iterdir())
