// Settings of the page, kept by the browser.

const form = document.querySelector("#settings form");
const fields = () => Array.from(form.elements).filter((field) => field.name);

/** Stores a value that survives a reload, or returns the stored value. `where` is sessionStorage or localStorage. */
export function kept(where, name, value) {
  try {
    const storage = window[where];
    if (value === undefined) return JSON.parse(storage.getItem("arenite-" + name));
    storage.setItem("arenite-" + name, JSON.stringify(value));
  } catch {
    // The browser may refuse to store values, or have no space left. The page works without them.
  }
  return null;
}

for (const field of fields()) {
  field.value = kept("localStorage", "settings")?.[field.name] ?? "";
  field.oninput = save;
}
document.getElementById("defaults").onclick = () => {
  form.reset();
  save();
};
form.onsubmit = (event) => {
  event.preventDefault();
  form.parentElement.close();
};

function save() {
  kept("localStorage", "settings", Object.fromEntries(fields().map((field) => [field.name, field.value])));
}

/** Shows the server's defaults in empty fields. */
export function showDefaults(params) {
  for (const field of fields()) if (field.name in params) field.placeholder = +Number(params[field.name]).toFixed(4);
}

/** Returns the body of a request, with all settings. Throws an error about a field that is not JSON. */
export function body(messages) {
  const values = Object.fromEntries(fields().map((field) => [field.name, field.value.trim()]));
  const { system, tools, more, reasoning_effort, ...numbers } = values;
  const body = { messages: system ? [{ role: "system", content: system }, ...messages] : messages };
  for (const [name, value] of Object.entries(numbers)) if (value) body[name] = Number(value);
  if (reasoning_effort) body.reasoning_effort = reasoning_effort;
  if (tools) body.tools = json(tools, Array.isArray, "The list of functions in the settings is not a JSON list.");
  const isObject = (value) => value && typeof value == "object" && !Array.isArray(value);
  return { ...body, ...(more && json(more, isObject, "The other fields in the settings are not a JSON object.")) };
}

function json(text, isRight, message) {
  try {
    const value = JSON.parse(text);
    if (isRight(value)) return value;
  } catch {}
  throw new Error(message);
}
