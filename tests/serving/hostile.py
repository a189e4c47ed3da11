"""Sends bad requests, incomplete requests and ten thousand connections, and checks that the next client is served.

python hostile.py BINARY [CONNECTIONS]
"""

import resource
import socket
import sys
import time

from server import Server

binary, connections = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
server = Server(binary, "--parallel", "2", "-c", "256")
GOOD = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
said = server.text(GOOD)

for body, path, status in [
    (b"", "/v1/completions", 400),
    (b"{", "/v1/completions", 400),
    (b"\xff\xfe", "/v1/completions", 400),
    (b"[" * 100_000, "/v1/completions", 400),
    (b"[]", "/v1/chat/completions", 400),
    (b"{}", "/v1/chat/completions", 400),
    (b'{"messages": 3}', "/v1/chat/completions", 400),
    (b'{"messages": [{"role": 3}]}', "/v1/chat/completions", 400),
    (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "/v1/chat/completions", 400),
    (b'{"messages": [{"role": "user", "content": "x"}], "tools": [3]}', "/v1/chat/completions", 400),
    (b'{"prompt": 3}', "/v1/completions", 400),
    (b'{"prompt": [4294967295]}', "/v1/completions", 400),
    (b'{"prompt": "x", "max_tokens": "many"}', "/v1/completions", 400),
    (b'{"prompt": "x", "max_tokens": -1}', "/v1/completions", 400),
    (b'{"prompt": "x", "max_tokens": 1e400}', "/v1/completions", 400),
    (b'{"prompt": "x", "temperature": "hot"}', "/v1/completions", 400),
    (b'{"prompt": "x", "n": 1000000}', "/v1/completions", 400),
    (b'{"prompt": "x", "logit_bias": {"-1": 1}}', "/v1/completions", 400),
    (b'{"prompt": "x", "grammar": "root ::= root"}', "/v1/completions", 400),
    (b'{"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}',
     "/v1/completions", 400),
    (b'{"prompt": "x", "model": "gpt"}', "/v1/completions", 404),
    (b'{"prompt": "' + b"word " * 1000 + b'"}', "/v1/completions", 400),
    (b'{"input": "x"}', "/v1/embeddings", 400),
    (b'{"tokens": "x"}', "/detokenize", 400),
    (b"{}", "/tokenize", 400),
    (b"{}", "/v1/other", 404),
    (b"{}", "/v1/models", 405),
    (b'"' + b"x" * 10_000_000 + b'"', "/v1/completions", 413),
]:
    try:
        found, answer = server.post(path, body)
    except (BrokenPipeError, ConnectionResetError):
        assert status == 413, body[:60]  # closed before the whole body was sent
        continue
    assert found == status, (body[:60], found, answer)
    assert answer["error"]["message"] and answer["error"]["type"].endswith("_error"), answer
    assert {"param", "code"} <= set(answer["error"])
    assert server.text(GOOD) == said

for raw in [b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"X-Long: " + b"x" * 1_000_000 + b"\r\n\r\n"]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
        try:
            line.sendall(raw)
            line.shutdown(socket.SHUT_WR)
            answer = line.recv(1000)
        except OSError:
            answer = b""  # closed
        assert not answer or b" 4" in answer.split(b"\r\n")[0], answer
assert server.text(GOOD) == said

# Sockets that send nothing, half a head, or a head without a body.
HALVES = [b"", b"POST /v1/comp", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"]
began = time.time()
held, slowest = [], 0
for i in range(connections):
    half = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    try:
        half.sendall(HALVES[i % 3])
    except ConnectionError:
        pass  # closed to make room
    held.append(half)
    if i % 500 == 499:
        start = time.time()
        assert server.text(GOOD) == said
        slowest = max(slowest, time.time() - start)
assert server.text(GOOD) == said
print(f"{connections} connections held in {time.time() - began:.1f} s; clients that came meanwhile were served within {slowest:.2f} s")
[half.close() for half in held]
assert server.text(GOOD) == said
print(f"all refused, {server.memory()} kB")
server.end()
