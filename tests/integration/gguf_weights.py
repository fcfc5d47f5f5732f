"""Other weights for the test model: a copy of its GGUF file in which two layers have changed places."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "configs"))
from toy_trainer import gguf_tensors  # noqa: E402


def swap_layers(source, target, one, other, tensor="ffn_down.weight"):
    """Writes a copy of `source` in which this tensor of two layers has changed places."""
    data = bytearray(pathlib.Path(source).read_bytes())
    offsets = {name: offset for name, (_, _, offset) in gguf_tensors(data).items()}
    first, second = (offsets[f"blk.{layer}.{tensor}"] for layer in (one, other))
    size = min(offset for offset in [*offsets.values(), len(data)] if offset > first) - first
    data[first : first + size], data[second : second + size] = data[second : second + size], data[first : first + size]
    pathlib.Path(target).write_bytes(data)
    return str(target)
