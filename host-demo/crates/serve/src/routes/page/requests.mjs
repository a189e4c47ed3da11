// Requests to the server. The paths are relative, so the page also works behind a proxy that adds a prefix.

/** An error with a message for the user. */
export class Refused extends Error {}

let key = null;
let askForKey = async () => null;

/** Sets the key, and a function that asks the user for another key and returns null if the user has none. */
export function useKey(first, ask) {
  key = first;
  askForKey = ask;
}

/** Sends a request. Asks for the API key if the server wants one. Throws `Refused` or an AbortError. */
export async function send(path, options = {}) {
  for (;;) {
    const headers = { ...(typeof options.body == "string" && { "Content-Type": "application/json" }), ...(key && { Authorization: "Bearer " + key }) };
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name == "AbortError") throw error;
      throw new Refused("The server does not answer. Is it still running?");
    }
    if (response.ok) return response;
    const message = await reason(response);
    if (response.status != 401) throw new Refused(message);
    const next = await askForKey(message);
    if (next == null) throw new Refused(message);
    key = next;
  }
}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered with status ${response.status}.`;
  }
}

/** Asks for an answer to `body.messages` and yields the events of its stream. */
export async function* stream(body, signal) {
  const response = await send("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (signal.aborted) throw error;
      piece = { done: true };
    }
    if (piece.done) throw new Refused("The connection was lost before the end of the answer.");
    const events = (held + piece.value).split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = /^data: ?(.*)$/m.exec(event)?.[1];
      if (data == "[DONE]") return;
      if (!data) continue;
      const value = JSON.parse(data);
      if (value.error) throw new Refused(value.error.message);
      yield value;
    }
  }
}

/** Adds an event of the stream to a message. */
export function add(message, event) {
  const [choice] = event.choices ?? [];
  const { content, reasoning_content: thought, tool_calls: calls } = choice?.delta ?? {};
  if (thought) message.reasoning_content = (message.reasoning_content ?? "") + thought;
  if (content) message.content += content;
  for (const { index, ...call } of calls ?? []) {
    message.tool_calls ??= [];
    const known = message.tool_calls[index];
    if (known) known.function.arguments += call.function?.arguments ?? "";
    else message.tool_calls[index] = call;
  }
  return Boolean(thought || content || calls);
}

/** Returns the sum over all models of the sizes that `/metrics` reports under a name. */
export function metric(text, name) {
  const lines = text.matchAll(new RegExp(`^arenite_${name}(?:\\{[^}]*\\})? (\\d+)$`, "gm"));
  return Array.from(lines, ([, value]) => Number(value)).reduce((sum, value) => sum + value, 0);
}
