"""Runs one trainer's client library, unmodified, against a rollout job, in that library's own environment. Prints what came back as JSON.

    python rollout_clients.py CLIENT URL '{"prompt": [...], ...}'
"""

import asyncio
import json
import sys
import typing

import typing_extensions

# SkyRL's package needs Python 3.12 for this one name only: pydantic asks for it.
if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict


async def skyrl(url, given):
    """A trainer's step with SkyRL: rollouts, one of them over a pause, and new weights."""
    import aiohttp
    from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import PauseMode, RemoteInferenceClient

    async with RemoteInferenceClient(proxy_url=url, server_urls=[url], data_parallel_size=1, model_name="smollm2") as client:
        async def ask(tokens, count=2):
            params = {"temperature": 0.0, "max_tokens": tokens, "logprobs": 1, "ignore_eos": True}
            batch = {"prompt_token_ids": [given["prompt"]] * count, "sampling_params": params, "session_ids": [f"s{i}" for i in range(count)], "cache_salt": str(client.weight_version)}
            return await client.generate(batch)

        told = {"world": await client.get_world_size(), "before": await ask(given["tokens"])}
        running = asyncio.create_task(ask(200, 1))
        await asyncio.sleep(0.5)
        await client.pause(PauseMode.KEEP)
        # SkyRL's own transports need torch. Weights on a disk are ordered as vLLM's workers reload them.
        await client._call_all_servers("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": given["weights"]}})
        client.increment_weight_version()
        told["done_while_paused"] = running.done()
        await client.reset_prefix_cache()
        await client.resume()
        told["over_the_pause"] = await running
        told["after"] = await ask(given["tokens"])
        try:
            await client.start_weight_update()
            told["refusal"] = ""
        except aiohttp.ClientResponseError as error:
            told["refusal"] = f"{error.status} {error.message}"
        await client.finish_session("s0")
        return told


async def renderers(url, given):
    """What prime-rl samples with."""
    from openai import AsyncOpenAI
    from renderers.base import ParsedResponse
    from renderers.client import OverlongPromptError, generate

    class Plain:
        """A renderer for prompts that are tokens already."""

        def get_stop_token_ids(self):
            return []

        def parse_response(self, ids, **_):
            return ParsedResponse(content="")

    client = AsyncOpenAI(base_url=url + "/v1", api_key="none")
    common = {"client": client, "renderer": Plain(), "messages": [], "model": "smollm2", "cache_salt": "3", "extra_headers": {"X-Session-ID": "s1"}}
    reply = await generate(prompt_ids=given["prompt"], sampling_params={"temperature": 0.0, "max_tokens": given["tokens"], "ignore_eos": True}, **common)
    told = {name: reply[name] for name in ("completion_ids", "completion_logprobs", "finish_reason", "prompt_ids")}
    try:
        await generate(prompt_ids=given["prompt"] * 1000, sampling_params={"max_tokens": 1}, **common)
        told["overlong"] = ""
    except OverlongPromptError as error:  # The list of models tells the limit, so the client asks nobody.
        told["overlong"] = str(error)
    return told


async def openai(url, given):
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=url + "/v1", api_key="none")
    more = {"return_token_ids": True, "cache_salt": "1", "ignore_eos": True}
    reply = await client.completions.create(model="smollm2", prompt=given["prompt"], n=2, max_tokens=given["tokens"], temperature=0, logprobs=1, extra_body=more)
    return [{"token_ids": choice.model_extra["token_ids"], "prompt_token_ids": choice.model_extra["prompt_token_ids"],
             "versions": choice.model_extra["weight_versions"], "logprobs": choice.logprobs.token_logprobs} for choice in reply.choices]  # fmt: skip


async def sglang(url, given):
    """SGLang's own decoder of its JSON."""
    import httpx
    from sglang_api_types import GenerateRequest, GenerateResponse

    params = {"max_new_tokens": given["tokens"], "temperature": 0.0, "ignore_eos": True}
    request = GenerateRequest.from_json_value({"input_ids": given["prompt"], "sampling_params": params, "return_logprob": True, "rid": "r-1"})
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        reply = await client.post("/generate", json=request.to_json_value())
        reply.raise_for_status()
        whole = GenerateResponse.from_json_value(reply.json())
        last = None
        async with client.stream("POST", "/generate", json={**request.to_json_value(), "stream": True}) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: {"):
                    last = GenerateResponse.from_json_value(json.loads(line.removeprefix("data: ")))
    return [{"output_ids": list(each.output_ids), "meta": each.meta_info.to_json_value()} for each in (whole, last)]


if __name__ == "__main__":
    name, url, given = sys.argv[1:]
    json.dump(asyncio.run(globals()[name](url, json.loads(given))), sys.stdout)
