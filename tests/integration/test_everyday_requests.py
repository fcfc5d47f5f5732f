"""What everyday clients send beside a plain prompt: their defaults, sentinels, histories and older names."""

import itertools
import json
import pathlib
import subprocess

import httpx
import openai
import pytest

from conftest import BIN, MODEL as MODEL_FILE, Process, assert_idle, eventually, running_job
from gguf_weights import with_chat_template

MODEL = "smollm2"
PROMPT = [1, 4093, 253, 655, 28, 665, 436, 253, 2429, 1431, 30, 378]
QUESTION = [{"role": "user", "content": "What is the weather like in Paris today?"}]
WEATHER = {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"location": {"type": "string", "maxLength": 24}}, "required": ["location"], "additionalProperties": False}}


@pytest.fixture(scope="module")
def job(folder):
    with running_job(folder, router="cache: {bytes_max: 10000000}") as running:
        yield running


def ask(job, path, body, status=200):
    reply = httpx.post(job.url + path, json={"model": MODEL, **body}, timeout=120)
    assert reply.status_code == status, reply.text
    return reply.json()


def chat(job, **fields):
    return ask(job, "/v1/chat/completions", {"max_tokens": 8, "temperature": 0, "messages": QUESTION, **fields})["choices"][0]


def test_the_seed_minus_one_is_a_new_one_each_time_and_never_cached(job):
    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 16, "temperature": 1, "seed": -1}
    replies = [httpx.post(job.url + "/v1/completions", json=body, timeout=120) for _ in range(3)]
    assert all(reply.headers.get("x-pdjob-cache") not in ("hit", "miss") for reply in replies)
    assert len({reply.json()["choices"][0]["text"] for reply in replies}) == 3
    own = {"input_ids": PROMPT, "sampling_params": {"temperature": 1, "max_new_tokens": 16, "sampling_seed": -1}}
    assert len({ask(job, "/generate", own)["text"] for _ in range(3)}) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_no_stop_string_ends_a_generation_before_min_tokens(client, stream):
    asked = {"model": MODEL, "prompt": "One, two, three,", "max_tokens": 40, "temperature": 0}
    alone = client.completions.create(**asked, extra_body={"min_tokens": 20, "ignore_eos": True}).choices[0].text
    stop = alone.split()[2]
    fields = {**asked, "stop": [stop], "extra_body": {"min_tokens": 20, "ignore_eos": True}}
    if stream:
        events = list(client.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
        text, tokens = "".join(event.choices[0].text for event in events if event.choices), events[-1].usage.completion_tokens
    else:
        reply = client.completions.create(**fields)
        text, tokens = reply.choices[0].text, reply.usage.completion_tokens
    assert tokens >= 20 and alone.startswith(text) and stop in text


def test_sentinels_of_clients_mean_what_they_mean_there(job):
    first = chat(job)["message"]["content"]
    for fields in ({"stop": ""}, {"stop": [""]}, {"stop": [f"<{i}>" for i in range(20)]}, {"top_k": -1}, {"top_k": 0}, {"n": None}, {"stop": None}):
        assert chat(job, **fields)["message"]["content"] == first, fields
    assert chat(job, top_p=0, temperature=1)["message"]["content"] == first, "the most likely token"
    most = {"prompt": (PROMPT * 2000)[:2008], "max_tokens": -1, "temperature": 0}  # Of 2,048.
    whole = ask(job, "/v1/completions", most)
    assert whole["usage"]["completion_tokens"] == 40 or whole["choices"][0]["finish_reason"] == "stop"
    for n in (0, 129, -1):
        ask(job, "/v1/completions", {"prompt": "a", "n": n}, 400)


def test_tokens_may_be_written_with_a_point(job):
    """As programs do that have one type of number."""
    body = {"max_tokens": 4.0, "temperature": 0}
    whole, pointed = (ask(job, "/v1/completions", {**body, "prompt": prompt})["choices"][0]["text"] for prompt in (PROMPT, [float(token) for token in PROMPT]))
    assert whole == pointed
    assert ask(job, "/detokenize", {"tokens": [float(token) for token in PROMPT]}) == ask(job, "/detokenize", {"tokens": PROMPT})


def test_names_of_other_apis_are_refused_by_name(job):
    for path, asked in (("/v1/chat/completions", {"messages": QUESTION}), ("/v1/completions", {"prompt": "a"})):
        for name, value in {"max_new_tokens": 2, "stop_sequences": ["a"], "system": "Be brief.", "do_sample": False, "options": {"num_ctx": 512}}.items():
            error = ask(job, path, {**asked, "max_tokens": 2, name: value}, status=400)["error"]
            assert error["param"] == name, error
    assert ask(job, "/v1/embeddings", {"input": "a", "input_type": "query"}, status=400)["error"]["param"] == "input_type"
    neutral = {"num_beams": 1, "top_a": 0, "do_sample": True, "system": "", "think": False, "enable_thinking": False, "thinking": {"type": "disabled"}}
    assert chat(job, **neutral)["message"]["content"] == chat(job)["message"]["content"]


def test_only_allowed_tokens_are_generated(job):
    reply = ask(job, "/v1/completions", {"prompt": PROMPT, "max_tokens": 12, "temperature": 1, "allowed_token_ids": [4093, 655], "return_token_ids": True})
    assert len(reply["choices"][0]["token_ids"]) == 12 and set(reply["choices"][0]["token_ids"]) <= {4093, 655}
    refusal = ask(job, "/v1/completions", {"prompt": "a", "allowed_token_ids": [10**7]}, 400)
    assert "allowed_token_ids" in refusal["error"]["message"]


@pytest.mark.parametrize("path, names", [("/v1/completions", ("n",)), ("/generate", ("sampling_params", "n"))])
def test_more_choices_than_an_engine_has_sequences_take_turns(job, path, names):
    if path == "/generate":
        replies = ask(job, path, {"input_ids": PROMPT, "sampling_params": {"n": 32, "max_new_tokens": 6, "temperature": 1}})
        texts = [reply["text"] for reply in replies]
        lengths = [len(reply["output_ids"]) for reply in replies]
    else:
        reply = ask(job, path, {"prompt": PROMPT, "n": 32, "max_tokens": 6, "temperature": 1, "return_token_ids": True})
        texts = [choice["text"] for choice in reply["choices"]]
        lengths = [len(choice["token_ids"]) for choice in reply["choices"]]
        assert [choice["index"] for choice in reply["choices"]] == list(range(32))
    assert len(texts) == 32 and all(1 <= length <= 6 for length in lengths) and len(set(texts)) > 16
    eventually(lambda: assert_idle(job), 30, "nothing is left")


def test_choices_that_take_turns_are_those_of_their_seeds(job):
    """Choice c of a request is sampled with its seed + c, whichever sequence it gets."""
    asked = {"prompt": PROMPT, "max_tokens": 10, "temperature": 1, "return_token_ids": True}
    many = ask(job, "/v1/completions", {**asked, "n": 20, "seed": 100})["choices"]
    for index in (0, 3, 7, 8, 15, 19):
        one = ask(job, "/v1/completions", {**asked, "seed": 100 + index})["choices"][0]
        assert many[index]["token_ids"] == one["token_ids"], index


def test_a_client_that_leaves_frees_choices_that_wait(job):
    body = {"model": MODEL, "prompt": PROMPT, "n": 64, "max_tokens": 500, "temperature": 1, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", job.url + "/v1/completions", json=body, timeout=120) as reply:
        assert len(list(itertools.islice(reply.iter_lines(), 20))) == 20
    eventually(lambda: assert_idle(job), 60, "nothing is left")


def test_embeddings_of_2048_inputs_are_those_of_one(client):
    texts = [f"word {number % 7}" for number in range(2048)]
    reply = client.embeddings.create(model=MODEL, input=texts)
    assert [data.index for data in reply.data] == list(range(2048))
    for number in (0, 6, 63, 64, 2047):
        alone = client.embeddings.create(model=MODEL, input=texts[number]).data[0].embedding
        assert reply.data[number].embedding == pytest.approx(alone, abs=1e-5)
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model=MODEL, input=[*texts, "one more"])


def test_sglangs_route_scores_a_prompt_as_echo_does(job):
    scored = ask(job, "/generate", {"input_ids": PROMPT, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2,
                                    "sampling_params": {"temperature": 0, "max_new_tokens": 0, "skip_special_tokens": False}})
    assert scored["output_ids"] == [] and scored["text"] == ""
    meta = scored["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 0} and meta["completion_tokens"] == 0
    echoed = ask(job, "/v1/completions", {"prompt": PROMPT, "echo": True, "logprobs": 2, "max_tokens": 0})["choices"][0]["logprobs"]
    logprobs = meta["input_token_logprobs"]
    assert [entry[1] for entry in logprobs] == PROMPT and logprobs[0] == [None, PROMPT[0], None]
    assert [entry[0] for entry in logprobs[1:]] == pytest.approx(echoed["token_logprobs"][1:], abs=1e-4)
    assert meta["input_top_logprobs"][0] is None and all(len(top) == 2 for top in meta["input_top_logprobs"][1:])
    part = ask(job, "/generate", {"input_ids": PROMPT, "return_logprob": True, "logprob_start_len": 5, "sampling_params": {"max_new_tokens": 3, "temperature": 0}})
    assert part["meta_info"]["input_token_logprobs"][1:] == logprobs[6:] and len(part["output_ids"]) == 3
    refusal = ask(job, "/generate", {"input_ids": PROMPT, "return_logprob": True, "logprob_start_len": len(PROMPT)}, 400)
    assert refusal["error"]["param"] == "logprob_start_len"


def test_functions_are_answered_with_a_function_call(client):
    asked = {"model": MODEL, "messages": QUESTION, "functions": [WEATHER], "function_call": {"name": "get_weather"}, "temperature": 0, "max_tokens": 64}
    choice = client.chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == "function_call" and choice.message.tool_calls is None
    call = choice.message.function_call
    assert call.name == "get_weather" and list(json.loads(call.arguments)) == ["location"]
    deltas = [event.choices[0] for event in client.chat.completions.create(**asked, stream=True)]
    parts = [choice.delta.function_call for choice in deltas if choice.delta.function_call]
    assert "".join(part.arguments or "" for part in parts) == call.arguments and parts[0].name == "get_weather"
    assert deltas[-1].finish_reason == "function_call"
    history = [*QUESTION, choice.message.model_dump(exclude_none=True), {"role": "function", "name": "get_weather", "content": "14 degrees"}]
    again = client.chat.completions.create(model=MODEL, messages=history, functions=[WEATHER], max_tokens=8)
    assert again.choices[0].finish_reason in ("length", "stop", "function_call")


def test_allowed_tools_are_the_only_ones_that_are_called(job):
    tools = [{"type": "function", "function": {**WEATHER, "name": name}} for name in ("first", "second", "third")]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "second"}}]}
    choice = chat(job, tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed}, parallel_tool_calls=False, max_tokens=64)
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["second"]


