"""Runs GGUF models: an answer depends on the request and its seed alone."""

import json as _json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from ._native import Answer, Error
from ._native import Model as _Native

__all__ = ["Answer", "Error", "Model"]


class Model:
    """A model in memory. Several threads can use it at the same time.

    Generation takes the settings `max_tokens`, `temperature`, `top_p`, `top_k`, `repeat_penalty`, `seed`, `stop` (a text or
    a list), `grammar` (GBNF) and `images` (the bytes of picture files).
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        context: int | None = None,
        threads: int | None = None,
        kv: str | None = None,
        lora: Sequence[str] = (),
        parallel: int = 1,
    ) -> None:
        """Opens a model file.

        context: tokens of a conversation (default: the model's own, at most 4096). kv: type of the cache, from "f32" to
        "q4_0". lora: adapter files, "FILE" or "FILE:SCALE". parallel: answers that are generated at the same time.
        """
        self._native = _Native(path, context=context, threads=threads, kv=kv, lora=list(lora), parallel=parallel)

    def generate(self, prompt: str, **settings: Any) -> Answer:
        """Continues a text. The answer is an iterator over its text; `text()` waits for the whole."""
        return self._native.generate(prompt, **settings)

    def chat(self, messages: str | Sequence[Mapping[str, str]], **settings: Any) -> Answer:
        """Answers a text, or the last of the messages: mappings with `role` (system, user, assistant) and `content`."""
        return self._native.chat(_pairs(messages), **settings)

    def json(self, prompt: str | Sequence[Mapping[str, str]], schema: Any, **settings: Any) -> Any:
        """Generates a value that matches a JSON schema: a mapping, a text, or a pydantic class, whose object is returned."""
        is_class = hasattr(schema, "model_json_schema")
        if is_class:
            text = _json.dumps(schema.model_json_schema())
        else:
            text = schema if isinstance(schema, str) else _json.dumps(schema)
        value = self._native.json(_pairs(prompt), text, **settings)
        return schema.model_validate_json(value) if is_class else _json.loads(value)

    def embed(self, texts: str | Sequence[str]) -> "numpy.ndarray":  # noqa: F821
        """Embeds texts: float32, `[texts, dimensions]`, or `[dimensions]` for a single text. Each vector has length 1."""
        if isinstance(texts, str):
            return self._native.embed([texts])[0]
        return self._native.embed(list(texts))

    def rerank(self, query: str, documents: Sequence[str]) -> list[float]:
        """Scores the relevance of each document to a query."""
        return self._native.rerank(query, list(documents))

    def classify(self, text: str) -> list[tuple[str, float]]:
        """The labels of a classifier and their probabilities, the most probable first."""
        return self._native.classify(text)

    def decide(self, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answers questions about a state, each with its probability, without generating text.

        Questions and answers have the form of llama.cpp's `/v1/systemone`.
        """
        return _json.loads(self._native.decide(_json.dumps(state), _json.dumps(questions)))

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a text, with those that the model has at its ends."""
        return self._native.tokenize(text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._native.detokenize(list(tokens))

    @property
    def context(self) -> int:
        """The number of tokens that fit in the context."""
        return self._native.context


def _pairs(messages: str | Sequence[Mapping[str, str]]) -> str | list[tuple[str, str]]:
    if isinstance(messages, str):
        return messages
    return [(message["role"], message["content"]) for message in messages]
