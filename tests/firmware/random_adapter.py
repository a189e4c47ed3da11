"""Makes a LoRA adapter with random F32 weights for the queries, values and feed-forward outputs of a model.

    random_adapter.py MODEL.gguf OUT.gguf RANK SEED
"""
import array
import random
import struct
import sys

from gguf_file import F32, STRING, Gguf

model = Gguf(sys.argv[1])
rank, chance = int(sys.argv[3]), random.Random(int(sys.argv[4]))


def text(value):
    return struct.pack("<IQ", STRING, len(value)) + value.encode()


def matrix(cols, rows, size):
    factor = size * 3**0.5 / 32768
    whole = array.array("h", chance.randbytes(2 * cols * rows))
    return [cols, rows], F32, array.array("f", [factor * x for x in whole]).tobytes()


pairs = {}
for name, (dims, *_) in model.tensors.items():
    if any(part in name for part in ("attn_q.weight", "attn_v.weight", "ffn_down.weight")):
        pairs[f"{name}.lora_a"] = matrix(dims[0], rank, dims[0] ** -0.5)
        pairs[f"{name}.lora_b"] = matrix(rank, dims[1], 0.5)
model.tensors = pairs
model.keys = {
    "general.type": text("adapter"),
    "general.architecture": model.keys["general.architecture"],
    "adapter.type": text("lora"),
    "adapter.lora.alpha": struct.pack("<If", 6, 2.0 * rank),
}
model.write(sys.argv[2])
