"""Runs many clients at once, some of which disconnect: each answer has the same bytes as without other clients, and memory
does not grow.

python crowd.py BINARY [SECONDS]
"""

import json
import random
import sys
import threading
import time

from server import Server

binary, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 10
# /metrics has the counter `prompt_tokens_total` only if the server has a key.
server = Server(binary, "--parallel", "8", "-c", "256", "--api-key", "secret")

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"]}
KINDS = [
    {"prompt": "Once upon a time", "max_tokens": 20, "temperature": 0},
    {"prompt": "The little dog said", "max_tokens": 30, "seed": 3},
    {"prompt": "Once upon a time there was a cat", "max_tokens": 10, "seed": 4, "frequency_penalty": 1.0},
    {"prompt": "A number:", "max_tokens": 60, "seed": 5, "temperature": 1.5,
     "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    {"prompt": "A list:", "max_tokens": 60, "temperature": 0, "grammar": 'root ::= ("- " [a-z]{2,6} "\\n"){3}'},
    {"prompt": "word " * 60, "max_tokens": 5, "temperature": 0},
]

alone = [server.text(kind) for kind in KINDS]
assert 0 <= json.loads(alone[3])["n"] <= 99
wrong, served, left = [], [0], [0]
lock = threading.Lock()


def client(seed, until):
    chance = random.Random(seed)
    while time.time() < until:
        kind = chance.randrange(len(KINDS))
        if chance.random() < 0.1:
            for _ in server.stream(KINDS[kind]):
                break
            with lock:
                left[0] += 1
            continue
        said = server.text(KINDS[kind])
        with lock:
            served[0] += 1
        if said != alone[kind]:
            wrong.append((kind, said))


sizes = []
# 64 clients run twice: in the second run memory must not grow, because everything has been allocated once.
for clients in [1, 8, 32, 64, 64]:
    before = served[0]
    until = time.time() + seconds / 5
    threads = [threading.Thread(target=client, args=(clients * 1000 + seed, until)) for seed in range(clients)]
    [thread.start() for thread in threads]
    time.sleep(min(1, seconds / 8))
    early = server.memory()
    [thread.join() for thread in threads]
    assert not wrong, wrong[:3]
    print(f"{clients} clients: {served[0] - before} answers, {early} kB after a second, {server.memory()} kB at the end")
    sizes.append(server.memory())
    assert sizes[-1] - early < 2048, "memory grows while the same number of clients ask"
assert sizes[-1] - sizes[-2] < 512, "memory grows"
assert server.text(KINDS[0]) == alone[0]

# If a prompt is repeated, only its last token is computed again.
base = {"prompt": "a b c d e f g h " * 10, "max_tokens": 2, "temperature": 0}
counts = [server.metric("prompt_tokens_total")]
for _ in range(2):
    server.answer(base)
    counts.append(server.metric("prompt_tokens_total"))
assert counts[2] - counts[1] == 1, counts
print(f"a prompt of {counts[1] - counts[0]} tokens, and again: {counts[2] - counts[1]} computed")
server.end()
print(f"{served[0]} answers, {left[0]} left in the middle")
