"""Writes a model with the shape of a public one and random weights: models.py SHAPE TYPE OUT.gguf

Needs numpy and gguf, and llama_cpp, which quantizes the model.
"""

import ctypes
import pathlib
import sys

import gguf
import numpy

# architecture, vocabulary, width, layers, heads, KV heads, head size, feed-forward width, base of the rotation
SHAPES = {
    "stories15m": ("llama", 32000, 288, 6, 6, 6, 48, 768, 1e4),
    "smollm2-135m": ("llama", 49152, 576, 30, 9, 3, 64, 1536, 1e5),
    "qwen3-0.6b": ("qwen3", 151936, 1024, 28, 16, 8, 128, 3072, 1e6),
    "lfm2-350m": ("lfm2", 65536, 1024, 16, 16, 8, 64, 4608, 1e6),
    "qwen3.5-0.8b": ("qwen35", 248320, 1024, 24, 8, 2, 256, 3584, 1e7),
    "granite-4-350m": ("granitehybrid", 100352, 768, 32, 12, 4, 64, 2048, 1e4),
    "gpt2-124m": ("gpt2", 50257, 768, 12, 12, 12, 64, 3072, 0),
    "gemma-4-e2b": ("gemma4", 262144, 1536, 35, 8, 1, 256, 6144, 1e6),
}
# The layers with attention, for architectures in which not all layers have attention.
ATTENTION = {"lfm2": {2, 5, 8, 10, 12, 14}, "qwen35": set(range(3, 24, 4)), "granitehybrid": {10, 13, 17, 27}}
# Taps of the convolution, state size, groups, heads and inner width of the layers without attention.
STATES = {"qwen35": (4, 128, 16, 16, 2048), "granitehybrid": (4, 128, 1, 48, 1536)}
CONTEXT = 2048


