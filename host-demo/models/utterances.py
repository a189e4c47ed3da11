"""The grammar of spoken commands in English, German and Hindi, which commands.py trains on.

    python utterances.py [N] [SEED]     prints N sentences with their calls; the held-out ones are marked with a star

A sentence comes from a frame, one line of the lists in command_frames.py: `[a|b]` is a choice, `{o}` a slot for words of
command_words.py. Frames that begin with `!` are held out: training never uses them, and all sentences of the evaluation
come from them. Their words, but not their wordings, occur in the other frames; other devices and places of held-out
refusals do not occur in training either.
"""

import json
import random
import re
import sys

from command_frames import FRAMES
from command_words import AMOUNTS, DEVICES, FILLERS, OTHERS, PLACES, ROOM_FORMS, SYLLABLES, value

LANGUAGES = ("en", "de", "hi")
ROOMS = ("kitchen", "living room", "bedroom", "bathroom", "hall", "office", "nursery", "garage", "cellar", "attic")
ACTIONS = {"light": ("on", "off", "set", "up", "down"), "heating": ("on", "off", "set", "up", "down"), "blinds": ("open", "close", "set")}
# Steps of "a little", of a command without an amount, and of "a lot".
STEPS = {"light": (10, 20, 40), "heating": (1, 2, 4)}
LIMITS = {"light": (0, 100), "heating": (5, 30), "blinds": (0, 100)}


def expand(rng, text):
    """Replaces the choices, inner ones first."""
    while found := re.search(r"\[([^\[\]]*)\]", text):
        text = text[:found.start()] + rng.choice(found[1].split("|")) + text[found.end():]
    return text


def slots(rng, lang, room, devices):
    """Returns the slots of a room (forms of one room, or of another place) and of a device."""
    room = rng.choice(room)
    device = rng.choice(devices.split()).replace("_", " ")
    if lang == "en":
        the = rng.choice(["the ", "the ", "the ", ""])
        its = {"room": room, "in": f"in the {room}", "d": f"the {device}"}
        its["o"] = f"{the}{room} {device}" if rng.random() < 0.5 else f"{the}{device} in the {room}"
    elif lang == "de":
        place, prefix = room.split(":")
        nominative, accusative, noun, plural = device.split(":")
        compound = rng.random() < 0.4
        inside = prefix + noun.lower() if compound else f"{noun} {place}"
        its = {"room": place, "in": place, "d": f"{accusative} {noun}", "dn": f"{nominative} {noun}", "o": f"{accusative} {inside}", "n": f"{nominative} {inside}",
               "ist": "sind" if plural else "ist", "soll": "sollen" if plural else "soll", "war": "waren" if plural else "war", "soll1": rng.choice(["will ich", "soll"]) }
        if rng.random() < 0.15:
            its["o"], its["n"] = its["o"].split(" ", 1)[1], its["n"].split(" ", 1)[1]
    else:
        noun, of = device.split(":")
        its = {"room": room, "in": f"{room} में", "d": noun, "o": f"{room} {of} {noun}" if rng.random() < 0.75 else f"{room} में {noun}"}
    return its


def invented(rng, lang):
    """A noun that does not exist, with the form of an entry in a list of other devices."""
    noun = "".join(rng.choices(SYLLABLES[lang], k=rng.randint(2, 3)))
    return {"en": noun, "de": f"der:den:{noun.capitalize()}:", "hi": f"{noun}:का"}[lang]


def polish(rng, text, noise):
    """Normalizes spaces, and varies case and punctuation as in text that was typed or that a speech recognizer wrote."""
    text = " ".join(text.split())
    if rng.random() < 0.5:
        text = text[0].upper() + text[1:]
    elif rng.random() < 0.6:
        text = text.lower()
    if rng.random() < 0.4:
        text += rng.choice(["।", "।", "!"]) if re.search("[\u0900-\u097f]", text) else rng.choice("..!")
    return text


def fill(rng, lang, text):
    """Adds words that change nothing."""
    fillers = FILLERS[lang].split(",")
    if rng.random() < 0.35:
        text = f"{rng.choice(fillers)}{rng.choice(['', ','])} {text}"
    if rng.random() < 0.2:
        text = f"{text} {rng.choice(fillers)}"
    if lang != "hi" and rng.random() < 0.12:
        text = f"{'please' if lang == 'en' else 'bitte'} {text}"
    return text


def frame(rng, keys, held):
    frames = [line for key in keys for line in FRAMES.get(key, ()) if line.startswith("!") == held]
    return expand(rng, rng.choice(frames).lstrip("! "))


