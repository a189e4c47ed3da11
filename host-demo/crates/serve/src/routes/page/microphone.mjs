// Speech for the field: recorded by the browser, transcribed by a model of the server.

import { send } from "./requests.mjs";

const $ = (id) => document.getElementById(id);
const RATE = 16000; // samples per second of all models of speech
const LONGEST = 300; // seconds

let recorder = null;
let speechModel = null; // the model that transcribes
let isDiscarded = false; // the recording in progress

/** Shows the microphone if there is a model that transcribes speech. */
export function allowSpeech(model) {
  speechModel = model;
  $("speak").hidden = !model;
}

export const isRecording = () => recorder != null;

/** Ends a recording. Its text is put into the field, unless it is discarded. */
export function endRecording(discards) {
  isDiscarded = discards;
  if (recorder.state != "inactive") recorder.stop();
}

async function record() {
  if (!navigator.mediaDevices) throw new Error("Browsers have a microphone only on localhost and with HTTPS.");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch(() => {
    throw new Error("The browser gives no microphone: allow it for this page, or connect one.");
  });
  const chunks = [];
  let end = null;
  isDiscarded = false;
  try {
    recorder = new MediaRecorder(stream);
    const isDone = new Promise((resolve) => (recorder.onstop = resolve));
    recorder.ondataavailable = ({ data }) => chunks.push(data);
    recorder.start();
    end = setTimeout(() => endRecording(false), LONGEST * 1000);
    show(true, "Recording. Press the microphone again to end, or Esc to discard.");
    await isDone;
  } finally {
    clearTimeout(end);
    stream.getTracks().forEach((track) => track.stop());
    recorder = null;
  }
  show(false, isDiscarded ? "" : "Reading the recording\u2026");
  if (!isDiscarded) await transcribe(new Blob(chunks));
}

async function transcribe(recording) {
  const samples = await decode(recording);
  const form = new FormData();
  form.append("model", speechModel);
  form.append("file", new Blob([wav(samples)], { type: "audio/wav" }), "speech.wav");
  const { text } = await (await send("v1/audio/transcriptions", { method: "POST", body: form })).json();
  insert(text.trim());
  $("status").textContent = text.trim() ? "" : "No speech was recognized.";
}

/** Returns the samples of a recording, as one channel. */
async function decode(recording) {
  const bytes = await recording.arrayBuffer();
  // Decoding also resamples to the rate of the context.
  const sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(bytes).catch(() => {
    throw new Error("The recording is empty or cannot be read.");
  });
  const channels = Array.from({ length: sound.numberOfChannels }, (_, at) => sound.getChannelData(at));
  return channels[0].map((_, at) => channels.reduce((sum, channel) => sum + channel[at], 0) / channels.length);
}

/** Returns samples as a WAV file of 16 bits. */
export function wav(samples) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, text) => Array.from(text, (c, index) => view.setUint8(at + index, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // bytes of the format: PCM, one channel, rate, bytes per second and sample, bits
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, at) => view.setInt16(44 + 2 * at, Math.round(Math.max(-1, Math.min(1, sample)) * 32767), true));
  return view.buffer;
}

/** Puts a text into the field at the cursor. */
function insert(text) {
  if (!text) return;
  const field = $("text");
  const before = field.value.slice(0, field.selectionStart);
  field.setRangeText((/\S$/.test(before) ? " " : "") + text, field.selectionStart, field.selectionEnd, "end");
  field.dispatchEvent(new Event("input"));
  field.focus();
}

function show(isOn, status) {
  $("speak").setAttribute("aria-pressed", isOn);
  $("status").textContent = status;
}

let isBusy = false; // from the question for the microphone to the text
$("speak").onclick = async () => {
  if (recorder) return endRecording(false);
  if (isBusy) return;
  isBusy = true;
  await record().catch((error) => show(false, error.message));
  isBusy = false;
};