def vocabulary(size):
    """A vocabulary that llama.cpp can load: control tokens, bytes, and numbers."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    more = size - len(tokens)
    return tokens + [f"▁{i}" for i in range(more)], types + [gguf.TokenType.NORMAL] * more


class Writer(gguf.GGUFWriter):
    """Writes the keys that all shapes have, and tensors of random values."""

    def __init__(self, shape, path):
        arch, vocab, width, layers, heads, kv_heads, head, inner, base = SHAPES[shape]
        super().__init__(path, arch)
        self.random = numpy.random.default_rng(1)
        self.add_name(f"{shape}, random weights")
        self.add_context_length(CONTEXT)
        self.add_embedding_length(width)
        self.add_block_count(layers)
        self.add_head_count(heads)
        self.add_vocab_size(vocab)
        self.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
        tokens, types = vocabulary(vocab)
        self.add_tokenizer_model("llama")
        self.add_token_list(tokens)
        self.add_token_scores([0.0] * vocab)
        self.add_token_types(types)
        self.add_bos_token_id(1)
        self.add_eos_token_id(2)

    def matrix(self, name, rows, columns, bias=False):
        weights = numpy.empty((rows, columns), numpy.float16)
        for part in numpy.array_split(weights, max(rows * columns >> 26, 1)):
            part[:] = self.random.standard_normal(part.shape, numpy.float32) / numpy.sqrt(columns)
        self.add_tensor(name + ".weight", weights)
        if bias:
            self.vector(name + ".bias", rows)

    def vector(self, name, *shape):
        self.add_tensor(name, self.random.standard_normal(shape, numpy.float32) / 2)

    def ones(self, name, *shape):
        self.add_tensor(name, numpy.ones(shape, numpy.float32))

    def end(self):
        self.write_header_to_file()
        self.write_kv_data_to_file()
        self.write_tensors_to_file()
        self.close()


def write(shape, out):
    """Writes the model in F16, with norms in F32 and the embedding as output matrix."""
    arch, vocab, width, layers, heads, kv_heads, head, inner, base = SHAPES[shape]
    attention = ATTENTION.get(arch, set(range(layers)))
    several = len(attention) < layers and arch != "qwen35"
    out.add_feed_forward_length(inner)
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

    def mixer(block):
        """Writes the matrices and vectors that a layer without attention has in place of attention."""
        if arch == "lfm2":
            out.matrix(block + "shortconv.in_proj", 3 * width, width)
            out.vector(block + "shortconv.conv.weight", width, 3)
            out.matrix(block + "shortconv.out_proj", width, width)
            return
        out.vector(block + "ssm_conv1d.weight", channels, taps)
        out.vector(block + "ssm_dt.bias", state_heads)
        out.matrix(block + "ssm_out", width, state_inner)
        decay = -out.random.random((state_heads, 1), numpy.float32)
        if arch == "qwen35":
            out.add_tensor(block + "ssm_a", decay[:, 0])
            out.matrix(block + "attn_qkv", channels, width)
            out.matrix(block + "attn_gate", state_inner, width)
            out.matrix(block + "ssm_alpha", state_heads, width)
            out.matrix(block + "ssm_beta", state_heads, width)
            out.ones(block + "ssm_norm.weight", state_inner // state_heads)
        else:
            out.add_tensor(block + "ssm_a", decay)
            out.matrix(block + "ssm_in", state_inner + channels + state_heads, width)
            out.add_tensor(block + "ssm_conv1d.bias", numpy.zeros(channels, numpy.float32))
            out.ones(block + "ssm_d", state_heads, 1)
            out.ones(block + "ssm_norm.weight", groups, state_inner // groups)

    out.matrix("token_embd", vocab, width)
    out.ones("token_embd_norm.weight" if arch == "lfm2" else "output_norm.weight", width)
    for layer in range(layers):
        block = f"blk.{layer}."
        out.ones(block + "attn_norm.weight", width)
        if layer in attention:
            out.matrix(block + "attn_q", heads * head * (2 if arch == "qwen35" else 1), width)
            out.matrix(block + "attn_k", kv_heads * head, width)
            out.matrix(block + "attn_v", kv_heads * head, width)
            out.matrix(block + "attn_output", width, heads * head)
        else:
            mixer(block)
        if layer in attention and arch in ("qwen3", "lfm2", "qwen35"):
            out.ones(block + "attn_q_norm.weight", head)
            out.ones(block + "attn_k_norm.weight", head)
        out.ones(block + ("post_attention_norm.weight" if arch == "qwen35" else "ffn_norm.weight"), width)
        out.matrix(block + "ffn_gate", inner, width)
        out.matrix(block + "ffn_up", inner, width)
        out.matrix(block + "ffn_down", width, inner)


def write_gpt2(shape, out):
    _, vocab, width, layers, _, _, _, inner, _ = SHAPES[shape]
    out.add_feed_forward_length(inner)
    out.add_layer_norm_eps(1e-5)
    out.matrix("token_embd", vocab, width)
    out.vector("position_embd.weight", CONTEXT, width)
    for block in [f"blk.{layer}." for layer in range(layers)]:
        for norm in "attn_norm", "ffn_norm":
            out.ones(block + norm + ".weight", width)
            out.vector(block + norm + ".bias", width)
        for name, rows, columns in ("attn_qkv", 3 * width, width), ("attn_output", width, width), ("ffn_up", inner, width), ("ffn_down", width, inner):
            out.matrix(block + name, rows, columns, bias=True)
    out.ones("output_norm.weight", width)
    out.vector("output_norm.bias", width)


def write_gemma4(shape, out):
    """Writes Gemma 4. Every fifth layer is global and has heads of twice the size. The last layers share the keys and values of
    earlier ones, and have feed-forward layers of twice the width."""
    _, vocab, width, layers, heads, kv_heads, head, inner, base = SHAPES[shape]
    each, shared, window = 256, 20, 512
    wide = lambda layer: inner * (2 if layer >= layers - shared else 1)
    size = lambda layer: head * (2 if layer % 5 == 4 else 1)
    out.add_feed_forward_length([wide(layer) for layer in range(layers)])
    out.add_head_count_kv(kv_heads)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_rope_freq_base(base)
    out.add_float32("gemma4.rope.freq_base_swa", 1e4)
    out.add_final_logit_softcapping(30.0)
    out.add_sliding_window(window)
    out.add_shared_kv_layers(shared)
    out.add_embedding_length_per_layer_input(each)
    out.add_sliding_window_pattern([layer % 5 != 4 for layer in range(layers)])
    for name, of in ("attention.key_length", 2 * head), ("attention.value_length", 2 * head), ("rope.dimension_count", 2 * head):
        out.add_uint32(f"gemma4.{name}", of)
        out.add_uint32(f"gemma4.{name}_swa", of // 2)
    out.matrix("token_embd", vocab, width)
    out.matrix("per_layer_token_embd", vocab, each * layers)
    out.matrix("per_layer_model_proj", each * layers, width)
    out.ones("per_layer_proj_norm.weight", each)
    # The global layers rotate a quarter of a head.
    out.add_tensor("rope_freqs.weight", numpy.where(numpy.arange(head) < head // 4, 1, 1e30).astype(numpy.float32))
    out.ones("output_norm.weight", width)
    for layer in range(layers):
        block = f"blk.{layer}."
        for norm in "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm":
            out.ones(block + norm + ".weight", width)
        out.ones(block + "layer_output_scale.weight", 1)
        out.matrix(block + "attn_q", heads * size(layer), width)
        out.ones(block + "attn_q_norm.weight", size(layer))
        if layer < layers - shared:
            out.matrix(block + "attn_k", kv_heads * size(layer), width)
            out.matrix(block + "attn_v", kv_heads * size(layer), width)
            out.ones(block + "attn_k_norm.weight", size(layer))
        out.matrix(block + "attn_output", width, heads * size(layer))
        out.matrix(block + "ffn_gate", wide(layer), width)
        out.matrix(block + "ffn_up", wide(layer), width)
        out.matrix(block + "ffn_down", width, wide(layer))
        out.matrix(block + "inp_gate", each, width)
        out.matrix(block + "proj", width, each)


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
        out = Writer(shape, unfinished)
        {"gpt2": write_gpt2, "gemma4": write_gemma4}.get(out.arch, write)(shape, out)
        out.end()
        unfinished.rename(f16)
    unfinished = path.with_suffix(".part")
    quantize(f16, kind, unfinished)
    unfinished.rename(path)


main()
