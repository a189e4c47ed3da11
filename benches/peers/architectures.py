"""Writes the list of llama.cpp's architectures into README.md: architectures.py [--check]

The names are those of the `gguf` package (MODEL_ARCH), which comes with each version of llama.cpp. src/built.rs has the
names of the architectures that run. The program fails if an architecture neither runs nor has a reason below, and with
--check if README.md differs.

    pip install gguf
"""

import pathlib
import re
import sys

import gguf

HERE = pathlib.Path(__file__).parent
BEGIN, END = "<!-- architectures -->\n", "<!-- end -->\n"

SPARSE = "sparse attention chosen by an indexer"
DRAFT = "a draft model without a vocabulary of its own"
DIFFUSION = "text diffusion: no token follows from those before it"

# Why an architecture does not run.
REASONS = {
    "chameleon": "norms of heads with biases",
    "clip": "images only",
    "deepseek32": SPARSE,
    "deepseek4": "hyper-connections and " + SPARSE,
    "dflash": DRAFT,
    "dots3note": SPARSE,
    "dream": DIFFUSION,
    "eagle3": DRAFT,
    "glm-dsa": SPARSE,
    "glm5-next": "Kimi delta attention, hyper-connections, and " + SPARSE,
    "graniteswitch": "adapters that tokens switch on",
    "grok": "caps on the router; 314 B",
    "hy_v4": "hyper-connections and " + SPARSE,
    "kimi-k3": "Kimi delta attention; 1 T",
    "llada": DIFFUSION,
    "llada-moe": DIFFUSION,
    "minimax-01": "lightning attention; 456 B",
    "minimax-m3": SPARSE,
    "pockettts": "speech output",
    "qwen3tts": "speech output",
    "qwen4exp": "hyper-connections and " + SPARSE,
    "rnd1": DIFFUSION,
    "wavtokenizer-dec": "speech output",
}


def table():
    source = (HERE / "../../src/built.rs").read_text()
    ours = set(re.findall(r'"([\w.-]+)" =>', source))
    names = sorted({gguf.MODEL_ARCH_NAMES[arch] for arch in gguf.MODEL_ARCH})
    runs, others = [name for name in names if name in ours], [name for name in names if name not in ours]
    if wrong := [name for name in others if name not in REASONS] + [name for name in REASONS if name not in others]:
        sys.exit(f"neither runs nor has a reason, or both: {', '.join(wrong)}")
    lines = [f"Of {len(names)} architectures, {len(runs)} run: " + ", ".join(f"`{name}`" for name in runs) + ".", ""]
    lines += ["| does not run | because |", "|---|---|"]
    lines += [f"| `{name}` | {REASONS[name]} |" for name in others]
    return "\n".join(lines) + "\n"


def main():
    path = HERE / "README.md"
    before, rest = path.read_text().split(BEGIN)
    _, after = rest.split(END)
    text = before + BEGIN + table() + END + after
    if "--check" in sys.argv and text != path.read_text():
        sys.exit("README.md differs: run architectures.py")
    path.write_text(text)


main()
