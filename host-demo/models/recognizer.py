"""Trains a speech recognizer for microcontrollers. It distinguishes ten commands in English from other sentences.

    python recognizer.py [--steps N] [--threads N] [--out trained]       writes a checkpoint that `arenite convert hf` reads
    python recognizer.py --held-out FILE.wav        writes a recording of 100 held-out utterances, and FILE.json
    python recognizer.py --dev FILE.wav             the same in other voices, for choices during development
    python recognizer.py --check FILE.wav --arenite PROGRAM [--model recognizer.gguf]
    python recognizer.py --recording FILE.wav       writes the short recording of tests/boards/commands

espeak-ng, flite and festival speak all sentences; no recorded voice is used. The optimizer is that of `train.py`. Requires
espeak-ng, flite, festival with festvox-kdlpc16k, torch, numpy, transformers, sentencepiece and gguf. All seeds are fixed.
"""

import argparse
import io
import json
import math
import os
import pickle
import random
import struct
import subprocess
import tempfile
import time
import wave
from pathlib import Path

# Threads that spin while waiting waste much time on a computer with other work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

HERE = Path(__file__).parent
RATE, WINDOW, HOP, FFT, BINS = 16000, 32000, 160, 400, 32
# Number of samples that `arenite::sound::Voice` keeps before the first loud one.
BEFORE = 3200
DIM, HEADS, LAYERS, HIDDEN, DECODER_HIDDEN = 96, 4, 2, 256, 128

# --- sentences -------------------------------------------------------------------------------

COMMANDS = ["kitchen light on", "garage lamps off", "open the bedroom blinds", "attic shutters down", "dim the office light",
            "warm up the nursery", "bathroom heating off", "start the cellar heater", "hall light to fifty percent", "stop the lounge radiator"]
# Each command is one token. Two tokens follow, for the end of the text and the start of the decoder.
END, START = len(COMMANDS), len(COMMANDS) + 1
OTHERS = """kitchen light|kitchen|kitchen light off|kitchen lamps on|kitchen heating on|kitchen radio on|kitchen music off|kitchen table
garage lamps|garage|garage lamps on|garage door open|garage sale|hall lamps off|lamps off|office lamps on|close the garage|garage light
open the bedroom|the bedroom blinds|bedroom|close the bedroom blinds|open the window|open the bedroom window|open the office|open
attic|attic shutters|attic shutters up|attic window down|shutters down|the attic is dark|calm down|cellar shutters open|sit down
dim the lights|dim the kitchen light|dim sum|office light|office|office chair|the office is closed|brighten the office|light
warm up|warm up the soup|warm up the car|warm water|the nursery|the nursery rhyme|cool the nursery|nursery light on|warm up the hall
bathroom heating|bathroom heating on|bathroom|bathroom door open|bathroom music on|bathroom mirror|bathroom light off|heating off|heating|heating bill
start the cellar|start|start the car|start the engine|cellar door|cellar stairs|the cellar is cold|stop the cellar heater|cellar light on|heater
hall light|hall light on|hall light off|the hall is dark|fifty percent|fifty|hall light to twenty percent|fifty people|set an alarm for seven
stop|stop the music|stop the radiator|the lounge|lounge|lounge light on|start the lounge radiator|radiator|stop the lawn mower|lounge radiator up
what time is it|play some music|good morning|good night|hello|thank you very much|how are you today|I am in the kitchen|call my brother
what is the weather like|go on|never mind|yes please|no thanks|where is the garage key|on|off|turn on the radio|turn off the radio
a cup of coffee|dinner is ready|come here|look at that|one two three|the quick brown fox|see you tomorrow|I like this song|close the door
who is there|wait a minute|read me a story|close the kitchen door|the light is on|the light was off|a bright idea""".replace("\n", "|").split("|")
HELD_OTHERS = """open the garage door|kitchen window closed|bedroom lamp|turn the volume down|what is for dinner|the heating is too loud
bathroom towel|office party on Friday|close your eyes|tell me a joke|water the plants|my nursery school|a hall of mirrors|light rain today
the cellar key|good evening everyone|stop talking|warm milk and honey|down the road|half past five""".replace("\n", "|").split("|")

