"""Trains an English-Hindi translator of the architecture that `arenite convert seq2seq` calls English-Hindi.

    python translate_train.py PAIRS.tsv OUT [--minutes 60] [--threads 2]
    arenite convert seq2seq OUT translator.gguf
    python translate_train.py PAIRS.tsv OUT --evaluate translator.gguf [--arenite arenite] [--beams 4]

PAIRS.tsv has English, Hindi and an attribution in each line (https://www.manythings.org/anki/, from
https://tatoeba.org, CC-BY 2.0 FR). A tenth of the English sentences, with all their translations, is held
out; `--evaluate` translates them. Needs torch, numpy, tokenizers and safetensors. Every seed is fixed, but
how far training comes in its minutes depends on the machine.
"""

import argparse
import hashlib
import json
import math
import os
import random
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Sizes: at most 4 MB as Q8_0.
DIM, HEADS, FFN, LAYERS, VOCAB, LONGEST = 192, 6, 512, 3, 2048, 64
UNK, PAD, SOS, EOS = range(4)
SPECIALS = ["[UNK]", "[PAD]", "[SOS]", "[EOS]"]


# --- pairs -----------------------------------------------------------------------------------

def read_pairs(path):
    """(English, Hindi) without repetitions."""
    lines = (line.split("\t") for line in Path(path).read_text("utf-8").splitlines())
    return list(dict.fromkeys((fields[0].strip(), fields[1].strip()) for fields in lines if len(fields) > 1))


def is_held_out(english):
    """A tenth, by the letters alone, so that no sentence is in both parts with another full stop."""
    letters = re.sub(r"\W+", " ", english.lower()).strip()
    return hashlib.sha256(letters.encode()).digest()[0] % 10 == 0


CONTRACTIONS = [("I'm", "I am"), ("don't", "do not"), ("can't", "cannot"), ("isn't", "is not"), ("It's", "It is"),
                ("He's", "He is"), ("She's", "She is"), ("I'll", "I will"), ("won't", "will not"), ("I've", "I have"),
                ("didn't", "did not"), ("doesn't", "does not"), ("That's", "That is"), ("You're", "You are")]


def varied(pair, rng):
    """Another way to write the same pair."""
    english, hindi = pair
    for short, long in CONTRACTIONS:
        if rng.random() < 0.3:
            english = english.replace(short, long) if rng.random() < 0.5 else english.replace(long, short)
    if rng.random() < 0.15 and english[-1:] in ".!" and hindi[-1:] in "।.!":
        english, hindi = english[:-1], hindi[:-1]
    if rng.random() < 0.05:
        english = english[:1].lower() + english[1:]
    return english, hindi


# --- the model -------------------------------------------------------------------------------

def build():
    import torch
    from torch import nn

    class Norm(nn.Module):
        """With the deviation of n - 1, and eps outside the root."""
        def __init__(self):
            super().__init__()
            self.gamma, self.beta = nn.Parameter(torch.ones(DIM)), nn.Parameter(torch.zeros(DIM))

        def forward(self, x):
            mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
            return self.gamma * (x - mean) / (std + 1e-6) + self.beta

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(DIM, DIM) for _ in range(4))

        def forward(self, x, y, mask):
            split = lambda t: t.view(t.shape[0], -1, HEADS, DIM // HEADS).transpose(1, 2)
            q, k, v = split(self.w_q(x)), split(self.w_k(y)), split(self.w_v(y))
            out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return self.w_o(out.transpose(1, 2).reshape(x.shape))

    class FeedForward(nn.Module):
        def __init__(self, dropout):
            super().__init__()
            self.layer1, self.layer2, self.dropout = nn.Linear(DIM, FFN), nn.Linear(FFN, DIM), nn.Dropout(dropout)

        def forward(self, x):
            return self.layer2(self.dropout(torch.relu(self.layer1(x))))

    class Residual(nn.Module):
        def __init__(self, dropout):
            super().__init__()
            self.norm, self.dropout = Norm(), nn.Dropout(dropout)

        def forward(self, x, part):
            return x + self.dropout(part(self.norm(x)))

    class EncoderLayer(nn.Module):
        def __init__(self, dropout):
            super().__init__()
            self.attention, self.ffn = Attention(), FeedForward(dropout)
            self.residual = nn.ModuleList(Residual(dropout) for _ in range(2))

        def forward(self, x, mask):
            x = self.residual[0](x, lambda x: self.attention(x, x, mask))
            return self.residual[1](x, self.ffn)

    class DecoderLayer(nn.Module):
        def __init__(self, dropout):
            super().__init__()
            self.self_attention, self.cross_attention, self.ffn = Attention(), Attention(), FeedForward(dropout)
            self.residual = nn.ModuleList(Residual(dropout) for _ in range(3))

        def forward(self, x, source, mask, source_mask):
            x = self.residual[0](x, lambda x: self.self_attention(x, x, mask))
            x = self.residual[1](x, lambda x: self.cross_attention(x, source, source_mask))
            return self.residual[2](x, self.ffn)

    class Stack(nn.Module):
        def __init__(self, layer, dropout):
            super().__init__()
            self.layers, self.norm = nn.ModuleList(layer(dropout) for _ in range(LAYERS)), Norm()

        def forward(self, x, *others):
            for layer in self.layers:
                x = layer(x, *others)
            return self.norm(x)

    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCAB, DIM)

        def forward(self, ids):
            return self.embed(ids) * math.sqrt(DIM)

    class Output(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(DIM, VOCAB)

    class Translator(nn.Module):
        def __init__(self, dropout=0.0):
            super().__init__()
            self.encoder, self.decoder = Stack(EncoderLayer, dropout), Stack(DecoderLayer, dropout)
            self.src_embed, self.trg_embed, self.output_layer = Embedding(), Embedding(), Output()
            self.dropout = nn.Dropout(dropout)
            angles = torch.arange(LONGEST)[:, None] / 10000 ** (torch.arange(0, DIM, 2) / DIM)
            positions = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
            self.register_buffer("positions", positions, persistent=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)

        def forward(self, source, target):
            seen = (source != PAD)[:, None, None, :]
            causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
            place = lambda x: self.dropout(x + self.positions[:x.shape[1]])
            states = self.encoder(place(self.src_embed(source)), seen)
            return self.output_layer.proj(self.decoder(place(self.trg_embed(target)), states, causal, seen))

    return Translator


# --- training --------------------------------------------------------------------------------

def train_tokenizer(pairs, path):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=SPECIALS, continuing_subword_prefix="##",
                                  min_frequency=2, show_progress=False)
    tokenizer.train_from_iterator((text for pair in pairs for text in pair), trainer)
    tokenizer.save(str(path))
    return tokenizer


