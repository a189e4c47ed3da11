"""Checks `arenite` beside llama.cpp on real models: see `.ci/real`.

real.py ARENITE DIRECTORY [CHECK...]

DIRECTORY has smollm2.gguf, gemma3.gguf and the folder minilm. Without a CHECK, all checks run. Prints a table for
README.md; the exit code is 1 if a check failed.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import jinja2
import jinja2.sandbox
import jsonschema
import numpy

import texts
from peer import TYPES, Llama, as_f32

HERE = pathlib.Path(__file__).resolve().parent
ARENITE, MODELS = sys.argv[1], pathlib.Path(sys.argv[2])
NAMES = {"smollm2": "SmolLM2 135M Instruct, Q4_1", "gemma3": "Gemma 3 270M, Q4_K_M", "minilm": "all-MiniLM-L6-v2, F32"}
DECODERS = ["smollm2", "gemma3"]
# Maximum KL to llama.cpp with weights and cache in F32. For Gemma, llama.cpp takes GELU from a table of F16 values: over
# 256 tokens it differs from a forward pass in F64 (numpy) by 4.0e-7, and by 3.2e-11 if compiled without GGML_GELU_FP16.
NEAR = {"smollm2": 1e-9, "gemma3": 2e-6}

# Number of tokens of prose.txt over which KL is averaged.
TOKENS = 1024

failures = []


def arenite(*arguments, stdin=None):
    done = subprocess.run([ARENITE, *map(str, arguments)], input=stdin, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"arenite {' '.join(map(str, arguments))[:200]}: {done.stderr.strip()}")
    return done.stdout


def row(model, what, ours, theirs, is_right):
    if not is_right:
        failures.append((model, what))
    print(f"| {NAMES[model]} | {what} | {ours} | {theirs} |{'' if is_right else ' **wrong**'}", flush=True)


def file_of(name):
    return MODELS / f"{name}.gguf"


def exact_file(name):
    """A file with the weights of the model decoded to F32. The first call writes the file."""
    path = MODELS / f"{name}-F32.gguf"
    if not path.exists():
        new = path.with_suffix(".new")
        as_f32(file_of(name), new)
        new.rename(path)
    return path


def tokens(model, lines, *flags):
    out = arenite("tokenize", "-m", model, "--jsonl", *flags, stdin="".join(json.dumps(line) + "\n" for line in lines))
    return [json.loads(line) for line in out.splitlines()]


def check_ids():
    """Compares the ids of 3000 texts over many scripts with llama.cpp's."""
    lines = list(texts.mixed(3000))
    for name in DECODERS:
        model = Llama(file_of(name))
        wrong = [line for line, ids in zip(lines, tokens(file_of(name), lines)) if model.tokenize(line) != ids]
        model.close()
        row(name, "ids of 3000 texts that are equal", 3000 - len(wrong), "", not wrong)
        for line in wrong[:3]:
            print(f"  {line!r}", file=sys.stderr)


def our_logits(path, ids, kv):
    with tempfile.NamedTemporaryFile(suffix=".npy", dir=MODELS) as out:
        arenite("logits", "-m", path, "--ids", ",".join(map(str, ids)), "--all", "--kv", kv, "-t", 1, "-o", out.name)
        return numpy.load(out.name)


def log_softmax(logits):
    logits = logits.astype(numpy.float64)
    logits -= logits.max()
    return logits - numpy.log(numpy.exp(logits).sum())


def divergence(logits, reference):
    """Mean Kullback-Leibler divergence from the reference, over all positions."""
    total = 0.0
    for found, wanted in zip(logits, reference):
        found, wanted = log_softmax(found), log_softmax(wanted)
        total += float((numpy.exp(wanted) * (wanted - found)).sum())
    return total / len(reference)


def prose(model, count):
    ids = model.tokenize((HERE / "prose.txt").read_text(), add_special=True)
    assert len(ids) >= count
    return ids[:count]


def check_kl():
    """Measures the divergence from the logits of the same weights in F32, over 1024 tokens, with each type of cache."""
    for name in DECODERS:
        path, exact = Llama(file_of(name)), Llama(exact_file(name))
        ids = prose(path, TOKENS)
        wanted = exact.logits(ids)
        error = divergence(our_logits(exact_file(name), ids, "f32"), wanted)
        row(name, "KL to llama.cpp, weights and cache in F32", f"{error:.1e}", "", error < NEAR[name])
        for kv in TYPES:
            ours, theirs = divergence(our_logits(file_of(name), ids, kv), wanted), divergence(path.logits(ids, kv), wanted)
            row(name, f"KL to F32, cache {kv}", f"{ours:.5f}", f"{theirs:.5f} ({ours / theirs:.2f})", ours <= 1.15 * theirs)
        path.close()
        exact.close()


