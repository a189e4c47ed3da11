"""Writes vectors.txt (blocks that llama.cpp encodes) and types.txt (the types that llama.cpp chooses for tensors):
`python3 make.py`, with llama-cpp-python (0.3.36), gguf and numpy installed. `src/quantize/tests.rs` makes the same rows
and models, and compares its results with these files."""

import ctypes
import os
import tempfile

import gguf
import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as Type

if "Q2_0" not in Type.__members__:  # missing in older versions of gguf-py
    q2_0 = int.__new__(Type, 42)
    q2_0._name_, q2_0._value_ = "Q2_0", 42
    Type._member_map_["Q2_0"] = Type._value2member_map_[42] = q2_0
    gguf.GGML_QUANT_SIZES[q2_0] = (64, 18)

FILE_TYPES = {
    "F32": 0, "F16": 1, "BF16": 32, "Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q2_K_S": 21,
    "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18,
    "IQ4_NL": 25, "IQ4_XS": 30, "IQ3_XXS": 23, "IQ3_XS": 22, "IQ3_S": 26, "IQ3_M": 27, "IQ2_XXS": 19, "IQ2_XS": 20,
    "IQ2_S": 28, "IQ2_M": 29, "IQ1_S": 24, "IQ1_M": 31, "TQ1_0": 36, "TQ2_0": 37, "MXFP4_MOE": 38,
    "Q1_0": 40, "Q2_0": 41,
}
ENCODED = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
           "IQ4_XS", "IQ3_XXS", "IQ3_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0", "MXFP4",
           "NVFP4", "Q1_0", "Q2_0"]
WEIGHTED_ONLY = {"IQ2_XXS", "IQ2_XS", "IQ1_S"}
# name: architecture, layers, heads, key heads, experts, columns, whether the output is the embedding
MODELS = {
    "llama": ("llama", 16, 8, 2, 0, 256, False),
    "tied": ("llama", 9, 4, 4, 0, 256, True),
    "narrow": ("llama", 4, 4, 4, 0, 288, False),
    "odd": ("llama", 2, 4, 4, 0, 40, True),
    "70b": ("llama", 80, 8, 1, 0, 256, False),
    "mixtral": ("llama", 16, 8, 4, 8, 256, False),
    "qwen3moe": ("qwen3moe", 8, 8, 2, 16, 256, True),
    "gpt2": ("gpt2", 16, 4, 4, 0, 256, True),
    "falcon": ("falcon", 32, 4, 4, 0, 256, False),
}


def vectors():
    base = ctypes.CDLL(os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so"))
    base.ggml_quantize_chunk.restype = ctypes.c_size_t
    base.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    state = 1

    def byte():
        nonlocal state
        state = (state * 1664525 + 1013904223) % 2**32
        return state >> 24

    row = np.array([(sum(byte() for _ in range(4)) - 510) * 2.0 ** (i // 32 % 4 - 8) for i in range(512)], np.float32)
    row[480:] = 0  # a group of zeros
    importance = np.array([byte() + 1 for _ in range(512)], np.float32)
    with open("vectors.txt", "w") as out:
        for name in ENCODED:
            kind = Type[name]
            for weights in (None, importance):
                if weights is None and name in WEIGHTED_ONLY:
                    continue
                block, size = gguf.GGML_QUANT_SIZES[kind]
                bytes_ = np.zeros(512 // block * size, np.uint8)
                pointer = None if weights is None else weights.ctypes.data
                base.ggml_quantize_chunk(kind, row.ctypes.data, bytes_.ctypes.data, 0, 1, 512, pointer)
                print(name, "plain" if weights is None else "weighted", bytes_.tobytes().hex(), file=out)


def tensors(architecture, layers, experts, columns, tied):
    """Names and shapes, rows first."""
    matrix = (2, columns)
    yield "token_embd.weight", matrix
    yield "output_norm.weight", (columns,)
    if not tied:
        yield "output.weight", matrix
    if architecture == "gpt2":
        yield "position_embd.weight", matrix
    qkv = ["attn_qkv"] if architecture in ("gpt2", "falcon") else ["attn_q", "attn_k", "attn_v"]
    ffn = ["ffn_up", "ffn_down"] if architecture in ("gpt2", "falcon") else ["ffn_gate", "ffn_up", "ffn_down"]
    for i in range(layers):
        yield f"blk.{i}.attn_norm.weight", (columns,)
        for name in [*qkv, "attn_output"]:
            yield f"blk.{i}.{name}.weight", matrix
        if experts:
            yield f"blk.{i}.ffn_gate_inp.weight", (experts, columns)
        for name in ffn:
            yield (f"blk.{i}.{name}_exps.weight", (experts, *matrix)) if experts else (f"blk.{i}.{name}.weight", matrix)


def write_model(path, architecture, layers, heads, key_heads, experts, columns, tied):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(32)
    writer.add_embedding_length(columns)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(columns)
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(2)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(columns)
    rng = np.random.default_rng(1)
    for name, shape in tensors(architecture, layers, experts, columns, tied):
        writer.add_tensor(name, rng.standard_normal(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Importance(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def quantized(path, out, mix, importance):
    """Quantizes a model with llama.cpp. Returns for each role of tensors the types in all layers, in order, or
    `refused` if llama.cpp requires an importance matrix."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[mix]
    if importance:
        all_ = [Importance(name.encode(), data.ctypes.data, data.size) for name, data in importance.items()]
        array = (Importance * (len(all_) + 1))(*all_)
        params.imatrix = ctypes.cast(array, ctypes.POINTER(llama_cpp.llama_model_imatrix_data))
    if llama_cpp.llama_model_quantize(path.encode(), out.encode(), ctypes.byref(params)):
        return "refused"
    roles = {}
    for tensor in gguf.GGUFReader(out).tensors:
        role = tensor.name.split(".", 2)[2] if tensor.name.startswith("blk.") else tensor.name
        roles.setdefault(role, []).append(tensor.tensor_type.name)
    parts = []
    for role, kinds in roles.items():
        runs = []
        for kind in kinds:
            if runs and runs[-1][0] == kind:
                runs[-1][1] += 1
            else:
                runs.append([kind, 1])
        if kinds != ["F32"] * len(kinds):
            parts.append(role.removesuffix(".weight") + "=" + ",".join(f"{kind}*{n}" if n > 1 else kind for kind, n in runs))
    return " ".join(parts)


def types():
    with tempfile.TemporaryDirectory() as directory, open("types.txt", "w") as out:
        for name, (architecture, layers, heads, key_heads, experts, columns, tied) in MODELS.items():
            path = os.path.join(directory, "model.gguf")
            write_model(path, architecture, layers, heads, key_heads, experts, columns, tied)
            importance = {
                tensor: np.ones(shape[-1] * (shape[0] if len(shape) == 3 else 1), np.float32)
                for tensor, shape in tensors(architecture, layers, experts, columns, tied) if len(shape) > 1
            }
            for mix in FILE_TYPES:
                plain, weighted = (quantized(path, os.path.join(directory, "out.gguf"), mix, i) for i in (None, importance))
                if plain == weighted:
                    print(name, mix, "both", plain, file=out)
                else:
                    print(name, mix, "plain", plain, file=out)
                    print(name, mix, "weighted", weighted, file=out)


@llama_cpp.llama_log_callback
def silent(*_):
    pass


if __name__ == "__main__":
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    vectors()
    types()
