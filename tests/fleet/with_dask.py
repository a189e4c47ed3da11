"""Answers the requests of lines.py with Dask: python with_dask.py BINARY OUT.jsonl"""

import os
import signal
import subprocess
import sys
import threading
import time

import dask.bag
from dask.distributed import Client, LocalCluster

from lines import BATCH, requests


def answers(lines, binary):
    lines = list(lines)
    done = subprocess.run([binary, *BATCH], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main():
    binary, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.upload_file(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lines.py"))
        bag = dask.bag.from_sequence(requests(), npartitions=10).map_partitions(answers, binary)
        future = client.compute(bag)

        def kill_one():
            time.sleep(3)
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        killer = threading.Thread(target=kill_one)
        killer.start()
        texts = future.result()
        killer.join()
    with open(out, "w") as file:
        file.writelines(text + "\n" for text in texts)


if __name__ == "__main__":
    main()
