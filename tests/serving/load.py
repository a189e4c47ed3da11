"""Measures a server while hostile clients send requests, and in a long run of short requests. Run by hand.

python load.py BINARY attack [SECONDS] [FLAGS OF serve...]
python load.py BINARY kinds [SECONDS] [FLAGS OF serve...]
python load.py BINARY leave [SECONDS] [FLAGS OF serve...]
python load.py BINARY requests [COUNT] [FLAGS OF serve...]
python load.py BINARY small [MIB] [FLAGS OF serve...]

`attack`: four clients with different addresses send 20 hostile requests a second in total: grammars, schemas, many values,
large bodies, bodies that never end, and answers that are not read. Periods with and without hostile requests alternate.
Prints for both kinds of periods the time to the first token of an honest client, percentiles of the time of /health,
and the resident memory beside the bound that the server prints.

`kinds`: sends each kind of hostile request alone, to a server of its own, for SECONDS. Prints a table of the same measurements.

`leave`: 500 clients, each of which sends up to 119 words every two minutes and disconnects at a random moment, beside four
honest ones, each of which asks something new every two seconds. Prints the time to the first token of the honest ones, alone
and beside the others, for a new prompt of some 200 tokens and for one that the server knows; the passes that the server makes
once all have left, and memory.

`requests`: clients send short requests as fast as possible; one in twenty is hostile, one in ten leaves before its answer
ends. Each answer must be the same as on an idle server, and memory must not grow.

`small`: as root, in a memory cgroup of MIB: four conversations of 2000 tokens each, at the same time. The server must not be
killed. Prints the memory of the cgroup.
"""

import http.client
import json
import multiprocessing
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from server import HEADERS

KEY = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
DEFAULTS = {"attack": 300, "kinds": 15, "leave": 600, "requests": 200_000, "small": 256}
GOOD = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
KINDS = [
    GOOD,
    {"prompt": "The little dog said", "max_tokens": 4, "seed": 3},
    {"prompt": "A cat", "max_tokens": 6, "seed": 4, "frequency_penalty": 1.0},
    {"prompt": "A number:", "max_tokens": 6, "seed": 5, "grammar": 'root ::= [0-9]{1,3} "."'},
    {"prompt": "word " * 20, "max_tokens": 2, "temperature": 0},
]


# Words of one token each.
WORDS = "the old man and his dog went to a far town".split()


