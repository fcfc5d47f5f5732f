"""What the command line answers to people who mistype, and to people who run one job."""

import fcntl
import functools
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import httpx
import pytest

from conftest import BIN, ROOT, Job, Process, eventually, running_job


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


@functools.cache
def help_of(*command):
    return run(*command, "--help").stdout


def commands(*above):
    """Returns the words of each command that the help lists, also those below others."""
    listed = help_of(*above).partition("\nSubcommands:\n")[2].partition("\n\n")[0]
    for name in re.findall(r"^  ([a-z-]+) ", listed, re.MULTILINE):
        yield [*above, name]
        yield from commands(*above, name)


def test_the_help_of_each_command_has_examples_with_flags_that_it_knows():
    found = list(commands())
    assert len(found) >= 20 and ["batch", "status"] in found
    for command in found:
        text = help_of(*command)
        examples = re.findall(r"^  (pdjob .*(?:\\\n.*)*)", text.partition("Examples:\n")[2], re.MULTILINE)
        assert examples, command
        for example in examples:
            words = example.split("  ")[0].split()
            last = max(([*words[1 : 1 + n]] for n in (1, 2) if words[1 : 1 + n] in found), key=len, default=[])
            flags = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", example.split(" | ")[0].split(" > ")[0]))
            known = help_of(*last)
            assert all(f"{flag} " in known or f"{flag}\n" in known for flag in flags), (example, flags)


def test_the_manual_page_has_each_command_and_is_plain_to_its_formatter():
    page = run("reference", "man")
    assert page.returncode == 0 and page.stdout.startswith(".TH PDJOB 1 ")
    for command in commands():
        assert f".SS pdjob {' '.join(command)}\n".replace("-", "\\-") in page.stdout
    assert "decode.workers" in page.stdout and "spec\\-fd" not in page.stdout
    for formatter in (["groff", "-man", "-ww", "-z", "-Tutf8"], ["mandoc", "-Tlint", "-Wwarning"]):
        if shutil.which(formatter[0]):
            read = subprocess.run(formatter, input=page.stdout, capture_output=True, text=True, timeout=60)
            assert read.returncode == 0 and read.stdout + read.stderr == "", read


@pytest.mark.parametrize("page", ["job-file", "headers", "metrics"])
def test_each_reference_page_is_markdown_with_tables(page):
    answer = run("reference", page)
    assert answer.returncode == 0 and answer.stdout.startswith("# ") and "\n|---|" in answer.stdout


def test_the_reference_has_every_field_that_a_parser_reads():
    listed = (ROOT / "docs/reference/api.md").read_text()
    reads = re.compile(r'(?:->|\.)(?:boolean|integer|number|text|list|object|find|is_null|only|unsupported)\(\s*"(\w+)"')
    parsers = [ROOT / "openai" / f"{name}.cc" for name in ("openai", "openai_prompt", "openai_sampling", "openai_embedding", "sglang_request", "tokens_request")]
    names = {name for parser in parsers for name in reads.findall(parser.read_text())}
    assert len(names) > 60
    assert [name for name in sorted(names) if f"`{name}`" not in listed and f".{name}`" not in listed] == []


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

        (listed,) = json.loads(run("ps", "--json", env=home).stdout)
        assert listed["url"] == job.url and [each["state"] for each in listed["processes"]] == ["ready"] * 3
        heading, row = run("ps", env=home).stdout.splitlines()
        assert heading.startswith("JOB ") and row.split()[1:5] == ["ready", "1/1", "1/1", "-"]
        assert completed("pdjob", "status", "--job", "", env=home) == [listed["job"]]
        assert completed("pdjob", "logs", "", env=home)[:4] == ["router-0", "prefill-0", "decode-0", "launcher"]
        assert {"prefill=", "decode="} <= {*completed("pdjob", "scale", "", env=home)}
        assert listed["job"] in completed("pdjob", "stop", "", env=home)

        for words in (["status"], ["links"], ["nodes"], ["explain"], ["scale"], ["logs", "decode-0"]):
            for which in ([listed["job"]], [str(job.config)], ["--job", listed["job"]]):
                named = run(*words, *which, env=home)
                assert named.returncode == 0 and named.stdout, (words, which, named)
        assert run("scale", listed["job"], "decode=1", env=home).returncode == 0
        assert "one job too many" in run("status", listed["job"], "--job", "other", env=home).stderr
        assert "name one job" in run("scale", listed["job"], "decode", env=home).stderr
        nobody = run("logs", "decode-9", env=home)
        assert nobody.returncode == 1 and "decode-9 is no process of this job: it has launcher, router-0, prefill-0, decode-0\n" in nobody.stderr
    assert run("ps", env=home).stdout == "no job runs here\n"


