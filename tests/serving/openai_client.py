"""Tests `arenite serve` with the official `openai` client: pip install openai jsonschema; python openai_client.py BINARY."""

import json
import math
import os
import sys
import threading

import jsonschema
import openai

from server import Server

binary = sys.argv[1]
server = Server(binary, "--parallel", "4")
client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)

models = client.models.list().data
assert len(models) == 1
MODEL = models[0].id


def chat(**more):
    messages = [{"role": "user", "content": "Tell me about a fish."}]
    return client.chat.completions.create(**{"model": MODEL, "messages": messages, "max_tokens": 24, **more})


answer = chat(temperature=0)
text = answer.choices[0].message.content
assert text and answer.usage.completion_tokens <= 24, answer
assert answer.choices[0].finish_reason in ("stop", "length")

pieces = list(chat(temperature=0, stream=True, stream_options={"include_usage": True}))
assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == text
assert pieces[-1].usage.completion_tokens == answer.usage.completion_tokens

seeded = [chat(seed=7).choices[0].message.content for _ in range(2)]
assert seeded[0] == seeded[1]
several = chat(seed=7, n=3)
assert len(several.choices) == 3 and several.choices[0].message.content == seeded[0]

logprobs = chat(temperature=0, logprobs=True, top_logprobs=2).choices[0].logprobs.content
assert len(logprobs) == answer.usage.completion_tokens and all(t.logprob <= 0 for t in logprobs)
assert all(len(t.top_logprobs) == 2 and t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob for t in logprobs)

completion = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=16, temperature=0)
assert completion.choices[0].text
stopped = client.completions.create(
    model=MODEL, prompt="Once upon a time", max_tokens=16, temperature=0, stop=[completion.choices[0].text[3:8]]
)
assert stopped.choices[0].text == completion.choices[0].text[:3] and stopped.choices[0].finish_reason == "stop"

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
for seed in range(4):
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    answer = chat(seed=seed, temperature=1.5, max_tokens=120, response_format=form).choices[0]
    assert answer.finish_reason == "stop", answer
    jsonschema.validate(json.loads(answer.message.content), SCHEMA)

wanted = {"type": "json_object"}
answer = chat(seed=2, max_tokens=200, response_format=wanted).choices[0]
assert answer.finish_reason == "length" or isinstance(json.loads(answer.message.content), dict), answer

tool = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
called = chat(seed=1, max_tokens=150, tools=[tool], tool_choice="required").choices[0]
assert called.finish_reason == "tool_calls" and called.message.tool_calls[0].function.name == "look_up", called
call = called.message.tool_calls[0]
jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
# The same call as a stream. The function's result continues the conversation.
pieces = list(chat(seed=1, max_tokens=150, tools=[tool], tool_choice="required", stream=True))
streamed = [call for piece in pieces for call in piece.choices[0].delta.tool_calls or []]
assert [one.function.arguments for one in streamed] == [call.function.arguments], streamed
history = [
    {"role": "user", "content": "Who is it?"},
    {"role": "assistant", "tool_calls": [call.model_dump()]},
    {"role": "tool", "tool_call_id": call.id, "content": "nobody"},
]
assert client.chat.completions.create(model=MODEL, messages=history, tools=[tool], max_tokens=8).choices[0].message

# The Responses API: the same model, complete and streamed, with function results.
def respond(**more):
    return client.responses.create(**{"model": MODEL, "input": "Tell me about a fish.", "max_output_tokens": 24, **more})


whole = respond(temperature=0, instructions="Be brief.")
listed = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "input_text", "text": "Tell me about a fish."}]}]
assert respond(temperature=0, input=listed).output_text == whole.output_text != ""
assert whole.status in ("completed", "incomplete") and whole.usage.output_tokens <= 24
events = list(respond(temperature=0, instructions="Be brief.", stream=True))
assert [event.sequence_number for event in events] == list(range(len(events)))
said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
assert said == whole.output_text == events[-1].response.output_text, (said, whole.output_text)
with client.responses.stream(model=MODEL, input="Tell me about a fish.", max_output_tokens=24, temperature=0) as stream:
    for event in stream:
        pass
    final = stream.get_final_response() if event.type == "response.completed" else event.response
assert final.output_text
form = {"format": {"type": "json_schema", "name": "person", "schema": SCHEMA}}
jsonschema.validate(json.loads(respond(text=form, max_output_tokens=120, extra_body={"seed": 1}).output_text), SCHEMA)
tool = {"type": "function", "name": "look_up", "parameters": SCHEMA}
for stream in [False, True]:
    answer = respond(tools=[tool], tool_choice="required", max_output_tokens=150, stream=stream, extra_body={"seed": 1})
    answer = list(answer)[-1].response if stream else answer
    call = answer.output[-1]
    assert call.type == "function_call" and call.name == "look_up", answer
    jsonschema.validate(json.loads(call.arguments), SCHEMA)
output = {"type": "function_call_output", "call_id": call.call_id, "output": "nobody"}
history = [{"role": "user", "content": "Who is it?"}, call.model_dump(), output]
assert respond(input=history, tools=[tool]).output
for wrong in [dict(previous_response_id="resp_1"), dict(input=[{"type": "item_reference", "id": "x"}]), dict(tools=[{"type": "web_search"}])]:
    try:
        respond(**wrong)
        raise SystemExit(f"{wrong} was taken")
    except openai.BadRequestError as refused:
        assert refused.body["message"], refused

for wrong, error in [
    (dict(model="other"), openai.NotFoundError),
    (dict(n=0), openai.BadRequestError),
    (dict(temperature=-1), openai.BadRequestError),
    (dict(messages=[]), openai.BadRequestError),
    (dict(messages=[{"role": "user", "content": "word " * 20000}]), openai.BadRequestError),
    (dict(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}), openai.BadRequestError),
]:
    try:
        chat(**wrong)
        raise SystemExit(f"{wrong} was taken")
    except error as refused:
        assert refused.body["message"], refused

# Many requests at once, some cancelled: each answer is the same as without the others.
alone = {seed: chat(seed=seed, max_tokens=40).choices[0].message.content for seed in range(8)}
wrong = []


def client_thread(seed):
    if seed % 3 == 0:
        for _ in chat(seed=seed, max_tokens=40, stream=True):
            break
    said = chat(seed=seed % 8, max_tokens=40).choices[0].message.content
    if said != alone[seed % 8]:
        wrong.append((seed, said))


threads = [threading.Thread(target=client_thread, args=(seed,)) for seed in range(32)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not wrong, wrong

server.end()

# Embeddings need a model that supports them.
if not os.environ.get("ARENITE_FIXTURES"):
    print("SKIP: embeddings: no ARENITE_FIXTURES")
else:
    server = Server(binary, "-m", os.environ["ARENITE_FIXTURES"] + "/bert/model.gguf")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    texts = ["a cat", "the cat", "war"]
    # The client requests base64 by default.
    for form in [{}, {"encoding_format": "float"}]:
        found = client.embeddings.create(model=client.models.list().data[0].id, input=texts, **form)
        vectors = [data.embedding for data in found.data]
        assert [data.index for data in found.data] == [0, 1, 2] and found.usage.prompt_tokens > 3
        assert all(abs(math.hypot(*vector) - 1) < 1e-5 for vector in vectors)
        one = client.embeddings.create(model="default", input=texts[1], **form).data[0].embedding
        assert one == vectors[1]
    try:
        client.chat.completions.create(model="default", messages=[{"role": "user", "content": "x"}])
        raise SystemExit("an encoder took a chat")
    except openai.BadRequestError as refused:
        assert refused.body["message"]
    server.end()
print("all of the client's calls work")
