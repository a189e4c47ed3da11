// Uses the page of `arenite serve` in headless Chromium, at the size of a phone and of a desktop, light and dark. A grammar
// makes the built-in model generate a given text: Markdown, a thought, a call.
//
// node page.mjs BINARY [FOLDER OF SCREENSHOTS]      needs Node.js 18 and Chromium
import assert from "node:assert";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { createInterface } from "node:readline";

const [binary, folder] = process.argv.slice(2);
if (folder) mkdirSync(folder, { recursive: true });
const profile = mkdtempSync(tmpdir() + "/page-");
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

async function serve(...flags) {
  const child = spawn(binary, ["serve", "--port", "0", "-c", "8000", "--parallel", "2", ...flags], { stdio: ["ignore", "pipe", "ignore"] });
  children.push(child);
  for await (const line of createInterface({ input: child.stdout })) return { url: line.split(" ").at(-1), stop: () => child.kill() };
}

// ---- A page in Chromium, over the DevTools protocol on a pipe ----

function browser() {
  const names = ["chromium", "chromium-browser", "google-chrome"];
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"];
  flags.push(`--user-data-dir=${profile}`);
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

class Page {
  /** Opens `url`. Collects errors of the page and violations of its Content-Security-Policy in `errors`. */
  static async open(url, { width, height, isPhone = false, isDark = false }) {
    const { targetId } = await chromium.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await chromium.call("Target.attachToTarget", { targetId, flatten: true });
    const page = Object.assign(new Page(), { errors: [], call: (method, params) => chromium.call(method, params, sessionId) });
    chromium.listeners.push(({ method, params, sessionId: of }) => {
      if (of != sessionId) return;
      if (method == "Runtime.exceptionThrown") page.errors.push(JSON.stringify(params.exceptionDetails));
      if (method == "Log.entryAdded" && params.entry.level == "error") page.errors.push(params.entry.text);
    });
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await page.call(domain + ".enable");
    await page.call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: isPhone });
    if (isPhone) await page.call("Emulation.setTouchEmulationEnabled", { enabled: true });
    await page.call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: isDark ? "dark" : "light" }] });
    await page.call("Page.navigate", { url });
    await page.until("document.getElementById('facts')?.textContent || document.querySelector('dialog[open]')");
    return page;
  }

  async run(expression) {
    const { result, exceptionDetails } = await this.call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    assert(!exceptionDetails, `${expression}: ${JSON.stringify(exceptionDetails)}`);
    return result.value;
  }

  /** Waits until an expression is true. */
  async until(expression) {
    for (const end = Date.now() + 180_000; Date.now() < end; await pause(30)) if (await this.run(`Boolean(${expression})`)) return;
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

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ---- The checks ----

const MARKDOWN = `# Sandstone

**Arenite** is rock of *sand*, see [the page](https://example.org/a_(b)) or <b>not bold</b>.

1. Grains settle:
   - quartz
   - feldspar
2. Pressure cements them.

\`\`\`rust
fn main() {
    println!("<script>alert(1)</script>", "a line that is longer than the screen of a phone is scrolled, not wrapped");
}
\`\`\`

| grain | size in mm | of what it is made, in many words |
|:--|--:|---|
| fine | 0.125 | quartz, feldspar and fragments of rock |
| coarse | 1 | \`SiO2\` |

> Deep time.

[evil](javascript:alert(1)) <img src=x onerror=alert(1)>`;

async function streams(page, name) {
  await page.slow(6000);
  // On a phone, Enter begins a new line, and the button sends the message.
  await page.type("Tell me about a fish.");
  if (name.startsWith("phone")) await page.click("#send");
  else {
    await page.press("Enter", { isComposing: true, windowsVirtualKeyCode: 229 });
    assert.equal(await page.count(".turn"), 0, "the end of a composition sends nothing");
    await page.press("Enter");
  }
  await page.until("document.querySelector('.assistant > .text')?.textContent");
  assert.deepEqual(await page.text(".user .text"), ["Tell me about a fish."]);
  const early = await page.text(".assistant > .text");
  await page.until(`document.querySelector(".assistant > .text").innerText.length > ${early[0].length + 40}`);
  await page.type("A draft, written meanwhile");
  await page.press("Escape");
  await page.ends();
  assert.match((await page.text(".assistant .note"))[0], /stopped/);
  const stopped = await page.text(".assistant > .text");
  await pause(300);
  assert.deepEqual(await page.text(".assistant > .text"), stopped);
  assert.equal(await page.run("document.getElementById('text').value"), "A draft, written meanwhile");
  await page.run("document.getElementById('text').value = ''");
  await page.slow(-1);

  await page.settings({ max_tokens: "40", seed: "3" });
  await page.click(".last .actions .only-last");
  await page.ends();
  assert.equal(await page.count(".turn"), 2);
  assert.match((await page.text(".assistant .note"))[0], /40 tokens.*tokens\/s.*cut at the limit/);
  assert.notDeepEqual(await page.text(".assistant > .text"), stopped);
  assert.match((await page.text("#status"))[0], /^\d+ of 8000 tokens of context$/);
  assert.match((await page.text("#facts"))[0], /^8000 tokens of context, [\d.]+ MiB of memory/);
}

async function showsMarkdown(page, name) {
  await page.says(MARKDOWN, { max_tokens: "", system: "You know rocks." });
  await page.say("<i>What</i> is arenite?");
  await page.ends();
  assert.equal((await page.text(".user .text")).at(-1), "<i>What</i> is arenite?");
  const last = ".last > .text ";
  assert.deepEqual(await page.text(last + "h1, " + last + "strong, " + last + "em"), ["Sandstone", "Arenite", "sand"]);
  assert.deepEqual(await page.text(last + "ol ul li"), ["quartz", "feldspar"]);
  assert.equal(await page.count(last + "tbody td"), 6);
  assert.equal(await page.count(last + "img, " + last + "script, " + last + "b"), 0);
  assert.deepEqual(await page.run(`[...document.querySelectorAll("${last} a")].map((a) => a.href)`), ["https://example.org/a_(b)"]);
  assert.equal(await page.run("document.documentElement.scrollWidth"), await page.run("innerWidth"), "nothing is wider than the screen");
  await page.run("document.querySelector('.last > .text h1').scrollIntoView()");
  await page.shot(name + "-markdown");
  await page.run("document.getElementById('scroll').scrollTop = 1e6");
  await page.run(`Object.defineProperty(navigator, "clipboard", {
    value: { writeText: async (text) => { window.copied = text; } },
  })`);
  await page.click(".last .listing button");
  assert.match(await page.run("window.copied"), /^fn main\(\) \{\n    println/);
  await page.click(".last .actions button");
  assert.equal(await page.run("window.copied"), MARKDOWN);
  await page.shot(name + "-end");
}

async function follows(page, name) {
  const lines = Array.from({ length: 40 }, (_, at) => `Line ${at} of the answer.`).join("\n");
  await page.says(lines);
  await page.slow(20000);
  await page.say("Forty lines, please.");
  const distance = `(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight)(document.getElementById("scroll"))`;
  await page.until("document.querySelector('.last > .text')?.innerText.split('\\n').length > 8");
  assert(await page.run(distance) < 10, "the page follows");
  await page.call("Input.dispatchMouseEvent", { type: "mouseWheel", x: 200, y: 300, deltaX: 0, deltaY: -200 });
  await page.until("!document.getElementById('latest').hidden");
  const top = await page.run("document.getElementById('scroll').scrollTop");
  const length = await page.run("document.querySelector('.last > .text').innerText.length");
  await page.until(`document.querySelector('.last > .text').innerText.length > ${length + 60}`);
  assert(Math.abs((await page.run("document.getElementById('scroll').scrollTop")) - top) < 120, "the page does not follow any more");
  await page.shot(name + "-not-followed");
  await page.click("#latest");
  await page.until(distance + " < 10");
  await page.slow(-1);
  await page.ends();
  assert(await page.run(distance) < 10, "the page follows again");
}

async function thinksAndCalls(page, name) {
  await page.says("<think>\nThe user greets me. I greet **back**.\n</think>\n\nHello! Once upon a time there was a fox.");
  await page.say("Hi");
  await page.ends();
  assert.equal(await page.run("document.querySelector('.last .thought').open"), false, "a finished thought is folded");
  assert.match((await page.text(".last > .text"))[0], /^Hello!/);
  await page.click(".last .thought summary");
  assert.match((await page.text(".last .thought .text"))[0], /^The user greets me/);
  await page.shot(name + "-thought");

  const parameters = { type: "object", properties: { city: { type: "string" } } };
  const tools = JSON.stringify([{ type: "function", function: { name: "weather", parameters } }]);
  const call = '{"name": "weather", "arguments": {"city": "M\u00fcnchen <b>"}}';
  await page.says(`<tool_call>\n${call}\n</tool_call>`, { tools });
  await page.say("How is the weather?");
  await page.ends();
  assert.deepEqual(await page.text(".last .call b"), ["weather"]);
  assert.match((await page.text(".last .call pre"))[0], /"city": "M\u00fcnchen <b>"/);
  await page.says("It is sunny.", { tools });
  await page.run("document.querySelector('.last .call textarea').focus()");
  await page.call("Input.insertText", { text: "sunny, 20 degrees" });
  await page.shot(name + "-call");
  await page.click(".last .calls button");
  await page.until("document.querySelector('.last > .text')?.innerText == 'It is sunny.'");
  await page.ends();
  assert.match((await page.text(".result"))[0], /Result of weather\s+sunny, 20 degrees/);
  await page.settings({ tools: "", more: "" });
}

async function failsAndEdits(page, name, server) {
  const turns = await page.count(".turn");
  await page.settings({ more: '{"mirostat": 2}' });
  await page.say("This fails.");
  await page.until("document.querySelector('.error')");
  assert.match((await page.text(".error"))[0], /mirostat/);
  assert.equal(await page.count(".turn"), turns, "the history is as it was");
  assert.equal(await page.run("document.getElementById('text').value"), "This fails.");
  await page.shot(name + "-error");
  await page.click("#change");
  await page.shot(name + "-settings");
  await page.press("Escape");
  await page.says("Better.");
  await page.click("#send");
  await page.until("document.querySelector('.last > .text')?.innerText == 'Better.'");
  assert.equal(await page.count(".error"), 0);

  await page.type("");
  await page.press("ArrowUp");
  assert.equal(await page.count(".editing"), 1);
  await page.run("document.getElementById('text').value = 'This is edited.'");
  await page.click("#send");
  await page.until("!document.querySelector('.editing')");
  await page.ends();
  assert.equal((await page.text(".user .text")).at(-1), "This is edited.");
  const all = await page.text(".turn .text");
  await page.call("Page.reload");
  await page.until("document.getElementById('facts')?.textContent");
  assert.deepEqual((await page.text(".turn .text")).length, all.length, "a reload keeps the conversation");
  server.stop();
  await pause(300);
  await page.say("Is anyone there?");
  await page.until("document.querySelector('.error')");
  assert.match((await page.text(".error"))[0], /does not answer/);
  await page.click("#fresh");
  assert.equal(await page.count("#talk *"), 0);
}

async function asksForTheKey(size, name) {
  const server = await serve("--api-key", "secret");
  const page = await Page.open(server.url, size);
  await page.until("document.querySelector('#entry[open]')");
  for (const key of ["wrong", "secret"]) {
    await page.run("document.getElementById('key').focus()");
    await page.call("Input.insertText", { text: key });
    if (key == "secret") await page.shot(name + "-key");
    await page.click("#entry button.strong");
    if (key == "wrong") await page.until("document.querySelector('#entry[open]') && !document.getElementById('key').value");
  }
  await page.until("document.getElementById('facts').textContent");
  await page.says("You may.");
  await page.say("May I?");
  await page.until("document.querySelector('.last > .text')?.innerText == 'You may.'");
  server.stop();
}

/** Drops, pastes, removes and sends pictures, to a model of the larger set of fixtures. */
async function seesPictures(size, name) {
  const root = process.env.ARENITE_FIXTURES;
  if (!root) return console.log("SKIP pictures: set ARENITE_FIXTURES to the directory of reference cases");
  const dir = `${root}/eyes/idefics3_a`;
  const server = await serve("-c", "2048", "-m", `${dir}/model.gguf`);
  const page = await Page.open(server.url, size);
  await page.until("!document.getElementById('choose').hidden");
  const file = readFileSync(`${dir}/img2.png`, "base64");
  const give = (kind, target, key) => page.run(`(() => {
    const bytes = Uint8Array.from(atob("${file}"), (c) => c.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([bytes], "a.png", { type: "image/png" }));
    ${target}.dispatchEvent(new ${kind}("${kind == "DragEvent" ? "drop" : "paste"}", { ${key}: data, bubbles: true, cancelable: true }));
  })()`);
  await give("DragEvent", "document.body", "dataTransfer");
  await page.until("document.querySelectorAll('#pictures img').length == 1");
  await give("ClipboardEvent", "document.getElementById('text')", "clipboardData");
  await page.until("document.querySelectorAll('#pictures img').length == 2");
  await page.shot(name + "-pictures");
  await page.click("#pictures button");
  await page.until("document.querySelectorAll('#pictures img').length == 1");
  await page.settings({ max_tokens: "8", more: '{"ignore_eos": true}' });
  await page.say("What is this?");
  await page.ends();
  assert.equal(await page.count("#pictures img"), 0);
  assert.equal(await page.count(".user .pictures img"), 1);
  assert.equal(await page.count(".error"), 0, (await page.text(".error"))[0]);
  assert.match((await page.text(".note")).at(-1), /8 tokens/);
  await page.shot(name + "-seen");
  // An edited message keeps its picture, and a reload the conversation.
  await page.press("ArrowUp");
  await page.run("document.getElementById('text').focus()");
  await page.press("ArrowUp");
  await page.until("document.querySelectorAll('#pictures img').length == 1");
  await page.press("Escape");
  await page.until("document.querySelectorAll('#pictures img').length == 0");
  await page.call("Page.reload");
  await page.until("document.querySelectorAll('.user .pictures img').length == 1");
  assert.deepEqual(page.errors, []);
  server.stop();
}

const sizes = {
  phone: { width: 390, height: 844, isPhone: true },
  "phone-dark": { width: 390, height: 844, isPhone: true, isDark: true },
  desktop: { width: 1280, height: 800 },
  "desktop-dark": { width: 1280, height: 800, isDark: true },
};
for (const [name, size] of Object.entries(sizes)) {
  const server = await serve();
  const page = await Page.open(server.url, size);
  await page.shot(name + "-start");
  await streams(page, name);
  await showsMarkdown(page, name);
  await follows(page, name);
  await thinksAndCalls(page, name);
  // The failures that follow are intended.
  assert.deepEqual(page.errors, []);
  await failsAndEdits(page, name, server);
  await asksForTheKey(size, name);
  await seesPictures(size, name);
  console.log(`${name}: type, stream, stop, regenerate, Markdown, follow, a thought, a call, errors, edit and the key work`);
}
await Promise.all([new Promise((ended) => chromium.child.on("exit", ended)), chromium.call("Browser.close")]);
process.exit(0);
