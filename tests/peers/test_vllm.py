"""Jobs of real vLLM engines on CPUs: `./dev peers` runs this. It takes minutes and both cores, so `./dev test` leaves it out.

An engine starts in about 40 s on two quiet cores. While it is idle, NIXL's progress thread uses a whole core.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import httpx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import CACHE, Job, eventually, free_port, get, key_header, metric, processes_with  # noqa: E402
from test_router_recipes import router_section  # noqa: E402

pytestmark = pytest.mark.heavy

VLLM = pathlib.Path(os.environ.get("PDJOB_VLLM", CACHE / "vllm-0.32.0"))
MODEL = VLLM / "tiny-llama"
# vLLM changes the titles of its processes. SPT_NOENV keeps it from overwriting their environments, by which the tests find them.
ENVIRONMENT = ["VLLM_CPU_KVCACHE_SPACE=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "SPT_NOENV=1"]
# Without prefix caching, a prompt that is asked twice is computed twice, and its KV moves twice.
ARGUMENTS = ["--max-model-len", "2048", "--dtype", "bfloat16", "--enforce-eager", "--block-size", "32", "--no-enable-prefix-caching"]
START_SECONDS = 900  # On a machine that compiles at the same time.
TOKENS = 12
EXTERNAL = "vllm:prompt_tokens_by_source_total"


def prompts(count=64, longest=1500):
    """Returns token ids: lengths from 1 to `longest`, evenly spread over their logarithms."""
    chance = random.Random(7)
    lengths = [round(longest ** (number / (count - 1))) for number in range(count)]
    return [[chance.randrange(300, 3900) for _ in range(length)] for length in lengths]


def body(prompt, **more):
    return {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, **more}


def ask(url, prompt, **more):
    return httpx.post(url + "/v1/completions", json=body(prompt, **more), timeout=300)


def text_of(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"]


def streamed(url, prompt, **more):
    """Yields the texts of a stream's events as they come."""
    with httpx.stream("POST", url + "/v1/completions", json=body(prompt, stream=True, **more), timeout=300) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))["choices"][0]["text"]


@pytest.fixture(scope="module")
def references():
    """The answers of one vLLM that computes alone, for each of prompts()."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, open(f"{folder}/vllm.log", "wb") as log:
        command = [VLLM / "bin/vllm", "serve", MODEL, "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), *ARGUMENTS]
        environment = {**os.environ, **dict(each.split("=") for each in ENVIRONMENT), "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        engine = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            eventually(lambda: engine.poll() is not None or get(url + "/health") == "", START_SECONDS, "vLLM alone")
            return [text_of(ask(url, prompt)) for prompt in prompts()]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(engine.pid, signal.SIGKILL)
            engine.wait()


def yaml(folder, prefill=1, decode=1, router="", launcher="", spares=0):
    environment = ", ".join(f'"{variable}"' for variable in [*ENVIRONMENT, f"PDJOB_TEST_FOLDER={folder}"])
    arguments = ", ".join(f'"{argument}"' for argument in ARGUMENTS)
    return f"""\
name: peers-{pathlib.Path(folder).name.lower().replace("_", "-")}
model: {MODEL}
served_name: tiny
engine: {{kind: vllm, program: {VLLM}/bin/vllm, threads: 1, env: [{environment}], args: [{arguments}]}}
prefill: {{workers: {prefill}}}
decode: {{workers: {decode}{f", spares: {spares}" if spares else ""}}}
router: {{listen: "127.0.0.1:0", {router}}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs, start_timeout: {START_SECONDS}s, {launcher}}}
"""


def family_of(pid):
    """Returns a process and all its descendants."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            found += [int(child) for child in pathlib.Path(f"/proc/{each}/task/{each}/children").read_text().split()]
    return found


