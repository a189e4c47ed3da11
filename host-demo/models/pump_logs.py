"""Logs of a pump station, and the code of the fault that each shows.

    python pump_logs.py [N]                 prints N logs with their codes
    python pump_logs.py --held-out [N]      prints N held-out logs, as JSON lines

A log has three to six lines: readings, messages, and the signs of at most one fault. A sign that a later line takes back, such as
a cabinet that was closed again, is no fault. Held-out logs use wordings that training never uses; their words occur in
training.
"""

import json
import random
import re
import sys

# Readings: their names, and the unit. A line is a name in a form; one form of each name is held out.
READINGS = {
    "temp": (["motor temperature", "temp of motor", "motor"], "C"),
    "current": (["current", "motor current", "current of the motor"], "A"),
    "flow": (["flow", "outlet flow", "flow at the outlet"], "l/min"),
    "pressure": (["pressure", "outlet pressure", "pressure at the outlet"], "bar"),
    "vibration": (["vibration", "bearing vibration", "vibration at the shaft"], "mm/s"),
    "speed": (["speed", "motor speed", "speed of the motor"], "rpm"),
    "supply": (["supply", "supply voltage", "voltage"], "V"),
    "battery": (["battery", "backup battery", "backup"], "%"),
    "link": (["answer", "gateway answer", "answer of the gateway"], "ms"),
}
FORMS = ["{0} {1} {2}", "{0} is {1} {2}", "{0}: {1} {2}", "{1} {2} {0}", "{0} is at {1} {2}"]
# Values of a pump that works: the range, and the number of decimals.
NORMAL = {
    "temp": (31, 72, 0), "current": (3.1, 5.9, 1), "flow": (24, 46, 0), "pressure": (2.2, 3.9, 1), "vibration": (0.3, 2.1, 1),
    "speed": (1350, 1490, 0), "supply": (23.1, 25.6, 1), "battery": (61, 99, 0), "link": (12, 90, 0),
}
MESSAGES = ["pump started", "filter cleaned", "self test passed", "operator logged in", "level is normal", "next service in {} days",
            "clock set", "valve 2 open", "report {} sent", "pump 2 started", "valve 2 cleaned"]
# The signs of each fault. A fault shows one group of signs. Each sign is a line: a reading, or wordings, and the value. The last
# wording of each list, here and below, is held out.
FAULTS = {
    "ok": [],
    "overheat": [
        [("temp", (88, 119, 0))],
        [(["motor is too hot", "winding too hot", "thermal switch of the motor open", "motor winding is too hot"], None)],
    ],
    "bearing": [
        [("vibration", (6.2, 17.5, 1))],
        [(["bearing is loud", "shaft has play", "noise at the bearing", "noise at the shaft"], None)],
    ],
    "blocked": [
        [("pressure", (5.8, 9.4, 1)), ("flow", (2, 9, 0))],
        [(["outlet is clogged", "filter is clogged", "valve 2 does not open", "valve 2 is clogged"], None)],
    ],
    "leak": [
        [("pressure", (0.2, 0.9, 1)), ("flow", (66, 94, 0))],
        [(["water on the floor", "seal is wet", "floor is wet", "water at the seal and on the floor", "water at the seal"], None)],
    ],
    "dry": [
        [("flow", (0, 0, 0)), ("current", (0.3, 1.2, 1))],
        [(["no water at the inlet", "tank is empty", "level is too low", "no water in the tank"], None)],
    ],
    "overload": [
        [("current", (8.6, 14.5, 1)), ("speed", (210, 690, 0))],
        [(["shaft does not turn", "rotor is stuck", "motor does not turn", "shaft is stuck"], None)],
    ],
    "supply": [
        [("supply", (11.2, 18.6, 1))],
        [(["one phase is missing", "supply fails", "phase 2 has no voltage", "phase 2 is missing"], None)],
    ],
    "sensor": [
        [("any", None)],
        [(["sensor {} is open", "no value from sensor {}", "sensor {}: value frozen", "value of sensor {} frozen"], (1, 9, 0))],
    ],
    "link": [
        [(["no answer, try {}", "gateway does not answer", "link lost", "answer lost", "gateway lost, try {}"], (2, 9, 0))],
        [(["{} packets lost", "{} wrong checksums", "{} wrong packets", "{} checksums wrong"], (3, 90, 0))],
    ],
    "battery": [
        [("battery", (2, 14, 0))],
        [(["charge the backup", "backup battery is old", "battery does not charge", "backup is old", "backup does not charge"], None)],
    ],
    "door": [
        [(["cabinet is open", "door of the cabinet open", "cabinet opened", "door is open", "door opened"], None)],
        [(["lock of the cabinet broken", "key switch forced", "lock forced", "cabinet forced", "key switch broken"], None)],
    ],
}
CODES = list(FAULTS)
# Lines that take back the signs before them.
TAKEN_BACK = {
    "door": ["cabinet closed again", "door closed", "door is closed again", "cabinet is closed"],
    "link": ["link is back", "gateway answers again", "gateway is back", "link answers again"],
    "battery": ["backup battery charged", "new battery in the backup", "battery is charged again", "new backup battery"],
    "sensor": ["sensor replaced", "new sensor is good", "sensor back again", "sensor is good again"],
}


