#!/usr/bin/env python3
"""Writes `unicode_table.rs`: the general category of every code point and the plain small letters of
WordPiece, in a few kilobytes.

The standard library of Python 3.13 has Unicode 15.1, the version of llama.cpp's own tables; with
an older Python install the package `unicodedata2==15.1.0`. Run it from anywhere:

    python3 src/tokenizer/unicode_table.py > src/tokenizer/unicode_table.rs
"""

import unicodedata

if unicodedata.unidata_version != "15.1.0":
    import unicodedata2 as unicodedata
assert unicodedata.unidata_version == "15.1.0", unicodedata.unidata_version

# Groups of general categories; `unicode.rs` has the same list.
GROUPS = ["Cn", "Lu Lt", "Ll", "Lm Lo", "Nd Nl", "No", "Mn", "Mc Me", "Pc Pd Ps Pe Pi Pf Po", "Sm Sc Sk So",
          "Zs Zl Zp", "Cc Cf Cs Co"]
GROUPS = {category: number for number, categories in enumerate(GROUPS) for category in categories.split()}


def group(code):
    return GROUPS[unicodedata.category(chr(code))]


def tables(limit, low, high):
    """Returns three tables: `low` bits select a group in a block, `high` bits a block in a block of blocks."""
    blocks, middles, top, middle_of, block_of = [], [], [], {}, {}
    for start in range(0, limit, 1 << (low + high)):
        middle = []
        for block_start in range(start, start + (1 << (low + high)), 1 << low):
            block = tuple(group(c) if c < 0x110000 else 0 for c in range(block_start, block_start + (1 << low)))
            if block not in block_of:
                block_of[block] = len(blocks)
                blocks.append(block)
            middle.append(block_of[block])
        middle = tuple(middle)
        if middle not in middle_of:
            middle_of[middle] = len(middles)
            middles.append(middle)
        top.append(middle_of[middle])
    packed = [block[i] | block[i + 1] << 4 for block in blocks for i in range(0, len(block), 2)]
    return top, [b for m in middles for b in m], packed


def rows(values):
    line = "   "
    for value in values:
        word = f" {value},"
        if len(line) + len(word) > 119:
            yield line
            line = "   "
        line += word
    yield line


def emit(doc, name, kind, values):
    print(f"\n/// {doc}")
    if kind == "u64":
        print("#[rustfmt::skip]")  # rustfmt would give each of these long numbers a line
    print(f"pub(super) static {name}: [{kind}; {len(values)}] = [")
    print("\n".join(rows(values)))
    print("];")


def plain(code):
    """The first code point of the canonical decomposition, as a small letter."""
    if 0xD800 <= code < 0xE000:
        return code
    return ord(chr(ord(unicodedata.normalize("NFD", chr(code))[0])).lower()[0])


def plain_runs():
    """Runs (first, last, step, plain form of the first): every `step`th code point of a run moves with the
    first, or all become the same (step 0)."""
    runs = []
    for code in range(0x110000):
        to = plain(code)
        if to == code or 0xAC00 <= code < 0xD7A4:  # Hangul is computed
            continue
        if runs:
            first, last, step, start = runs[-1]
            ahead = code - last
            if step in (None, 0) and ahead == 1 and to == start:
                runs[-1] = (first, code, 0, start)
                continue
            if ahead in (1, 2) and step in (None, ahead) and to - start == code - first:
                runs[-1] = (first, code, ahead, start)
                continue
        runs.append((code, code, None, to))
    return [(first, last, 1 if step is None else step, to) for first, last, step, to in runs]


def tails():
    """Pairs of a code point and a code point of its canonical decomposition, after the first, that is not a
    nonspacing mark."""
    for code in range(0x110000):
        if not (0xD800 <= code < 0xE000 or 0xAC00 <= code < 0xD7A4):  # surrogates; Hangul is computed
            for char in unicodedata.normalize("NFD", chr(code))[1:]:
                if unicodedata.category(char) != "Mn":
                    yield f"({code}, {ord(char)})"


def main():
    limit = 1 + max(c for c in range(0x110000) if group(c))
    candidates = []
    for low in range(3, 8):
        for high in range(3, 8):
            top, middle, packed = tables(limit, low, high)
            width = 1 if len(packed) * 2 >> low <= 256 else 2
            candidates.append((len(top) + len(middle) * width + len(packed), low, high, width))
    size, low, high, width = min(candidates)
    top, middle, packed = tables(limit, low, high)
    assert max(top) < 256
    kind = "u8" if width == 1 else "u16"
    print("//! Written by `unicode_table.py`: do not edit.")
    print("//!")
    print(f"//! General categories of Unicode {unicodedata.unidata_version}, {size} bytes in three stages.")
    print(f"\n/// Number of low bits of a code point, the index within a block of [`BLOCKS`].\npub(super) const LOW: u32 = {low};")
    print(f"\n/// Number of next bits, the index within a block of [`MIDDLE`].\npub(super) const HIGH: u32 = {high};")
    emit("Maps a code point `>> (LOW + HIGH)` to a block of [`MIDDLE`].", "TOP", "u8", top)
    emit("Maps the next `HIGH` bits to a block of [`BLOCKS`].", "MIDDLE", kind, middle)
    emit("The groups, two per byte; the even code point is in the low half.", "BLOCKS", "u8", packed)
    runs = plain_runs()
    assert all(max(last, to) < 1 << 18 and step < 4 for _, last, step, to in runs)
    doc = "Runs of code points that differ from their plain form: last code point, plain form of the first, step, length - 1 (18, 18, 2, 16 bits)."
    emit(doc, "PLAIN", "u64", [last | to << 18 | step << 36 | (last - first) << 38 for first, last, step, to in runs])
    doc = "Pairs of a code point and a code point of its decomposition, after the first, that is not a nonspacing mark."
    emit(doc, "TAILS", "(u32, u32)", list(tails()))


main()