class Server:
    """A server. Its messages are kept because they state its memory."""

    def __init__(self, binary, *flags, before=None):
        self.log = tempfile.TemporaryFile("w+")
        command = [binary, "serve", "--port", "0", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, preexec_fn=before)
        self.port = int(self.process.stdout.readline().rsplit(":")[-1])

    def printed(self):
        """The printed upper bound of its memory in MiB."""
        self.log.seek(0)
        number, unit = re.search(r"in all up to ([\d.]+) (\w+)", self.log.read()).groups()
        return float(number) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit]

    def memory(self, field="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(field + r":\s+(\d+)", status.read()).group(1)) / 1024

    def end(self):
        self.process.terminate()
        return self.process.wait(60)


def connect(port, source=None, timeout=60):
    return http.client.HTTPConnection("127.0.0.1", port, timeout, source_address=source and (source, 0))


def text(connection, body):
    connection.request("POST", "/v1/completions", json.dumps(body), HEADERS)
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    return answer["choices"][0]["text"]


def slow_requests(chance):
    """Returns requests whose bodies take long to read, by name. Each differs from the others, so that no cache helps."""
    few = chance.randrange(60, 99)
    value = 1
    for _ in range(60):
        value = [value]
    schema = {"pattern": "^(([a-z]{0,%d}x?){0,%d}y?){0,99}$" % (few, few)}
    return {
        "grammar": {"prompt": "x", "grammar": 'root ::= (("a"{0,%d} "b"?){0,%d} "c"?){0,99}' % (few, few)},
        "schema": {"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
        "nested values": {"prompt": [value] * 20_000},
        "long prompt": {"prompt": "word " * 400_000},
        "alternatives": {"prompt": "x", "grammar": 'root ::= "%d"{1,3000} | root2\nroot2 ::= [a-z]{0,%d}' % (few, few)},
        "body of 8 MB": {"prompt": "x" * 7_900_000},
        "many messages": {"messages": [{"role": "user", "content": "x %d" % few}] * 8000},
        "tools": {"messages": [{"role": "user", "content": "x"}], "tools": [
            {"type": "function", "function": {"name": "f%d" % i, "parameters": {"type": "object", "properties": {
                "a%d" % j: {"type": "string", "maxLength": few} for j in range(20)}}}} for i in range(20)],
         "tool_choice": "required"},
        "template": {"messages": [{"role": "user", "content": "<|im_start|>" * 30_000}],
                     "chat_template_kwargs": {"x": [value] * 9000}},
    }


def hostile_requests(chance):
    """Returns by name: path, body, number of bytes to send, and whether the answer is read."""
    requests = {}
    for name, body in slow_requests(chance).items():
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        body = json.dumps(body).encode()
        requests[name] = (path, body, len(body), True)
    for name, size in [("unfinished body", 8_000_000), ("small unfinished body", 65_000)]:
        requests[name] = ("/v1/completions", b" " * size, size - 1, False)
    many = {"prompt": "a", "n": 128, "logprobs": 20, "max_tokens": 200, "ignore_eos": True}
    unread = {
        "unread stream": ("/v1/completions", {**many, "stream": True}),
        "unread answer": ("/v1/completions", many),
        "unread tokens": ("/tokenize", {"content": "a " * 1_000_000}),
    }
    for name, (path, body) in unread.items():
        body = json.dumps(body).encode()
        requests[name] = (path, body, len(body), False)
    return requests


def attacker(port, source, rate, running, seed, only=None):
    """Sends `rate` hostile requests a second from an address while `running` is set: of the kind `only`, or of a random
    kind."""
    chance = random.Random(seed)
    held = []
    jobs = [job for name, job in hostile_requests(chance).items() if only in (None, name)]

    def send(path, body, sent, reads):
        try:
            line = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            line.settimeout(0.5 if not reads else 20)
            line.sendall(head.encode() + body[:sent])
            if reads:
                line.recv(1000)
                line.close()
            else:
                held.append((time.time(), line))
        except OSError:
            pass

    while True:
        if not running.is_set():
            running.wait()
        now = time.time()
        while held and held[0][0] < now - 20:
            held.pop(0)[1].close()
        threading.Thread(target=send, args=chance.choice(jobs), daemon=True).start()
        time.sleep(max(0, 1 / rate - (time.time() - now)))


def first_token(port, prompt=GOOD["prompt"], source=None):
    """Seconds to the first token of a streamed answer, on a connection of its own."""
    began = time.time()
    connection = connect(port, source)
    connection.request("POST", "/v1/completions", json.dumps({**GOOD, "prompt": prompt, "stream": True}), HEADERS)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    for line in response:
        if line.startswith(b"data: "):
            break
    took = time.time() - began
    response.read()
    connection.close()
    return took


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def attackers(port, running, only=None):
    """Starts four clients that send 20 hostile requests a second in total."""
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=attacker, args=(port, f"127.0.0.{seed + 2}", 5, running, seed, only), daemon=True)
              for seed in range(4)]
    [other.start() for other in others]
    return others


def ask_health(port):
    """Returns the seconds until /health answers, on a connection of its own."""
    began = time.time()
    connection = connect(port)
    connection.request("GET", "/health")
    assert connection.getresponse().read().find(b"ok") >= 0
    connection.close()
    return time.time() - began


