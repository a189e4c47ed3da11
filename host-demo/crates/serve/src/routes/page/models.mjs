// The models of the server, and how much of the context a conversation uses.

import { allow } from "./attachments.mjs";
import { allowSpeech } from "./microphone.mjs";
import { metric, send } from "./requests.mjs";
import { showDefaults } from "./settings.mjs";
import { inUnits } from "./view.mjs";

const $ = (id) => document.getElementById(id);
const NEARLY_FULL = 0.8;

let model = null; // the chosen model, if there are several
let context = null; // its number of tokens
let used = { tokens: 0, isLeast: false };

/** The field of a request that names the chosen model. */
export const named = () => model && { model };

/** True if an answer with this number of tokens has filled the context. */
export const isFull = (tokens) => context != null && tokens >= context;

/** Shows the use of the context by the messages of a branch: the count of the last answer that has one, which is the least
    if other messages follow. */
export function showUse(messages) {
  const last = messages.findLastIndex(({ tokens }) => tokens != null);
  used = { tokens: messages[last]?.tokens ?? 0, isLeast: last < messages.length - 1 };
  drawUse();
}

function drawUse() {
  $("meter").hidden = $("used").hidden = context == null;
  if (context == null) return;
  const { tokens, isLeast } = used;
  const share = tokens / context;
  Object.assign($("meter"), { max: context, low: NEARLY_FULL * context, high: 0.95 * context, optimum: 0, value: tokens });
  const full = isFull(tokens) ? ": full" : share >= NEARLY_FULL ? ": nearly full" : "";
  $("used").textContent = `${isLeast && tokens ? "more than " : ""}${tokens} of ${context} tokens of context${full}`;
  $("room").hidden = share < NEARLY_FULL;
}

/** Shows the models, the context and the memory. `failed` shows an error. */
export async function describe(failed) {
  const { data } = await (await send("v1/models")).json();
  const can = (name) => data.filter(({ capabilities = [] }) => capabilities.includes(name));
  const answering = can("completion").length ? can("completion") : data;
  allowSpeech(can("transcription")[0]?.id);
  // Models that only hear or embed are not offered for answers.
  $("models").replaceChildren(...answering.map(({ id }) => new Option(id)));
  $("models").hidden = answering.length < 2;
  $("model").hidden = answering.length > 1;
  let choice = 0;
  const choose = async () => {
    const own = ++choice;
    const card = answering.find(({ id }) => id == $("models").value) ?? answering[0];
    model = data.length > 1 ? card.id : null;
    context = card.max_model_len;
    allow(card.capabilities?.includes("vision"), failed);
    $("model").textContent = document.title = card.id;
    drawUse();
    const path = model ? `props?model=${encodeURIComponent(model)}` : "props"; // loads the model if necessary
    const properties = await (await send(path)).json();
    if (own != choice) return; // another model was chosen meanwhile
    showDefaults(properties.default_generation_settings?.params ?? {});
    const metrics = await (await send("metrics")).text();
    $("memory").textContent = `${inUnits(metric(metrics, "workspace_bytes") + metric(metrics, "kv_bytes"))} of memory`;
  };
  $("models").onchange = () => choose().catch((error) => failed(error.message));
  await choose();
}
