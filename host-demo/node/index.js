// A model in a WebAssembly module of its own, through the C interface (src/arenite.h). All memory belongs to the module: the
// model and its session are placed after the program, and what a call needs is placed after them and given up at its end.

const ROLES = { system: 0, user: 1, assistant: 2, tool: 3 };
const BREATH = 50; // milliseconds after which other tasks run
const BATCH = 16; // tokens in a pass, between which other tasks may run
const NO_ROOM = 2; // ARENITE_STATUS_MEMORY
const utf8 = new TextEncoder();

// What an answer may be asked: numbers, and other kinds of values. The first ones are parameters of the sampler, with their
// place in `arenite_params`.
const PARAMS = { temperature: 0, topK: 4, topP: 8, minP: 12, repeatPenalty: 16, frequencyPenalty: 20, presencePenalty: 24 };
const SETTINGS = [...Object.keys(PARAMS), "maxTokens", "seed", "stop", "grammar", "signal"];
const OPTIONS = ["context", "template"];

// Refuses names that would have no effect.
function onlyHas(given, names, what) {
  for (const name of Object.keys(given ?? {})) {
    if (!names.includes(name)) throw new TypeError(`${name} is no ${what}: give ${names.join(", ")}`);
  }
}

function number(value, name) {
  if (typeof value !== "number" || Number.isNaN(value)) throw new TypeError(`${name} is a number`);
  return value;
}

function text(value, what) {
  if (typeof value !== "string") throw new TypeError(`${what} is a text`);
  return utf8.encode(value);
}

