"""Makes a Llama with random F32 weights, whose widths are whole blocks of every type, with another model's vocabulary.

    random_model.py VOCABULARY.gguf OUT.gguf LAYERS WIDTH FEED_FORWARD HEADS KV_HEADS
"""
import array
import random
import sys

from gguf_file import F32, Gguf

model = Gguf(sys.argv[1])
layers, dim, ffn, heads, kv_heads = map(int, sys.argv[3:])
numbers = {
    "block_count": layers,
    "embedding_length": dim,
    "feed_forward_length": ffn,
    "attention.head_count": heads,
    "attention.head_count_kv": kv_heads,
    "rope.dimension_count": dim // heads,
}
for name, number in numbers.items():
    model.set_number(f"llama.{name}", number)
vocab = model.tensors["token_embd.weight"][0][1]
chance = random.Random(1)


def matrix(cols, rows):
    """Uniform around zero, with variance 1 / cols."""
    factor = 3**0.5 / 32768 / cols**0.5
    whole = array.array("h", chance.randbytes(2 * cols * rows))
    return [cols, rows], F32, array.array("f", [factor * x for x in whole]).tobytes()


def ones(count):
    return [count], F32, array.array("f", [1.0] * count).tobytes()


kv_dim = dim // heads * kv_heads
model.tensors = {"token_embd.weight": matrix(dim, vocab), "output_norm.weight": ones(dim)}
for layer in range(layers):
    shapes = {"attn_q": (dim, dim), "attn_k": (dim, kv_dim), "attn_v": (dim, kv_dim), "attn_output": (dim, dim)}
    shapes |= {"ffn_gate": (dim, ffn), "ffn_up": (dim, ffn), "ffn_down": (ffn, dim)}
    for name, (cols, rows) in shapes.items():
        model.tensors[f"blk.{layer}.{name}.weight"] = matrix(cols, rows)
    for name in ("attn_norm", "ffn_norm"):
        model.tensors[f"blk.{layer}.{name}.weight"] = ones(dim)
model.write(sys.argv[2])
