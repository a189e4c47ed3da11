"""Runs the encoder of pictures of Arenite and of libmtmd in turns on a file of SigLIP-base's shape with random weights, and
prints a table for README.md.

eyes.py OURS THEIRS MMPROJ.gguf [--threads 1,2] [--rounds N]

OURS is the benchmark `encoder` of benches/kernels, THEIRS the program of eyes.cpp. Writes the file if it does not exist; needs
numpy and gguf for that. Each round takes the last of three passes of each program.
"""

import argparse
import pathlib
import statistics
import subprocess

SIDE, PATCH, WIDTH, INNER, LAYERS, HEADS, JOINED, ROWS = 512, 16, 768, 3072, 12, 12, 4, 576


def write(path):
    """Writes a vision model with the projector of Idefics 3, in Q8_0."""
    import gguf
    import numpy

    random = numpy.random.default_rng(1)
    out = gguf.GGUFWriter(path, "clip")
    out.add_type("mmproj")
    out.add_clip_has_vision_encoder(True)
    out.add_string("clip.projector_type", "idefics3")
    for key, value in {"image_size": SIDE, "patch_size": PATCH, "embedding_length": WIDTH, "feed_forward_length": INNER,
                       "block_count": LAYERS, "projection_dim": ROWS, "attention.head_count": HEADS,
                       "projector.scale_factor": JOINED, "preproc_image_size": SIDE}.items():
        out.add_uint32(f"clip.vision.{key}", value)
    out.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    out.add_bool("clip.use_gelu", True)
    out.add_array("clip.vision.image_mean", [0.5] * 3)
    out.add_array("clip.vision.image_std", [0.5] * 3)

    def values(*shape, mean=0.0):
        return (mean + 0.02 * random.standard_normal(shape)).astype(numpy.float32)

    def matrix(name, rows, columns):
        kind = gguf.GGMLQuantizationType.Q8_0
        out.add_tensor(name, gguf.quants.quantize(values(rows, columns), kind), raw_dtype=kind)

    def layer(name, rows, columns):
        matrix(f"{name}.weight", rows, columns)
        out.add_tensor(f"{name}.bias", values(rows))

    def norm(name):
        out.add_tensor(f"{name}.weight", values(WIDTH, mean=1.0))
        out.add_tensor(f"{name}.bias", values(WIDTH))

    matrix("mm.model.fc.weight", ROWS, WIDTH * JOINED**2)
    out.add_tensor("v.patch_embd.weight", values(WIDTH, 3, PATCH, PATCH).astype(numpy.float16))
    out.add_tensor("v.patch_embd.bias", values(WIDTH))
    out.add_tensor("v.position_embd.weight", values((SIDE // PATCH) ** 2, WIDTH))
    for block in range(LAYERS):
        name = f"v.blk.{block}"
        for part in ("ln1", "ln2"):
            norm(f"{name}.{part}")
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            layer(f"{name}.{part}", WIDTH, WIDTH)
        layer(f"{name}.ffn_up", INNER, WIDTH)
        layer(f"{name}.ffn_down", WIDTH, INNER)
    norm("v.post_ln")
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def seconds(*command):
    output = subprocess.run([str(part) for part in command], check=True, text=True, capture_output=True).stdout
    return float(output.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ours", type=pathlib.Path)
    parser.add_argument("theirs", type=pathlib.Path)
    parser.add_argument("mmproj", type=pathlib.Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not options.mmproj.exists():
        write(options.mmproj)
    print("| threads | libmtmd by Arenite | seconds, ours / theirs |\n|---|---|---|")
    for threads in map(int, options.threads.split(",")):
        times = []
        for _ in range(options.rounds):
            here = seconds(options.ours, options.mmproj, threads, SIDE, 3)
            there = seconds(options.theirs, options.mmproj, threads, SIDE, 3)
            times.append((here, there))
        ratios = sorted(there / here for here, there in times)
        medians = [statistics.median(pair[i] for pair in times) for i in (0, 1)]
        print(f"| {threads} | {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) "
              f"| {medians[0]:.2f} / {medians[1]:.2f} |", flush=True)


main()
