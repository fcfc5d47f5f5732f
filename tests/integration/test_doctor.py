"""`pdjob doctor` on this machine, with a Python of the test's."""

import json
import os
import subprocess

import pytest

from conftest import BIN

ANSWER = """
pdjob-doctor vllm 0.32.0
a line of somebody else's
pdjob-doctor nixl - ModuleNotFoundError: No module named 'nixl'
pdjob-doctor end -
"""


@pytest.fixture
def programs(tmp_path):
    """A folder with the programs `vllm` and its Python, which is asked, not the machine's."""
    python = tmp_path / "python-of-vllm"
    python.write_text(f"#!/bin/sh\ncat <<'END'{ANSWER}END\n")
    vllm = tmp_path / "vllm"
    vllm.write_text(f"#!{python}\n")
    usual = tmp_path / "python3"
    usual.write_text("#!/bin/sh\necho pdjob-doctor vllm 9.9.9; echo pdjob-doctor end -\n")
    for program in (python, vllm, usual):
        program.chmod(0o755)
    return tmp_path


def doctor(programs, *flags):
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
    return subprocess.run([BIN, "doctor", *flags], env=environment, capture_output=True, text=True, timeout=60)


def test_it_looks_at_this_machine_and_at_the_python_of_vllm(programs):
    shown = doctor(programs, "--json")
    report = json.loads(shown.stdout)
    assert shown.returncode == (1 if report["verdict"] == "problem" else 0), shown.stdout
    found = {finding["name"]: finding for finding in report["findings"]}
    assert found["vllm"] == {"name": "vllm", "level": "ok", "found": f"0.32.0 as {programs}/vllm", "fix": ""}
    assert found["nixl"]["level"] == "warning"
    assert found["nixl"]["fix"] == f"vllm hands KV over by it: {programs}/python-of-vllm -m pip install nixl"
    assert float(found["cpus"]["found"].split(",")[0]) >= 1
    assert found["memory"]["found"].split()[1] in ("MiB", "GiB")


def test_it_prints_the_same_for_people(programs):
    report, lines = json.loads(doctor(programs, "--json").stdout), doctor(programs).stdout.splitlines()
    for finding in report["findings"]:
        assert any(line.startswith(finding["level"]) and f" {finding['name']} " in line for line in lines), finding
