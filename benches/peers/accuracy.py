"""Compares the accuracy of both engines on quantized files: accuracy.py ARENITE DIRECTORY...

Each directory has a model.gguf in F32 and a ref.json with prompts, as written by tests/fixtures/families.py. `arenite quantize`
converts the model to Q8_0 and Q4_K_M, and both engines compute the logits of all positions from these files.

The exact result is computed by `arenite` from the same weights in F32, decoded by the gguf package. Its F32 results are within
3e-6 of transformers (tests/suite/reference.rs). The error of llama.cpp on the F32 file is printed as well.

The error is the relative L2 error over all positions of all prompts and of random texts. Many positions are needed
because a router that chooses another expert causes a large difference.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy

from peer import Llama, as_f32

# The number of random texts, and their length in tokens.
TEXTS, LENGTH = 32, 64

def ours(arenite, path, ids):
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        ids = ",".join(map(str, ids))
        subprocess.run([arenite, "logits", "-m", path, "--ids", ids, "--all", "--kv", "f32", "-o", out.name],
                       check=True, capture_output=True)
        return numpy.load(out.name)


def theirs(path, prompts):
    try:
        model = Llama(path)
    except ValueError:
        return None
    found = numpy.concatenate([model.logits(ids) for ids in prompts])
    model.close()
    return found


def main():
    arenite, cases = sys.argv[1], [pathlib.Path(case) for case in sys.argv[2:]]
    error = lambda x, exact: "-" if x is None else float(numpy.linalg.norm(x - exact) / numpy.linalg.norm(exact))
    show = lambda x: x if isinstance(x, str) else f"{x:.2e}"
    print("| model | type | arenite | llama.cpp | ratio | llama.cpp in F32 |\n|---|---|---|---|---|---|")
    for case in cases:
        prompts = [prompt["ids"] for prompt in json.loads((case / "ref.json").read_text())["prompts"]]
        words = len(gguf.GGUFReader(case / "model.gguf").fields["tokenizer.ggml.tokens"].data)
        prompts += numpy.random.default_rng(1).integers(3, words, (TEXTS, LENGTH)).tolist()
        for kind in ("Q8_0", "Q4_K_M"):
            with tempfile.TemporaryDirectory() as directory:
                small, large = pathlib.Path(directory) / f"{kind}.gguf", pathlib.Path(directory) / "F32.gguf"
                done = subprocess.run([arenite, "quantize", case / "model.gguf", small, kind], capture_output=True, text=True)
                if done.returncode:
                    print(f"| {case.name} | {kind} | {done.stderr.strip()} | | | |", flush=True)
                    continue
                as_f32(small, large)
                all_ours = lambda path: numpy.concatenate([ours(arenite, path, ids) for ids in prompts])
                exact = all_ours(large)
                own, other = error(all_ours(small), exact), error(theirs(small, prompts), exact)
                ratio = "-" if "-" in (own, other) else f"{own / other:.2f}"
                print(f"| {case.name} | {kind} | {show(own)} | {show(other)} | {ratio} | {show(error(theirs(large, prompts), exact))} |",
                      flush=True)


main()
