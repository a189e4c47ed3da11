// Makes the calls of a client of npm, for clients.py: node clients.mjs NODE_MODULES openai|ai CHAT_URL ENCODER_URL
// Prints a JSON object with the version and, for each call, the error or "".
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import assert from "node:assert";

const [folder, client, chat, encoder] = process.argv.slice(2);
const require = createRequire(pathToFileURL(folder + "/"));
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const versionOf = (name) => JSON.parse(readFileSync(`${folder}/${name}/package.json`)).version;
const question = "Which city is the capital of Italy?";
const parameters = {
  type: "object",
  properties: { city: { type: "string", maxLength: 20 }, unit: { type: "string", enum: ["celsius", "fahrenheit"] } },
  required: ["city", "unit"],
  additionalProperties: false,
};

const clients = {
  async openai() {
    const { default: OpenAI } = await load("openai");
    const server = new OpenAI({ baseURL: chat + "/v1", apiKey: "none", maxRetries: 0 });
    const common = { model: "default", messages: [{ role: "user", content: question }], max_tokens: 60, temperature: 0 };
    const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
    return {
      chat: async () => assert((await server.chat.completions.create(common)).choices[0].message.content),
      stream: async () => {
        let text = "";
        for await (const piece of await server.chat.completions.create({ ...common, stream: true })) text += piece.choices[0]?.delta.content ?? "";
        assert(text);
      },
      tools: async () => {
        const answer = await server.chat.completions.create({ ...common, tools, tool_choice: "required" });
        const call = answer.choices[0].message.tool_calls[0].function;
        assert(call.name === "get_weather" && typeof JSON.parse(call.arguments).city === "string");
      },
      "JSON schema": async () => {
        const response_format = { type: "json_schema", json_schema: { name: "place", schema: parameters, strict: true } };
        const answer = await server.chat.completions.create({ ...common, response_format });
        assert(typeof JSON.parse(answer.choices[0].message.content).city === "string");
      },
      embeddings: async () => {
        const vectors = new OpenAI({ baseURL: encoder + "/v1", apiKey: "none", maxRetries: 0 });
        assert.equal((await vectors.embeddings.create({ model: "default", input: ["a", "b"] })).data[1].embedding.length, 384);
      },
      more: async () => assert((await server.responses.create({ model: "default", input: question, max_output_tokens: 20 })).output_text),
    };
  },

  async ai() {
    const { generateText, streamText, generateObject, embedMany, tool, jsonSchema } = await load("ai");
    const { createOpenAI } = await load("@ai-sdk/openai");
    const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
    const compatible = (url) => createOpenAICompatible({ name: "arenite", baseURL: url + "/v1", supportsStructuredOutputs: true });
    const model = compatible(chat)("default");
    const common = { model, prompt: question, maxOutputTokens: 60, temperature: 0, maxRetries: 0 };
    const tools = { get_weather: tool({ description: "The weather in a city", inputSchema: jsonSchema(parameters) }) };
    return {
      chat: async () => assert((await generateText(common)).text),
      stream: async () => {
        let text = "";
        for await (const piece of streamText(common).textStream) text += piece;
        assert(text);
      },
      tools: async () => {
        const { toolCalls } = await generateText({ ...common, tools, toolChoice: "required" });
        assert(toolCalls[0].toolName === "get_weather" && typeof toolCalls[0].input.city === "string");
      },
      "JSON schema": async () => {
        const { object } = await generateObject({ ...common, schema: jsonSchema(parameters) });
        assert(typeof object.city === "string");
      },
      embeddings: async () => {
        const { embeddings } = await embedMany({ model: compatible(encoder).textEmbeddingModel("default"), values: ["a", "b"] });
        assert.equal(embeddings[1].length, 384);
      },
      // The provider of OpenAI itself, which uses the Responses API. The second turn names the items of the first one.
      more: async () => {
        const { prompt, ...own } = { ...common, model: createOpenAI({ baseURL: chat + "/v1", apiKey: "none" })("default") };
        const user = { role: "user", content: prompt };
        const { response } = await generateText({ ...own, prompt });
        assert((await generateText({ ...own, messages: [user, ...response.messages, user] })).text);
      },
    };
  },
};

const results = { version: versionOf(client) };
for (const [name, call] of Object.entries(await clients[client]())) {
  try {
    await call();
    results[name] = "";
  } catch (error) {
    results[name] = `${error}`;
  }
}
console.log(JSON.stringify(results));
