"""Jobs whose engines are of another make. The engines are doubles, as processes of their own (tests/support/engine_program_double.py)."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

from conftest import BIN, ROOT, Job, eventually, metric, processes_with

DOUBLE = ROOT / "tests/support/engine_program_double.py"
LONG = "Tell me a story: " + " ".join(str(number) for number in range(300))
EXTERNAL = "vllm:prompt_tokens_by_source_total"


def yaml(folder, kind="vllm", prefill=1, decode=1, env=(), engine="", launcher="", router="", restart="backoff_min: 100ms", extra=""):
    token = f"PDJOB_TEST_FOLDER={folder}"
    variables = ", ".join(f'"{variable}"' for variable in (token, *env))
    return f"""\
name: foreign-{pathlib.Path(folder).name.lower().replace("_", "-")}
model: tiny
engine: {{kind: {kind}, program: {DOUBLE}, env: [{variables}], {engine}}}
prefill: {{workers: {prefill}}}
decode: {{workers: {decode}}}
kvtransfer: {{lease: 1s}}
router: {{listen: "127.0.0.1:0", {router}}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs, restart: {{{restart}}}, {launcher}}}
{extra}"""


def engine_pid(job, name):
    """Returns the process of a worker's engine, which is the grandchild of the worker."""
    return engine_below(job.processes()[name]["pid"])


def engine_below(worker):
    return next(pid for pid in children(only_child(worker)) if "engine_program_double" in pathlib.Path(f"/proc/{pid}/cmdline").read_text())


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def only_child(pid):
    (child,) = children(pid)
    return child


def logs(folder):
    return "\n".join(log.read_text(errors="replace") for log in pathlib.Path(folder).glob("logs/*.log"))


@contextlib.contextmanager
def foreign_job(folder, **options):
    job = Job(yaml(folder, **options), folder)
    try:
        yield job.wait_ready()
    except BaseException:
        print(job.log_tail(), logs(folder)[-12000:])
        raise
    finally:
        code = job.stop()
    assert code == 0, job.log_tail()
    assert "COMPLAINT" not in logs(folder)
    eventually(lambda: not processes_with(folder), 5, "nothing is orphaned")


def ask(job, prompt=LONG, **more):
    return httpx.post(job.url + "/v1/completions", json={"model": "tiny", "prompt": prompt, "max_tokens": 8, **more}, timeout=60)


def expected(prompt, tokens=8):
    return " ".join(word[::-1] for word in prompt.split()[:tokens])


def answers(job):
    reply = ask(job)
    return reply.status_code == 200 and reply.json()["choices"][0]["text"] == expected(LONG)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path)


def plan(folder, **options):
    file = pathlib.Path(folder) / "plan.yaml"
    file.write_text(yaml(folder, **options))
    return subprocess.run([BIN, "plan", "--config", str(file)], capture_output=True, text=True, timeout=60)


# --- the plan


def test_the_plan_shows_each_engines_exact_command_line(folder):
    shown = plan(folder, engine='ports: 22000-22099, args: [--max-model-len, "2048"]').stdout
    line = next(line for line in shown.splitlines() if line.startswith("prefill-0 runs: "))
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=22001 " in line
    assert f"{DOUBLE} serve tiny --served-model-name tiny --host 127.0.0.1 --port 22000 --enable-server-load-tracking --kv-transfer-config '{{" in line
    assert line.endswith("--max-model-len 2048")
    assert "VLLM_API_KEY=... " in line, "the key itself is not shown"
    assert "VLLM_NIXL_SIDE_CHANNEL_PORT=22003" in shown, "each engine has ports of its own"
    assert "warning: vllm answers without a key: /invocations, /tokenize" in shown
    assert "warning: sglang answers without a key: every route" in plan(folder, kind="sglang").stdout


def test_the_plan_warns_where_the_users_words_replace_its_own(folder):
    shown = plan(folder, engine='args: [--kv-transfer-config, "{}"]').stdout
    assert "warning: engine.args sets --kv-transfer-config, which pdjob sets, too: yours is used" in shown


def test_the_plan_says_what_is_not_installed(folder):
    file = pathlib.Path(folder) / "plan.yaml"
    file.write_text(yaml(folder).replace(str(DOUBLE), "/nowhere/vllm"))
    shown = subprocess.run([BIN, "plan", "--config", str(file)], capture_output=True, text=True, timeout=60).stdout
    assert "warning: no vllm will start: /nowhere/vllm is no program: No such file or directory: pip install vllm nixl" in shown