def engine_of(job, name):
    """Returns the front end of a worker's vLLM: the worker's grandchild, behind the guard."""
    worker = job.processes()[name]["pid"]
    return next(pid for pid in family_of(worker)[2:] if "vllm" in pathlib.Path(f"/proc/{pid}/cmdline").read_text())


def ports_of(folder):
    """Returns the ports that the engines of a job were given: for HTTP, and for KV."""
    found = set()
    for pid, line in processes_with(folder).items():
        if " serve " in line:
            variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            found |= {int(text.split("=")[1]) for text in variables if text.startswith("VLLM_NIXL_SIDE_CHANNEL_PORT=")}
            found |= {int(word) for flag, word in zip(line.split(), line.split()[1:]) if flag == "--port"}
    return found


@contextlib.contextmanager
def vllm_job(text, folder):
    job = Job(text, folder)
    try:
        assert job._ready.wait(START_SECONDS) and job.url, job.log_tail()
        yield job
        names = {line.split()[0] for line in processes_with(folder).values()}
        assert any("EngineCore" in name for name in names), f"the test sees all processes of an engine: {names}"
        ports = ports_of(folder)
    except BaseException:
        print(job.log_tail())
        for log in pathlib.Path(folder).glob("logs/*.log"):
            print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-60:], sep="\n")
        raise
    finally:
        code = job.stop(timeout=120)
    assert code == 0, job.log_tail()
    eventually(lambda: not processes_with(folder), 10, "nothing is orphaned")
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


@contextlib.contextmanager
def new_folder():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        yield folder


# Of a class: idle engines slow the others down, so one job ends before the next one starts.
@pytest.fixture(scope="class")
def one_pair(references):
    with new_folder() as folder, vllm_job(yaml(folder), folder) as job:
        yield job


@pytest.fixture(scope="class")
def two_prefill(references):
    settings = "heartbeat_timeout: 10s, progress_timeout: 1min, restart: {backoff_min: 100ms}"
    with new_folder() as folder, vllm_job(yaml(folder, prefill=2, launcher=settings), folder) as job:
        yield job


def received(job):
    """Returns how many tokens of KV the decode engines fetched, by their own count."""
    return sum(metric(process["url"], EXTERNAL, source="external_kv_transfer")
               for process in job.processes().values() if process["role"] == "decode")


def check_answers(job, references):
    before = received(job)
    for number, (prompt, expected) in enumerate(zip(prompts(), references)):
        answer = "".join(streamed(job.url, prompt)) if number % 2 else text_of(ask(job.url, prompt))
        assert answer == expected, f"prompt {number}, {len(prompt)} tokens"
    moved, total = received(job) - before, sum(len(prompt) for prompt in prompts())
    assert moved >= 0.95 * total, f"KV of {moved} of {total} tokens moved"
    assert metric(job.url, "pdjob_router_degraded_total") == 0


def all_ready(job):
    return all(process["state"] == "ready" for process in job.processes().values())


def heals(job, name, old, references, family=()):
    """Waits until the worker is replaced and the job answers right. Nothing of the old engine is left."""
    eventually(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in family), 30, f"the old processes of {name} are gone")
    eventually(lambda: job.processes()[name]["pid"] not in (0, old) and all_ready(job), START_SECONDS, f"{name} is back")
    assert text_of(ask(job.url, prompts()[40])) == references[40]


class TestOnePrefillAndOneDecodeEngine:
    def test_it_answers_as_one_vllm(self, one_pair, references):
        check_answers(one_pair, references)

    def test_eight_requests_at_once_are_all_answered(self, one_pair):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda prompt: ask(one_pair.url, prompt, max_tokens=32), prompts()))
        assert [reply.status_code for reply in replies] == [200] * 64
        assert {reply.json()["usage"]["completion_tokens"] for reply in replies} == {32}


