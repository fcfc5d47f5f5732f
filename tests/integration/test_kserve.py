"""KServe's protocol (v2) at the router of a disaggregated job: what it answers is what completions answer. tests/peers has Triton's own client."""

import json
import struct

import httpx
import pytest

from conftest import assert_idle, eventually, running_job

MODEL, TOKENS = "smollm2", 12
PROMPT = [1000 + 7 * i for i in range(150)]


@pytest.fixture(scope="module")
def job(folder):
    with running_job(folder) as running:
        yield running


def completion(job, prompt):
    body = {"model": MODEL, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "return_token_ids": True}
    return httpx.post(job.url + "/v1/completions", json=body, timeout=60).json()["choices"][0]


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def infer(job, inputs, model=MODEL, **more):
    body = {"inputs": inputs, "parameters": {"max_tokens": TOKENS, "temperature": 0}, **more}
    return httpx.post(f"{job.url}/v2/models/{model}/infer", json=body, timeout=60)


def outputs(reply):
    assert reply.status_code == 200, reply.text
    return {output["name"]: output["data"] for output in reply.json()["outputs"]}


def test_texts_and_tokens_give_what_completions_give(job):
    text = "Once upon a time, there was a girl."
    assert outputs(infer(job, [tensor("text_input", "BYTES", [1], [text])])) == {"text_output": [completion(job, text)["text"]]}
    expected = completion(job, PROMPT)
    got = outputs(infer(job, [tensor("input_ids", "INT64", [1, len(PROMPT)], [PROMPT])]))
    assert got == {"text_output": [expected["text"]], "output_ids": expected["token_ids"]}


def test_several_texts_have_an_answer_each(job):
    texts = ["The sky is", "A dog", "One, two, three,"]
    assert outputs(infer(job, [tensor("text_input", "BYTES", [3, 1], [[text] for text in texts])])) == {
        "text_output": [completion(job, text)["text"] for text in texts]
    }


def test_binary_tensors_go_and_come_behind_the_json(job):
    text = "The sky is".encode()
    binary = struct.pack("<I", len(text)) + text
    head = {
        "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(binary)}}],
        "parameters": {"max_tokens": TOKENS, "temperature": 0, "binary_data_output": True},
    }
    said = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": str(len(said)), "Content-Type": "application/octet-stream"}
    reply = httpx.post(f"{job.url}/v2/models/{MODEL}/infer", content=said + binary, headers=headers, timeout=60)
    length = int(reply.headers["inference-header-content-length"])
    (output,) = json.loads(reply.content[:length])["outputs"]
    (size,) = struct.unpack("<I", reply.content[length : length + 4])
    assert output["parameters"]["binary_data_size"] == size + 4 == len(reply.content) - length
    assert reply.content[length + 4 :].decode() == completion(job, "The sky is")["text"]


def test_a_wrong_field_is_refused_by_its_name(job):
    text = tensor("text_input", "BYTES", [1], ["a"])
    assert infer(job, [text], model="other").status_code == 404
    reply = infer(job, [text], parameters={"max_tokens": "many"})
    assert reply.status_code == 400 and "max_tokens" in reply.json()["error"]
    reply = infer(job, [text, tensor("image", "FP32", [2], [1, 2])])
    assert reply.status_code == 400 and "image" in reply.json()["error"]


def test_nothing_is_left_behind(job):
    eventually(lambda: assert_idle(job), 30, "the job is idle")
