"""Tests the installed package. `.ci/publish python` runs them in a fresh environment; ARENITE is the program to compare with."""

import json
import os
import pathlib
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
        (lambda: model.embed("x"), arenite.Error, "embedding"),
        (lambda: model.json("x", "{"), arenite.Error, "JSON"),
    ]:
        with pytest.raises(error, match=words):
            call()


def test_ctrl_c_stops_an_answer():
    code = (
        "import arenite, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it\n"
        f"model = arenite.Model({str(STORIES)!r}, context=512)\n"
        "print('ready', flush=True)\n"
        "while True: model.generate('One day', max_tokens=500).text()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in child.communicate(timeout=20)[1]
    finally:
        child.kill()


def test_the_module_runs_the_program():
    ran = subprocess.run([sys.executable, "-m", "arenite", "--version"], check=True, capture_output=True, text=True)
    assert ran.stdout.startswith("arenite ")
