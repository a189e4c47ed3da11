"""Trains a hybrid for microcontrollers: a short convolution in one layer of three, attention in the others.

    python hybrid.py [--steps N] [--threads N] [--state FILE] [--out hybrid.gguf]

Stories, tokenizer and training are shared with train.py; the layers are LFM2's. All seeds are fixed.
"""

import math

import gguf
import torch
import torch.nn.functional as F
from torch import nn

import stories
import train

# Ten plots, and six names of each list, are as much as so few weights can learn well. The plots: the giant vegetable,
# the soup, the fallen star, the berries, the picnic, the little cloud, the old toy; and with animals the race, the
# bridge, and the new friend.
stories.PLOTS[:] = [stories.PLOTS[i] for i in (17, 18, 19, 25, 27, 37, 39, 14, 36, 3)]
for words in (stories.GIRLS, stories.BOYS, stories.SHE_ANIMALS, stories.HE_ANIMALS, stories.KINDS):
    del words[6:]

VOCAB, CONTEXT, DIM, LAYERS, HEADS, KV_HEADS, HIDDEN, TAPS = 768, 4096, 64, 6, 4, 2, 96, 3
HEAD = DIM // HEADS
EPS, ROPE_BASE = train.EPS, train.ROPE_BASE
train.VOCAB, train.CONTEXT = VOCAB, CONTEXT


def is_convolution(layer):
    return layer % 3 == 0


def rope(x):
    """Rotates the halves of each head."""
    rates = ROPE_BASE ** (-torch.arange(0, HEAD, 2) / HEAD)
    angles = torch.arange(x.shape[-2])[:, None] * rates
    (a, b), cos, sin = x.chunk(2, -1), angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(DIM, 3 * DIM, bias=False)
        self.conv = nn.Conv1d(DIM, DIM, TAPS, groups=DIM, bias=False)
        self.out_proj = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        b, c, x = self.in_proj(x).transpose(1, 2).chunk(3, 1)
        return self.out_proj((c * self.conv(F.pad(b * x, (TAPS - 1, 0)))).transpose(1, 2))


class Block(nn.Module):
    def __init__(self, layer):
        super().__init__()
        linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
        self.attn_norm = nn.RMSNorm(DIM, EPS)
        if is_convolution(layer):
            self.shortconv = Convolution()
        else:
            self.attn_q, self.attn_output = linear(DIM, DIM), linear(DIM, DIM)
            self.attn_k, self.attn_v = linear(DIM, KV_HEADS * HEAD), linear(DIM, KV_HEADS * HEAD)
            self.attn_q_norm, self.attn_k_norm = nn.RMSNorm(HEAD, EPS), nn.RMSNorm(HEAD, EPS)
        self.ffn_norm = nn.RMSNorm(DIM, EPS)
        self.ffn_gate, self.ffn_up, self.ffn_down = linear(DIM, HIDDEN), linear(DIM, HIDDEN), linear(HIDDEN, DIM)

    def attention(self, x):
        batch, length, _ = x.shape
        heads = lambda y: y.view(batch, length, -1, HEAD).transpose(1, 2)
        q = rope(self.attn_q_norm(heads(self.attn_q(x))))
        k = rope(self.attn_k_norm(heads(self.attn_k(x))))
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, heads(self.attn_v(x))))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_output(y.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x):
        mix = self.shortconv if hasattr(self, "shortconv") else self.attention
        x = x + mix(self.attn_norm(x))
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Hybrid(nn.Module):
    """A model of LFM2's architecture. The parameters have the names of GGUF tensors, and the embedding is also the
    head."""

    def __init__(self):
        super().__init__()
        self.token_embd = nn.Embedding(VOCAB, DIM)
        self.blk = nn.ModuleList(Block(layer) for layer in range(LAYERS))
        self.token_embd_norm = nn.RMSNorm(DIM, EPS)  # the last norm, with LFM2's name
        for name, p in self.named_parameters():
            if p.dim() == 2:
                into = name.endswith(("attn_output.weight", "ffn_down.weight", "out_proj.weight"))
                nn.init.normal_(p, std=0.04 / math.sqrt(2 * LAYERS) if into else 0.04)

    def forward(self, tokens):
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x)
        return self.token_embd_norm(x)


def write(path, model, tokenizer):
    w = gguf.GGUFWriter(path, "lfm2")
    w.add_name("Arenite Hybrid")
    w.add_license("MIT OR Apache-2.0")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(DIM)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv([0 if is_convolution(layer) else KV_HEADS for layer in range(LAYERS)])
    w.add_shortconv_l_cache(TAPS)
    w.add_layer_norm_rms_eps(EPS)
    w.add_rope_freq_base(ROPE_BASE)
    w.add_vocab_size(VOCAB)
    kind = lambda i: (gguf.TokenType.UNKNOWN if tokenizer.is_unknown(i) else
                      gguf.TokenType.CONTROL if tokenizer.is_control(i) else
                      gguf.TokenType.BYTE if tokenizer.is_byte(i) else gguf.TokenType.NORMAL)
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([tokenizer.id_to_piece(i) for i in range(VOCAB)])
    w.add_token_scores([tokenizer.get_score(i) for i in range(VOCAB)])
    w.add_token_types([int(kind(i)) for i in range(VOCAB)])
    w.add_bos_token_id(train.BOS)
    w.add_eos_token_id(train.EOS)
    w.add_unk_token_id(tokenizer.unk_id())
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_add_space_prefix(True)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, p in model.named_parameters():
        values = p.detach().squeeze().numpy()
        if values.ndim == 2 and values.shape[-1] % 32 == 0:
            w.add_tensor(name, gguf.quants.quantize(values, q8), raw_dtype=q8)
        else:
            w.add_tensor(name, values)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    args = train.options(__doc__, out="hybrid.gguf").parse_args()
    tokenizer = train.start(args, 4000, often=2000)
    model = Hybrid()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    train.train(model, tokenizer, args, save=lambda: write(args.out, model, tokenizer))


if __name__ == "__main__":
    main()
