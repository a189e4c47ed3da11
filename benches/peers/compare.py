"""Runs arenite and llama.cpp in turns on the same files and prints the ratios: see README.md."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "../../target"))


def anonymous_bytes(process):
    """The memory of a process without mapped files, in bytes; 0 if it has ended."""
    try:
        with open(f"/proc/{process}/status") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon:")), 0)
    except OSError:
        return 0


def run(command):
    """Runs a command. Returns the first result of its JSON output, with its peak memory."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
    peak = 0

    def watch():
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.02) # a long interval, which does not disturb the measurement

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = process.communicate()[0]
    watcher.join()
    if process.returncode != 0:
        sys.exit(f"failed: {' '.join(str(part) for part in command)}")
    printed = json.loads(output)
    result = printed["results"][0] if "results" in printed else printed
    result["memory_bytes"] = max(peak, result.get("memory_bytes", 0)) - result.get("python_bytes", 0)
    return result


class Peers:
    def __init__(self, options):
        self.options = options
        self.arenite = options.bin / "arenite"
        self.bandwidth = options.bin / "bandwidth"
        self.context = max(options.prefill, options.decode)

    def ours(self, model, threads, prefill, decode):
        work = ["-p", prefill, "-n", max(decode, 1), "-c", self.context, "-r", 1]
        return run([self.arenite, "bench", "-m", model, "-t", threads, *work, "--json"])

    def theirs(self, model, threads, prefill, decode):
        return run([sys.executable, HERE / "llama.py", model, threads, prefill, decode, self.context])

    def rounds(self, model, threads):
        """Measures all rounds. Returns pairs of results, bandwidths, and pairs of results for a first token. A pair is
        ours, theirs."""
        speed, bandwidth, first = [], [], []
        for number in range(self.options.rounds):
            work = (model, threads, self.options.prefill, self.options.decode)
            speed.append((self.ours(*work), self.theirs(*work)))
            first.append((self.ours(model, threads, 1, 0), self.theirs(model, threads, 1, 0)))
            bandwidth.append(run([self.bandwidth, threads, 1024, 5])["gb_s"])
            print(f"\r{model.name}, {threads} threads: round {number + 1}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return speed, bandwidth, first


def ratio(pairs, key, inverse=False):
    """Median, minimum and maximum of ours / theirs, or of theirs / ours if less is better."""
    ratios = sorted(theirs[key] / ours[key] if inverse else ours[key] / theirs[key] for ours, theirs in pairs)
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"


def medians(pairs, key, scale=1.0, digits=1):
    """Medians of ours and theirs."""
    return " / ".join(f"{statistics.median(pair[i][key] for pair in pairs) * scale:.{digits}f}" for i in (0, 1))


def row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--threads", default="1,2", help="numbers of threads to measure (default: 1,2)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefill", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--decode", type=int, default=64, metavar="TOKENS")
    parser.add_argument("--bin", type=pathlib.Path, default=TARGET / "release", help="directory of the programs arenite and bandwidth")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    options = parser.parse_args()
    peers = Peers(options)

    others = os.getloadavg()[0]
    if others > 0.5:
        print(f"warning: this machine is busy (load {others:.1f}); the figures will not be reliable", file=sys.stderr)
    print(f"Arenite's speed divided by llama.cpp's: the median of {options.rounds} pairs of runs (minimum-maximum). "
          "Other columns: Arenite's value / llama.cpp's value.\n")
    row(["model", "threads", f"prefill {options.prefill}", "tok/s", f"decode {options.decode}", "tok/s",
         "decode GB/s", "of reading", "first token", "ms", "memory then", "MB", "memory at most", "MB"])
    row(["---"] * 14)
    measured = []
    for model in options.files:
        for threads in map(int, options.threads.split(",")):
            speed, bandwidth, first = peers.rounds(model, threads)
            # In models whose embedding is also the output matrix, every token reads all weights of the file.
            rate = statistics.median(ours["decode_tok_s"] for ours, _ in speed) * model.stat().st_size / 1e9
            limit = statistics.median(bandwidth)
            row([
                model.stem, str(threads),
                ratio(speed, "prefill_tok_s"), medians(speed, "prefill_tok_s", digits=0),
                ratio(speed, "decode_tok_s"), medians(speed, "decode_tok_s"),
                f"{rate:.1f}", f"{rate / limit:.0%} of {limit:.1f}",
                ratio(first, "first_token_ms", inverse=True), medians(first, "first_token_ms"),
                ratio(first, "memory_bytes", inverse=True), medians(first, "memory_bytes", 1e-6),
                ratio(speed, "memory_bytes", inverse=True), medians(speed, "memory_bytes", 1e-6),
            ])
            measured.append({"model": model.stem, "threads": threads, "speed": speed, "first": first,
                             "bandwidth": bandwidth})
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1))


main()
