"""Compares what models see in 62 pictures with transformers: see `.ci/real`.

pictures.py ARENITE VIEWS FIXTURES/eyes DIRECTORY [MODEL...]

VIEWS is the example of that name of arenite-run. The pictures are photographs and textures of scikit-image, scikit-learn and
matplotlib, and drawn ones, written to DIRECTORY/pictures. Each model is converted from its checkpoint with weights in F32.
transformers reads the pictures from the same files, with its own processors and Pillow's resize, of which torchvision's is an
approximation. Compared are the pixels of all views, the rows in the place of a picture, the logits of all positions, the ids
of the prompt and sixteen greedy tokens. Prints a table; the exit code is 1 if anything differs.
"""

import io
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torchvision.transforms.v2.functional as functional
import transformers
from PIL import Image
from transformers.image_utils import load_image, pil_torch_interpolation_mapping

import drawings

ARENITE, VIEWS, CASES, DIRECTORY = sys.argv[1], sys.argv[2], *map(pathlib.Path, sys.argv[3:5])
# Largest differences: steps of a pixel, and rows and logits relative to the largest value.
PIXEL, RELATIVE = 0.5, 2e-5
QUESTION = "What is in this picture?"


def pillows_resize(pixels, size, interpolation, antialias=True):
    """Replaces torchvision's function, which some processors offer alone."""
    resample = {new: old for old, new in pil_torch_interpolation_mapping.items()}[interpolation]
    pictures = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in pixels.flatten(0, -4)]
    resized = [numpy.array(p.resize((size[1], size[0]), resample)) for p in pictures]
    return torch.from_numpy(numpy.stack(resized)).permute(0, 3, 1, 2).reshape(*pixels.shape[:-2], *size)


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode().strip()[-200:])
    return done.stdout


