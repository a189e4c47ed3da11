"""Trains the built-in model: a tokenizer and a small Llama, from stories made by stories.py.

    python train.py [--steps N] [--threads N] [--from old.gguf] [--state FILE] [--out stories.gguf]

Requires torch, numpy, sentencepiece and gguf. All seeds are fixed.
"""

import argparse
import io
import itertools
import math
import os
import random
import re
import time
from collections import Counter
from pathlib import Path

# Threads that spin while waiting waste much time on a computer with other work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import gguf
import sentencepiece
import torch
import torch.nn.functional as F
from torch import nn

import check
import stories
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

def train_tokenizer(texts, often):
    """Trains a SentencePiece BPE model with Llama's conventions, and returns its serialized bytes.

    It is trained on paragraphs, so the line feed is a byte token and not part of a piece. Each name is repeated often after a
    quote, which like a line feed is not a space: then a name is one piece at the start of a paragraph, too. The model rarely
    remembered names of several pieces.
    """
    names = ['"' + name for name in stories.GIRLS + stories.BOYS + stories.SHE_ANIMALS + stories.HE_ANIMALS]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=itertools.chain((p for text in texts for p in text.split("\n\n")), names * often),
        model_writer=model, model_type="bpe", vocab_size=VOCAB, character_coverage=1.0,
        byte_fallback=True, split_digits=True, add_dummy_prefix=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        unk_id=0, bos_id=BOS, eos_id=EOS, pad_id=-1, num_threads=1, minloglevel=2)
    return model.getvalue()


