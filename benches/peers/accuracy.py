"""Compares the accuracy of both engines on quantized files: accuracy.py ARENITE DIRECTORY...

Each directory has a model.gguf in F32 and a ref.json with prompts, as written by tests/fixtures/families.py. `arenite quantize`
converts the model to Q8_0 and Q4_K_M, and both engines compute the logits of all positions from these files.

The exact result is computed by `arenite` from the same weights in F32, decoded by the gguf package. Its F32 results are within
3e-6 of transformers (tests/suite/reference.rs). The error of llama.cpp on the F32 file is printed as well.

The error is relative L2 over all positions of all prompts and of random texts. Many positions are needed because a router
that chooses another expert causes a large difference.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy

# The number of random texts, and their length in tokens.
TEXTS, LENGTH = 32, 64

QUIET = llama_cpp.llama_log_callback(lambda *_: None)
llama_cpp.llama_log_set(QUIET, None)


def as_f32(source, path):
    """Writes a copy of the file with its weights decoded to F32."""
    file = gguf.GGUFReader(source)
    out = gguf.GGUFWriter(path, file.fields["general.architecture"].contents())
    for name, field in file.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            out.add_key_value(name, field.contents(), kind, sub_type=field.types[-1])
        else:
            out.add_key_value(name, field.contents(), kind)
    for tensor in file.tensors:
        out.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def ours(arenite, path, ids):
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        ids = ",".join(map(str, ids))
        subprocess.run([arenite, "logits", "-m", path, "--ids", ids, "--all", "--kv", "f32", "-o", out.name],
                       check=True, capture_output=True)
        return numpy.load(out.name)


def theirs(path, prompts):
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    if not model:
        return None
    words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 512
    parameters.n_threads = parameters.n_threads_batch = 1
    parameters.flash_attn_type = 0
    parameters.type_k = parameters.type_v = int(gguf.GGMLQuantizationType.F32)
    found = []
    for ids in prompts:
        context = llama_cpp.llama_init_from_model(model, parameters)
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        assert llama_cpp.llama_decode(context, batch) == 0
        found += [numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (words,)).copy()
                  for i in range(len(ids))]
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return numpy.array(found)


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
