// Runs a model through the C interface (src/arenite.h), outside of the page's own thread. All memory belongs to the
// module: a model is placed after the program, and the next model replaces it. With several threads, more workers with
// this script are helpers.
"use strict";

let wasm, memory, start, top_, helpers;
const bytes = () => new Uint8Array(memory.buffer);
const words = () => new DataView(memory.buffer);
const utf8 = new TextEncoder();

function take(size) {
  const at = Math.ceil(top_ / 64) * 64;
  top_ = at + Math.max(size, 1);
  const missing = top_ - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / 65536));
  return at;
}

// Makes an object of the interface and returns its address.
function place(kind, make) {
  const size = wasm[`arenite_${kind}_size`](), at = take(size), out = take(4);
  check(make(at, size, out));
  return words().getUint32(out, true);
}

let error;
function check(status) {
  if (status === 0) return;
  const size = 512, text = take(size);
  const length = wasm.arenite_error_message(error, text, size);
  throw new Error(new TextDecoder().decode(bytes().slice(text, text + Math.min(length, size - 1))));
}

// The name of the default kernels.
function fastest() {
  const text = take(32);
  return new TextDecoder().decode(bytes().slice(text, text + wasm.arenite_isa(0, text, 32)));
}

function put(text) {
  const data = utf8.encode(text), at = take(data.length);
  bytes().set(data, at);
  return [at, data.length];
}

// Creates an instance of the module, with its own memory or with shared memory (src/threads.rs).
async function instantiate(module, shared) {
  const gate = shared && new Int32Array(shared.buffer);
  const threads = { wait: (at, value) => void Atomics.wait(gate, at / 4, value), wake: (at) => void Atomics.notify(gate, at / 4) };
  return (await WebAssembly.instantiate(module, { env: { memory: shared }, threads, chat: { piece() {} } })).exports;
}

function sharedMemory() {
  try {
    return new WebAssembly.Memory({ initial: 64, maximum: 65536, shared: true });
  } catch {} // Not enough address space.
}

// Loads the module, unless it is loaded with the same number of threads. Several threads need an isolated page.
const STACK = 1 << 20; // Stack of a helper in bytes, the same as the linker's for the first thread.
async function load(threads) {
  if (helpers?.length === threads - 1) return;
  helpers?.forEach((helper) => helper.terminate());
  helpers = [];
  const shared = threads > 1 ? sharedMemory() : undefined;
  const response = await fetch(shared ? "arenite-threads.wasm" : "arenite.wasm");
  const module = await WebAssembly.compile(await response.arrayBuffer());
  wasm = await instantiate(module, shared);
  memory = shared || wasm.memory;
  top_ = wasm.__heap_base.value;
  while (shared && helpers.length < threads - 1) {
    const stack = take(STACK) + STACK, helper = new Worker("worker.js");
    await new Promise((done, failed) => {
      helper.onmessage = ({ data }) => ("problem" in data ? failed(new Error(data.problem)) : done());
      helper.onerror = (event) => failed(new Error(event.message));
      helper.postMessage({ action: "help", argument: { module, shared, stack } });
    });
    helpers.push(helper);
  }
  start = top_;
}

async function help({ module, shared, stack }) {
  const helper = await instantiate(module, shared);
  helper.__stack_pointer.value = stack;
  setTimeout(helper.web_help); // Starts after this worker has reported that it is ready.
}

// Opens a model and returns its plan, with sizes in bytes.
let model, tokenizer, session, vocab, plan, beams;
function open(file, options) {
  top_ = start;
  session = undefined;
  error = take(136);
  const data = take(file.byteLength);
  bytes().set(new Uint8Array(file), data);
  model = place("model", (at, size, out) => wasm.arenite_model_new(data, file.byteLength, at, size, out, error));
  vocab = wasm.arenite_model_vocab(model);
  beams = options.beams || 0;

  const threads = helpers.length + 1, workers = threads > 1 ? take(12) : 0;
  if (workers) wasm.web_workers(threads, workers);
  const chosen = take(40), planned = take(16), isa = options.isa ? put(`${options.isa}\0`)[0] : 0;
  wasm.arenite_options_default(chosen);
  const view = words();
  view.setUint32(chosen, options.context, true);
  view.setUint32(chosen + 12, beams ? beams + 1 : 1, true);
  view.setUint32(chosen + 20, workers, true);
  view.setUint32(chosen + 24, isa, true);
  check(wasm.arenite_model_plan(model, chosen, planned, error));
  const [workspace, kv, index, context] = [0, 4, 8, 12].map((at) => words().getUint32(planned + at, true));
  plan = { model: file.byteLength, workspace, kv, tokenizer: index, context, isa: options.isa || fastest(), threads };

  const indexAt = take(index);
  tokenizer = place("tokenizer", (at, size, out) => wasm.arenite_tokenizer_new(model, indexAt, index, at, size, out, error));
  const workspaceAt = take(workspace), kvAt = take(kv);
  session = place("session", (at, size, out) =>
    wasm.arenite_session_new(model, chosen, workspaceAt, workspace, kvAt, kv, at, size, out, error));
  return plan;
}

