// Pictures and text files for the next message: chosen, pasted or dropped, and shown above the field.

import { filesOf, picturesOf } from "./conversation.mjs";
import { isPicture, readPicture } from "./pictures.mjs";
import { readText } from "./texts.mjs";
import { button, image, make } from "./view.mjs";

const $ = (id) => document.getElementById(id);

let parts = []; // of the next message's content
let sees = false;
let tell = () => {}; // shows an error

/** Returns the content of a message with `text` and the files that were given, which are then gone. */
export function take(text) {
  const given = parts;
  put([]);
  return given.length ? [...given, ...(text ? [{ type: "text", text }] : [])] : text;
}

/** True if the next message has a picture or a file. */
export const has = () => parts.length > 0;

const attached = (content) => (Array.isArray(content) ? content.filter(({ file, image_url: picture }) => file != null || picture) : []);

/** Puts the pictures and files of a message that was not sent before those that were attached meanwhile. */
export const putBack = (content) => put([...attached(content), ...parts]);

/** Replaces the pictures and files of the next message by those of `content`. */
export function put(content) {
  parts = attached(content);
  const shown = parts.map((part, at) => {
    const [url] = picturesOf([part]);
    const [file] = filesOf([part]);
    const remove = button("\u00d7", () => put(parts.filter((_, other) => other != at)));
    remove.setAttribute("aria-label", url ? "Remove this picture" : `Remove ${file.file}`);
    return url ? make("span", "picture", image(url), remove) : make("span", "picture file", file.file, remove);
  });
  $("pictures").replaceChildren(...shown);
  $("pictures").hidden = !parts.length;
}

/** Allows pictures if the chosen model sees them. `failed` shows an error. */
export function allow(isAllowed, failed) {
  [sees, tell] = [isAllowed, failed];
  if (!sees) put(parts.filter(({ file }) => file != null));
}

/** Adds files in their order, and tells the first that cannot be added. */
async function add(files) {
  const read = (file) => {
    if (!isPicture(file)) return readText(file);
    if (!sees) throw new Error(`This model does not see pictures, such as ${file.name}.`);
    return readPicture(file);
  };
  const found = await Promise.allSettled(Array.from(files, async (file) => read(file)));
  put([...parts, ...found.flatMap(({ value }) => value ?? [])]);
  const failed = found.find(({ reason }) => reason);
  if (failed) tell(failed.reason.message);
}

$("choose").onclick = () => $("files").click();
$("files").onchange = () => {
  add($("files").files).then(() => ($("files").value = ""));
};
$("text").onpaste = (event) => {
  const data = event.clipboardData;
  // Office programs copy a picture of the text as well.
  if (!data?.files.length || data.types.includes("text/plain")) return;
  event.preventDefault();
  add(data.files);
};
document.ondragover = (event) => {
  if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
};
document.ondrop = (event) => {
  if (!event.dataTransfer?.files.length) return;
  event.preventDefault(); // the browser would leave the page and show the file
  add(event.dataTransfer.files);
};
