"""Answers the requests of lines.py with Spark: python with_spark.py BINARY OUT.jsonl"""

import os
import pathlib
import shlex
import signal
import sys
import threading
import time

from pyspark.sql import SparkSession

from lines import BATCH, requests


def executors(app):
    """Returns the process ids of this application's workers."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(b"CoarseGrainedExecutorBackend" in part for part in command) and app.encode() in command:
            yield int(process.name)


def main():
    binary, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.executor.memory", "512m")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    context = spark.sparkContext
    tracker, killed = context.statusTracker(), []

    def kill_one():
        while not killed:
            time.sleep(0.02)
            stages = [stage for job in tracker.getActiveJobsIds() for stage in tracker.getJobInfo(job).stageIds]
            found = [tracker.getStageInfo(stage) for stage in stages]
            if any(stage and stage.numActiveTasks >= 2 for stage in found):
                killed.extend(list(executors(context.applicationId))[:1])
                [os.kill(process, signal.SIGKILL) for process in killed]

    threading.Thread(target=kill_one, daemon=True).start()
    command = " ".join(map(shlex.quote, [binary, *BATCH]))
    texts = context.parallelize(requests(), 20).pipe(command, checkCode=True).collect()
    assert killed, "all was done before a worker was killed"
    spark.stop()
    with open(out, "w") as file:
        file.writelines(text + "\n" for text in texts)


if __name__ == "__main__":
    main()