def test_a_followed_log_ends_with_the_job_though_the_launcher_closes_its_port_first(tmp_path):
    folder = tmp_path / "pdjob/j"
    folder.mkdir(parents=True)
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with socket.create_server(("127.0.0.1", 0)) as launcher:
        launcher.settimeout(30)
        address = f"127.0.0.1:{launcher.getsockname()[1]}"
        (folder / "launcher.json").write_text(json.dumps({"pid": os.getpid(), "admin": address, "key": "k"}))
        follow = subprocess.Popen([BIN, "logs", "-f", "router-0"], stdout=subprocess.PIPE, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})
        asked = launcher.accept()[0]
        asked.recv(4096)
        asked.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n0\nline\n")
        assert follow.stdout.readline() == b"line\n"
        asked.close()
        launcher.accept()[0].close()
    time.sleep(0.5)  # The port is closed, and the launcher has not left the folder.
    os.close(lock)
    assert follow.wait(30) == 0


def test_top_shows_what_happens_while_a_request_runs(tmp_path):
    with running_job(tmp_path) as job:
        with subprocess.Popen([BIN, "top", "--config", str(job.config)], stdout=subprocess.PIPE, text=True) as top:
            try:
                body = {"model": "smollm2", "prompt": "Tell me a story about a river.", "max_tokens": 100, "ignore_eos": True}
                pages, rows = 0, []
                waits = re.compile(r"router-0 +[\d.]+ m?s +[\d.]+ m?s ")
                while pages < 60 and not (any(waits.match(row) for row in rows) and any(re.search(r" ms +[1-9]\d* +0$", row) for row in rows) and any(" > " in row for row in rows)):
                    if pages % 2 == 0:
                        assert httpx.post(job.url + "/v1/completions", json=body, timeout=60).status_code == 200
                    pages += 1
                    rows = [line.rstrip("\n") for line in itertools.takewhile(lambda line: line != "\n", iter(top.stdout.readline, ""))]
                    for _ in range(3):  # The tables of processes, of waits and of links.
                        rows += [line.rstrip("\n") for line in itertools.takewhile(lambda line: line != "\n", iter(top.stdout.readline, ""))]
                assert pages < 60, rows
                assert rows[0] == f"job {job.status()['job']}: ready, {job.url}" and rows[2].startswith("NAME ")
                assert [row.split()[0] for row in rows[3:6]] == ["router-0", "prefill-0", "decode-0"]
                below = [row for row in rows[6:] if " is starved: " not in row]
                assert below[0].split() == ["MEAN", "WAIT", "QUEUE", "PREFILL", "KV"] and waits.match(below[1])
                assert below[2].startswith("KV LINK") and below[3].startswith("prefill-0 > decode-0  shm  open ")
            finally:
                top.terminate()


def completed(*words, env=None):
    """Returns what bash offers for the last word."""
    script = f'source <({BIN} completion bash); pdjob() {{ {BIN} "$@"; }}; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _pdjob'
    script += "; printf '%s\\n' \"${COMPREPLY[@]}\""
    answer = subprocess.run(["bash", "-c", script, "bash", *words], env=env, capture_output=True, text=True, timeout=30)
    assert answer.returncode == 0 and not answer.stderr, answer
    return answer.stdout.split()


def test_bash_completes_commands_and_their_options():
    assert completed("pdjob", "st") == ["status", "stop"]
    assert completed("pdjob", "status", "--j") == ["--job", "--json"]
    assert completed("pdjob", "links", "--wa") == ["--watch"]
    assert "complete -c pdjob" in run("completion", "fish").stdout and "bashcompinit" in run("completion", "zsh").stdout
    answer = run("completion", "tcsh")
    assert answer.returncode == 2 and "tcsh is none of bash fish zsh" in answer.stderr
    assert "bash|fish|zsh" in run("completion", "--help").stdout


