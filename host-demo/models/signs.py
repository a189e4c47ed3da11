"""Draws traffic signs as a camera sees them: RGB565 pictures of 96 by 96 pixels, with the name of the sign.

    python signs.py [COUNT] --out DIRECTORY     PPM files of COUNT pictures
    python signs.py COUNT --held-out            the held-out pictures: each 18432 bytes of RGB565, little-endian, on standard
                                                output after the letter F; their names on standard error

A sign is seen from some distance and angle, in some light, sometimes behind a post, in front of a background. The backgrounds of
held-out pictures (bricks, leaves) are not used in training. Requires numpy.
"""

import math
import random
import sys
from pathlib import Path

import numpy as np

SIDE = 96
SIGNS = ["stop", "yield", "no_entry", "warning", "priority", "left", "right", "ahead"]
Y, X = (axis.astype(np.float32) for axis in np.mgrid[:SIDE, :SIDE])

RED, WHITE, BLUE, YELLOW, BLACK = (190, 30, 40), (235, 235, 230), (30, 80, 170), (240, 180, 20), (25, 25, 25)


# Distances from shapes in the coordinates of a sign, whose radius is 1: negative inside.

def disc(u, v, radius):
    return np.hypot(u, v) - radius


def polygon(u, v, sides, inner, turn):
    """A regular polygon with an inscribed circle of this radius."""
    angles = [turn + 2 * math.pi * i / sides for i in range(sides)]
    return np.max([u * math.cos(a) + v * math.sin(a) for a in angles], axis=0) - inner


def box(u, v, left, right, top, bottom):
    return np.max([left - u, u - right, top - v, v - bottom], axis=0)


def stroke(u, v, width, *points):
    """A line through points."""
    least = np.float32(9)
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        dx, dy = x1 - x0, y1 - y0
        t = np.clip(((u - x0) * dx + (v - y0) * dy) / (dx * dx + dy * dy), 0, 1)
        least = np.minimum(least, np.hypot(u - x0 - t * dx, v - y0 - t * dy))
    return least - width


def arrow(u, v):
    """An arrow to the right."""
    shaft = box(u, v, -0.6, 0.2, -0.16, 0.16)
    head = np.max([(u + v - 0.62) * 0.7071, (u - v - 0.62) * 0.7071, 0.05 - u], axis=0)
    return np.minimum(shaft, head)


def layers(sign, u, v):
    """The shapes of a sign and their colors, from the back to the front."""
    if sign == "stop":
        octagon = lambda inner: polygon(u, v, 8, inner, math.pi / 8)
        letters = [
            stroke(u, v, 0.06, (-0.5, -0.22), (-0.68, -0.22), (-0.68, 0), (-0.5, 0), (-0.5, 0.22), (-0.68, 0.22)),
            np.minimum(stroke(u, v, 0.06, (-0.36, -0.22), (-0.08, -0.22)), stroke(u, v, 0.06, (-0.22, -0.22), (-0.22, 0.22))),
            stroke(u, v, 0.06, (0.08, -0.22), (0.28, -0.22), (0.28, 0.22), (0.08, 0.22), (0.08, -0.22)),
            stroke(u, v, 0.06, (0.45, 0.22), (0.45, -0.22), (0.65, -0.22), (0.65, 0.02), (0.45, 0.02)),
        ]
        return [(octagon(0.95), WHITE), (octagon(0.87), RED), (np.min(letters, axis=0), WHITE)]
    if sign in ("yield", "warning"):
        up = -1 if sign == "yield" else 1
        triangle = lambda inner: polygon(u, v * up - 0.25, 3, inner, math.pi / 2)
        own = [(triangle(0.62), RED), (triangle(0.4), WHITE)]
        if sign == "warning":
            mark = np.minimum(stroke(u, v, 0.09, (0, -0.12), (0, 0.25)), disc(u, v - 0.48, 0.1))
            own.append((mark, BLACK))
        return own
    if sign == "no_entry":
        return [(disc(u, v, 1), WHITE), (disc(u, v, 0.94), RED), (box(u, v, -0.68, 0.68, -0.17, 0.17), WHITE)]
    if sign == "priority":
        square = lambda inner: polygon(u, v, 4, inner, math.pi / 4)
        return [(square(0.72), WHITE), (square(0.66), BLACK), (square(0.63), WHITE), (square(0.46), YELLOW)]
    along, across = {"left": (-u, v), "right": (u, v), "ahead": (-v, u)}[sign]
    return [(disc(u, v, 1), WHITE), (disc(u, v, 0.93), BLUE), (arrow(along, across), WHITE)]


def blend(picture, distance, color, soft):
    """Paints the inside of a shape; its edge is `soft` pixels wide."""
    share = np.clip(0.5 - distance / soft, 0, 1)[..., None]
    return picture + share * (np.asarray(color, np.float32) - picture)


def any_color(rng, low=20, high=225):
    return np.array([rng.uniform(low, high) for _ in range(3)], np.float32)


def shade(rng):
    """A slope of light over the picture."""
    angle = rng.uniform(0, 2 * math.pi)
    return ((X - SIDE / 2) * math.cos(angle) + (Y - SIDE / 2) * math.sin(angle)) / SIDE


