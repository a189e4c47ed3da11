// Tests the installed package against the program: node test.mjs ARENITE ROOT [CHAT_MODEL].
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
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

// The same seed and settings as the program.
const flags = { temperature: "--temp", topK: "--top-k", topP: "--top-p", minP: "--min-p", repeatPenalty: "--repeat-penalty",
  frequencyPenalty: "--frequency-penalty", presencePenalty: "--presence-penalty", seed: "--seed", maxTokens: "-n", stop: "--stop" };
for (const settings of [
  { seed: 7 },
  { seed: 8, temperature: 1.5, topK: 12, topP: 0.9, minP: 0 },
  { seed: 9, temperature: 2, topK: 0, repeatPenalty: 1.3 },
  { seed: 10, frequencyPenalty: 0.6, presencePenalty: 0.3 },
  { seed: 11, stop: [" was a", "."] },
]) {
  const all = { maxTokens: 60, ...settings };
  const given = Object.entries(all).flatMap(([name, value]) => [value].flat().flatMap((one) => [flags[name], String(one)]));
  const wanted = JSON.parse(program("generate", "-m", stories, "-p", "One day, a little fox", "--format", "json", ...given));
  assert.equal(await whole(model.generate("One day, a little fox", all)), wanted.text, JSON.stringify(settings));
}
assert.notEqual(await whole(model.generate("One day", { maxTokens: 40, seed: -1 })), await whole(model.generate("One day", { maxTokens: 40 })));
assert.equal(model.detokenize(model.tokenize("One day, a little fox")).trim(), "One day, a little fox");

// A table of a JSON schema.
const folder = await mkdtemp(join(tmpdir(), "arenite-")), schema = join(folder, "pets.json"), table = join(folder, "pets.table");
await writeFile(schema, '{ "type": "array", "items": { "enum": ["cat", "dog"] }, "minItems": 2, "maxItems": 2 }');
program("grammar", schema, table);
const pets = JSON.parse(await whole(model.generate("Her pets:", { grammar: await readFile(table), seed: 2 })));
await rm(folder, { recursive: true });
assert.ok(pets.length === 2 && pets.every((pet) => ["cat", "dog"].includes(pet)), pets);

// What would have no effect, and what is no text, is refused.
for (const [call, words] of [
  [() => model.generate("x", { max_tokens: 5 }), /max_tokens is no setting.*maxTokens/],
  [() => model.generate("x", { maxTokens: "5" }), /maxTokens is a number/],
  [() => model.generate("x", { temperature: NaN }), /temperature is a number/],
  [() => model.generate("x", { stop: [""] }), /stop/],
  [() => model.generate(undefined), /a prompt is a text/],
  [async function* () { model.embed(["a", "b"]); }, /a prompt is a text/],
  [() => model.chat([{ role: "user", content: null }]), /content of a message is a text/],
  [() => model.chat([{ role: "user", content: [{ type: "text", text: "x" }] }]), /content of a message is a text/],
  [() => model.generate("word ".repeat(3000)), /prompt has \d+ tokens, but the context has only \d+ positions/],
]) await assert.rejects(whole(call()), words);
await assert.rejects(Model.open(stories, { n_ctx: 64 }), /n_ctx is no option.*context/);
await assert.rejects(Model.open(stories, { context: 3_000_000 }), /memory/);
await assert.rejects(Model.open(7), /path/);
assert.equal((await Model.open(new Blob([await readFile(stories)]))).plan.model, model.plan.model);

// A long prompt is read in batches, between which it can be aborted, and a later answer goes on from what was read.
const long = "Once upon a time there was a fox. ".repeat(12), fresh = await whole((await Model.open(stories)).generate(long, { maxTokens: 9, seed: 1 }));
const control = new AbortController(), aborted = whole(model.generate(long, { signal: control.signal }));
setTimeout(() => control.abort());
await aborted;
assert.equal(await whole(model.generate(long, { maxTokens: 9, seed: 1 })), fresh);

const embedder = `${root}/tests/fixtures/jina_bert_v2/model.gguf`;
const vector = (await Model.open(embedder)).embed("a text"), wanted = JSON.parse(program("embed", "-m", embedder, "-p", "a text"));
assert.equal(vector.length, wanted.length);
vector.forEach((x, i) => assert.ok(Math.abs(x - wanted[i]) < 1e-6));

// A second answer ends the first.
const first = model.generate("One day"), begun = (await first.next()).value;
assert.ok(begun && (await whole(model.generate("Once", { maxTokens: 5 }))));
await assert.rejects(first.next(), /one answer/);
const alone = await whole(model.generate("A cat", { maxTokens: 50, seed: 2 }));
const both = await Promise.allSettled(["One day", "A cat"].map((prompt) => whole(model.generate(prompt, { maxTokens: 50, seed: 2 }))));
assert.ok(both[0].status === "rejected" && both[1].value === alone);

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
