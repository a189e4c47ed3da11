"""Makes the usual calls of well-known clients to `arenite serve`, and prints a table: see `.ci/real`.

clients.py BINARY MODEL ENCODER NODE_MODULES [CLIENT...]

MODEL is a chat model, ENCODER a model of embeddings; NODE_MODULES has the packages of npm. Without names of clients,
all are run. The exit code is 1 if a call failed.
"""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

import jsonschema
import pydantic

from server import Server

HERE = pathlib.Path(__file__).resolve().parent
BINARY, MODEL, ENCODER, NODE = sys.argv[1:5]
COLUMNS = ["chat", "stream", "tools", "JSON schema", "embeddings", "more"]
ASK = [{"role": "user", "content": "Which city is the capital of Italy, and how many people live there?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city", "parameters": PARAMETERS}}


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    inhabitants: int = pydantic.Field(ge=0, le=99999999)


class GetWeather(pydantic.BaseModel):
    """The weather in a city"""

    city: str = pydantic.Field(max_length=20)
    unit: str = pydantic.Field(pattern="^(celsius|fahrenheit)$")


def is_call(name, arguments):
    """Checks a call of the tool."""
    assert name == "get_weather", name
    jsonschema.validate(json.loads(arguments) if isinstance(arguments, str) else arguments, PARAMETERS)


def openai_python(chat, encoder):
    import openai

    client = openai.OpenAI(base_url=chat + "/v1", api_key="none", max_retries=0)
    common = dict(model=client.models.list().data[0].id, messages=ASK, max_tokens=60, temperature=0)

    def embeddings():
        vectors = openai.OpenAI(base_url=encoder + "/v1", api_key="none", max_retries=0).embeddings
        assert len(vectors.create(model="default", input=["a", "b"]).data[1].embedding) == 384

    def stream():
        pieces = client.chat.completions.create(**common, stream=True)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        assert text == client.chat.completions.create(**common).choices[0].message.content

    def tools():
        # Small models repeat a call until the server's limit of eight calls.
        forced = common | dict(max_tokens=400, tools=[TOOL], tool_choice="required")
        answer = client.chat.completions.create(**forced).choices[0]
        assert answer.finish_reason == "tool_calls", answer
        call = answer.message.tool_calls[0]
        is_call(call.function.name, call.function.arguments)
        with client.chat.completions.stream(**forced) as events:
            call = events.get_final_completion().choices[0].message.tool_calls[0]
        is_call(call.function.name, call.function.arguments)

    def more():
        assert client.responses.create(model="default", input="Hello", max_output_tokens=20).output_text
        assert client.responses.parse(model="default", input="Name a city.", text_format=City, max_output_tokens=100).output_parsed
        assert client.completions.create(model="default", prompt="Once", max_tokens=5).choices[0].text

    return {
        "chat": lambda: client.chat.completions.create(**common).choices[0].message.content,
        "stream": stream,
        "tools": tools,
        "JSON schema": lambda: client.chat.completions.parse(**common, response_format=City).choices[0].message.parsed,
        "embeddings": embeddings,
        "more": more,
    }


def anthropic(chat, encoder):
    import anthropic

    client = anthropic.Anthropic(base_url=chat, api_key="none", max_retries=0)
    common = dict(model="default", messages=ASK, max_tokens=60, extra_body={"temperature": 0})
    tool = {"name": "get_weather", "description": "The weather in a city", "input_schema": PARAMETERS}
    # Small models repeat a call until the server's limit of eight calls.
    forced = common | dict(max_tokens=400, tools=[tool], tool_choice={"type": "any"})

    def stream():
        with client.messages.stream(**common) as events:
            text = "".join(events.text_stream)
        assert text == client.messages.create(**common).content[0].text

    def tools():
        answer = client.messages.create(**forced)
        assert answer.stop_reason == "tool_use", answer
        with client.messages.stream(**forced) as events:
            streamed = events.get_final_message()
        assert [block.type for block in answer.content + streamed.content] == ["tool_use"] * 2 * len(answer.content), (answer, streamed)
        for call in answer.content + streamed.content:
            is_call(call.name, call.input)
        call = answer.content[0]
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]}
        client.messages.create(**{**common, "messages": ASK + [{"role": "assistant", "content": answer.content}, result]}, tools=[tool])

    def more():
        assert client.messages.count_tokens(model="default", messages=ASK).input_tokens
        (model,) = client.models.list()
        assert model.display_name == model.id and client.models.retrieve(model.id).created_at == model.created_at

    return {
        "chat": lambda: client.messages.create(**common, system="Be brief.").content[0].text,
        "stream": stream,
        "tools": tools,
        "more": more,
    }


