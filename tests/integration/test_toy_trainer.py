"""configs/toy_trainer.py raises its reward on a running job. The seed decides every token, so it does so each time."""

import http.server
import re
import subprocess
import sys
import threading

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


class Refuses(http.server.BaseHTTPRequestHandler):
    asked = []

    def do_POST(self):
        self.asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        body = b'{"error": {"message": "the file is not below rollout.weights_dir"}}'
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_it_says_why_the_job_refuses_its_weights_and_names_them_by_a_whole_path(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "key").write_text("k")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as job:
        threading.Thread(target=job.serve_forever, daemon=True).start()
        words = ["--url", f"http://127.0.0.1:{job.server_port}", "--model", MODEL, "--weights-dir", "weights", "--key-file", "key"]
        ran = subprocess.run([sys.executable, str(ROOT / "configs/toy_trainer.py"), *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        job.shutdown()
    assert ran.returncode == 1 and ran.stderr == "/v1/rl/update: 400: the file is not below rollout.weights_dir\n", ran
    assert f'"{tmp_path}/weights/toy-' in Refuses.asked[0]
    nobody = subprocess.run([sys.executable, str(ROOT / "configs/toy_trainer.py"), *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert nobody.returncode == 1 and "cannot be reached: " in nobody.stderr and "Traceback" not in nobody.stderr


@pytest.mark.heavy
def test_a_longer_run_raises_it_further(tmp_path):
    found = rewards(tmp_path, [])
    assert sum(found[-2:]) / 2 > found[0] + 0.2, found
