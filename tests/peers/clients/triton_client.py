"""Triton's own client for KServe's protocol, over HTTP."""

import sys

import numpy
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

MODEL = "smollm2"
ADDRESS = sys.argv[2].removeprefix("http://")
client = triton.InferenceServerClient(ADDRESS, network_timeout=120, connection_timeout=120)


def text_of(words, binary=True, name="text_input"):
    made = triton.InferInput(name, [len(words)], "BYTES")
    made.set_data_from_numpy(numpy.array([word.encode() for word in words], dtype=object), binary_data=binary)
    return made


def tokens_of(numbers, datatype="INT32"):
    made = triton.InferInput("input_ids", [1, len(numbers)], datatype)
    made.set_data_from_numpy(numpy.array([numbers], dtype=numpy.int32 if datatype == "INT32" else numpy.int64))
    return made


def number_of(name, value, datatype="INT32"):
    made = triton.InferInput(name, [1, 1], datatype)
    made.set_data_from_numpy(numpy.array([[value]], dtype=numpy.int32 if datatype == "INT32" else numpy.float32))
    return made


ASK = {"parameters": {"max_tokens": 8, "temperature": 0}}


def the_server_is_live_and_ready():
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(MODEL) and client.is_model_ready(MODEL, "1")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]


def a_model_says_what_it_takes():
    said = client.get_model_metadata(MODEL)
    assert said["name"] == MODEL and [one["name"] for one in said["inputs"]] == ["text_input", "input_ids"]
    assert {one["name"]: one["datatype"] for one in said["outputs"]} == {"text_output": "BYTES", "output_ids": "INT32"}


def a_text_gets_a_text():
    for binary in (True, False):
        wanted = [triton.InferRequestedOutput("text_output", binary_data=binary)]
        reply = client.infer(MODEL, [text_of(["The sky is"], binary)], outputs=wanted, request_id="7", **ASK)
        assert reply.as_numpy("text_output").shape == (1,) and reply.get_response()["id"] == "7"
    whole = client.infer(MODEL, [text_of(["The sky is"])], **ASK)
    assert whole.as_numpy("text_output")[0].decode() == reply.get_response()["outputs"][0]["data"][0]


def several_texts_get_several_texts():
    assert client.infer(MODEL, [text_of(["a", "b", "c"])], **ASK).as_numpy("text_output").shape == (3,)


def tokens_get_tokens():
    for datatype in ("INT32", "INT64"):
        reply = client.infer(MODEL, [tokens_of([1000, 2000, 3000], datatype)], **ASK)
        assert reply.as_numpy("output_ids").shape == (1, 8) and reply.as_numpy("output_ids").dtype == numpy.int32
        assert len(reply.as_numpy("text_output")[0]) > 0


def parameters_may_be_tensors():
    inputs = [text_of(["The sky is"]), number_of("max_tokens", 4), number_of("temperature", 0.0, "FP32")]
    outputs = [triton.InferRequestedOutput("output_ids")]
    assert client.infer(MODEL, inputs, outputs=outputs).as_numpy("output_ids").shape == (1, 4)
    inputs = [text_of(["The sky is"]), text_of(['{"max_tokens": 3, "temperature": 0}'], name="sampling_parameters")]
    assert client.infer(MODEL, inputs, outputs=outputs).as_numpy("output_ids").shape == (1, 3)


def requests_may_be_under_way_at_once():
    many = triton.InferenceServerClient(ADDRESS, concurrency=4)
    waiting = [many.async_infer(MODEL, [text_of([f"Number {i}"])], **ASK) for i in range(8)]
    assert all(len(one.get_result().as_numpy("text_output")) == 1 for one in waiting)
    many.close()


def an_error_has_a_message():
    for model, inputs in (("other", [text_of(["a"])]), (MODEL, [number_of("max_tokens", 4)])):
        try:
            client.infer(model, inputs)
        except InferenceServerException as error:
            assert error.message()
        else:
            raise AssertionError("it was answered")
