// A conversation is a tree of messages: an edited message, or another answer, begins another branch. Each message has the
// index of its `parent` (null for the first), which is less than its own; `shown` is the last message of the shown branch.
// The README describes the same form as JSON for files.

const FORMAT = "arenite-conversation";
const VERSION = 1;
const LONGEST_TITLE = 80;
const ROLES = ["user", "assistant", "tool"];
const NAMED = { user: "User", assistant: "Assistant", tool: "Result" };

export const fresh = () => ({ id: newId(), title: "", changed: 0, shown: null, messages: [] });

/** Returns a new random id. (`crypto.randomUUID` exists only on localhost and with HTTPS.) */
export const newId = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (word) => word.toString(36)).join("-");

/** Returns the messages of the branch that ends at `end`. */
export function branch({ messages }, end) {
  const found = [];
  for (let at = end; at != null; at = messages[at].parent) found.push(messages[at]);
  return found.reverse();
}

export const shown = (talk) => branch(talk, talk.shown);

/** Adds a message to the end of the shown branch. */
export function append(talk, message) {
  talk.shown = talk.messages.push({ ...message, parent: talk.shown }) - 1;
  return talk.messages[talk.shown];
}

/** Returns for each message the indices of all messages with the same parent, itself among them. */
export function versions({ messages }) {
  const lists = new Map();
  messages.forEach(({ parent }, at) => (lists.has(parent) ? lists.get(parent).push(at) : lists.set(parent, [at])));
  return new Map(messages.map((message) => [message, lists.get(message.parent)]));
}

/** Shows the branch with message `at`, to its newest end. */
export function choose(talk, at) {
  const newest = new Map(talk.messages.map(({ parent }, at) => [parent, at]));
  for (talk.shown = at; newest.has(talk.shown); ) talk.shown = newest.get(talk.shown);
}

/** Returns a message without the fields that only the page uses, for a request. */
export function sent({ parent, note, tokens, ...message }) {
  if (Array.isArray(message.content)) message.content = message.content.map(({ file, ...part }) => part);
  return message;
}

/** The text that the user wrote or the model generated, without files. */
export const textOf = (content) =>
  Array.isArray(content) ? content.map(({ text, file }) => (file == null && text) || "").join("") : content;

/** The pictures of a message's content, as data URLs. */
export const picturesOf = (content) => (Array.isArray(content) ? content.flatMap(({ image_url: image }) => image?.url ?? []) : []);

/** The text files of a message's content. */
export const filesOf = (content) => (Array.isArray(content) ? content.filter(({ file }) => file != null) : []);

/** Returns the title, which is the start of the first message unless the user gave another. */
export function titleOf(talk) {
  const [first] = talk.messages;
  const text = first ? textOf(first.content).trim() || filesOf(first.content)[0]?.file || "Picture" : "New chat";
  return talk.title || shorten(text.split("\n")[0]);
}

export const shorten = (text) => (text.length > LONGEST_TITLE ? text.slice(0, LONGEST_TITLE - 1) + "\u2026" : text);

// ---- Files ----

export function toJson(talk) {
  const { shown, messages } = talk;
  return JSON.stringify({ format: FORMAT, version: VERSION, title: titleOf(talk), shown, messages }, null, 1) + "\n";
}

/** Parses a file, as a new conversation. Throws an error with a message for the user. */
export function fromJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("it is not JSON");
  }
  if (value?.format != FORMAT) throw new Error(`its \`format\` is not \`${FORMAT}\``);
  if (value.version != VERSION) throw new Error(`its version is not ${VERSION}`);
  return { ...fresh(), ...checked(value) };
}

/** Returns the title and messages of a stored conversation or a file, each field checked. Unknown fields are left out.
    Throws an error with a message for the user. */
export function checked(value) {
  const list = value?.messages;
  if (!Array.isArray(list)) throw new Error("it has no list of messages");
  const messages = list.map((message, at) => {
    try {
      return { parent: index(message?.parent, at), ...checkedMessage(message ?? "") };
    } catch (error) {
      throw new Error(`message ${at} (of ${list.length}) is invalid: ${error.message}`);
    }
  });
  const last = messages.length ? messages.length - 1 : null;
  if (value.shown != null && !messages[value.shown]) throw new Error("`shown` is not the index of a message");
  const shown = value.shown ?? last;
  return { title: shorten(optional(value.title, "string", "title") ?? ""), shown, messages };
}

function index(value, end) {
  if (value == null) return null;
  if (!Number.isInteger(value) || value < 0 || value >= end) throw new Error(`${JSON.stringify(value)} is not an earlier message`);
  return value;
}

function optional(value, type, name) {
  if (value != null && typeof value != type) throw new Error(`\`${name}\` is not a ${type}`);
  return value ?? undefined;
}

function needed(value, name) {
  if (typeof value != "string") throw new Error(`\`${name}\` is not a string`);
  return value;
}

function checkedMessage(message) {
  if (typeof message != "object") throw new Error("it is not an object");
  const { role, content, tool_calls: calls = [], name, tool_call_id } = message;
  if (!ROLES.includes(role)) throw new Error(`the role is none of ${ROLES.join(", ")}`);
  if (!Array.isArray(calls)) throw new Error("`tool_calls` is not a list");
  const out = {
    role,
    // Beside calls, the content of an answer may be null.
    content: Array.isArray(content) && role == "user" ? content.map(checkedPart) : needed(role == "assistant" ? (content ?? "") : content, "content"),
    reasoning_content: optional(message.reasoning_content, "string", "reasoning_content"),
    note: optional(message.note, "string", "note"),
    tokens: optional(message.tokens, "number", "tokens"),
    tool_calls: calls.length ? calls.map((call) => checkedCall(call ?? {})) : undefined,
    ...(role == "tool" && { name: needed(name, "name"), tool_call_id: needed(tool_call_id, "tool_call_id") }),
  };
  return Object.fromEntries(Object.entries(out).filter(([, value]) => value !== undefined));
}

function checkedPart({ type, text, file, image_url: image }) {
  if (type == "text") return { type, text: needed(text, "text"), ...(file != null && { file: needed(file, "file") }) };
  if (type != "image_url" || !/^data:image\//.test(needed(image?.url, "image_url.url"))) {
    throw new Error("a part is neither a text nor a picture with a data URL");
  }
  return { type, image_url: { url: image.url } };
}

function checkedCall({ id, function: called }) {
  const [name, text] = [needed(called?.name, "function.name"), needed(called?.arguments, "function.arguments")];
  return { id: needed(id, "id"), type: "function", function: { name, arguments: text } };
}

/** Returns the shown branch as Markdown. Pictures are named, not contained. */
export function toMarkdown(talk) {
  const written = shown(talk).map(({ role, content, name, reasoning_content: thought, tool_calls: calls = [] }) => {
    const parts = [
      ...picturesOf(content).map(() => "*(a picture)*"),
      ...filesOf(content).map(({ text }) => text.trim()),
      thought && thought.trim().replace(/^/gm, "> "),
      role == "tool" ? fenced(content) : textOf(content).trim(),
      ...calls.map(({ function: called }) => `Call of \`${called.name}\`:\n\n${fenced(called.arguments, "json")}`),
    ];
    return [`## ${NAMED[role]}${role == "tool" ? ` of \`${name}\`` : ""}`, ...parts.filter(Boolean)].join("\n\n");
  });
  return [`# ${titleOf(talk)}`, ...written].join("\n\n") + "\n";
}

/** Returns a text as a code block, with a fence that does not occur in the text. */
export function fenced(text, language = "") {
  const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), ([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text.replace(/\n$/, "")}\n${fence}`;
}
