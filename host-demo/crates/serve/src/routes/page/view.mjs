// Draws messages. Texts of models become text nodes and the elements of markdown.mjs, never HTML.

import { filesOf, picturesOf, textOf } from "./conversation.mjs";
import { markdown } from "./markdown.mjs";

/** Makes an element with a class and children. */
export function make(tag, name = "", ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children);
  return element;
}

export function button(label, action, name = "") {
  const element = make("button", name, label);
  element.type = "button";
  element.onclick = () => action(element);
  return element;
}

/** Makes the element of a picture. */
export function image(url) {
  const element = make("img");
  Object.assign(element, { src: url, alt: "Picture" });
  return element;
}

export const inUnits = (bytes) => {
  const unit = bytes < 2 ** 20 ? 1 : bytes < 2 ** 30 ? 2 : 3;
  return `${(bytes / 2 ** (10 * unit)).toFixed(1)} ${["", "KiB", "MiB", "GiB"][unit]}`;
};

/** Makes a button that copies the text that `text` returns. */
function copyButton(text) {
  return button("Copy", async (element) => {
    element.textContent = (await copy(text())) ? "Copied" : "Not copied";
    setTimeout(() => (element.textContent = "Copy"), 1500);
  });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Browsers have a clipboard only on localhost and with HTTPS; the older way works everywhere.
    const field = make("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    return isCopied;
  }
}

/** Makes the node for a tree of markdown.mjs. */
function build(tree) {
  if (typeof tree == "string") return tree;
  const [tag, { href, language, side, start }, ...children] = tree;
  const element = make(tag, side, ...children.map(build));
  if (tag == "pre") {
    const code = make("code", "", ...children);
    const head = make("div", "", make("span", "", language || "text"), copyButton(() => code.textContent));
    return make("div", "listing", head, make("pre", "", code));
  }
  if (tag == "table") return make("div", "wide-table", element);
  if (tag == "ol") element.start = start;
  if (tag == "a") Object.assign(element, { href, target: "_blank", rel: "noopener noreferrer" });
  return element;
}

/** Returns a function that shows a growing text in `parent`; blocks that are the same as before stay. */
function growing(parent) {
  let shown = [];
  return (text) => {
    const blocks = markdown(text);
    const next = blocks.map((block) => JSON.stringify(block));
    let same = 0;
    while (same < shown.length && shown[same] == next[same]) same++;
    while (parent.childNodes.length > same) parent.lastChild.remove();
    parent.append(...blocks.slice(same).map(build));
    shown = next;
  };
}

/** Indents the JSON of a call's arguments. Returns other texts unchanged. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Returns the element of a message, and a function that redraws it: `versions` are the indices of the messages that may
    stand in its place, `at` the position of its own. `does` has the functions of the buttons. */
export function view(message, does) {
  const { element, actions, redraw } = { user, assistant, tool }[message.role](message, does);
  let shown = [[], 0];
  const turn = (by) => {
    const [versions, at] = shown;
    does.show(versions.at((at + by) % versions.length), by);
  };
  const place = make("span", "", "");
  const arrows = make("span", "versions", button("\u2039", () => turn(-1)), place, button("\u203a", () => turn(1)));
  arrows.firstChild.setAttribute("aria-label", "Previous version");
  arrows.lastChild.setAttribute("aria-label", "Next version");
  actions.append(arrows);
  const update = (isRunning, versions = shown[0], at = shown[1]) => {
    shown = [versions, at];
    arrows.hidden = versions.length < 2;
    place.textContent = `${at + 1}/${versions.length}`;
    redraw(isRunning);
  };
  return { element, update };
}

function user(message, does) {
  const said = textOf(message.content);
  const pictures = make("div", "pictures", ...picturesOf(message.content).map(image));
  const files = filesOf(message.content).map(({ file, text }) =>
    make("details", "attached", make("summary", "", `${file}, ${inUnits(text.length)}`), make("pre", "", text)));
  const text = make("div", "text", said);
  [pictures.hidden, text.hidden] = [!pictures.childNodes.length, !said];
  const actions = make("div", "actions", copyButton(() => said), button("Edit", () => does.edit(message)));
  return { element: make("article", "turn user", pictures, ...files, text, actions), actions, redraw() {} };
}

function tool(message) {
  const result = make("div", "result", `Result of ${message.name}`, make("pre", "", message.content));
  const actions = make("div", "actions");
  return { element: make("article", "turn tool", result, actions), actions, redraw() {} };
}

function assistant(message, does) {
  const title = make("summary", "", "Thinking\u2026");
  const inner = make("div", "text");
  const thought = make("details", "thought", title, inner);
  const text = make("div", "text");
  const calls = make("form", "calls");
  const note = make("span", "note");
  const again = button("Regenerate", () => does.regenerate(), "only-last");
  const copies = copyButton(() => message.content);
  const actions = make("div", "actions", copies, again, note);
  const showThought = growing(inner);
  const showText = growing(text);
  let isTouched = false; // the user has folded or unfolded the thought
  title.onclick = () => (isTouched = true);
  calls.onsubmit = (event) => {
    event.preventDefault();
    does.results(message.tool_calls.map((call, at) => ({
      role: "tool", tool_call_id: call.id, name: call.function.name, content: calls.querySelectorAll("textarea")[at].value,
    })));
  };
  const redraw = (isRunning) => {
    const { content, reasoning_content: thoughts, tool_calls: list = [] } = message;
    const isThinking = isRunning && !content && !list.length;
    thought.hidden = !thoughts;
    title.textContent = isThinking ? "Thinking\u2026" : "Thought";
    if (!isTouched) thought.open = isThinking;
    if (thoughts) showThought(thoughts);
    text.hidden = !content;
    showText(content);
    note.textContent = message.note ?? "";
    copies.hidden = !content;
    actions.hidden = isRunning;
    element.classList.toggle("wait", isRunning);
    if (!isRunning && list.length && !calls.childNodes.length) calls.append(...list.map(call), sendResults());
  };
  const element = make("article", "turn assistant", thought, text, calls, actions);
  return { element, actions, redraw };
}

/** Makes the element of a call, with a field for the call's result. */
function call({ function: { name, arguments: text } }) {
  const field = make("textarea", "code only-last");
  Object.assign(field, { rows: 2, placeholder: "Result of the call" });
  field.setAttribute("aria-label", `Result of ${name}`);
  return make("div", "call", "Call of ", make("b", "", name), make("pre", "", pretty(text)), field);
}

function sendResults() {
  return make("button", "strong only-last", "Send the result");
}
