"""Sends a picture with each official client to `arenite serve`, and compares the answer with transformers':

    pip install openai anthropic ollama; python pictures.py BINARY FIXTURES/eyes
"""

import base64
import json
import pathlib
import subprocess
import sys

import anthropic
import ollama
import openai

from server import Server

BINARY, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])


def check(folder):
    reference = json.loads((folder / "ref.json").read_text())
    prompt = next(prompt for prompt in reference["prompts"] if prompt["name"] == "chat")
    picture = folder / reference["images"][prompt["images"][0]]["file"]
    data = base64.b64encode(picture.read_bytes()).decode()
    url = f"data:image/{'jpeg' if picture.suffix == '.jpg' else 'png'};base64,{data}"
    model = str(folder / "model.gguf")
    flags = ["-p", prompt["text"], "--image", picture, "-n", "16", "--temp", "0", "--ignore-eos", "--kv", "f32", "--format", "json"]
    made = json.loads(subprocess.run([BINARY, "generate", "-m", model, *flags], capture_output=True, check=True).stdout)
    assert made["ids"] == prompt["greedy"], (folder.name, made["ids"])
    wanted = made["text"]
    text = prompt["messages"][0]["content"][1]["text"]
    limits = dict(max_tokens=16, temperature=0, extra_body={"ignore_eos": True})
    server = Server(BINARY, "-m", model, "--kv", "f32", "-c", "2048", "--parallel", "2")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    name = client.models.list().data[0].id

    def chat(**more):
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
        return client.chat.completions.create(model=name, messages=[{"role": "user", "content": content}], **limits, **more)

    def responses():
        content = [{"type": "input_image", "image_url": url, "detail": "auto"}, {"type": "input_text", "text": text}]
        made = client.responses.create(model=name, input=[{"role": "user", "content": content}], max_output_tokens=16,
                                       temperature=0, extra_body={"ignore_eos": True})
        return made.output_text

    def messages():
        media = "image/jpeg" if picture.suffix == ".jpg" else "image/png"
        source = {"type": "base64", "media_type": media, "data": data}
        content = [{"type": "image", "source": source}, {"type": "text", "text": text}]
        made = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0).messages.create(
            model=name, messages=[{"role": "user", "content": content}], max_tokens=16, extra_body={"temperature": 0})
        return made.content[0].text

    def ollama_chat():
        said = [{"role": "user", "content": text, "images": [str(picture)]}]
        options = {"temperature": 0, "num_predict": 16, "ignore_eos": True}
        return ollama.Client(host=server.url).chat(model=name, messages=said, options=options).message.content

    streamed = "".join(piece.choices[0].delta.content or "" for piece in chat(stream=True))
    for way, said in [
        ("openai chat", chat().choices[0].message.content), ("openai stream", streamed), ("openai responses", responses()),
        ("anthropic", messages()), ("ollama", ollama_chat()),
    ]:
        assert said == wanted, (folder.name, way, said, wanted)
    try:
        client.chat.completions.create(model=name, messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}])
        raise AssertionError("an address was taken")
    except openai.BadRequestError as error:
        assert "--allow-image-url" in str(error), error
    print(f"{folder.name}: 5 ways passed")


for case in ("idefics3_a", "gemma3_a", "qwen3vl_a", "lfm2vl_a", "internvl_a", "qwen25vl_a"):
    check(FOLDER / case)