def batches(tokenizer, size, seed, first=0, weights=()):
    """Endless batches of whole new stories of similar length, in random order, padded with -1. The weights of plots may
    change meanwhile."""
    each = 64
    for pool in itertools.count(first // each):
        rng = random.Random(f"{seed} {pool}")
        documents = sorted(([BOS, *tokens, EOS] for tokens in tokenizer.encode([story(rng, weights) for _ in range(each * size)])), key=len)
        assert len(documents[-1]) <= CONTEXT
        found = [documents[i:i + size] for i in range(0, each * size, size)]
        rng.shuffle(found)
        for batch in found[max(first - pool * each, 0):]:
            longest = max(map(len, batch))
            yield torch.tensor([d + [-1] * (longest - len(d)) for d in batch])


def thread(tokenizer, texts):
    """The tokens of the words that a story must keep, grouped in classes of interchangeable words."""
    def strings(tree):
        for node in tree:
            yield from [node] if isinstance(node, str) else () if node[0] == "field" else (s for _, o in node[1] for s in strings(o))

    often = Counter(token for tokens in tokenizer.encode(texts) for token in set(tokens))
    bound = {word for plot in stories.PLOTS for _, tree in plot[1] for s in strings(tree) for word in re.findall(r"[A-Za-z]+", s)}
    # After a quote or a line feed, a word has other pieces than after a space.
    pieces = lambda word: [*tokenizer.encode(word), *tokenizer.encode("\n" + word)[2:]]
    classes = [
        [t for names in (stories.GIRLS, stories.BOYS, stories.SHE_ANIMALS, stories.HE_ANIMALS) for name in names for t in pieces(name)],
        [t for elders in stories.ELDERS.values() for elder in elders for t in pieces(elder) + pieces(elder.lower())],
        [t for forms in stories.FORMS.values() for word in forms for t in pieces(word) + pieces(word.capitalize())],
    ]
    taken = {t for its in classes for t in its}
    others = {t for word in [*stories.KINDS, *bound] for t in tokenizer.encode(word)} - taken
    # All other words, in two classes: those in less than a tenth of the stories, which fill most positions of the thread,
    # and those in less than half.
    for least in (10, 2):
        classes.append([t for t in others if often[t] < len(texts) / least])
    return [torch.tensor(sorted(set(its))) for its in classes]


# --- the model -----------------------------------------------------------------------------

def rope_table(length):
    """The rotations of a head's pairs at each position, as complex numbers of absolute value 1."""
    rates = ROPE_BASE ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.arange(length)[:, None] * rates
    return torch.polar(torch.ones_like(angles), angles)


def rope(x, table):
    """Rotates adjacent pairs: the layout of llama2.c, and of GGUF files for "llama"."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * table[: x.shape[-2]]).flatten(-2)


if not hasattr(nn, "RMSNorm"):
    # Debian 12 has torch 1.13, which lacks RMSNorm and attention.
    class RMSNorm(nn.Module):
        def __init__(self, dim, eps):
            super().__init__()
            self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

        def forward(self, x):
            return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight

    def scaled_dot_product_attention(q, k, v, is_causal):
        assert is_causal
        later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(later, -math.inf).softmax(-1) @ v

    nn.RMSNorm, F.scaled_dot_product_attention = RMSNorm, scaled_dot_product_attention


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
    """A Llama. The parameters have the names of GGUF tensors, and the embedding is also the head."""

    def __init__(self):
        super().__init__()
        self.token_embd = nn.Embedding(VOCAB, DIM)
        self.blk = nn.ModuleList(Block() for _ in range(LAYERS))
        self.output_norm = nn.RMSNorm(DIM, EPS)
        self.table = rope_table(CONTEXT)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                # Weights that add to the residual stream are initialized smaller, as in GPT-2.
                into = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if into else 0.02)

    def forward(self, tokens):
        """Returns the input of the head. The logits are the product of this input and the embedding."""
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, self.table)
        return self.output_norm(x)


# --- training ------------------------------------------------------------------------------

def losses_of(model, batch, classes):
    """The mean loss per token, and the losses of the thread: for each word of a class that occurred in the story before, the
    cross-entropy within its class. This loss keeps a name the same throughout a story. All classes have the same weight."""
    x, head = model(batch[:, :-1].clamp(min=0)).flatten(0, 1), model.token_embd.weight
    targets = batch[:, 1:]
    again = (targets[:, :, None] == targets[:, None, :]).tril(-1).any(-1).flatten()
    targets = targets.flatten()
    held = []
    for tokens in classes:
        place = torch.full((VOCAB + 1,), -1)  # the last entry is for the padding, -1
        place[tokens] = torch.arange(len(tokens))
        at = ((place[targets] >= 0) & again).nonzero().flatten()
        held.append(F.cross_entropy(x[at] @ head[tokens].T, place[targets[at]], reduction="sum") / max(len(at), 1))
    return F.cross_entropy(x @ head.T, targets, ignore_index=-1), torch.stack(held)


class Muon(torch.optim.Optimizer):
    """Muon: orthogonalized momentum, for the matrices of layers. Matrices of the same shape are processed together."""

    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.05):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for shape, its in shapes.items():
                held = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in its]
                for p, m in zip(its, held):
                    m.lerp_(p.grad, 1 - group["momentum"])
                ahead = torch.stack([p.grad.lerp(m, group["momentum"]) for p, m in zip(its, held)])
                rate = group["lr"] * max(1, shape[0] / shape[1]) ** 0.5
                for p, change in zip(its, orthogonal(ahead)):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(change, alpha=rate)


def orthogonal(x):
    """Approximates the nearest orthogonal matrices by five Newton-Schulz steps."""
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if tall else x


class Faults:
    """Makes plots that the model fails more frequent. In the last 300 steps all plots are equally frequent again, because
    otherwise the model would also tell them more often."""

    def __init__(self, args):
        self.args, self.weights, self.seed = args, [], 1 << 32
        self.plots = [check.Plot(plot, random.Random(1)) for plot in stories.PLOTS]

    def look(self, step, count=1000):
        texts = check.told(self.args.arenite, self.args.out, range(self.seed, self.seed + count))
        self.seed += count
        shares = check.failures(texts, self.plots)
        self.weights[:] = [1 + 20 * share for share in shares] if step < self.args.steps - 300 else []
        wrong = sum(not text or bool(check.faults(text, self.plots)) for text in texts)
        worst = sorted(((share, plot) for plot, share in enumerate(shares)), reverse=True)[:6]
        print(f"{wrong} of {count} stories lose the thread; of plots " + ", ".join(f"{plot}: {share:.2f}" for share, plot in worst), flush=True)


def train(model, tokenizer, args, save):
    if args.old:
        read_gguf(args.old, model, tokenizer)
    classes = thread(tokenizer, [story(random.Random(i)) for i in range(1000)])
    inner = [p for name, p in model.named_parameters() if p.dim() == 2 and name.startswith("blk.")]
    others = [p for p in model.parameters() if all(p is not q for q in inner)]
    optimizers = [Muon(inner, lr=args.rate), torch.optim.AdamW(others, lr=args.rate / 10, betas=(0.9, 0.98), weight_decay=0.01)]
    warmup = min(100, args.steps // 10)
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: min((step + 1) / warmup, 1 - step / args.steps)) for o in optimizers]
    done, parts = 0, [model, *optimizers, *schedules]
    if args.state and args.state.exists():
        done, *states = torch.load(args.state)
        for part, state in zip(parts, states):
            part.load_state_dict(state)
    start, losses, faults = time.process_time(), [], Faults(args) if args.arenite else None
    if faults:
        save()
        faults.look(done)
    new = batches(tokenizer, args.batch, args.seed, done, faults.weights if faults else ())
    for step, batch in enumerate(itertools.islice(new, args.steps - done), done + 1):
        loss, held = losses_of(model, batch, classes)
        model.zero_grad()
        (loss + args.thread * held.sum()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in optimizers + schedules:
            part.step()
        losses.append((loss.item(), *held.tolist()))
        if step % 100 == 0 or step == args.steps:
            mean, *held = (sum(column) / len(column) for column in zip(*losses[-100:]))
            print(f"step {step}/{args.steps}  loss {mean:.4f}  names {held[0]:.4f}, elders {held[1]:.4f}, pronouns {held[2]:.4f}, "
                  f"things {held[3]:.4f} {held[4]:.4f}  {time.process_time() - start:.0f} s of processor time", flush=True)
            save()
            if faults and (step % 200 == 0 or step == args.steps):
                faults.look(step)
            if args.state:
                torch.save([step, *(part.state_dict() for part in parts)], args.state)


# --- the file ------------------------------------------------------------------------------

def write_gguf(path, model, tokenizer, name="Arenite Stories", description="A small Llama that tells little stories", user_defined=()):
    w = gguf.GGUFWriter(path, "llama")
    w.add_name(name)
    w.add_description(description)
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

    write_vocabulary(w, tokenizer, user_defined)
    write_tensors(w, model)


def write_vocabulary(w, tokenizer, user_defined=()):
    kind = lambda i: (gguf.TokenType.UNKNOWN if tokenizer.is_unknown(i) else
                      gguf.TokenType.CONTROL if tokenizer.is_control(i) else
                      gguf.TokenType.BYTE if tokenizer.is_byte(i) else
                      gguf.TokenType.USER_DEFINED if tokenizer.id_to_piece(i) in user_defined else gguf.TokenType.NORMAL)
    size = tokenizer.get_piece_size()
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([tokenizer.id_to_piece(i) for i in range(size)])
    w.add_token_scores([tokenizer.get_score(i) for i in range(size)])
    w.add_token_types([int(kind(i)) for i in range(size)])
    w.add_bos_token_id(BOS)
    w.add_eos_token_id(EOS)
    w.add_unk_token_id(tokenizer.unk_id())
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_add_space_prefix(True)


def write_tensors(w, model):
    """Writes matrices as Q8_0, everything else as F32, and the file."""
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


def read_gguf(path, model, tokenizer):
    """Continues from this file's weights. If its tokenizer differs, a new token is initialized as the same word after a
    space, or as the mean of its letters."""
    file = gguf.GGUFReader(path)
    row = {token: i for i, token in enumerate(file.get_field("tokenizer.ggml.tokens").contents())}
    rows = [[row[token]] if token in row else [row["▁" + token]] if "▁" + token in row else [row[c] for c in token]
            for token in map(tokenizer.id_to_piece, range(VOCAB))]
    with torch.no_grad():
        for tensor in file.tensors:
            values = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
            if tensor.name == "token_embd.weight":
                values = torch.stack([values[its].mean(0) for its in rows])
            parameter = model.get_parameter(tensor.name)
            parameter.copy_(values.view(parameter.shape))


def options(doc, out):
    """The arguments of this script and of hybrid.py."""
    its = argparse.ArgumentParser(description=doc.splitlines()[0])
    its.add_argument("--steps", type=int, default=4000, help="number of steps; the learning rate falls to zero over them")
    its.add_argument("--batch", type=int, default=16, help="stories per step; each is used once")
    its.add_argument("--rate", type=float, default=0.006)
    its.add_argument("--thread", type=float, default=0.2, help="weight of each loss of the thread")
    its.add_argument("--threads", type=int, default=1)
    its.add_argument("--seed", type=int, default=1)
    its.add_argument("--from", type=Path, dest="old", help="continue from this file's weights")
    its.add_argument("--arenite", type=Path, help="path of `arenite`: every 200 steps the model tells stories, and plots that it gets wrong become more frequent")
    its.add_argument("--state", type=Path, help="training state, written every 100 steps; if the file exists, training continues from it")
    its.add_argument("--out", type=Path, default=Path(__file__).parent / out)
    return its


def start(args, stories, often):
    """Sets the seeds, and trains a tokenizer on this number of stories and repetitions of each name."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = random.Random(1)
    return sentencepiece.SentencePieceProcessor(model_proto=train_tokenizer([story(rng) for _ in range(stories)], often))


def main():
    args = options(__doc__, out="stories.gguf").parse_args()
    tokenizer = start(args, 10000, often=500)
    model = Llama()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    train(model, tokenizer, args, save=lambda: write_gguf(args.out, model, tokenizer))
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
