"""Runs EleutherAI's lm-eval on two small tasks of its own through `arenite serve`, and compares with llama.cpp: see `.ci/real`.

evaluation.py BINARY MODEL

The exit code is 1 if a figure differs from llama.cpp's by more than 0.5 %.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy

from server import Server

PEERS = pathlib.Path(__file__).resolve().parents[2] / "benches/peers"
sys.path.append(str(PEERS))
from peer import Llama  # noqa: E402

BINARY, MODEL = sys.argv[1:]
# Without these variables, an offline program waits for the hub.
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none", "TOKENIZERS_PARALLELISM": "false"}


def documents():
    """Returns two tasks: the last word of 40 passages, and the next sentence of 10 passages, of four choices."""
    text = (PEERS / "prose.txt").read_text().replace("\n", " ")
    sentences = [sentence.strip() for sentence in re.findall(r"[^.!?]+[.!?]", text) if len(sentence.split()) > 5]
    choose = random.Random(1)
    words, following = [], []
    for at in range(2, len(sentences)):
        before, word = sentences[at].rstrip(".!?").rsplit(" ", 1)
        words.append({"text": " ".join([*sentences[at - 2:at], before]), "word": " " + word})
        others = choose.sample([other for other in sentences if other != sentences[at]], 3)
        answer = choose.randrange(4)
        choices = others[:answer] + [sentences[at]] + others[answer:]
        following.append({"text": " ".join(sentences[at - 2:at]), "choices": choices, "answer": answer})
    return {"last_word": words[:40], "next_sentence": following[:10]}


def write(folder, tasks):
    common = "dataset_path: json\ntest_split: test\ndoc_to_text: '{{text}}'\nmetadata:\n  version: 1.0\n"
    own = {
        "last_word": "output_type: loglikelihood\ndoc_to_target: '{{word}}'\ntarget_delimiter: ''\nmetric_list:\n  - metric: perplexity\n  - metric: acc\n",
        "next_sentence": "output_type: multiple_choice\ndoc_to_choice: '{{choices}}'\ndoc_to_target: answer\nmetric_list:\n  - metric: acc\n",
    }
    for name, docs in tasks.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
        (folder / f"{name}.yaml").write_text(f"task: {name}\ndataset_kwargs:\n  data_files:\n    test: {path}\n{common}{own[name]}")


def evaluate(folder, backend, arguments):
    out = folder / backend
    command = [pathlib.Path(sys.executable).with_name("lm_eval"), "--model", backend, "--model_args", arguments,
               "--tasks", "last_word,next_sentence", "--include_path", folder, "--output_path", out]
    done = subprocess.run(list(map(str, command)), env={**ENVIRONMENT, "HF_HOME": str(folder / "home")}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{backend}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    results = json.loads(next(out.rglob("results*.json")).read_text())["results"]
    return results["last_word"]["perplexity,none"], results["last_word"]["acc,none"], results["next_sentence"]["acc,none"]


def reference(tasks):
    """Computes the same figures with llama.cpp."""
    model = Llama(MODEL)

    def score(context, continuation):
        start, ids = len(model.tokenize(context)), model.tokenize(context + continuation)
        logits = model.logits(ids[:-1], "f16")[start - 1:].astype(numpy.float64)
        logits -= logits.max(1, keepdims=True)
        logits -= numpy.log(numpy.exp(logits).sum(1, keepdims=True))
        return logits[range(len(logits)), ids[start:]].sum(), (logits.argmax(1) == ids[start:]).all()

    words = [score(doc["text"], doc["word"]) for doc in tasks["last_word"]]
    right = [int(numpy.argmax([score(doc["text"], " " + choice)[0] for choice in doc["choices"]])) == doc["answer"]
             for doc in tasks["next_sentence"]]
    return float(numpy.exp(-numpy.mean([score for score, _ in words]))), float(numpy.mean([best for _, best in words])), float(numpy.mean(right))


def main():
    tasks = documents()
    wanted = reference(tasks)
    server = Server(BINARY, "-m", MODEL, "--parallel", "2")
    print("| lm-eval through | last word: perplexity | accuracy | next sentence: accuracy |\n|---|---|---|---|")
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write(folder, tasks)
        for backend, arguments in [
            ("local-completions", f"model=default,base_url={server.url}/v1/completions,tokenizer_backend=remote,max_length=2048"),
            ("gguf", f"base_url={server.url}"),
        ]:
            found = evaluate(folder, backend, arguments)
            print(f"| {backend} | " + " | ".join(f"{figure:.4f}" for figure in found) + " |", flush=True)
            wrong += [backend for ours, theirs in zip(found, wanted) if abs(ours - theirs) > 0.005 * theirs]
    print("| llama.cpp | " + " | ".join(f"{figure:.4f}" for figure in wanted) + " |")
    server.end()
    sys.exit(f"more than 0.5 % apart: {', '.join(wrong)}" if wrong else 0)


main()
