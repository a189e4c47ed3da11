"""Counts the stories of the built-in model that lose the thread: a name, a pronoun or a thing is swapped for another.

    python check.py --arenite ../../target/release/arenite [--model stories.gguf] [--stories 100] [--first 0] [--show]
    python check.py --grammar                   the grammar's own stories: measures the checker's error

The checker relies on the grammar: a story has one hero and at most one friend, with different genders and from the same
world; an elder has the friend's gender; an animal's species stays with its name; and values bound by a plot's head (for
example a ball) do not change. It does not find every fault. Its error is the share of faults reported in the grammar's own
stories.
"""

import argparse
import itertools
import json
import random
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import stories
from stories import BOYS, GIRLS, HE_ANIMALS, KINDS, PLOTS, SHE_ANIMALS

WORLD = {name: world for world, names in (("child", GIRLS + BOYS), ("animal", SHE_ANIMALS + HE_ANIMALS)) for name in names}
GENDER = dict.fromkeys(GIRLS + SHE_ANIMALS, "she") | dict.fromkeys(BOYS + HE_ANIMALS, "he")
ELDER = {"Mom": "she", "Mama": "she", "Grandma": "she", "Dad": "he", "Papa": "he", "Grandpa": "he"}
PRONOUNS = {"she": {"she", "her", "hers", "herself"}, "he": {"he", "him", "his", "himself"}}


def words(text):
    """Returns the words. A "Will" that begins a question is lowercased, because Will is also a name."""
    return re.findall(r"[A-Za-z']+", re.sub(r"\bWill (?=(you|he|she|it|we|they|I|the|that|there|this|my|our)\b)", "will ", text))


# --- names and pronouns --------------------------------------------------------------------

def name_faults(text):
    names = [word for word in words(text) if word in WORLD]
    elders = {word for word in words(text) if word in ELDER}
    for gender in ("she", "he"):
        same = sorted({name for name in names if GENDER[name] == gender})
        if len(same) > 1:
            yield "two of one gender: " + ", ".join(same)
    if len({WORLD[name] for name in names}) > 1:
        yield "a child and an animal: " + ", ".join(sorted(set(names)))
    if len(elders) > 1:
        yield "two elders: " + ", ".join(sorted(elders))
    kinds = {}
    for name, kind in re.findall(r"\b([A-Z][a-z]+) the (%s)\b" % "|".join(KINDS), text):
        if kinds.setdefault(name, kind) != kind:
            yield f"{name} is a {kinds[name]} and a {kind}"


def pronoun_faults(text):
    for paragraph in text.split("\n\n"):
        seen = set()
        for sentence in re.split(r"(?<=[.!?])\s+", re.sub(r'"[^"]*"', '"."', paragraph)):
            found = words(sentence)
            here = {(GENDER | ELDER)[word] for word in found if word in GENDER or word in ELDER}
            first = next((word for word in found if word in GENDER), None)
            # "Lily put on his hat": the paragraph has named only Lily so far.
            if first and found[0] == first and len(here) == 1 and seen <= here:
                others = PRONOUNS["he" if GENDER[first] == "she" else "she"]
                if wrong := [word for word in found if word in others]:
                    yield f"{first} and '{wrong[0]}': {sentence.strip()}"
            seen |= here
            # Other persons in a plot have pronouns, too.
            if re.search(r"\b(man|woman|king|queen|farmer|teacher|neighbor|boy|girl|[a-z]+er)\b", sentence):
                seen |= {"she", "he"}
            for name in set(found) & set(GENDER):
                if re.search(rf"\b{name}\b[^,;:.\"]*\b(to|for|with|at|around|behind|beside|after|of|from|than|and) {name}\b", sentence):
                    yield f"{name} and {name}: {sentence.strip()}"


# --- things --------------------------------------------------------------------------------

def masked(text):
    return [("N" if word in WORLD or word in ELDER else word.lower()) for word in words(text)]


def grams(text):
    found = masked(text)
    return set(zip(found, found[1:], found[2:], found[3:]))


