"""Measures `arenite serve` with many clients over HTTP, beside llama.cpp decoding the same number of sequences in one batch.

serve.py BINARY MODEL THREADS [CLIENTS,...]      tokens per second of all clients together
serve.py BINARY MODEL THREADS first              time to the first token while a long prompt is processed
serve.py BINARY MODEL THREADS shared             tokens that a second conversation with the same beginning computes
serve.py BINARY MODEL THREADS beside LLAMA_SERVER [CLIENTS,...]     both servers with 1, 8, 32 clients
"""

import http.client
import json
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/serving"))

TOKENS = 64


def prompt(count, seed):
    """A prompt of `count` token ids. (The number of tokens of a text would depend on the vocabulary.)"""
    return [100 + (7919 * seed + 104729 * i) % 10000 for i in range(count)]


def ours(binary, model, threads, clients, length):
    from server import Server

    server = Server(binary, "-m", model, "-t", str(threads), "--parallel", str(clients), "-c", "256")
    server.text({"prompt": "Warm", "max_tokens": 2, "temperature": 0})

    def ask(i):
        body = {"prompt": prompt(length, i), "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        assert server.answer(body)["usage"]["completion_tokens"] == TOKENS

    start = time.perf_counter()
    asking = [threading.Thread(target=ask, args=(i,)) for i in range(clients)]
    [thread.start() for thread in asking]
    [thread.join() for thread in asking]
    seconds = time.perf_counter() - start
    server.end()
    return clients * TOKENS / seconds


def theirs(model, threads, sequences, steps=12):
    """Tokens per second of decoding alone, without prompts and HTTP. Runs in a separate process."""
    import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, None)
    llama_cpp.llama_backend_init()
    loaded = llama_cpp.llama_model_load_from_file(model.encode(), llama_cpp.llama_model_default_params())
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = sequences * 256
    parameters.n_batch = parameters.n_ubatch = 512
    parameters.n_seq_max = sequences
    parameters.n_threads = parameters.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(loaded, parameters)
    batch = llama_cpp.llama_batch_init(512, 0, 1)

    def step(position):
        batch.n_tokens = sequences
        for i in range(sequences):
            batch.token[i], batch.pos[i] = 100 + (7 * i + 13 * position) % 10000, position
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, i, 1
        assert llama_cpp.llama_decode(context, batch) == 0
        llama_cpp.llama_synchronize(context)

    for position in range(4):
        step(position)
    start = time.perf_counter()
    for position in range(4, 4 + steps):
        step(position)
    return sequences * steps / (time.perf_counter() - start)


def first(binary, model, threads):
    from server import Server

    server = Server(binary, "-m", model, "-t", str(threads), "--parallel", "4", "-c", "2560")
    short = {"max_tokens": 1, "temperature": 0}

    def ask(tokens):
        start = time.perf_counter()
        next(server.stream({**short, "prompt": tokens}))
        return time.perf_counter() - start

    ask(prompt(12, 0))
    alone = [ask(prompt(12, i)) for i in range(1, 8)]
    long_alone = ask(prompt(2000, 6))
    meanwhile, long_beside = [], []
    asking = threading.Thread(target=lambda: long_beside.append(ask(prompt(2000, 7))))
    asking.start()
    time.sleep(0.3)
    i = 100
    while asking.is_alive():
        seconds = ask(prompt(12, i))
        if asking.is_alive():
            meanwhile.append(seconds)
        i += 1
        time.sleep(0.37)
    server.end()
    a, b = statistics.median(alone), statistics.median(meanwhile)
    print(f"threads {threads}: first token alone {a * 1e3:.0f} ms ({min(alone) * 1e3:.0f} to {max(alone) * 1e3:.0f}); "
          f"beside 2000 tokens {b * 1e3:.0f} ms ({min(meanwhile) * 1e3:.0f} to {max(meanwhile) * 1e3:.0f}, "
          f"{len(meanwhile)} times): {b / a:.2f} times; these alone {long_alone:.1f} s, beside the short ones "
          f"{long_beside[0]:.1f} s")