def prompt_of(url, **fields):
    tokens = httpx.post(url + "/tokenize", json={"messages": QUESTION, **fields}, timeout=60)
    assert tokens.status_code == 200, tokens.text
    return httpx.post(url + "/detokenize", json={"tokens": tokens.json()["tokens"]}, timeout=60).json()["prompt"]


def test_a_chat_may_go_on_with_its_last_message(job):
    opened = prompt_of(job.url)
    assert opened.endswith("<|im_start|>assistant\n")
    assert prompt_of(job.url, add_generation_prompt=False) == opened.removesuffix("<|im_start|>assistant\n")
    begun = [*QUESTION, {"role": "assistant", "content": "The weather in Paris "}]
    continued = prompt_of(job.url, messages=begun, continue_final_message=True, add_generation_prompt=False)
    assert continued == opened + "The weather in Paris "
    reply = chat(job, messages=begun, continue_final_message=True, add_generation_prompt=False)
    plain = ask(job, "/v1/completions", {"prompt": continued, "max_tokens": 8, "temperature": 0})["choices"][0]
    assert reply["message"]["content"] == plain["text"]


# As those of Qwen2.5 and Qwen3-Coder: one writes the arguments as JSON, the other one member by member.
TEMPLATES = {
    "json": "{{ call.function.arguments | tojson }}",
    "members": "{% for name, value in call.function.arguments | items %}<{{ name }}>{{ value }}</{{ name }}>{% endfor %}",
}
TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": ARGUMENTS}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}{% endif %}"""


