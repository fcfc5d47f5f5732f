"""`pdjob tune`: models of running engines, and of published measurements."""

import json
import signal
import subprocess
import time

import pytest

from conftest import BIN, MODEL, Process


def tune(*words, **options):
    return subprocess.run([BIN, "tune", *words], capture_output=True, text=True, timeout=120, **options)


def fake(role, folder):
    """A worker whose engine takes 1 ms for each token of a step, and nothing else."""
    settings = ["engine.kind=fake", "engine.sequences=16", "engine.fake_delay_per_token=1ms", "served_name=fake"]
    words = [word for setting in settings for word in ("--set", setting)]
    return Process(["pdjob", "worker", "--role", role, "--model", MODEL, "--listen", "127.0.0.1:0", *words], folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    workers = [fake(role, folder) for role in ("prefill", "decode")]
    yield [worker.wait_ready().url for worker in workers]
    for worker in workers:
        worker.stop()


def test_the_model_of_an_engine_whose_times_are_known(pair, tmp_path):
    out = tmp_path / "model.json"
    started = time.monotonic()
    done = tune("--measure", pair[0], "--decode", pair[1], "--seconds", "10", "--device", "two cores", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 15
    model = json.loads(out.read_text())
    step = model["step"]
    # A busy machine makes steps longer, never shorter.
    assert 950 < step["per_prompt_token_us"] < 2000, model
    assert 800 < step["per_sequence_us"] < 2500, model
    assert model["errors"]["prefill"]["median"] < 0.2, model
    assert model["errors"]["kv"]["probes"] > 0, model
    assert model["kv"]["per_token_us"] < 100, model
    assert model["source"] == "measured" and model["engine"].startswith("pdjob") and model["device"] == "two cores"
    assert "prompt 64" in model["probes"] and "decode 1 at 64" in model["probes"]
    assert "measuring:" in done.stderr and "\r" not in done.stderr
    assert "written: " in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


def test_ctrl_c_leaves_no_file(pair, tmp_path):
    out = tmp_path / "model.json"
    child = subprocess.Popen([BIN, "tune", "--measure", pair[0], "--seconds", "60", "--out", str(out)], stderr=subprocess.PIPE, text=True)
    assert "measuring" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    assert child.wait(10) == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words, said",
    [
        (["--measure", "http://127.0.0.1:1"], "127.0.0.1:1"),
        (["--measure", "https://127.0.0.1:1"], "engines are measured by http"),
        (["--measure", "no-such-job"], "no-such-job"),
        (["--measure", "http://127.0.0.1:1/%"], "127.0.0.1"),
    ],
)
def test_errors_say_what_to_do(words, said, tmp_path):
    done = tune(*words, "--out", str(tmp_path / "m.json"))
    assert done.returncode in (1, 2)
    assert said in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_refused_before_the_measurement(pair, tmp_path):
    started = time.monotonic()
    done = tune("--measure", pair[0], "--out", str(tmp_path / "none" / "m.json"))
    assert done.returncode == 2 and "cannot write" in done.stderr
    assert time.monotonic() - started < 10


def run_file(folder, concurrency, tokens, itl_ms, ttft_ms):
    """As `vllm bench serve --save-result` writes it."""
    path = folder / f"c{concurrency}-{tokens}.json"
    rate = concurrency / (itl_ms / 1e3 * 99)
    run = {
        "date": "20261128-120000", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": "m/8b", "tokenizer_id": "m/8b",
        "num_prompts": 10, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": concurrency, "duration": 10 / rate, "completed": 10,
        "total_input_tokens": 10 * tokens, "total_output_tokens": 1000, "request_throughput": rate, "output_throughput": 100 * rate,
        "mean_ttft_ms": ttft_ms, "median_ttft_ms": ttft_ms, "mean_tpot_ms": itl_ms, "median_tpot_ms": itl_ms, "median_itl_ms": itl_ms,
    }
    path.write_text(json.dumps(run))
    return path


def test_published_runs_make_a_model_that_says_so(tmp_path):
    files = [run_file(tmp_path, 1, 500, 6, 40), run_file(tmp_path, 1, 2000, 7, 160), run_file(tmp_path, 16, 500, 12, 900)]
    out = tmp_path / "model.json"
    words = [word for file in files for word in ("--read", str(file))]
    done = tune(*words, "--kind", "vllm-bench", "--device", "H100", "--engine", "vllm 0.9", "--out", str(out))
    assert done.returncode == 0, done.stderr
    model = json.loads(out.read_text())
    assert model["source"] == "read" and "(vllm-bench)" in model["read_from"] and model["engine"] == "vllm 0.9"
    assert "read from published measurements" in done.stdout
    assert "kv.per_token_us" in model["unmeasured"]
    refused = tune("--read", str(files[2]), "--kind", "vllm-bench", "--out", str(out))
    assert refused.returncode == 2 and "one request at a time" in refused.stderr
    unknown = tune("--read", str(files[0]), "--kind", "aiconfigurator", "--out", str(out))
    assert unknown.returncode == 2
