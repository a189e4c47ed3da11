// Checks that vector kernels, and several threads, give the same bits as the scalar kernels: all logits of a prompt and
// of forty more tokens.
//
//     node equal.js PAGE MODEL.gguf...
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { Worker: Thread, isMainThread, parentPort, workerData } = require("node:worker_threads");

const [page, ...models] = isMainThread ? process.argv.slice(2) : [workerData];
// Runs the browser's worker unchanged; its helpers are threads of this file.
globalThis.onmessage = null;
globalThis.fetch = async (name) => ({ arrayBuffer: async () => fs.readFileSync(path.join(page, name)) });
globalThis.Worker = class {
  #thread = new Thread(__filename, { workerData: page });
  constructor() {
    this.#thread.on("message", (data) => this.onmessage({ data }));
    this.#thread.on("error", (problem) => this.onerror(problem));
  }
  postMessage = (message) => this.#thread.postMessage(message);
  terminate = () => this.#thread.terminate();
};
if (!isMainThread) {
  globalThis.postMessage = (message) => parentPort.postMessage(message);
  parentPort.on("message", (data) => onmessage({ data }));
}
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

async function main() {
  await load(1);
  const expected = models.map((model) => {
    const file = fs.readFileSync(model);
    const [vectors, scalar] = [run(file), run(file, "scalar")];
    if (plan.isa !== "scalar" || !vectors.equals(scalar)) throw new Error(`other bits: ${model}`);
    return scalar;
  });
  console.log(`the bits of the scalar kernels: ${models.length} models`);
  for (const threads of [2, 3, 4]) {
    await load(threads);
    models.forEach((model, i) => {
      const told = run(fs.readFileSync(model));
      if (plan.threads !== threads || !told.equals(expected[i])) throw new Error(`other bits by ${threads} threads: ${model}`);
    });
    // On a busy machine a helper may be late for one pass, but not for all.
    for (let again = 0; wasm.web_joined() === 0; again++) {
      if (again === 1000) throw new Error(`${threads} threads: no helper took part`);
      run(fs.readFileSync(models[0]));
    }
    console.log(`the same by ${threads} threads; helpers took part ${wasm.web_joined()} times`);
  }
  // Simulates a machine without enough address space.
  WebAssembly.Memory = null;
  await load(2);
  if (!run(fs.readFileSync(models[0])).equals(expected[0]) || plan.threads !== 1) throw new Error("no shared memory, no story");
  process.exit(0);
}

if (isMainThread) {
  process.exitCode = 1; // if a promise never settles
  main();
}