def ollama(chat, encoder):
    import ollama

    client = ollama.Client(host=chat)
    model = client.list().models[0].model
    common = dict(model=model, messages=ASK, options={"temperature": 0, "num_predict": 60})

    def tools():
        # Ollama has no choice of tools: the model may answer with text.
        for call in client.chat(**common, tools=[TOOL]).message.tool_calls or []:
            is_call(call.function.name, dict(call.function.arguments))

    def more():
        assert client.generate(model=model, prompt="Once", options={"num_predict": 5}).response
        assert client.show(model).modelinfo
        assert client.ps().models

    return {
        "chat": lambda: client.chat(**common).message.content,
        "stream": lambda: "".join(piece.message.content or "" for piece in client.chat(**common, stream=True)),
        "tools": tools,
        "JSON schema": lambda: City.model_validate_json(client.chat(**common, format=City.model_json_schema()).message.content),
        "embeddings": lambda: ollama.Client(host=encoder).embed(model="default", input=["a", "b"]).embeddings[1][383],
        "more": more,
    }


def litellm(chat, encoder):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    litellm.suppress_debug_info = True
    common = dict(model="openai/default", api_base=chat + "/v1", api_key="none", messages=ASK, max_tokens=60, temperature=0)

    def tools():
        answer = litellm.completion(**common, tools=[TOOL], tool_choice="required")
        call = answer.choices[0].message.tool_calls[0]
        is_call(call.function.name, call.function.arguments)

    def more():
        for name in ("ollama_chat/default", "anthropic/default"):
            assert litellm.completion(**{**common, "model": name, "api_base": chat}).choices[0].message.content, name
        raw = dict(model="text-completion-openai/default", api_base=chat + "/v1", api_key="none", prompt="Once upon a time", max_tokens=9)
        assert litellm.text_completion(**raw).choices[0].text

    def embeddings():
        found = litellm.embedding(model="openai/default", api_base=encoder + "/v1", api_key="none", input=["a", "b"])
        assert len(found.data[1]["embedding"]) == 384

    return {
        "chat": lambda: litellm.completion(**common).choices[0].message.content,
        "stream": lambda: "".join(piece.choices[0].delta.content or "" for piece in litellm.completion(**common, stream=True)),
        "tools": tools,
        "JSON schema": lambda: City.model_validate_json(litellm.completion(**common, response_format=City).choices[0].message.content),
        "embeddings": embeddings,
        "more": more,
    }


def langchain_openai(chat, encoder):
    import langchain_openai

    model = langchain_openai.ChatOpenAI(base_url=chat + "/v1", api_key="none", model="default", max_tokens=60, temperature=0)
    question = ASK[0]["content"]

    def tools():
        call = model.bind_tools([TOOL], tool_choice="required").invoke(question).tool_calls[0]
        is_call(call["name"], call["args"])

    def embeddings():
        vectors = langchain_openai.OpenAIEmbeddings(base_url=encoder + "/v1", api_key="none", model="default", check_embedding_ctx_length=False)
        assert len(vectors.embed_documents(["a", "b"])[1]) == 384

    def more():
        for method in ("function_calling", "json_schema"):
            assert model.with_structured_output(City, method=method).invoke(question)
        assert model.batch([question, "Hello"])[1].content

    return {
        "chat": lambda: model.invoke(question).content,
        "stream": lambda: "".join(piece.content for piece in model.stream(question)),
        "tools": tools,
        "JSON schema": lambda: model.with_structured_output(City).invoke(question).name,
        "embeddings": embeddings,
        "more": more,
    }