# --- voices ----------------------------------------------------------------------------------

ACCENTS = ["en", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029"]
VARIANTS = """Alex Alicia Andrea Annie Denis Diogo Gene2 Henrique Hugo Jacky Marco Mario Mike RicishayMax
RicishayMax3 Tweaky adam anika announcer antonio aunty belinda boris caleb david ed edward2 f1 f2 f4 f5 fast grandma grandpa gustave iven iven2
iven4 john kaukovalta klatt klatt2 klatt4 klatt5 klatt6 linda m1 m2 m4 m5 m7 m8 max michel miguel norbert pablo paul pedro quincy rob sandro
shelby steph steph3 travis victor whisper zac""".split()
# Training also uses two other synthesizers, one with a statistical voice and one with diphones.
OTHER_VOICES = ["flite rms", "festival ked_diphone"]
# Voices that training does not use: HELD_ for the results, DEV_ for the scores that training prints.
HELD_VARIANTS = "Andy Lee Michael Nguyen benjamin edward f3 iven3 klatt3 m3 m6 marcelo robert steph2".split()
HELD_ACCENT = "en-us-nyc"
HELD_FLITE = ["flite slt", "flite kal", "flite kal16"]
DEV_VARIANTS = "AnxiousAndy Gene RicishayMax2 whisperf".split()
DEV_FLITE = ["flite awb"]


def resampled(samples, rate):
    """Resamples to 16 kHz by the Fourier transform."""
    spectrum = np.fft.rfft(samples)
    length = len(samples) * RATE // rate
    return np.fft.irfft(np.pad(spectrum, (0, max(length // 2 + 1 - len(spectrum), 0)))[:length // 2 + 1], length) * (length / len(samples))


def decoded(file):
    with wave.open(io.BytesIO(file)) as sound:
        rate, samples = sound.getframerate(), np.frombuffer(sound.readframes(10**9), np.int16)
    # The header of espeak-ng's output to a pipe does not contain the real length.
    samples = resampled(samples / 32768, rate) if rate != RATE else samples / 32768
    loud = np.nonzero(np.abs(samples) > 0.02 * np.abs(samples).max())[0]
    return samples[max(loud[0] - 160, 0):loud[-1] + 480].astype(np.float32)


def espeak(text, accent, variant, pitch, speed):
    command = ["espeak-ng", "-v", f"{accent}+{variant}", "-p", str(pitch), "-s", str(speed), "--stdout", text]
    return decoded(subprocess.run(command, capture_output=True, check=True).stdout)


def flite(text, voice, stretch):
    command = ["flite", "-voice", voice, "--setf", f"duration_stretch={stretch:.2f}", "-t", text, "-o", "/dev/stdout"]
    return decoded(subprocess.run(command, capture_output=True, check=True).stdout)


def festival(voice, texts):
    """Speaks sentences, each stretched by its own factor, in one process of festival."""
    with tempfile.TemporaryDirectory() as directory:
        script = [f"(voice_{voice})"]
        for i, (text, stretch) in enumerate(texts):
            script.append(f"(Parameter.set 'Duration_Stretch {stretch:.2f})")
            script.append(f'(utt.save.wave (utt.synth (Utterance Text "{text}")) "{directory}/{i}.wav")')
        (Path(directory) / "script.scm").write_text("\n".join(script))
        subprocess.run(["festival", "-b", f"{directory}/script.scm"], check=True)
        return [decoded((Path(directory) / f"{i}.wav").read_bytes()) for i in range(len(texts))]


def spoken(rng, text, variants, accents=ACCENTS):
    """Speaks a sentence in a random voice of espeak-ng, at a random pitch and speed."""
    return espeak(text, rng.choice(accents), rng.choice(variants), rng.randint(20, 80), rng.randint(145, 220))


def spoken_by(rng, texts, voice):
    """Speaks sentences in a voice of another synthesizer, resampled to shorter or longer vocal tracts."""
    engine, name = voice.split()
    shares = [(rng.uniform(0.86, 1.3), rng.uniform(0.7, 0.95)) for _ in texts]
    texts = [(text, share * stretch) for text, (share, stretch) in zip(texts, shares)]
    said = festival(name, texts) if engine == "festival" else [flite(text, name, stretch) for text, stretch in texts]
    return [resampled(clip, round(RATE * share)).astype(np.float32) for clip, (share, _) in zip(said, shares)]


# --- sounds for training -----------------------------------------------------------------------

def room(rng, clip):
    """Adds the echo of a simple room to a clip: some reflections, and a tail of noise that decays."""
    length = rng.randint(800, 4800)
    noise = np.random.default_rng(rng.randrange(1 << 30))
    answer = noise.standard_normal(length) * np.exp(-6.9 * np.arange(length) / length) * noise.uniform(0.01, 0.06)
    answer[:200] *= noise.random(200) < 0.05
    answer[0] = 1
    size = 1 << (len(clip) + length).bit_length()
    return np.fft.irfft(np.fft.rfft(clip, size) * np.fft.rfft(answer, size), size)[:len(clip) + length // 2].astype(np.float32)


def clips(seed, count, variants, voices):
    """Makes clips of each command and of other sentences. A clip is the sound, the number of the command, the text, and 0 for
    espeak-ng or 1 for another synthesizer. espeak-ng speaks each command `count` times. Some clips get the echo of a room, some
    the bandwidth of a telephone."""
    rng, found = random.Random(seed), []

    def texts(count):
        its = [(text, i) for i, text in enumerate(COMMANDS) for _ in range(count)]
        return its + [(rng.choice(OTHERS), END) for _ in range(5 * count)]

    def add(clip, label, text, voice):
        if rng.random() < 0.2:
            spectrum = np.fft.rfft(clip)
            spectrum[int(len(spectrum) * rng.uniform(0.42, 0.6)):] = 0
            clip = np.fft.irfft(spectrum, len(clip)).astype(np.float32)
        if rng.random() < 0.5:
            clip = room(rng, clip)
        found.append(((clip / (np.abs(clip).max() + 1e-9) * 30000).astype(np.int16), label, text, voice))

    for text, label in texts(count):
        clip = spoken(rng, text, variants)
        if label < END and len(clip) > WINDOW - BEFORE:
            clip = spoken(rng, text, variants)
        add(clip, label, text, 0)
    for voice in voices:
        some = texts(max(count // 6, 1))
        for clip, (text, label) in zip(spoken_by(rng, [text for text, _ in some], voice), some):
            add(clip, label, text, 1)
    return found


def cached(directory, name, make):
    """Returns the clips in the file of this name in the directory. Makes the clips if there is no such file."""
    path = directory / f"{name}.pickle" if directory else None
    if path and path.exists():
        return pickle.loads(path.read_bytes())
    found = make()
    if path:
        path.write_bytes(pickle.dumps(found))
    return found


def phonemes(texts):
    """Returns the phonemes of each sentence as numbers from 1 on, and the number of different phonemes."""
    its = {}
    for text in texts:
        said = subprocess.run(["espeak-ng", "-q", "-x", "-v", "en-us", text], capture_output=True, text=True, check=True).stdout
        its[text] = [c for c in said if c.isalnum() or c == "@"]
    known = sorted({c for chars in its.values() for c in chars})
    return {text: [known.index(c) + 1 for c in chars] for text, chars in its.items()}, len(known)


def noises(rng, found):
    """Makes noises of a minute each: white, pink, brown, hum, and many voices at once."""
    length = 60 * RATE
    white = rng.standard_normal(length)
    spectrum, f = np.fft.rfft(white), np.maximum(np.arange(length // 2 + 1), 60 * 30)
    made = [white, np.fft.irfft(spectrum / np.sqrt(f)), np.fft.irfft(spectrum / f)]
    made.append(sum(np.sin(2 * np.pi * 50 * k * np.arange(length) / RATE) / k for k in (1, 2, 3, 5)) + 0.1 * rng.standard_normal(length))
    babble = np.zeros(length)
    for _ in range(300):
        clip = found[rng.integers(len(found))][0]
        at = rng.integers(length - len(clip))
        babble[at:at + len(clip)] += clip
    made.append(babble)
    return [(noise / np.sqrt(np.mean(noise ** 2))).astype(np.float32) for noise in made]


def window(rng, found, by_label, noise):
    """Returns a window as the recognizer receives it, the number of its command, and its text if that is whole."""
    kind, sound, length, text = rng.random(), np.zeros(WINDOW, np.float32), WINDOW, None
    label = END if kind < 0.25 else int(rng.integers(len(COMMANDS)))
    level = 10 ** rng.uniform(-1.4, -0.05)
    if kind >= 0.02:
        is_tail = kind < 0.05
        of = int(rng.integers(len(COMMANDS))) if is_tail else label
        # Other synthesizers have fewer clips than espeak-ng.
        some = by_label[of][int(rng.random() < 0.4)]
        clip, _, said, _ = found[some[rng.integers(len(some))]]
        if is_tail:
            # A window may begin within a sentence.
            clip = clip[int(len(clip) * rng.uniform(0.3, 0.85)):]
        start = 0 if is_tail else int(rng.integers(BEFORE // 3, BEFORE + 1600))
        text = None if is_tail or len(clip) > WINDOW - start + 1600 else said
        clip = clip[:WINDOW - start]
        sound[start:start + len(clip)] = clip * (level / 32768)
        # The window often ends soon after the voice; zeros follow.
        if rng.random() < 0.75:
            length = min(start + len(clip) + int(rng.integers(1600, 6400)), WINDOW)
    its = noise[rng.integers(len(noise))]
    at = rng.integers(len(its) - WINDOW)
    sound += its[at:at + WINDOW] * (level * 0.1 * 10 ** (-rng.uniform(5, 45) / 20))
    sound[length:] = 0
    return sound, label, text


# --- features ----------------------------------------------------------------------------------

def triangles():
    """Returns the weights of frequencies in bands, on Slaney's scale."""
    hertz = lambda mel: mel * 200 / 3 if mel < 15 else 1000 * math.exp((mel - 15) * math.log(6.4) / 27)
    highest = 15 + math.log(8) * 27 / math.log(6.4)
    corners = [hertz(highest * i / (BINS + 1)) for i in range(BINS + 2)]
    f = np.arange(FFT // 2 + 1) * RATE / FFT
    rows = [np.maximum(np.minimum((f - a) / (b - a), (c - f) / (c - b)), 0) * 2 / (c - a) for a, b, c in zip(corners, corners[1:], corners[2:])]
    return np.array(rows, np.float32)


def features(sounds, change=None):
    """Computes Whisper's features, `[sounds, bands, frames]`. `change` is applied to the logarithms."""
    import torch
    spectrum = torch.stft(sounds, FFT, HOP, window=torch.hann_window(FFT), return_complex=True)[..., :-1]
    logs = (torch.from_numpy(triangles()) @ spectrum.abs().square()).clamp(min=1e-10).log10()
    if change:
        logs = change(logs)
    return (torch.maximum(logs, logs.amax((1, 2), keepdim=True) - 8) + 4) / 4


def varied(logs):
    """Makes other voices from the same sounds: filters them, varies the speed and the length of the vocal tract, and adds gaps."""
    import torch
    import torch.nn.functional as F
    count = len(logs)
    curve = F.interpolate(torch.randn(count, 1, 6) * 0.3, BINS, mode="linear", align_corners=True)
    logs = logs + curve.transpose(1, 2)
    # The first frames and the lowest bands stay in place.
    move = torch.zeros(count, 2, 3)
    for axis, most in (0, 0.15), (1, 0.12):
        move[:, axis, axis] = 1 + (torch.rand(count) * 2 - 1) * most
        move[:, axis, 2] = move[:, axis, axis] - 1
    grid = F.affine_grid(move, [count, 1, *logs.shape[1:]], align_corners=True)
    logs = F.grid_sample(logs[:, None], grid, padding_mode="border", align_corners=True)[:, 0]
    for axis, most in (1, 5), (2, 12):
        size = logs.shape[axis]
        first = torch.randint(size, (count, 1))
        i = torch.arange(size)
        gap = (i >= first) & (i < first + torch.randint(most, (count, 1))) & (torch.rand(count, 1) < 0.5)
        mean = logs.mean((1, 2), keepdim=True)
        logs = torch.where(gap[:, :, None] if axis == 1 else gap[:, None], mean, logs)
    return logs


# --- training ----------------------------------------------------------------------------------

def new_model():
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    return WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=START + 1, num_mel_bins=BINS, d_model=DIM, max_source_positions=WINDOW // 320, max_target_positions=8,
        encoder_layers=LAYERS, encoder_attention_heads=HEADS, encoder_ffn_dim=HIDDEN,
        decoder_layers=1, decoder_attention_heads=HEADS, decoder_ffn_dim=DECODER_HIDDEN, dropout=0.05,
        decoder_start_token_id=START, bos_token_id=END, eos_token_id=END, pad_token_id=END, suppress_tokens=None, begin_suppress_tokens=None))


def save(model, out):
    """Writes a checkpoint in the format of transformers. Each command is a token."""
    out.mkdir(exist_ok=True)
    model.save_pretrained(out)
    special = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, text in ((END, "<|endoftext|>"), (START, "<|startoftranscript|>"))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "vocab": {text.replace(" ", "\u0120"): i for i, text in enumerate(COMMANDS)}, "merges": []}}
    (out / "tokenizer.json").write_text(json.dumps(tokenizer))
    (out / "generation_config.json").write_text(json.dumps({"eos_token_id": END, "decoder_start_token_id": START, "is_multilingual": False}))


def inputs(labels):
    """Returns the inputs of the decoder and its targets: the command and the end, or only the end."""
    import torch
    labels = torch.tensor(labels)
    after = torch.where(labels == END, -100, END)
    return torch.stack([torch.full_like(labels, START), labels], 1), torch.stack([labels, after], 1)


def train(args):
    import torch
    import torch.nn.functional as F
    import train as common
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    start = time.process_time()
    rng = np.random.default_rng(args.seed)
    found = cached(args.cache, f"training {args.seed} {args.clips}", lambda: clips(f"training {args.seed}", args.clips, VARIANTS, OTHER_VOICES))
    by_label = [[[i for i, (_, label, _, voice) in enumerate(found) if (label, voice) == (each, kind)] for kind in (0, 1)] for each in range(END + 1)]
    sounds_of, count = phonemes({text for _, _, text, _ in found})
    noise = noises(rng, found)
    dev = cached(args.cache, "dev", lambda: clips("dev", 24, DEV_VARIANTS, DEV_FLITE))
    dev_windows = noise[1][:WINDOW] * np.full((len(dev), 1), 0.001, np.float32)
    for sound, (clip, *_) in zip(dev_windows, dev):
        clip = clip[:WINDOW - BEFORE]
        sound[BEFORE:BEFORE + len(clip)] += clip / 65536
    dev_features = features(torch.from_numpy(dev_windows.astype(np.float32)))
    dev_labels, dev_voices = torch.tensor([label for _, label, _, _ in dev]), torch.tensor([voice for *_, voice in dev])
    model = new_model()
    # Learns the phonemes of all sentences from the encoder's states. It helps the training and is not part of the checkpoint.
    speller = torch.nn.Linear(DIM, count + 1)
    print(f"{len(found)} clips, {sum(p.numel() for p in model.parameters())} parameters, {time.process_time() - start:.0f} s of processor time", flush=True)
    inner = [p for name, p in model.named_parameters() if p.requires_grad and p.dim() == 2 and ".layers." in name]
    others = [p for p in [*model.parameters(), *speller.parameters()] if p.requires_grad and all(p is not q for q in inner)]
    optimizers = [common.Muon(inner, lr=args.rate), torch.optim.AdamW(others, lr=args.rate / 5, betas=(0.9, 0.98), weight_decay=0.01)]
    slope = lambda step: min((step + 1) / 100, 1.2 * (1 - step / args.steps), 1)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, slope) for optimizer in optimizers]
    mean = [0, 0]
    for step in range(1, args.steps + 1):
        sounds, labels, texts = zip(*(window(rng, found, by_label, noise) for _ in range(args.batch)))
        with torch.no_grad():
            heard = features(torch.from_numpy(np.stack(sounds)), varied)
        read, wanted = inputs(labels)
        output = model(input_features=heard, decoder_input_ids=read, use_cache=False)
        loss = F.cross_entropy(output.logits.flatten(0, 1), wanted.flatten(), label_smoothing=0.02)
        whole = [i for i, text in enumerate(texts) if text]
        spelled = speller(output.encoder_last_hidden_state[whole]).log_softmax(-1).transpose(0, 1)
        targets = [torch.tensor(sounds_of[texts[i]]) for i in whole]
        lengths = torch.tensor([len(target) for target in targets])
        spelling = F.ctc_loss(spelled, torch.cat(targets), torch.full_like(lengths, len(spelled)), lengths, zero_infinity=True)
        for optimizer in optimizers:
            optimizer.zero_grad()
        (loss + 0.3 * spelling).backward()
        torch.nn.utils.clip_grad_norm_(inner + others, 1.0)
        for part in optimizers + schedules:
            part.step()
        mean = [m + (x.item() - m) / min(step, 100) for m, x in zip(mean, (loss, spelling))]
        if step % 100 == 0 or step == args.steps:
            model.eval()
            with torch.no_grad():
                best = model(input_features=dev_features, decoder_input_ids=inputs(dev_labels.tolist())[0], use_cache=False).logits[:, 0].argmax(-1)
            model.train()
            right = [(best == dev_labels)[dev_voices == voice].float().mean().item() for voice in (0, 1)]
            print(f"step {step}/{args.steps}  loss {mean[0]:.4f}, of phonemes {mean[1]:.3f}  other voices {right[0]:.3f}, "
                  f"another synthesizer's {right[1]:.3f}  {time.process_time() - start:.0f} s of processor time", flush=True)
            save(model, args.out)


# --- held-out voices -----------------------------------------------------------------------------

def utterances(seed, texts, voices):
    """Speaks sentences in these voices in turn, with espeak-ng or flite."""
    rng = random.Random(seed)
    for i, text in enumerate(texts):
        voice = voices[i % len(voices)]
        if voice.startswith("flite "):
            clip = flite(text, voice.split()[1], rng.uniform(0.75, 1.0))
        else:
            clip = espeak(text, rng.choice(["en-us", "en", HELD_ACCENT]), voice, rng.randint(30, 70), rng.randint(150, 200))
        yield voice, clip / np.abs(clip).max() * 10 ** rng.uniform(-0.8, -0.1)


def recorded(clips, pause):
    """Joins all clips with pauses, in the noise of a quiet room. Returns the recording and the start of each clip."""
    rng, pieces, starts, at = np.random.default_rng(7), [], [], 0
    for clip in [*clips, np.zeros(0, np.float32)]:
        length = int(pause * RATE) + int(rng.integers(RATE // 10))
        pieces += [np.zeros(length, np.float32), clip]
        starts.append(at + length)
        at += length + len(clip)
    sound = np.concatenate(pieces)
    spectrum = np.fft.rfft(rng.standard_normal(len(sound)))
    noise = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 100)), len(sound))
    sound = sound + noise * (0.001 / noise.std())
    return np.clip(np.round(sound * 32767), -32768, 32767).astype(np.int16), starts


def mu_law(samples):
    """Encodes samples in mu-law (ITU-T G.711), eight bits each."""
    x = np.minimum(np.abs(samples.astype(np.int32)), 32635) + 132
    exponent = np.floor(np.log2(x)).astype(np.int32) - 7
    return (~(np.where(samples < 0, 128, 0) | exponent << 4 | x >> (exponent + 3) & 15) & 255).astype(np.uint8)


def write_wav(path, data, bits, kind):
    data = data.tobytes()
    extension = b"" if kind == 1 else bytes(2)
    size = 16 + len(extension)
    form = struct.pack("<4sIHHIIHH", b"fmt ", size, kind, 1, RATE, RATE * bits // 8, bits // 8, bits) + extension
    head = struct.pack("<4sI4s", b"RIFF", 20 + size + len(data), b"WAVE") + form + struct.pack("<4sI", b"data", len(data))
    path.write_bytes(head + data)


def held_out(path, seed, variants, voices):
    rng = random.Random(seed)
    texts = [text for text in COMMANDS for _ in range(8)] + HELD_OTHERS
    rng.shuffle(texts)
    # flite speaks half of the texts, espeak-ng's variants the other half.
    voices = [voice for i in range(42) for voice in (voices[i % len(voices)], variants[i % len(variants)])]
    made = list(utterances(seed, texts, voices))
    sound, starts = recorded([clip for _, clip in made], 0.8)
    write_wav(path, sound, 16, 1)
    its = [{"start": start / RATE, "voice": voice, "text": text if text in COMMANDS else "", "spoken": text}
           for start, (voice, _), text in zip(starts, made, texts)]
    path.with_suffix(".json").write_text(json.dumps(its))


def recording(path):
    texts = ["kitchen light on", "warm up the nursery", "tell me a joke", "open the bedroom blinds", "bathroom heating off"]
    made = list(utterances("recording", texts, ["f3", "m3", "steph2", "Michael", "edward"]))
    write_wav(path, mu_law(recorded([clip for _, clip in made], 0.4)[0]), 8, 7)
    print(f"{path}: {path.stat().st_size} bytes")


def check(args):
    command = [args.arenite, "listen", "-m", args.model, "--voice", "--format", "json", "-t", "1", args.check]
    heard = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["segments"]
    wanted = json.loads(args.check.with_suffix(".json").read_text())
    for its, after in zip(wanted, [*wanted[1:], {"start": math.inf}]):
        its["heard"] = [part["text"] for part in heard if its["start"] - 0.4 <= part["start"] < after["start"] - 0.4]
        its["right"] = its["heard"] == ([its["text"]] if its["text"] else [])
    for name, is_flite in ("flite", True), ("espeak-ng", False):
        some = [its for its in wanted if its["voice"].startswith("flite ") == is_flite]
        print(f"{name}: {sum(its['right'] for its in some)} of {len(some)} utterances right")
    for its in wanted:
        if not its["right"]:
            print(f"  {its['voice']}: {its['spoken']!r}, heard {its['heard']}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=2600, help="number of steps; the learning rate falls to zero")
    options.add_argument("--batch", type=int, default=48, help="windows per step")
    options.add_argument("--clips", type=int, default=150, help="clips of each command by espeak-ng")
    options.add_argument("--cache", type=Path, metavar="DIR", help="keep the clips in this directory")
    options.add_argument("--rate", type=float, default=0.01)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, default=Path("trained"))
    options.add_argument("--held-out", type=Path, metavar="FILE.wav")
    options.add_argument("--dev", type=Path, metavar="FILE.wav")
    options.add_argument("--recording", type=Path, metavar="FILE.wav")
    options.add_argument("--check", type=Path, metavar="FILE.wav")
    options.add_argument("--arenite", default="arenite")
    options.add_argument("--model", type=Path, default=HERE / "recognizer.gguf")
    args = options.parse_args()
    if args.held_out:
        held_out(args.held_out, "held out", HELD_VARIANTS, HELD_FLITE)
    elif args.dev:
        held_out(args.dev, "dev", DEV_VARIANTS, DEV_FLITE)
    elif args.recording:
        recording(args.recording)
    elif args.check:
        check(args)
    else:
        train(args)


if __name__ == "__main__":
    main()
