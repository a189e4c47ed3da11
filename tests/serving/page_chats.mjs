// Checks of the page of `arenite serve`: branches, kept conversations, their files, text files, and the use of the context.
import assert from "node:assert";
import { writeFileSync } from "node:fs";

import { Page, pause, profile, serve } from "./chromium.mjs";

const base64 = (text) => Buffer.from(text).toString("base64");
const turns = (page) => page.text(".turn > .text");
const versions = (page) => page.run("[...document.querySelectorAll('.versions')].filter(({ hidden }) => !hidden).map((of) => of.innerText.replace(/[^0-9/]/g, ''))");

/** An edited message, and another answer, begin branches. All stay reachable, after a reload as well. */
export async function branches(page, name) {
  await page.click("#fresh");
  await page.says("One.", { system: "" });
  await page.asks("a");
  await page.says("Two, which is longer than the others by many tokens.");
  await page.asks("b");
  assert.deepEqual(await turns(page), ["a", "One.", "b", "Two, which is longer than the others by many tokens."]);
  assert.deepEqual(await versions(page), []);
  await page.says("Three.");
  await page.click(".user .actions button:nth-of-type(2)"); // edits the first message
  assert.equal(await page.run("document.getElementById('text').value"), "a");
  assert.match((await page.text("#status"))[0], /another branch/);
  await page.run("document.getElementById('text').value = ''");
  await page.asks("A");
  assert.deepEqual(await turns(page), ["A", "Three."]);
  assert.deepEqual(await versions(page), ["2/2"]);
  assert.deepEqual(page.asked.at(-1).messages, [{ role: "user", content: "A" }], "a branch has nothing of another");
  await page.says("Four.");
  await page.click(".last .actions .only-last");
  await page.until("document.querySelector('.last > .text')?.innerText == 'Four.'");
  await page.ends();
  assert.deepEqual(await versions(page), ["2/2", "2/2"]);
  await page.shot(name + "-branches");
  const [tokens] = await page.text("#used");
  await page.click(".user .versions button");
  assert.deepEqual(await turns(page), ["a", "One.", "b", "Two, which is longer than the others by many tokens."], "the earlier branch is shown to its end");
  assert.notEqual((await page.text("#used"))[0], tokens, "each branch has its own use of the context");
  await page.press("Enter"); // on the arrow, which has kept the focus
  assert.deepEqual(await turns(page), ["A", "Four."]);
  await page.click(".assistant .versions button");
  assert.deepEqual(await turns(page), ["A", "Three."]);
  await page.until("sessionStorage.getItem('arenite-shown')");
  await pause(200);
  await page.reload();
  await page.until("document.querySelectorAll('.turn').length == 2");
  assert.deepEqual(await turns(page), ["A", "Three."]);
  assert.deepEqual(await versions(page), ["2/2", "1/2"]);
  await page.asks("c");
  assert.deepEqual(page.asked.at(-1).messages.map(({ content }) => content), ["A", "Three.", "c"]);
  assert.deepEqual(page.asked.at(-1).messages.map((message) => Object.keys(message).sort().join()), Array(3).fill("content,role"));
}

const titles = (page) => page.text("#kept .open");
const row = (at, action) => `#kept li:nth-child(${at}) ${action}`;
const [RENAME, MARKDOWN, JSON_FILE, DELETE] = [1, 2, 3, 4].map((at) => `.actions button:nth-child(${at})`);

async function list(page) {
  await page.click("#list");
  await page.until("document.querySelector('#chats[open]')");
}

/** Waits until the list has these titles. */
const hasTitles = (page, wanted) => page.until(`JSON.stringify([...document.querySelectorAll("#kept .open")].map((of) => of.innerText)) == ${JSON.stringify(JSON.stringify(wanted))}`);

/** Deletes all conversations. */
async function clear(page) {
  await list(page);
  while (await page.count("#kept li")) {
    const count = await page.count("#kept li");
    await page.click(row(1, DELETE));
    await page.click(row(1, DELETE));
    await page.until(`document.querySelectorAll("#kept li").length == ${count - 1}`);
  }
  await page.press("Escape");
}

