"""Lets programs that write code work with `arenite serve`, unattended: each reads a file, corrects a word in it and says so.

    agents.py ARENITE NPM [PACKAGE...]

NPM is a folder with `node_modules`; the packages that npm does not have are in this Python's environment. A model that answers with a script (scripted.py) chooses its next call by the results so far, so that an agent whose
requests, calls or results do not fit the server cannot finish. Prints a table in Markdown."""

import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import scripted
from server import Server

BINARY, NPM = (pathlib.Path(argument).absolute() for argument in sys.argv[1:3])
MODULES = NPM / "node_modules"
TASK = "Read notes.txt and correct the colour of the sky in it."
BEFORE, AFTER, SAID = "The sky is green.\nThe grass is green.\n", "The sky is blue.\nThe grass is green.\n", "The sky is blue now."
# Answers are chosen by the number of results since the task. A request without functions is for a title or a summary.
CHOICE = """{%- set seen = namespace(results=0, last='') -%}
{%- for m in messages if m.role == 'tool' %}{% set seen.results = seen.results + 1 %}{% set seen.last = m.content %}{% endfor -%}
{%- if not tools %}<|answer:title|>
{%- elif seen.results == 0 %}<|answer:read|>
{%- elif seen.results == 1 and 'grass is green' in seen.last %}<|answer:edit|>
{%- elif seen.results == 2 %}<|answer:end|>
{%- else %}<|answer:lost|>{% endif -%}"""


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def change(old, new, **more):
    return more | {old: "sky is green", new: "sky is blue"}


# The functions by the package of the agent. Each returns the calls that read and change `path`, the command, and its
# environment, and writes the agent's settings below `home`.
AGENTS = {}


def agent(package):
    return lambda function: AGENTS.setdefault(package, function)


@agent("@anthropic-ai/claude-code")
def claude_code(url, path, home):
    """`/v1/messages`"""
    edit = call("Edit", file_path=path, **change("old_string", "new_string"))
    command = ["claude", "--print", TASK, "--permission-mode", "acceptEdits", "--model", "scripted"]
    environment = dict(ANTHROPIC_BASE_URL=url, ANTHROPIC_AUTH_TOKEN="none", ANTHROPIC_SMALL_FAST_MODEL="scripted",
                       CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
    return call("Read", file_path=path), edit, command, environment


@agent("@openai/codex")
def codex(url, path, home):
    """`/v1/responses`"""
    settings = (f'model = "scripted"\nmodel_provider = "arenite"\n'
                f'[model_providers.arenite]\nname = "arenite"\nbase_url = "{url}/v1"\nwire_api = "responses"\n')
    write(home / "config.toml", settings)
    shell = lambda text: call("exec_command", cmd=text)
    command = ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK]
    return shell(f"cat {path}"), shell(f"sed -i 's/sky is green/sky is blue/' {path}"), command, dict(CODEX_HOME=str(home))


@agent("opencode-ai")
def opencode(url, path, home):
    """`/v1/chat/completions`"""
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{url}/v1", "apiKey": "none"}, "models": {"scripted": {}}}
    write(home / "opencode.json", json.dumps({"provider": {"arenite": provider}, "permission": "allow", "autoupdate": False}))
    edit = call("edit", filePath=path, **change("oldString", "newString"))
    command = ["opencode", "run", "--model", "arenite/scripted", TASK]
    return call("read", filePath=path), edit, command, dict(OPENCODE_CONFIG=str(home / "opencode.json"))


@agent("@qwen-code/qwen-code")
def qwen_code(url, path, home):
    """`/v1/chat/completions`"""
    edit = call("edit", file_path=path, **change("old_string", "new_string"))
    command = ["qwen", "--prompt", TASK, "--approval-mode", "auto-edit", "--auth-type", "openai"]
    environment = dict(OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY="none", OPENAI_MODEL="scripted")
    return call("read_file", file_path=path), edit, command, environment


