"""Real vLLM engines with several ranks, on CPUs, and one over two machines: `./dev peers` runs this. Each job takes minutes."""

import contextlib
import functools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import netns  # noqa: E402
from conftest import BIN, Job, eventually, processes_with  # noqa: E402
from test_agents import machines  # noqa: E402
from test_vllm import ARGUMENTS, ENVIRONMENT, MODEL, START_SECONDS, VLLM, all_ready, ask, new_folder, prompts, text_of, vllm_job, yaml  # noqa: E402

pytestmark = pytest.mark.heavy

PROMPTS = prompts(32, 600)
# Prefill's sizes, decode's, and the tensor-parallel size whose one engine computes the same. Where both roles differ, no engine does: prefill's KV is rounded
# as one of its size rounds it, decode's steps as another. The model has random weights, so a last bit decides often. Wrong KV would leave no answer equal.
SHAPES = {
    "tensor 2 for both": ("tensor: 2", "tensor: 2", 2),
    "tensor 2 for decode": ("", "tensor: 2", None),
    "tensor 2 for prefill": ("tensor: 2", "", None),
    "data 2 for both": ("data: 2", "data: 2", 1),
    "data 2 for prefill": ("data: 2", "", 1),
    "data 2 for decode": ("", "data: 2", 1),
}


def section(sizes):
    return f"engine: {{parallel: {{{sizes}}}}}" if sizes else ""


def wide_yaml(folder, prefill, decode):
    text = yaml(folder)
    text = text.replace("prefill: {workers: 1}", f"prefill: {{workers: 1, {section(prefill)}}}")
    return text.replace("decode: {workers: 1}", f"decode: {{workers: 1, {section(decode)}}}")


@functools.cache
def alone(tensor):
    """The answers of one engine that does all of a request."""
    with new_folder() as folder:
        sizes = f"tensor: {tensor}" if tensor > 1 else ""
        text = yaml(folder, prefill=0).replace("decode: {workers: 1}", f"decode: {{workers: 1, {section(sizes)}}}")
        with vllm_job(text, folder) as job:
            return [text_of(ask(job.url, prompt)) for prompt in PROMPTS]


def ranks(folder):
    return {pid: line for pid, line in processes_with(folder).items() if "Worker_TP" in line or "EngineCore_DP" in line}


@pytest.mark.parametrize("shape", SHAPES)
def test_engines_with_ranks_answer_as_one_engine(shape):
    prefill, decode, tensor = SHAPES[shape]
    with new_folder() as folder, vllm_job(wide_yaml(folder, prefill, decode), folder) as job:
        found = [text_of(ask(job.url, prompt)) for prompt in PROMPTS]
        assert ranks(folder), "it has ranks"
    if tensor is None:
        equal = sum(text in pair for text, *pair in zip(found, alone(1), alone(2)))
        sizes = sum(one == two for one, two in zip(alone(1), alone(2)))
        print(f"{shape}: {equal} of {len(PROMPTS)} are as one engine of either size computes them; these two agree in {sizes}")
        assert equal >= len(PROMPTS) // 2
    else:
        assert found == alone(tensor)


def test_a_killed_rank_replaces_its_engine_as_one_with_other_ports():
    with new_folder() as folder, vllm_job(wide_yaml(folder, "tensor: 2", ""), folder) as job:
        assert text_of(ask(job.url, PROMPTS[20]))
        before, old, pid = job.processes()["prefill-0"]["url"], ranks(folder), job.processes()["prefill-0"]["pid"]
        os.kill(next(pid for pid, line in old.items() if "Worker_TP1" in line), signal.SIGKILL)
        eventually(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in old), 60, "no rank is orphaned")
        eventually(lambda: job.processes()["prefill-0"]["pid"] not in (0, pid) and all_ready(job), START_SECONDS, "it is back")
        assert job.processes()["prefill-0"]["url"] != before
        assert text_of(ask(job.url, PROMPTS[20]))


