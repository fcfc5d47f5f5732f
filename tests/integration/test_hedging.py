"""A prefill worker stands still (SIGSTOP) but is not yet given up. Its prompts are also tried at another worker."""

import os
import signal
import tempfile

import openai

from conftest import Process, eventually, fake_worker, get, metric


def test_a_prompt_at_a_worker_that_stands_still_is_served_by_another_pair():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        prefill = [fake_worker("prefill", folder, f"prefill-{i}").wait_ready() for i in range(2)]
        decode = fake_worker("decode", folder, "decode-0").wait_ready()
        addresses = [part for worker in prefill for part in ("--prefill", worker.url)] + ["--decode", decode.url]
        settings = ["router.hedge_quantile=0.95", "router.prefill_policy=round_robin"]
        flags = [part for setting in settings for part in ("--set", setting)]
        router = Process(["pdjob", "router", "--listen", "127.0.0.1:0", *addresses, *flags], folder).wait_ready()
        eventually(lambda: get(router.url + "/pdjob/workers").count('"healthy"') == 3, 20, "all workers known")
        client = openai.OpenAI(base_url=router.url + "/v1", api_key="none", max_retries=0, timeout=30)
        model = client.models.list().data[0].id

        def ask():
            reply = client.completions.with_raw_response.create(model=model, prompt="the quick brown fox", max_tokens=4, temperature=0)
            return reply.headers["x-pdjob-prefill"], reply.parse().choices[0].text

        text = ask()[1]
        for _ in range(30):  # The router learns how long prefills take.
            ask()
        os.kill(prefill[0].pid, signal.SIGSTOP)
        try:
            assert {ask() for _ in range(2)} == {("prefill-1", text)}
            assert metric(router.url, "pdjob_router_hedged_total") >= 1
            assert "is slow with its prompt" in router.log_tail()
        finally:
            os.kill(prefill[0].pid, signal.SIGCONT)
        for process in [router, decode, *prefill]:
            assert process.stop() == 0, process.log_tail()
