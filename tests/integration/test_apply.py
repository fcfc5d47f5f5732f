"""`pdjob diff` and `pdjob apply`: a running job becomes what its changed file says, or goes back, and clients notice nothing."""

import os
import pathlib
import signal
import subprocess
import tempfile
import threading

import httpx
import pytest

from conftest import BIN, MODEL, Job, Process, eventually, running_job
from test_failover import Clients, bodies, expected, launchers, tokens  # noqa: F401 (a fixture)

OTHER_MODEL = str(pathlib.Path(MODEL).with_name("smollm2-6-layers-q4_0.gguf"))


class OneOf(tuple):
    """Equals each of its items."""

    def __eq__(self, other):
        return other in tuple(self)

    def __ne__(self, other):
        return not self == other


def pdjob(command, config, *words, timeout=240):
    return subprocess.run([BIN, command, str(config), *words], capture_output=True, text=True, timeout=timeout)


def changed(job, old, new):
    """Writes the job's file anew, beside the old one."""
    text = pathlib.Path(job.config).read_text()
    assert old in text, text
    path = pathlib.Path(job.config).with_name("changed.yaml")
    path.write_text(text.replace(old, new))
    return path


def test_workers_are_replaced_under_load_and_each_answer_is_right(folder, expected):  # noqa: F811
    with running_job(folder, prefill=2, decode=2, decode_extra="local_chunk_tokens: 32") as job:
        before = job.processes()
        with Clients(job.url, expected) as clients:
            file = changed(job, "local_chunk_tokens: 32", "local_chunk_tokens: 48, requests_queued: 77")
            shown = pdjob("diff", file)
            assert shown.returncode == 0, shown.stderr
            assert "  decode: decode.local_chunk_tokens: 32 -> 48\n" in shown.stdout
            assert "replaced one after the other: decode-0, decode-1\n" in shown.stdout
            assert {name: process["pid"] for name, process in job.processes().items()} == {name: process["pid"] for name, process in before.items()}
            applied = pdjob("apply", file)
            assert applied.returncode == 0, applied.stderr
            clients.wait_for_more(6)
        assert not clients.wrong, clients.wrong[:3]
        after = job.processes()
        assert all(after[name]["pid"] != before[name]["pid"] for name in ("decode-0", "decode-1"))
        assert after["router-0"]["pid"] == before["router-0"]["pid"]
        assert pdjob("diff", file).stdout == "nothing: the job is as this file says\n"


def all_tokens(url):
    with httpx.Client(base_url=url, timeout=120) as client:
        return [tokens(client, body, stream=False) for body in bodies()]


@pytest.fixture(scope="module")
def expected_of_other():
    """The answers of the other model, by one process."""
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as name:
        settings = ["--listen", "127.0.0.1:0", "--set", "served_name=smollm2", "--set", "decode.prefix_cache=false"]
        process = Process(["pdjob", "worker", "--role", "both", "--model", OTHER_MODEL, *settings], name).wait_ready()
        yield all_tokens(process.url)
        process.stop()


def handed_over(url):
    reply = httpx.post(url + "/v1/completions", json={**bodies()[0], "max_tokens": 2}, timeout=120)
    assert reply.status_code == 200, reply.text
    return int(reply.headers.get("x-pdjob-kv-bytes", "0")) > 0


def test_each_answer_is_whole_of_one_of_two_models_while_the_model_changes(folder, expected, expected_of_other):  # noqa: F811
    assert expected != expected_of_other
    with running_job(folder, prefill=2, decode=2) as job:
        before = job.processes()
        with Clients(job.url, [OneOf(pair) for pair in zip(expected, expected_of_other)]) as clients:
            file = changed(job, MODEL, OTHER_MODEL)
            shown = pdjob("diff", file)
            assert f"  decode: model: {MODEL} -> {OTHER_MODEL}\n" in shown.stdout, shown.stdout + shown.stderr
            assert "fingerprint" not in shown.stdout
            applied = pdjob("apply", file, timeout=400)
            assert applied.returncode == 0, applied.stderr
            clients.wait_for_more(3)
        assert not clients.wrong, clients.wrong[:3]
        after = job.processes()
        assert all(after[name]["pid"] != before[name]["pid"] for name in before if name != "router-0")
        assert after["router-0"]["pid"] == before["router-0"]["pid"]
        assert all_tokens(job.url) == expected_of_other
        assert handed_over(job.url)


def test_a_model_that_cannot_be_loaded_sends_the_job_back(folder, expected):  # noqa: F811
    broken = pathlib.Path(folder) / "broken.gguf"
    broken.write_bytes(pathlib.Path(MODEL).read_bytes()[:100000])
    with running_job(folder, prefill=2, decode=2) as job:
        with Clients(job.url, expected) as clients:
            applied = pdjob("apply", changed(job, MODEL, str(broken)), timeout=400)
            assert applied.returncode in (1, 2, 3), applied.stdout
            clients.wait_for_more(6)
        assert not clients.wrong, clients.wrong[:3]
        assert pdjob("diff", job.config).stdout == "nothing: the job is as this file says\n"
        assert applied.returncode == 1, applied.stderr
        assert "the job went back to its file before: " in applied.stderr


def test_the_kv_type_changes_while_the_job_runs(folder):
    with running_job(folder, prefill=1, decode=2) as job:
        applied = pdjob("apply", changed(job, "kv_type: q8_0", "kv_type: f16"))
        assert applied.returncode == 0, applied.stderr
        assert handed_over(job.url)


