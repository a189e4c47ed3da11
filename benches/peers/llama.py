"""Measures one round of llama.cpp: llama.py MODEL THREADS PREFILL DECODE CONTEXT

Prints the fields of `arenite bench --json` that compare.py reads. PREFILL 1 with DECODE 0 measures the time to the first
token.
"""

import json
import sys
import time

import llama_cpp
import numpy


def anonymous_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def main():
    model_path, threads, prefill, decode, length = sys.argv[1], *map(int, sys.argv[2:6])
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, None)
    before = anonymous_bytes()

    start = time.perf_counter()
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(model_path.encode(), llama_cpp.llama_model_default_params())
    if not model:
        sys.exit(f"llama.cpp cannot load {model_path}")
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = length
    parameters.n_batch = 512
    parameters.n_threads = threads
    parameters.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, parameters)
    loaded = time.perf_counter() - start

    words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    ids = numpy.random.default_rng(1).integers(0, words, max(prefill, decode, 1))

    def run(tokens):
        batch = (llama_cpp.llama_token * len(tokens))(*map(int, tokens))
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(batch, len(tokens))) != 0:
            sys.exit("llama_decode failed")
        llama_cpp.llama_synchronize(context)

    def forget():
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)

    run(ids[:prefill])
    logits = llama_cpp.llama_get_logits_ith(context, -1)
    numpy.ctypeslib.as_array(logits, (words,)).argmax()
    first = time.perf_counter() - start

    seconds = {}
    if decode:
        for counted in (False, True):
            forget()
            start = time.perf_counter()
            run(ids[:prefill])
            seconds["prefill"] = time.perf_counter() - start
            forget()
            start = time.perf_counter()
            for token in ids[:decode]:
                run([token])
            seconds["decode"] = time.perf_counter() - start
    result = {
        "threads": threads,
        "load_ms": loaded * 1e3,
        "first_token_ms": first * 1e3,
        "python_bytes": before,
        "memory_bytes": anonymous_bytes(),
    }
    if decode:
        result["prefill_tok_s"] = prefill / seconds["prefill"]
        result["decode_tok_s"] = decode / seconds["decode"]
    print(json.dumps({"results": [result]}))


main()
