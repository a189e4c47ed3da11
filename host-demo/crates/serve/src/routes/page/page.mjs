// The page of the server: conversations with the model.
//
//   page           the shown conversation and its field   view           messages as elements
//   conversation   the tree of messages; files            markdown       Markdown as a tree of elements
//   store          conversations in IndexedDB             chats          their list
//   requests       requests to the server                 models         models, and the use of the context
//   settings       settings, kept by the browser          microphone     speech for the field
//   attachments    pictures and texts for the field       pictures, texts   their files

import { has, put as attach, putBack, take } from "./attachments.mjs";
import { connect, openList } from "./chats.mjs";
import { append, choose, fresh, sent, shown, textOf, versions } from "./conversation.mjs";
import { endRecording, isRecording } from "./microphone.mjs";
import { describe, isFull, named, showUse } from "./models.mjs";
import { add, stream, useKey } from "./requests.mjs";
import { body, kept } from "./settings.mjs";
import { get, onFailure, put } from "./store.mjs";
import { make, view } from "./view.mjs";

const $ = (id) => document.getElementById(id);
const SAVE_EACH = 2000; // milliseconds between saves of an answer in progress
const isTouch = matchMedia("(pointer: coarse)").matches;
const views = new WeakMap(); // the view of each message

let talk = fresh(); // the shown conversation
let running = null; // an AbortController for the answer in progress
let editing = null; // the message that is edited

// ---- The conversation ----

/** Draws the shown branch, and an error after it. Errors are neither sent nor kept. */
function draw(failure = "") {
  const does = { edit, regenerate, show, results: (results) => answer(talk.shown, results) };
  const messages = shown(talk);
  const places = versions(talk);
  const elements = messages.map((message) => {
    if (!views.has(message)) views.set(message, view(message, does));
    const { element, update } = views.get(message);
    const isLast = message == messages.at(-1);
    const list = places.get(message);
    update(running != null && isLast, list, list.findIndex((at) => talk.messages[at] == message));
    element.classList.toggle("last", isLast);
    element.classList.toggle("editing", message == editing);
    return element;
  });
  const error = make("div", "error", failure);
  error.setAttribute("role", "alert");
  $("talk").replaceChildren(...elements, ...(failure ? [error] : []));
  $("send").hidden = running != null;
  $("stop").hidden = running == null;
  showUse(running ? messages.slice(0, -1) : messages);
  follow();
}

/** Keeps a conversation, and remembers in this tab which one is shown. */
async function save(changed) {
  await put(changed);
  if (changed == talk) kept("sessionStorage", "shown", talk.id);
}

/** Asks for the answer to `messages` after message `from`, as a new branch if others follow there. If no answer comes, the
    conversation is restored, and the question returns to the field. */
async function answer(from, messages) {
  if (running) return;
  const [own, to] = [(running = new AbortController()), talk];
  const before = { shown: to.shown, length: to.messages.length, editing };
  to.shown = from;
  messages.forEach((message) => append(to, message));
  const asked = shown(to).map(sent);
  const reply = append(to, { role: "assistant", content: "" });
  editing = null;
  isFollowing = true;
  $("status").textContent = "";
  draw();
  save(to);
  const timing = { start: performance.now(), first: 0, last: 0, saved: performance.now() };
  let [usage, finish, failure] = [null, null, ""];
  try {
    const request = { ...body(asked), ...named(), stream: true, stream_options: { include_usage: true } };
    for await (const event of stream(request, own.signal)) {
      usage = event.usage ?? usage;
      finish = event.choices?.[0]?.finish_reason ?? finish;
      if (!add(reply, event)) continue;
      timing.last = performance.now();
      timing.first ||= timing.last;
      if (timing.last > timing.saved + SAVE_EACH) {
        timing.saved = timing.last;
        save(to);
      }
      later(() => running == own && (views.get(reply).update(true), follow()));
    }
  } catch (error) {
    if (!own.signal.aborted) failure = error.message;
  }
  if (running == own) running = null;
  reply.note = note(usage, finish, timing, own.signal.aborted);
  if (usage) reply.tokens = usage.total_tokens;
  // The user may have left the conversation. The question then stays in it, with an empty answer.
  if (isEmpty(reply) && (failure || own.signal.aborted) && to == talk) {
    to.shown = before.shown;
    to.messages.length = before.length;
    const question = messages.at(-1);
    if (question?.role == "user") {
      editing = before.editing;
      setText([textOf(question.content), $("text").value].filter(Boolean).join("\n"));
      putBack(question.content);
    }
  }
  await save(to);
  if (to != talk || running) return;
  draw(failure);
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
    finish == "length" && (isFull(usage?.total_tokens) ? "cut: the context is full" : "cut at the limit of tokens"),
  ].filter(Boolean).join(", ");
}

