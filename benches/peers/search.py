"""Compares `arenite index` and `arenite search` with sentence-transformers: see `.ci/real search`.

search.py ARENITE MODELS DIRECTORY

MODELS has the folder minilm and minilm.gguf (all-MiniLM-L6-v2). The texts are 2000 files of documentation in source packages of
PyPI, which are downloaded to DIRECTORY. `questions.tsv` has questions, each with the file that answers it. Both programs embed the
passages of `arenite index`. Prints a table; the exit code is 1 if a question has other passages.
"""

import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request

import gguf
import numpy
import torch
from pip._internal.models.index import PyPI
from sentence_transformers import SentenceTransformer

HERE = pathlib.Path(__file__).resolve().parent
ARENITE = sys.argv[1]
MODELS, DIRECTORY = map(pathlib.Path, sys.argv[2:])
PACKAGES = """django-5.2.19 flask-3.1.3 celery-5.7.0 sqlalchemy-2.1.9 pytest-9.2.0 click-8.5.1 scrapy-2.19.0 pillow-13.0.0
    werkzeug-3.1.9 tornado-6.6 sphinx-9.2.0 mypy-2.4.1 black-26.5.1 twisted-26.4.0 numpy-2.5.5 dask-2026.8.0 xarray-2026.9.0
    salt-3008.5 buildbot-4.3.0 pyramid-2.1 docutils-0.9 falcon-4.4.0 kombu-5.7.0 ipython-9.9.0 distributed-2026.8.0
    scikit_image-0.26.0 setuptools-84.2.1 starlette-1.9.0 aiohttp-3.9.5 gunicorn-27.0.1 anyio-4.9.0 zarr-3.4.2 attrs-26.1.0
    alembic-1.9.4 jinja2-3.1.6 nbconvert-7.9.2 marshmallow-4.4.0 pyzmq-27.3.0 jupyter_server-2.9.1 ansible_core-2.21.5""".split()
# Words of paths that have no documentation for readers.
OTHERS = "release changelog /internals/ locale /test /_ whats changes history news requirements /fixtures".split()
FILES = 2000


def download(package):
    """Unpacks the source of a package, without running its code."""
    name = package.rsplit("-", 1)[0]
    address = f"{os.environ.get('PIP_INDEX_URL', PyPI.simple_url)}/{name.replace('_', '-')}/"
    form = {"Accept": "application/vnd.pypi.simple.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(address, headers=form)) as page:
        files, base = json.load(page)["files"], page.url
    url = next(file["url"] for file in files if file["filename"] == f"{package}.tar.gz")
    with urllib.request.urlopen(urllib.parse.urljoin(base, url)) as source, tarfile.open(fileobj=source, mode="r|gz") as tar:
        tar.extractall(DIRECTORY / "sources", filter="data")


def choose(answers):
    """Copies the texts of documentation, `answers` among them, to the folder `docs`."""
    sources, docs = DIRECTORY / "sources", DIRECTORY / "docs"
    known, texts = set(), {}
    for path in sorted(path for end in ("rst", "txt", "md") for path in sources.rglob(f"*.{end}")):
        name = str(path.relative_to(sources))
        if "/doc" not in name or any(other in name.lower() for other in OTHERS) or not 400 <= path.stat().st_size <= 16000:
            continue
        text = path.read_bytes()
        if hashlib.sha256(text).digest() not in known:
            known.add(hashlib.sha256(text).digest())
            texts[name] = text
    others = sorted(set(texts) - answers)
    random.Random(5).shuffle(others)
    for name in sorted(answers | set(others[: FILES - len(answers)])):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_bytes(texts[name])
    shutil.rmtree(sources)


def index(file):
    """Runs `arenite index`. Returns its seconds, and the most memory that it had in MB."""
    began = time.time()
    command = [ARENITE, "index", DIRECTORY / "docs", "-m", MODELS / "minilm.gguf", "-o", file]
    subprocess.run(command, check=True)
    return time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000


def passages(file):
    """The passages of an index: the file and the text of each, and their vectors."""
    reader = gguf.GGUFReader(file)
    paths, counts, texts = (reader.fields[f"index.{name}"].contents() for name in ("paths", "passages", "texts"))
    owners = [path for path, count in zip(paths, counts) for _ in range(count)]
    return list(zip(owners, texts)), reader.tensors[0].data.reshape(len(texts), -1)


def main():
    questions = [line.split("\t") for line in (HERE / "questions.tsv").read_text().splitlines()]
    if not (DIRECTORY / "docs").is_dir():
        [download(package) for package in PACKAGES]
        choose({file for _, file in questions})
    file = DIRECTORY / "docs.index"
    file.unlink(missing_ok=True)
    (first, memory), (again, _) = index(file), index(file)
    texts, vectors = passages(file)

    torch.set_num_threads(2)
    model = SentenceTransformer(str(MODELS / "minilm"), device="cpu")
    began = time.time()
    expected = model.encode([text for _, text in texts], normalize_embeddings=True)
    theirs = time.time() - began
    their_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000

    equal = found = expected_found = 0
    began = time.time()
    for question, answer in questions:
        lines = subprocess.run([ARENITE, "search", file, question, "--json"], capture_output=True, text=True, check=True).stdout
        ours = [(line["file"], line["text"]) for line in map(json.loads, lines.splitlines())]
        scores = expected @ model.encode([question], normalize_embeddings=True)[0]
        nearest = [texts[at] for at in numpy.argsort(-scores, kind="stable")[:5]]
        equal += ours == nearest
        found += answer in (name for name, _ in ours)
        expected_found += answer in (name for name, _ in nearest)
        if ours != nearest:
            print("other passages:", question)
    print("| | Arenite | sentence-transformers |\n|---|---|---|")
    print(f"| recall@5 of {len(questions)} questions | {found} | {expected_found} |")
    print(f"| seconds for {len(texts)} passages of {FILES} files | {first:.1f} | {theirs:.1f} |")
    print(f"| seconds if no file has changed | {again:.1f} | |")
    print(f"| MB of memory | {memory:.0f} | {their_memory:.0f} |")
    print(f"{equal} questions with equal passages; largest difference of a value {numpy.abs(vectors - expected).max():.1e}")
    sys.exit(equal != len(questions))


main()
