"""configs/toy_trainer.py raises its reward on a running job. The seed decides every token, so it does so each time."""

import re
import subprocess
import sys

import pytest

from conftest import MODEL, ROOT, running_job
from test_rollout import key_of, rollout_yaml

SHORT = ["--steps", "3", "--group", "6", "--length", "8", "--rate", "6"]


def rewards(folder, words):
    weights = folder / "weights"
    weights.mkdir()
    with running_job(folder, extra=rollout_yaml(weights)) as job:
        key = folder / "key"
        key.write_text(key_of(job))
        given = ["--url", job.url, "--model", MODEL, "--weights-dir", str(weights), "--key-file", str(key)]
        ran = subprocess.run([sys.executable, str(ROOT / "configs/toy_trainer.py"), *given, *words], capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stderr
        print(ran.stdout)
        assert len(list(weights.glob("*.gguf"))) == 1, "old files are removed"
        return [float(reward) for reward in re.findall(r"reward ([0-9.]+)", ran.stdout)]


def test_it_raises_its_reward(tmp_path):
    found = rewards(tmp_path, SHORT)
    assert len(found) == 3 and found[-1] > found[0] + 0.05, found


@pytest.mark.heavy
def test_a_longer_run_raises_it_further(tmp_path):
    found = rewards(tmp_path, [])
    assert sum(found[-2:]) / 2 > found[0] + 0.2, found
