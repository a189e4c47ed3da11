// Tests the installed package against the program: node test.mjs ARENITE ROOT [CHAT_MODEL].
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { Model } from "@arenite/wasm";

const [arenite, root, chatModel] = process.argv.slice(2);
const program = (...args) => execFileSync(arenite, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
const whole = async (answer) => {
  let text = "";
  for await (const piece of answer) text += piece;
  return text;
};

const stories = `${root}/host-demo/models/stories.gguf`;
const model = await Model.open(stories);
const told = JSON.parse(program("generate", "-m", stories, "-p", "One day", "-n", "60", "--temp", "0", "--format", "json"));
assert.equal(await whole(model.generate("One day", { maxTokens: 60, temperature: 0 })), told.text);
assert.deepEqual([...model.tokenize("One day")], told.prompt_ids);
// The same prompt again, of which nothing is read twice, and from bytes.
assert.equal(await whole(model.generate("One day", { maxTokens: 60, temperature: 0 })), told.text);
const other = await Model.open(await readFile(stories), { context: 64 });
assert.equal(await whole(other.generate("One day", { maxTokens: 20, seed: 3 })), await whole(model.generate("One day", { maxTokens: 20, seed: 3 })));
// The answer ends with the context, or when it is aborted.
assert.ok((await whole(other.generate("One day", { temperature: 0 }))).length > 50);
assert.equal(await whole(model.generate("One day", { signal: AbortSignal.abort() })), "");

const embedder = `${root}/tests/fixtures/jina_bert_v2/model.gguf`;
const vector = (await Model.open(embedder)).embed("a text"), wanted = JSON.parse(program("embed", "-m", embedder, "-p", "a text"));
assert.equal(vector.length, wanted.length);
vector.forEach((x, i) => assert.ok(Math.abs(x - wanted[i]) < 1e-6));

// A second answer ends the first.
const first = model.generate("One day"), begun = (await first.next()).value;
assert.ok(begun && (await whole(model.generate("Once", { maxTokens: 5 }))));
await assert.rejects(first.next(), /one answer/);

await assert.rejects(Model.open(new Uint8Array([1, 2, 3])), /./);
await assert.rejects(whole(model.chat([{ role: "robot", content: "x" }])), /robot/);
if (chatModel) {
  const model = await Model.open(chatModel, { context: 512 }), began = performance.now();
  const said = await whole(model.chat("Name three colours.", { maxTokens: 40, temperature: 0 }));
  console.log(`chat: ${JSON.stringify(said)}, ${(40 / ((performance.now() - began) / 1000)).toFixed(1)} tokens a second`);
  const wanted = program("chat", "-m", chatModel, "-p", "Name three colours.", "-n", "40", "--temp", "0", "-c", "512", "--template", "chatml");
  assert.equal(said.trim(), wanted.trim());
}
console.log("the package gives the program's answers");
