// The list of the conversations that the browser keeps: opened, renamed, deleted, written to files and read from them.

import { fromJson, shorten, titleOf, toJson, toMarkdown } from "./conversation.mjs";
import { get, list, put, remove } from "./store.mjs";
import { button, inUnits, make } from "./view.mjs";

const $ = (id) => document.getElementById(id);
const MOST_BYTES = 64 * 2 ** 20; // of a file with a conversation

let page = null; // { current() returns the shown conversation, use(talk) shows another, begin() a new one }

/** Connects the list to the page. */
export const connect = (functions) => (page = functions);

export async function openList() {
  await draw();
  if (!$("chats").open) $("chats").showModal();
}

/** Returns the conversation with this id; the shown one may have changes that are not kept yet. */
async function load(id) {
  const talk = page.current().id == id ? page.current() : await get(id);
  if (!talk) throw new Error("another tab has deleted it");
  return talk;
}

/** Closes the list, which returns the focus, and shows a conversation, which takes it. */
function leave(talk) {
  $("chats").close();
  page.use(talk);
}

/** Draws the list, and an error below it. */
async function draw(failure = "") {
  const rows = (await list()).map(row);
  $("kept").replaceChildren(...rows);
  $("none").hidden = rows.length > 0;
  $("failed").textContent = failure;
}

const attempt = (title, action) => async (element) => {
  try {
    await action(element);
  } catch (error) {
    await draw(`${title}: ${error.message}.`);
  }
};

function row({ id, changed, title }) {
  const shown = title ?? "Damaged conversation";
  const act = (label, action) => {
    const made = button(label, attempt(shown, action));
    made.title = `${label}: ${shown}`;
    return made;
  };
  const open = button(shown, attempt(shown, async () => {
    leave(await load(id));
  }), "open");
  if (id == page.current().id) open.setAttribute("aria-current", "true");
  const head = make("div", "head", open, make("span", "note", changed ? new Date(changed).toLocaleString() : ""));
  const actions = make("div", "actions",
    act("Rename", async () => rename(await load(id), head)),
    act("Markdown", async () => save(await load(id), "md", "text/markdown", toMarkdown)),
    act("JSON", async () => save(await load(id), "json", "application/json", toJson)),
    act("Delete", (element) => confirmed(element, () => erase(id))));
  return make("li", "", head, actions);
}

/** Replaces a title by a field. Enter keeps the new title, Esc the old one. */
function rename(talk, head) {
  const field = make("input");
  Object.assign(field, { value: titleOf(talk), maxLength: 80 });
  field.setAttribute("aria-label", "New title");
  field.onkeydown = async (event) => {
    if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key == "Enter") {
      talk.title = shorten(field.value.trim());
      await put(talk);
    }
    await draw();
    $("kept").querySelector("button")?.focus();
  };
  head.replaceChildren(field);
  field.select();
}

/** Runs the action if the button is pressed twice. */
async function confirmed(element, action) {
  if (element.classList.contains("sure")) return action();
  element.classList.add("sure");
  element.textContent = "Delete for ever";
  element.onblur = () => {
    element.classList.remove("sure");
    element.textContent = "Delete";
  };
}

async function erase(id) {
  await remove(id);
  if (page.current().id == id) page.begin();
  await draw();
  ($("kept").querySelector("button") ?? $("import")).focus();
}

function save(talk, ending, type, write) {
  const link = make("a");
  const name = titleOf(talk).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "conversation";
  Object.assign(link, { href: URL.createObjectURL(new Blob([write(talk)], { type })), download: `${name}.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

$("import").onclick = () => $("conversation").click();
$("conversation").onchange = async () => {
  const [file] = $("conversation").files;
  await attempt(file.name, async () => {
    if (file.size > MOST_BYTES) throw new Error(`it has more than ${inUnits(MOST_BYTES)}`);
    const talk = fromJson(await file.text());
    await put(talk);
    leave(talk);
  })();
  $("conversation").value = "";
};
$("chats").querySelector("form").onsubmit = (event) => {
  event.preventDefault();
  $("chats").close();
};