def kinds(binary, seconds, flags):
    print(f"{'kind':24} first token alone, attacked (ms)   /health at 99 %   MiB at most   after   limit", flush=True)
    for kind in hostile_requests(random.Random(0)):
        server = Server(binary, "--parallel", "8", "-c", "256", *flags)
        said = text(connect(server.port), GOOD)
        alone = [first_token(server.port) for _ in range(30)]
        running = multiprocessing.Event()
        others = attackers(server.port, running, kind)
        running.set()
        time.sleep(1)
        firsts, health, until = [], [], time.time() + seconds
        while time.time() < until:
            firsts.append(first_token(server.port))
            health.append(ask_health(server.port))
            time.sleep(0.02)
        [other.terminate() for other in others]
        assert text(connect(server.port), GOOD) == said
        time.sleep(1)
        print(f"{kind:24} {percentile(alone, .5) * 1e3:17.1f} {percentile(firsts, .5) * 1e3:13.1f}"
              f" {percentile(health, .99) * 1e3:19.1f} {server.memory('VmHWM'):14.0f} {server.memory():7.0f}"
              f" {1.1 * server.printed() + 64:7.0f}", flush=True)
        server.end()


def attack(binary, seconds, flags):
    server = Server(binary, "--parallel", "8", "-c", "256", *flags)
    said = text(connect(server.port), GOOD)
    running = multiprocessing.Event()
    others = attackers(server.port, running)
    firsts, health, busy = {False: [], True: []}, {False: [], True: []}, [False]
    ends = time.time() + seconds

    def watch_health():
        while time.time() < ends:
            before = busy[0]
            health[before].append(ask_health(server.port))
            time.sleep(0.02)

    asks = threading.Thread(target=watch_health)
    asks.start()
    highest = 0
    while time.time() < ends:
        for is_attacked, share in [(False, 0.03), (True, 0.12)]:
            (running.set if is_attacked else running.clear)()
            time.sleep(1 if is_attacked else 3)  # until the attack has its effect, or until the effect is gone
            busy[0] = is_attacked
            until = min(ends, time.time() + seconds * share)
            while time.time() < until:
                firsts[is_attacked].append(first_token(server.port))
                highest = max(highest, server.memory())
                time.sleep(0.05)
            busy[0] = False
    running.clear()
    asks.join()
    [other.terminate() for other in others]
    assert text(connect(server.port), GOOD) == said
    for is_attacked, name in [(False, "alone"), (True, "attacked")]:
        first, asked = firsts[is_attacked], health[is_attacked]
        print(f"{name}: first token {percentile(first, .5) * 1e3:.1f} ms in the middle, {percentile(first, .9) * 1e3:.1f} at"
              f" 90 %, {percentile(first, .99) * 1e3:.1f} at 99 % of {len(first)}; /health {percentile(asked, .5) * 1e3:.1f}"
              f" ms in the middle, {percentile(asked, .99) * 1e3:.1f} at 99 %, {max(asked) * 1e3:.1f} at most of {len(asked)}")
    ratio = percentile(firsts[True], .5) / percentile(firsts[False], .5)
    print(f"first token under attack: {ratio:.2f} times alone")
    peak, most = server.memory("VmHWM"), 1.1 * server.printed() + 64
    time.sleep(2)
    print(f"memory: {peak:.0f} MiB at most (limit {most:.0f}), {server.memory():.0f} MiB after")
    print("end:", server.end())


def leaver(port, source, seed, running):
    """Sends requests for long answers from an address while `running` is set, and disconnects at a random moment of each."""
    chance = random.Random(seed)
    while True:
        running.wait()
        time.sleep(chance.random() * 240)
        words = " ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 120)))
        body = json.dumps({"prompt": words, "max_tokens": 200, "ignore_eos": True, "stream": chance.random() < 0.5})
        try:
            line = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{KEY}Content-Length: {len(body)}\r\n\r\n"
            line.sendall((head + body).encode()[: None if chance.random() < 0.9 else chance.randrange(len(body))])
            time.sleep(chance.random())
            line.close()
        except OSError:
            pass


