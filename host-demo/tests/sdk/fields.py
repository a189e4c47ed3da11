#!/usr/bin/env python3
"""Lists every field that the request types of the Python SDKs can send, by the path that it is sent to; and the fields that
llama.cpp's server and text-embeddings-inference document.

    pip install openai anthropic ollama cohere
    python3 fields.py .../llama.cpp/tools/server/README.md .../text-embeddings-inference/docs/openapi.json COMMIT >fields.json

COMMIT is that of text-embeddings-inference.

The SDKs of OpenAI and Anthropic for other languages are generated from the same descriptions as those for Python.

A test of `arenite-serve` (`faces/tests.rs`) looks for each field in the tables of the server. Fields of headers and of the
SDK's own settings are left out.
"""

import importlib.metadata
import inspect
import json
import re
import sys

import anthropic
import cohere
import ollama
import openai

# Arguments of the SDKs' methods that are no fields of the body.
NOT_SENT = {"self", "extra_headers", "extra_query", "extra_body", "timeout", "request_options", "betas", "user_profile_id", "workspace_id"}


def arguments(method):
    """The keyword arguments of a method, each of which is a field of the body."""
    return {name for name in inspect.signature(method).parameters if name not in NOT_SENT}


def model(kind):
    """The fields of a pydantic model, by the names that are sent."""
    return {field.alias or name for name, field in kind.model_fields.items()}


oai, ant, co = openai.OpenAI(api_key="x"), anthropic.Anthropic(api_key="x"), cohere.ClientV2(api_key="x")
old = cohere.Client(api_key="x")
requests = {
    "openai": {
        "/v1/chat/completions": arguments(oai.chat.completions.create),
        "/v1/completions": arguments(oai.completions.create),
        "/v1/embeddings": arguments(oai.embeddings.create),
        "/v1/responses": arguments(oai.responses.create),
        "/v1/audio/transcriptions": arguments(oai.audio.transcriptions.create) - {"file"},
        "/v1/audio/translations": arguments(oai.audio.translations.create) - {"file"},
    },
    "anthropic": {
        "/v1/messages": arguments(ant.messages.create) | arguments(ant.beta.messages.create),
        "/v1/messages/count_tokens": arguments(ant.messages.count_tokens) | arguments(ant.beta.messages.count_tokens),
    },
    "ollama": {
        "/api/generate": model(ollama._types.GenerateRequest),
        "/api/chat": model(ollama._types.ChatRequest),
        "/api/embed": model(ollama._types.EmbedRequest),
        "/api/embeddings": model(ollama._types.EmbeddingsRequest),
        "/api/show": model(ollama._types.ShowRequest),
        "options": model(ollama._types.Options),
    },
    "cohere": {
        "/v2/rerank": arguments(co.rerank),
        "/v1/rerank": arguments(old.rerank),
    },
}
sdks = {}
for name, paths in requests.items():
    fields = {path: sorted(fields) for path, fields in paths.items()}
    sdks[name] = {"version": importlib.metadata.version(name), "fields": fields}

text = open(sys.argv[1]).read()


def documented(path):
    """The options of a route in llama.cpp's README."""
    part = text.split(f"### POST `{path}`", 1)[1].split("\n### ", 1)[0].split("**Response", 1)[0]
    return sorted(set(re.findall(r"^(?:- )?`([a-z_]+)`:", part, re.M)))


paths = ["/completion", "/infill", "/reranking"]
sdks["llama.cpp"] = {"version": "b11434", "fields": {path: documented(path) for path in paths}}
schemas = json.load(open(sys.argv[2]))
fields = {"/rerank": sorted(schemas["components"]["schemas"]["RerankRequest"]["properties"])}
sdks["text-embeddings-inference"] = {"version": sys.argv[3], "fields": fields}
print(json.dumps(sdks, indent=1))