@agent("@mariozechner/pi-coding-agent")
def pi(url, path, home):
    """`/v1/chat/completions`"""
    provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "none", "models": [{"id": "scripted"}]}
    write(home / ".pi/agent/models.json", json.dumps({"providers": {"arenite": provider}}))
    edit = call("edit", path=path, edits=[change("oldText", "newText")])
    return call("read", path=path), edit, ["pi", "--print", "--provider", "arenite", "--model", "scripted", TASK], {}


@agent("cline")
def cline(url, path, home):
    """`/v1/chat/completions`"""
    settings = {"provider": "openai-compatible", "apiKey": "none", "model": "scripted", "baseUrl": f"{url}/v1"}
    known = {"openai-compatible": {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}}
    write(home / ".cline/data/settings/providers.json",
          json.dumps({"version": 1, "lastUsedProvider": "openai-compatible", "modes": {}, "providers": known}))
    edit = call("editor", path=path, **change("old_text", "new_text"))
    command = ["cline", "--provider", "openai-compatible", "--model", "scripted", TASK]
    return call("read_files", files=[{"path": path}]), edit, command, {}


@agent("aider-chat")
def aider(url, path, home):
    """`/v1/chat/completions`, changes in text"""
    edit = "notes.txt\n```\n<<<<<<< SEARCH\nThe sky is green.\n=======\nThe sky is blue.\n>>>>>>> REPLACE\n```"
    command = ["aider", "--model", "openai/scripted", "--edit-format", "diff", "--no-git", "--yes-always", "--no-check-update",
               "--no-show-model-warnings", "--analytics-disable", "--message", TASK, path]
    return "", edit, command, dict(OPENAI_API_BASE=f"{url}/v1", OPENAI_API_KEY="none")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def version(package):
    """Returns the installed version, or `None`."""
    described = MODULES / package / "package.json"
    if described.exists():
        return json.loads(described.read_text())["version"]
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def failure(package):
    """Runs an agent. Returns the reason if it fails."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="agent-"))
    home, notes = work / "home", work / "project/notes.txt"
    write(notes, BEFORE)
    home.mkdir()
    model = work / "scripted.gguf"
    read, edit, *_ = AGENTS[package]("", str(notes), home)
    # A program without functions reads changes from the text of the answer.
    title = "Colours" if read else f"{edit}\n{SAID}"
    answers = {"read": read, "edit": edit, "end": SAID, "title": title, "lost": "I am lost."}
    scripted.write(model, answers, CHOICE)
    server = Server(str(BINARY), "-m", str(model), "-c", "65536", "--parallel", "2")
    try:
        *_, command, environment = AGENTS[package](server.url, str(notes), home)
        program = shutil.which(command[0], path=f"{MODULES}/.bin:{sys.prefix}/bin")
        keep = {key: os.environ[key] for key in ("PATH", "LANG", "TERM") if key in os.environ}
        done = subprocess.run([program, *command[1:]], cwd=notes.parent, env=keep | {"HOME": str(home)} | environment, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=300)
        if notes.read_text() != AFTER or SAID not in done.stdout:
            return f"exit {done.returncode}\n{notes.read_text()}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    except subprocess.TimeoutExpired as error:
        return f"{error}\n{(error.stdout or b'')[-2000:]}\n{(error.stderr or b'')[-2000:]}"
    finally:
        server.end()
        shutil.rmtree(work, ignore_errors=True)


def main():
    print("| agent | version | interface | result |\n" + "|---" * 4 + "|")
    failed = 0
    for package in sys.argv[3:] or AGENTS:
        found = version(package)
        why = "not installed" if found is None else failure(package)
        failed += why is not None
        if why is not None:
            print(f"{package}: {why}", file=sys.stderr)
        face = AGENTS[package].__doc__
        print(f"| {package} | {found} | {face} | {'edits the file' if why is None else '**fails**'} |", flush=True)
    sys.exit(f"{failed} agents failed" if failed else 0)


if __name__ == "__main__":
    main()