@contextlib.contextmanager
def over_two_machines(made):
    environment = ", ".join(f'"{variable}"' for variable in [*ENVIRONMENT, f"PDJOB_TEST_FOLDER={made.folder}"])
    arguments = ", ".join(f'"{argument}"' for argument in [*ARGUMENTS, "--distributed-executor-backend", "mp"])
    text = f"""\
name: peers-wide
model: {MODEL}
served_name: tiny
engine: {{kind: vllm, program: {VLLM}/bin/vllm, threads: 1, env: [{environment}], args: [{arguments}]}}
prefill: {{workers: 0}}
decode: {{engine: {{nodes: 2, parallel: {{tensor: 2}}}}}}
router: {{listen: "127.0.0.1:0"}}
launcher: {{state_dir: {made.folder}/state, log_dir: {made.folder}/logs, start_timeout: {START_SECONDS}s}}
{made.clusters(2)}
"""
    for machine in ("a", "b"):
        made.start_agent(machine)
    with made.lan.inside("front"):
        job = Job(text, made.folder)
        try:
            assert job._ready.wait(START_SECONDS) and job.url, job.log_tail()
            yield job
        except BaseException:
            print(job.log_tail())
            for log in made.folder.glob("logs-*/*.log"):
                print(f"--- {log}", *log.read_text(errors="replace").splitlines()[-60:], sep="\n")
            raise
        finally:
            job.stop(timeout=120)


@pytest.mark.skipif(bool(netns.unavailable()), reason=netns.unavailable())
def test_one_engine_over_two_machines_answers_and_is_replaced_when_its_follower_dies():
    expected = alone(2)
    with machines("a", "b") as made, over_two_machines(made) as job:
        assert [text_of(ask(job.url, prompt)) for prompt in PROMPTS] == expected
        pid = job.processes()["decode-0"]["pid"]
        follower = next(pid for pid, line in processes_with(made.folder).items() if "--headless" in line and "guard-engine" not in line)
        os.kill(follower, signal.SIGKILL)
        eventually(lambda: job.processes()["decode-0"]["pid"] not in (0, pid) and job.processes()["decode-0"]["state"] == "ready", START_SECONDS, "it is back")
        assert text_of(ask(job.url, PROMPTS[20])) == expected[20]
    eventually(lambda: not processes_with(made.folder), 30, "nothing is orphaned")


# Of each list of arguments: how many GPUs vLLM's own parser gives an engine, or nothing where it refuses them.
COUNT_GPUS = """
import contextlib, io, json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
found = []
for arguments in json.load(sys.stdin):
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parsed = parser.parse_args(["--model", "m", *arguments])
        found.append(parsed.tensor_parallel_size * parsed.pipeline_parallel_size * parsed.prefill_context_parallel_size * parsed.data_parallel_size
                     if parsed.decode_context_parallel_size > 0 else 0)
    except SystemExit:
        found.append(None)
json.dump(found, sys.stdout)
"""
OPTIONS = ["--tensor-parallel-size", "--tensor_parallel_size", "--tensor-parallel", "-tp", "--pipeline-parallel-size", "--pipeline_parallel", "-pp",
           "--data-parallel-size", "--data_parallel_size", "-dp", "--decode-context-parallel-size", "-dcp", "--prefill-context-parallel-size", "-pcp",
           "--max-num-seqs", "--seed"]


def random_arguments(chance):
    arguments = []
    for _ in range(chance.randrange(5)):
        option, value = chance.choice(OPTIONS), chance.choice(["1", "2", "3", "4", "4", "0", "two", ""] if chance.random() < 0.2 else ["1", "2", "4"])
        arguments += [f"{option}={value}"] if chance.random() < 0.5 else [option, value][: 2 if value else 1]
    return arguments + (["--enable-expert-parallel"] if chance.random() < 0.3 else [])


def test_a_plan_takes_the_gpus_that_vllms_own_parser_says(tmp_path):
    chance = random.Random(11)
    lists = [random_arguments(chance) for _ in range(300)]
    counted = subprocess.run([VLLM / "bin/python", "-c", COUNT_GPUS], input=json.dumps(lists), capture_output=True, text=True, check=True)
    boxes, path = tmp_path / "boxes.yaml", tmp_path / "job.yaml"
    boxes.write_text("nodes:\n  box: {cores: 512, memory: 1000GiB, gpus: 256}\n")
    kinds = set()
    for arguments, wanted in zip(lists, json.loads(counted.stdout)):
        path.write_text(f"name: x\nmodel: m\nengine: {{kind: vllm, gpu: true, args: {json.dumps(arguments)}}}\nprefill: {{workers: 0}}\n")
        planned = subprocess.run([BIN, "plan", str(path), "--assume", str(boxes), "--json"], capture_output=True, text=True)
        if planned.returncode == 0:
            (gpus,) = [process["gpu"] for process in json.loads(planned.stdout)["processes"] if process["role"] == "both"]
            assert wanted in (None, len(gpus.split(","))), arguments
        else:
            # vLLM's parser takes sizes that no engine starts with.
            assert wanted is None or wanted == 0, (arguments, planned.stderr)
        kinds.add((planned.returncode, wanted is None))
    assert len(kinds) >= 3, kinds
