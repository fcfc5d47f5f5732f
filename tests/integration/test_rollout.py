"""A trainer changes the weights of a running job: the whole fleet at once, and never a mixture."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import BIN, MODEL, Process, assert_idle, eventually, free_port, running_job
from gguf_weights import swap_layers
from test_abort import waiting_for_tokens

PROMPT = "The capital of France is a city that"
TOKENS = 24


@pytest.fixture(scope="module")
def weights():
    """A folder with the model's own weights, `a.gguf`, and others, `b.gguf`."""
    with tempfile.TemporaryDirectory(prefix="pdjob-weights-") as name:
        folder = pathlib.Path(name)
        shutil.copy(MODEL, folder / "a.gguf")
        swap_layers(MODEL, folder / "b.gguf", 1, 4)
        (folder / "hf").mkdir()
        (folder / "hf" / "model.safetensors").write_bytes(b"x")
        (folder / "broken.gguf").write_bytes((folder / "a.gguf").read_bytes()[:100_000])
        yield folder


def rollout_yaml(weights, **options):
    keys = {"weights_dir": weights, "control": "same_address", **options}
    return "mode: rollout\nrollout: {" + ", ".join(f'{key}: "{value}"' for key, value in keys.items()) + "}\n"


def key_of(job):
    (file,) = pathlib.Path(job.folder).glob("state/*/control_key")
    assert file.stat().st_mode & 0o077 == 0, "others may read the control key"
    return file.read_text().strip()


def call(job, method, path, body=None, url=None, key=None, timeout=180):
    """Returns the status and the JSON (or text) of a control call."""
    request = urllib.request.Request((url or job.url) + path, method=method, data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {key_of(job) if key is None else key}")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            status, text = reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    with contextlib.suppress(ValueError):
        return status, json.loads(text)
    return status, text


def fleet(job):
    status, told = call(job, "GET", "/v1/rl/fleet")
    assert status in (200, 207), told
    return told


def versions(job):
    return {worker["name"]: worker["weight_version"] for worker in fleet(job)["workers"]}


def complete(url, stream=False, tokens=TOKENS, prompt=PROMPT, headers=()):
    """Returns the text of a greedy completion."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": stream, "ignore_eos": True}
    request = urllib.request.Request(url + "/v1/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json", **dict(headers)})
    with urllib.request.urlopen(request, timeout=180) as reply:
        if not stream:
            return json.loads(reply.read())["choices"][0]["text"]
        lines = [line.decode().strip() for line in reply]
    assert lines[-2] == "data: [DONE]" or "data: [DONE]" in lines, lines[-3:]
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return "".join(event["choices"][0]["text"] for event in events if event["choices"])


def generate(url, tokens=TOKENS):
    """Returns the meta_info of SGLang's /generate."""
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}}
    request = urllib.request.Request(url + "/generate", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=180) as reply:
        return json.loads(reply.read())["meta_info"]


@pytest.fixture(scope="module")
def texts(weights):
    """What one process alone says with each of the two sets of weights."""
    said = {}
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as name:
        for which in ("a", "b"):
            argv = ["pdjob", "worker", "--role", "both", "--model", str(weights / f"{which}.gguf"), "--listen", "127.0.0.1:0"]
            alone = Process(argv + ["--set", "decode.prefix_cache=false"], name).wait_ready()
            said[which] = complete(alone.url)
            alone.stop()
    assert said["a"] != said["b"], "the two sets of weights must differ in what they say"
    return said


@pytest.fixture(scope="module")
def job(folder, weights):
    with running_job(folder, extra=rollout_yaml(weights)) as job:
        yield job


def update(job, which, version, weights, **more):
    return call(job, "POST", "/update_weights_from_disk", {"model_path": str(weights / f"{which}.gguf"), "weight_version": version, **more})


