"""Requests in the background at real vLLM on CPUs, whose scheduler knows their priority: `./dev peers` runs this."""

import concurrent.futures
import pathlib
import sys

import httpx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import eventually  # noqa: E402
from test_vllm import body, new_folder, prompts, vllm_job, yaml  # noqa: E402

pytestmark = pytest.mark.heavy


def test_others_overtake_what_waits_in_vllms_queue_in_the_background():
    with new_folder() as folder:
        text = yaml(folder, prefill=0).replace("{kind: vllm,", "{kind: vllm, features: [priority],").replace("args: [", 'args: ["--max-num-seqs", "2", ')
        with vllm_job(text, folder) as job, concurrent.futures.ThreadPoolExecutor(48) as pool:
            ended = []

            def ask(name, prompt, headers):
                reply = httpx.post(job.url + "/v1/completions", json=body(prompt, max_tokens=60), headers=headers, timeout=300)
                assert reply.status_code == 200, reply.text
                ended.append(name)

            behind = [pool.submit(ask, "behind", prompt, {"x-pdjob-background": "1"}) for prompt in prompts(40, longest=100)]
            eventually(lambda: len(ended) >= 2, 120, "some have ended")
            others = [pool.submit(ask, "online", prompt, {}) for prompt in prompts(2, longest=100)]
            for each in [*others, *behind]:
                each.result()
    # All wait in vLLM, so the last to come would be the last to end.
    assert len(ended) - 1 - max(place for place, name in enumerate(ended) if name == "online") >= 15, ended
