"""Trains an encoder of pictures that names the traffic sign in front of a camera.

    python eye.py [--steps N] [--pictures N] [--threads N] [--seed N] --out FILE

The pictures come from `signs.py`. The model is a vision transformer; the mean of its states, normed and multiplied by a matrix, gives
a value for each sign. The file is an `mmproj` whose rows are these values: the projector of Gemma 3 with one row for the whole picture.
Requires torch, numpy and gguf. All seeds are fixed.
"""

import argparse
import os
import random
import time
from pathlib import Path

# Threads that spin while waiting waste much time on a computer with other work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

import signs
from signs import SIDE, SIGNS

PATCH, DIM, LAYERS, HEADS, HIDDEN, EPS = 12, 64, 2, 4, 128, 1e-5
GRID, HEAD = SIDE // PATCH, DIM // HEADS


def encoder():
    """A vision transformer. The parameters have the names of GGUF tensors, after `v.` or `mm.`."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(DIM, EPS), nn.LayerNorm(DIM, EPS)
            self.attn_q, self.attn_k, self.attn_v, self.attn_out = (nn.Linear(DIM, DIM) for _ in range(4))
            self.ffn_up, self.ffn_down = nn.Linear(DIM, HIDDEN), nn.Linear(HIDDEN, DIM)

        def forward(self, x):
            heads = lambda y: y.unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
            y = self.ln1(x)
            q, k, v = heads(self.attn_q(y)), heads(self.attn_k(y)), heads(self.attn_v(y))
            y = (q @ k.transpose(-1, -2) / HEAD ** 0.5).softmax(-1) @ v
            x = x + self.attn_out(y.transpose(1, 2).flatten(2))
            y = self.ffn_up(self.ln2(x))
            return x + self.ffn_down(0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y ** 3))))

    class Eye(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch_embd = nn.Linear(3 * PATCH * PATCH, DIM)
            self.position_embd = nn.Embedding(GRID * GRID, DIM)
            self.blk = nn.ModuleList(Block() for _ in range(LAYERS))
            self.post_ln = nn.LayerNorm(DIM, EPS)
            self.soft_emb_norm = nn.Parameter(torch.ones(DIM))
            self.input_projection = nn.Parameter(torch.zeros(DIM, len(SIGNS)))
            nn.init.normal_(self.position_embd.weight, std=0.1)

        def forward(self, pictures):
            """Takes bytes, `[batch][3][SIDE][SIDE]`."""
            x = (pictures.float() / 255 - 0.5) / 0.5
            x = nn.functional.unfold(x, PATCH, stride=PATCH).transpose(1, 2)
            x = self.patch_embd(x) + self.position_embd.weight
            for block in self.blk:
                x = block(x)
            x = self.post_ln(x).mean(1)
            x = x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.soft_emb_norm
            return x @ self.input_projection

    return Eye()


def write(path, model):
    import gguf
    w = gguf.GGUFWriter(path, "clip")
    w.add_name("Arenite Eye")
    w.add_description("Names the traffic sign in a picture")
    w.add_license("MIT OR Apache-2.0")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "gemma3")
    w.add_bool("clip.use_gelu", True)
    numbers = {"image_size": SIDE, "patch_size": PATCH, "embedding_length": DIM, "feed_forward_length": HIDDEN, "block_count": LAYERS,
               "attention.head_count": HEADS, "projection_dim": len(SIGNS), "projector.scale_factor": GRID}
    for name, number in numbers.items():
        w.add_uint32(f"clip.vision.{name}", number)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", EPS)
    w.add_array("clip.vision.image_mean", [0.5] * 3)
    w.add_array("clip.vision.image_std", [0.5] * 3)
    w.add_array("clip.vision.output_labels", SIGNS)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, p in model.named_parameters():
        values = p.detach().numpy()
        if name == "patch_embd.weight":
            # A row of the kernel, of 12 pixels, is not a whole block of Q8_0.
            w.add_tensor("v.patch_embd.weight", values.reshape(DIM, 3, PATCH, PATCH).astype(np.float16))
        elif name == "soft_emb_norm":
            w.add_tensor("mm.soft_emb_norm.weight", values)
        elif name == "input_projection":
            w.add_tensor("mm.input_projection.weight", values)
        elif p.dim() == 2:
            q8 = gguf.GGMLQuantizationType.Q8_0
            w.add_tensor(f"v.{name}", gguf.quants.quantize(values, q8), raw_dtype=q8)
        else:
            w.add_tensor(f"v.{name}", values)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def tensors(pairs):
    """Pictures and signs as tensors."""
    import torch
    pictures = np.stack([signs.rgb888(picture) for picture, _ in pairs]).transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(pictures)), torch.tensor([sign for _, sign in pairs])


def train(args):
    import torch
    from torch import nn
    from train import Muon
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    start = time.process_time()
    rng = random.Random(args.seed)
    pictures, numbers = tensors([signs.picture(rng) for _ in range(args.pictures)])
    held = tensors(signs.held_out(1000))
    print(f"{args.pictures} pictures in {time.process_time() - start:.0f} s of processor time", flush=True)
    model = encoder()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    inner = [p for name, p in model.named_parameters() if p.dim() == 2 and (name.startswith("blk.") or name == "patch_embd.weight")]
    others = [p for p in model.parameters() if all(p is not q for q in inner)]
    optimizers = [Muon(inner, lr=args.rate), torch.optim.AdamW(others, lr=args.rate / 4, betas=(0.9, 0.98), weight_decay=0.01)]
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: min((step + 1) / 100, 1 - step / args.steps)) for o in optimizers]
    right = lambda pictures, numbers: (model(pictures).argmax(-1) == numbers).float().mean().item()
    mean, order = 0, []
    for step in range(1, args.steps + 1):
        # Each picture is used once before one is used again, each time shifted by up to 8 pixels.
        if len(order) < args.batch:
            order = torch.randperm(args.pictures).tolist()
        chosen, order = order[:args.batch], order[args.batch:]
        batch = torch.roll(pictures[chosen], (rng.randint(-8, 8), rng.randint(-8, 8)), (2, 3))
        loss = nn.functional.cross_entropy(model(batch), numbers[chosen])
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in optimizers + schedules:
            part.step()
        mean += (loss.item() - mean) / min(step, 100)
        if step % 250 == 0 or step == args.steps:
            with torch.no_grad():
                print(f"step {step}/{args.steps}  loss {mean:.4f}  right: first 100 held out {right(held[0][:100], held[1][:100]):.3f}, "
                      f"all {right(*held):.3f}  {time.process_time() - start:.0f} s of processor time", flush=True)
    write(args.out, model)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=3000, help="number of steps; the learning rate falls to zero over them")
    options.add_argument("--batch", type=int, default=64, help="pictures per step")
    options.add_argument("--pictures", type=int, default=8000, help="number of different pictures")
    options.add_argument("--rate", type=float, default=0.01)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, required=True)
    train(options.parse_args())


if __name__ == "__main__":
    main()
