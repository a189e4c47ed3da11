"""Texts per second of an encoder: `arenite embed` beside sentence-transformers and onnxruntime (which fastembed runs).

encoders.py ARENITE FOLDER FILE... [--rounds N] [--threads 1,2] [--tokens 16,64,256,512]

FOLDER is the model's checkpoint, each FILE its conversion to GGUF. The engines run in turns on the same texts. A peer's time
is that of all texts in batches of 1 or of 32, without loading the model; Arenite's time is that of a process with all
texts minus that of a process with one. The ratio is the median of the rounds. Needs sentence-transformers, onnx and
onnxruntime.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy
import onnxruntime
import sentence_transformers
import torch
import transformers

WORDS = "the sea is calm and a small boat goes home with fish for all who wait".split()


def texts_of(tokens, count):
    """`count` texts of `tokens` ids, begin and end included. Each word of WORDS is one id of BERT's vocabularies."""
    return [" ".join(WORDS[(first + i) % len(WORDS)] for i in range(tokens - 2)) for first in range(count)]


class Arenite:
    def __init__(self, program, file, threads):
        self.command = [program, "embed", "-m", file, "--jsonl", "-t", str(threads), "-o", "/dev/null", "-f"]

    def process(self, texts):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
            file.flush()
            start = time.monotonic()
            subprocess.run([*map(str, self.command), file.name], check=True, stdout=subprocess.DEVNULL)
            return time.monotonic() - start

    def seconds(self, texts):
        return self.process(texts) - self.process(texts[:1])


class SentenceTransformers:
    def __init__(self, folder, batch):
        self.model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        self.model.max_seq_length = 512
        self.batch = batch

    def vectors(self, texts):
        return self.model.encode(texts, batch_size=self.batch, normalize_embeddings=True, show_progress_bar=False)

    def seconds(self, texts):
        self.vectors(texts[: self.batch])
        start = time.monotonic()
        self.vectors(texts)
        return time.monotonic() - start


class Onnx:
    """The model as fastembed runs it: tokenizers, onnxruntime, mean of the states, length 1."""

    def __init__(self, folder, batch, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.tokenizer = sentence_transformers.SentenceTransformer(str(folder), device="cpu").tokenizer
        self.session = onnxruntime.InferenceSession(exported(folder), options)
        self.batch = batch

    def vectors(self, texts):
        made = []
        for first in range(0, len(texts), self.batch):
            ids = self.tokenizer(texts[first : first + self.batch], padding=True, truncation=True, max_length=512, return_tensors="np")
            inputs = {name.name: ids[name.name].astype(numpy.int64) for name in self.session.get_inputs()}
            states = self.session.run(None, inputs)[0]
            mask = ids["attention_mask"][:, :, None]
            mean = (states * mask).sum(1) / mask.sum(1)
            made.append(mean / numpy.linalg.norm(mean, axis=1, keepdims=True))
        return numpy.concatenate(made)

    def seconds(self, texts):
        self.vectors(texts[: self.batch])
        start = time.monotonic()
        self.vectors(texts)
        return time.monotonic() - start


def exported(folder):
    """The checkpoint in ONNX, optimized by onnxruntime when it is loaded."""
    path = pathlib.Path(tempfile.gettempdir()) / f"{pathlib.Path(folder).name}.onnx"
    if not path.exists():
        names = ["input_ids", "attention_mask", "token_type_ids"]
        model = transformers.AutoModel.from_pretrained(str(folder), attn_implementation="eager").eval()
        states = torch.nn.Module()
        states.model = model
        states.forward = lambda *inputs: model(**dict(zip(names, inputs)))[0]
        ids = torch.ones((2, 8), dtype=torch.int64)
        torch.onnx.export(states, (ids, ids, ids * 0), str(path), input_names=names, output_names=["states"], dynamo=False,
                          dynamic_axes={name: {0: "texts", 1: "tokens"} for name in [*names, "states"]}, opset_version=17)
    return str(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arenite", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tokens", default="16,64,256,512")
    options = parser.parse_args()
    print("| threads | tokens | peer | texts/s | " + " | ".join(f"{file.stem}, by the peer" for file in options.files) + " |")
    print("|---|---|---|---|" + "---|" * len(options.files))
    for threads in map(int, options.threads.split(",")):
        torch.set_num_threads(threads)
        ours = [Arenite(options.arenite, file, threads) for file in options.files]
        peers = {}
        for batch in 1, 32:
            peers[f"sentence-transformers, batch {batch}"] = SentenceTransformers(options.folder, batch)
            peers[f"onnxruntime, batch {batch}"] = Onnx(options.folder, batch, threads)
        for tokens in map(int, options.tokens.split(",")):
            texts = texts_of(tokens, max(64, 16384 // tokens))
            taken = {name: [] for name in [*peers, *options.files]}
            for _ in range(options.rounds):
                for file, engine in zip(options.files, ours):
                    taken[file].append(engine.seconds(texts))
                for name, peer in peers.items():
                    taken[name].append(peer.seconds(texts))
            for name in peers:
                cells = []
                for file in options.files:
                    ratios = [theirs / mine for mine, theirs in zip(taken[file], taken[name])]
                    rate = len(texts) / statistics.median(taken[file])
                    cells.append(f"{rate:.0f}, {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
                rate = len(texts) / statistics.median(taken[name])
                print(f"| {threads} | {tokens} | {name} | {rate:.0f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
