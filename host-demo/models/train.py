"""Trains the built-in model: a tokenizer and a small Llama, from stories made by stories.py.

    python train.py [--stories N] [--threads N] [--out stories.gguf]

Needs torch, numpy, sentencepiece and gguf. Every seed is fixed.
"""

import argparse
import io
import math
import os
import random
import time
from pathlib import Path

# Threads that spin while they wait are a great loss on a computer that has other work, too.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import gguf
import sentencepiece
import torch
import torch.nn.functional as F
from torch import nn

from stories import story

VOCAB = 2048
CONTEXT = 512
DIM = 192
LAYERS = 5
HEADS = 6
KV_HEADS = 2
HEAD_DIM = DIM // HEADS
HIDDEN = 320
EPS = 1e-5
ROPE_BASE = 10000.0
BOS, EOS = 1, 2


# --- text and tokens -----------------------------------------------------------------------

def train_tokenizer(texts):
    """A SentencePiece BPE model with Llama's conventions, as its serialized bytes.

    It sees paragraphs, so that the line feed never becomes part of a piece: it is a byte token.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(p for text in texts for p in text.split("\n\n")),
        model_writer=model, model_type="bpe", vocab_size=VOCAB, character_coverage=1.0,
        byte_fallback=True, split_digits=True, add_dummy_prefix=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        unk_id=0, bos_id=BOS, eos_id=EOS, pad_id=-1, num_threads=1, minloglevel=2)
    return model.getvalue()


def batches(documents, size, rng):
    """Batches of whole stories of nearly the same length, in random order, padded with -1."""
    found = []
    for start in range(0, len(documents), 64 * size):
        pool = sorted(documents[start:start + 64 * size], key=len)
        found += [pool[i:i + size] for i in range(0, len(pool), size)]
    rng.shuffle(found)
    for batch in found:
        longest = max(map(len, batch))
        yield torch.tensor([d + [-1] * (longest - len(d)) for d in batch])


# --- the model -----------------------------------------------------------------------------

def rope_table(length):
    """cos and sin of every position's angles, one for each pair of numbers of a head."""
    rates = ROPE_BASE ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.arange(length)[:, None] * rates
    return angles.cos(), angles.sin()


def rope(x, table):
    """Turns adjacent pairs: the layout of llama2.c, and of GGUF files for "llama"."""
    cos, sin = (t[: x.shape[-2]] for t in table)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm = nn.RMSNorm(DIM, EPS)
        self.attn_q = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.attn_k = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.attn_v = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.attn_output = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)
        self.ffn_norm = nn.RMSNorm(DIM, EPS)
        self.ffn_gate = nn.Linear(DIM, HIDDEN, bias=False)
        self.ffn_up = nn.Linear(DIM, HIDDEN, bias=False)
        self.ffn_down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x, table):
        batch, length, _ = x.shape
        heads = lambda y: y.view(batch, length, -1, HEAD_DIM).transpose(1, 2)
        y = self.attn_norm(x)
        q, k, v = heads(self.attn_q(y)), heads(self.attn_k(y)), heads(self.attn_v(y))
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (rope(k, table), v))
        y = F.scaled_dot_product_attention(rope(q, table), k, v, is_causal=True)
        x = x + self.attn_output(y.transpose(1, 2).reshape(batch, length, -1))
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Llama(nn.Module):
    """Its parameters bear the names of a GGUF file's tensors. The head is the embedding."""

    def __init__(self):
        super().__init__()
        self.token_embd = nn.Embedding(VOCAB, DIM)
        self.blk = nn.ModuleList(Block() for _ in range(LAYERS))
        self.output_norm = nn.RMSNorm(DIM, EPS)
        self.table = rope_table(CONTEXT)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                # What is added to the residual stream starts smaller, as in GPT-2.
                into = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if into else 0.02)

    def forward(self, tokens):
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, self.table)
        return F.linear(self.output_norm(x), self.token_embd.weight)


def loss_of(model, batch):
    logits = model(batch[:, :-1].clamp(min=0))
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=-1)


def train(model, documents, args, rng, save):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}],
        lr=args.rate, betas=(0.9, 0.98))
    steps = math.ceil(len(documents) / args.batch)
    warmup = min(100, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
        (step + 1) / warmup, 0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2))
    start, losses = time.time(), []
    for step, batch in enumerate(batches(documents, args.batch, rng), 1):
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 100 == 0 or step == steps:
            mean = sum(losses[-100:]) / len(losses[-100:])
            print(f"step {step}/{steps}  loss {mean:.3f}  {time.time() - start:.0f} s", flush=True)
        if step % 500 == 0 or step == steps:
            save()


# --- the file ------------------------------------------------------------------------------

def write_gguf(path, model, tokenizer):
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("Arenite Stories")
    w.add_description("A small Llama that tells little stories")
    w.add_license("MIT OR Apache-2.0")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(DIM)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_layer_norm_rms_eps(EPS)
    w.add_rope_dimension_count(HEAD_DIM)
    w.add_rope_freq_base(ROPE_BASE)
    w.add_vocab_size(VOCAB)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)

    kind = lambda i: (gguf.TokenType.UNKNOWN if tokenizer.is_unknown(i) else
                      gguf.TokenType.CONTROL if tokenizer.is_control(i) else
                      gguf.TokenType.BYTE if tokenizer.is_byte(i) else gguf.TokenType.NORMAL)
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([tokenizer.id_to_piece(i) for i in range(VOCAB)])
    w.add_token_scores([tokenizer.get_score(i) for i in range(VOCAB)])
    w.add_token_types([int(kind(i)) for i in range(VOCAB)])
    w.add_bos_token_id(BOS)
    w.add_eos_token_id(EOS)
    w.add_unk_token_id(tokenizer.unk_id())
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_add_space_prefix(True)

    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, p in model.named_parameters():
        values = p.detach().numpy()
        if p.dim() == 2:
            w.add_tensor(name, gguf.quants.quantize(values, q8), raw_dtype=q8)
        else:
            w.add_tensor(name, values)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    here = Path(__file__).parent
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--stories", type=int, default=32000, help="each is seen once")
    options.add_argument("--batch", type=int, default=8, help="stories a step")
    options.add_argument("--rate", type=float, default=3e-3)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, default=here / "stories.gguf")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)

    start = time.time()
    texts = [story(rng) for _ in range(args.stories)]
    print(f"{len(texts)} stories, {sum(map(len, texts)) / 1e6:.1f} million characters", flush=True)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=train_tokenizer(texts[:10000]))
    documents = [[BOS, *tokens, EOS] for tokens in tokenizer.encode(texts)]
    lengths = [len(d) for d in documents]
    assert max(lengths) <= CONTEXT
    print(f"{sum(lengths) / 1e6:.1f} million tokens, the longest story {max(lengths)} tokens, "
          f"{time.time() - start:.0f} s", flush=True)

    model = Llama()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    train(model, documents, args, rng, save=lambda: write_gguf(args.out, model, tokenizer))
    print(f"{args.out}: {args.out.stat().st_size} bytes, {time.time() - start:.0f} s in all")


if __name__ == "__main__":
    main()
