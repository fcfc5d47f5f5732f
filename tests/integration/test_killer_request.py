"""Requests that crash or hang a worker, on real jobs of the fake engine. The engine does so at a token that the job file names."""

import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import signal
import sys
import tempfile

import httpx
import pytest

from conftest import MODEL, Job, eventually, metric

TOKEN = 35  # "#": absent from all other prompts here. The fake engine generates it only on request.
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
            client.post("/v1/completions", json={**HELLO, "prompt": "hang #"})  # The client leaves, which frees nothing.
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


def test_an_engine_that_knows_its_pace_is_found_hung_long_before_the_timeout():
    with fake_job(engine=f"fake_hang_on_token: {TOKEN}", launcher="progress_timeout: 1h") as job:
        for _ in range(25):  # The engine learns how long its steps take.
            assert ask(job, {}).status_code == 200
        with httpx.Client(base_url=job.url, timeout=1) as client, contextlib.suppress(httpx.TimeoutException):
            client.post("/v1/completions", json={**HELLO, "prompt": "hang #"})
        eventually(lambda: job.processes()["prefill-0"]["restarts"] == 1, what="the hung worker is replaced")
        assert job.processes()["prefill-0"]["last_exit"].startswith("hung, then signal 9")
        eventually(lambda: all_ready(job), what="the job is whole again")
        assert ask(job, {}).status_code == 200


def workers(job):
    return {name: process for name, process in job.processes().items() if process["role"] != "router"}


def crashes(job):
    return sum(process["crashes"] for process in workers(job).values())


# Where the worker dies: at the prompt in a prefill worker, or at a generated token in a decode worker. In the latter case a stream has
# begun.
KILLERS = {
    "prefill": ({"prompt": "crash #"}, (3, 1)),
    "decode": ({"prompt": "crash", "logit_bias": {str(TOKEN): 100}}, (1, 3)),
}


@pytest.mark.parametrize("where", KILLERS)
def test_a_request_that_crashes_workers_is_refused_after_two_and_the_others_are_answered(where):
    killer, (prefill, decode) = KILLERS[where]
    engine = f"fake_crash_on_token: {TOKEN}, fake_delay_per_token: 5ms"
    with fake_job(prefill, decode, engine, "prefill_policy: round_robin, decode_policy: round_robin") as job:
        asked = [{"prompt": f"neighbour {number}", "max_tokens": 40} for number in range(12)]
        expected = [ask(job, body).json()["choices"][0]["text"] for body in asked]
        with concurrent.futures.ThreadPoolExecutor(len(asked) + 1) as pool:
            neighbours = [pool.submit(ask, job, body) for body in asked]
            refused = pool.submit(ask, job, killer).result()
            replies = [neighbour.result() for neighbour in neighbours]
        assert refused.status_code == 422, refused.text
        assert refused.json()["error"]["code"] == "request_kills_workers"
        assert refused.json()["error"]["type"] == "invalid_request_error"
        assert [reply.status_code for reply in replies] == [200] * len(asked), [reply.text for reply in replies]
        assert [reply.json()["choices"][0]["text"] for reply in replies] == expected
        assert crashes(job) == 2
        eventually(lambda: all_ready(job), what="the job is whole again")
        assert sum(process["restarts"] for process in workers(job).values()) == 2
        router = job.processes()["router-0"]["url"]
        assert metric(router, "pdjob_router_requests_blamed_total") == 1
        log = log_of(job, "router-0")
        assert "is not given on: 2 workers crashed or hung while they ran it; SHA-256 " in log
        assert "crash #" not in log, "its text is nobody's business"


def test_a_stream_that_crashes_workers_is_cut_after_two():
    body, workers_of = KILLERS["decode"]
    # With the delay, the first token has left before the worker dies.
    with fake_job(*workers_of, f"fake_crash_on_token: {TOKEN}, fake_delay_per_token: 100ms") as job:
        with pytest.raises(httpx.TransportError):
            ask(job, {**body, "stream": True})
        eventually(lambda: crashes(job) == 2, what="two crashes are counted")
        eventually(lambda: all_ready(job), what="the job is whole again")
        assert ask(job, {}).status_code == 200
        assert crashes(job) == 2


def test_a_request_that_hangs_workers_is_refused_after_two():
    with fake_job(1, 3, f"fake_hang_on_token: {TOKEN}", launcher="progress_timeout: 2s") as job:
        refused = ask(job, KILLERS["decode"][0])
        assert refused.status_code == 422, refused.text
        eventually(lambda: all_ready(job), what="the job is whole again")
        assert sum(process["hangs"] for process in workers(job).values()) == 2
        assert ask(job, {}).status_code == 200


def test_the_tenant_of_a_killer_is_counted():
    key = "sk-of-a-stranger"
    tenants = f"tenants: {{stranger: {{key_sha256: {hashlib.sha256(key.encode()).hexdigest()}}}}}"
    with fake_job(1, 3, f"fake_crash_on_token: {TOKEN}", router=tenants) as job:
        refused = ask(job, KILLERS["decode"][0], headers={"Authorization": f"Bearer {key}"})
        assert refused.status_code == 422, refused.text
        router = job.processes()["router-0"]["url"]
        assert metric(router, "pdjob_router_requests_blamed_total", tenant="stranger") == 1
        assert "of tenant stranger" in log_of(job, "router-0")


def busy(job):
    """Returns the process ids of the decode workers that have a request."""
    return [p["pid"] for name, p in workers(job).items() if name.startswith("decode") and p["load"]["requests_running"]]


def test_a_kill_from_outside_is_never_the_requests_fault():
    body = {"prompt": "innocent", "max_tokens": 200, "stream": True}
    with fake_job(1, 2, "fake_delay_per_token: 20ms", "continuations: 16, attempts: 16") as job:
        expected = ask(job, body).text
        tokens = [line for line in expected.splitlines() if line.startswith("data:") and '"text"' in line]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reply = pool.submit(ask, job, body)
            for _ in range(5):
                eventually(lambda: (all_ready(job) and busy(job)) or reply.done(), what="it runs at a worker, and the job is whole")
                victims = busy(job)
                if reply.done() or not victims:
                    break
                os.kill(victims[0], signal.SIGKILL)
                eventually(lambda: victims[0] not in [p["pid"] for p in workers(job).values()] or reply.done(), what="the launcher knows")
            got = reply.result()
        assert got.status_code == 200

        def text(stream):
            return "".join(part.split('"text":"')[1].split('"')[0] for part in stream.splitlines() if '"text":"' in part)

        assert tokens and text(got.text) == text(expected)
        assert crashes(job) == 0
        assert metric(job.processes()["router-0"]["url"], "pdjob_router_requests_blamed_total") == 0
