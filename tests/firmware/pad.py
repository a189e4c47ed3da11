"""Converts an F32 model to Q8_0, with the feed-forward padded with zeros to whole blocks of 32.

    pad.py MODEL.gguf OUT.gguf

The zeros do not change results. Quantizes like ggml's quantize_row_q8_0_ref: scale = largest / 127 as f16.
"""
import struct
import sys

from gguf_file import F32, Q8_0, Gguf


def padded(n):
    return -n % 32 + n


def row(values):
    out = b""
    for i in range(0, len(values), 32):
        block = values[i : i + 32]
        scale = max(map(abs, block)) / 127
        quants = [round(x / scale) if scale else 0 for x in block]
        out += struct.pack("<e32b", scale, *quants)
    return out


model = Gguf(sys.argv[1])
for key in model.keys:
    if key.endswith(".feed_forward_length"):
        model.set_number(key, padded(model.number(key)))
for name, (dims, kind, raw) in model.tensors.items():
    assert kind == F32, "pad.py takes a model in F32"
    if len(dims) == 2:
        values = struct.unpack_from(f"<{dims[0] * dims[1]}f", raw)
        cols, rows = padded(dims[0]), padded(dims[1]) if ".ffn_" in name else dims[1]
        lines = [list(values[r * dims[0] : (r + 1) * dims[0]]) + [0.0] * (cols - dims[0]) for r in range(dims[1])]
        raw = b"".join(map(row, lines + [[0.0] * cols] * (rows - dims[1])))
        model.tensors[name] = ([cols, rows], Q8_0, raw)
model.write(sys.argv[2])
