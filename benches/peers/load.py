"""Measures the ways to load a model (`--load map`, `auto`, `copy`), and prints a table for README.md.

load.py ARENITE FILE... [--rounds N] [--threads N]

A cold run starts after the system was told to drop the file's pages from its cache; a warm run starts after the file
was read. Each time is that of a whole process. The ways to load run in turns; the table has medians.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import time

WAYS = ["map", "auto", "copy"]
# Tokens of the runs: the first token, a short answer, and a long one.
FIRST, SHORT, LONG = 1, 16, 128


def cool(path):
    """Drops the file's pages from the page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(path):
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass


def run(arenite, path, way, tokens, threads):
    """Seconds of a process, and its peak of anonymous memory in bytes."""
    command = [arenite, "generate", "-m", path, "--load", way, "--ids", "1", "-n", tokens, "-c", 256, "-t", threads,
               "--temp", 0, "--ignore-eos", "--format", "ids"]
    start = time.monotonic()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status") as status:
                lines = dict(line.split(":", 1) for line in status)
            peak = max(peak, int(lines.get("RssAnon", "0 kB").split()[0]) * 1024)
        except OSError:
            pass
        time.sleep(0.002)
    seconds = time.monotonic() - start
    if process.returncode:
        raise SystemExit(f"failed: {' '.join(str(part) for part in command)}")
    return seconds, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arenite", type=pathlib.Path)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print("| model | MB | cache | load | first token, ms | 16 tokens, ms | by map | tokens/s of 112 more | memory, MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in options.files:
        for cache, prepare in ("cold", cool), ("warm", warm):
            seconds = {(way, tokens): [] for way in WAYS for tokens in (FIRST, SHORT, LONG)}
            peaks = dict.fromkeys(WAYS, 0)
            for _ in range(options.rounds):
                for way, tokens in seconds:
                    prepare(path)
                    taken, peak = run(options.arenite, path, way, tokens, options.threads)
                    seconds[way, tokens].append(taken)
                    peaks[way] = max(peaks[way], peak)
            for way in WAYS:
                first, short, long = (statistics.median(seconds[way, tokens]) for tokens in (FIRST, SHORT, LONG))
                ratios = [mine / theirs for mine, theirs in zip(seconds[way, SHORT], seconds["map", SHORT])]
                rate = (LONG - SHORT) / (long - short)
                print(f"| {path.stem} | {path.stat().st_size / 1e6:.0f} | {cache} | {way} | {first * 1e3:.0f} | {short * 1e3:.0f} "
                      f"| {statistics.median(ratios):.2f} | {rate:.1f} | {peaks[way] / 1e6:.0f} |", flush=True)


main()
