// The page has two workers: one for stories and files, one for the translator.
"use strict";

const $ = (id) => document.getElementById(id);

class Model {
  #worker = new Worker("worker.js");
  #waiting = new Map();
  #next = 0;
  heard = () => {};

  constructor() {
    this.#worker.onmessage = ({ data }) => {
      if ("text" in data) return this.heard(data.text);
      const [done, failed] = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      "problem" in data ? failed(new Error(data.problem)) : done(data.result);
    };
    this.#worker.onerror = (event) => show(new Error(event.message));
  }

  ask(action, argument) {
    const id = this.#next++;
    this.#worker.postMessage({ id, action, argument });
    return new Promise((done, failed) => this.#waiting.set(id, [done, failed]));
  }

  stop() {
    this.#worker.postMessage({ action: "stop" });
  }
}

const show = (problem) => ($("problem").textContent = problem ? problem.message : "");
const size = (bytes) => (bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`);
const talker = new Model();
// Threads share memory only in an isolated page; ?threads=N sets their number for comparisons.
const possible = (threads) => (crossOriginIsolated ? threads : 1);
const threads = possible(+new URLSearchParams(location.search).get("threads") || Math.min(navigator.hardwareConcurrency, 8));
let translator;

async function open(what) {
  show();
  $("tell").disabled = true;
  const plan = await talker.ask("open", { ...what, options: { context: 512, threads, ...what.options } });
  const sizes = { model: plan.model, workspace: plan.workspace, "KV cache": plan.kv, tokenizer: plan.tokenizer };
  const rows = Object.entries(sizes).map(([name, bytes]) => [name, size(bytes)]);
  rows.push(["threads", crossOriginIsolated ? plan.threads : "1 (the page is not isolated)"]);
  $("plan").replaceChildren(
    ...rows.map((texts) => {
      const row = document.createElement("tr");
      row.append(...texts.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
      return row;
    }),
  );
  $("tell").disabled = false;
  return plan;
}

async function tell(options) {
  show();
  const prompt = $("prompt").value;
  $("story").textContent = prompt;
  talker.heard = (text) => $("story").append(text);
  [$("tell").disabled, $("stop").disabled] = [true, false];
  try {
    const seed = Math.floor(Math.random() * 2 ** 32);
    const speed = await talker.ask("tell", { prompt, temperature: +$("temperature").value, seed, most: 100000, ...options });
    $("speed").textContent = `prompt ${speed.prompt} tokens, ${speed.prefill.toFixed(0)}/s; answer ${speed.tokens} tokens, ${speed.decode.toFixed(1)}/s (${speed.isa} kernels)`;
    return speed;
  } finally {
    [$("tell").disabled, $("stop").disabled] = [false, true];
  }
}

async function translate() {
  show();
  if (!translator) {
    translator = new Model();
    await translator.ask("open", { url: "translator.gguf", options: { context: 128, threads, beams: 4 } });
  }
  const said = await translator.ask("translate", { text: $("sentence").value });
  $("translation").textContent = said.text.replace(/ (?=[।.,!?;:-])/g, ""); // The vocabulary separates words and punctuation.
  return said;
}

const safely = (action) => () => action().catch(show);
$("tell").onclick = safely(tell);
$("stop").onclick = () => talker.stop();
$("translate").onclick = safely(translate);
$("file").onchange = safely(async () => open({ file: await $("file").files[0].arrayBuffer() }));

// With ?test, sends a story, a translation and a file to the server.
async function test() {
  const report = { plan: await open({ url: "stories.gguf" }) };
  report.first = await tell({ temperature: 0, most: 64 });
  report.story = $("story").textContent;
  await translate();
  report.translation = $("translation").textContent;
  const others = [{ isa: "scalar" }, ...[1, 3, 4].map((asked) => ({ threads: possible(asked) }))];
  report.others = [];
  for (const options of others) {
    await open({ url: "stories.gguf", options });
    let told;
    do told = await tell({ temperature: 0, most: 64 });
    while (told.threads > 1 && !told.joined); // On a busy machine a helper may be late for a whole story.
    report.others.push({ ...told, story: $("story").textContent });
  }
  const file = await (await fetch("stories.gguf")).arrayBuffer();
  report.file = await open({ file: file.slice(0) });
  report.broken = await open({ file: file.slice(0, 1000) }).then(() => "", (problem) => problem.message);
  return report;
}

if (location.search === "?test") {
  const report = test().catch((problem) => ({ problem: problem.message }));
  report.then((found) => fetch("report", { method: "POST", body: JSON.stringify(found) }));
} else {
  open({ url: "stories.gguf" }).catch(show);
}
