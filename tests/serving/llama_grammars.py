"""Checks texts accepted and refused by llama.cpp's example grammars: python llama_grammars.py BINARY GRAMMARS"""

import json
import pathlib
import subprocess
import sys

binary, grammars = sys.argv[1], pathlib.Path(sys.argv[2])
TEXTS = {
    "json": (['{"a": [1, 2.5e3, null], "b": {"c": "d\\n\\u00e9"}}', "{}", '{"a":true}'],
             ["[1]", "{", "{a: 1}", '{"a": 01}', '{"a": "\n"}', '{"a": 1,}']),
    "json_arr": (['[\n1,\n"a"]', "[\n]"], ["{}", "[1", "1"]),
    "arithmetic": (["1 +2=3\n", "(a *3) /x=9\n", "a=1\nb=a\n"], ["1 +", "1 + 2=3\n", "=\n"]),
    "list": (["- a\n- b c\n"], ["a", "- a", "-a\n", "- \n"]),
    "chess": (["1. e4 e5\n2. Nf3 Nc6\n"], ["1. e9 e5\n", "e4 e5\n"]),
    "english": (["Hello, is it me?", "It costs 5."], ["\u65e5\u672c", "caf\u00e9"]),
    "japanese": (["\u3072\u3089\u304c\u306a", "\u30ab\u30bf\u30ab\u30ca\u3002\u6f22\u5b57"], ["romaji"]),
    "c": (["int main(){return 0;}", "int f(int a){int b = a+1;while(b<3){f (b);}return b;}"],
          ["main(){}", "int main({", "int main(){return 0}"]),
}
files = sorted(grammars.glob("*.gbnf"))
assert files, "there are no grammars"
tried = 0
for file in files:
    good, bad = TEXTS[file.stem]
    lines = "".join(json.dumps(text) + "\n" for text in good + bad)
    done = subprocess.run([binary, "grammar", str(file), "--try"], input=lines, capture_output=True, text=True, check=True)
    said = [json.loads(line)["text"] for line in done.stdout.splitlines()]
    for text, found in zip(good + bad, said, strict=True):
        assert (found == "whole") == (text in good), (file.name, text, found)
        tried += 1
print(f"{len(files)} grammars, {tried} texts")
