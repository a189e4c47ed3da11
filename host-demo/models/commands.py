"""Trains a model for microcontrollers that turns commands in English, German and Hindi into calls.

    python commands.py [--steps N] [--threads N] [--out commands.gguf]
    python commands.py --check --arenite PROGRAM [--model commands.gguf] [--show]
    python commands.py --held-out N         prints N held-out commands of each language with their calls, as JSON lines

The sentences come from the grammar in `utterances.py`; layers, optimizer and file are those of `train.py`. The loss covers
the calls only. `--check` runs 300 held-out commands of each language under the grammar in `commands.gbnf` and
counts the exact calls. Requires torch, numpy, sentencepiece and gguf. All seeds are fixed.
"""

import argparse
import io
import json
import os
import random
import subprocess
import time
from pathlib import Path

# Threads that spin while waiting waste much time on a computer with other work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import utterances

HERE = Path(__file__).parent
GRAMMAR = HERE / "commands.gbnf"
VOCAB, CONTEXT, DIM, LAYERS, HEADS, KV_HEADS, HIDDEN = 640, 128, 96, 3, 3, 1, 128
# Texts that are one token each. A line feed ends a command and begins its call.
SYMBOLS = ["\n", '{"device":"', '","room":"', '","action":"', '","value":', '"}']


# --- training --------------------------------------------------------------------------------

def train_tokenizer(count):
    """Trains a SentencePiece BPE model without byte tokens: a character that is not in it is unknown."""
    import sentencepiece
    rng, model = random.Random(1), io.BytesIO()
    texts = [text for i in range(count) for text in utterances.sentence(rng, utterances.LANGUAGES[i % 3])]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="bpe", vocab_size=VOCAB, character_coverage=1.0,
        byte_fallback=False, split_digits=True, add_dummy_prefix=True, user_defined_symbols=SYMBOLS,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        unk_id=0, bos_id=1, eos_id=2, pad_id=-1, num_threads=1, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def rows(tokenizer, pairs):
    """Yields each pair's tokens, and the number of tokens before the call."""
    commands = tokenizer.encode([f"{text}\n" for text, _ in pairs])
    whole = tokenizer.encode([f"{text}\n{call}" for text, call in pairs])
    for command, tokens in zip(commands, whole):
        assert tokens[:len(command)] == command and len(tokens) + 2 <= CONTEXT
        yield [1, *tokens, 2], len(command) + 1


def padded(batch):
    """Returns the tokens of a batch, and targets that are -1 where nothing is learned."""
    import torch
    longest = max(len(tokens) for tokens, _ in batch)
    tokens = torch.tensor([tokens + [2] * (longest - len(tokens)) for tokens, _ in batch])
    targets = torch.tensor([[-1] * before + tokens[before:] + [-1] * (longest - len(tokens)) for tokens, before in batch])
    return tokens[:, :-1], targets[:, 1:]


def batches(tokenizer, size, seed):
    """Yields endless batches of new sentences of similar length, in random order."""
    rng = random.Random(seed)
    while True:
        pool = sorted(rows(tokenizer, [utterances.sentence(rng, utterances.LANGUAGES[i % 3]) for i in range(32 * size)]), key=lambda row: len(row[0]))
        groups = [pool[i:i + size] for i in range(0, len(pool), size)]
        rng.shuffle(groups)
        yield from map(padded, groups)


def share(model, batch):
    """Returns the share of calls of which every token is the most probable one."""
    import torch
    tokens, targets = padded(batch)
    with torch.no_grad():
        best = (model(tokens) @ model.token_embd.weight.T).argmax(-1)
    return ((best == targets) | (targets == -1)).all(1).float().mean().item()