def line(rng, sign, values, held_out):
    """A line of a reading or in one of the wordings; a held-out line is in a held-out form or wording."""
    value = f"{rng.uniform(*values[:2]):.{values[2]}f}" if values else "---"
    if isinstance(sign, list):
        return (sign[-1] if held_out else rng.choice(sign[:-1])).format(value)
    names, unit = READINGS[sign if sign in READINGS else rng.choice(list(READINGS))]
    at = rng.randrange(len(names))
    forms = [form for i, form in enumerate(FORMS) if (i == at) == held_out]
    return rng.choice(forms).format(names[at], value, unit)


def log(rng, held_out=False):
    """A random log and its code."""
    code = rng.choice(CODES)
    shown = rng.choice([None, *TAKEN_BACK]) if code == "ok" else code
    group = rng.choice(FAULTS[shown]) if shown else []
    signs = [line(rng, *sign, held_out) for sign in group]
    rng.shuffle(signs)
    if code == "ok" and shown:
        signs.append(line(rng, TAKEN_BACK[shown], None, held_out))
    # Readings of what the fault concerns are left out, because they could contradict the signs.
    concerned = {shown, *(sign for group in FAULTS.get(shown, []) for sign, _ in group if isinstance(sign, str))}
    rest = [name for name in NORMAL if name not in concerned]
    lines = [line(rng, name, NORMAL[name], held_out) for name in rng.sample(rest, rng.randint(3, 4) - len(signs) // 2)]
    if rng.random() < 0.4:
        lines[rng.randrange(len(lines))] = rng.choice(MESSAGES).format(rng.randint(2, 40))
    for done, place in enumerate(sorted(rng.randint(0, len(lines)) for _ in signs)):
        lines.insert(place + done, signs[done])
    return "\n".join(lines) + "\n", code


def check():
    """Every word of a held-out wording occurs in another wording."""
    words = lambda texts: {word for text in texts for word in re.findall(r"[^\s{}:,]+", text)}
    signs = [wordings for groups in FAULTS.values() for group in groups for wordings, _ in group if isinstance(wordings, list)]
    lists = [*signs, *TAKEN_BACK.values()]
    others = [*MESSAGES, *(name for names, _ in READINGS.values() for name in names), *(text for wordings in lists for text in wordings[:-1])]
    lacking = words(wordings[-1] for wordings in lists) - words(others)
    assert not lacking, lacking


def held_out(count):
    rng = random.Random("held out")
    return [log(rng, held_out=True) for _ in range(count)]


def main():
    count = int(next((arg for arg in sys.argv[1:] if arg.isdigit()), "10"))
    if "--held-out" in sys.argv:
        for text, code in held_out(count):
            print(json.dumps({"log": text, "code": code}))
    else:
        rng = random.Random(0)
        for _ in range(count):
            text, code = log(rng)
            print(f"{text}-> {code}\n")


check()
if __name__ == "__main__":
    main()
