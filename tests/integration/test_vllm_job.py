"""Jobs that vLLM's people wrote, on doubles of vLLM: a file of vLLM's own `pdjob`, and a recipe that vLLM publishes."""

import os
import pathlib
import subprocess

import pytest

from conftest import BIN, ROOT, Job, eventually, free_port, processes_with
from test_foreign_engines import DOUBLE, ask, expected, logs, LONG
from test_wide_engines import ranks, variables

RECIPE = ROOT / "tests/data/vllm_recipes/models/dense.yaml"
NIXL = '{"kv_connector":"NixlConnector","kv_role":"ROLE","kv_buffer_size":"9E+9","kv_ip":"{KV_IP}","kv_connector_extra_config":{"http_port":"{PORT}"}}'


def example(folder):
    """The example of the pull request, with a model of its form."""
    role = """
  envs: {VLLM_ATTENTION_BACKEND: FLASHMLA}
  num_gpus: 8
  replicas: 1
"""
    return f"""\
timeout: 3600
num_gpus: 16
gpus_per_worker: 1
envs: {{PDJOB_TEST_FOLDER: {folder}}}
scheduler: {{port: {free_port()}, command: "python3 proxy_server.py --port {{PORT}} --prefill-url $PREFILL_URL_1 --decode-url $DECODE_URL_1"}}
general:
  params:
    model: /models/DeepSeek-R1
    host: 0.0.0.0
    port: '{{PORT}}'
    served_model_name: tiny
    speculative_config: '{{"num_speculative_tokens": 1}}'
    _extra_params: --trust-remote-code --block-size 128 -q fp8
prefill:{role}
  params:
    enforce_eager: true
    tensor_parallel_size: 8
    data_parallel_size: 1
    gpu_memory_utilization: 0.85
    max_num_seqs: 1
    distributed_executor_backend: mp
    kv_transfer_config: '{NIXL.replace("ROLE", "kv_producer")}'
decode:{role}
  params:
    tensor_parallel_size: 2
    data_parallel_size: 4
    max_num_seqs: 32
    kv_transfer_config: '{NIXL.replace("ROLE", "kv_consumer")}'
"""


@pytest.fixture
def start(tmp_path):
    """Starts a job on a machine that says how many GPUs it has, and where `vllm` is a double."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "vllm").symlink_to(DOUBLE)
    jobs = []

    def start(text, gpus):
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(gpus)))}
        settings = [f"launcher.state_dir={tmp_path}/state", f"launcher.log_dir={tmp_path}/logs", "kvtransfer.lease=1s"]
        jobs.append(Job(text, tmp_path, env={**environment, "PDJOB_TEST_FOLDER": str(tmp_path)}, settings=settings))
        try:
            return jobs[-1].wait_ready()
        except BaseException:
            print(logs(tmp_path)[-12000:])
            raise

    yield start
    for job in jobs:
        assert job.stop() == 0, job.log_tail()
    assert "COMPLAINT" not in logs(tmp_path)
    eventually(lambda: not processes_with(tmp_path), 10, "nothing is orphaned")


def gpus_of_engines(folder):
    """How many ranks see which GPUs."""
    seen = {}
    for _, pid in ranks(folder):
        seen.setdefault(variables(pid)["CUDA_VISIBLE_DEVICES"], []).append(pid)
    return {gpus: len(pids) for gpus, pids in seen.items()}


def test_the_example_of_the_pull_request_runs_on_sixteen_gpus(start, tmp_path):
    job = start(example(tmp_path), 16)
    assert ask(job).json()["choices"][0]["text"] == expected(LONG)
    engines = gpus_of_engines(tmp_path)
    assert sorted(engines.values()) == [8, 8] and len({gpu for gpus in engines for gpu in gpus.split(",")}) == 16, engines


def test_a_recipe_runs_as_the_job_that_it_is_converted_to(start, tmp_path):
    converted = subprocess.run([BIN, "convert", "--recipe", str(RECIPE), "--hardware", "h200", "--nodes", "1"], capture_output=True, text=True, timeout=30)
    assert converted.returncode == 0, converted.stderr
    text = converted.stdout.replace("served_name: example/dense-70b", "served_name: tiny").replace("127.0.0.1:8000", "127.0.0.1:0")
    job = start(text, 8)
    assert ask(job).json()["choices"][0]["text"] == expected(LONG)
    assert sorted(gpus_of_engines(tmp_path).values()) == [4, 4]


def test_the_strategy_is_found_beside_the_recipe_and_named_where_it_is_not(tmp_path):
    models = tmp_path / "models/example"
    models.mkdir(parents=True)
    (models / "dense.yaml").write_text(RECIPE.read_text())
    command = [BIN, "convert", "--recipe", str(models / "dense.yaml"), "--hardware", "h200"]
    missing = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert missing.returncode == 2 and str(tmp_path / "models/pd_cluster.yaml") in missing.stderr, missing.stderr
    strategy = (RECIPE.parent.parent / "pd_cluster.yaml").read_text()
    named = pathlib.Path(tmp_path / "own.yaml")
    named.write_text(strategy)
    assert subprocess.run([*command, "--strategy", str(named)], capture_output=True, timeout=30).returncode == 0
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies/pd_cluster.yaml").write_text(strategy)
    assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0


@pytest.mark.parametrize("flags,said", [
    ([], "give either FILE or --recipe FILE"),
    (["job.yaml", "--recipe", str(RECIPE), "--hardware", "h200"], "give either FILE or --recipe FILE"),
    (["--recipe", str(RECIPE)], "--hardware"),
    (["--hardware", "h200"], "--recipe"),
    (["--recipe", str(RECIPE), "--hardware", "h200", "--nodes", "0"], "--nodes"),
    (["--recipe", str(RECIPE), "--hardware", "tpu"], "--hardware: must be one of h20, h100"),
    (["--recipe", str(RECIPE), "--hardware", "h200", "--variant", "fp4"], "--variant is one of default, fp8"),
    (["--recipe", str(RECIPE), "--hardware", "h200", "--feature", "tools"], "--feature is one of tool_calling, spec_decoding"),
])
def test_wrong_words_of_convert_are_refused_by_name(tmp_path, flags, said):
    answer = subprocess.run([BIN, "convert", *flags], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert answer.returncode == 2 and said in answer.stderr and not answer.stdout, answer.stderr