def train(args):
    import torch
    import torch.nn.functional as F
    from torch import nn
    import train as common

    common.VOCAB, common.CONTEXT, common.DIM, common.LAYERS, common.HEADS, common.KV_HEADS, common.HIDDEN = VOCAB, CONTEXT, DIM, LAYERS, HEADS, KV_HEADS, HIDDEN
    common.HEAD_DIM = DIM // HEADS
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = train_tokenizer(20000)
    model = common.Llama()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    inner = [p for name, p in model.named_parameters() if p.dim() == 2 and name.startswith("blk.")]
    others = [p for p in model.parameters() if all(p is not q for q in inner)]
    optimizers = [common.Muon(inner, lr=args.rate), torch.optim.AdamW(others, lr=args.rate / 4, betas=(0.9, 0.98), weight_decay=0.01)]
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: min((step + 1) / 100, 1 - step / args.steps)) for o in optimizers]
    new = batches(tokenizer, args.batch, args.seed)
    rng = random.Random("new sentences")
    seen = list(rows(tokenizer, [utterances.sentence(rng, utterances.LANGUAGES[i % 3]) for i in range(300)]))
    held = {lang: list(rows(tokenizer, utterances.held_out(lang, 300))) for lang in utterances.LANGUAGES}
    start, mean = time.process_time(), 0
    for step in range(1, args.steps + 1):
        tokens, targets = next(new)
        logits = model(tokens).flatten(0, 1)[targets.flatten() >= 0] @ model.token_embd.weight.T
        loss = F.cross_entropy(logits, targets.flatten()[targets.flatten() >= 0])
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in optimizers + schedules:
            part.step()
        mean += (loss.item() - mean) / min(step, 100)
        if step % 250 == 0 or step == args.steps:
            print(f"step {step}/{args.steps}  loss {mean:.4f}  new {share(model, seen):.3f}, held out "
                  + " ".join(f"{lang} {share(model, batch):.3f}" for lang, batch in held.items())
                  + f"  {time.process_time() - start:.0f} s of processor time", flush=True)
            common.write_gguf(args.out, model, tokenizer, "Arenite Commands", "Turns commands for light, heating and blinds in English, German and Hindi into calls", SYMBOLS)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


# --- the checker -----------------------------------------------------------------------------

def calls(args, texts):
    """The calls that the command line generates, greedily and under the grammar."""
    command = [args.arenite, "generate", "-m", args.model, "--grammar", GRAMMAR, "--temp", "0", "--jsonl", "-t", "1", "-n", "40"]
    lines = "".join(json.dumps(f"{text}\n") + "\n" for text in texts)
    out = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout
    return [json.loads(line)["text"] for line in out.splitlines()]


def check(args):
    for lang in utterances.LANGUAGES:
        pairs = utterances.held_out(lang, 300)
        found = calls(args, [text for text, _ in pairs])
        wrong = [(text, call, made) for (text, call), made in zip(pairs, found, strict=True) if made != call]
        print(f"{lang}: {len(pairs) - len(wrong)} of {len(pairs)} held-out commands exact")
        if args.show:
            print(*(f"  {text} -> {made} instead of {call}" for text, call, made in wrong), sep="\n")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=8000, help="number of steps; the learning rate falls to zero over them")
    options.add_argument("--batch", type=int, default=64, help="sentences per step; each is used once")
    options.add_argument("--rate", type=float, default=0.01)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, default=HERE / "commands.gguf")
    options.add_argument("--check", action="store_true")
    options.add_argument("--held-out", type=int, metavar="N")
    options.add_argument("--arenite", default="arenite")
    options.add_argument("--model", type=Path, default=HERE / "commands.gguf")
    options.add_argument("--show", action="store_true", help="with --check: print wrong calls")
    args = options.parse_args()
    if args.held_out:
        for lang in utterances.LANGUAGES:
            for text, call in utterances.held_out(lang, args.held_out):
                print(json.dumps({"text": text, "call": call}, ensure_ascii=False))
    elif args.check:
        check(args)
    else:
        train(args)


if __name__ == "__main__":
    main()