@pytest.mark.parametrize("form", sorted(TEMPLATES))
def test_any_history_of_calls_is_read_by_templates_that_want_objects(folder, form):
    place = pathlib.Path(folder) / form
    place.mkdir()
    model = with_chat_template(MODEL_FILE, str(place / "model.gguf"), TEMPLATE.replace("ARGUMENTS", TEMPLATES[form]))
    worker = Process(["pdjob", "worker", "--role", "both", "--model", model, "--listen", "127.0.0.1:0", "--set", "served_name=smollm2"], place)
    try:
        url = worker.wait_ready().url
        for arguments, shown in [("", None), ('{"location": "Par', "Par"), ('{"location": "Paris", "da', "Paris"), ("Paris, please", "Paris, please"), ({"location": "Paris"}, "Paris"), ("null", None)]:
            call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
            history = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": None}]
            for fields in ({}, {"tools": [{"type": "function", "function": WEATHER}]}):
                assert (shown or "get_weather") in prompt_of(url, messages=history, **fields), arguments
        thoughts = [*QUESTION, {"role": "assistant", "reasoning_content": "It may rain.", "content": [{"type": "output_text", "text": "Wet."}]}]
        assert "<think>It may rain.</think>Wet." in prompt_of(url, messages=thoughts)
        assert prompt_of(url, chat_template_kwargs={"enable_thinking": False}).endswith("<think></think>")
        assert prompt_of(url, reasoning_effort="none").endswith("<think></think>")
        assert prompt_of(url, reasoning_effort="low").endswith("assistant\n")
        refusal = httpx.post(url + "/tokenize", json={"messages": QUESTION, "chat_template_kwargs": {"messages": []}}, timeout=60)
        assert refusal.status_code == 400 and refusal.json()["error"]["param"] == "chat_template_kwargs.messages"
    finally:
        code = worker.stop()
    assert code == 0, worker.log_tail()


