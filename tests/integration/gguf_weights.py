"""Other models of the test model's file: two layers have changed places, or the chat template is another one."""

import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "configs"))
from toy_trainer import GgufReader, gguf_tensors  # noqa: E402

_ALIGNMENT = 32  # Unless the file says otherwise.


def swap_layers(source, target, one, other, tensor="ffn_down.weight"):
    """Writes a copy of `source` in which this tensor of two layers has changed places."""
    data = bytearray(pathlib.Path(source).read_bytes())
    offsets = {name: offset for name, (_, _, offset) in gguf_tensors(data).items()}
    first, second = (offsets[f"blk.{layer}.{tensor}"] for layer in (one, other))
    size = min(offset for offset in [*offsets.values(), len(data)] if offset > first) - first
    data[first : first + size], data[second : second + size] = data[second : second + size], data[first : first + size]
    pathlib.Path(target).write_bytes(data)
    return str(target)


def with_chat_template(source, target, template):
    """Writes a copy of `source` with another chat template."""
    data = pathlib.Path(source).read_bytes()
    reader = GgufReader(data)
    reader.number("I")
    reader.number("I")
    tensors, pairs = reader.number("Q"), reader.number("Q")
    begin = end = None
    for _ in range(pairs):
        key, kind = reader.string(), reader.number("I")
        assert key != "general.alignment", "only the default alignment is known here"
        begin = reader.at if key == "tokenizer.chat_template" else begin
        reader.skip_value(kind)
        end = reader.at if key == "tokenizer.chat_template" else end
    for _ in range(tensors):
        reader.string()
        for _ in range(reader.number("I")):
            reader.number("Q")
        reader.number("I")
        reader.number("Q")

    def aligned(size):
        return (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT

    text = template.encode()
    head = data[:begin] + struct.pack("<Q", len(text)) + text + data[end : reader.at]
    pathlib.Path(target).write_bytes(head + b"\0" * (aligned(len(head)) - len(head)) + data[aligned(reader.at) :])
    return str(target)