def background(rng, held_out):
    """Sky and ground with blots, boxes and bars; bricks or leaves if it is held out."""
    picture = any_color(rng) + shade(rng)[..., None] * any_color(rng, -120, 120)
    if held_out and rng.random() < 0.5:
        high, wide = rng.uniform(6, 14), rng.uniform(14, 30)
        row = np.floor(Y / high)
        joint = np.minimum((Y % high), ((X + row % 2 * wide / 2) % wide))
        return blend(picture, joint - rng.uniform(0.8, 2), any_color(rng), 1)
    if held_out:
        for _ in range(40):
            x, y, size, angle = rng.uniform(0, SIDE), rng.uniform(0, SIDE), rng.uniform(3, 9), rng.uniform(0, math.pi)
            u = (X - x) * math.cos(angle) + (Y - y) * math.sin(angle)
            v = (Y - y) * math.cos(angle) - (X - x) * math.sin(angle)
            picture = blend(picture, np.hypot(u, 2.5 * v) - size, any_color(rng), 1.5)
        return picture
    for _ in range(rng.randint(0, 6)):
        x, y, size = rng.uniform(0, SIDE), rng.uniform(0, SIDE), rng.uniform(4, 40)
        kind = rng.randrange(4)
        if kind == 0:
            shape = disc(X - x, Y - y, size)
        elif kind == 1:
            shape = box(X - x, Y - y, -size, size, -size * rng.uniform(0.1, 2), size * rng.uniform(0.1, 2))
        elif kind == 2:
            shape = stroke(X, Y, rng.uniform(0.5, 4), (x, y), (rng.uniform(0, SIDE), rng.uniform(0, SIDE)))
        else:
            shape = polygon(X - x, Y - y, rng.randint(3, 6), size / 2, rng.uniform(0, 6))
        picture = blend(picture, shape, any_color(rng), rng.uniform(0.5, 5))
    return picture


def picture(rng, held_out=False, sign=None):
    """A random picture as RGB565, `[SIDE][SIDE]`, and the number of its sign."""
    sign = rng.randrange(len(SIGNS)) if sign is None else sign
    rgb = background(rng, held_out)
    radius = rng.uniform(16, 44)
    free = max(SIDE / 2 - radius, 4)
    x, y, angle = SIDE / 2 + rng.uniform(-free, free), SIDE / 2 + rng.uniform(-free, free), math.radians(rng.uniform(-14, 14))
    # The sign is turned, seen from the side, and nearer on one edge.
    u, v = (X - x) / radius, (Y - y) / radius
    u, v = u * math.cos(angle) + v * math.sin(angle), v * math.cos(angle) - u * math.sin(angle)
    near = 1 + rng.uniform(-0.15, 0.15) * u + rng.uniform(-0.1, 0.1) * v
    u, v = u / near / rng.uniform(0.7, 1), v / near / rng.uniform(0.9, 1)
    soft = rng.uniform(0.8, 3) / radius
    faded = rng.uniform(0, 0.3)
    if rng.random() < 0.5:
        rgb = blend(rgb, box(X - x, Y - y, -2, 2, 0, SIDE), any_color(rng, 80, 160), 1)
    for distance, color in layers(SIGNS[sign], u, v):
        color = [c + faded * (150 - c) + rng.uniform(-15, 15) for c in color]
        rgb = blend(rgb, distance, color, soft)
    if rng.random() < 0.25:
        # Something thin in front.
        at, lean = rng.uniform(0, SIDE), rng.uniform(-20, 20)
        rgb = blend(rgb, stroke(X, Y, rng.uniform(0.5, 2.5), (at, 0), (at + lean, SIDE)), any_color(rng), 1)
    light = rng.uniform(0.35, 1.15) * (1 + rng.uniform(0, 0.5) * shade(rng))
    rgb = rgb * light[..., None] * np.array([rng.uniform(0.88, 1.12) for _ in range(3)], np.float32) + rng.uniform(0, 25)
    noise = np.random.RandomState(rng.getrandbits(32)).standard_normal((SIDE, SIDE, 3))
    rgb = np.clip(rgb + noise * rng.uniform(0, 10), 0, 255).astype(np.uint16)
    return (rgb[..., 0] >> 3 << 11 | rgb[..., 1] >> 2 << 5 | rgb[..., 2] >> 3).astype("<u2"), sign


def rgb888(rgb565):
    """The bytes of red, green and blue: the highest bits also fill the lowest."""
    r, g, b = rgb565 >> 11, rgb565 >> 5 & 63, rgb565 & 31
    return np.stack([r << 3 | r >> 2, g << 2 | g >> 4, b << 3 | b >> 2], axis=-1).astype(np.uint8)


def held_out(count):
    """The held-out pictures: each sign is equally frequent."""
    rng = random.Random("held out")
    return [picture(rng, True, i % len(SIGNS)) for i in range(count)]


def main():
    count = int(next((arg for arg in sys.argv[1:] if arg.isdigit()), "10"))
    if "--held-out" in sys.argv:
        for rgb565, sign in held_out(count):
            sys.stdout.buffer.write(b"F" + rgb565.tobytes())
            print(SIGNS[sign], file=sys.stderr)
        return
    out, rng = Path(sys.argv[sys.argv.index("--out") + 1]), random.Random(0)
    for i in range(count):
        rgb565, sign = picture(rng)
        (out / f"{i}_{SIGNS[sign]}.ppm").write_bytes(b"P6 %d %d 255\n" % (SIDE, SIDE) + rgb888(rgb565).tobytes())


if __name__ == "__main__":
    main()
