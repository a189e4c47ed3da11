"""Answers the requests of lines.py with Ray Data: python with_ray.py BINARY OUT.jsonl"""

import os
import signal
import subprocess
import sys
import threading
import time

import ray

from lines import BATCH, requests


class Answer:
    """An actor that loads the model once and passes lines through a pipe."""

    def __init__(self, binary, at_work):
        self.process = subprocess.Popen(
            [binary, *BATCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.at_work = at_work

    def __call__(self, batch):
        lines = list(batch["line"])
        writer = threading.Thread(target=self.write, args=(lines,))
        writer.start()
        answers = [self.process.stdout.readline() for _ in lines]
        writer.join()
        if "" in answers:
            raise RuntimeError("arenite has ended")
        with open(self.at_work, "a") as file:
            file.write(f"{os.getpid()}\n")
        return {"index": batch["index"], "answer": [answer.rstrip("\n") for answer in answers]}

    def write(self, lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


def main():
    binary, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    ray.init(num_cpus=2, include_dashboard=False)
    rows = [{"index": i, "line": line} for i, line in enumerate(requests())]
    at_work = os.path.abspath(out) + ".at_work"
    open(at_work, "w").close()
    killed = []

    def kill_one():
        while True:
            time.sleep(0.05)
            with open(at_work) as file:
                done = file.read().split()
            if len(done) >= 2:
                killed.append(int(done[0]))
                return os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    data = ray.data.from_items(rows, override_num_blocks=20).map_batches(
        Answer,
        fn_constructor_args=(binary, at_work),
        batch_size=25,
        concurrency=2,
        max_restarts=-1,
        max_task_retries=-1,
    )
    answers = sorted(data.take_all(), key=lambda row: row["index"])
    assert killed, "all was done before a worker was killed"
    with open(out, "w") as file:
        file.writelines(row["answer"] + "\n" for row in answers)


if __name__ == "__main__":
    main()