def leavers(port, running, seed):
    """Runs 125 clients that disconnect, in one process."""
    for i in range(125):
        source = f"127.0.{seed + 1}.{i + 1}"
        threading.Thread(target=leaver, args=(port, source, 1000 * seed + i, running), daemon=True).start()
    threading.Event().wait()


def passes(port):
    connection = connect(port)
    connection.request("GET", "/metrics", headers=HEADERS)
    return int(re.search(r"^arenite_passes_total (\d+)$", connection.getresponse().read().decode(), re.M).group(1))


def leave(binary, seconds, flags):
    server = Server(binary, "--parallel", "8", "-c", "1024", "--api-key", "secret", *flags)
    said = text(connect(server.port), GOOD)
    context, running = multiprocessing.get_context("fork"), multiprocessing.Event()
    others = [context.Process(target=leavers, args=(server.port, running, seed), daemon=True) for seed in range(4)]
    [other.start() for other in others]

    chance = random.Random(1)

    def honest(until, firsts, source):
        while time.time() < until:
            words = " ".join(chance.choice(WORDS) for _ in range(200))
            for kind, prompt in [("new", words), ("known", GOOD["prompt"])]:
                firsts[kind].append(first_token(server.port, prompt, source))
                time.sleep(1)

    def firsts(length):
        times, until = {"new": [], "known": []}, time.time() + length
        each = [threading.Thread(target=honest, args=(until, times, f"127.1.0.{at + 1}")) for at in range(4)]
        [one.start() for one in each]
        [one.join() for one in each]
        return times

    alone = firsts(min(60, seconds / 4))
    running.set()
    time.sleep(5)
    beside, sizes = {"new": [], "known": []}, []
    until = time.time() + seconds
    while time.time() < until:
        more = firsts(min(30, seconds / 4))
        [beside[kind].extend(more[kind]) for kind in beside]
        sizes.append(server.memory())
    running.clear()
    [other.terminate() for other in others]
    time.sleep(0.1)
    before = passes(server.port)
    time.sleep(2)
    after = passes(server.port) - before
    for kind in alone:
        for name, times in [("alone", alone[kind]), ("beside 500 that leave", beside[kind])]:
            print(f"{kind} prompt, {name}: first token {percentile(times, .5) * 1e3:.1f} ms in the middle,"
                  f" {percentile(times, .9) * 1e3:.1f} at 90 %, {percentile(times, .99) * 1e3:.1f} at 99 % of {len(times)}")
        print(f"{kind} prompt: {percentile(beside[kind], .5) / percentile(alone[kind], .5):.2f} times alone")
    print(f"passes after all have left, from 0.1 s on: {after}")
    print(f"memory: {' '.join(f'{size:.0f}' for size in sizes)} MiB, limit {1.1 * server.printed() + 64:.0f}")
    assert text(connect(server.port), GOOD) == said
    print("end:", server.end())


def short_requests(port, count, seed, alone, failed, done):
    """Sends requests one after the other, and counts answers that differ from those of an idle server."""
    chance = random.Random(seed)
    hostile = [json.dumps(body).encode() for body in slow_requests(chance).values() if "messages" not in body]
    hostile = [body for body in hostile if len(body) < 200_000] + [b"{", b"[" * 5000, b'{"prompt": 3}', b"\xff" * 100]
    connection = connect(port)
    for i in range(count):
        kind = chance.randrange(len(KINDS))
        try:
            if chance.random() < 0.05:
                connection.request("POST", "/v1/completions", chance.choice(hostile), HEADERS)
                response = connection.getresponse()
                response.read()
                # Status 200 is right, too: a long grammar may be within the server's limits.
                if response.status not in (200, 400, 413):
                    failed.value += 1
                    print("hostile:", response.status)
            elif chance.random() < 0.1:
                body = json.dumps({**KINDS[kind], "stream": True})
                connection.request("POST", "/v1/completions", body, HEADERS)
                if chance.random() < 0.5:
                    connection.getresponse().read(10)
                connection.close()
            elif text(connection, KINDS[kind]) != alone[kind]:
                failed.value += 1
        except (OSError, http.client.HTTPException) as error:
            # The server may close a connection after an invalid request.
            connection.close()
            if not isinstance(error, (ConnectionError, http.client.HTTPException)):
                failed.value += 1
                print(repr(error))
        done[seed] = i + 1


