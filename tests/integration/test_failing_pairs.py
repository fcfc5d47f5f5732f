"""Two workers that go on failing with each other: one of them is replaced, and no client sees a failure."""

import os
import pathlib
import signal
import subprocess
import threading

from conftest import BIN, eventually
from test_audit import port_of
from test_foreign_engines import LONG, ask, engine_pid, expected, folder, foreign_job, logs  # noqa: F401


class Load:
    """A request about five times a second."""

    def __init__(self, job):
        self.job, self.over, self.answered, self.errors = job, threading.Event(), 0, []
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def run(self):
        while not self.over.wait(0.2):
            prompt = f"request {self.answered}: {LONG}"
            reply = ask(self.job, prompt)
            if reply.status_code != 200 or reply.json()["choices"][0]["text"] != expected(prompt):
                self.errors.append(reply.text)
            self.answered += 1


def test_the_older_of_two_engines_that_go_on_failing_with_each_other_is_replaced(folder):  # noqa: F811
    stale = pathlib.Path(folder) / "stale"
    with foreign_job(folder, prefill=2, decode=2, env=[f"DOUBLE_STALE_FILE={stale}"], router="prefill_policy: random, decode_policy: random") as job:
        before = job.processes()["decode-0"]["pid"]
        os.kill(engine_pid(job, "decode-0"), signal.SIGKILL)
        back = lambda: (now := job.processes()["decode-0"])["state"] == "ready" and now["pid"] != before  # noqa: E731
        eventually(back, 30, "decode-0 is the youngest")
        replaced = lambda: {name: each["replacements"] for name, each in job.processes().items() if each["replacements"]}  # noqa: E731
        with Load(job) as load:
            eventually(lambda: load.answered > 10, 20, "all is well at first")
            stale.write_text(str(port_of(job, "decode-0")))
            eventually(replaced, 90, "one of the pair is replaced")
            ((name, times),) = replaced().items()
            assert name.startswith("prefill-") and times == 1, "decode-0 started after it"
            eventually(lambda: job.processes()[name]["state"] == "ready", 30, "its successor serves")
            done = load.answered
            eventually(lambda: load.answered > done + 20, 30, "the load goes on")
        assert not load.errors, load.errors[:3]
        assert f"requests avoid decode-0 with {name} for a while: the hand-over fails" in logs(folder)
        story = subprocess.run([BIN, "explain", "--config", str(job.config)], capture_output=True, text=True, timeout=30).stdout
        assert f"{name} goes on failing with decode-0 (the hand-over fails" in story, story
        assert "it is drained, and a new process takes its place" in story, story
