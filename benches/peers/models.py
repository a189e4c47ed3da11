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
    "lfm2-350m": ("lfm2", 65536, 1024, 16, 16, 8, 64, 4608, 1e6),
    "qwen3.5-0.8b": ("qwen35", 248320, 1024, 24, 8, 2, 256, 3584, 1e7),
    "granite-4-350m": ("granitehybrid", 100352, 768, 32, 12, 4, 64, 2048, 1e4),
}
# Layers with attention, where not all have it.
ATTENTION = {"lfm2": {2, 5, 8, 10, 12, 14}, "qwen35": set(range(3, 24, 4)), "granitehybrid": {10, 13, 17, 27}}
# Convolution, state, groups, heads and inner width of the other layers.
STATES = {"qwen35": (4, 128, 16, 16, 2048), "granitehybrid": (4, 128, 1, 48, 1536)}
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
    attention = ATTENTION.get(arch, set(range(layers)))
    several = len(attention) < layers and arch != "qwen35"
    out.add_head_count_kv([kv_heads * (i in attention) for i in range(layers)] if several else kv_heads)
    if arch == "lfm2":
        out.add_shortconv_l_cache(3)
    if arch in STATES:
        taps, state, groups, state_heads, state_inner = STATES[arch]
        out.add_ssm_conv_kernel(taps)
        out.add_ssm_state_size(state)
        out.add_ssm_group_count(groups)
        out.add_ssm_time_step_rank(state_heads)
        out.add_ssm_inner_size(state_inner)
        channels = state_inner + 2 * groups * state
    if arch == "qwen35":
        out.add_uint32("qwen35.full_attention_interval", 4)
        out.add_rope_dimension_sections([11, 11, 10, 0])
    out.add_key_length(head)
    out.add_value_length(head)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(head // 4 if arch == "qwen35" else head)
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

    def ones(name, *shape):
        out.add_tensor(name, numpy.ones(shape, numpy.float32))

    def mixer(block):
        """What a layer without attention has instead."""
        if arch == "lfm2":
            matrix(block + "shortconv.in_proj.weight", 3 * width, width)
            out.add_tensor(block + "shortconv.conv.weight", random.standard_normal((width, 3), numpy.float32))
            matrix(block + "shortconv.out_proj.weight", width, width)
            return
        out.add_tensor(block + "ssm_conv1d.weight", random.standard_normal((channels, taps), numpy.float32) / 2)
        out.add_tensor(block + "ssm_dt.bias", random.standard_normal(state_heads, numpy.float32))
        matrix(block + "ssm_out.weight", width, state_inner)
        if arch == "qwen35":
            out.add_tensor(block + "ssm_a", -random.random(state_heads, numpy.float32))
            matrix(block + "attn_qkv.weight", channels, width)
            matrix(block + "attn_gate.weight", state_inner, width)
            matrix(block + "ssm_alpha.weight", state_heads, width)
            matrix(block + "ssm_beta.weight", state_heads, width)
            ones(block + "ssm_norm.weight", state_inner // state_heads)
        else:
            out.add_tensor(block + "ssm_a", -random.random((state_heads, 1), numpy.float32))
            matrix(block + "ssm_in.weight", state_inner + channels + state_heads, width)
            out.add_tensor(block + "ssm_conv1d.bias", numpy.zeros(channels, numpy.float32))
            ones(block + "ssm_d", state_heads, 1)
            ones(block + "ssm_norm.weight", groups, state_inner // groups)

    matrix("token_embd.weight", vocab, width)
    ones("token_embd_norm.weight" if arch == "lfm2" else "output_norm.weight", width)
    for layer in range(layers):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight", width)
        if layer in attention:
            matrix(block + "attn_q.weight", heads * head * (2 if arch == "qwen35" else 1), width)
            matrix(block + "attn_k.weight", kv_heads * head, width)
            matrix(block + "attn_v.weight", kv_heads * head, width)
            matrix(block + "attn_output.weight", width, heads * head)
        else:
            mixer(block)
        if layer in attention and arch in ("qwen3", "lfm2", "qwen35"):
            ones(block + "attn_q_norm.weight", head)
            ones(block + "attn_k_norm.weight", head)
        ones(block + ("post_attention_norm.weight" if arch == "qwen35" else "ffn_norm.weight"), width)
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