def check_cache():
    """Measures the divergence of a quantized cache from the f16 cache, with weights in F32."""
    for name in DECODERS:
        exact = Llama(exact_file(name))
        ids = prose(exact, TOKENS)
        wanted = our_logits(exact_file(name), ids, "f16"), exact.logits(ids, "f16")
        for kv in ("q8_0", "q4_0"):
            ours = divergence(our_logits(exact_file(name), ids, kv), wanted[0])
            theirs = divergence(exact.logits(ids, kv), wanted[1])
            row(name, f"KL of cache {kv} to f16, weights in F32", f"{ours:.2e}", f"{theirs:.2e} ({ours / theirs:.2f})", ours <= 1.1 * theirs)
        exact.close()


QUESTIONS = [
    "Write a short poem about the sea.", "What is the largest planet in our solar system?", "Explain what a compiler does.",
    "Name three fruits and their colours.", "How do I boil an egg?", "Translate 'good morning' to French.",
    "Who wrote Hamlet?", "What is 12 plus 30?", "Give me a title for a story about a lost dog.", "Why is the sky blue?",
]


def rendered(messages):
    """Renders the prompt with the template in the file."""
    template = arenite_template()
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True, bos_token="<|im_start|>", eos_token="<|im_end|>")


def arenite_template():
    import gguf

    return gguf.GGUFReader(file_of("smollm2")).fields["tokenizer.chat_template"].contents()


def near_tie(exact, prompt, ours, theirs):
    """The index at which two continuations of `prompt` differ first, and the difference of the two tokens' exact logits
    there (0 if the continuations do not differ)."""
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a != b:
            last = exact.logits(prompt + ours[:i])[-1]
            return i, abs(float(last[a] - last[b]))
    return min(len(ours), len(theirs)), 0.0


def check_chat():
    """Checks that prompts are rendered as by the template, and that greedy answers differ from llama.cpp's only where
    the exact logits of two tokens are nearly equal."""
    path, exact = Llama(file_of("smollm2")), Llama(exact_file("smollm2"))
    equal, largest, prompts = 0, 0.0, 0
    for question in QUESTIONS:
        messages = [{"role": "user", "content": question}]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps(messages))
            file.flush()
            prompts += arenite("chat", "-m", file_of("smollm2"), "--messages", file.name, "--print-prompt") == rendered(messages)
        prompt = path.tokenize(rendered(messages), parse_special=True)
        theirs = path.greedy(prompt, 60)
        ours = json.loads(arenite("generate", "-m", file_of("smollm2"), "--ids", ",".join(map(str, prompt)), "-n", 60,
                                  "--temp", 0, "--format", "ids"))
        length, gap = near_tie(exact, prompt, ours, theirs)
        equal += ours == theirs
        largest = max(largest, gap)
    path.close()
    exact.close()
    row("smollm2", "prompts equal to the template's, of 10", prompts, "", prompts == len(QUESTIONS))
    row("smollm2", "greedy answers of 60 tokens equal, of 10; largest difference of exact logits where they part",
        f"{equal}; {largest:.2f}", "", largest < 0.5)