def shared(binary, model, threads):
    from server import Server

    server = Server(binary, "-m", model, "-t", str(threads), "--parallel", "2", "-c", "1536")
    system = prompt(1000, 1)

    def ask(tokens):
        before, start = server.metric("prompt_tokens_total"), time.perf_counter()
        usage = server.answer({"prompt": tokens, "max_tokens": 2, "temperature": 0})["usage"]
        print(f"  {usage['prompt_tokens']} tokens, {usage['prompt_tokens_details']['cached_tokens']} cached, "
              f"{server.metric('prompt_tokens_total') - before} computed, {time.perf_counter() - start:.2f} s")

    for tokens in [system + prompt(7, 2), system + prompt(9, 3), system + prompt(9, 3)]:
        ask(tokens)
    server.end()


def loaded(process, port, prompts):
    """Seconds to the first token (median), tokens per second of all clients, and peak memory in MiB of a running server.
    Each client streams one answer of `TOKENS` tokens."""
    firsts = []

    def ask(tokens):
        body = {"prompt": tokens, "n_predict": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True,
                "cache_prompt": False}
        begun, pieces = time.perf_counter(), 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1200)
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        last = None
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                last = json.loads(line[6:])
                if not pieces:
                    firsts.append(time.perf_counter() - begun)
                pieces += 1
        assert last["tokens_predicted"] == TOKENS, last

    ask(prompt(20, 999))
    firsts.clear()
    start = time.perf_counter()
    asking = [threading.Thread(target=ask, args=(tokens,)) for tokens in prompts]
    [thread.start() for thread in asking]
    [thread.join() for thread in asking]
    seconds = time.perf_counter() - start
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    memory = int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) / 1024
    return statistics.median(firsts), len(asking) * TOKENS / seconds, memory


def llama_server(program, model, threads, clients, prompts, port=8123):
    command = [program, "-m", model, "-t", threads, "-tb", threads, "-np", clients, "-c", 512 * clients, "-fa", "on", "--port", port]
    command = [str(part) for part in command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            time.sleep(0.1)
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
        return loaded(process, port, prompts)
    finally:
        process.kill()
        process.wait()


def beside(binary, model, threads, program, counts="1,8,32", length=270, rounds=3):
    from server import Server

    print("| clients | tokens/s, ours / theirs | first token, s | peak memory, MiB |\n|---|---|---|---|")
    for clients in map(int, counts.split(",")):
        both = []
        for k in range(rounds):
            prompts = [prompt(length, 1 + i + clients * k) for i in range(clients)]
            server = Server(binary, "-m", model, "-t", str(threads), "--parallel", str(clients), "-c", "512")
            own = loaded(server.process, server.port, prompts)
            server.end()
            both.append((own, llama_server(program, model, threads, clients, prompts)))
        cells = [str(clients)]
        # A ratio above 1 is better for Arenite: more tokens, less time, less memory.
        for what, digits, better in [(1, 0, 1), (0, 2, -1), (2, 0, -1)]:
            mine, other = (statistics.median(pair[who][what] for pair in both) for who in (0, 1))
            ratio = statistics.median((pair[0][what] / pair[1][what]) ** better for pair in both)
            cells.append(f"{mine:.{digits}f} / {other:.{digits}f} ({ratio:.2f})")
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    if sys.argv[1] == "theirs":
        print(theirs(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
        return
    binary, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    what = sys.argv[4] if len(sys.argv) > 4 else "8,16,32"
    if what in ("first", "shared", "beside"):
        globals()[what](binary, model, threads, *sys.argv[5:])
        return
    for clients in map(int, what.split(",")):
        command = [sys.executable, __file__, "theirs", model, str(threads), str(clients)]
        other = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for length in [8, 24]:
            own = ours(binary, model, threads, clients, length)
            print(f"threads {threads}, {clients} clients, prompts of {length}: {own:.0f} tokens/s over HTTP, "
                  f"llama_decode {other:.0f}: {own / other:.2f} times", flush=True)


main()