def requests(binary, count, flags):
    server = Server(binary, "--parallel", "8", "-c", "256", *flags)
    alone = [text(connect(server.port), kind) for kind in KINDS]
    clients = 12
    failed, done = multiprocessing.Value("i", 0), multiprocessing.Array("i", clients)
    context = multiprocessing.get_context("fork")
    each = [context.Process(target=short_requests, args=(server.port, count // clients, seed, alone, failed, done))
            for seed in range(clients)]
    began = time.time()
    [one.start() for one in each]
    next_look = 0
    while any(one.is_alive() for one in each):
        time.sleep(0.5)
        if sum(done) >= next_look:
            print(f"{sum(done)} requests in {time.time() - began:.0f} s, {server.memory():.1f} MiB", flush=True)
            next_look = 2000 if sum(done) < 2000 else sum(done) + count // 10
    time.sleep(1)
    print(f"{sum(done)} requests in {time.time() - began:.0f} s: {failed.value} wrong; {server.memory():.1f} MiB,"
          f" {server.memory('VmHWM'):.1f} at most, limit {1.1 * server.printed() + 64:.0f}")
    assert [text(connect(server.port), kind) for kind in KINDS] == alone
    print("end:", server.end())


class Cgroup:
    """A memory cgroup with a limit, of version 1 or 2."""

    def __init__(self, mib):
        root = Path("/sys/fs/cgroup/memory")
        self.is_old = root.exists()
        self.path = (root if self.is_old else root.parent) / f"arenite-{os.getpid()}"
        self.path.mkdir()
        limits = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"] if self.is_old else ["memory.max"]
        for limit in limits:
            if (self.path / limit).exists():
                (self.path / limit).write_text(str(mib << 20))

    def enter(self):
        (self.path / "cgroup.procs").write_text("0")

    def printed(self):
        names = ["memory.max_usage_in_bytes", "memory.failcnt", "memory.oom_control"]
        names = names if self.is_old else ["memory.peak", "memory.events"]
        return ", ".join(f"{name}: {(self.path / name).read_text().strip()}" for name in names).replace("\n", " ")


def small(binary, mib, flags):
    group = Cgroup(mib)
    server = Server(binary, "--parallel", "4", "-c", "2048", *flags, before=group.enter)
    said = text(connect(server.port), GOOD)
    lengths, failed = [], []

    def talk(at):
        chance = random.Random(at)
        words = " ".join(chance.choice("the old man and his dog went to a far town".split()) for _ in range(600))
        messages = []
        for turn in range(3):
            messages.append({"role": "user", "content": f"{words} {at} {turn}"})
            connection = connect(server.port, f"127.2.0.{at + 1}", 600)
            body = {"messages": messages, "max_tokens": 40, "temperature": 0, "ignore_eos": True}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), HEADERS)
            answer = json.loads(connection.getresponse().read())
            if "choices" not in answer:
                failed.append(answer)
                return
            messages.append(answer["choices"][0]["message"])
        lengths.append(answer["usage"]["total_tokens"])

    each = [threading.Thread(target=talk, args=(at,)) for at in range(4)]
    [one.start() for one in each]
    [one.join() for one in each]
    print(f"conversations of {lengths} tokens, failed: {failed}; {server.memory('VmHWM'):.0f} MiB at most")
    print(group.printed())
    assert text(connect(server.port), GOOD) == said
    print("end:", server.end())
    group.path.rmdir()


if __name__ == "__main__":
    binary, mode, *rest = sys.argv[1:]
    amount = int(rest.pop(0)) if rest and rest[0].isdigit() else DEFAULTS[mode]
    {"attack": attack, "kinds": kinds, "leave": leave, "requests": requests, "small": small}[mode](binary, amount, rest)
