/** A message of a conversation. */
export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: string;
}

/** Settings of an answer. */
export interface Settings {
  /** Maximum number of tokens to generate; default, and -1: as many as fit in the context. */
  maxTokens?: number;
  /** 0 always selects the most probable token. Default 0.8. */
  temperature?: number;
  /** Number of most probable tokens to sample from; 0 for all. Default 40. */
  topK?: number;
  /** Samples from the most probable tokens that together have this probability. Default 0.95; 1 for all. */
  topP?: number;
  /** Samples from tokens at least this many times as probable as the most probable one. Default 0.05; 0 for all. */
  minP?: number;
  /** Divides the logits of the last 64 tokens if they are positive, and multiplies them otherwise. Default 1. */
  repeatPenalty?: number;
  /** Subtracted from a token's logit for each of its occurrences among the last 64 tokens. Default 0. */
  frequencyPenalty?: number;
  /** Subtracted once from the logits of the last 64 tokens. Default 0. */
  presencePenalty?: number;
  /** The same seed gives the same answer. Default, and -1: random. */
  seed?: number | bigint;
  /** Texts that end the answer, and are not part of it. */
  stop?: string | string[];
  /** The table of a grammar or of a JSON schema, as `arenite grammar FILE TABLE` writes it: the answer matches it. */
  grammar?: Uint8Array;
  /** Ends the answer, also while the prompt is read. */
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
  /** Opens a model: a path (Node), an address, a file that the user has chosen, or the bytes of a GGUF file. */
  static open(source: string | URL | Blob | ArrayBuffer | Uint8Array, options?: OpenOptions): Promise<Model>;
  readonly plan: Plan;
  /** Continues a text, in whole characters. */
  generate(prompt: string, settings?: Settings): AsyncGenerator<string, void, void>;
  /** Answers the last message, in the model's own chat format. */
  chat(messages: Message[] | string, settings?: Settings): AsyncGenerator<string, void, void>;
  /** The pooled vector of a text, of length 1. */
  embed(text: string): Float32Array;
  /** The tokens of a text, with those that the model has at its ends. */
  tokenize(text: string): Uint32Array;
  /** The text of tokens, without control tokens. */
  detokenize(tokens: Iterable<number>): string;
}
