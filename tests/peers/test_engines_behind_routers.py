"""Official routers, unmodified, before a job's engines of other makes (doubles, as processes of their own)."""

import os
import pathlib
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import eventually, metric  # noqa: E402
from test_foreign_engines import LONG, answers, engine_pid, foreign_job  # noqa: E402
from test_router_recipes import router_section  # noqa: E402

RECEIVED = {"vllm": ("vllm:prompt_tokens_by_source_total", {"source": "external_kv_transfer"}), "sglang": ("sglang:prompt_tokens_total", {})}


@pytest.mark.parametrize("kind, recipe", [("vllm", "vllm-router"), ("sglang", "sglang-router")])
def test_an_official_router_serves_engines_and_their_replacements(tmp_path, kind, recipe):
    folder = str(tmp_path)
    name, labels = RECEIVED[kind]
    with foreign_job(folder, kind=kind, prefill=2, decode=1, router=router_section(recipe)) as job:
        decode = job.processes()["decode-0"]["url"]
        before = metric(decode, name, **labels)
        assert answers(job)
        assert metric(decode, name, **labels) == before + len(LONG.split()), "KV moved"
        old = job.processes()["prefill-0"]["pid"]
        os.kill(engine_pid(job, "prefill-0"), signal.SIGKILL)
        eventually(lambda: job.processes()["prefill-0"]["state"] == "ready" and job.processes()["prefill-0"]["pid"] != old, 30, "it is back")
        eventually(lambda: all(answers(job) for _ in range(4)), 30, "both prefill engines serve")
