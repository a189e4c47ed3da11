// Whether the kernels for vectors give the bits of the scalar ones: all logits of a prompt and forty tokens more.
//
//     node equal.js arenite.wasm MODEL.gguf...
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const [code, ...models] = process.argv.slice(2);
// The worker as it is, in place of a browser's.
globalThis.onmessage = null;
globalThis.fetch = async () => ({ arrayBuffer: async () => fs.readFileSync(code) });
require("node:vm").runInThisContext(fs.readFileSync(path.join(__dirname, "worker.js"), "utf8"));

function run(file, isa) {
  open(file, { context: 64, isa });
  const [ids, count] = tokens("Once upon a time");
  check(wasm.arenite_session_prefill(session, ids, count, error));
  const all = [];
  for (let made = 0; made < 40; made++) {
    const at = wasm.arenite_session_logits(session);
    const logits = bytes().slice(at, at + 4 * vocab);
    all.push(logits);
    const floats = new Float32Array(logits.buffer);
    check(wasm.arenite_session_decode(session, floats.indexOf(Math.max(...floats)), error));
  }
  return Buffer.concat(all);
}

loaded.then(() => {
  for (const model of models) {
    const file = fs.readFileSync(model);
    const [vectors, scalar] = [run(file), run(file, "scalar")];
    if (plan.isa !== "scalar" || !vectors.equals(scalar)) throw new Error(`other bits: ${model}`);
  }
  console.log(`the bits of the scalar kernels: ${models.length} models`);
});
