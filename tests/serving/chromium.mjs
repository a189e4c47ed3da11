// A page of `arenite serve` in headless Chromium, over the DevTools protocol on a pipe.
import assert from "node:assert";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { createInterface } from "node:readline";

const [binary, folder] = process.argv.slice(2);
if (folder) mkdirSync(folder, { recursive: true });
export const profile = mkdtempSync(tmpdir() + "/page-"); // a folder for files, too
const children = [];
process.on("exit", () => {
  children.forEach((child) => child.kill());
  try {
    rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  } catch {
    // Chromium may still be writing files if the test has failed.
  }
});
setTimeout(() => {
  console.error("error: no end within 30 minutes");
  process.exit(1);
}, 1_800_000).unref();

/** Starts a server. Returns its address and a function that stops it. */
export async function serve(...flags) {
  const child = spawn(binary, ["serve", "--port", "0", "-c", "8000", "--parallel", "2", ...flags], { stdio: ["ignore", "pipe", "ignore"] });
  children.push(child);
  for await (const line of createInterface({ input: child.stdout })) return { url: line.split(" ").at(-1), stop: () => child.kill() };
}

function browser() {
  const names = ["chromium", "chromium-browser", "google-chrome"];
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"];
  flags.push(`--user-data-dir=${profile}`, "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream");
  flags.push(`--use-file-for-fake-audio-capture=${profile}/speech.wav`);
  const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
  const child = spawn("sh", ["-c", `exec "$(command -v ${names.join(" ")} | head -n 1)" "$@"`, "sh", ...flags], { stdio });
  children.push(child);
  const [, , , to, from] = child.stdio;
  const waiting = new Map();
  const listeners = [];
  let [next, held] = [1, ""];
  from.setEncoding("utf8").on("data", (data) => {
    const messages = (held + data).split("\0");
    held = messages.pop();
    for (const message of messages.map(JSON.parse)) {
      const { resolve, reject } = waiting.get(message.id) ?? {};
      if (!message.id) listeners.forEach((listen) => listen(message));
      else if (message.error) reject(new Error(message.error.message));
      else resolve(message.result);
    }
  });
  const call = (method, params = {}, sessionId = undefined) =>
    new Promise((resolve, reject) => {
      waiting.set(next, { resolve, reject });
      to.write(JSON.stringify({ id: next++, method, params, sessionId }) + "\0");
    });
  return { child, call, listeners };
}

const chromium = browser();

