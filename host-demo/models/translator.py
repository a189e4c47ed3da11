"""Trains the built-in translator, of the architecture that `arenite convert seq2seq` calls English-Hindi.

    python translator.py PAIRS.tsv OUT [--steps N] [--threads N]
    arenite convert seq2seq OUT translator.gguf --type q8_0
    python translator.py PAIRS.tsv OUT --evaluate [--arenite PROGRAM] [--model translator.gguf]

Each line of PAIRS.tsv has English, Hindi and an attribution (https://www.manythings.org/anki/, from
https://tatoeba.org, CC-BY 2.0 FR). A tenth of the English sentences, with all their translations, is held
out; `--evaluate` translates them. A third of the training pairs come from the grammar in `phrases.py`.
Requires torch, numpy, tokenizers and safetensors, and sacrebleu to evaluate. All seeds are fixed.
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
import unicodedata
from pathlib import Path

# Threads that spin while waiting waste much time on a computer with other work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import phrases

DIM, HEADS, FFN, LAYERS, VOCAB, LONGEST = 128, 4, 512, 3, 2560, 128
UNK, PAD, SOS, EOS = range(4)
SPECIALS = ["[UNK]", "[PAD]", "[SOS]", "[EOS]"]


# --- pairs -----------------------------------------------------------------------------------

def tidy(text):
    """Normalizes spaces, full stops and quotes. Composes नुक़्ता in one way."""
    text = unicodedata.normalize("NFC", text).replace("’", "'").replace("“", '"').replace("”", '"')
    text = re.sub(r"\s+([।.,!?;:])", r"\1", " ".join(text.split()))
    if re.search("[\u0900-\u097f]", text):
        text = re.sub(r"[.|।]+$", "।", text)
    return text


def read_pairs(path):
    """Returns pairs of English and Hindi, without repetitions."""
    lines = (line.split("\t") for line in Path(path).read_text("utf-8").splitlines())
    return list(dict.fromkeys((tidy(fields[0]), tidy(fields[1])) for fields in lines if len(fields) > 1))


CONTRACTIONS = [("I'm", "I am"), ("don't", "do not"), ("can't", "cannot"), ("isn't", "is not"), ("It's", "It is"),
                ("He's", "He is"), ("She's", "She is"), ("I'll", "I will"), ("won't", "will not"), ("I've", "I have"),
                ("didn't", "did not"), ("doesn't", "does not"), ("That's", "That is"), ("You're", "You are"),
                ("Don't", "Do not"), ("wasn't", "was not"), ("aren't", "are not"), ("What's", "What is"),
                ("They're", "They are"), ("We're", "We are"), ("Let's", "Let us"), ("haven't", "have not")]


def key(english):
    """A key that is equal for sentences that only differ in punctuation, capitals and contractions."""
    for short, long in CONTRACTIONS:
        english = re.sub(rf"\b{short}\b", long, english)
    return re.sub(r"\W+", " ", english.lower()).strip()


def split(pairs):
    """Splits the pairs into training pairs and a held-out tenth, without sentences in both."""
    parts = [], []
    for english, hindi in pairs:
        parts[hashlib.sha256(key(english).encode()).digest()[0] % 10 == 0].append((english, hindi))
    return parts


def varied(pair, rng):
    """A different spelling of the same pair."""
    english, hindi = pair
    for short, long in CONTRACTIONS:
        if rng.random() < 0.3:
            english = english.replace(short, long) if rng.random() < 0.5 else english.replace(long, short)
    if rng.random() < 0.1 and english[-1:] in ".!" and hindi[-1:] in "।!":
        english, hindi = english[:-1], hindi[:-1]
    if rng.random() < 0.05:
        english = english[:1].lower() + english[1:]
    return english, hindi


# --- the model -------------------------------------------------------------------------------

def build():
    import torch
    from torch import nn

    class Norm(nn.Module):
        """Layer norm with the standard deviation of n - 1, and eps outside the root."""
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


def source_ids(tokenizer, english, rng):
    """Tokenizes a sentence, in half of the calls with BPE dropout, and replaces 3 % of its tokens by the unknown token."""
    tokenizer.model.dropout = 0.1 if rng.random() < 0.5 else None
    ids = tokenizer.encode(english).ids
    tokenizer.model.dropout = None
    return [SOS, *(UNK if rng.random() < 0.03 else id for id in ids), EOS]


def epoch(pairs, forbidden, tokenizer, size, rng):
    """Batches of pairs of similar length, in random order: the given pairs, and new ones from the grammar."""
    import torch
    made = (phrases.pair(rng) for _ in range(len(pairs) // 2))
    texts = [varied(pair, rng) for pair in [*pairs, *(pair for pair in made if key(pair[0]) not in forbidden)]]
    ids = [(source_ids(tokenizer, english, rng), [SOS, *tokenizer.encode(hindi).ids, EOS]) for english, hindi in texts]
    ids = [pair for pair in ids if max(map(len, pair)) <= LONGEST]
    ids.sort(key=lambda pair: (len(pair[0]) + len(pair[1]) + rng.random() * 4))
    chunks = [ids[i:i + size] for i in range(0, len(ids), size)]
    rng.shuffle(chunks)
    for chunk in chunks:
        padded = []
        for side in zip(*chunk):
            width = max(map(len, side))
            padded.append(torch.tensor([row + [PAD] * (width - len(row)) for row in side]))
        yield padded


def save(weights, out):
    from safetensors.torch import save_file
    save_file({name: value.contiguous() for name, value in weights.items()}, out / "model.safetensors")
    config = {"model_type": "english_hindi", "num_heads": HEADS, "max_len": LONGEST, "general": {
        "name": "Arenite English-Hindi",
        "description": "A small translator from English to Hindi",
        "license": "CC-BY-2.0-FR",
        "license.link": "https://creativecommons.org/licenses/by/2.0/fr/",
        "attribution": "Trained on sentence pairs by the contributors of Tatoeba, https://tatoeba.org, CC-BY 2.0 FR"}}
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def train(args, pairs):
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    rng = random.Random(1)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    learned, held_out = split(pairs)
    forbidden = {key(english) for english, _ in held_out}
    made = [pair for pair in (phrases.pair(rng) for _ in range(len(learned) // 2)) if key(pair[0]) not in forbidden]
    tokenizer = train_tokenizer(learned + made, out / "tokenizer.json")
    model = build()(args.dropout)
    count = sum(p.numel() for p in model.parameters())
    print(f"{len(learned)} pairs to learn, {len(held_out)} held out; {count} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01)
    # The average of the last weights translates better than any single one.
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    start, step, losses = time.time(), 0, []
    while step < args.steps:
        for source, target in epoch(learned, forbidden, tokenizer, args.batch, rng):
            step += 1
            for group in optimizer.param_groups:
                group["lr"] = args.rate * min(step / 400, 1) * max(0.02, 1 - step / args.steps)
            logits = model(source, target[:, :-1])
            loss = loss_of(logits.flatten(0, 1), target[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            keep = min(0.995, step / (step + 10))
            for name, value in model.state_dict().items():
                average[name].lerp_(value, 1 - keep)
            losses.append(loss.item())
            if step % 100 == 0 or step == args.steps:
                mean = sum(losses[-100:]) / len(losses[-100:])
                print(f"step {step}/{args.steps}  loss {mean:.3f}  {time.time() - start:.0f} s", flush=True)
            if step % 500 == 0 or step == args.steps:
                save(average, out)
            if step == args.steps:
                break


# --- evaluation ------------------------------------------------------------------------------

def evaluate(args, pairs):
    from sacrebleu.metrics import CHRF
    references = {}
    for english, hindi in split(pairs)[1]:
        references.setdefault(english, []).append(hindi)
    most = max(map(len, references.values()))
    for beams in map(int, args.beams.split(",")):
        start, found = time.time(), []
        for english in references:
            command = [args.arenite, "translate", "-p", english, "--beams", str(beams), "-t", "1"]
            command += ["-m", args.model] if args.model else []
            command += ["--length-penalty", args.length_penalty] if args.length_penalty else []
            found.append(tidy(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        exact = sum(text in possible for text, possible in zip(found, references.values()))
        # A sentence with fewer translations repeats its last one.
        streams = [[(possible + possible[-1:] * most)[i] for possible in references.values()] for i in range(most)]
        chrf = CHRF().corpus_score(found, streams).score
        print(f"{beams} beams: {exact} of {len(references)} exact ({100 * exact / len(references):.1f} %), "
              f"chrF2 {chrf:.2f}, {time.time() - start:.0f} s", flush=True)
        if args.show:
            for english, text in zip(references, found):
                print(f"  {english}\t{text}\t{references[english][0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=48, help="pairs per step")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.25)
    parser.add_argument("--evaluate", action="store_true", help="translate the held-out sentences instead of training")
    parser.add_argument("--arenite", default="arenite")
    parser.add_argument("--model", help="model to use instead of the built-in one")
    parser.add_argument("--beams", default="1,4")
    parser.add_argument("--length-penalty")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    pairs = read_pairs(args.pairs)
    evaluate(args, pairs) if args.evaluate else train(args, pairs)


if __name__ == "__main__":
    main()
