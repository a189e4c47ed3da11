"""Compares decisions with generation under a JSON schema: accuracy and time over sentences.tsv.

    python3 compare.py MODEL [ARENITE]

ARENITE is the program [default: target/release/arenite]. Prints a table in Markdown. The model answers one request at a
time on one thread; the prompts' common beginning is cached for all.
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


QUESTION = {"type": "choice", "instructions": ASKED, "criteria": dict.fromkeys(TOPICS)}
OPTIONS = "Options:\n" + "".join(f"- {topic}\n" for topic in TOPICS)


def decided(post, sentences):
    body = {"questions": {"topic": QUESTION}}
    answers = [post("/v1/systemone", {**body, "state": sentence})["answers"] for sentence in sentences]
    return [answer["topic"]["choice"] for answer in answers]


def decided_together(post, sentences):
    answers = post("/v1/systemone", {"states": sentences, "questions": {"topic": QUESTION}})["answers"]
    return [answer["topic"]["choice"] for answer in answers]


def generated(form):
    """Generation under a schema; `form` has the place of the sentence."""
    schema = {"type": "object", "properties": {"topic": {"enum": TOPICS}}, "required": ["topic"]}

    def one(post, sentence):
        body = {
            "messages": [{"role": "user", "content": form.format(sentence)}],
            "temperature": 0,
            "max_tokens": 40,
            "response_format": {"type": "json_schema", "json_schema": {"name": "topic", "schema": schema}},
        }
        answer = post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
        try:
            return json.loads(answer)["topic"]
        except ValueError:
            return None

    return lambda post, sentences: [one(post, sentence) for sentence in sentences]


WAYS = {
    "`decide`, a request for each sentence": decided,
    "`decide`, all sentences in one request": decided_together,
    "generation under a JSON schema": generated(f"{{}}\n\n{OPTIONS}\n{ASKED} Answer in JSON."),
    "the same, the question before the sentence": generated(f"{OPTIONS}\n{ASKED} Answer in JSON.\n\n{{}}"),
}


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
        for name, ask in WAYS.items():
            ask(post, ["A first sentence."])
            start, busy = time.perf_counter(), processor()
            answers = ask(post, [sentence for sentence, _ in ROWS])
            right = sum(answer == topic for answer, (_, topic) in zip(answers, ROWS))
            print(f"| {name} | {right} | {time.perf_counter() - start:.1f} | {processor() - busy:.1f} |", flush=True)
    finally:
        server.terminate()


main()