export class Page {
  /** Opens `url`, with a script that runs before those of the page. Collects errors of the page and violations of its
      Content-Security-Policy in `errors`, and the bodies of requests for answers in `asked`. */
  static async open(url, { width, height, isPhone = false, isDark = false }, script = "") {
    const { targetId } = await chromium.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await chromium.call("Target.attachToTarget", { targetId, flatten: true });
    const page = Object.assign(new Page(), { targetId, errors: [], asked: [], call: (method, params) => chromium.call(method, params, sessionId) });
    chromium.listeners.push(({ method, params, sessionId: of }) => {
      if (of != sessionId) return;
      if (method == "Runtime.exceptionThrown") page.errors.push(JSON.stringify(params.exceptionDetails));
      if (method == "Log.entryAdded" && params.entry.level == "error") page.errors.push(params.entry.text);
      if (method == "Network.requestWillBeSent" && params.request.url.endsWith("/v1/chat/completions")) page.asked.push(JSON.parse(params.request.postData));
    });
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await page.call(domain + ".enable");
    await page.call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: isPhone });
    if (isPhone) await page.call("Emulation.setTouchEmulationEnabled", { enabled: true });
    await page.call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: isDark ? "dark" : "light" }] });
    await page.call("Page.addScriptToEvaluateOnNewDocument", { source: script });
    await page.call("Page.navigate", { url });
    await page.isReady();
    return page;
  }

  /** Closes the page: Chromium is slow with the events of a page that is behind another. */
  close() {
    return chromium.call("Target.closeTarget", { targetId: this.targetId });
  }

  /** Waits until the page has described the server, or asks for the key. */
  isReady() {
    return this.until("document.getElementById('used')?.textContent || document.querySelector('dialog[open]')");
  }

  async reload() {
    await this.run("document.getElementById('used').textContent = ''");
    await this.call("Page.reload");
    await this.isReady();
  }

  async run(expression) {
    const { result, exceptionDetails } = await this.call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    assert(!exceptionDetails, `${expression}: ${JSON.stringify(exceptionDetails)}`);
    return result.value;
  }

  /** Waits until an expression is true. */
  async until(expression) {
    for (const end = Date.now() + 60_000; Date.now() < end; await pause(30)) if (await this.run(`Boolean(${expression})`)) return;
    throw new Error(`never true: ${expression}; the page: ${await this.run("document.body.innerText")}; errors: ${this.errors}`);
  }

  text(selector) {
    return this.run(`[...document.querySelectorAll(${JSON.stringify(selector)})].map((element) => element.innerText)`);
  }

  count(selector) {
    return this.run(`document.querySelectorAll(${JSON.stringify(selector)}).length`);
  }

  async click(selector) {
    const [x, y] = await this.run(`(() => {
      const element = document.querySelector(${JSON.stringify(selector)});
      element.scrollIntoView({ block: "nearest" });
      const { x, y, width, height } = element.getBoundingClientRect();
      return [x + width / 2, y + height / 2];
    })()`);
    const press = (type) => this.call("Input.dispatchMouseEvent", { type, x, y, button: "left", clickCount: 1 });
    await press("mousePressed");
    await press("mouseReleased");
  }

  /** Presses a key in the element with the focus. */
  async press(key, more = {}) {
    const text = key == "Enter" ? "\r" : undefined;
    const code = { Enter: 13, Escape: 27, ArrowUp: 38 }[key];
    const common = { key, code: key, text, windowsVirtualKeyCode: code, ...more };
    for (const type of ["keyDown", "keyUp"]) await this.call("Input.dispatchKeyEvent", { type, ...common });
  }

  async type(text) {
    await this.run("document.getElementById('text').focus()");
    await this.call("Input.insertText", { text });
  }

  async say(text) {
    await this.type(text);
    await this.click("#send");
  }

  /** Waits until the answer is complete. */
  async ends() {
    await this.until("!document.getElementById('send').hidden");
  }

  /** Says something, and waits for the whole answer. */
  async asks(text) {
    await this.say(text);
    await this.until(`[...document.querySelectorAll(".user .text")].at(-1)?.innerText == ${JSON.stringify(text)}`);
    await this.ends();
  }

  /** Drops files on the page: pairs of a name and a content in base64. */
  drop(...files) {
    return this.run(`(() => {
      const data = new DataTransfer();
      for (const [name, content, type] of ${JSON.stringify(files)}) {
        data.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name, { type }));
      }
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    })()`);
  }

  /** Chooses a file in a field for files. */
  async choose(selector, path) {
    const { root } = await this.call("DOM.getDocument");
    const { nodeId } = await this.call("DOM.querySelector", { nodeId: root.nodeId, selector });
    await this.call("DOM.setFileInputFiles", { nodeId, files: [path] });
  }

  /** Presses a button that writes a file. Returns the file's name and text. */
  async download(selector) {
    const path = mkdtempSync(profile + "/download-");
    await chromium.call("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: path });
    await this.click(selector);
    for (const end = Date.now() + 20_000; Date.now() < end; await pause(30)) {
      const [name] = readdirSync(path);
      if (name && !name.endsWith(".crdownload")) return { name, path: `${path}/${name}`, text: readFileSync(`${path}/${name}`, "utf8") };
    }
    throw new Error(`${selector} writes no file`);
  }

  /** Sets fields of the settings. */
  async settings(fields) {
    await this.click("#change");
    await this.run(`for (const [name, value] of Object.entries(${JSON.stringify(fields)})) {
      const field = document.querySelector("#settings form").elements[name];
      field.value = value;
      field.dispatchEvent(new Event("input"));
    }`);
    await this.click("#settings button.strong");
    assert.equal(await this.count("dialog[open]"), 0);
  }

  /** Makes the model generate this text in all further answers. */
  says(text, fields = {}) {
    return this.settings({ ...fields, more: JSON.stringify({ grammar: "root ::= " + JSON.stringify(text) }) });
  }

  slow(bytesPerSecond) {
    const line = { offline: false, latency: 0, downloadThroughput: bytesPerSecond, uploadThroughput: -1 };
    return this.call("Network.emulateNetworkConditions", line);
  }

  async shot(name) {
    await pause(150);
    const { data } = await this.call("Page.captureScreenshot", { format: "png" });
    if (folder) writeFileSync(`${folder}/${name}.png`, data, "base64");
  }
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Ends the browser. */
export const close = () => Promise.all([new Promise((ended) => chromium.child.on("exit", ended)), chromium.call("Browser.close")]);
