"""A copy of an F32 model as Q8_0, its feed-forward padded with zeros to whole blocks of 32.

    pad.py MODEL.gguf OUT.gguf

The zeros change no result. Quantization as ggml's quantize_row_q8_0_ref: scale = largest / 127 as f16.
"""
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, F32, Q8_0 = 8, 9, 0, 8
data = open(sys.argv[1], "rb").read()
at = 4 + 4


def take(form):
    global at
    value = struct.unpack_from("<" + form, data, at)
    at += struct.calcsize("<" + form)
    return value[0] if len(value) == 1 else value


def string():
    global at
    length = take("Q")
    at += length
    return data[at - length : at]


def skip(kind):
    global at
    if kind == STRING:
        string()
    elif kind == ARRAY:
        element, count = take("IQ")
        for _ in range(count):
            skip(element)
    else:
        at += SIZES[kind]


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


tensors, keys = take("QQ")
head = b""
for _ in range(keys):
    start, name, kind = at, string(), take("I")
    value_at = at
    skip(kind)
    if name.endswith(b".feed_forward_length"):
        (length,) = struct.unpack_from("<I", data, value_at)
        head += data[start:value_at] + struct.pack("<I", padded(length))
    else:
        head += data[start:at]
directory = []
for _ in range(tensors):
    name, count = string(), take("I")
    dims = [take("Q") for _ in range(count)]
    directory.append((name, dims, *take("IQ")))
base = at + -at % 32

entries, body = b"", b""
for name, dims, kind, offset in directory:
    assert kind == F32, "pad.py takes a model in F32"
    count = dims[0] * (dims[1] if len(dims) > 1 else 1)
    values = list(struct.unpack_from(f"<{count}f", data, base + offset))
    kind = F32
    if len(dims) == 2:
        cols, rows, kind = padded(dims[0]), padded(dims[1]) if b".ffn_" in name else dims[1], Q8_0
        lines = [values[r * dims[0] : (r + 1) * dims[0]] + [0.0] * (cols - dims[0]) for r in range(dims[1])]
        raw = b"".join(map(row, lines + [[0.0] * cols] * (rows - dims[1])))
        dims = [cols, rows]
    else:
        raw = struct.pack(f"<{count}f", *values)
    body += b"\0" * (-len(body) % 32)
    entries += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(body))
    body += raw
front = data[:8] + struct.pack("<QQ", tensors, keys) + head + entries
open(sys.argv[2], "wb").write(front + b"\0" * (-len(front) % 32) + body)