// The bytes at a path (in Node), at an address, of a file, or given.
async function read(source) {
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (typeof Blob !== "undefined" && source instanceof Blob) return new Uint8Array(await source.arrayBuffer());
  if (typeof source !== "string" && !(source instanceof URL)) {
    throw new TypeError("a model is a path, an address, a file or bytes");
  }
  const isFile = typeof process !== "undefined" && process.versions?.node && !/^(https?|data|blob):/.test(String(source));
  if (isFile) {
    const module = "node:fs/promises"; // not a literal below, because bundlers for browsers would look for it
    const files = process.getBuiltinModule?.(module) ?? (await import(/* webpackIgnore: true */ /* @vite-ignore */ module));
    return files.readFile(String(source).startsWith("file:") ? new URL(source) : source);
  }
  const response = await fetch(source);
  if (!response.ok) throw new Error(`${source}: HTTP ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

let compiled;
const program = () => (compiled ??= read(new URL("./arenite.wasm", import.meta.url)).then((bytes) => WebAssembly.compile(bytes)));

export class Model {
  #wasm;
  #top;
  #base; // the end of what stays: model and session
  #turn = 0; // counts answers: the newest one has the session
  #error;
  #model;
  #tokenizer;
  #session;
  #vocab;
  #template;
  #pieces;
  #read = []; // the tokens in the context

  static async open(source, options) {
    onlyHas(options, OPTIONS, "option");
    options ??= {};
    const [module, file] = await Promise.all([program(), read(source)]);
    const model = new Model();
    const chat = {
      piece: (_, at, length, isTemplate) => void model.#pieces.push([model.#bytes(at, length).slice(), isTemplate]),
    };
    model.#wasm = (await WebAssembly.instantiate(module, { chat })).exports;
    model.#start(file, options);
    return model;
  }

  #start(file, options) {
    this.#top = this.#wasm.__heap_base.value;
    this.#error = this.#take(136);
    const at = this.#take(file.length);
    this.#bytes(at, file.length).set(file);
    this.#model = this.#place("model", (to, size, out) => this.#wasm.arenite_model_new(at, file.length, to, size, out, this.#error));
    this.#vocab = this.#wasm.arenite_model_vocab(this.#model);
    const chosen = this.#take(40), planned = this.#take(16);
    this.#wasm.arenite_options_default(chosen);
    this.#words().setUint32(chosen, options.context ?? Math.min(this.#own(planned), 4096), true);
    this.#words().setUint32(chosen + 4, BATCH, true);
    // The program's rule: a cache in f32 for encoders and for models of llama2.c, else in f16.
    const isExact = this.#number(`${this.#text("general.architecture")}.attention.causal`) === 0 ||
      this.#text("llama2c.version") !== undefined || this.#number("llama2c.version") !== undefined;
    this.#words().setUint32(chosen + 8, isExact ? 0 : 1, true);
    this.#check(this.#wasm.arenite_model_plan(this.#model, chosen, planned, this.#error));
    const [workspace, kv, index, context] = this.#planOf(planned);
    this.plan = { model: file.length, workspace, kv, tokenizer: index, context };
    const indexAt = this.#take(index), workspaceAt = this.#take(workspace), kvAt = this.#take(kv);
    this.#tokenizer = this.#place("tokenizer", (to, size, out) =>
      this.#wasm.arenite_tokenizer_new(this.#model, indexAt, index, to, size, out, this.#error));
    this.#session = this.#place("session", (to, size, out) =>
      this.#wasm.arenite_session_new(this.#model, chosen, workspaceAt, workspace, kvAt, kv, to, size, out, this.#error));
    this.#template = options.template ?? this.#text("tokenizer.chat_template") ?? "";
    this.#base = this.#top;
  }

  // The positions that the model was trained with.
  #own(planned) {
    this.#check(this.#wasm.arenite_model_plan(this.#model, 0, planned, this.#error));
    return this.#planOf(planned)[3];
  }

  #words = () => new DataView(this.#wasm.memory.buffer);
  #bytes = (at, length) => new Uint8Array(this.#wasm.memory.buffer, at, length);
  #planOf = (at) => [0, 4, 8, 12].map((step) => this.#words().getUint32(at + step, true));

  #take(size) {
    const at = Math.ceil(this.#top / 64) * 64;
    this.#top = at + Math.max(size, 1);
    const missing = this.#top - this.#wasm.memory.buffer.byteLength;
    try {
      if (missing > 0) this.#wasm.memory.grow(Math.ceil(missing / 65536));
    } catch {
      const bytes = (this.#top / 2 ** 30).toFixed(1);
      this.#top = at;
      throw new RangeError(`this needs ${bytes} GiB, and WebAssembly has at most 4 GiB: give a smaller model or context`);
    }
    return at;
  }

  #put(data) {
    const at = this.#take(data.length);
    this.#bytes(at, data.length).set(data);
    return at;
  }

  // Creates an object of the interface and returns its address.
  #place(kind, make) {
    const size = this.#wasm[`arenite_${kind}_size`](), at = this.#take(size), out = this.#take(4);
    this.#check(make(at, size, out));
    return this.#words().getUint32(out, true);
  }

  #check(status) {
    if (status === 0) return;
    const size = 512, text = this.#take(size);
    const length = this.#wasm.arenite_error_message(this.#error, text, size);
    throw new Error(new TextDecoder().decode(this.#bytes(text, Math.min(length, size - 1)).slice()));
  }

  // Frees the memory that `call` allocates.
  #within(call) {
    const mark = this.#top;
    try {
      return call();
    } finally {
      this.#top = mark;
    }
  }

  // A text of the model's metadata.
  #text(key) {
    return this.#within(() => {
      const length = this.#take(4), at = this.#wasm.arenite_model_text(this.#model, this.#put(utf8.encode(`${key}\0`)), length);
      return at ? new TextDecoder().decode(this.#bytes(at, this.#words().getUint32(length, true)).slice()) : undefined;
    });
  }

  // A number of the model's metadata; 1 or 0 for a boolean.
  #number(key) {
    return this.#within(() => {
      const out = this.#take(8), found = this.#wasm.arenite_model_number(this.#model, this.#put(utf8.encode(`${key}\0`)), out);
      return found ? this.#words().getFloat64(out, true) : undefined;
    });
  }

  #tokens(text, isFirst, isTemplate) {
    return this.#within(() => {
      const at = this.#put(text), room = 3 * text.length + 16, ids = this.#take(4 * room), count = this.#take(4);
      const size = this.#wasm.arenite_tokenize_scratch_size(text.length), scratch = this.#take(size);
      this.#check(this.#wasm.arenite_tokenize(
        this.#tokenizer, at, text.length, isFirst, isTemplate, scratch, size, ids, room, count, this.#error));
      return new Uint32Array(this.#wasm.memory.buffer, ids, this.#words().getUint32(count, true)).slice();
    });
  }

  tokenize(prompt) {
    return this.#tokens(text(prompt, "a prompt"), 1, 0);
  }

  detokenize(tokens) {
    return this.#within(() => {
      const ids = Uint32Array.from(tokens), at = this.#put(new Uint8Array(ids.buffer)), length = this.#take(4);
      for (let room = 16 * ids.length + 64; ; room *= 4) {
        const out = this.#take(room);
        const status = this.#wasm.arenite_detokenize(this.#tokenizer, at, ids.length, 0, out, room, length, this.#error);
        if (status === NO_ROOM && room < 2 ** 28) continue;
        this.#check(status);
        return new TextDecoder().decode(this.#bytes(out, this.#words().getUint32(length, true)).slice());
      }
    });
  }

  embed(content) {
    return this.#within(() => {
      const ids = this.tokenize(content), at = this.#put(new Uint8Array(ids.buffer));
      const size = this.#wasm.arenite_session_vector_size(this.#session), out = this.#take(4 * size), length = this.#take(4);
      this.#read = [];
      this.#turn++;
      this.#check(this.#wasm.arenite_session_embed(this.#session, at, ids.length, out, size, length, this.#error));
      const vector = new Float32Array(this.#wasm.memory.buffer, out, this.#words().getUint32(length, true)).slice();
      const norm = Math.hypot(...vector);
      return vector.map((x) => x / (norm || 1));
    });
  }

  async *generate(prompt, settings) {
    yield* this.#answer(this.tokenize(prompt), settings);
  }

  async *chat(messages, settings) {
    if (typeof messages === "string") messages = [{ role: "user", content: messages }];
    if (!Array.isArray(messages) || !messages.length) throw new TypeError("a conversation is a text or a list of messages");
    const ids = this.#within(() => {
      const format = utf8.encode(this.#template), at = this.#put(format), list = this.#take(12 * messages.length);
      messages.forEach(({ role, content }, i) => {
        if (!Object.hasOwn(ROLES, role)) throw new Error(`${role} is no role: give ${Object.keys(ROLES).join(", ")}`);
        const data = text(content, "the content of a message"), to = this.#put(data);
        [ROLES[role], to, data.length].forEach((word, k) => this.#words().setUint32(list + 12 * i + 4 * k, word, true));
      });
      this.#pieces = [];
      this.#check(this.#wasm.web_chat(at, format.length, list, messages.length, this.#error));
      return this.#pieces.flatMap(([text, isTemplate], i) => [...this.#tokens(text, i === 0 ? 1 : 0, isTemplate)]);
    });
    yield* this.#answer(ids, settings);
  }

  // Removes the tokens that differ from those in the context, and returns those that are to be read.
  #begin(ids) {
    const context = this.plan.context;
    if (ids.length > context) {
      throw new RangeError(`the prompt has ${ids.length} tokens, but the context has only ${context} positions`);
    }
    let same = 0;
    while (same < ids.length - 1 && ids[same] === this.#read[same]) same++;
    if (this.#wasm.arenite_context_nearest(this.#session, 0, same) !== same) same = 0;
    this.#check(this.#wasm.arenite_session_rewind(this.#session, same, this.#error));
    this.#read.length = same;
    return Uint32Array.from(ids.slice(same));
  }

  #prefill(ids) {
    this.#within(() => {
      const at = this.#put(new Uint8Array(ids.slice().buffer));
      this.#check(this.#wasm.arenite_session_prefill(this.#session, at, ids.length, this.#error));
      this.#read.push(...ids);
    });
  }

  // The state of an answer in a grammar.
  #constraint(table) {
    if (!(table instanceof Uint8Array)) throw new TypeError("grammar is the bytes of a table that `arenite grammar` has written");
    const at = this.#put(table);
    return this.#place("constraint", (to, size, out) => this.#wasm.arenite_constraint_new(at, table.length, to, size, out, this.#error));
  }

  // Writes the parameters of the sampler.
  #params(settings) {
    const params = this.#take(44);
    this.#wasm.arenite_params_default(params);
    for (const [name, at] of Object.entries(PARAMS)) {
      const value = settings[name] ?? undefined;
      if (value === undefined) continue;
      if (name === "topK") this.#words().setUint32(params + at, Math.max(number(value, name), 0), true);
      else this.#words().setFloat32(params + at, number(value, name), true);
    }
    return params;
  }

  async *#answer(ids, settings) {
    onlyHas(settings, SETTINGS, "setting");
    settings ??= {};
    const wasm = this.#wasm, turn = ++this.#turn, { signal } = settings;
    const limit = number(settings.maxTokens ?? Infinity, "maxTokens"), most = limit < 0 ? Infinity : limit;
    const given = settings.seed ?? -1, seed = given < 0 ? Math.floor(Math.random() * 2 ** 48) : given;
    const stops = new Stops(settings.stop ?? []);
    this.#top = this.#base;
    const mine = () => {
      if (turn !== this.#turn) throw new Error("another call uses this model: it gives one answer at a time");
    };
    let breathed = performance.now();
    // Lets other tasks run from time to time.
    const pause = async () => {
      if (performance.now() - breathed <= BREATH) return;
      await new Promise((next) => setTimeout(next));
      breathed = performance.now();
    };
    try {
      const params = this.#params(settings), token = this.#take(4), text = this.#take(512), length = this.#take(4);
      const size = wasm.arenite_sampler_scratch_size(params, this.#vocab), scratch = this.#take(size);
      const sampler = this.#place("sampler", (at, room, out) =>
        wasm.arenite_sampler_new(params, this.#vocab, BigInt(seed), scratch, size, at, room, out, this.#error));
      const decoder = this.#place("decoder", (at, room, out) =>
        wasm.arenite_decoder_new(this.#tokenizer, 1, at, room, out, this.#error));
      const constraint = settings.grammar && this.#constraint(settings.grammar);
      const sample = (logits) => constraint
        ? wasm.arenite_sampler_sample_where(sampler, logits, this.#vocab, constraint, this.#tokenizer, token, this.#error)
        : wasm.arenite_sampler_sample(sampler, logits, this.#vocab, token, this.#error);
      const decoded = () => new TextDecoder().decode(this.#bytes(text, this.#words().getUint32(length, true)).slice());
      for (let rest = this.#begin(ids); rest.length && !signal?.aborted; rest = rest.slice(BATCH)) {
        this.#prefill(rest.slice(0, BATCH));
        await pause();
        mine(); // after each wait, because another call may have taken the session and the memory
      }
      ids.forEach((id) => wasm.arenite_sampler_accept(sampler, id));
      for (let made = 0; made < most && !signal?.aborted; made++) {
        this.#check(sample(wasm.arenite_session_logits(this.#session)));
        const id = this.#words().getUint32(token, true);
        if (wasm.arenite_is_end(this.#tokenizer, id)) break;
        this.#check(wasm.arenite_decoder_push(decoder, id, text, 512, length, this.#error));
        const piece = stops.push(decoded());
        if (piece) yield piece;
        mine();
        if (stops.found) return;
        if (made + 1 >= most || wasm.arenite_session_position(this.#session) >= this.plan.context) break;
        this.#check(wasm.arenite_session_decode(this.#session, id, this.#error));
        this.#read.push(id);
        await pause();
        mine();
      }
      this.#check(wasm.arenite_decoder_finish(decoder, text, 512, length, this.#error));
      const rest = stops.push(decoded()) + stops.held;
      if (rest && !stops.found) yield rest;
    } finally {
      if (turn === this.#turn) this.#top = this.#base;
    }
  }
}

// Holds back text that may begin a stop text, and finds the first of them.
class Stops {
  found = false;
  held = "";
  #stops;

  constructor(stops) {
    this.#stops = [stops].flat();
    if (!this.#stops.every((stop) => typeof stop === "string" && stop)) throw new TypeError("stop is a text or a list of texts");
  }

  // Returns the text that can be shown.
  push(piece) {
    const text = this.held + piece;
    const places = this.#stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
    this.found = places.length > 0;
    let end = Math.min(text.length, ...places);
    if (!this.found) {
      const begins = (at) => this.#stops.some((stop) => stop.startsWith(text.slice(at)));
      for (let at = text.length - 1; at >= 0; at--) if (begins(at)) end = at;
    }
    this.held = this.found ? "" : text.slice(end);
    return text.slice(0, end);
  }
}
