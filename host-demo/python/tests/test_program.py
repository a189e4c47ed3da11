"""Tests the command `arenite` of the installed package: it does what the program does that ARENITE names."""

import fcntl
import json
import os
import pathlib
import pty
import signal
import struct
import subprocess
import sys
import sysconfig
import termios
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).parents[3]
STORIES = ROOT / "host-demo/models/stories.gguf"
EMBEDDER = ROOT / "tests/fixtures/jina_bert_v2/model.gguf"

PROGRAM = [os.environ["ARENITE"]]
SCRIPT = [os.path.join(sysconfig.get_path("scripts"), "arenite")]
MODULE = [sys.executable, "-m", "arenite"]
WAYS = pytest.mark.parametrize("way", [SCRIPT, MODULE], ids=["script", "module"])

COMMANDS = [
    (["--version"], b"", 0),
    (["serve", "--help"], b"", 0),
    ([], b"", 2),
    (["generate", "--nonsense"], b"", 2),
    (["generate", "-p", b"a\xffb"], b"", 2),
    (["inspect", b"a\xffb.gguf"], b"", 1),
    (["generate", "-m", "missing.gguf"], b"", 1),
    (["tokenize", "-m", STORIES, "--json"], "One day: \u0906\u092e".encode(), 0),
    (["generate", "-m", STORIES, "-p", "-", "-n", "9", "--seed", "3"], b"One day", 0),
    (["chat", "-m", STORIES, "--temp", "0", "-n", "9"], b"Once\nTwice\n", 0),
    (["embed", "-m", EMBEDDER, "-p", "a text"], b"", 0),
]


@WAYS
@pytest.mark.parametrize(("args", "given", "code"), COMMANDS[:2] + COMMANDS[3:], ids=lambda value: None)
def test_output_and_exit_codes_are_those_of_the_program(way, args, given, code):
    by_program, ran = (subprocess.run([*way, *args], input=given, capture_output=True) for way in (PROGRAM, way))
    assert (ran.stdout, ran.returncode) == (by_program.stdout, by_program.returncode)
    assert ran.returncode == code
    if code:
        assert ran.stderr == by_program.stderr


def test_a_missing_text_is_told_apart_from_a_story():
    # Without a command, the program reads a pipe and tells a story on a terminal.
    by_program, ran = (subprocess.run(way, input=b"", capture_output=True) for way in (PROGRAM, SCRIPT))
    assert ran.returncode == by_program.returncode and len(ran.stderr) > 0


def test_a_closed_pipe_is_no_error():
    story = subprocess.Popen([*SCRIPT, "generate", "-n", "4000", "--ignore-eos"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert story.stdout.read(20)
    story.stdout.close()
    assert (story.wait(timeout=20), b"rror" in story.stderr.read()) == (0, False)


@WAYS
@pytest.mark.parametrize("given", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it(way, given):
    waiting = subprocess.Popen([*way, "generate", "--ignore-eos", "-n", "100000000", "--context-shift"], **PIPES)
    assert waiting.stdout.read(20)
    sent = time.monotonic()
    waiting.send_signal(given)
    waiting.stdout.read()
    code = waiting.wait(timeout=20)
    assert code in ([130] if given == signal.SIGINT else [143, -signal.SIGTERM])
    assert time.monotonic() - sent < 0.2 * SLOW
    assert b"Traceback" not in waiting.stderr.read()


PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
# A machine that does other work takes longer.
SLOW = 5


def get(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=60) as answer:
        return json.load(answer)


def children(parent):
    """The processes that a process has started."""
    stats = (pathlib.Path(path) for path in pathlib.Path("/proc").glob("[0-9]*/stat"))
    found = []
    for stat in stats:
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@WAYS
def test_several_models_are_served(way, tmp_path):
    # Python would import this file in place of the package.
    (tmp_path / "arenite.py").write_text("raise SystemExit('the wrong module')")
    models = ["-m", STORIES, "-m", EMBEDDER, "--alias", "teller", "--alias", "embedder"]
    where = tmp_path if way is SCRIPT else ROOT
    server = subprocess.Popen([*way, "serve", *models, "--port", "0", "-c", "256"], cwd=where, **PIPES)
    try:
        url = server.stdout.readline().decode().split()[-1]
        told = get(url + "/v1/completions", {"model": "teller", "prompt": "One day", "max_tokens": 8})
        assert told["usage"]["completion_tokens"] == 8
        assert get(url + "/v1/embeddings", {"model": "embedder", "input": "a text"})["data"][0]["embedding"]
        processes = children(server.pid)
        assert len(processes) == 2
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0
        end = time.monotonic() + 20
        while any(pathlib.Path(f"/proc/{process}").exists() for process in processes):
            assert time.monotonic() < end, "the models' processes go on"
            time.sleep(0.05)
        assert b"Traceback" not in server.stderr.read()
    finally:
        server.kill()


def on_terminal(command, columns):
    """The output of a command on a terminal of this width."""
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
        os.execv(command[0], command)
    output = b""
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # Linux reports the end this way.
            read = b""
        if not read:
            break
        output += read
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    return output


@WAYS
def test_it_knows_the_terminal(way, tmp_path):
    shown = on_terminal([*way, "chat", "--help"], 64)
    assert shown == on_terminal([*PROGRAM, "chat", "--help"], 64)
    assert shown != on_terminal([*way, "chat", "--help"], 90)
    # A progress bar.
    quantized = on_terminal([*way, "quantize", str(STORIES), str(tmp_path / "q.gguf"), "q4_0", "--allow-requantize"], 64)
    assert b"\x1b[" in quantized or b"\r" in quantized


def test_python_does_not_import_numpy_for_it():
    code = "import sys, arenite.__main__; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
