"""Makes a model of Gemma 4's shape with random Q4_0 weights. Most of its parameters are in the table of inputs per
token and layer, from which a token reads one row. The vocabulary is that of another model, with tokens added to it.

    random_per_layer.py VOCABULARY.gguf OUT.gguf
"""
import random
import struct
import sys

from gguf_file import ARRAY, F32, STRING, Gguf

Q4_0, U32, I32, FLOAT, BOOL = 2, 4, 5, 6, 7
VOCAB, LAYERS, WIDTH, INPUT, FEED_FORWARD, HEADS, HEAD = 8192, 16, 192, 128, 384, 4, 64
# The first layers have their own keys and values, and the others share them. Every fourth layer is global.
OWN = 4
LOCAL = [layer % 4 != 3 for layer in range(LAYERS)]

model = Gguf(sys.argv[1])
chance = random.Random(1)


def string(text):
    return struct.pack("<Q", len(text)) + text


def strings(key):
    """The strings of an array."""
    element, count = struct.unpack_from("<IQ", model.keys[key], 4)
    at = 16
    for _ in range(count):
        length = struct.unpack_from("<Q", model.keys[key], at)[0]
        yield model.keys[key][at + 8 : at + 8 + length]
        at += 8 + length


def array(element, form, values):
    return struct.pack("<IIQ", ARRAY, element, len(values)) + struct.pack(f"<{len(values)}{form}", *values)


def matrix(cols, rows):
    """Uniform weights with variance 1 / cols: the 16 values of Q4_0 have a variance of 21 squared scales."""
    scale = struct.pack("<e", (21 * cols) ** -0.5)
    values = chance.randbytes(cols * rows // 2)
    return [cols, rows], Q4_0, b"".join(scale + values[i : i + 16] for i in range(0, len(values), 16))


def vector(count, value=1.0):
    return [count], F32, struct.pack(f"<{count}f", *[value] * count)


tokens = list(strings("tokenizer.ggml.tokens"))
added = range(VOCAB - len(tokens))
scores, types = (model.keys[f"tokenizer.ggml.{name}"][16:] for name in ("scores", "token_type"))
keys = {key: value for key, value in model.keys.items() if key.startswith("tokenizer.")}
keys["tokenizer.ggml.tokens"] = struct.pack("<IIQ", ARRAY, STRING, VOCAB) + b"".join(
    map(string, tokens + [b"\xe2\x96\x81added%d" % i for i in added])
)
keys["tokenizer.ggml.scores"] = struct.pack("<IIQ", ARRAY, FLOAT, VOCAB) + scores + struct.pack("<f", -1e6) * len(added)
keys["tokenizer.ggml.token_type"] = struct.pack("<IIQ", ARRAY, I32, VOCAB) + types + struct.pack("<i", 1) * len(added)
keys["general.architecture"] = struct.pack("<I", STRING) + string(b"gemma4")
numbers = {
    "block_count": LAYERS,
    "context_length": 512,
    "embedding_length": WIDTH,
    "embedding_length_per_layer_input": INPUT,
    "feed_forward_length": FEED_FORWARD,
    "attention.head_count": HEADS,
    "attention.head_count_kv": 1,
    "attention.key_length": HEAD,
    "attention.value_length": HEAD,
    "attention.key_length_swa": HEAD,
    "attention.value_length_swa": HEAD,
    "attention.sliding_window": 64,
    "attention.shared_kv_layers": LAYERS - OWN,
    "rope.dimension_count": HEAD,
    "rope.dimension_count_swa": HEAD,
}
for name, number in numbers.items():
    keys[f"gemma4.{name}"] = struct.pack("<II", U32, number)
floats = {
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "final_logit_softcapping": 30.0,
}
for name, number in floats.items():
    keys[f"gemma4.{name}"] = struct.pack("<If", FLOAT, number)
keys["gemma4.attention.sliding_window_pattern"] = array(BOOL, "?", LOCAL)
model.keys = keys

model.tensors = {
    "token_embd.weight": matrix(WIDTH, VOCAB),
    "per_layer_token_embd.weight": matrix(LAYERS * INPUT, VOCAB),
    "per_layer_model_proj.weight": matrix(WIDTH, LAYERS * INPUT),
    "per_layer_proj_norm.weight": vector(INPUT),
    "output_norm.weight": vector(WIDTH),
}
for layer in range(LAYERS):
    shapes = {"attn_q": (WIDTH, HEADS * HEAD), "attn_output": (HEADS * HEAD, WIDTH)}
    shapes |= {"ffn_gate": (WIDTH, FEED_FORWARD), "ffn_up": (WIDTH, FEED_FORWARD), "ffn_down": (FEED_FORWARD, WIDTH)}
    shapes |= {"inp_gate": (WIDTH, INPUT), "proj": (INPUT, WIDTH)}
    norms = {name: WIDTH for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")}
    norms |= {"attn_q_norm": HEAD}
    if layer < OWN:
        shapes |= {"attn_k": (WIDTH, HEAD), "attn_v": (WIDTH, HEAD)}
        norms |= {"attn_k_norm": HEAD}
    for name, (cols, rows) in shapes.items():
        model.tensors[f"blk.{layer}.{name}.weight"] = matrix(cols, rows)
    for name, count in norms.items():
        model.tensors[f"blk.{layer}.{name}.weight"] = vector(count)
    model.tensors[f"blk.{layer}.layer_output_scale.weight"] = vector(1)
model.write(sys.argv[2])
count = sum(dims[0] * (dims + [1])[1] for dims, _, _ in model.tensors.values())
print(f"{count / 1e6:.1f} million parameters, {VOCAB * LAYERS * INPUT / 1e6:.1f} of them inputs per token and layer")
