// Reads a text file for the next message.

import { fenced, shorten } from "./conversation.mjs";
import { inUnits } from "./view.mjs";

const MOST_BYTES = 2 ** 20;

/** Returns a text file as a part of a message: its name, and its text as a code block. */
export async function readText(file) {
  const name = shorten(file.name.replace(/[\s\p{C}]+/gu, " "));
  if (file.size > MOST_BYTES) {
    throw new Error(`The file ${name} has ${inUnits(file.size)}: a message takes files of at most ${inUnits(MOST_BYTES)}.`);
  }
  const bytes = await file.arrayBuffer().catch(() => {
    throw new Error(`The file ${name} cannot be read.`);
  });
  const text = decode(new Uint8Array(bytes));
  if (text == null) throw new Error(`The file ${name} is binary: a message takes only files of text.`);
  if (!text.trim()) throw new Error(`The file ${name} has no text.`);
  return { type: "text", text: `${name}:\n\n${fenced(text)}\n\n`, file: name };
}

/** Decodes UTF-8, or UTF-16 with a byte order mark. Returns null if the bytes are not text. */
function decode(bytes) {
  const encoding = { "255,254": "utf-16le", "254,255": "utf-16be" }[bytes.slice(0, 2).join()] ?? "utf-8";
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}
