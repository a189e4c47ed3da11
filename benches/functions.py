"""Prints the instructions that a firmware spends in each function, from counts of the qemu plugin in instructions.c.

    python3 benches/functions.py IMAGE COUNTS TOKENS

COUNTS is the file that the plugin wrote for its argument `spans=`. The output has the instructions per token of each
function in the image and, below it, of each source function that was inlined into it. Functions with at most one in
200 instructions are left out.
"""

import bisect
import collections
import re
import subprocess
import sys

image, file, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
counts = {int(address, 16): int(count) for address, count in map(str.split, open(file))}
total = sum(counts.values())

symbols = []
for line in subprocess.run(["nm", "-nC", image], capture_output=True, text=True, check=True).stdout.splitlines():
    match = re.match(r"([0-9a-f]+) [tTwW] ([^$].*)", line)
    if match:
        symbols.append((int(match[1], 16) & ~1, match[2]))
starts = [start for start, _ in symbols]

asked = "\n".join(f"{address:x}" for address in counts)
told = subprocess.run(["addr2line", "-ifCae", image], input=asked, capture_output=True, text=True, check=True).stdout
inlined = dict.fromkeys(counts, "?")
for answer in re.split(r"^0x", told, flags=re.M)[1:]:
    lines = answer.splitlines()
    # The innermost function that is not from the standard library.
    names = [(name, place) for name, place in zip(lines[1::2], lines[2::2]) if "/library/" not in place]
    name, place = names[0] if names else (lines[1], lines[2])
    inlined[int(lines[0], 16)] = f"{name} {'/'.join(place.split(' ')[0].split('/')[-2:])}"

functions = collections.defaultdict(collections.Counter)
for address, count in counts.items():
    symbol = symbols[max(bisect.bisect(starts, address) - 1, 0)][1]
    functions[symbol][re.sub(r":\d+$|:\?$", "", inlined[address])] += count
print(f"{total / tokens:10.0f} instructions per token")
for symbol, parts in sorted(functions.items(), key=lambda entry: -entry[1].total()):
    if parts.total() * 200 < total:
        continue
    print(f"{parts.total() / tokens:10.0f}  {symbol}")
    for name, count in parts.most_common():
        if count * 200 >= total and len(parts) > 1:
            print(f"{'':12}{count / tokens:8.0f}  {name}")