def test_the_whole_fleet_takes_new_weights_and_uses_no_kv_of_the_old_ones(job, weights, texts):
    assert fleet(job)["weight_version"] == "default"
    assert complete(job.url) == texts["a"]  # Its prompt is kept by both workers now.

    assert call(job, "POST", "/pause_generation", {"mode": "abort"}) == (200, {"message": "paused", "status": "ok"})
    assert call(job, "GET", "/is_paused") == (200, {"is_paused": True})
    waiting = []
    waiter = threading.Thread(target=lambda: waiting.append(complete(job.url)))
    waiter.start()
    status, told = update(job, "b", "step-1", weights)
    assert (status, told["success"]) == (200, True), told
    assert not waiting, "admission is closed"
    assert call(job, "GET", "/is_paused")[1] == {"is_paused": True}, "it was paused before the update"
    assert call(job, "POST", "/continue_generation", {"torch_empty_cache": True})[0] == 200
    waiter.join(60)
    assert waiting == [texts["b"]], "the same prompt, with nothing of the old weights"

    assert set(versions(job).values()) == {"step-1"}
    assert call(job, "GET", "/model_info")[1]["weight_version"] == "step-1"
    assert call(job, "GET", "/model_info")[1]["served_model_name"] == "smollm2", "clients see the same model"
    status, check = call(job, "POST", "/weights_checker", {"action": "checksum"})
    assert status == 200 and check["success"] and len(check["ranks"]) == 2, check
    said = generate(job.url)
    assert said["weight_version"] == "step-1" and said["weight_versions"] == [{"version": "step-1", "start": 0, "end": TOKENS}], said
    eventually(lambda: assert_idle(job), what="an idle fleet")


def test_a_fleet_that_is_not_paused_closes_and_opens_by_itself(job, weights, texts):
    status, told = call(job, "POST", "/v1/rl/update", {"path": "a.gguf", "version": "step-2"})
    assert status == 200 and told["weight_version"] == "step-2", told
    assert complete(job.url) == texts["a"]
    status, told = call(job, "POST", "/v1/rl/update", {"path": "a.gguf", "version": "step-2"})
    assert (status, told["message"]) == (200, "nothing to do"), "a repeated order"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/etc/passwd", "not below rollout.weights_dir"),
        ("missing.gguf", "No such file"),
        ("hf", "safetensors"),
        ("broken.gguf", "cannot"),
        ("", "must name a .gguf file"),
    ],
)
def test_an_order_that_cannot_be_served_changes_nothing(job, weights, texts, path, reason):
    before = versions(job)
    status, told = call(job, "POST", "/v1/rl/update", {"path": path, "version": "wrong"})
    assert status == 400 and reason in told["message"], told
    assert versions(job) == before
    assert complete(job.url) == texts["a"]


def test_a_version_names_one_set_of_weights(job, weights):
    before, said = versions(job), complete(job.url)
    status, told = update(job, "a", "step-1", weights)
    assert status == 400 and "step-1 names other weights already" in told["message"], told
    assert versions(job) == before and complete(job.url) == said


def test_calls_of_other_servers_are_done_or_refused_with_the_reason(job):
    for path in ("/begin_weight_update", "/end_weight_update", "/post_process_weights"):
        status, told = call(job, "POST", path, {"selector": "all"})
        assert (status, told["success"]) == (200, True), told
    for path in ("/destroy_weights_update_group", "/init_weights_update_group"):
        status, told = call(job, "POST", path, {})
        assert status == 400 and told["message"], told
    assert call(job, "POST", "/init_broadcaster", {})[0] == 404
    status, told = call(job, "POST", "/load_lora_adapter", {"lora_name": "a", "lora_path": "/a"})
    assert status == 403 and "router.open_adapters" in told["error"]["message"], told
    assert call(job, "GET", "/model_info/")[0] == call(job, "GET", "/health/")[0] == 200, "a slash at the end"
    assert call(job, "POST", "/v1/completions/", {"prompt": PROMPT, "max_tokens": 1})[0] == 200
    assert call(job, "POST", "/workers", {"url": job.url + "/", "worker_type": "regular"})[0] == 200
    status, told = call(job, "POST", "/workers", {"url": "http://127.0.0.1:9"})
    assert status == 400 and job.url in told["message"], told
    assert call(job, "DELETE", "/workers/pdjob")[0] == 400
    assert call(job, "GET", "/workers")[1]["total"] == 1