// Returns the address and the number of the ids. A byte becomes at most three ids (a space that becomes U+2581 has
// three bytes). Some more ids begin and end the text.
function tokens(text) {
  const [at, length] = put(text), room = 3 * length + 16, ids = take(4 * room), count = take(4);
  const size = wasm.arenite_tokenize_scratch_size(length), scratch = take(size);
  check(wasm.arenite_tokenize(tokenizer, at, length, 1, 0, scratch, size, ids, room, count, error));
  return [ids, words().getUint32(count, true)];
}

let stopped;
async function tell({ prompt, temperature, seed, most }) {
  const mark = top_;
  stopped = false;
  check(wasm.arenite_session_rewind(session, 0, error));
  const [ids, count] = tokens(prompt);
  const began = performance.now();
  check(wasm.arenite_session_prefill(session, ids, count, error));
  const read = performance.now();

  const params = take(44), token = take(4), text = take(512), length = take(4);
  wasm.arenite_params_default(params);
  words().setFloat32(params, temperature, true);
  const size = wasm.arenite_sampler_scratch_size(params, vocab), scratch = take(size);
  const sampler = place("sampler", (at, room, out) =>
    wasm.arenite_sampler_new(params, vocab, BigInt(seed), scratch, size, at, room, out, error));
  const decoder = place("decoder", (at, room, out) => wasm.arenite_decoder_new(tokenizer, 1, at, room, out, error));
  const last = Math.min(plan.context, count + most);
  let made = 0, breathed = read;
  while (!stopped && wasm.arenite_session_position(session) < last) {
    check(wasm.arenite_sampler_sample(sampler, wasm.arenite_session_logits(session), vocab, token, error));
    const id = words().getUint32(token, true);
    if (wasm.arenite_is_end(tokenizer, id)) break;
    check(wasm.arenite_decoder_push(decoder, id, text, 512, length, error));
    const piece = bytes().slice(text, text + words().getUint32(length, true));
    postMessage({ text: new TextDecoder().decode(piece) });
    check(wasm.arenite_session_decode(session, id, error));
    made++;
    if (performance.now() - breathed > 50) {
      await new Promise((next) => setTimeout(next)); // Lets a stop message arrive.
      breathed = performance.now();
    }
  }
  top_ = mark;
  const seconds = (performance.now() - read) / 1000;
  const joined = plan.threads > 1 ? wasm.web_joined() : 0;
  const rate = (tokens, seconds) => tokens / Math.max(seconds, 1e-9);
  return { prompt: count, prefill: rate(count, (read - began) / 1000), tokens: made, decode: rate(made, seconds), ...plan, joined };
}

function translate({ text }) {
  const mark = top_, began = performance.now();
  const [at, length] = put(text), search = take(12), len = take(4), room = 4096, out = take(room);
  wasm.arenite_search_default(search);
  words().setUint32(search, beams, true);
  const size = wasm.arenite_translate_scratch_size(session, length), scratch = take(size);
  check(wasm.arenite_translate(session, tokenizer, search, at, length, scratch, size, out, room, len, error));
  const said = new TextDecoder().decode(bytes().slice(out, out + words().getUint32(len, true)));
  top_ = mark;
  return { text: said, milliseconds: performance.now() - began };
}

const actions = {
  async open({ url, file, options }) {
    const data = file || (await (await fetch(url)).arrayBuffer());
    await load(options.threads);
    return open(data, options);
  },
  help,
  tell,
  translate,
};
onmessage = async ({ data: { id, action, argument } }) => {
  if (action === "stop") return void (stopped = true);
  try {
    postMessage({ id, result: await actions[action](argument) });
  } catch (problem) {
    postMessage({ id, problem: problem.message });
  }
};