def instructor(chat, encoder):
    import instructor
    import openai

    def ask(mode, **more):
        client = instructor.from_openai(openai.OpenAI(base_url=chat + "/v1", api_key="none"), mode=mode)
        return client.chat.completions.create(model="default", messages=ASK, max_tokens=80, max_retries=0, **more)

    def stream():
        client = instructor.from_openai(openai.OpenAI(base_url=chat + "/v1", api_key="none"), mode=instructor.Mode.JSON_SCHEMA)
        pieces = list(client.chat.completions.create_partial(model="default", messages=ASK, max_tokens=80, response_model=City))
        City.model_validate(pieces[-1].model_dump())

    return {
        "stream": stream,
        "tools": lambda: ask(instructor.Mode.TOOLS, response_model=GetWeather).city,
        "JSON schema": lambda: ask(instructor.Mode.JSON_SCHEMA, response_model=City).name,
        "more": lambda: ask(instructor.Mode.TOOLS_STRICT, response_model=City).name,
    }


def outlines(chat, encoder):
    import openai
    import outlines

    model = outlines.from_openai(openai.OpenAI(base_url=chat + "/v1", api_key="none"), "default")
    question = ASK[0]["content"]
    return {
        "chat": lambda: model(question, max_tokens=40),
        "stream": lambda: "".join(model.stream(question, max_tokens=40)),
        "JSON schema": lambda: City.model_validate_json(model(question, City, max_tokens=80)),
    }