def run_batch(*words):
    child = subprocess.run([BIN, "batch", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    assert child.returncode == 0, child.stdout


def test_rows_of_embeddings_and_of_many_choices_are_answered(job, client, tmp_path):
    rows = [{"custom_id": f"e{number}", "method": "POST", "url": "/v1/embeddings", "body": {"model": MODEL, "input": ["a", f"text {number}"]}} for number in range(8)]
    rows.append({"custom_id": "many", "method": "POST", "url": "/v1/completions", "body": {"model": MODEL, "prompt": "One,", "n": 24, "max_tokens": 3, "temperature": 1}})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_batch(tmp_path / "rows.jsonl", "--out", tmp_path / "out", "--url", job.url)
    answers = {answer["custom_id"]: answer["response"] for answer in map(json.loads, (tmp_path / "out/output.jsonl").read_text().splitlines())}
    assert len(answers) == 9 and {answer["status_code"] for answer in answers.values()} == {200}
    alone = client.embeddings.create(model=MODEL, input="text 3", encoding_format="float").data[0].embedding
    assert answers["e3"]["body"]["data"][1]["embedding"] == pytest.approx(alone, abs=1e-5)
    assert len(answers["many"]["body"]["choices"]) == 24
    (tmp_path / "lines.txt").write_text("text 3\nanother\n")
    run_batch(tmp_path / "lines.txt", "--out", tmp_path / "filled", "--url", job.url, "--template", json.dumps({"model": MODEL, "input": "{{text}}"}))
    first = json.loads((tmp_path / "filled/output.jsonl").read_text().splitlines()[0])
    assert first["response"]["body"]["data"][0]["embedding"] == pytest.approx(alone, abs=1e-5)
