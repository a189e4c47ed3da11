"""Adds layers to a model without changing its results: copies of the last layer with output matrices of zeros.

    deeper.py MODEL.gguf OUT.gguf LAYERS
"""
import sys

from gguf_file import Gguf

model = Gguf(sys.argv[1])
key = next(key for key in model.keys if key.endswith(".block_count"))
count = model.number(key)
last = f"blk.{count - 1}."
for layer in range(count, count + int(sys.argv[3])):
    for name, (dims, kind, raw) in list(model.tensors.items()):
        if name.startswith(last):
            outputs = name.endswith(("attn_output.weight", "ffn_down.weight"))
            model.tensors[name.replace(last, f"blk.{layer}.")] = (dims, kind, bytes(len(raw)) if outputs else raw)
model.set_number(key, count + int(sys.argv[3]))
model.write(sys.argv[2])
