"""Crowds and bad clients against `arenite serve`, with nothing but the standard library: python crowd.py BINARY [SECONDS]."""

import http.client
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

binary, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 10
server = subprocess.Popen([binary, "serve", "--port", "0", "--parallel", "8", "-c", "256"], stdout=subprocess.PIPE, text=True)
port = int(re.match(r"listening on http://127.0.0.1:(\d+)$", server.stdout.readline()).group(1))


def post(path, body, raw=False):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, body if raw else json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"]}
KINDS = [
    {"prompt": "Once upon a time", "max_tokens": 20, "temperature": 0},
    {"prompt": "The little dog said", "max_tokens": 30, "seed": 3},
    {"prompt": "Once upon a time there was a cat", "max_tokens": 10, "seed": 4, "frequency_penalty": 1.0},
    {"prompt": "A number:", "max_tokens": 60, "seed": 5, "temperature": 1.5,
     "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    {"prompt": "word " * 60, "max_tokens": 5, "temperature": 0},
]


def text_of(kind):
    status, answer = post("/v1/completions", KINDS[kind])
    assert status == 200, answer
    return answer["choices"][0]["text"]


def rss():
    with open(f"/proc/{server.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))


alone = [text_of(kind) for kind in range(len(KINDS))]
assert 0 <= json.loads(alone[3])["n"] <= 99
wrong, served, left = [], [0], [0]


def client(seed, until):
    chance = random.Random(seed)
    while time.time() < until:
        kind = chance.randrange(len(KINDS))
        if chance.random() < 0.1:
            # Leaves in the middle of a stream.
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps({**KINDS[kind], "stream": True}))
            connection.getresponse().read(50)
            connection.close()
            left[0] += 1
            continue
        said = text_of(kind)
        served[0] += 1
        if said != alone[kind]:
            wrong.append((kind, said))


memory = None
for clients in [1, 8, 32, 64]:
    before = served[0]
    until = time.time() + seconds / 4
    threads = [threading.Thread(target=client, args=(seed, until)) for seed in range(clients)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong, wrong[:3]
    print(f"{clients} clients: {served[0] - before} answers, {rss()} kB")
time.sleep(0.5)
status, _ = post("/v1/completions", KINDS[0])
assert status == 200

for body, path, status in [
    (b"{", "/v1/completions", 400),
    (b"[]", "/v1/chat/completions", 400),
    (b'{"prompt": 3}', "/v1/completions", 400),
    (b'{"prompt": "x", "max_tokens": "many"}', "/v1/completions", 400),
    (b'{"prompt": "x", "model": "gpt"}', "/v1/completions", 404),
    (b'{"prompt": "' + b"word " * 1000 + b'"}', "/v1/completions", 400),
    (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "/v1/chat/completions", 400),
    (b"{}", "/v1/other", 404),
    (b'"' + b"x" * 10_000_000 + b'"', "/v1/completions", 413),
]:
    try:
        found, answer = post(path, body, raw=True)
        assert found == status and answer["error"]["message"], (body[:40], found, answer)
        print(found, answer["error"]["message"])
    except (BrokenPipeError, ConnectionResetError):
        assert status == 413

sockets = []
for i in range(300):
    half = socket.create_connection(("127.0.0.1", port))
    half.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n" if i % 2 else b"POST /v1/comp")
    sockets.append(half)
assert text_of(0) == alone[0]
[half.close() for half in sockets]

# What begins alike is read once.
metrics = http.client.HTTPConnection("127.0.0.1", port)


def cached():
    metrics.request("GET", "/metrics")
    return int(re.search(r"^arenite_prompt_tokens_total (\d+)$", metrics.getresponse().read().decode(), re.M).group(1))


base = "a b c d e f g h " * 10
text_before = cached()
post("/v1/completions", {"prompt": base, "max_tokens": 2, "temperature": 0})
first = cached() - text_before
post("/v1/completions", {"prompt": base, "max_tokens": 2, "temperature": 0})
again = cached() - text_before - first
assert again == 1, (first, again)
print(f"a prompt of {first} tokens, and again: {again} computed")

server.send_signal(signal.SIGTERM)
assert server.wait(30) == 0
print(f"{served[0]} answers, {left[0]} left in the middle")