def number(rng, device):
    low, high = LIMITS[device]
    return rng.randint(low, high) if device == "heating" or rng.random() < 0.4 else rng.randrange(low, high + 1, 10 if rng.random() < 0.5 else 5)


def command(rng, lang, held=False):
    """A sentence and its call."""
    device = rng.choice(list(ACTIONS))
    action = rng.choice(ACTIONS[device])
    room = rng.randrange(len(ROOMS))
    keys = [f"{lang} {device} {action}"] if f"{lang} {device} {action}" in FRAMES and rng.random() < 0.35 else [f"{lang} {action}"]
    text = frame(rng, keys, held)
    call = {"device": device, "room": ROOMS[room], "action": action}
    its = slots(rng, lang, ROOM_FORMS[lang][room], DEVICES[lang][device])
    if "{a}" in text:
        little, lot, by = (expand(rng, amount) for amount in AMOUNTS[lang])
        its["a"], call["value"] = rng.choice(list(zip(("", little, lot, by), (STEPS[device][1], STEPS[device][0], STEPS[device][2], None))))
        if call["value"] is None:
            call["value"] = rng.randint(1, 9) if device == "heating" else rng.choice((5, 10, 15, 20, 25, 30, 35, 40, 50, 60))
            its["v"] = value(rng, lang, device, call["value"])
            its["a"] = by.format(**its)
    elif "{v}" in text:
        call["value"] = number(rng, device)
        its["v"] = value(rng, lang, device, call["value"])
    elif action in ("up", "down"):
        call["value"] = STEPS[device][1]
    return fill(rng, lang, text.format(**its)), call


def refused(rng, lang, held=False):
    """A sentence that is not a command."""
    if not held and rng.random() < 0.12:
        # Words in any order.
        pool = [word for _ in range(3) for word in (command if rng.random() < 0.4 else refused)(rng, lang)[0].split()]
        return " ".join(rng.sample(pool, min(len(pool), rng.randint(1, 8)))), None
    if rng.random() < 0.12:
        # Values beyond the limits.
        device = rng.choice(("light", "heating", "heating", "blinds"))
        text = frame(rng, [f"{lang} set"], held)
        its = slots(rng, lang, rng.choice(ROOM_FORMS[lang]), DEVICES[lang][device])
        low, high = LIMITS[device]
        n = rng.choice((rng.randint(high + 1, 2 * high), rng.randint(high + 1, 99 if device == "heating" else 200), rng.randrange(200 if device != "heating" else 40, 1000, 10)))
        if device == "heating" and rng.random() < 0.3:
            n = rng.randint(0, low - 1)
        its["v"] = value(rng, lang, device, n)
        return fill(rng, lang, text.format(**its)), None
    text = frame(rng, [f"{lang} refused"], held)
    device = rng.choice(list(ACTIONS))
    room = rng.choice(ROOM_FORMS[lang])
    its = slots(rng, lang, room, DEVICES[lang][device])
    others = " ".join(OTHERS[lang][:1 + held]) if held or rng.random() < 0.8 else invented(rng, lang)
    x = slots(rng, lang, room, others)
    p = slots(rng, lang, [rng.choice(" ".join(PLACES[lang][:1 + held]).split()).replace("_", " ")], DEVICES[lang][device])
    noun = x["d"].split(" ", 1)[1] if lang != "hi" else x["d"]
    its |= {"x": x["o"], "xd": x["d"], "xn": noun, "p": p["o"]}
    its["v"] = value(rng, lang, device, number(rng, device))
    return fill(rng, lang, text.format(**its)), None


def sentence(rng, lang, held=False):
    """A sentence, and its call as JSON."""
    text, call = (refused if rng.random() < 0.25 else command)(rng, lang, held)
    return polish(rng, text, not held), json.dumps(call or {"device": "none"}, separators=(",", ":"))


def held_out(lang, count, seed="held out"):
    """Different sentences of held-out frames."""
    rng, found = random.Random(f"{seed} {lang}"), {}
    while len(found) < count:
        found.setdefault(*sentence(rng, lang, held=True))
    return list(found.items())


def main():
    count, seed = (int(text) for text in (sys.argv[1:] + ["30", "1"][len(sys.argv) - 1:])[:2])
    rng = random.Random(seed)
    for i in range(count):
        held = i % 2 == 1
        text, call = sentence(rng, LANGUAGES[i // 2 % 3], held)
        print("*" if held else " ", text, "->", call)


if __name__ == "__main__":
    main()
