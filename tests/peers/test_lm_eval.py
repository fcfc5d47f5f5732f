"""lm-eval, unmodified, scores a job by a bundled task of 50 questions. Each of its 200 loglikelihoods is that of libllama alone."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
from conftest import CACHE, assert_idle, metric, running_job  # noqa: E402
from test_read_prompts import NEAR, libllama  # noqa: E402

LM_EVAL = CACHE / "peers/lm-eval/bin/lm_eval"
TASK = ROOT / "tests/peers/lm_eval_task"
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    with running_job(tmp_path_factory.mktemp("pdjob-lm-eval"), prefill=2) as job:
        yield job


def evaluate(job, folder, model_args, *options):
    """Runs lm-eval, and returns its results and its samples."""
    args = f"model=smollm2,base_url={job.url}/v1/completions,{model_args}"
    words = [LM_EVAL, "run", "--model", "local-completions", "--model_args", args, "--tasks", "pdjob_facts", "--include_path", TASK]
    words += ["--output_path", folder, "--log_samples", *options]
    # No hub: what it needs is there.
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    ran = subprocess.run(list(map(str, words)), cwd=TASK, env=env, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr[-4000:]
    (results,) = folder.glob("**/results_*.json")
    (samples,) = folder.glob("**/samples_*.jsonl")
    return json.loads(results.read_text())["results"]["pdjob_facts"], [json.loads(line) for line in samples.read_text().splitlines()]


def expected(reference, context, continuation):
    """Returns the sum of the continuation's logprobs, whether it is the greedy one, and its number of tokens: as lm-eval defines them."""
    whole = reference.tokens(context + continuation)
    first = len(reference.tokens(context))
    scored = list(zip(whole[1:], reference.logprobs(whole), strict=True))[first - 1 :]
    return sum(logprob for _, (logprob, _) in scored), all(token == best for token, (_, best) in scored), len(scored)


# Token ids, or texts; one prompt in a request, or lists of them; one request at a time, or several.
@pytest.mark.parametrize(
    "model_args, options",
    [("num_concurrent=1", ["--batch_size", "8"]), ("num_concurrent=4,tokenized_requests=False", ["--batch_size", "1"])],
)
def test_its_loglikelihoods_are_those_of_libllama(job, tmp_path, model_args, options):
    results, samples = evaluate(job, tmp_path, model_args, *options)
    assert len(samples) == 50
    worst, right = 0.0, 0
    with libllama() as reference:
        for sample in samples:
            sums = []
            for argument, response in zip(sample["arguments"].values(), sample["resps"], strict=True):
                logprob, is_greedy = response[0]
                want, want_greedy, tokens = expected(reference, argument["arg_0"], argument["arg_1"])
                worst = max(worst, abs(float(logprob) - want) / tokens)
                assert abs(float(logprob) - want) <= NEAR * tokens, argument
                assert str(is_greedy) == str(want_greedy), argument
                sums.append(want)
            right += sums.index(max(sums)) == int(sample["target"])
    print(f"{right} of 50 right; the largest difference for a token is {worst:.6f}")
    assert results["acc,none"] == pytest.approx(right / 50)
    assert right > 25, "chance is 12.5"
    assert metric(job.url, "pdjob_router_bypassed_total", reason="prompt_only") > 0
    assert_idle(job)