def llm(chat, encoder):
    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "extra-openai-models.yaml").write_text(
        f"- model_id: arenite\n  model_name: default\n  api_base: {chat}/v1\n  supports_tools: true\n  supports_schema: true\n"
        f"  can_stream: true\n"
    )
    pathlib.Path(folder, "keys.json").write_text('{"openai": "none"}')
    environment = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"}

    def run(*arguments):
        done = subprocess.run([pathlib.Path(sys.executable).with_name("llm"), *arguments], env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == 0 and done.stdout.strip(), done.stderr
        return done.stdout

    question = ASK[0]["content"]
    options = ["-m", "arenite", "-o", "max_tokens", "60", "-o", "temperature", "0"]
    function = "def get_time() -> str:\n    'The time of the day'\n    return 'noon'"
    return {
        "chat": lambda: run(question, *options, "--no-stream"),
        "stream": lambda: run(question, *options),
        "tools": lambda: run("Hello", *options, "--functions", function),
        "JSON schema": lambda: City.model_validate_json(run(question, *options, "--schema", json.dumps(City.model_json_schema()))),
        "more": lambda: run("And now?", "-c", *options),
    }


def typesafe(chat, encoder):
    from typesafe_sdk import Choice, Noul, Score, TypeSafeClient

    client = TypeSafeClient(base_url=chat, api_key="none")

    def decisions():
        answers = client.system_one(
            state={"message": "I was charged twice, and nobody has replied."},
            questions={
                "route": Choice(instructions="Which team?", criteria={"billing": None, "shipping": "parcels", "technical": None}),
                "angry": Noul(instructions="Is the customer angry?"),
                "urgency": Score(instructions="How urgent?", criteria=["can wait", "this week", "today"]),
            },
        ).answers
        route, urgency = answers["route"], answers["urgency"]
        assert route.choice == max(route.probabilities, key=route.probabilities.get) and abs(sum(route.probabilities.values()) - 1) < 1e-6
        assert 0 <= answers["angry"].noul <= 1 and 0 <= urgency.score <= 2, answers

    return {"more": decisions}


def in_node(name):
    """Runs clients.mjs, which prints the results of its calls as JSON."""

    def calls(chat, encoder):
        found = subprocess.run(["node", str(HERE / "clients.mjs"), NODE, name, chat, encoder], capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        results = json.loads(found.stdout)
        VERSIONS[f"{name} (npm)"] = results.pop("version")

        def replay(message):
            assert message == "", message

        return {column: (lambda message=message: replay(message)) for column, message in results.items()}

    return calls


VERSIONS = {}
CLIENTS = {
    "openai": openai_python, "openai (npm)": in_node("openai"), "anthropic": anthropic, "ollama": ollama, "litellm": litellm,
    "langchain-openai": langchain_openai, "ai (npm)": in_node("ai"), "instructor": instructor, "outlines": outlines, "llm": llm,
    "typesafe-sdk": typesafe,
}


def conversations(url):
    """Runs 40 conversations in which a tool must be called. Returns the number of conversations whose calls are valid
    and that can be continued, and how many of these reached the limit of tokens during the calls (the model repeats its
    call)."""
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    tools = [TOOL, *({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
                     for name, description, parameters in [
        ("add", "Adds numbers", {"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 4}},
                                 "required": ["numbers"], "additionalProperties": False}),
        ("send_mail", "Sends a mail", {"type": "object", "properties": {
            "to": {"type": "string", "maxLength": 30}, "subject": {"type": "string", "maxLength": 40},
            "urgent": {"type": "boolean"}}, "required": ["to", "subject"], "additionalProperties": False}),
        ("stop", "Stops the music", {"type": "object", "properties": {}, "additionalProperties": False}),
    ])]
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    questions = ["What is the weather in Oslo?", "Add 3, 4 and 5.", "Tell ann@example.org that we are late.", "Turn the music off.",
                 "Is it cold in Delhi today?", "How much is 12.5 and 30?", "Write a mail to Bob about the party.", "Please stop.",
                 "Hello!", "क्या दिल्ली में बारिश हो रही है?"]
    right = limited = 0
    for i in range(40):
        messages = [{"role": "user", "content": questions[i % len(questions)]}]
        common = dict(model="default", tools=tools, seed=i, temperature=0 if i < 10 else 0.8, max_tokens=200)
        choice = client.chat.completions.create(messages=messages, tool_choice="required", **common).choices[0]
        try:
            assert choice.finish_reason in ("tool_calls", "length") and choice.message.tool_calls, choice
            assert not choice.message.content, choice
            messages.append(choice.message.model_dump(exclude_none=True))
            for call in choice.message.tool_calls:
                jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "done"})
            common["max_tokens"] = 20
            client.chat.completions.create(messages=messages, **common)
            right += 1
            limited += choice.finish_reason == "length"
        except Exception as error:
            print(f"conversation {i}: {error!r}"[:400], file=sys.stderr)
    return right, limited


def main():
    chat = Server(BINARY, "-m", MODEL, "--parallel", "4", "--decide", "any")
    encoder = Server(BINARY, "-m", ENCODER)
    print("| client | version | " + " | ".join(COLUMNS) + " |\n" + "|---" * (len(COLUMNS) + 2) + "|")
    failed = 0
    for name in sys.argv[5:] or [*CLIENTS, "conversations"]:
        if name == "conversations":
            continue  # below
        cells = []
        try:
            calls = CLIENTS[name](chat.url, encoder.url)
        except Exception as error:
            print(f"{name}: {error!r}", file=sys.stderr)
            calls = {"chat": lambda error=error: (_ for _ in ()).throw(error)}
        for column in COLUMNS:
            if column not in calls:
                cells.append("-")
                continue
            try:
                calls[column]()
                cells.append("yes")
            except Exception:
                failed += 1
                cells.append("**no**")
                print(f"{name}, {column}:\n{traceback.format_exc(limit=-3)}"[-1500:], file=sys.stderr)
        version = VERSIONS.get(name) or importlib.metadata.version(name)
        print(f"| {name} | {version} | " + " | ".join(cells) + " |", flush=True)
    if "conversations" in (sys.argv[5:] or ["conversations"]):
        right, limited = conversations(chat.url)
        print(f"\nConversations with tools under `required` whose calls parse: {right} of 40 ({limited} of them end at the "
              "limit of tokens, after whole calls).")
        failed += right != 40
    chat.end()
    encoder.end()
    sys.exit(f"{failed} calls failed" if failed else 0)


main()
