// Checks of the microphone of the page of `arenite serve`. Chromium plays a file instead of a microphone.
import assert from "node:assert";
import { readFileSync, writeFileSync } from "node:fs";

import { Page, pause, profile, serve } from "./chromium.mjs";

const root = new URL("../../", import.meta.url).pathname;
const RATE = 16000;
const SPOKEN = "kitchen light on"; // in the first 1.66 seconds (`recording` in host-demo/models/recognizer.py)

/** Writes the first seconds of the recording as 16-bit PCM, which Chromium needs. The recording is in mu-law (G.711). */
function writeSpeech() {
  const file = readFileSync(root + "tests/boards/commands/recording.wav");
  const data = file.subarray(file.indexOf("data") + 8);
  const pcm = Buffer.alloc(44 + 2 * 3 * RATE);
  for (let at = 0; at < 1.66 * RATE; at++) {
    const code = ~data[at] & 255;
    const size = ((((code & 15) << 3) + 132) << ((code >> 4) & 7)) - 132;
    pcm.writeInt16LE(code & 128 ? -size : size, 44 + 2 * at);
  }
  pcm.write("RIFF", 0);
  pcm.writeUInt32LE(pcm.length - 8, 4);
  pcm.write("WAVEfmt ", 8);
  [16, 1 | (1 << 16), RATE, 2 * RATE, 2 | (16 << 16)].forEach((value, at) => pcm.writeUInt32LE(value, 16 + 4 * at));
  pcm.write("data", 36);
  pcm.writeUInt32LE(pcm.length - 44, 40);
  writeFileSync(profile + "/speech.wav", pcm);
}

/** What is spoken goes into the field, and can be discarded. Without a model that hears, there is no microphone. */
export async function hears(size, name) {
  writeSpeech();
  const models = root + "host-demo/models/";
  const server = await serve("-m", models + "recognizer.gguf", "-m", models + "stories.gguf", "--memory", "2G");
  const page = await Page.open(server.url, size);
  await page.until("!document.getElementById('speak').hidden");
  assert.deepEqual(await page.text("#model"), ["stories"], "the model that only hears is not offered for answers");
  assert.equal(await page.run("document.getElementById('models').hidden"), true);
  await page.type("Now: and then");
  await page.run("document.getElementById('text').setSelectionRange(4, 4)");
  await page.click("#speak");
  await page.until("document.getElementById('speak').getAttribute('aria-pressed') == 'true'");
  await pause(2000);
  await page.shot(name + "-speech");
  await page.click("#speak");
  await page.until("document.getElementById('status').textContent == ''");
  assert.equal(await page.run("document.getElementById('text').value"), `Now: ${SPOKEN} and then`);

  await page.run("window.known = fetch; window.fetch = () => { window.isSent = true; }");
  await page.click("#speak");
  await page.until("document.getElementById('speak').getAttribute('aria-pressed') == 'true'");
  await pause(500);
  await page.press("Escape");
  await page.until("document.getElementById('speak').getAttribute('aria-pressed') == 'false'");
  await pause(500);
  assert.equal(await page.run("window.isSent"), undefined, "a discarded recording is not sent");
  assert.deepEqual(await page.text("#status"), [""]);
  await page.run("window.fetch = window.known");
  assert.equal(await page.run("document.getElementById('text').value"), `Now: ${SPOKEN} and then`);
  await page.run("navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotAllowedError'); }");
  await page.click("#speak");
  await page.until("document.getElementById('status').textContent.includes('gives no microphone')");
  await page.run("document.getElementById('text').value = ''");
  await page.settings({ max_tokens: "10" });
  await page.asks("Once");
  assert.deepEqual(await page.text(".error"), []);
  assert.equal(page.asked.at(-1).model, "stories");
  assert.deepEqual(page.errors, []);
  await page.close();
  server.stop();
}
