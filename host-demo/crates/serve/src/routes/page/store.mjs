// Conversations, kept by the browser in IndexedDB. What the database does not take stays in memory until the page is left,
// and the user is told so: a missing, full or damaged database never stops the page.

import { checked, newId, titleOf } from "./conversation.mjs";

const STORE = "conversations";
const LONGEST_WAIT = 4000; // milliseconds until a database that does not answer counts as missing

const inMemory = new Map(); // conversations that the database did not take
const removed = new Set(); // ids that are not kept again, although an answer may still be on its way
const known = new Map(); // the time of the last change of each conversation that this page has read or written
let tell = () => {};
let opening = null;

/** Sets the function that tells the user that conversations are not kept. */
export const onFailure = (shows) => (tell = shows);

const result = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

async function open() {
  const request = indexedDB.open("arenite", 1);
  request.onupgradeneeded = () => {
    // The index has the titles, so the list of conversations is read without their messages.
    request.result.createObjectStore(STORE, { keyPath: "id" }).createIndex("list", ["changed", "title"]);
  };
  let isLate = false;
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("no answer")), LONGEST_WAIT));
  const opened = result(request).then((database) => (isLate && database.close(), database));
  const database = await Promise.race([opened, late]).catch((error) => {
    isLate = true;
    opening = null; // the next use tries again
    throw error;
  });
  database.onclose = () => (opening = null);
  database.onversionchange = () => {
    database.close();
    opening = null;
  };
  return database;
}

/** Runs `work` with the object store. Throws if the database is missing or damaged. */
async function withStore(mode, work) {
  opening ??= open();
  const transaction = (await opening).transaction(STORE, mode);
  const isDone = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error ?? new Error("aborted"));
  });
  const found = await Promise.all([work(transaction.objectStore(STORE)), isDone]);
  return found[0];
}

/** Keeps a conversation. If another tab has changed it meanwhile, it is kept as a copy with a new id. */
export async function put(talk) {
  if (removed.has(talk.id)) return;
  const record = { ...talk, title: titleOf(talk) };
  const before = known.get(talk.id);
  try {
    await withStore("readwrite", async (store) => {
      const stored = await result(store.get(talk.id));
      if (stored && stored.changed != known.get(talk.id)) {
        talk.id = record.id = newId();
        talk.title = record.title = titleOf(talk) + " (copy)";
      }
      talk.changed = record.changed = Math.max(Date.now(), (known.get(talk.id) ?? 0) + 1);
      known.set(talk.id, talk.changed);
      await result(store.put(record));
    });
    inMemory.delete(talk.id);
  } catch (error) {
    known.set(talk.id, before); // the database still has the conversation as it was
    inMemory.set(talk.id, record);
    tell(error);
  }
}

function readTitles(store, titled) {
  const request = store.index("list").openKeyCursor();
  return new Promise((resolve, reject) => {
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const cursor = request.result;
      if (!cursor) return resolve();
      const [[changed, title], id] = [cursor.key, cursor.primaryKey];
      if (typeof title == "string") titled.set(id, { id, changed, title });
      cursor.continue();
    };
  });
}

/** Returns the id, title and time of each conversation, the last change first. Damaged ones have no title. */
export async function list() {
  let found = [];
  try {
    found = await withStore("readonly", async (store) => {
      const titled = new Map();
      const [ids] = await Promise.all([result(store.getAllKeys()), readTitles(store, titled)]);
      return ids.map((id) => titled.get(id) ?? { id, changed: 0, title: null });
    });
  } catch (error) {
    tell(error);
  }
  const all = [...inMemory.values(), ...found.filter(({ id }) => !inMemory.has(id))];
  return all.sort((a, b) => b.changed - a.changed);
}

/** Returns a conversation, or null if there is none with this id. Throws an error if it is damaged. */
export async function get(id) {
  let stored = inMemory.get(id);
  try {
    stored ??= await withStore("readonly", (store) => result(store.get(id)));
  } catch (error) {
    tell(error);
  }
  if (!stored) return null;
  known.set(id, stored.changed);
  return { id, changed: stored.changed, ...checked(stored) };
}

export async function remove(id) {
  removed.add(id);
  inMemory.delete(id);
  try {
    await withStore("readwrite", (store) => result(store.delete(id)));
  } catch (error) {
    removed.delete(id); // it is still there, and listed
    tell(error);
  }
}