def test_a_key_on_a_command_line_is_refused(folder):
    refused = plan(folder, engine="args: [--api-key, secret]")
    assert refused.returncode == 2
    assert "--api-key shows a secret to everybody who can list processes" in refused.stderr


def test_keys_of_pdjobs_own_engine_are_refused(folder):
    refused = plan(folder, engine="kv_type: f16")
    assert refused.returncode == 2
    assert "engine.kv_type: is for pdjob's own engine: give vllm its options in `args`" in refused.stderr


# --- a job


def test_kv_moves_between_two_vllms_by_their_own_metrics(folder):
    with foreign_job(folder) as job:
        decode = job.processes()["decode-0"]
        before = metric(decode["url"], EXTERNAL, source="external_kv_transfer")
        assert before > 0, "the job was ready before its KV had moved"
        reply = ask(job)
        assert reply.status_code == 200, reply.text
        assert reply.json()["choices"][0]["text"] == expected(LONG)
        assert metric(decode["url"], EXTERNAL, source="external_kv_transfer") == before + len(LONG.split())
        streamed = ask(job, "a short prompt", stream=True)
        assert streamed.text.endswith("data: [DONE]\n\n")
        assert "the key is missing" in httpx.post(decode["url"] + "/v1/completions", json={"model": "tiny", "prompt": "x"}).text
        for log in pathlib.Path(folder).glob("logs/*.log"):  # The last question was ours.
            log.write_text(log.read_text().replace("COMPLAINT", "EXPECTED"))
        # Nobody who lists processes sees a key.
        keys = [key for key in job.worker_keys().values() if key]
        assert keys and not any(key in line for key in keys for line in processes_with(folder).values())


def test_kv_moves_between_two_sglangs(folder):
    with foreign_job(folder, kind="sglang") as job:
        decode = job.processes()["decode-0"]
        assert answers(job)
        assert metric(decode["url"], "sglang:prompt_tokens_total") >= len(LONG.split())


STEP = 0.05


@pytest.mark.parametrize("kind, sends_kv", [("vllm", "decode-0"), ("sglang", "prefill-0")])
def test_the_phases_of_a_request_are_seen(folder, kind, sends_kv):
    with foreign_job(folder, kind=kind, env=[f"DOUBLE_STEP_SECONDS={STEP}"]) as job:
        waited = lambda: [metric(job.url, f"pdjob_router_kv_seconds_{part}") for part in ("count", "sum")]  # noqa: E731
        assert waited() == [0, 0], "whole replies do not show when KV came"
        assert [ask(job, f"number {number} {LONG}", stream=True).status_code for number in range(3)] == [200] * 3
        count, seconds = waited()
        # SGLang's legs run at the same time: the first token comes soon after the prefill leg's answer, or before it.
        assert count == 3 and (seconds >= 3 * STEP if kind == "vllm" else seconds >= 0)

        def loads():
            found = {name: process["load"] for name, process in job.processes().items()}
            told = found["prefill-0"]["prefill_us"] and found[sends_kv]["kv_us"] and found["router-0"]["kv_us"]
            return found if told and found["decode-0"]["queue_us"] else None

        eventually(loads, 30, "the means are told")
        found = loads()
        assert found["prefill-0"]["prefill_us"] >= 1e6 * STEP <= found["router-0"]["prefill_us"]
        assert found["router-0"]["queue_us"] > 0 and found[sends_kv]["kv_us"] > 0
        if kind == "vllm":
            assert found["router-0"]["kv_us"] >= 1e6 * STEP and found["prefill-0"]["kv_us"] == 0
        with subprocess.Popen([BIN, "top", "--config", str(job.config)], stdout=subprocess.PIPE, text=True) as top:
            _, _, waits = [list(itertools.takewhile(lambda line: line != "\n", iter(top.stdout.readline, ""))) for _ in range(3)]
            top.terminate()
        assert [line.split()[0] for line in waits] == ["MEAN", "router-0", "prefill-0", "decode-0"], waits

        def shown():
            (file,) = pathlib.Path(folder).glob("state/*/launcher.json")
            requests = httpx.get(f"http://{json.loads(file.read_text())['admin']}/requests").json()["routers"]
            return [each for router in requests for each in router["requests"]]

        eventually(lambda: len(shown()) == 3, 30, "the requests are shown, and no probes")
        for each in shown():
            assert each["prefill_us"] >= 1e6 * STEP and (each["kv_us"] >= 1e6 * STEP if kind == "vllm" else each["kv_us"] >= 0), each


