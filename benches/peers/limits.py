"""Runs arenite bench, llama-bench and ik_llama.cpp's llama-bench in turns on the same files: see README.md."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "../../target"))


def output(command, **settings):
    """Returns the JSON that a command prints; `None` if it prints nothing."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, **settings)
    return json.loads(done.stdout) if done.returncode == 0 and done.stdout else None


def ours(options, model, threads):
    work = ["-d", options.depth, "-p", options.prefill, "-n", options.decode, "-r", 1, "--json", *options.ours.split()]
    result = output([options.arenite, "bench", "-m", model, "-t", threads, *work], check=True)["results"][0]
    return {name: result[name] for name in ("prefill_tok_s", "decode_tok_s", "prefill_share", "decode_share")}


def theirs(options, program, flags, model, threads):
    """The speed of a peer; `None` for types that it does not have."""
    work = ["-d", options.depth, "-p", options.prefill, "-n", options.decode, "-r", 1, "-o", "json"]
    results = output([program, "-m", model, "-t", threads, *work, *flags], stderr=subprocess.DEVNULL)
    if not results:
        return None
    speed = {"prefill_tok_s" if result["n_prompt"] else "decode_tok_s": result["avg_ts"] for result in results}
    return speed if len(speed) == 2 else None


def row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def cells(rounds, key, share):
    """Our speed, our share of the limit, and the median of the ratios to each peer."""
    speed = statistics.median(mine[key] for mine, *_ in rounds)
    yield f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}"
    shares = [mine[share] for mine, *_ in rounds if mine[share]]
    yield f"{statistics.median(shares):.2f}" if shares else "-"
    for peer in range(1, len(rounds[0])):
        ratios = [all[0][key] / all[peer][key] for all in rounds if all[peer]]
        yield f"{statistics.median(ratios):.2f}" if ratios else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--llama", type=pathlib.Path, required=True, help="llama-bench of llama.cpp")
    parser.add_argument("--ik", type=pathlib.Path, required=True, help="llama-bench of ik_llama.cpp")
    parser.add_argument("--arenite", type=pathlib.Path, default=TARGET / "release/arenite")
    parser.add_argument("--threads", default="1,2", help="numbers of threads to measure (default: 1,2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefill", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--decode", type=int, default=64, metavar="TOKENS")
    parser.add_argument("--depth", type=int, default=0, metavar="TOKENS", help="tokens before both")
    parser.add_argument("--ours", default="", help="flags of arenite bench")
    parser.add_argument("--flags", default="", help="flags of llama.cpp's llama-bench")
    options = parser.parse_args()
    peers = [(options.llama, options.flags.split()), (options.ik, ["-rtr", 1, "-fa", 1])]

    if os.getloadavg()[0] > 0.5:
        print("warning: this machine is busy; the figures will not be reliable", file=sys.stderr)
    after = f" after {options.depth}" if options.depth else ""
    row(["model", "threads", f"prefill {options.prefill}{after}", "of peak", "by llama.cpp", "by ik_llama.cpp",
         f"decode {options.decode}{after}", "of reads", "by llama.cpp", "by ik_llama.cpp"])
    row(["---"] * 10)
    for model in options.files:
        for threads in map(int, options.threads.split(",")):
            rounds = []
            for _ in range(options.rounds):
                others = [theirs(options, program, flags, model, threads) for program, flags in peers]
                rounds.append((ours(options, model, threads), *others))
            row([model.stem, str(threads), *cells(rounds, "prefill_tok_s", "prefill_share"),
                 *cells(rounds, "decode_tok_s", "decode_share")])


main()
