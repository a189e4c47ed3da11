#!/usr/bin/env python3
"""Writes defaults.json: the default values of transformers' configuration classes, one model_type per line.

    python3 defaults.py > defaults.json        (needs transformers, without torch)

A type is listed if `convert hf` has one of its model classes, a field if the sources of the converter name it. Fields whose default is
null are left out. `alias` maps other spellings of a field to its name, `text` is the type of the nested text model, `rope` are the
rotary parameters, and `base_before_5` is the rotary base of transformers 4. Further fields of a class that its __post_init__ derives from others are computed by the converter.
"""
import dataclasses
import glob
import json
import os
import re
import warnings

import transformers
from transformers.models.auto import configuration_auto, modeling_auto

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = "".join(open(f, encoding="utf8").read() for f in sorted(glob.glob(f"{HERE}/**/*.rs", recursive=True)))
NAMES = set(re.findall(r'"(\w+)"', SOURCE))
# The tying of the head and the number of token types follow from the tensors, ids of tokens from the vocabulary.
LEFT_OUT = {"architectures", "id2label", "model_type", "rope_parameters", "rope_scaling", "rope_theta", "tie_word_embeddings", "type_vocab_size"}
# Configs of dense models of this type have no fields of experts.
MAY_BE_DENSE = {"nemotron_h"}
# Rotary bases in transformers 4.57.6, where they differ. (No other field that matters differs.)
BEFORE_5 = {"cohere": 1e4, "falcon_h1": 1e5, "olmo3": 1e4, "qwen3_vl_text": 5e6, "qwen3_vl_moe_text": 5e6}
NESTED = ("text_config", "llm_config", "lm_config", "language_config", "thinker_config")


def known_types():
    """The types of which the converter has a model class."""
    classes = {name for name in NAMES if name[0].isupper()}
    found = set()
    for attribute, mapping in vars(modeling_auto).items():
        if not attribute.endswith("_MAPPING_NAMES"):
            continue
        for kind, names in mapping.items():
            for name in [names] if isinstance(names, str) else names:
                if name in classes or name.removesuffix("Model") + "ForCausalLM" in classes:
                    found.add(kind)
    return found


def plain(value):
    """A value as JSON has it, or None if it has no such form."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return None


def fields(config):
    """The fields of a class with their defaults, before __post_init__ derives others."""
    out = {}
    for field in dataclasses.fields(config):
        value = field.default
        if value is dataclasses.MISSING:
            value = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
        value = plain(value)
        if field.name in NAMES - LEFT_OUT and "token" not in field.name and value is not None:
            out[field.name] = value
    return out


def entry(kind, config):
    """What is known of a type."""
    out = {"fields": fields(config)}
    if kind in MAY_BE_DENSE:
        out["fields"] = {name: value for name, value in out["fields"].items() if "expert" not in name}
    alias = {old: new for old, new in (getattr(config, "attribute_map", None) or {}).items() if old != new}
    alias = {old: new for old, new in alias.items() if old in NAMES or new in NAMES}
    if alias:
        out["alias"] = alias
    try:
        whole = config()
    except Exception:
        return out
    rope = plain(getattr(whole, "rope_parameters", None))
    if rope:
        out["rope"] = rope
    if kind in BEFORE_5:
        out["base_before_5"] = BEFORE_5[kind]
    inner = next((getattr(whole, name) for name in NESTED if getattr(whole, name, None) is not None), None)
    inner = getattr(inner, "text_config", inner)
    if inner is not None and inner.model_type != kind:
        out["text"] = inner.model_type
    return out


def main():
    waiting, table = sorted(known_types()), {}
    while waiting:
        kind = waiting.pop()
        if kind in table or kind not in configuration_auto.CONFIG_MAPPING:
            continue
        table[kind] = entry(kind, configuration_auto.CONFIG_MAPPING[kind])
        if "text" in table[kind]:
            waiting.append(table[kind]["text"])
    lines = [f' "{kind}": ' + json.dumps(table[kind], sort_keys=True, separators=(",", ":")) for kind in sorted(table)]
    print(f'{{"": "transformers {transformers.__version__}",\n' + ",\n".join(lines) + "}")


main()
