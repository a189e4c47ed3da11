/** A message of a conversation. */
export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: string;
}

/** Settings of an answer. */
export interface Settings {
  /** Maximum number of tokens to generate; default: as many as fit in the context. */
  maxTokens?: number;
  /** 0 always selects the most probable token. Default 0.8. */
  temperature?: number;
  /** The same seed gives the same answer. Default: random. */
  seed?: number | bigint;
  signal?: AbortSignal;
}

export interface OpenOptions {
  /** Positions in the context; default: the model's own, at most 4096. */
  context?: number;
  /** Name of a chat format, such as "chatml"; default: that of the model's template. */
  template?: string;
}

/** The memory of a model in bytes. */
export interface Plan {
  model: number;
  workspace: number;
  kv: number;
  tokenizer: number;
  context: number;
}

/** A model with one answer at a time: a new call ends the one before. The common beginning of two prompts is computed once. */
export class Model {
  /** Opens a model: a path (Node), an address, or the bytes of a GGUF file. */
  static open(source: string | URL | ArrayBuffer | Uint8Array, options?: OpenOptions): Promise<Model>;
  readonly plan: Plan;
  /** Continues a text, in whole characters. */
  generate(prompt: string, settings?: Settings): AsyncGenerator<string, void, void>;
  /** Answers the last message, in the model's own chat format. */
  chat(messages: Message[] | string, settings?: Settings): AsyncGenerator<string, void, void>;
  /** The pooled vector of a text, of length 1. */
  embed(text: string): Float32Array;
  /** The tokens of a text, with those that the model has at its ends. */
  tokenize(text: string): Uint32Array;
}
