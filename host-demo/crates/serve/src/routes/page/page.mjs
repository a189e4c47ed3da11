// The page of the server: a conversation with the model.
//
//   page        the conversation and its fields      view       messages as elements
//   requests    requests to the server               settings   settings, kept by the browser
//   markdown    Markdown as a tree of elements       pictures   pictures for the next message

import { allow, has, put, take } from "./pictures.mjs";
import { add, metric, send, stream, useKey } from "./requests.mjs";
import { body, kept, showDefaults } from "./settings.mjs";
import { make, picturesOf, textOf, view } from "./view.mjs";

const $ = (id) => document.getElementById(id);
const isTouch = matchMedia("(pointer: coarse)").matches;
const views = new WeakMap(); // the view of each message

let talk = kept("sessionStorage", "talk") ?? []; // the messages
let running = null; // an AbortController for the answer in progress
let editing = -1; // the index of the message that is edited
let model = null; // the chosen model, if there are several

// ---- The conversation ----

/** Draws all messages, and an error after them. Errors are neither sent nor kept. */
function draw(failure = "") {
  const does = { edit, regenerate, results: (results) => answer([...talk, ...results]) };
  const elements = talk.map((message) => {
    if (!views.has(message)) views.set(message, view(message, does));
    const { element, update } = views.get(message);
    update(running != null && message == talk.at(-1));
    element.classList.toggle("last", message == talk.at(-1));
    element.classList.toggle("editing", editing >= 0 && message == talk[editing]);
    return element;
  });
  const error = make("div", "error", failure);
  error.setAttribute("role", "alert");
  $("talk").replaceChildren(...elements, ...(failure ? [error] : []));
  $("send").hidden = running != null;
  $("stop").hidden = running == null;
  if (running == null) kept("sessionStorage", "talk", talk);
  follow();
}

/** Asks for the answer to `asked`. If no answer comes, the conversation is restored, and the question returns to the
    field. */
async function answer(asked) {
  if (running) return;
  const before = talk;
  const own = (running = new AbortController());
  const reply = { role: "assistant", content: "" };
  talk = [...asked, reply];
  editing = -1;
  isFollowing = true;
  draw();
  const timing = { start: performance.now(), first: 0, last: 0 };
  let [usage, finish, failure] = [null, null, ""];
  try {
    const messages = asked.map(({ note, ...message }) => message);
    const request = { ...body(messages), ...(model && { model }), stream: true, stream_options: { include_usage: true } };
    for await (const event of stream(request, own.signal)) {
      usage = event.usage ?? usage;
      finish = event.choices?.[0]?.finish_reason ?? finish;
      if (!add(reply, event)) continue;
      timing.last = performance.now();
      timing.first ||= timing.last;
      later(() => running == own && (views.get(reply).update(true), follow()));
    }
  } catch (error) {
    if (!own.signal.aborted) failure = error.message;
  }
  if (running != own) return; // another conversation has begun
  running = null;
  reply.note = note(usage, finish, timing, own.signal.aborted);
  const isEmpty = !reply.content && !reply.reasoning_content && !reply.tool_calls;
  if (isEmpty && (failure || own.signal.aborted)) {
    const question = asked.at(-1);
    talk = before;
    if (question.role == "user" && !before.includes(question)) {
      setText([textOf(question.content), $("text").value].filter(Boolean).join("\n"));
      put(picturesOf(question.content));
    }
  }
  draw(failure);
  if (usage) $("status").textContent = `${usage.total_tokens} of ${$("facts").dataset.context || "?"} tokens of context`;
  if (!isTouch) $("text").focus();
}

/** Returns a line about an answer: its speed, and the reason if it was cut or stopped. */
function note(usage, finish, { start, first, last }, isStopped) {
  const tokens = usage?.completion_tokens;
  const seconds = (last - first) / 1000;
  return [
    tokens && `${tokens} tokens`,
    tokens > 1 && seconds > 0 && `${((tokens - 1) / seconds).toFixed(1)} tokens/s`,
    first && `first after ${((first - start) / 1000).toFixed(1)} s`,
    isStopped && "stopped",
    finish == "length" && "cut at the limit of tokens",
  ].filter(Boolean).join(", ");
}

function regenerate() {
  answer(talk.slice(0, -1));
}

function edit(message) {
  if (running) return;
  editing = talk.indexOf(message);
  setText(textOf(message.content));
  put(picturesOf(message.content));
  $("text").focus();
  $("status").textContent = "Sending replaces the marked message and all after it. Esc cancels.";
  draw();
}

function cancelEdit() {
  editing = -1;
  setText("");
  put([]);
  $("status").textContent = "";
  draw();
}

/** Calls the last of the given functions once, before the next frame. */
let waiting = null;
function later(update) {
  if (!waiting) requestAnimationFrame(() => (waiting(), (waiting = null)));
  waiting = update;
}