SCHEMAS = [
    ("Describe a person.", {"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "email": {"type": ["string", "null"], "maxLength": 30}}, "required": ["name", "age", "email"], "additionalProperties": False}),
    ("Plan a meal.", {"type": "object", "properties": {
        "dish": {"type": "string", "maxLength": 40}, "minutes": {"type": "integer", "minimum": 1, "maximum": 300},
        "ingredients": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 2, "maxItems": 5}},
        "required": ["dish", "minutes", "ingredients"], "additionalProperties": False}),
    ("Is it going to rain?", {"type": "object", "properties": {
        "answer": {"enum": ["yes", "no", "maybe"]}, "chance": {"type": "number", "minimum": 0, "maximum": 1}},
        "required": ["answer", "chance"], "additionalProperties": False}),
    ("When was the moon landing?", {"type": "object", "properties": {
        "date": {"type": "string", "format": "date"}, "crew": {"type": "array", "items": {"$ref": "#/$defs/person"}, "maxItems": 3}},
        "required": ["date", "crew"], "additionalProperties": False, "$defs": {"person": {
            "type": "object", "properties": {"first": {"type": "string", "maxLength": 15}, "last": {"type": "string", "maxLength": 15}},
            "required": ["first", "last"], "additionalProperties": False}}}),
    ("Pick a shape.", {"anyOf": [
        {"type": "object", "properties": {"circle": {"type": "number", "minimum": 0}}, "required": ["circle"], "additionalProperties": False},
        {"type": "object", "properties": {"square": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["square"], "additionalProperties": False}]}),
]


def check_schema():
    """Checks that answers under JSON schemas are valid."""
    lines = []
    for seed in range(8):
        for i, (question, schema) in enumerate(SCHEMAS):
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
            body = {"messages": [{"role": "user", "content": question}], "response_format": form, "seed": seed, "temperature": 0.8, "max_tokens": 400}
            lines.append({"custom_id": f"{i}-{seed}", "method": "POST", "url": "/v1/chat/completions", "body": body})
    out = arenite("batch", "-m", file_of("smollm2"), "-i", "-", "-o", "-", stdin="".join(json.dumps(line) + "\n" for line in lines))
    valid = 0
    for line in out.splitlines():
        answer = json.loads(line)
        try:
            text = answer["response"]["body"]["choices"][0]["message"]["content"]
            jsonschema.validate(json.loads(text), SCHEMAS[int(answer["custom_id"].split("-")[0])][1], format_checker=jsonschema.FormatChecker())
            valid += 1
        except Exception as error:
            print(f"  {line}: {error}", file=sys.stderr)
    row("smollm2", f"answers valid under {len(SCHEMAS)} JSON schemas, of {len(lines)}", valid, "", valid == len(lines))


FACT = "The password of the old lighthouse is 48213."


def check_context():
    """Checks that a fact among 4000 tokens is found, at five depths, wherever llama.cpp finds it."""
    for name in DECODERS:
        model = Llama(file_of(name))
        found, missed = [0, 0], []
        for depth in (0.05, 0.25, 0.5, 0.75, 0.95):
            sentences, length, at = [], 0, None
            for sentence in texts.ledger():
                if at is None and length >= depth * 4000:
                    at = len(sentences)
                    sentences.append(FACT)
                sentences.append(sentence)
                length += len(model.tokenize(" " + sentence))
                if length >= 4000:
                    break
            text = " ".join(sentences)
            if name == "smollm2":
                prompt = rendered([{"role": "user", "content": text + "\n\nWhat is the password of the old lighthouse?"}])
            else:
                prompt = text + " And now we remember it: the password of the old lighthouse is"
            ids = model.tokenize(prompt, add_special=name != "smollm2", parse_special=True)
            theirs = "48213" in model.text(model.greedy(ids, 24))
            ours = arenite("generate", "-m", file_of(name), "--ids", ",".join(map(str, ids)), "-n", 24, "--temp", 0, "-c", len(ids) + 24,
                           "--format", "ids", "-t", 1)
            ours = "48213" in model.text(json.loads(ours))
            found[0] += ours
            found[1] += theirs
            if theirs and not ours:
                missed.append(depth)
        model.close()
        row(name, "a fact found among 4000 tokens, of 5 depths", *found, not missed)


def check_embeddings():
    """Compares ids and embeddings of all-MiniLM-L6-v2, converted by `arenite convert hf`, with transformers'."""
    import torch
    import transformers

    folder, path = MODELS / "minilm", MODELS / "minilm.gguf"
    path.unlink(missing_ok=True)
    arenite("convert", "hf", folder, path)
    lines = [line.strip() for line in texts.mixed(30, seed=2)]
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder)
    wanted = []
    for line in lines:
        inputs = tokenizer(line, return_tensors="pt")
        with torch.no_grad():
            states = model(**inputs).last_hidden_state[0]
        wanted.append(torch.nn.functional.normalize(states.mean(0), dim=0).numpy())
    ids = tokens(path, lines, "--add-special")
    equal = sum(found == tokenizer(line)["input_ids"] for found, line in zip(ids, lines))
    row("minilm", "ids of 30 texts equal to transformers'", equal, "", equal == len(lines))
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        arenite("embed", "-m", path, "--jsonl", "-o", out.name, stdin="".join(json.dumps(line) + "\n" for line in lines))
        found = numpy.load(out.name)
    largest = float(numpy.abs(found - numpy.array(wanted)).max())
    row("minilm", "embeddings of 30 texts: largest difference to transformers", f"{largest:.1e}", "", largest < 1e-5)


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


def main():
    print("| model | check | Arenite | llama.cpp (ratio) |\n|---|---|---|---|")
    for name in sys.argv[3:] or CHECKS:
        CHECKS[name]()
    if failures:
        sys.exit(f"{len(failures)} checks failed")


main()