def test_bash_completes_what_a_command_takes_and_no_files_in_its_place(tmp_path):
    examples = completed("pdjob", "example", "q")
    assert examples == ["quickstart"]
    assert completed("pdjob", "reference", "m") == ["metrics", "man"]
    assert completed("pdjob", "completion", "")[:3] == ["bash", "fish", "zsh"]
    assert completed("pdjob", "logs", "/et", env={**os.environ, "XDG_STATE_HOME": str(tmp_path)}) == []
    assert "/etc" in completed("pdjob", "plan", "/et") and "/etc" in completed("pdjob", "status", "--config", "/et")
    fish = run("completion", "fish").stdout
    assert "-n '__fish_seen_subcommand_from reference' -f -a 'job-file headers metrics man'" in fish
    assert "-n '__fish_seen_subcommand_from logs' -f -a '(pdjob status" in fish


def test_a_job_file_is_run_with_and_without_a_word_before_it(tmp_path):
    (tmp_path / "job.yaml").write_text("name: x\nengine: {kind: fake}\nprefill: {workers: 0}\ndecode: {wrokers: 1}\n")
    for words in ([], ["run"], ["--config"], ["plan"]):
        answer = run(*words, "job.yaml", cwd=tmp_path)
        assert answer.returncode == 2 and "job.yaml:4:10: decode.wrokers: unknown key" in answer.stderr, (words, answer)
    for words in (["status", "job.yaml"], ["stop", "./job.yaml"]):
        assert "no job called x is running" in run(*words, cwd=tmp_path).stderr, "the name alone is read"
    answer = run("statsu", cwd=tmp_path)
    assert answer.returncode == 2 and "there is no command statsu, nor a job file of that name" in answer.stderr


def test_a_model_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models/smollm2-135m-instruct.gguf").write_text("x")
    env = {**os.environ, "PDJOB_MODELS": str(tmp_path / "models"), "HOME": str(tmp_path)}
    (tmp_path / "job.yaml").write_text("name: x\nmodel: smollm2-135m-instrukt\n")
    said = run("plan", "job.yaml", cwd=tmp_path, env=env).stderr
    assert "did you mean smollm2-135m-instruct?; installed is smollm2-135m-instruct\n" in said
    (tmp_path / "models/smollm2-135m-instruct.gguf").unlink()
    assert "none is installed: `./dev model` in a clone" in run("plan", "job.yaml", cwd=tmp_path, env=env).stderr