class TestTwoPrefillEngines:
    def test_they_answer_as_one_vllm(self, two_prefill, references):
        check_answers(two_prefill, references)

    def test_a_prefill_worker_dies_between_the_prefill_and_the_pull(self, two_prefill, references):
        job, number = two_prefill, 60
        decode = engine_of(job, "decode-0")
        busy = {name: engine_of(job, name) for name in ("prefill-0", "prefill-1")}
        computed = {name: metric(job.processes()[name]["url"], "vllm:prompt_tokens_total") for name in busy}

        def who_computed():
            return [name for name in busy if metric(job.processes()[name]["url"], "vllm:prompt_tokens_total") > computed[name]]

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            os.kill(decode, signal.SIGSTOP)  # The front end: the engine behind it cannot be asked to pull.
            try:
                answer = pool.submit(ask, job.url, prompts()[number])
                eventually(who_computed, 60, "the prompt is computed")
                (name,) = who_computed()
                old, family = job.processes()[name]["pid"], family_of(busy[name])
                os.kill(old, signal.SIGKILL)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(decode, signal.SIGCONT)
            assert text_of(answer.result()) == references[number], "another prefill engine computed it"
        heals(job, name, old, references, family)

    def test_the_only_decode_worker_dies_in_the_middle_of_a_stream(self, two_prefill, references):
        job = two_prefill
        old, family = job.processes()["decode-0"]["pid"], family_of(engine_of(job, "decode-0"))
        tokens, ends, killed = 0, [], []
        request = body(prompts()[30], stream=True, max_tokens=200, return_token_ids=True)
        with contextlib.suppress(httpx.HTTPError), httpx.stream("POST", job.url + "/v1/completions", json=request, timeout=300) as reply:
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    tokens += len(json.loads(line.removeprefix("data: "))["choices"][0]["token_ids"])
                    if tokens >= 10 and not killed:
                        killed.append(old)
                        os.kill(old, signal.SIGKILL)
                ends += [line] if line == "data: [DONE]" else []
        assert bool(ends) == (tokens == 200), "it is whole, once the worker is back, or cut: it does not end as if it were whole"
        heals(job, "decode-0", old, references, family)

    @pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
    def test_an_engine_dies_under_its_worker(self, two_prefill, references, name):
        job = two_prefill
        old, engine = job.processes()[name]["pid"], engine_of(job, name)
        family = family_of(engine)
        os.kill(engine, signal.SIGKILL)
        heals(job, name, old, references, family)

    def test_a_stopped_engine_is_replaced(self, two_prefill, references):
        job = two_prefill
        old, family = job.processes()["decode-0"]["pid"], family_of(engine_of(job, "decode-0"))
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        reply = ask(job.url, prompts()[20])  # It waits for the next engine, or says why it was not served.
        assert reply.status_code in (200, 503, 504, 502, 500), reply.text
        assert reply.status_code == 200 and text_of(reply) == references[20] or reply.json()["error"]["message"]
        heals(job, "decode-0", old, references, family)


def test_a_launcher_that_is_killed_leaves_no_engine(references):
    with new_folder() as folder:
        job = Job(yaml(folder, prefill=0), folder)
        assert job._ready.wait(START_SECONDS) and job.url, job.log_tail()
        assert text_of(ask(job.url, prompts()[10])) == references[10]
        job.child.kill()
        job.child.wait()
        eventually(lambda: not processes_with(folder), 30, "nothing is orphaned")


def test_the_official_router_takes_one_line(references):
    with new_folder() as folder, vllm_job(yaml(folder, router=router_section("vllm-router", folder)), folder) as job:
        before = received(job)
        for number in range(0, 64, 8):
            assert text_of(ask(job.url, prompts()[number])) == references[number]
        assert received(job) > before


# --- what is in the prefix caches