/** Conversations are listed, opened, renamed and deleted. */
export async function keepsChats(page, name) {
  await clear(page);
  await page.says("Red.");
  await page.asks("<b>first</b>");
  await page.click("#fresh");
  assert.equal(await page.count(".turn"), 0);
  await page.asks("second");
  await list(page);
  assert.deepEqual(await titles(page), ["second", "<b>first</b>"]);
  assert.deepEqual(await page.text("#kept [aria-current]"), ["second"]);
  await page.shot(name + "-chats");
  await page.click(row(2, ".open"));
  await page.until("!document.querySelector('#chats[open]')");
  assert.deepEqual(await turns(page), ["<b>first</b>", "Red."]);
  if (!name.startsWith("phone")) assert.equal(await page.run("document.activeElement.id"), "text");

  await list(page);
  await page.click(row(2, RENAME));
  await page.call("Input.insertText", { text: "not this" });
  await page.press("Escape");
  await hasTitles(page, ["second", "<b>first</b>"]);
  assert.equal(await page.count("#chats[open]"), 1, "Esc ends the renaming only");
  await page.click(row(2, RENAME));
  await page.call("Input.insertText", { text: "Colours & more" });
  await page.press("Enter");
  await hasTitles(page, ["Colours & more", "second"]);
  await page.click(row(2, DELETE));
  await pause(200);
  assert.deepEqual(await titles(page), ["Colours & more", "second"], "a single press deletes nothing");
  await page.click(row(2, DELETE));
  await hasTitles(page, ["Colours & more"]);
  await page.press("Escape");

  // An answer in progress is stopped where another conversation is opened, and its beginning is kept.
  await page.says("A long answer. ".repeat(40).trim());
  await page.slow(3000);
  await page.say("third");
  await page.until("document.querySelector('.last.assistant > .text')?.innerText.startsWith('A long answer.')");
  await page.click("#fresh");
  await page.slow(-1);
  await list(page);
  assert.equal((await titles(page))[0], "Colours & more");
  await page.click(row(1, ".open"));
  await page.until("document.querySelectorAll('.turn').length == 4");
  assert.match((await turns(page))[3], /^A long answer\./);
  assert.match((await page.text(".last .note"))[0], /stopped/);
  await page.reload();
  await page.until("document.querySelectorAll('.turn').length == 4");

  // A reload keeps what was generated until a short time before it.
  await page.slow(3000);
  await page.say("fourth");
  await page.until("document.querySelectorAll('.turn').length == 6");
  await pause(4000);
  await page.slow(-1);
  await page.reload();
  await page.until("document.querySelectorAll('.turn').length == 6");
  assert.deepEqual((await turns(page))[4], "fourth");
  assert.match((await turns(page))[5], /^A long answer\./);
  await page.says("Whole.");
  await page.click(".last .actions .only-last");
  await page.until("document.querySelector('.last > .text')?.innerText == 'Whole.'");
  await page.ends();
  assert.deepEqual(await versions(page), ["2/2"]);

  // A conversation that is deleted during an answer does not come back.
  await page.says("A long answer. ".repeat(40).trim());
  await page.slow(3000);
  await page.say("fifth");
  await page.until("document.querySelector('.last.assistant > .text')?.innerText.startsWith('A long answer.')");
  await list(page);
  await page.click(row(1, DELETE));
  await page.click(row(1, DELETE));
  await page.until("!document.querySelector('.turn')");
  await page.slow(-1);
  await pause(200);
  await page.press("Escape");
  await list(page);
  assert.deepEqual(await titles(page), []);
  await page.press("Escape");
}

/** A conversation that another tab has changed is kept twice. */
export async function keepsBoth(page, url, size) {
  await clear(page);
  await page.says("Yes.");
  await page.asks("start");
  await pause(200);
  const other = await Page.open(url, size);
  await list(other);
  await other.click(row(1, ".open"));
  await other.until("document.querySelectorAll('.turn').length == 2");
  await other.asks("there");
  assert.deepEqual(other.errors, []);
  await other.close();
  await page.asks("here");
  await list(page);
  await hasTitles(page, ["start (copy)", "start"]);
  await page.click(row(2, ".open"));
  await page.until("!document.querySelector('#chats[open]')");
  assert.deepEqual(await turns(page), ["start", "Yes.", "there", "Yes."]);
}

