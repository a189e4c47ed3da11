"""Runs GGUF models: an answer depends on the request and its seed alone."""

# json is imported where it is used, because the command `arenite` starts faster without it.
from __future__ import annotations

import os as _os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, overload

from ._native import Answer, Error, __version__
from ._native import Model as _Native

if TYPE_CHECKING:
    from typing import TypeVar

    import numpy
    import numpy.typing
    from typing_extensions import Unpack

    _Class = TypeVar("_Class")

__all__ = ["Answer", "Error", "Model", "Settings", "__version__"]


class Settings(TypedDict, total=False):
    """The settings of an answer. A setting that is missing or None has the default of the program `arenite`."""

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repeat_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    grammar: str | None
    schema: Any
    images: Sequence[bytes] | None


class Model:
    """A model in memory. Several threads can use it at the same time.

    Generation takes the settings `max_tokens`, `temperature`, `top_p`, `top_k`, `min_p`, `repeat_penalty`,
    `frequency_penalty`, `presence_penalty`, `seed`, `stop` (a text or a list), `grammar` (GBNF), `schema` (a JSON schema:
    a mapping, a text or a pydantic class) and `images` (the bytes of picture files).

    A pickled model is its path and options: it is opened again where it is unpickled.
    """

    def __init__(
        self,
        path: str | _os.PathLike[str],
        *,
        context: int | None = None,
        threads: int | None = None,
        kv: str | None = None,
        lora: str | _os.PathLike[str] | Sequence[str | _os.PathLike[str]] = (),
        parallel: int = 1,
    ) -> None:
        """Opens a model file.

        context: tokens of a conversation (default: the model's own, at most 4096). kv: type of the cache, from "f32" to
        "q4_0". lora: adapter files, "FILE" or "FILE:SCALE". parallel: answers that are generated at the same time.
        """
        adapters = [lora] if isinstance(lora, (str, _os.PathLike)) else lora
        self._path = _os.fspath(path)
        self._options = {
            "context": context,
            "threads": threads,
            "kv": kv,
            "lora": [_os.fspath(adapter) for adapter in adapters],
            "parallel": parallel,
        }
        self._native = _Native(self._path, **self._options)

    def __repr__(self) -> str:
        return f"arenite.Model({self._path!r}, context={self.context})"

    def __getstate__(self) -> tuple[str, dict[str, Any]]:
        return _os.path.abspath(self._path), self._options

    def __setstate__(self, state: tuple[str, dict[str, Any]]) -> None:
        self.__init__(state[0], **state[1])  # type: ignore[misc]

    def __copy__(self) -> Model:
        return self

    def __deepcopy__(self, _: Any) -> Model:
        return self

    def generate(self, prompt: str, **settings: Unpack[Settings]) -> Answer:
        """Continues a text. The answer is an iterator over its text; `text()` waits for the whole."""
        return self._native.generate(prompt, **_given(settings))

    def chat(self, messages: str | Sequence[Mapping[str, Any]], **settings: Unpack[Settings]) -> Answer:
        """Answers a text, or the last of the messages: mappings with `role` (system, user, assistant) and `content`."""
        return self._native.chat(_pairs(messages), **_given(settings))

    @overload
    def json(
        self, prompt: str | Sequence[Mapping[str, Any]], schema: type[_Class], **settings: Unpack[Settings]
    ) -> _Class: ...
    @overload
    def json(self, prompt: str | Sequence[Mapping[str, Any]], schema: Any, **settings: Unpack[Settings]) -> Any: ...
    def json(self, prompt: str | Sequence[Mapping[str, Any]], schema: Any, **settings: Unpack[Settings]) -> Any:
        """Generates a value that matches a JSON schema: a mapping, a text, or a pydantic class, whose object is returned."""
        import json

        value = self._native.json(_pairs(prompt), _schema(schema), **_given(settings))
        return schema.model_validate_json(value) if hasattr(schema, "model_json_schema") else json.loads(value)

    def embed(self, texts: str | Iterable[str], *, truncate: bool = False) -> numpy.typing.NDArray[numpy.float32]:
        """Embeds texts: float32, `[texts, dimensions]`, or `[dimensions]` for a single text. Each vector has length 1.

        truncate: embed the beginning of a text that does not fit in the context, which is an error otherwise.
        """
        if isinstance(texts, str):
            return self._native.embed([texts], truncate)[0]
        return self._native.embed(list(texts), truncate)

    def rerank(self, query: str, documents: Iterable[str]) -> list[float]:
        """Scores the relevance of each document to a query."""
        if isinstance(documents, str):
            raise TypeError("documents is a list of texts")
        return self._native.rerank(query, list(documents))

    def classify(self, text: str) -> list[tuple[str, float]]:
        """The labels of a classifier and their probabilities, the most probable first."""
        return self._native.classify(text)

    def decide(self, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answers questions about a state, each with its probability, without generating text.

        Questions and answers have the form of llama.cpp's `/v1/systemone`.
        """
        import json

        return json.loads(self._native.decide(json.dumps(state), json.dumps(questions)))

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


def _given(settings: Any) -> dict[str, Any]:
    if settings.get("schema") is None:
        return dict(settings)
    return {**settings, "schema": _schema(settings["schema"])}


def _schema(schema: Any) -> str:
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    if isinstance(schema, str):
        return schema
    import json

    return json.dumps(schema)


def _pairs(messages: str | Sequence[Mapping[str, Any]]) -> str | list[tuple[str, str]]:
    if isinstance(messages, str):
        return messages
    if isinstance(messages, Mapping):
        messages = [messages]
    return [(message["role"], _content(message.get("content"))) for message in messages]


def _content(content: Any) -> str:
    """The text of a message: a text, or a list of OpenAI's parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, (list, tuple)) else [content]
    if parts and all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
        return "\n".join(part["text"] for part in parts)
    raise TypeError("the content of a message is a text or a list of texts' parts; give pictures as `images`")
