// Reads a picture for the next message.

import { make } from "./view.mjs";

const MOST_BYTES = 2 ** 20; // of a file that is sent as it is
const LONGEST = 2048; // pixels on the longer side of a larger file, which is sent as a JPEG

export const isPicture = ({ type }) => type.startsWith("image/") && type != "image/svg+xml";

/** Returns a picture as a part of a message. A large picture is made smaller. */
export async function readPicture(file) {
  const url = await (file.size <= MOST_BYTES ? dataUrl(file) : smaller(file)).catch(() => {
    throw new Error(`The picture ${file.name} cannot be read.`);
  });
  return { type: "image_url", image_url: { url } };
}

async function smaller(file) {
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