def batches(pairs, tokenizer, size, rng):
    """Batches of pairs of about the same length, in random order."""
    import torch
    texts = [varied(pair, rng) for pair in pairs]
    ids = [[[SOS, *tokenizer.encode(text).ids, EOS][:LONGEST] for text in pair] for pair in texts]
    ids.sort(key=lambda pair: (len(pair[0]) + len(pair[1]) + rng.random() * 4))
    chunks = [ids[i:i + size] for i in range(0, len(ids), size)]
    rng.shuffle(chunks)
    for chunk in chunks:
        padded = []
        for side in zip(*chunk):
            width = max(map(len, side))
            padded.append(torch.tensor([row + [PAD] * (width - len(row)) for row in side]))
        yield padded


def train(args, pairs):
    import torch
    from safetensors.torch import save_file
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    rng = random.Random(1)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    learned = [pair for pair in pairs if not is_held_out(pair[0])]
    tokenizer = train_tokenizer(learned, out / "tokenizer.json")
    model = build()(args.dropout)
    count = sum(p.numel() for p in model.parameters())
    print(f"{len(learned)} pairs to learn, {len(pairs) - len(learned)} held out; {count} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01)
    # The average of the last weights translates better than any of them.
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    start, step, epoch, shown = time.time(), 0, 0, 0.0
    done = lambda: (time.time() - start) / (60 * args.minutes)
    while done() < 1:
        epoch += 1
        for source, target in batches(learned, tokenizer, 48, rng):
            step += 1
            rate = 1.5e-3 * min(step / 400, 1) * max(0.02, 1 - done())
            for group in optimizer.param_groups:
                group["lr"] = rate
            logits = model(source, target[:, :-1])
            loss = loss_of(logits.flatten(0, 1), target[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            keep = min(0.998, step / (step + 10))
            for name, value in model.state_dict().items():
                average[name].lerp_(value, 1 - keep)
            if done() - shown > 0.02:
                shown = done()
                print(f"{100 * shown:.0f} %, epoch {epoch}, step {step}: loss {loss.item():.3f}", flush=True)
            if done() >= 1:
                break
    save_file({name: value.contiguous() for name, value in average.items()}, out / "model.safetensors")
    config = {"model_type": "english_hindi", "num_heads": HEADS, "max_len": LONGEST,
              "attribution": "Trained on English-Hindi sentence pairs of https://tatoeba.org, CC-BY 2.0 FR"}
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    print(f"{step} steps in {(time.time() - start) / 60:.1f} minutes")


# --- evaluation ------------------------------------------------------------------------------

def chrf(hypotheses, references, order=6, beta=2):
    """Popović's chrF2 over all sentences: the F-score of character n-grams, without spaces."""
    scores = []
    for n in range(1, order + 1):
        grams = lambda text: Counter(text[i:i + n] for i in range(len(text) - n + 1))
        matched = made = wanted = 0
        for hypothesis, reference in zip(hypotheses, references):
            h, r = grams(hypothesis.replace(" ", "")), grams(reference.replace(" ", ""))
            matched, made, wanted = matched + (h & r).total(), made + h.total(), wanted + r.total()
        scores.append((matched / made if made else 0, matched / wanted if wanted else 0))
    precision, recall = (sum(column) / order for column in zip(*scores))
    return 100 * (1 + beta**2) * precision * recall / (beta**2 * precision + recall) if precision + recall else 0.0


def plain(text):
    """Without the spaces that the tokenizer puts before punctuation."""
    return re.sub(r"\s+([।.,!?;:])", r"\1", text.strip())


def evaluate(args, pairs):
    references = {}
    for english, hindi in pairs:
        if is_held_out(english):
            references.setdefault(english, []).append(hindi)
    hypotheses, nearest, exact = [], [], 0
    for english, possible in references.items():
        command = [args.arenite, "translate", "-m", args.evaluate, "-p", english, "--beams", str(args.beams), "-t", "1"]
        got = plain(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        exact += any(got == plain(reference) for reference in possible)
        hypotheses.append(got)
        nearest.append(max((plain(reference) for reference in possible), key=lambda r: chrf([got], [r])))
    print(f"{len(references)} sentences held out: {100 * exact / len(references):.1f} % exact, "
          f"chrF2 {chrf(hypotheses, nearest):.1f}, {args.beams} beams")
    for english, got in list(zip(references, hypotheses))[:10]:
        print(f"  {english}  {got}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs")
    parser.add_argument("out")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--evaluate", metavar="GGUF", help="translate what was held out instead of training")
    parser.add_argument("--arenite", default="arenite")
    parser.add_argument("--beams", type=int, default=4)
    args = parser.parse_args()
    pairs = read_pairs(args.pairs)
    evaluate(args, pairs) if args.evaluate else train(args, pairs)


if __name__ == "__main__":
    main()
