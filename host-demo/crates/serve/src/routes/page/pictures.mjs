// Pictures for the next message: chosen, pasted or dropped, and shown above the field.

import { button, image, make } from "./view.mjs";

const $ = (id) => document.getElementById(id);
const MOST_BYTES = 2 ** 20; // of a file that is sent as it is
const LONGEST = 2048; // pixels on the longer side of a larger file, which is sent as a JPEG

let pictures = []; // data URLs
let sees = false;
let tell = () => {}; // shows an error

/** Returns the content of a message with `text` and the pictures that were given, which are then gone. */
export function take(text) {
  const given = pictures.map((url) => ({ type: "image_url", image_url: { url } }));
  put([]);
  return given.length ? [...given, ...(text ? [{ type: "text", text }] : [])] : text;
}

/** True if the next message has a picture. */
export const has = () => pictures.length > 0;

/** Replaces the pictures of the next message. */
export function put(urls) {
  pictures = urls;
  const shown = pictures.map((url, at) => {
    const remove = button("\u00d7", () => put(pictures.filter((_, other) => other != at)));
    remove.setAttribute("aria-label", "Remove this picture");
    return make("span", "picture", image(url), remove);
  });
  $("pictures").replaceChildren(...shown);
  $("pictures").hidden = !pictures.length;
}

/** Allows pictures if the chosen model sees them. `failed` shows an error. */
export function allow(isAllowed, failed) {
  [sees, tell] = [isAllowed, failed];
  $("choose").hidden = !sees;
  if (!sees) put([]);
}

/** Adds the pictures among files. Returns true if there are any. */
function add(files) {
  const found = sees ? Array.from(files ?? []).filter(({ type }) => type.startsWith("image/")) : [];
  Promise.all(found.map(read))
    .then((urls) => put([...pictures, ...urls]))
    .catch(() => tell("This picture cannot be read."));
  return found.length > 0;
}

/** Returns the data URL of a file. A large picture is made smaller. */
async function read(file) {
  if (file.size <= MOST_BYTES) return dataUrl(file);
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
  const canvas = make("canvas");
  [canvas.width, canvas.height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.9);
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

$("choose").onclick = () => $("files").click();
$("files").onchange = () => {
  add($("files").files);
  $("files").value = "";
};
$("text").onpaste = (event) => {
  if (add(event.clipboardData?.files)) event.preventDefault();
};
document.ondragover = (event) => {
  if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
};
document.ondrop = (event) => {
  if (!event.dataTransfer?.files.length) return;
  event.preventDefault(); // the browser would leave the page and show the file
  add(event.dataTransfer.files);
};
