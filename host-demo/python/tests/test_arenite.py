"""Tests the library. `.ci/publish python` runs it from a fresh environment; ARENITE is the program to compare with."""

import copy
import json
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time

import arenite
import numpy
import pydantic
import pytest

ROOT = pathlib.Path(__file__).parents[3]
STORIES = ROOT / "host-demo/models/stories.gguf"
EMBEDDER = ROOT / "tests/fixtures/jina_bert_v2/model.gguf"
CLASSIFIER = ROOT / "host-demo/models/faults.gguf"


def program(*args):
    return subprocess.run([os.environ["ARENITE"], *map(str, args)], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def model():
    return arenite.Model(STORIES)


def test_a_text_equals_that_of_the_program(model):
    answer = model.generate("One day, a little fox", max_tokens=40, seed=7)
    parts = list(answer)
    told = json.loads(program("generate", "-m", STORIES, "-p", "One day, a little fox", "-n", "40", "--seed", "7", "--format", "json"))
    assert "".join(parts) == told["text"] and len(parts) > 10
    assert answer.end == "length" and answer.usage == (len(told["prompt_ids"]), 40)
    assert model.generate("One day, a little fox", max_tokens=40, seed=7).text() == told["text"]


def test_threads_get_the_answers_that_they_get_alone(model):
    alone = [model.chat(f"Story {n}", max_tokens=20, seed=n).text() for n in range(4)]
    together = [None] * 4

    def run(n):
        together[n] = model.chat([{"role": "user", "content": f"Story {n}"}], max_tokens=20, seed=n).text()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert together == alone


def test_json_matches_its_schema(model):
    class Pet(pydantic.BaseModel):
        kind: str = pydantic.Field(pattern="^(cat|dog)$")
        age: int = pydantic.Field(ge=1, le=9)

    pet = model.json("Her pet:", Pet, seed=1, max_tokens=200)
    assert isinstance(pet, Pet)
    assert model.json("Her pet:", {"enum": ["cat", "dog"]}) in ["cat", "dog"]


def test_vectors_are_arrays():
    model = arenite.Model(EMBEDDER)
    vectors = model.embed(["a text", "another one"])
    assert vectors.dtype == numpy.float32 and vectors.shape[0] == 2
    assert numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (model.embed("a text") == vectors[0]).all()
    long = "a text of many words " * 400
    with pytest.raises(arenite.Error, match="tokens"):
        model.embed(["a text", long])
    told = json.loads(program("embed", "-m", EMBEDDER, "--truncate", "-p", long))
    assert numpy.allclose(model.embed(["a text", long], truncate=True)[1], told, atol=1e-6)


def test_classes_and_decisions(model):
    classes = arenite.Model(CLASSIFIER).classify("pump 3 pressure low")
    assert abs(sum(score for _, score in classes) - 1) < 1e-6 and classes[0][1] == max(score for _, score in classes)
    question = {"pet": {"type": "choice", "instructions": "Who barks?", "criteria": {"cat": None, "dog": None}}}
    assert set(model.decide("Tim had two pets.", question)["answers"]["pet"]["probabilities"]) == {"cat", "dog"}


def test_tokens_give_their_text(model):
    assert model.detokenize(model.tokenize("Once upon a time"))[-16:] == "Once upon a time"


def test_errors_name_what_is_wrong(model):
    for call, error, words in [
        (lambda: arenite.Model("missing.gguf"), arenite.Error, "missing.gguf"),
        (lambda: arenite.Model(STORIES, kv="f8"), ValueError, "q8_0"),
        (lambda: model.generate("x", temprature=1), TypeError, "temprature"),
        (lambda: model.chat([{"role": "robot", "content": "x"}]), ValueError, "robot"),
        (lambda: model.chat([]), arenite.Error, "no messages"),
        (lambda: arenite.Model(EMBEDDER).generate("x"), arenite.Error, "embedding"),
        (lambda: arenite.Model(STORIES, parallel=0), arenite.Error, "parallel"),
        (lambda: arenite.Model(STORIES, lora="missing.lora"), arenite.Error, "missing.lora"),
        (lambda: model.json("x", "{"), arenite.Error, "JSON"),
    ]:
        with pytest.raises(error, match=words):
            call()


def test_settings_are_those_of_llama_cpp(model):
    settings = {"max_tokens": 20, "seed": 3, "min_p": 0.2, "frequency_penalty": 0.5, "presence_penalty": 0.25, "top_k": -1}
    flags = ["-n", 20, "--seed", 3, "--min-p", 0.2, "--frequency-penalty", 0.5, "--presence-penalty", 0.25, "--top-k", 0]
    told = json.loads(program("generate", "-m", STORIES, "-p", "One day", *flags, "--format", "json"))["text"]
    assert model.generate("One day", **settings).text() == told
    # -1: no limit, and a random seed.
    assert len({model.generate("One day", max_tokens=8, seed=-1, temperature=2).text() for _ in range(8)}) > 1
    assert model.generate("One day", max_tokens=-1, stop=["."], seed=1).text()


def test_a_schema_constrains_a_stream(model):
    schema = {"type": "array", "items": {"enum": ["cat", "dog"]}, "minItems": 2, "maxItems": 2}
    parts = list(model.generate("Her pets:", schema=schema, seed=1))
    assert len(parts) > 1 and set(json.loads("".join(parts))) <= {"cat", "dog"}
    with pytest.raises(arenite.Error, match="cut off"):
        model.json("Her pets:", schema, max_tokens=2)


def test_messages_have_texts(model):
    text = model.chat("Tell a story.", max_tokens=8, seed=1).text()
    parts = [{"role": "user", "content": [{"type": "text", "text": "Tell a story."}]}]
    assert model.chat(parts, max_tokens=8, seed=1).text() == text
    for content in [None, [], [{"type": "image_url"}], 7]:
        with pytest.raises(TypeError, match="content"):
            model.chat([{"role": "user", "content": content}])
    with pytest.raises(TypeError, match="list"):
        model.rerank("query", "a text, not a list")


def test_a_copy_is_the_model_and_a_pickle_opens_it_again(model):
    assert copy.copy(model) is model and copy.deepcopy([model])[0] is model
    again = pickle.loads(pickle.dumps(arenite.Model(STORIES, context=64)))
    assert again.context == 64 and "context=64" in repr(again)
    assert again.generate("One day", max_tokens=8, seed=1).text() == model.generate("One day", max_tokens=8, seed=1).text()


def in_a_fork(model, answers):
    try:
        answers.put(model.generate("One day", max_tokens=8).text())
    except arenite.Error as error:
        answers.put(str(error))
    del model


def test_a_forked_process_gets_an_error():
    model = arenite.Model(STORIES)
    begun = multiprocessing.get_context("fork")
    answers = begun.Queue()
    child = begun.Process(target=in_a_fork, args=(model, answers))
    child.start()
    try:
        assert "forked" in answers.get(timeout=20)
        child.join(timeout=20)
        assert child.exitcode == 0
    finally:
        child.kill()
    assert model.generate("One day", max_tokens=8).text()


CALLS = [
    (STORIES, "while True: model.generate('One day', max_tokens=500).text()"),
    (STORIES, "while True: model.json('x', {'type': 'array', 'items': {'type': 'string', 'minLength': 40}, 'minItems': 8})"),
    (STORIES, "while True: model.decide('word ' * 200, {str(n): {'type': 'noul', 'instructions': 'Is it?'} for n in range(250)})"),
    (EMBEDDER, "model.embed(['a text of some words'] * 1_000_000)"),
]


@pytest.mark.parametrize(("path", "call"), CALLS)
def test_ctrl_c_stops(path, call):
    code = (
        "import arenite, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it\n"
        f"model = arenite.Model({str(path)!r}, context=512)\n"
        "print('ready', flush=True)\n"
        f"{call}\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in child.communicate(timeout=20)[1]
    finally:
        child.kill()


def test_type_checkers_know_the_settings(tmp_path):
    mypy = pytest.importorskip("mypy.api")
    (tmp_path / "right.py").write_text(
        "import arenite, numpy, pydantic\n"
        "class Pet(pydantic.BaseModel):\n    name: str\n"
        "model = arenite.Model('x', context=512)\n"
        "text: str = model.chat([{'role': 'user', 'content': 'x'}], max_tokens=3, stop='a').text()\n"
        "pet: Pet = model.json('x', Pet, seed=1)\n"
        "length: int = model.embed('x').shape[0]\n"
    )
    (tmp_path / "wrong.py").write_text("import arenite\narenite.Model('x').generate('x', temprature=1)\n")
    assert mypy.run(["--strict", str(tmp_path / "right.py")])[2] == 0, mypy.run(["--strict", str(tmp_path / "right.py")])[0]
    assert "temprature" in mypy.run([str(tmp_path / "wrong.py")])[0]