def test_an_update_that_waits_for_requests_can_be_cancelled(job, weights):
    before, said, answers = versions(job), complete(job.url), []
    stream = threading.Thread(target=lambda: complete(job.url, stream=True, tokens=1500))
    stream.start()
    eventually(lambda: running(job) == 1, what="it runs")
    order = threading.Thread(target=lambda: answers.append(call(job, "POST", "/v1/rl/update", {"path": "b.gguf", "version": "cancelled", "mode": "wait"})))
    order.start()
    eventually(lambda: fleet(job)["message"] == "closing", what="it waits for the stream")
    status, told = call(job, "POST", "/v1/rl/cancel")
    assert (status, told["message"]) == (200, "cancelled"), told
    order.join(60)
    assert answers[0][0] == 409, answers
    assert running(job) == 1, "the stream goes on"
    assert complete(job.url) == said and versions(job) == before
    call(job, "POST", "/abort_requests", {})
    stream.join(60)


def test_orders_want_the_control_key(job):
    assert call(job, "GET", "/v1/rl/fleet", key="wrong")[0] == 401
    assert call(job, "POST", "/pause", key="wrong")[0] == 401
    assert call(job, "GET", "/health_generate", key="")[0] == 200
    assert call(job, "GET", "/health", key="")[1] == {"status": "ok", "total_backends": 2, "control_fanout": True}


def test_streams_and_whole_replies_go_on_over_an_update(job, weights):
    streams = [[] for _ in range(4)]

    def run(said, number):
        said.append(complete(job.url, stream=True, tokens=400, prompt=f"Story number {number}: once upon a time"))

    before = fleet(job)["weight_version"]
    whole = []
    threads = [threading.Thread(target=run, args=(said, number)) for number, said in enumerate(streams)]
    threads.append(threading.Thread(target=lambda: whole.append(generate(job.url, tokens=900))))
    for thread in threads:
        thread.start()
    eventually(lambda: running(job) == 5, what="all of them run")
    with waiting_for_tokens(job, 700):
        pass
    status, told = call(job, "POST", "/v1/rl/update", {"path": "b.gguf", "version": "step-3", "mode": "retract"})
    assert status == 200, told
    for thread in threads:
        thread.join(120)
    assert all(len(said) == 1 and said[0] for said in streams)
    # A reply that is not streamed goes on with the tokens that its worker had told: 64 at a time.
    (first, second) = whole[0]["weight_versions"]
    assert (first["version"], first["start"], second["version"], second["end"]) == (before, 0, "step-3", 900), whole
    assert first["end"] == second["start"] and first["end"] % 64 == 0 and first["end"] >= 64, whole
    assert set(versions(job).values()) == {"step-3"}
    eventually(lambda: assert_idle(job), what="an idle fleet")


def running(job):
    return call(job, "GET", "/v1/loads")[1]["loads"][0]["num_running_reqs"]


def test_a_pause_that_aborts_ends_requests_with_the_tokens_that_they_have(job):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(generate(job.url, tokens=1500)))
    with waiting_for_tokens(job):
        thread.start()
    began = time.monotonic()
    assert call(job, "POST", "/pause_generation", {"mode": "abort"})[0] == 200
    thread.join(60)
    assert time.monotonic() - began < 20
    (meta,) = answers
    assert meta["finish_reason"]["type"] == "abort" and 0 < meta["completion_tokens"] < 1500, meta
    assert meta["weight_version"] == "step-3" and meta["weight_versions"] == [{"version": "step-3", "start": 0, "end": meta["completion_tokens"]}], meta
    assert call(job, "POST", "/continue_generation", {})[0] == 200