/** Conversations go to files and come back. Files that are wrong are refused. */
export async function movesChats(page) {
  await clear(page);
  await page.says("```js\nlet a;\n```");
  await page.asks("A <b>question</b>");
  await page.says("Other.");
  await page.click(".last .actions .only-last");
  await page.until("document.querySelector('.last > .text')?.innerText == 'Other.'");
  await page.ends();
  await list(page);
  const markdown = await page.download(row(1, MARKDOWN));
  assert.equal(markdown.name, "A-b-question-b.md");
  assert.equal(markdown.text, "# A <b>question</b>\n\n## User\n\nA <b>question</b>\n\n## Assistant\n\nOther.\n");
  const file = await page.download(row(1, JSON_FILE));
  const content = JSON.parse(file.text);
  const { note, tokens, ...answer } = content.messages[2];
  assert.equal(content.format, "arenite-conversation");
  assert.deepEqual([content.version, content.title, content.shown], [1, "A <b>question</b>", 2]);
  assert.deepEqual(answer, { role: "assistant", content: "Other.", parent: 0 });
  assert(tokens > 0 && note, file.text);
  await page.choose("#conversation", file.path);
  await page.until("!document.querySelector('#chats[open]')");
  assert.deepEqual(await turns(page), ["A <b>question</b>", "Other."]);
  assert.deepEqual(await versions(page), ["2/2"]);
  await list(page);
  assert.equal(await page.count("#kept li"), 2, "an imported conversation is another one");

  const wrong = [
    ["not json", /it is not JSON/],
    [{ ...content, format: "other" }, /`format`/],
    [{ ...content, version: 2 }, /version is not 1/],
    [{ ...content, messages: [{ parent: 0, role: "user", content: "x" }] }, /message 0 .*0 is not an earlier message/],
    [{ ...content, messages: [{ parent: null, role: "system", content: "x" }] }, /the role is none of/],
    [{ ...content, messages: [{ parent: null, role: "user", content: [{ type: "image_url", image_url: { url: "https://a.b/c.png" } }] }] }, /data URL/],
    [{ ...content, messages: [{ parent: null, role: "assistant", content: {} }] }, /`content` is not a string/],
    [{ ...content, shown: 9 }, /`shown` is not the index of a message/],
  ];
  for (const [value, message] of wrong) {
    writeFileSync(profile + "/wrong.json", typeof value == "string" ? value : JSON.stringify(value));
    await page.run("document.getElementById('failed').textContent = ''");
    await page.choose("#conversation", profile + "/wrong.json");
    await page.until("document.getElementById('failed').textContent");
    assert.match((await page.text("#failed"))[0], message);
    assert.match((await page.text("#failed"))[0], /^wrong\.json: /);
    assert.equal(await page.count("#kept li"), 2);
  }

  // An answer that never came is asked for again, and does not come again.
  const messages = [{ parent: null, role: "user", content: "start" }, { parent: 0, role: "assistant", content: null }];
  writeFileSync(profile + "/cut.json", JSON.stringify({ ...content, shown: 1, messages }));
  await page.choose("#conversation", profile + "/cut.json");
  await page.until("!document.querySelector('#chats[open]')");
  await page.run("window.fetch = () => Promise.reject(new TypeError('gone'))");
  await page.click(".last .actions .only-last");
  await page.until("document.querySelector('.error')?.innerText.includes('does not answer')");
  assert.deepEqual(await turns(page), ["start"]);
  await page.reload();
  await page.until("document.querySelectorAll('.turn').length == 1");
}

