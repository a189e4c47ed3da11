"""Trains two models for microcontrollers that name the fault in a log of a pump station: an encoder and a decoder.

    python faults.py encoder|decoder [--steps N] [--threads N] [--seed N] --out FILE

The logs come from the grammar in `pump_logs.py`. The encoder is a BERT with a classifier on its first token. The decoder is a Llama;
the token after a log is the name of its code. Requires torch, numpy, sentencepiece and gguf. All seeds are fixed.
"""

import argparse
import io
import json
import os
import random
import time
from pathlib import Path

# Threads that spin while waiting waste much time on a computer with other work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pump_logs
from pump_logs import CODES

# One head of keys and values: an encoder keeps them for a whole text, and with four heads they would take 40 KB.
VOCAB, CONTEXT, DIM, LAYERS, HEADS, KV_HEADS, HIDDEN, EPS = 352, 80, 64, 2, 4, 1, 128, 1e-5
HEAD = DIM // HEADS
# The codes as tokens. They are control tokens, so the text of a log cannot contain them.
NAMES = [f"<{code}>" for code in CODES]


def train_tokenizer(count):
    """Trains a SentencePiece BPE model without byte tokens: a character that is not in it is unknown."""
    import sentencepiece
    rng, model = random.Random(1), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for _ in range(count) for line in pump_logs.log(rng)[0].splitlines()), model_writer=model,
        model_type="bpe", vocab_size=VOCAB, character_coverage=1.0, byte_fallback=False, split_digits=True, add_dummy_prefix=True,
        user_defined_symbols=["\n"], control_symbols=NAMES, normalization_rule_name="identity", remove_extra_whitespaces=False,
        unk_id=0, bos_id=1, eos_id=2, pad_id=-1, num_threads=1, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def encoder():
    """A BERT. The parameters have the names of GGUF tensors."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn_q, self.attn_output = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
            self.attn_k, self.attn_v = nn.Linear(DIM, KV_HEADS * HEAD), nn.Linear(DIM, KV_HEADS * HEAD)
            self.attn_output_norm, self.layer_output_norm = nn.LayerNorm(DIM, EPS), nn.LayerNorm(DIM, EPS)
            self.ffn_up, self.ffn_down = nn.Linear(DIM, HIDDEN), nn.Linear(HIDDEN, DIM)

        def forward(self, x, lacking):
            heads = lambda y: y.unflatten(-1, (-1, HEAD)).transpose(1, 2)
            q, k, v = heads(self.attn_q(x)), heads(self.attn_k(x)), heads(self.attn_v(x))
            scores = (q @ k.transpose(-1, -2) / HEAD ** 0.5).masked_fill(lacking, float("-inf"))
            y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
            x = self.attn_output_norm(x + self.attn_output(y))
            return self.layer_output_norm(x + self.ffn_down(nn.functional.gelu(self.ffn_up(x))))

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.token_embd, self.position_embd = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
            self.token_embd_norm = nn.LayerNorm(DIM, EPS)
            self.blk = nn.ModuleList(Block() for _ in range(LAYERS))
            self.cls = nn.Linear(DIM, len(CODES))
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.06)

        def forward(self, tokens, lengths):
            lacking = (torch.arange(tokens.shape[1]) >= lengths[:, None])[:, None, None]
            x = self.token_embd_norm(self.token_embd(tokens) + self.position_embd.weight[:tokens.shape[1]])
            for block in self.blk:
                x = block(x, lacking)
            return self.cls(x[:, 0])

    return Bert()


def decoder(first):
    """A Llama whose outputs are the tokens from `first` on, after the last token."""
    import torch
    import train

    train.VOCAB, train.CONTEXT, train.DIM, train.LAYERS, train.HEADS, train.KV_HEADS, train.HIDDEN = VOCAB, CONTEXT, DIM, LAYERS, HEADS, KV_HEADS, HIDDEN
    train.HEAD_DIM = HEAD

    class Decoder(train.Llama):
        def forward(self, tokens, lengths):
            last = super().forward(tokens)[torch.arange(len(tokens)), lengths - 1]
            return last @ self.token_embd.weight[first:first + len(CODES)].T

    return Decoder()


def write(args, model, tokenizer):
    import gguf
    import train
    name, about = f"Arenite Faults, {args.kind}", "Names the fault in a log of a pump station"
    if args.kind == "decoder":
        train.write_gguf(args.out, model, tokenizer, name, about, "\n")
        return
    w = gguf.GGUFWriter(args.out, "bert")
    w.add_name(name)
    w.add_description(about)
    w.add_license("MIT OR Apache-2.0")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(DIM)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_layer_norm_eps(EPS)
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.RANK)
    w.add_array("bert.classifier.output_labels", CODES)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    train.write_vocabulary(w, tokenizer, "\n")
    train.write_tensors(w, model)


def batches(tokenizer, size, logs):
    """Yields endless batches: tokens, lengths and codes."""
    import torch
    while True:
        pairs = [next(logs) for _ in range(size)]
        rows = [[1, *tokens] for tokens in tokenizer.encode([text for text, _ in pairs])]
        lengths = torch.tensor([len(row) for row in rows])
        assert max(lengths) <= CONTEXT, max(lengths)
        tokens = torch.tensor([row + [0] * (max(lengths) - len(row)) for row in rows])
        yield tokens, lengths, torch.tensor([CODES.index(code) for _, code in pairs])


def train(args):
    import torch
    from torch import nn
    from train import Muon
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = train_tokenizer(5000)
    model = encoder() if args.kind == "encoder" else decoder(tokenizer.piece_to_id(NAMES[0]))
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    inner = [p for name, p in model.named_parameters() if p.dim() == 2 and name.startswith("blk.")]
    others = [p for p in model.parameters() if all(p is not q for q in inner)]
    optimizers = [Muon(inner, lr=args.rate), torch.optim.AdamW(others, lr=args.rate / 4, betas=(0.9, 0.98), weight_decay=0.01)]
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: min((step + 1) / 100, 1 - step / args.steps)) for o in optimizers]
    rng = random.Random(args.seed)
    new = batches(tokenizer, args.batch, iter(lambda: pump_logs.log(rng), None))
    fresh = random.Random("new logs")
    seen = next(batches(tokenizer, 1000, iter(lambda: pump_logs.log(fresh), None)))
    held = next(batches(tokenizer, 1000, iter(pump_logs.held_out(1000))))
    right = lambda tokens, lengths, codes: (model(tokens, lengths).argmax(-1) == codes).float().mean().item()
    start, mean = time.process_time(), 0
    for step in range(1, args.steps + 1):
        tokens, lengths, codes = next(new)
        loss = nn.functional.cross_entropy(model(tokens, lengths), codes)
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in optimizers + schedules:
            part.step()
        mean += (loss.item() - mean) / min(step, 100)
        if step % 250 == 0 or step == args.steps:
            with torch.no_grad():
                print(f"step {step}/{args.steps}  loss {mean:.4f}  right: new {right(*seen):.3f}, held out {right(*held):.3f}  "
                      f"{time.process_time() - start:.0f} s of processor time", flush=True)
    write(args, model, tokenizer)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kind", choices=["encoder", "decoder"])
    options.add_argument("--steps", type=int, default=1500, help="number of steps; the learning rate falls to zero over them")
    options.add_argument("--batch", type=int, default=64, help="logs per step; each is used once")
    options.add_argument("--rate", type=float, default=0.01)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, required=True)
    train(options.parse_args())


if __name__ == "__main__":
    main()