def test_a_flush_drops_what_workers_have_kept_and_a_name_can_change(job):
    status, told = call(job, "POST", "/flush_cache")
    assert status == 200, told
    status, told = call(job, "POST", "/update_weight_version", {"new_version": "named", "abort_all_requests": False})
    assert status == 200 and told["new_version"] == "named", told
    assert set(versions(job).values()) == {"named"}


@pytest.mark.parametrize("victim", ["prefill-0", "decode-0"])
def test_a_worker_that_is_killed_comes_back_with_the_newest_weights(job, weights, texts, victim):
    which, version = ("a", "kill-1") if victim == "prefill-0" else ("b", "kill-2")
    assert update(job, which, version, weights)[0] == 200
    pid = job.processes()[victim]["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: job.processes()[victim]["pid"] not in (0, pid) and fleet(job)["workers_serving"] == 2, seconds=60, what="the worker is back")
    assert set(versions(job).values()) == {version}
    assert complete(job.url) == texts[which]


@pytest.mark.parametrize("delay", [0.05, 0.3, 0.8, 1.5])
def test_a_worker_that_is_killed_during_an_update_does_not_stop_it(job, weights, texts, delay):
    which = "a" if complete(job.url) == texts["b"] else "b"
    version = f"during-{delay}"
    answers = []
    order = threading.Thread(target=lambda: answers.append(update(job, which, version, weights)))
    pid = job.processes()["decode-0"]["pid"]
    order.start()
    time.sleep(delay)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    order.join(120)
    assert answers and answers[0][0] == 200, answers
    eventually(lambda: fleet(job)["workers_serving"] == 2, seconds=60, what="the worker is back")
    assert set(versions(job).values()) == {version}
    assert complete(job.url) == texts[which]


def test_a_router_that_is_killed_while_the_fleet_is_paused_stays_closed(job):
    assert call(job, "POST", "/pause?mode=wait")[0] == 200
    os.kill(job.processes()["router-0"]["pid"], signal.SIGKILL)
    eventually(lambda: call(job, "GET", "/is_paused")[1] == {"is_paused": True}, what="the router is back")
    waiting = []
    waiter = threading.Thread(target=lambda: waiting.append(complete(job.url)))
    waiter.start()
    time.sleep(1)
    assert not waiting
    assert call(job, "POST", "/resume")[0] == 200
    waiter.join(60)
    assert waiting


def test_two_pairs_over_tcp_and_one_that_joins_take_orders_at_an_address_of_their_own(weights, texts):
    address = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        options = {"control": "own_address", "listen": address}
        with running_job(folder, prefill=2, decode=2, transport="tcp", extra=rollout_yaml(weights, **options)) as job:
            assert complete(job.url) == texts["a"]
            assert call(job, "POST", "/pause_generation", {})[0] == 404, "clients cannot give orders"
            status, told = call(job, "POST", "/update_weights", {"weight_dir": "b.gguf"}, url=f"http://{address}")
            assert (status, told) == (200, {"status": "ok"})
            told = call(job, "GET", "/v1/rl/fleet", url=f"http://{address}")[1]
            assert {worker["weight_version"] for worker in told["workers"]} == {"update-1"}, told
            assert len({worker["digest"] for worker in told["workers"]}) == 1 and told["workers_serving"] == 4
            for _ in range(4):
                assert complete(job.url) == texts["b"]
            subprocess.run([BIN, "scale", "decode=3", "--config", str(job.config)], check=True, timeout=120)
            told = call(job, "GET", "/v1/rl/fleet", url=f"http://{address}")[1]
            assert {worker["weight_version"] for worker in told["workers"]} == {"update-1"} and told["workers_serving"] == 5, told
            assert complete(job.url, headers={"x-pdjob-pin-decode": "decode-2"}) == texts["b"]