const RUINED = {
  "no database": "Object.defineProperty(window, 'indexedDB', { value: undefined });",
  "a database that does not answer": "IDBFactory.prototype.open = () => ({});",
  "a database that refuses": "IDBFactory.prototype.open = () => { throw new DOMException('not allowed', 'SecurityError'); };",
  "a full database": "IDBObjectStore.prototype.put = () => { throw new DOMException('no space', 'QuotaExceededError'); };",
};

/** A missing, full or damaged database does not stop the page. */
export async function survives(url, size) {
  for (const [what, script] of Object.entries(RUINED)) {
    const page = await Page.open(url, size, script);
    await page.click("#fresh");
    await page.says("Still here.");
    await page.asks(what);
    assert.deepEqual(await turns(page), [what, "Still here."]);
    await page.until("document.getElementById('status').textContent.includes('does not keep')");
    await page.click("#fresh");
    await list(page);
    await page.until(`document.querySelector("#kept .open")?.innerText == ${JSON.stringify(what)}`);
    await page.click(row(1, ".open"));
    await page.until("document.querySelectorAll('.turn').length == 2");
    assert.deepEqual(page.errors, [], what);
    await page.close();
  }

  // Records and a database that something else has written.
  const page = await Page.open(url, size);
  await clear(page);
  await page.says("Fine.");
  await page.asks("sound");
  await pause(200);
  const write = (record) => page.run(`new Promise((resolve, reject) => {
    const request = indexedDB.open("arenite");
    request.onsuccess = () => {
      const transaction = request.result.transaction("conversations", "readwrite");
      transaction.objectStore("conversations").put(${JSON.stringify(record)});
      transaction.oncomplete = () => (request.result.close(), resolve());
      transaction.onabort = reject;
    };
  })`);
  await write({ id: 7 });
  await write({ id: "x", title: "Half", changed: 1, messages: [{ parent: null, role: "user" }] });
  await list(page);
  assert.deepEqual(await titles(page), ["sound", "Half", "Damaged conversation"]);
  for (const [at, message] of [[2, /^Half: message 0 .*`content`/], [3, /^Damaged conversation: it has no list/]]) {
    await page.click(row(at, ".open"));
    await page.until(`document.getElementById("failed").textContent.startsWith(${JSON.stringify(at == 2 ? "Half" : "Damaged")})`);
    assert.match((await page.text("#failed"))[0], message);
  }
  await page.run("sessionStorage.setItem('arenite-shown', '\"x\"')");
  await page.reload();
  await page.until("document.querySelector('.error')?.innerText.includes('damaged')");
  await page.asks("goes on");
  assert.deepEqual(await turns(page), ["goes on", "Fine."]);
  await clear(page);

  await page.call("Page.navigate", { url: url + "/health" });
  await page.until("location.pathname == '/health'");
  await page.run(`new Promise((resolve) => {
    indexedDB.deleteDatabase("arenite").onsuccess = () => {
      const request = indexedDB.open("arenite", 1);
      request.onsuccess = () => (request.result.close(), resolve());
    };
  })`);
  await page.call("Page.navigate", { url });
  await page.isReady();
  await page.asks("no stores");
  assert.deepEqual(await turns(page), ["no stores", "Fine."]);
  await page.until("document.getElementById('status').textContent.includes('does not keep')");
  await page.run("new Promise((resolve) => (indexedDB.deleteDatabase('arenite').onsuccess = resolve))");
  await page.close();
}

