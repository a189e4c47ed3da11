// Uses the page of `arenite serve` in headless Chromium, at the size of a phone and of a desktop, light and dark. A grammar
// makes the built-in model generate a given text: Markdown, a thought, a call.
//
// node page.mjs BINARY [FOLDER OF SCREENSHOTS]      needs Node.js 20 and Chromium
import assert from "node:assert";
import { readFileSync } from "node:fs";

import { Page, close, pause, serve } from "./chromium.mjs";
import { branches, keepsBoth, keepsChats, movesChats, readsFiles, showsUse, survives } from "./page_chats.mjs";
import { hears } from "./page_speech.mjs";

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
  assert.match((await page.text("#used"))[0], /^\d+ of 8000 tokens of context$/);
  assert.match((await page.text("#memory"))[0], /^[\d.]+ MiB of memory$/);
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
  const call = (city) => `<tool_call>\n${JSON.stringify({ name: "weather", arguments: { city } })}\n</tool_call>`;
  await page.says(call("M\u00fcnchen <b>") + "\n" + call("Pune"), { tools });
  await page.asks("How is the weather?");
  assert.deepEqual(await page.text(".last .call b"), ["weather", "weather"]);
  assert.match((await page.text(".last .call pre"))[0], /"city": "M\u00fcnchen <b>"/);
  await page.says("It is sunny.", { tools });
  // Calls can still be answered after a reload.
  await page.reload();
  await page.until("document.querySelectorAll('.last .call textarea').length == 2");
  for (const [at, text] of ["sunny, 20 degrees", "<i>rain</i>"].entries()) {
    await page.run(`document.querySelectorAll(".last .call textarea")[${at}].focus()`);
    await page.call("Input.insertText", { text });
  }
  await page.shot(name + "-call");
  await page.click(".last .calls button");
  await page.until("document.querySelector('.last > .text')?.innerText == 'It is sunny.'");
  await page.ends();
  const [first, second] = await page.text(".result");
  assert.match(first, /Result of weather\s+sunny, 20 degrees/);
  assert.match(second, /Result of weather\s+<i>rain<\/i>/);
  const [called, ...results] = page.asked.at(-1).messages.slice(-3);
  assert.deepEqual(results, called.tool_calls.map(({ id }, at) =>
    ({ role: "tool", tool_call_id: id, name: "weather", content: ["sunny, 20 degrees", "<i>rain</i>"][at] })));
  await page.settings({ tools: "", more: "" });
}

async function failsAndEdits(page, name, server) {
  const turns = await page.count(".turn");
  await page.settings({ more: '{"temperature": "hot"}' });
  await page.say("This fails.");
  await page.until("document.querySelector('.error')");
  assert.match((await page.text(".error"))[0], /temperature/);
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
  await page.reload();
  await page.until(`document.querySelectorAll(".turn .text").length == ${all.length}`);
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
  await page.until("document.getElementById('used').textContent");
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
  const file = readFileSync(`${dir}/img2.png`, "base64");
  await page.drop(["a.png", file, "image/png"]);
  await page.until("document.querySelectorAll('#pictures img').length == 1");
  await page.run(`(() => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob("${file}"), (c) => c.charCodeAt(0))], "b.png", { type: "image/png" }));
    document.getElementById("text").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  })()`);
  await page.until("document.querySelectorAll('#pictures img').length == 2");
  await page.shot(name + "-pictures");
  await page.click("#pictures button");
  await page.until("document.querySelectorAll('#pictures img').length == 1");
  await page.settings({ max_tokens: "8", seed: "1", more: '{"ignore_eos": true}' });
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
  await page.reload();
  await page.until("document.querySelectorAll('.user .pictures img').length == 1");
  assert.deepEqual(page.errors, []);
  await page.close();
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
  await branches(page, name);
  await keepsChats(page, name);
  await keepsBoth(page, server.url, size);
  await movesChats(page);
  await readsFiles(page, name);
  assert.deepEqual(page.errors, []);
  await survives(server.url, size);
  await showsUse(size, name);
  await hears(size, name);
  assert.equal(await page.run("document.getElementById('speak').hidden"), true, "no model of this server hears");
  // The failures that follow are intended.
  await failsAndEdits(page, name, server);
  await page.close();
  await asksForTheKey(size, name);
  await seesPictures(size, name);
  console.log(`${name}: answers, Markdown, thoughts, calls, branches, chats, files, speech, use of the context, errors and the key work`);
}
await close();
process.exit(0);
