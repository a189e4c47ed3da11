"""62 pictures for `pictures.py`: photographs and textures that come with Python packages, and drawn ones."""

import io
import pathlib

import matplotlib
import numpy
import skimage
import sklearn
from PIL import Image, ImageDraw, ImageOps

matplotlib.use("Agg")
from matplotlib import pyplot

PHOTOS = [
    pathlib.Path(skimage.__file__).parent / "data",
    pathlib.Path(sklearn.__file__).parent / "datasets/images",
    pathlib.Path(matplotlib.__file__).parent / "mpl-data/sample_data",
]
# Files that are used as they are: in color, grey, with transparency or a palette, PNG, JPEG and GIF.
WHOLE = """astronaut.png brick.png camera.png cell.png chelsea.png chessboard_RGB.png clock_motion.png coffee.png coins.png color.png
 horse.png hubble_deep_field.jpg logo.png microaneurysms.png motorcycle_left.png no_time_for_that_tiny.gif page.png phantom.png
 rocket.jpg text.png china.jpg flower.jpg grace_hopper.jpg logo2.png Minduka_Present_Blue_Pack.png""".split()


def photo(name):
    return Image.open(next(folder / name for folder in PHOTOS if (folder / name).exists()))


def turned(picture, orientation):
    """The options that save a picture turned, with the orientation in EXIF that turns it back."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return dict(exif=exif)


def changed():
    """Crops of photographs and textures, in other sizes, formats and colors: name, picture and options."""
    yield "grass.jpg", photo("grass.png").crop((31, 17, 331, 218)), dict(quality=60)
    yield "gravel.webp", photo("gravel.png").convert("RGB").crop((0, 100, 512, 163)), dict(quality=70)
    yield "moon.jpg", photo("moon.png").resize((97, 401)), dict(quality=85)
    yield "ihc.webp", photo("ihc.png").crop((100, 100, 357, 290)), dict(lossless=True)
    yield "retina.jpg", photo("retina.jpg").resize((700, 700)), dict(quality=92, subsampling=0, progressive=True)
    yield "motorcycle.jpg", photo("motorcycle_right.png").crop((90, 70, 663, 500)), dict(quality=75, subsampling=1)
    yield "large.png", photo("china.jpg").resize((1280, 854)), {}
    yield "wide.jpg", photo("flower.jpg").crop((0, 200, 640, 240)), dict(quality=90)
    yield "tall.png", photo("coffee.png").crop((280, 0, 305, 400)), {}
    yield "small.png", photo("chelsea.png").resize((13, 9)), {}
    for orientation in (2, 3, 5, 6, 8):
        name, kind = f"turned{orientation}", ("jpg", "png", "webp")[orientation % 3]
        yield f"{name}.{kind}", photo("rocket.jpg").crop((150, 20, 471, 227)), turned(name, orientation)
    clear = photo("astronaut.png").crop((120, 0, 350, 300)).convert("RGBA")
    clear.putalpha(photo("camera.png").crop((0, 0, 230, 300)))
    yield "clear.png", clear, {}
    yield "clear.webp", clear.resize((150, 111)), dict(lossless=True, exact=True)
    yield "clear_grey.png", clear.convert("LA"), {}
    yield "palette.png", photo("china.jpg").crop((200, 100, 411, 350)).quantize(64), {}
    yield "grey.jpg", photo("camera.png").crop((100, 50, 309, 230)), dict(quality=80)
    yield "cmyk.jpg", photo("flower.jpg").crop((100, 50, 420, 260)).convert("CMYK"), dict(quality=90)
    yield "photo.bmp", photo("grace_hopper.jpg").crop((120, 30, 400, 391)), {}


def plotted(kind):
    """A chart of matplotlib."""
    random = numpy.random.default_rng(len(kind))
    figure, axes = pyplot.subplots(figsize=(4.3, 3.1), dpi=90)
    if kind == "lines":
        axes.plot(random.normal(size=(60, 3)).cumsum(0))
    elif kind == "bars":
        axes.bar(list("abcdef"), random.uniform(1, 9, 6), color=["C0", "C1"])
    elif kind == "pie":
        axes.pie(random.uniform(1, 5, 5), labels=list("vwxyz"))
    elif kind == "scatter":
        axes.scatter(*random.normal(size=(2, 200)), c=random.uniform(size=200), s=12)
    else:
        axes.imshow(random.uniform(size=(8, 11)), cmap="viridis")
    axes.set_title(kind)
    out = io.BytesIO()
    figure.savefig(out)
    pyplot.close(figure)
    return Image.open(out)


def lines(width, height):
    """Straight lines, circles and words."""
    picture = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(picture)
    for i in range(12):
        draw.line((i * width // 11, 0, width - i * width // 13, height), fill=(20 * i, 90, 250 - 20 * i), width=1 + i % 3)
        draw.ellipse((9 * i, 7 * i, 9 * i + width // 3, 7 * i + height // 2), outline="black")
    draw.text((width // 9, height // 2), "The sea is calm, 12:34.", fill="black")
    return picture


def drawn():
    """Charts, lines, gradients, noise, and extreme sizes."""
    random = numpy.random.default_rng(7)
    for kind in ("lines", "bars", "pie", "scatter", "heat"):
        yield f"chart_{kind}.png", plotted(kind), {}
    yield "lines.png", lines(333, 217), {}
    yield "lines.webp", lines(640, 480), dict(quality=80)
    ramp = numpy.linspace(0, 255, 257)[None, :, None] * numpy.linspace(0, 1, 129)[:, None, None] * numpy.array([1, 0.6, 0.3])
    yield "ramp.png", Image.fromarray(ramp.astype(numpy.uint8)), {}
    yield "noise.png", Image.fromarray(random.integers(0, 256, (111, 203, 3), dtype=numpy.uint8)), {}
    yield "noise.jpg", Image.fromarray(random.integers(0, 256, (150, 91, 3), dtype=numpy.uint8)), dict(quality=50)
    yield "very_wide.png", ImageOps.invert(lines(1200, 30)), {}
    yield "very_tall.png", lines(22, 900), {}
    yield "black.png", Image.new("RGB", (80, 60)), {}
    yield "one.png", Image.new("RGB", (1, 1), (200, 30, 90)), {}
    yield "thread.png", lines(300, 1), {}


def write(folder):
    """Writes the pictures and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in WHOLE:
        paths.append(folder / name)
        paths[-1].write_bytes(pathlib.Path(photo(name).filename).read_bytes())
    for name, picture, options in [*changed(), *drawn()]:
        paths.append(folder / name)
        picture.save(paths[-1], **options)
    return paths
