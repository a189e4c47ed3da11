"""Writes a model with the shape of a public one and random weights: models.py SHAPE TYPE OUT.gguf

Needs numpy, gguf and llama_cpp, which quantizes.
"""

import ctypes
import pathlib
import sys

import gguf
import numpy

# architecture, vocabulary, width, layers, heads, KV heads, head size, feed-forward, base of the rotation
SHAPES = {
    "stories15m": ("llama", 32000, 288, 6, 6, 6, 48, 768, 1e4),
    "smollm2-135m": ("llama", 49152, 576, 30, 9, 3, 64, 1536, 1e5),
    "qwen3-0.6b": ("qwen3", 151936, 1024, 28, 16, 8, 128, 3072, 1e6),
}
CONTEXT = 2048


def vocabulary(size):
    """Any vocabulary will do, as long as llama.cpp loads it: control tokens, bytes, numbers."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    more = size - len(tokens)
    return tokens + [f"▁{i}" for i in range(more)], types + [gguf.TokenType.NORMAL] * more


def write(shape, path):
    """Writes the model as F16, with norms in F32 and the embedding as the head."""
    arch, vocab, width, layers, heads, kv_heads, head, inner, base = SHAPES[shape]
    out = gguf.GGUFWriter(path, arch)
    out.add_name(f"{shape}, random weights")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(width)
    out.add_block_count(layers)
    out.add_feed_forward_length(inner)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_key_length(head)
    out.add_value_length(head)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(head)
    out.add_rope_freq_base(base)
    out.add_vocab_size(vocab)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    tokens, types = vocabulary(vocab)
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores([0.0] * vocab)
    out.add_token_types(types)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)

    random = numpy.random.default_rng(1)

    def matrix(name, rows, columns):
        weights = random.standard_normal((rows, columns), numpy.float32) / numpy.sqrt(columns)
        out.add_tensor(name, weights.astype(numpy.float16))

    def ones(name, length):
        out.add_tensor(name, numpy.ones(length, numpy.float32))

    matrix("token_embd.weight", vocab, width)
    ones("output_norm.weight", width)
    for layer in range(layers):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight", width)
        matrix(block + "attn_q.weight", heads * head, width)
        matrix(block + "attn_k.weight", kv_heads * head, width)
        matrix(block + "attn_v.weight", kv_heads * head, width)
        matrix(block + "attn_output.weight", width, heads * head)
        if arch == "qwen3":
            ones(block + "attn_q_norm.weight", head)
            ones(block + "attn_k_norm.weight", head)
        ones(block + "ffn_norm.weight", width)
        matrix(block + "ffn_gate.weight", inner, width)
        matrix(block + "ffn_up.weight", inner, width)
        matrix(block + "ffn_down.weight", width, inner)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def quantize(source, kind, path):
    import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, None)
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    failed = llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(parameters))
    if failed:
        sys.exit(f"llama.cpp could not quantize {source}")


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES:
        sys.exit(f"{__doc__}\nShapes: {', '.join(SHAPES)}; types: Q8_0, Q4_0, Q4_K_M, ...")
    shape, kind, path = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    path.parent.mkdir(parents=True, exist_ok=True)
    f16 = path.parent / f"{shape}-F16.gguf"
    if not f16.exists():
        unfinished = f16.with_suffix(".part")
        write(shape, unfinished)
        unfinished.rename(f16)
    unfinished = path.with_suffix(".part")
    quantize(f16, kind, unfinished)
    unfinished.rename(path)


main()
