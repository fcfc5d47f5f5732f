"""Requests that crash or hang a worker, on real jobs of the fake engine, which does so on a token that the job file names."""

import contextlib
import json
import pathlib
import sys
import tempfile

import httpx

from conftest import MODEL, Job, eventually, get, metric

TOKEN = 35  # "#", which no other prompt here holds, and which the fake engine generates only where it is told to.
HELLO = {"model": "fake", "prompt": "a quiet prompt", "max_tokens": 8, "temperature": 0}


@contextlib.contextmanager
def fake_job(prefill=1, decode=1, engine="", router="", launcher="", extra=""):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = Job(
            f"""\
name: test-{pathlib.Path(folder).name}
model: {MODEL}
served_name: fake
engine: {{kind: fake, tokens_per_sequence: 1024, sequences: 8, {engine}}}
prefill: {{workers: {prefill}}}
decode: {{workers: {decode}}}
router: {{listen: "127.0.0.1:0", {router}}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs, restart: {{backoff_min: 100ms, backoff_max: 500ms}}, {launcher}}}
{extra}""",
            folder,
        )
        try:
            yield job.wait_ready()
        except BaseException:
            print(job.log_tail(), file=sys.stderr)
            for log in sorted(pathlib.Path(folder).glob("logs/**/*.log")):
                print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-40:]), file=sys.stderr)
            raise
        finally:
            code = job.stop()
        assert code == 0, job.log_tail()


def ask(job, body, **options):
    return httpx.post(job.url + "/v1/completions", json={**HELLO, **body}, timeout=60, **options)


def all_ready(job):
    return all(process["state"] == "ready" for process in job.processes().values())


def log_of(job, name):
    return (job.folder / "logs" / f"{name}.log").read_text(errors="replace")


def test_a_worker_that_hangs_is_found_though_its_heartbeats_come_and_writes_its_stacks():
    with fake_job(engine=f"fake_hang_on_token: {TOKEN}", launcher="progress_timeout: 2s") as job:
        assert ask(job, {}).status_code == 200
        with httpx.Client(base_url=job.url, timeout=1) as client, contextlib.suppress(httpx.TimeoutException):
            client.post("/v1/completions", json={**HELLO, "prompt": "hang #"})  # And leaves, which frees nothing.
        eventually(lambda: job.processes()["prefill-0"]["hangs"] == 1, what="the hang is found")
        eventually(lambda: job.processes()["prefill-0"]["restarts"] == 1, what="it is started again")
        eventually(lambda: all_ready(job), what="the job is whole again")
        log = log_of(job, "prefill-0")
        stacks = log[log.index("--- stacks of process ") : log.index("--- end of stacks")]
        assert " engine:\n" in stacks and " kv:\n" in stacks, stacks
        assert "thread " in stacks and "does not answer" not in stacks.split(" engine:\n")[1].split("thread ")[0]
        assert job.processes()["prefill-0"]["crashes"] == 0
        assert job.processes()["prefill-0"]["last_exit"].startswith("hung, then signal 9")
        assert "left=prefill-0." in log_of(job, "launcher") and "(hang)" in log_of(job, "launcher")
        assert ask(job, {}).status_code == 200
