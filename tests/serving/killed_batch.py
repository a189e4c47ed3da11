"""Kills `arenite batch` at random moments and restarts it: the final output has the same bytes.

python killed_batch.py BINARY [TIMES]
"""

import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

binary, times = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
directory = pathlib.Path(tempfile.mkdtemp())
lines, out, one = directory / "in.jsonl", directory / "out.jsonl", directory / "one.jsonl"
with open(lines, "w") as file:
    for i in range(120):
        body = {"prompt": f"Once upon a time number {i}", "max_tokens": 10 + i % 40, "temperature": i % 2}
        if i % 7 == 0:
            body["response_format"] = {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no", i]}}}
        file.write(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")


def batch(output):
    command = [binary, "batch", "--reproducible", "-c", "256", "--parallel", "4", "-i", lines, "-o", output]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


start = time.time()
assert batch(one).wait() == 0
whole = time.time() - start
chance, killed, sizes = random.Random(1), 0, []
while killed < times:
    process = batch(out)
    time.sleep(chance.random() * whole / 4)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        killed += 1
    process.wait()
    sizes.append(out.stat().st_size if out.exists() else 0)
    if process.returncode == 0:
        # After a complete run: start again from an empty file, or in the middle of a line.
        assert out.read_bytes() == one.read_bytes()
        out.write_bytes(one.read_bytes()[: chance.randrange(one.stat().st_size)])
assert batch(out).wait() == 0
assert out.read_bytes() == one.read_bytes()
print(f"killed {killed} times, at {sizes} bytes of {one.stat().st_size}: the same bytes")