// ---- Following the answer ----

let isFollowing = true;
let lastTop = 0;

function follow() {
  if (isFollowing) $("scroll").scrollTop = $("scroll").scrollHeight;
  $("latest").hidden = isFollowing;
}

$("scroll").onscroll = () => {
  const { scrollTop, clientHeight, scrollHeight } = $("scroll");
  if (scrollTop + clientHeight >= scrollHeight - 8) isFollowing = true;
  else if (scrollTop < lastTop) isFollowing = false;
  lastTop = scrollTop;
  $("latest").hidden = isFollowing;
};
$("latest").onclick = () => {
  isFollowing = true;
  follow();
};
new ResizeObserver(follow).observe($("scroll"));

// ---- The field ----

function setText(text) {
  $("text").value = text;
  grow();
}

/** Fits the field to its text; newer browsers do so by CSS. */
function grow() {
  if (CSS.supports("field-sizing", "content")) return;
  $("text").style.height = "auto";
  $("text").style.height = $("text").scrollHeight + 2 + "px";
}

$("text").oninput = grow;
$("ask").onsubmit = (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (!(text || has()) || running) return;
  const earlier = editing < 0 ? talk : talk.slice(0, editing);
  setText("");
  answer([...earlier, { role: "user", content: take(text) }]);
};
$("text").onkeydown = (event) => {
  // Enter does not send while Chinese or Japanese characters are being composed. On a phone, Enter begins a line.
  const isComposing = event.isComposing || event.keyCode == 229;
  if (event.key == "Enter" && !event.shiftKey && !isComposing && !isTouch) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
  if (event.key == "PageUp" || event.key == "PageDown") {
    event.preventDefault();
    $("scroll").scrollBy(0, $("scroll").clientHeight * (event.key == "PageUp" ? -0.8 : 0.8));
  }
  const last = talk.findLast(({ role }) => role == "user");
  if (event.key == "ArrowUp" && !$("text").value && last) {
    event.preventDefault();
    edit(last);
  }
};
document.onkeydown = (event) => {
  if (event.key != "Escape" || event.isComposing || document.querySelector("dialog[open]")) return;
  if (running) running.abort();
  else if (editing >= 0) cancelEdit();
};
$("stop").onclick = () => running?.abort();
$("fresh").onclick = () => {
  const own = running;
  running = null;
  own?.abort();
  talk = [];
  isFollowing = true;
  cancelEdit();
  $("text").focus();
};
$("change").onclick = () => $("settings").showModal();

// ---- The server ----

/** Asks the user for the API key. Returns null if the user gives none. */
function enterKey(why) {
  $("why").textContent = why[0].toUpperCase() + why.slice(1) + ".";
  $("key").value = "";
  $("entry").showModal();
  return new Promise((give) => {
    let key = null;
    $("entry").querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      key = $("key").value.trim();
      kept("sessionStorage", "key", key);
      $("entry").close();
    };
    $("refuse").onclick = () => $("entry").close();
    $("entry").onclose = () => give(key);
  });
}

const inUnits = (bytes) => {
  const unit = bytes < 2 ** 20 ? 1 : bytes < 2 ** 30 ? 2 : 3;
  return `${(bytes / 2 ** (10 * unit)).toFixed(1)} ${["", "KiB", "MiB", "GiB"][unit]}`;
};

/** Shows the models, the context and the memory. */
async function describe() {
  const { data } = await (await send("v1/models")).json();
  $("models").replaceChildren(...data.map(({ id }) => new Option(id)));
  $("models").hidden = data.length < 2;
  $("model").hidden = data.length > 1;
  const choose = async () => {
    const { id, max_model_len: context, capabilities = [] } = data.find(({ id }) => id == $("models").value) ?? data[0];
    model = data.length > 1 ? id : null;
    allow(capabilities.includes("vision"), draw);
    $("model").textContent = document.title = id;
    const metrics = await (await send("metrics")).text();
    const memory = metric(metrics, "workspace_bytes") + metric(metrics, "kv_bytes");
    $("facts").dataset.context = context;
    $("facts").textContent = `${context} tokens of context, ${inUnits(memory)} of memory`;
    $("facts").title = "Workspace and KV cache of all conversations, without the model";
  };
  $("models").onchange = choose;
  await choose();
  showDefaults((await (await send("props")).json()).default_generation_settings?.params ?? {});
}

// Takes the key from `#key=...` in the address, and removes it there.
const given = new URLSearchParams(location.hash.slice(1)).get("key");
if (given) {
  kept("sessionStorage", "key", given);
  history.replaceState(null, "", location.pathname + location.search);
}
useKey(given ?? kept("sessionStorage", "key"), enterKey);
draw();
describe().catch((error) => draw(error.message));