def test_one_vllm_alone_serves_without_a_prefill_worker(folder):
    with foreign_job(folder, prefill=0) as job:
        assert answers(job)


def test_an_engine_of_any_make_is_a_command_in_the_job_file(folder):
    recipe = f"""
  recipe:
    command: ["{DOUBLE}", serve, "{{model}}", --host, "{{host}}", --port, "{{port}}"]
    ready: /health
    metrics: {{path: /metrics, running: "vllm:num_requests_running", progress: ["vllm:generation_tokens_total"]}}
"""
    text = f"""\
name: command
model: tiny
engine:
  kind: command
  env: ["PDJOB_TEST_FOLDER={folder}"]{recipe}
prefill: {{workers: 0}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""
    job = Job(text, folder)
    try:
        job.wait_ready()
        assert answers(job)
    finally:
        assert job.stop() == 0, job.log_tail()
    assert not processes_with(folder)


def test_the_load_of_an_engine_is_in_the_jobs_status(folder):
    with foreign_job(folder, prefill=0, env=["DOUBLE_STEP_SECONDS=0.1"]) as job:
        asking = threading.Thread(target=ask, args=(job,), kwargs={"max_tokens": 80})
        asking.start()
        eventually(lambda: "requests_running" in str(job.status()) and busy(job, "decode-0"), 10, "the request is seen")
        asking.join()


def busy(job, name):
    process = job.processes()[name]
    return (process.get("load") or process).get("requests_running", 0) > 0


# --- ports


def test_a_stolen_port_is_replaced(folder):
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", 22200))
        thief.listen()
        with foreign_job(folder, prefill=0, engine="ports: 22200-22210") as job:
            assert answers(job)
            assert job.processes()["decode-0"]["url"] != "http://127.0.0.1:22200"


# --- deaths


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_an_engine_that_is_killed_is_replaced_and_leaves_nothing(folder, name):
    with foreign_job(folder) as job:
        engine = engine_pid(job, name)
        family = {engine, *children(engine)}
        old = job.processes()[name]["pid"]
        os.kill(engine, signal.SIGKILL)
        eventually(lambda: not family & set(processes_with(folder)), 10, "its processes are gone")
        eventually(lambda: job.processes()[name]["state"] == "ready" and job.processes()[name]["pid"] != old, 30, f"{name} is back")
        eventually(lambda: answers(job), 10, "the job answers")


def test_a_worker_that_is_killed_leaves_no_process_of_its_engine(folder):
    with foreign_job(folder) as job:
        engine = engine_pid(job, "decode-0")
        family = {engine, *children(engine)}
        assert len(family) == 3, "the double has two processes more, one of them in a session of its own"
        os.kill(job.processes()["decode-0"]["pid"], signal.SIGKILL)
        eventually(lambda: not family & set(processes_with(folder)), 10, "its processes are gone")
        eventually(lambda: answers(job), 30, "the job answers")


def test_a_guard_that_is_killed_leaves_no_process_of_its_engine(folder):
    with foreign_job(folder, prefill=0) as job:
        guard = only_child(job.processes()["decode-0"]["pid"])
        engine = engine_pid(job, "decode-0")
        family = {guard, engine, *children(engine)}
        os.kill(guard, signal.SIGKILL)
        eventually(lambda: not family & set(processes_with(folder)), 10, "its processes are gone")
        eventually(lambda: answers(job), 30, "the job answers")


def test_a_launcher_that_is_killed_leaves_nothing(folder):
    job = Job(yaml(folder), folder).wait_ready()
    assert len(processes_with(folder)) == 8, "for each of two workers: guard, engine, and two of its own"
    job.child.kill()
    job.child.wait()
    eventually(lambda: not processes_with(folder), 15, "nothing is orphaned")


def test_requests_while_engines_are_killed_are_answered_right_or_fail_clearly(folder):
    stop, replies = threading.Event(), []

    def client(number):
        while not stop.is_set():
            prompt = f"client {number} request {len(replies)}: {LONG}"
            replies.append((prompt, ask(job, prompt)))

    with foreign_job(folder, prefill=2, decode=2, env=["DOUBLE_STEP_SECONDS=0.01"]) as job:
        clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
        [each.start() for each in clients]
        for name in ("prefill-0", "decode-1"):
            time.sleep(1)
            os.kill(engine_pid(job, name), signal.SIGKILL)
        eventually(lambda: all(process["state"] == "ready" for process in job.processes().values()), 30, "all are back")
        before = len(replies)
        eventually(lambda: len(replies) > before + 20, 20, "requests go on")
        stop.set()
        [each.join() for each in clients]
        for prompt, reply in replies:
            if reply.status_code == 200:
                assert reply.json()["choices"][0]["text"] == expected(prompt)
            else:
                assert reply.status_code >= 500 and reply.json()["error"]["message"], reply.text
        failed = sum(reply.status_code != 200 for _, reply in replies)
        print(f"{failed} of {len(replies)} failed")
        assert failed <= 8, "only those that ran on the two engines may fail"


def test_an_engine_that_hangs_with_work_is_replaced(folder):
    hang = pathlib.Path(folder) / "hang"
    options = {"prefill": 0, "env": [f"DOUBLE_HANG_FILE={hang}"], "launcher": "progress_timeout: 2s", "router": "attempts: 1"}
    with foreign_job(folder, **options) as job:
        old = job.processes()["decode-0"]["pid"]
        hang.touch()
        asking = threading.Thread(target=ask, args=(job,))
        asking.start()
        eventually(lambda: job.processes()["decode-0"]["pid"] != old, 30, "the engine is replaced")
        hang.unlink()
        asking.join()
        eventually(lambda: answers(job), 30, "the job answers")
        assert job.processes()["decode-0"]["hangs"] >= 1


def test_an_engine_that_is_stopped_is_replaced(folder):
    with foreign_job(folder, prefill=0, launcher="progress_timeout: 2s") as job:
        old = job.processes()["decode-0"]["pid"]
        engine = engine_pid(job, "decode-0")
        family = {engine, *children(engine)}
        os.kill(engine, signal.SIGSTOP)  # When its worker dies, the kernel sends SIGHUP to the guard.
        eventually(lambda: not family & set(processes_with(folder)), 30, "its processes are gone")
        eventually(lambda: job.processes()["decode-0"]["pid"] not in (0, old) and answers(job), 30, "the job answers")


def test_slow_health_answers_cancel_nothing(folder):
    deaf = pathlib.Path(folder) / "deaf"
    with foreign_job(folder, prefill=0, env=[f"DOUBLE_DEAF_FILE={deaf}", "DOUBLE_STEP_SECONDS=0.25"]) as job:
        old = job.processes()["decode-0"]["pid"]
        deaf.touch()
        reply = ask(job, max_tokens=40)
        assert reply.status_code == 200, reply.text
        deaf.unlink()
        assert job.processes()["decode-0"]["pid"] == old


# --- the end


def test_a_drain_finishes_what_runs(folder):
    replies = []
    with foreign_job(folder, env=["DOUBLE_STEP_SECONDS=0.1"]) as job:
        asking = threading.Thread(target=lambda: replies.append(ask(job, max_tokens=30)))
        asking.start()
        eventually(lambda: metric(job.url, "pdjob_router_requests_alive") == 1, 20, "the request is under way")
        began = time.monotonic()
        assert job.stop() == 0, job.log_tail()
        assert time.monotonic() - began < 20
        asking.join()
    assert [reply.status_code for reply in replies] == [200]


@pytest.mark.parametrize("fault, cause", [
    ("DOUBLE_FAULT=memory", r"Likely cause: it ran out of memory: torch.OutOfMemoryError"),
    ("DOUBLE_FAULT=package", r"Likely cause: a package is missing: ModuleNotFoundError: No module named 'nixl'"),
    ("DOUBLE_FAULT=traceback", r"RuntimeError: Engine core initialization failed"),
])
def test_a_failed_start_shows_its_likely_cause(folder, fault, cause):
    job = Job(yaml(folder, prefill=0, env=[fault], restart="backoff_min: 100ms, attempts: 1"), folder)
    assert job.child.wait(60) == 1
    text = job.log_tail()
    assert re.search(cause, text), text
    assert "vllm ended with exit code 1 while it started" in text
    assert not processes_with(folder)


def test_an_unknown_flag_is_named(folder):
    job = Job(yaml(folder, prefill=0, engine="args: [--max-modle-len]", restart="backoff_min: 100ms, attempts: 1"), folder)
    assert job.child.wait(60) == 1
    assert "Likely cause: it does not know a flag: vllm serve: error: unrecognized arguments: --max-modle-len" in job.log_tail()


def test_a_missing_program_says_how_to_install_it(folder):
    text = yaml(folder, prefill=0, restart="attempts: 1")
    job = Job(text.replace(str(DOUBLE), "/nowhere/vllm"), folder)
    assert job.child.wait(60) == 1
    assert "/nowhere/vllm is no program: No such file or directory: pip install vllm nixl, or name it in engine.program" in job.log_tail()


def test_the_engines_output_is_in_its_workers_log(folder):
    with foreign_job(folder, prefill=0):
        log = pathlib.Path(folder) / "logs/decode-0.log"
        eventually(lambda: "vllm has version 0.0-double" in log.read_text(), 10, "its version is known")
        assert "| DOUBLE of vllm: it computes nothing" in log.read_text()


# --- routes that pdjob does not know


def post(job, path, body=None, **more):
    return httpx.post(job.url + path, json=body, timeout=30, **more) if body is not None else httpx.post(job.url + path, timeout=30, **more)


MESSAGE = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "one two three four five"}]}


def test_messages_of_anthropics_api_reach_a_decode_engine(folder):
    with foreign_job(folder) as job:
        reply = post(job, "/v1/messages", MESSAGE | {"kv_transfer_params": {"remote_host": "evil"}})
        assert reply.status_code == 200, reply.text
        assert reply.json()["content"] == [{"type": "text", "text": "eno owt eerht ruof"}]
        assert reply.headers["x-pdjob-decode"] == "decode-0"
        streamed = post(job, "/v1/messages", MESSAGE | {"stream": True})
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert [line for line in streamed.text.splitlines() if line.startswith("event: ")] == [
            "event: message_start", "event: content_block_delta", "event: message_stop"]
        assert post(job, "/v1/messages", MESSAGE | {"max_tokens": 0}).json()["error"]["type"] == "invalid_request_error", "the engine's own answer"
        counted = post(job, "/v1/messages/count_tokens", MESSAGE)
        assert counted.json() == {"input_tokens": 5}
        assert counted.headers["x-pdjob-decode"] == "prefill-0", "it only reads its prompt"
        refused = post(job, "/v1/rerank", {"query": "a", "documents": ["a"]})
        assert refused.status_code == 404, "no engine of this job has it: its model generates"
        assert refused.json()["error"]["message"] == ("No worker here serves POST /v1/rerank. Workers with an engine of vLLM and SGLang do, if their "
                                                      "model can (engine.kind).")
        assert post(job, "/v1/messages", MESSAGE | {"model": "other"}).json()["error"]["code"] == "model_not_found"


def test_responses_still_go_to_a_pair(folder):
    with foreign_job(folder) as job:
        reply = post(job, "/v1/responses", {"model": "tiny", "input": LONG, "max_output_tokens": 2})
        assert reply.json()["output"][0]["content"][0]["text"] == expected(LONG, 2), reply.text
        assert "x-pdjob-degraded" not in reply.headers
        assert (reply.headers["x-pdjob-prefill"], reply.headers["x-pdjob-decode"]) == ("prefill-0", "decode-0")


def test_a_model_that_only_pools_is_served_by_its_routes(folder):
    with foreign_job(folder, prefill=0, engine="args: [--runner, pooling]") as job:
        ranked = post(job, "/v1/rerank", {"model": "tiny", "query": "red apple", "documents": ["blue sky", "red car", "red apple pie"]})
        assert [one["index"] for one in ranked.json()["results"]] == [2, 1, 0]
        assert post(job, "/pooling", {"input": "abc"}).json()["data"][0]["data"] == [3.0]
        assert post(job, "/v1/messages", MESSAGE).status_code == 404
        for _ in range(4):
            assert post(job, "/v1/score", {"model": "other", "text_1": "a", "text_2": "b"}).status_code == 404
        assert "suspect" not in httpx.get(job.url + "/pdjob/workers").text, "a request for what an engine lacks is not its fault"


def test_audio_is_passed_on_as_it_is(folder):
    with foreign_job(folder, prefill=0, env=["DOUBLE_TASK=transcription"]) as job:
        audio = os.urandom(300_000)
        reply = post(job, "/v1/audio/transcriptions", files={"file": ("a.wav", audio, "audio/wav")}, data={"model": "tiny", "language": "en"})
        assert reply.status_code == 200, reply.text
        assert reply.json()["text"] == "300000 bytes"
        other = post(job, "/v1/audio/translations", files={"file": ("a.wav", audio, "audio/wav")}, data={"model": "other"})
        assert other.json()["error"]["code"] == "model_not_found"


def test_sglang_alone_serves_its_routes_and_a_pair_of_it_does_not(folder, tmp_path_factory):
    with foreign_job(folder, kind="sglang", prefill=0) as job:
        assert post(job, "/v1/messages", MESSAGE).status_code == 200
    with foreign_job(str(tmp_path_factory.mktemp("pair")), kind="sglang") as job:
        assert post(job, "/v1/messages", MESSAGE).status_code == 404


# --- adapters

LORA = 'args: [--enable-lora, --lora-modules, "sql=/adapters/sql"]'


def models(job):
    return {card["id"]: card for card in httpx.get(job.url + "/v1/models").json()["data"]}


def named(job, model):
    return post(job, "/v1/completions", {"model": model, "prompt": "a b c", "max_tokens": 2})


def test_adapters_of_the_command_line_are_models(folder):
    with foreign_job(folder, engine=LORA) as job:
        cards = models(job)
        assert cards["sql"]["parent"] == "tiny" and cards["tiny"]["parent"] is None
        assert {cards[name]["max_model_len"] for name in ("tiny", "sql")} == {2048}
        reply = named(job, "sql")
        assert reply.status_code == 200 and reply.json()["model"] == "sql", reply.text
        assert reply.headers["x-pdjob-prefill"] == "prefill-0"
        assert named(job, "tone").json()["error"]["code"] == "model_not_found"


def test_an_adapter_is_loaded_into_the_fleet_and_taken_away(folder):
    options = {"decode": 2, "engine": "args: [--enable-lora]", "env": ["VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"], "router": "open_adapters: true"}
    with foreign_job(folder, **options) as job:
        assert named(job, "tone").status_code == 404
        order = {"lora_name": "tone", "lora_path": "/adapters/tone"}
        done = post(job, "/v1/load_lora_adapter", order)
        assert done.status_code == 200, done.text
        assert done.json() == {"object": "adapter_order", "adapter": "tone", "loaded": 3, "failed": 0, "failures": [],
                               "workers": done.json()["workers"]}
        assert sorted(done.json()["workers"]) == ["decode-0", "decode-1", "prefill-0"]
        assert all(named(job, "tone").status_code == 200 for _ in range(4)), "at once"
        time.sleep(5)  # Longer than the engines' own lists take.
        assert all(named(job, "tone").status_code == 200 for _ in range(4))
        again = post(job, "/load_lora_adapter", order)
        assert (again.status_code, again.json()["loaded"]) == (200, 3), "by SGLang's name, and for those that have it"
        lost = post(job, "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "/missing"})
        assert lost.status_code == 404 and lost.json()["failed"] == 3 and "No adapter found" in lost.json()["failures"][0]["message"]
        assert post(job, "/v1/unload_lora_adapter", {"lora_name": "tone"}).json()["unloaded"] == 3
        assert named(job, "tone").status_code == 404
        eventually(lambda: "tone" not in models(job), 10, "the list is right")


def test_requests_go_where_the_adapter_is(folder):
    options = {"prefill": 0, "decode": 2, "engine": "args: [--enable-lora]", "env": ["VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"]}
    with foreign_job(folder, **options) as job:
        worker = job.processes()["decode-1"]
        key = {"Authorization": f"Bearer {job.worker_keys()['decode-1']}"}
        order = {"lora_name": "tone", "lora_path": "/adapters/tone"}
        assert httpx.post(worker["url"] + "/v1/load_lora_adapter", json=order, headers=key).status_code == 200
        eventually(lambda: "tone" in models(job), 10, "its worker has told it")
        assert {named(job, "tone").headers["x-pdjob-decode"] for _ in range(6)} == {"decode-1"}
        refused = post(job, "/v1/load_lora_adapter", order)
        assert refused.status_code == 403
        assert refused.json()["error"]["message"] == ("Only who administrates may load and unload adapters: set router.open_adapters, or name a tenant "
                                                      "with admin: true.")
        os.kill(engine_pid(job, "decode-1"), signal.SIGKILL)
        eventually(lambda: "tone" not in models(job), 30, "the engine that comes has it no more")


def test_sglang_names_an_adapter_behind_its_model(folder):
    with foreign_job(folder, kind="sglang", engine='args: [--enable-lora, --lora-paths, "sql=/adapters/sql"]') as job:
        assert set(models(job)) == {"tiny", "tiny:sql"}
        assert named(job, "tiny:sql").status_code == 200