def test_the_router_follows_the_prefix_caches_of_engines():
    story = " ".join(f"The number {number} follows the number {number - 1}." for number in range(1, 60))
    with new_folder() as folder:
        text = yaml(folder, prefill=0, decode=2, router="decode_policy: prefix_aware")
        text = text.replace(', "--no-enable-prefix-caching"', "").replace('env: [', 'env: ["VLLM_SERVER_DEV_MODE=1", ')
        with vllm_job(text, folder) as job:

            def events(name):
                rows = httpx.get(job.url + "/pdjob/workers", timeout=60).json()["workers"]
                return next(row for row in rows if row["name"] == name).get("kv_events", {"complete": False, "blocks": 0})

            def send(prompt, to=None):
                headers = {"x-pdjob-pin-decode": to} if to else {}
                reply = httpx.post(job.url + "/v1/completions", json=body(prompt), headers=headers, timeout=300)
                assert reply.status_code == 200, reply.text
                return reply.headers["x-pdjob-decode"]

            for name in ("decode-0", "decode-1"):
                eventually(lambda: events(name)["complete"], 60, f"{name} is followed")
                before = events(name)["blocks"]
                assert send(story, to=name) == name
                eventually(lambda: events(name)["blocks"] >= before + 10, 60, f"{name} has told of the story")
            eventually(lambda: metric(job.url, "pdjob_router_tokenize_total", result="ok") == 1, 60, "the router knows the tokens")
            for gone, other in (("decode-0", "decode-1"), ("decode-1", "decode-0")):
                assert httpx.post(job.processes()[gone]["url"] + "/reset_prefix_cache", timeout=60).status_code == 200
                send("Hi", to=gone)  # An engine publishes with its next step only. This prompt fills no block.
                eventually(lambda: events(gone) == {"complete": True, "blocks": 0}, 60, f"{gone} has told that it has nothing")
                assert [send(story + ending) for ending in (" So", " And", " Or")] == [other] * 3
                send(story, to=gone)
                eventually(lambda: events(gone)["blocks"] >= 10, 60, f"{gone} has told of the story again")
            assert metric(job.url, "pdjob_router_kv_event_gaps_total") == 0


# --- the YAML of vLLM's own pdjob, with what a CPU needs


def pull_request_yaml(command, arguments, connector):
    """The example of the pull request, https://github.com/vllm-project/vllm/pull/29649: a tiny model, no GPUs, and the folders of this machine."""
    transfer = json.dumps({"kv_connector": "NixlConnector", "kv_role": connector, "kv_buffer_device": "cpu"})
    role = f"""
  num_gpus: 0
  replicas: 1
  params:
    max_num_seqs: 8
    max_num_batched_tokens: 2048
    kv_transfer_config: '{transfer}'
"""
    return f"""\
timeout: {START_SECONDS}
envs: {{OMP_NUM_THREADS: "1", VLLM_CPU_OMP_THREADS_BIND: nobind, {", ".join(each.replace("=", ': "') + '"' for each in ENVIRONMENT)}}}
scheduler:
  port: {free_port()}
  command: "{command}"
general:
  params:
    model: {MODEL}
    host: 0.0.0.0
    port: '{{PORT}}'
    served_model_name: tiny
    _extra_params: '{" ".join(arguments)}'
prefill:{role}
decode:{role}"""


COMMANDS = {
    "vllm-router": "vllm-router --vllm-pd-disaggregation --prefill $PREFILL_URL_1 --decode $DECODE_URL_1 --host 127.0.0.1 --port {PORT}",
    "its-own": "python my_scheduler.py --prefill $PREFILL_URL_1 --decode $DECODE_URL_1 --port {PORT}",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_yaml_of_vllms_own_pdjob_runs(references, command, monkeypatch):
    monkeypatch.setenv("PATH", f"{VLLM}/bin:{CACHE}/peers/vllm-router/bin:{os.environ['PATH']}")
    with new_folder() as folder:
        monkeypatch.setenv("PDJOB_TEST_FOLDER", folder)
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        with vllm_job(pull_request_yaml(command, ARGUMENTS, "kv_both"), folder) as job:
            for number in range(0, 64, 16):
                assert text_of(ask(job.url, prompts()[number])) == references[number]
