"""Other weights for the test model: a copy of its GGUF file in which two layers have changed places."""

import pathlib
import struct

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32


class _Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def number(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        size = self.number("Q")
        self.at += size
        return bytes(self.data[self.at - size : self.at]).decode()

    def skip_value(self, kind):
        if kind == _STRING:
            self.string()
        elif kind == _ARRAY:
            item, count = self.number("I"), self.number("Q")
            if item in _SIZES:
                self.at += _SIZES[item] * count
            else:
                for _ in range(count):
                    self.skip_value(item)
        else:
            self.at += _SIZES[kind]


def tensor_offsets(data):
    """Returns {name: offset in the file} of all tensors."""
    reader = _Reader(data)
    assert reader.number("I") == 0x46554747, "not a GGUF file"
    reader.number("I")  # The version.
    tensors, pairs = reader.number("Q"), reader.number("Q")
    alignment = _DEFAULT_ALIGNMENT
    for _ in range(pairs):
        key, kind = reader.string(), reader.number("I")
        if key == "general.alignment":
            alignment = reader.number("I")
        else:
            reader.skip_value(kind)
    offsets = {}
    for _ in range(tensors):
        name = reader.string()
        for _ in range(reader.number("I")):
            reader.number("Q")
        reader.number("I")
        offsets[name] = reader.number("Q")
    start = (reader.at + alignment - 1) // alignment * alignment
    return {name: start + offset for name, offset in offsets.items()}


def swap_layers(source, target, one, other, tensor="ffn_down.weight"):
    """Writes a copy of `source` in which this tensor of two layers has changed places."""
    data = bytearray(pathlib.Path(source).read_bytes())
    offsets = tensor_offsets(data)
    first, second = (offsets[f"blk.{layer}.{tensor}"] for layer in (one, other))
    size = min(offset for offset in [*offsets.values(), len(data)] if offset > first) - first
    data[first : first + size], data[second : second + size] = data[second : second + size], data[first : first + size]
    pathlib.Path(target).write_bytes(data)
    return str(target)


def with_chat_template(source, target, template):
    """Writes a copy of `source` with another chat template."""
    data = pathlib.Path(source).read_bytes()
    reader = _Reader(data)
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
        return (size + _DEFAULT_ALIGNMENT - 1) // _DEFAULT_ALIGNMENT * _DEFAULT_ALIGNMENT

    text = template.encode()
    head = data[:begin] + struct.pack("<Q", len(text)) + text + data[end : reader.at]
    pathlib.Path(target).write_bytes(head + b"\0" * (aligned(len(head)) - len(head)) + data[aligned(reader.at) :])
    return str(target)