class Plot:
    """The 4-grams that identify a plot's stories, and the values that its head binds."""

    def __init__(self, plot, rng):
        world, (head, body) = plot[0], plot[1:]
        self.grams, self.values, often = set(), {}, Counter()
        told = []
        for _ in range(400):
            its, cast = stories.cast(rng)
            if world not in ("", its):
                continue
            bound = dict(cast)
            for names, tree in head:
                parts = stories.expand(tree, bound, its, rng).strip().split("/")
                bound.update(zip(names, map(str.strip, parts), strict=True))
                for name, value in zip(names, parts, strict=True):
                    if not any(str(who) in value for who in cast.values()):
                        self.values.setdefault(name, set()).add(value.strip().lower())
            text = "\n\n".join(stories.polish(stories.expand(p, bound, its, rng)) for p in body)
            self.grams |= grams(text)
            told.append(text)
        # Values that occur together in the plot itself are not evidence.
        for text in told:
            often.update(self.pairs(text))
        self.allowed = set(often)

    def pairs(self, text):
        text = " " + " ".join(word.lower() for word in words(text)) + " "
        for name, values in self.values.items():
            found = [value for value in values if " " + " ".join(words(value)) + " " in text]
            found = [value for value in found if not any(value != other and value in other for other in found)]
            yield from ((name, *pair) for pair in itertools.combinations(sorted(found), 2))


def plot_of(text, plots):
    here = grams(text)
    return max(range(len(plots)), key=lambda i: len(here & plots[i].grams))


def thing_faults(text, plots):
    plot = plots[plot_of(text, plots)]
    for name, a, b in plot.pairs(text):
        if (name, a, b) not in plot.allowed:
            yield f"a thing is '{a}' and '{b}'"


# --- stories told, and counted -------------------------------------------------------------

def told(arenite, model, seeds, **sampling):
    """Generates stories with these seeds in parallel. A story without an end is None."""
    with tempfile.TemporaryDirectory() as folder:
        lines, answers = Path(folder, "lines"), Path(folder, "answers")
        body = {"prompt": "", "max_tokens": 500, **sampling}
        lines.write_text("\n".join(json.dumps({"custom_id": str(seed), "method": "POST", "url": "/v1/completions", "body": {**body, "seed": seed}})
                                   for seed in seeds))
        subprocess.run([arenite, "batch", "-m", model, "-i", lines, "-o", answers, "--parallel", "32", "-t", "1"], check=True, stderr=subprocess.DEVNULL)
        choices = [json.loads(line)["response"]["body"]["choices"][0] for line in answers.open()]
    return [choice["text"].strip() if choice["finish_reason"] == "stop" else None for choice in choices]


def faults(text, plots):
    found = {"name": [*name_faults(text)], "pronoun": [*pronoun_faults(text)], "thing": [*thing_faults(text, plots)]}
    return {kind: its for kind, its in found.items() if its}


def failures(texts, plots):
    """The share of stories that lose the thread, for each plot. Stories without an end are not counted."""
    told, wrong = Counter(), Counter()
    for text in filter(None, texts):
        plot = plot_of(text, plots)
        told[plot] += 1
        wrong[plot] += bool(faults(text, plots))
    return [wrong[plot] / max(told[plot], 1) for plot in range(len(plots))]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--arenite", type=Path, help="path of `arenite`, which tells the stories")
    options.add_argument("--model", type=Path, default=Path(__file__).parent / "stories.gguf")
    options.add_argument("--stories", type=int, default=100)
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--grammar", action="store_true", help="check the grammar's own stories")
    options.add_argument("--show", action="store_true", help="print the faults")
    args = options.parse_args()
    if not args.grammar and not args.arenite:
        options.error("--arenite or --grammar is needed")

    plots = [Plot(plot, random.Random(1)) for plot in PLOTS]
    rng, counts, seeds = random.Random(2), Counter(), range(args.first, args.first + args.stories)
    texts = [stories.story(rng) for _ in seeds] if args.grammar else told(args.arenite, args.model, seeds)
    for seed, text in zip(seeds, texts):
        found = faults(text, plots) if text else {"end": ["no end"]}
        counts.update(found.keys())
        counts["any"] += bool(found)
        if args.show:
            print(*(f"{seed}: {fault}" for its in found.values() for fault in its), sep="\n", end="\n" if found else "")
    print(f"{counts['any']} of {args.stories} stories lose the thread: " + ", ".join(f"{counts[kind]} a {kind}" for kind in ("name", "pronoun", "thing")))


if __name__ == "__main__":
    main()
