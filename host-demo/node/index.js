// A model in a WebAssembly module of its own, through the C interface (src/arenite.h). All memory belongs to the module: the
// model and its session are placed after the program, and what a call needs is placed after them and given up at its end.

const ROLES = { system: 0, user: 1, assistant: 2, tool: 3 };
const BREATH = 50; // milliseconds after which other tasks run
const utf8 = new TextEncoder();

// The bytes at a path (in Node), at an address, or given.
async function read(source) {
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  const isFile = typeof process !== "undefined" && process.versions?.node && !/^(https?|data|blob):/.test(String(source));
  const path = String(source).startsWith("file:") ? new URL(source) : source;
  if (isFile) return (await import("node:fs/promises")).readFile(path);
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

  static async open(source, options = {}) {
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
    this.#words().setUint32(chosen + 4, 64, true); // tokens in a pass
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
    if (missing > 0) this.#wasm.memory.grow(Math.ceil(missing / 65536));
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

  tokenize(text) {
    return this.#tokens(utf8.encode(text), 1, 0);
  }

  embed(text) {
    return this.#within(() => {
      const ids = this.tokenize(text), at = this.#put(new Uint8Array(ids.buffer));
      const size = this.#wasm.arenite_session_vector_size(this.#session), out = this.#take(4 * size), length = this.#take(4);
      this.#read = [];
      this.#turn++;
      this.#check(this.#wasm.arenite_session_embed(this.#session, at, ids.length, out, size, length, this.#error));
      const vector = new Float32Array(this.#wasm.memory.buffer, out, this.#words().getUint32(length, true)).slice();
      const norm = Math.hypot(...vector);
      return vector.map((x) => x / (norm || 1));
    });
  }

  async *generate(prompt, settings = {}) {
    yield* this.#answer(this.tokenize(prompt), settings);
  }

  async *chat(messages, settings = {}) {
    if (typeof messages === "string") messages = [{ role: "user", content: messages }];
    const ids = this.#within(() => {
      const format = utf8.encode(this.#template), at = this.#put(format), list = this.#take(12 * messages.length);
      messages.forEach(({ role, content }, i) => {
        if (!Object.hasOwn(ROLES, role)) throw new Error(`${role} is no role: give ${Object.keys(ROLES).join(", ")}`);
        const text = utf8.encode(content), to = this.#put(text);
        [ROLES[role], to, text.length].forEach((word, k) => this.#words().setUint32(list + 12 * i + 4 * k, word, true));
      });
      this.#pieces = [];
      this.#check(this.#wasm.web_chat(at, format.length, list, messages.length, this.#error));
      return this.#pieces.flatMap(([text, isTemplate], i) => [...this.#tokens(text, i === 0 ? 1 : 0, isTemplate)]);
    });
    yield* this.#answer(ids, settings);
  }

  // Reads the tokens that differ from those in the context.
  #prefill(ids) {
    let same = 0;
    while (same < ids.length - 1 && ids[same] === this.#read[same]) same++;
    if (this.#wasm.arenite_context_nearest(this.#session, 0, same) !== same) same = 0;
    this.#check(this.#wasm.arenite_session_rewind(this.#session, same, this.#error));
    const rest = Uint32Array.from(ids.slice(same)), at = this.#put(new Uint8Array(rest.buffer));
    this.#read = [];
    this.#check(this.#wasm.arenite_session_prefill(this.#session, at, rest.length, this.#error));
    this.#read = [...ids];
  }

  async *#answer(ids, { maxTokens = Infinity, temperature = 0.8, seed, signal }) {
    const wasm = this.#wasm, turn = ++this.#turn;
    this.#top = this.#base;
    const mine = () => {
      if (turn !== this.#turn) throw new Error("another call uses this model: it gives one answer at a time");
    };
    try {
      this.#prefill(ids);
      const params = this.#take(44), token = this.#take(4), text = this.#take(512), length = this.#take(4);
      wasm.arenite_params_default(params);
      this.#words().setFloat32(params, temperature, true);
      const size = wasm.arenite_sampler_scratch_size(params, this.#vocab), scratch = this.#take(size);
      const chance = BigInt(seed ?? Math.floor(Math.random() * 2 ** 48));
      const sampler = this.#place("sampler", (at, room, out) =>
        wasm.arenite_sampler_new(params, this.#vocab, chance, scratch, size, at, room, out, this.#error));
      const decoder = this.#place("decoder", (at, room, out) =>
        wasm.arenite_decoder_new(this.#tokenizer, 1, at, room, out, this.#error));
      let breathed = performance.now();
      for (let made = 0; made < maxTokens && !signal?.aborted; made++) {
        this.#check(wasm.arenite_sampler_sample(sampler, wasm.arenite_session_logits(this.#session), this.#vocab, token, this.#error));
        const id = this.#words().getUint32(token, true);
        if (wasm.arenite_is_end(this.#tokenizer, id)) break;
        this.#check(wasm.arenite_decoder_push(decoder, id, text, 512, length, this.#error));
        const piece = this.#bytes(text, this.#words().getUint32(length, true)).slice();
        if (piece.length) yield new TextDecoder().decode(piece);
        mine();
        if (made + 1 >= maxTokens || wasm.arenite_session_position(this.#session) >= this.plan.context) break;
        this.#check(wasm.arenite_session_decode(this.#session, id, this.#error));
        this.#read.push(id);
        if (performance.now() - breathed > BREATH) {
          await new Promise((next) => setTimeout(next));
          mine();
          breathed = performance.now();
        }
      }
      this.#check(wasm.arenite_decoder_finish(decoder, text, 512, length, this.#error));
      const rest = this.#words().getUint32(length, true);
      if (rest) yield new TextDecoder().decode(this.#bytes(text, rest).slice());
    } finally {
      if (turn === this.#turn) this.#top = this.#base;
    }
  }
}