def test_a_batch_says_at_once_that_its_server_is_not_there(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}\n')
    words = ["batch", "rows.jsonl", "--out", "out", "--url", "http://127.0.0.1:9"]
    batch = subprocess.Popen([BIN, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in batch.stderr if "refused" in line)
        assert "0 of 1 rows, 0 failed; " in line and "Connection refused" in line
        eventually(lambda: "Connection refused" in json.loads((tmp_path / "out/status.json").read_text())["trouble"], 30, "status.json says it, too")
    finally:
        batch.kill()
        batch.wait()
    ended = run(*words, "--patience", "1s", cwd=tmp_path)
    assert ended.returncode == 1 and "the server cannot be reached: " in ended.stderr and "Connection refused" in ended.stderr


def test_paths_of_a_job_file_start_at_its_own_folder(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text("name: here\nmodel: models/m.gguf\nrouter: {listen: '127.0.0.1:0'}\n")
    answer = run("plan", "--config", "jobs/job.yaml", cwd=tmp_path)
    assert answer.returncode == 2 and "not found: no file jobs/models/m.gguf\n" in answer.stderr, answer.stderr


SMALL_JOB = """\
name: small
engine: {{kind: fake}}
decode: {{workers: 1}}
router: {{listen: '127.0.0.1:0'}}
launcher: {{state_dir: {folder}/state, orphan_timeout: 60s}}
"""


def test_a_setting_wins_over_the_file_and_has_its_errors(tmp_path):
    config = tmp_path / "job.yaml"
    config.write_text(SMALL_JOB.format(folder=tmp_path))
    planned = run("plan", "--config", str(config), "--set", "decode.workers=2", "--set", "decode.engine.sequences=3", "--json")
    assert planned.returncode == 0 and "decode-1" in planned.stdout, planned.stderr
    assert "decode-1" not in run("plan", "--config", str(config), "--json").stdout
    for argv in (["plan", "--config", str(config)], ["--config", str(config)], ["batch", "--config", str(config)], ["worker", "--model", "x"]):
        refused = run(*argv, "--set", "decode.workres=2", "--set", "decode.workers=0", "--set", "engine.env=[HF_TOKEN=abc]")
        assert refused.returncode == 2 and refused.stdout == ""
        assert "--set: decode.workres: unknown key, did you mean workers?\n    decode.workres=2\n           ^\n" in refused.stderr, refused.stderr
        assert "--set: decode.workers: must be 1..2047, got 0\n    decode.workers=0\n                   ^\n" in refused.stderr
        assert "--set: engine.env: looks like a secret" in refused.stderr and "abc" not in refused.stderr
    assert run("plan", "--set", "decode.workers=2").returncode == 2, "it needs --config"


def test_the_same_command_with_its_settings_adopts_the_job(tmp_path):
    text = SMALL_JOB.format(folder=tmp_path)
    job = Job(text, tmp_path, settings=["decode.workers=2"])
    try:
        before = {name: process["pid"] for name, process in job.wait_ready().processes().items()}
        assert set(before) == {"router-0", "prefill-0", "decode-0", "decode-1"}
        job.stop(signal.SIGKILL)
        other = run("--config", str(job.config))
        assert other.returncode == 2 and "its job file was another one, or had other settings" in other.stderr
        job = Job(text, tmp_path, settings=["decode.workers=2"])
        assert {name: process["pid"] for name, process in job.wait_ready().processes().items()} == before
    finally:
        job.stop()
        stopped = run("stop", "--config", str(job.config))  # Also what a launcher left behind.
    assert stopped.returncode in (0, 1)


VLLM_JOB = """
scheduler:
  port: 18021
  policy_type: LoadBalance
  command: python proxy.py --port {PORT} --prefill-url $PREFILL_URL_1 --decode-url $DECODE_URL_1
general: {params: {model: org/m, port: '{PORT}'}}
prefill: {num_gpus: 0, params: {kv_transfer_config: '{"kv_connector":"NixlConnector","kv_ip":"{KV_IP}"}'}}
decode: {num_gpus: 0, replicas: 2}
"""


def test_a_file_of_vllms_own_pdjob_is_planned_as_its_translation_is(tmp_path):
    (tmp_path / "job.yaml").write_text(VLLM_JOB)
    converted = run("convert", "job.yaml", cwd=tmp_path)
    assert converted.returncode == 0, converted.stderr
    assert "job.yaml:4:16: warning: scheduler.policy_type: is not used" in converted.stderr
    (tmp_path / "native.yaml").write_text(converted.stdout)
    planned = run("plan", "--config", "job.yaml", cwd=tmp_path)
    native = run("plan", "--config", "native.yaml", cwd=tmp_path)
    assert planned.returncode == native.returncode == 0 and planned.stdout == native.stdout
    assert "decode-1 runs: " in planned.stdout and "no vllm will start: there is no vllm in $PATH" in planned.stdout
    assert planned.stderr == converted.stderr and native.stderr == ""
    again = run("convert", "native.yaml", cwd=tmp_path)
    assert again.returncode == 2 and "native.yaml: is no file of vLLM's pdjob" in again.stderr


def test_a_router_without_workers_says_so_and_refuses_at_once(tmp_path):
    nobody = "http://127.0.0.1:9"  # The discard port: nothing listens there.
    router = Process(["pdjob", "router", "--prefill", nobody, "--decode", nobody, "--listen", "127.0.0.1:0"], tmp_path)
    try:
        url = router.wait_ready().url
        eventually(lambda: "no worker answers at 127.0.0.1:9" in router.log_tail(), 20, "it warns of its workers")
        begun = time.monotonic()
        reply = httpx.post(url + "/v1/completions", json={"model": "m", "prompt": "x"}, timeout=60)
        assert reply.status_code == 503 and "no worker has answered yet" in reply.text
        assert time.monotonic() - begun < 10, "the queue's timeout is 30 s"
    finally:
        router.stop()
