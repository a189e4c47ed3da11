"""Runs `arenite listen` and whisper.cpp's `whisper-cli` in turns on the same sound, and prints a table for README.md.

whisper.py ARENITE WHISPER_CLI SOUND MODEL.gguf=GGML.bin... [--threads 1,2] [--rounds N]

The two files of a pair hold the same weights, of the same type. Both programs decode greedily, without the fallback to
higher temperatures. Each time is that of a whole process.
"""

import argparse
import statistics
import subprocess
import time


def seconds(*command):
    start = time.monotonic()
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arenite")
    parser.add_argument("whisper")
    parser.add_argument("sound", help="a WAV file of 16 kHz")
    parser.add_argument("pairs", nargs="+", metavar="MODEL.gguf=GGML.bin")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| model | threads | whisper.cpp by Arenite | seconds, ours / theirs |\n|---|---|---|---|")
    for pair in options.pairs:
        ours, theirs = pair.split("=")
        for threads in map(int, options.threads.split(",")):
            times = []
            for _ in range(options.rounds):
                here = seconds(options.arenite, "listen", "-m", ours, "-t", threads, options.sound)
                there = seconds(options.whisper, "-m", theirs, "-t", threads, "-bs", 1, "-bo", 1, "-nf", "-f", options.sound)
                times.append((here, there))
            ratios = sorted(there / here for here, there in times)
            medians = [statistics.median(pair[i] for pair in times) for i in (0, 1)]
            print(f"| {ours} | {threads} | {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) "
                  f"| {medians[0]:.2f} / {medians[1]:.2f} |", flush=True)


main()