const isEmpty = ({ content, reasoning_content: thought, tool_calls: calls }) => !content && !thought && !calls;

function regenerate() {
  if (running) return;
  const at = talk.shown;
  const reply = talk.messages[at];
  if (isEmpty(reply) && at == talk.messages.length - 1) {
    talk.messages.pop();
    talk.shown = reply.parent;
  }
  answer(reply.parent, []);
}

/** Shows the branch with message `at`. The focus stays on the arrow that was pressed. */
function show(at, by) {
  if (running) return;
  choose(talk, at);
  cancelEdit();
  save(talk);
  views.get(talk.messages[at]).element.querySelector(`.versions button:${by < 0 ? "first" : "last"}-of-type`).focus();
}

function edit(message) {
  if (running) return;
  editing = message;
  setText(textOf(message.content));
  attach(message.content);
  $("text").focus();
  draw();
  $("status").textContent = "Sending begins another branch at the marked message. Esc cancels.";
}

function cancelEdit() {
  if (editing) {
    editing = null;
    setText("");
    attach([]);
    $("status").textContent = "";
  }
  draw();
}

/** Shows another conversation. An answer in progress is stopped, and its beginning is kept. */
function use(other) {
  if (other == talk) return;
  running?.abort();
  running = null;
  talk = other;
  kept("sessionStorage", "shown", talk.id);
  isFollowing = true;
  cancelEdit();
  if (!isTouch) $("text").focus();
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
  const from = editing ? editing.parent : talk.shown;
  setText("");
  answer(from, [{ role: "user", content: take(text) }]);
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
  const last = shown(talk).findLast(({ role }) => role == "user");
  if (event.key == "ArrowUp" && !$("text").value && !has() && last) {
    event.preventDefault();
    edit(last);
  }
};
document.onkeydown = (event) => {
  if (event.key != "Escape" || event.isComposing || document.querySelector("dialog[open]")) return;
  if (isRecording()) endRecording(true);
  else if (running) running.abort();
  else if (editing) cancelEdit();
};
$("stop").onclick = () => running?.abort();
$("fresh").onclick = () => use(fresh());
$("list").onclick = openList;
$("change").onclick = () => $("settings").showModal();

// ---- The start ----

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

// Takes the key from `#key=...` in the address, and removes it there.
const given = new URLSearchParams(location.hash.slice(1)).get("key");
if (given) {
  kept("sessionStorage", "key", given);
  history.replaceState(null, "", location.pathname + location.search);
}
useKey(given ?? kept("sessionStorage", "key"), enterKey);
connect({ current: () => talk, use, begin: () => use(fresh()) });
onFailure((error) => {
  $("status").textContent = `The browser does not keep this conversation (${error.message || error.name}). Chats can write it to a file.`;
});
draw();
describe(draw).catch((error) => draw(error.message));
const last = kept("sessionStorage", "shown");
const found = last && (await get(last).catch((error) => draw(`This conversation is damaged: ${error.message}.`)));
if (found && !talk.messages.length) use(found);