/** Text files are dropped, removed, sent and edited. Others are refused. */
export async function readsFiles(page, name) {
  await page.click("#fresh");
  await page.says("Read.");
  const text = "first line\n```\n<script>alert(1)</script>\n";
  await page.drop(["notes.md", base64(text), "text/markdown"], ["b.txt", base64("b"), ""]);
  await page.until("document.querySelectorAll('#pictures .file').length == 2");
  assert.deepEqual((await page.text("#pictures .file")).map((of) => of.split("\u00d7")[0].trim()), ["notes.md", "b.txt"]);
  await page.click("#pictures .file:nth-child(2) button");
  assert.equal(await page.count("#pictures .file"), 1);
  const utf16 = Buffer.from("\ufeffGr\u00fc\u00dfe", "utf16le").toString("base64");
  await page.drop(["windows.txt", utf16, "text/plain"]);
  await page.until("document.querySelectorAll('#pictures .file').length == 2");
  const refused = [
    [["a.zip", base64("PK\x03\x04\0\0"), "application/zip"], /a\.zip is binary/],
    [["latin.txt", Buffer.from([0x47, 0x72, 0xfc]).toString("base64"), "text/plain"], /latin\.txt is binary/],
    [["big.txt", base64("x".repeat(2 ** 20 + 1)), "text/plain"], /big\.txt has 1\.0 MiB: .*at most 1\.0 MiB/],
    [["empty.txt", "", "text/plain"], /empty\.txt has no text/],
    [["a.png", base64("\x89PNG"), "image/png"], /does not see pictures/],
  ];
  for (const [file, message] of refused) {
    await page.drop(file);
    await page.until(`document.querySelector(".error")?.innerText.includes(${JSON.stringify(file[1] && file[0])})`);
    assert.match((await page.text(".error"))[0], message);
    assert.equal(await page.count("#pictures .file"), 2);
  }
  await page.asks("What is it?");
  const fenced = "````\nfirst line\n```\n<script>alert(1)</script>\n````";
  assert.deepEqual(page.asked.at(-1).messages.at(-1).content, [
    { type: "text", text: `notes.md:\n\n${fenced}\n\n` },
    { type: "text", text: "windows.txt:\n\n```\nGr\u00fc\u00dfe\n```\n\n" },
    { type: "text", text: "What is it?" },
  ]);
  assert.equal(await page.count("#pictures .file"), 0);
  assert.deepEqual(await page.text(".attached summary"), ["notes.md, 0.1 KiB", "windows.txt, 0.0 KiB"]);
  await page.click(".attached summary");
  assert.equal((await page.text(".attached pre"))[0], `notes.md:\n\n${fenced}\n\n`);
  await page.shot(name + "-file");
  await page.click(".user .actions button:nth-of-type(2)");
  assert.equal(await page.count("#pictures .file"), 2, "an edited message keeps its files");
  assert.equal(await page.run("document.getElementById('text').value"), "What is it?");
  await page.press("Escape");
  assert.equal(await page.count("#pictures .file"), 0);
}

/** The use of a small context is shown, up to its limit. */
export async function showsUse(size, name) {
  const server = await serve("-c", "100");
  const page = await Page.open(server.url, size);
  const meter = () => page.run("(({ value, max }) => [value, max])(document.getElementById('meter'))");
  assert.deepEqual(await page.text("#used"), ["0 of 100 tokens of context"]);
  await page.settings({ max_tokens: "10", more: '{"ignore_eos": true}' });
  await page.asks("hi");
  const [used, max] = await meter();
  assert(used > 10 && used < 40 && max == 100, `${used}`);
  assert.deepEqual(await page.text("#used"), [`${used} of 100 tokens of context`]);
  assert.equal(await page.run("document.getElementById('room').hidden"), true);
  await page.settings({ max_tokens: String(98 - used) });
  await page.click(".last .actions .only-last");
  await page.until("document.getElementById('used').textContent.includes('nearly full')");
  await page.ends();
  assert.equal(await page.run("document.getElementById('room').hidden"), false);
  await page.settings({ max_tokens: "" });
  await page.click(".last .actions .only-last");
  await page.until("/context: full$/.test(document.getElementById('used').textContent)");
  assert.match((await page.text(".last .note"))[0], /cut: the context is full/);
  await page.shot(name + "-full");
  const long = "word ".repeat(300).trim();
  await page.say(long);
  await page.until("document.querySelector('.error')");
  assert.match((await page.text(".error"))[0], /maximum context length is 100 tokens/);
  assert.equal(await page.run("document.getElementById('text').value"), long, "the question returns to the field");
  await page.click(".assistant .versions button");
  assert.match((await page.text("#used"))[0], /nearly full/);
  await page.click("#fresh");
  assert.deepEqual(await page.text("#used"), ["0 of 100 tokens of context"]);
  await page.close();
  server.stop();
}
