"""Compares decisions with generation under a JSON schema: accuracy and time over sentences.tsv.

    python3 compare.py MODEL [ARENITE]

ARENITE is the program [default: target/release/arenite]. Prints a table in Markdown. The model answers one request at a
time on one thread; the prompts' common beginning is cached for both.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL = sys.argv[1]
ARENITE = sys.argv[2] if len(sys.argv) > 2 else HERE.parent.parent / "target/release/arenite"
ROWS = [line.split("\t") for line in (HERE / "sentences.tsv").read_text().splitlines()]
TOPICS = sorted({topic for _, topic in ROWS})
ASKED = "Which topic is the sentence about?"


def decided(post, sentence):
    question = {"type": "choice", "instructions": ASKED, "criteria": dict.fromkeys(TOPICS)}
    return post("/v1/systemone", {"state": sentence, "questions": {"topic": question}})["answers"]["topic"]["choice"]


def generated(post, sentence):
    schema = {"type": "object", "properties": {"topic": {"enum": TOPICS}}, "required": ["topic"]}
    text = f"{sentence}\n\nOptions:\n" + "".join(f"- {topic}\n" for topic in TOPICS) + f"\n{ASKED} Answer in JSON."
    body = {
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 40,
        "response_format": {"type": "json_schema", "json_schema": {"name": "topic", "schema": schema}},
    }
    answer = post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
    try:
        return json.loads(answer)["topic"]
    except ValueError:
        return None


def main():
    command = [ARENITE, "serve", "-m", MODEL, "--port", "0", "--decide", "any", "-t", "1"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    base = server.stdout.readline().split()[-1].rstrip("/")

    def post(path, body):
        request = urllib.request.Request(base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    def processor():
        """Seconds of processor time of the server: less noisy than time on a busy machine."""
        user, system = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    try:
        print("| | right of", len(ROWS), "| seconds | of processor time |\n|---|---|---|---|")
        for name, ask in [("`decide`", decided), ("generation under a JSON schema", generated)]:
            ask(post, "A first sentence.")
            start, busy = time.perf_counter(), processor()
            right = sum(ask(post, sentence) == topic for sentence, topic in ROWS)
            print(f"| {name} | {right} | {time.perf_counter() - start:.1f} | {processor() - busy:.1f} |", flush=True)
    finally:
        server.terminate()


main()