def saved(*arguments):
    """Runs a command that writes an array."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        run(ARENITE, *arguments, "-o", out.name)
        return numpy.load(out.name)


def off(found, wanted):
    """The largest difference relative to the largest value."""
    return float(numpy.abs(found - wanted).max() / numpy.abs(wanted).max()) if found.shape == wanted.shape else numpy.inf


class Theirs:
    """A model in transformers."""

    def __init__(self, folder, prompt):
        self.prompt = prompt
        self.processor = transformers.AutoProcessor.from_pretrained(folder)
        model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        self.model = model.eval()
        model.get_decoder().register_forward_pre_hook(self.keep, with_kwargs=True)
        self.token = getattr(model.config, "image_token_id", None) or model.config.image_token_index

    def keep(self, _, arguments, named):
        self.embeddings = named["inputs_embeds"]

    def see(self, path):
        """The steps of the views' pixels, and ids, rows, logits and greedy tokens."""
        inputs = self.processor(text=[self.prompt], images=[load_image(str(path))], return_tensors="pt", add_special_tokens=False)
        ids = inputs["input_ids"][0]
        with torch.no_grad():
            logits = self.model(**inputs).logits[0].numpy()
            rows = self.embeddings[0, ids == self.token].numpy()
            tokens = self.model.generate(**inputs, do_sample=False, max_new_tokens=16, eos_token_id=None, pad_token_id=0)
        return self.pixels(inputs), ids.tolist(), rows, logits, tokens[0, len(ids):].tolist()

    def pixels(self, inputs):
        """The views as `[height, width, 3]`, in steps of a byte."""
        values, images = inputs["pixel_values"].numpy(), self.processor.image_processor
        if "image_grid_thw" in inputs:
            _, lines, columns = inputs["image_grid_thw"][0].tolist()
            side, merge = images.patch_size, images.merge_size
            blocks = values.reshape(lines // merge, columns // merge, merge, merge, 3, -1, side, side)[:, :, :, :, :, 0]
            views = blocks.transpose(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, lines * side, columns * side)
        elif "spatial_shapes" in inputs:
            side = images.encoder_patch_size
            shapes = inputs["spatial_shapes"].tolist()
            patches = [v[: y * x].reshape(y, x, side, side, 3) for v, (y, x) in zip(values, shapes)]
            views = [p.transpose(4, 0, 2, 1, 3).reshape(3, y * side, x * side) for p, (y, x) in zip(patches, shapes)]
        else:
            views = values.reshape(-1, *values.shape[-3:])
        mean, std = (numpy.array(x).reshape(3, 1, 1) for x in (images.image_mean, images.image_std))
        return [((v.astype(float) * std + mean) * 255).transpose(1, 2, 0) for v in views]


def pixels(projector, path):
    """The views' pixels, from a stream of PPM pictures."""
    stream, views = io.BytesIO(run(VIEWS, projector, path)), []
    while line := stream.readline():
        width, height = map(int, line.split()[1:3])
        views.append(numpy.frombuffer(stream.read(3 * width * height), numpy.uint8).reshape(height, width, 3))
    return views


def compared(theirs, read, model, path):
    """Differences of pixels, rows and logits, and whether ids and greedy tokens are equal."""
    wanted, ids, rows, logits, tokens = read
    views = pixels(model.with_name(f"mmproj-{model.name}"), path)
    shapes = [v.shape for v in views] == [w.shape for w in wanted]
    steps = max(float(numpy.abs(v - w).max()) for v, w in zip(views, wanted)) if shapes else numpy.inf
    text = ["-m", model, "--image", path, "-p", theirs.prompt]
    given = ["-m", model, "--image", path, "--ids", ",".join(map(str, ids)), "--kv", "f32", "-c", len(ids) + 16]
    ours = json.loads(run(ARENITE, "tokenize", *text, "--parse-special", "--json"))
    ours = ours["ids"] if isinstance(ours, dict) else ours
    states = saved("probe", *given, "--layers", 0, "--stage", "before", "--position", "all").reshape(len(ids), -1)
    greedy = ["--kv", "f32", "-c", len(ids) + 32, "-n", 16, "--temp", 0, "--ignore-eos", "--format", "json"]
    made = json.loads(run(ARENITE, "generate", *text, *greedy))["ids"]
    return (steps, off(states[numpy.array(ids) == theirs.token], rows), off(saved("logits", *given, "--all"), logits),
            ours == ids, made == tokens)


def check(folder, pictures):
    """Compares all pictures with a model, prints its row of the table, and returns whether nothing differs."""
    reference = json.loads((folder / "ref.json").read_text())
    prompt = next(p["text"] for p in reference["prompts"] if p["name"] == "one")
    theirs = Theirs(folder, prompt)
    model = DIRECTORY / f"{folder.name}.gguf"
    run(ARENITE, "convert", "hf", folder, model, "--type", "f32")
    seen, unread, wrong = [], [], []
    for path in pictures:
        try:
            read = theirs.see(path)
        except (ValueError, RuntimeError):  # tiny and narrow pictures
            unread.append(path.name)
            continue
        try:
            found = compared(theirs, read, model, path)
        except RuntimeError as error:
            wrong.append((path.name, error))
            continue
        seen.append(found)
        if found[0] >= PIXEL or found[1] > RELATIVE or found[2] > RELATIVE or not (found[3] and found[4]):
            wrong.append((path.name, found))
    largest = [f"{max(found[i] for found in seen):.1e}" if seen else "" for i in range(3)]
    equal = [sum(found[i] for found in seen) for i in (3, 4)]
    print("|", *(f"{cell} |" for cell in [folder.name, len(seen), ', '.join(unread), *largest, *equal]), flush=True)
    for name, what in wrong:
        print(f"  {folder.name}: {name}: {what}", file=sys.stderr, flush=True)
    return not wrong


def main():
    functional.resize = pillows_resize
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    pictures = drawings.write(DIRECTORY / "pictures")
    folders = [CASES / name for name in sys.argv[5:]] or sorted(f.parent for f in CASES.glob("*/model.safetensors"))
    print("| model | pictures | not read by transformers | pixels | rows | logits | equal ids | equal tokens |\n|---|---|---|---|---|---|---|---|")
    results = [check(folder, pictures) for folder in folders]
    sys.exit(0 if all(results) else 1)


main()
