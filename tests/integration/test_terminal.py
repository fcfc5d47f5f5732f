"""`pdjob --config` on a terminal: one progress line that is overwritten, Ctrl-C to stop, and Ctrl-C again to end at once."""

import contextlib
import os
import pathlib
import pty
import re
import select
import signal
import threading
import time

import httpx
import pytest

from conftest import BIN, READY_SECONDS, eventually

JOB = """\
name: test-terminal
engine: {{kind: fake, fake_delay_per_token: 50ms}}
prefill: {{workers: 1}}
decode: {{workers: 1}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


class TerminalJob:
    def __init__(self, folder):
        config = folder / "job.yaml"
        config.write_text(JOB.format(folder=folder))
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv(BIN, [BIN, "--config", str(config)])
        self.shown = ""
        self.exit_code = None

    def read_until(self, pattern, seconds):
        """Reads until the pattern is shown. None: until the job has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if pattern and (found := re.search(pattern, self.shown)):
                return found
            if not select.select([self.terminal], [], [], 0.1)[0]:
                continue
            try:
                self.shown += os.read(self.terminal, 65536).decode()
            except OSError:  # The other end is closed.
                assert pattern is None, self.shown
                self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                return None
        raise AssertionError(f"no {pattern or 'end'} in {seconds} s: {self.shown!r}")

    def children(self):
        return [int(child) for child in pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def ctrl_c(self):
        os.write(self.terminal, b"\x03")

    def close(self):
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def job(tmp_path):
    with contextlib.closing(TerminalJob(tmp_path)) as job:
        yield job


def all_gone(children):
    return not any(pathlib.Path(f"/proc/{child}").exists() for child in children)


def test_progress_is_one_line_and_ctrl_c_stops_cleanly(job):
    job.read_until("ready url=", READY_SECONDS)
    progress = re.findall(r"\r\x1b\[K(\d of 3 ready[^\r\n]*)", job.shown)
    assert progress[0].startswith("0 of 3 ready") and progress[-1] == "3 of 3 ready", job.shown
    assert "\r\x1b[Kready url=" in job.shown, "progress is written over"
    children = job.children()
    assert len(children) == 3
    job.ctrl_c()
    job.read_until(None, 30)
    assert "\r\x1b[Kstopping: finishing what is under way; ask again to end at once\r\n" in job.shown
    assert job.exit_code == 130
    eventually(lambda: all_gone(children), 5, "nothing left running")


def test_a_second_ctrl_c_ends_everything_at_once(job):
    url = job.read_until(r"ready url=(\S+)\r\n", READY_SECONDS).group(1)
    children = job.children()
    outcomes = []

    def ask():
        body = {"model": "fake", "prompt": "x", "max_tokens": 500, "ignore_eos": True}
        with contextlib.suppress(httpx.TransportError):
            outcomes.append(httpx.post(url + "/v1/completions", json=body, timeout=60).status_code)

    client = threading.Thread(target=ask)
    client.start()
    # Its 500 tokens take 25 seconds.
    eventually(lambda: "pdjob_router_requests_alive 1" in httpx.get(url + "/metrics").text, 20, "the request is under way")
    job.ctrl_c()
    job.read_until("stopping", 10)
    assert not all_gone(children), "it finishes what is under way"
    job.ctrl_c()
    asked = time.monotonic()
    job.read_until(None, 10)
    assert time.monotonic() - asked < 5
    assert job.exit_code == 130
    eventually(lambda: all_gone(children), 5, "nothing left running")
    client.join(10)
    assert outcomes == [], "the request was cut off"