def test_a_router_takes_its_changed_limits_over_and_the_next_one_starts_with_them(folder):
    with running_job(folder, router="bypass_tokens: 0") as job:
        assert handed_over(job.url)
        before = job.processes()
        file = changed(job, "bypass_tokens: 0", "bypass_tokens: 100000, queue_timeout: 9s")
        applied = pdjob("apply", file)
        assert applied.returncode == 0, applied.stderr
        assert "  router: router.queue_timeout: 30s -> 9s\n" in applied.stdout
        assert not handed_over(job.url)
        assert {name: process["pid"] for name, process in job.processes().items()} == {name: process["pid"] for name, process in before.items()}
        os.kill(before["router-0"]["pid"], signal.SIGKILL)
        eventually(lambda: job.processes()["router-0"]["pid"] not in (0, before["router-0"]["pid"]), 30, "another router")
        eventually(lambda: job.processes()["router-0"]["state"] == "ready", 60, "a router that serves")
        assert not handed_over(job.url)
        assert pdjob("diff", file).stdout == "nothing: the job is as this file says\n"


def test_a_job_keeps_the_names_of_its_models(folder):
    with running_job(folder) as job:
        refused = pdjob("apply", changed(job, "served_name: smollm2", "served_name: other"))
        assert refused.returncode == 2, refused.stdout
        assert "served_name: smollm2 -> other" in refused.stderr


def test_sizes_of_a_changed_file_and_only_those_that_changed_are_applied(folder):
    with running_job(folder, prefill=1, decode=1) as job:
        subprocess.run([BIN, "scale", "prefill=2", "--config", str(job.config)], check=True, timeout=120)
        file = changed(job, "decode: {workers: 1", "decode: {workers: 2")
        assert pdjob("apply", file).returncode == 0
        roles = [process["role"] for process in job.processes().values()]
        assert roles.count("decode") == 2
        assert roles.count("prefill") == 2, "the size that a person set stays"


def test_workers_that_die_send_the_job_back_and_nothing_is_lost(folder):
    job = Job(
        f"""\
name: test-{pathlib.Path(folder).name}
served_name: tiny
engine: {{kind: fake, fake_delay_per_token: 2ms}}
prefill: {{workers: 2}}
decode: {{workers: 2}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
""",
        folder,
    ).wait_ready()
    try:
        answers, over = [], threading.Event()

        def ask():
            with httpx.Client(base_url=job.url, timeout=60) as client:
                while not over.is_set():
                    reply = client.post("/v1/completions", json={"model": "tiny", "prompt": "abc", "max_tokens": 40, "temperature": 0})
                    answers.append((reply.status_code, reply.json()["choices"][0]["text"] if reply.status_code == 200 else reply.text))

        clients = [threading.Thread(target=ask) for _ in range(3)]
        [client.start() for client in clients]
        applied = pdjob("apply", changed(job, "kind: fake,", "kind: fake, fake_crash_on_token: 32,"))
        over.set()
        [client.join() for client in clients]
        assert applied.returncode == 1, applied.stdout + applied.stderr
        assert "the job went back to its file before: " in applied.stderr and "signal 6" in applied.stderr
        assert len(set(answers)) == 1 and answers[0][0] == 200, set(answers)
        assert all(process["state"] == "ready" for process in job.processes().values())
        assert pdjob("diff", job.config).stdout == "nothing: the job is as this file says\n"
    finally:
        job.stop()


@pytest.mark.parametrize(
    "old, new, kept",
    [
        ("router: {", "router: {drain_timeout: 9s, ", "router: router.drain_timeout: 30s -> 9s"),
        ("transport: auto", "transport: tcp", "decode: kvtransfer.transport: auto -> tcp"),
        ("launcher: {", "launcher: {hang_timeout: 20s, ", "launcher.hang_timeout: (default) -> 20s"),
    ],
)
def test_what_a_running_job_keeps_is_refused_by_name(old, new, kept, folder):
    with running_job(folder) as job:
        for command in ("diff", "apply"):
            refused = pdjob(command, changed(job, old, new))
            assert refused.returncode == 2, refused.stdout
            assert kept in refused.stderr
            assert "end it and start it with this file" in refused.stderr


@pytest.mark.parametrize("next_file", ["new", "old"])
def test_a_launcher_that_dies_in_the_middle_leaves_it_to_the_next_one(expected, next_file):  # noqa: F811
    with launchers(prefill=2, decode=2, decode_extra="requests_queued: 50") as made:
        job = made.start()
        before = job.processes()
        with Clients(job.url, expected) as clients:
            file = changed(job, "requests_queued: 50", "requests_queued: 60")
            assert pdjob("apply", file, "--no-wait").returncode == 0
            eventually(lambda: any(process["state"] != "ready" for process in job.processes().values()), 30, "a worker that is replaced")
            os.kill(job.child.pid, signal.SIGKILL)
            job.child.wait()
            made.config = file.read_text() if next_file == "new" else made.config
            job = made.start()

            def whole():
                now = job.processes()
                return len(now) == 5 and all(process["state"] == "ready" for process in now.values()) and "nothing" in pdjob("diff", job.config).stdout

            eventually(whole, 120, "the job as its file says")
            clients.wait_for_more(6)
        assert not clients.wrong, clients.wrong[:3]
        if next_file == "new":
            after = job.processes()
            assert all(after[name]["pid"] != before[name]["pid"] for name in ("decode-0", "decode-1"))
