//! The items that `/v1/responses` returned. A later request of the same client may name these items instead of
//! repeating them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use serde_json::Value;

/// Limit in bytes for all items that are kept.
pub const ITEMS: usize = 8 << 20;
/// Maximum number of bytes for the items of one client. This share is smaller than the limit for all items, so that
/// what a client keeps does not depend on other clients, unless there are so many of them that one is forgotten.
const SHARE: usize = 512 << 10;
/// Limit in bytes for the items that one request names.
pub const NAMED: usize = 4 << 20;
/// Upper bound in bytes for the memory that an item takes besides its texts: for its entry here, or for its JSON values
/// after it is read.
const ITEM: usize = 2 << 10;

/// The items of all clients. If a client has too many items, its oldest items are removed. If all clients together have
/// too many items, all items of one client are removed: of the client whose newest item is the oldest.
#[derive(Default)]
pub struct KeptItems(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    clients: HashMap<Option<u64>, OfClient>,
    bytes: usize,
    /// Counts the items that were kept.
    clock: u64,
}

#[derive(Default)]
struct OfClient {
    /// The oldest item is the first.
    items: VecDeque<Item>,
    bytes: usize,
    /// Time of the last item by [`Kept::clock`].
    last: u64,
}

struct Item {
    id: String,
    json: String,
}

impl Item {
    /// Makes the entry for an item, without its log-probabilities, because no prompt contains them.
    fn of(item: &Value) -> Option<Self> {
        let mut item = item.clone();
        for part in item["content"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            part.remove("logprobs");
        }
        let id = item["id"].as_str()?.to_string();
        Some(Self { id, json: item.to_string() })
    }

    fn bytes(&self) -> usize {
        self.json.len() + ITEM
    }
}

impl KeptItems {
    /// Keeps the items of an answer, so that later requests can refer to them. If `client` is `None`, every client may
    /// refer to these items.
    pub fn keep(&self, client: Option<u64>, items: &[Value]) {
        for item in items.iter().filter_map(Item::of).filter(|item| item.bytes() <= share(client)) {
            self.kept().add(client, item);
        }
    }

    /// Replaces the references in a request's `input` by the items that they name. A reference to an unknown item is
    /// not replaced, so that the client gets an error when the request is read. The same applies if a request names an
    /// item so many times that there is no memory for the copies.
    pub fn resolve(&self, client: Option<u64>, body: &mut Value) {
        let Some(input) = body.get_mut("input").and_then(Value::as_array_mut) else { return };
        let mut references = input.iter_mut().filter(|item| item["type"] == "item_reference").peekable();
        if references.peek().is_none() {
            return;
        }
        let kept = self.kept();
        let Some(own) = kept.clients.get(&client) else { return };
        let known: HashMap<&str, &Item> = own.items.iter().map(|item| (item.id.as_str(), item)).collect();
        let mut room = NAMED;
        for reference in references {
            let item = reference["id"].as_str().and_then(|id| known.get(id));
            let Some(item) = item.filter(|item| item.bytes() <= room) else { continue };
            room -= item.bytes();
            if let Ok(item) = serde_json::from_str(&item.json) {
                *reference = item;
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Returns the maximum number of bytes for the items of a client. Clients that share their items share all of the
/// memory.
fn share(client: Option<u64>) -> usize {
    if client.is_some() { SHARE } else { ITEMS }
}

impl Kept {
    fn add(&mut self, client: Option<u64>, item: Item) {
        self.clock += 1;
        let own = self.clients.entry(client).or_default();
        own.last = self.clock;
        self.bytes += item.bytes();
        own.bytes += item.bytes();
        own.items.push_back(item);
        while own.bytes > share(client) {
            let freed = own.items.pop_front().map_or(0, |item| item.bytes());
            own.bytes -= freed;
            self.bytes -= freed;
        }
        while self.bytes > ITEMS {
            let Some(oldest) = self.clients.iter().min_by_key(|(_, own)| own.last).map(|(client, _)| *client) else {
                return;
            };
            self.bytes -= self.clients.remove(&oldest).map_or(0, |own| own.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(id: &str, len: usize) -> Value {
        json!({ "id": id, "type": "message", "role": "assistant", "content": [{ "text": "x".repeat(len), "logprobs": [1] }] })
    }

    /// Looks up these ids as a request of the client does. For each id, returns the length of the item's text, or
    /// `None` if the client finds no item.
    fn found(items: &KeptItems, client: Option<u64>, ids: &[&str]) -> Vec<Option<usize>> {
        let references: Vec<Value> = ids.iter().map(|id| json!({ "type": "item_reference", "id": id })).collect();
        let mut body = json!({ "input": references });
        items.resolve(client, &mut body);
        let text = |item: &Value| item.pointer("/content/0/text").map(|text| text.as_str().unwrap().len());
        body["input"].as_array().unwrap().iter().map(text).collect()
    }

    #[test]
    fn items_belong_to_their_clients() {
        let items = KeptItems::default();
        items.keep(Some(1), &[message("msg_a", 1), message("msg_b", 2)]);
        assert_eq!(found(&items, Some(1), &["msg_b", "msg_c", "msg_a"]), [Some(2), None, Some(1)]);
        assert_eq!(found(&items, Some(2), &["msg_a"]), [None]);
        assert_eq!(found(&items, None, &["msg_a"]), [None]);
        let mut body = json!({ "input": [{ "type": "item_reference", "id": "msg_a" }] });
        items.resolve(Some(1), &mut body);
        assert_eq!(body["input"][0]["content"], json!([{ "text": "x" }]));
    }

    #[test]
    fn items_are_bounded() {
        let items = KeptItems::default();
        let len = SHARE / 2 - ITEM - 200;
        items.keep(Some(1), &[message("old", len), message("new", len)]);
        items.keep(Some(2), &[message("other", len)]);
        // A client with too many items loses its own oldest item, regardless of the items of other clients.
        items.keep(Some(1), &[message("last", len)]);
        assert_eq!(found(&items, Some(1), &["old", "new", "last"]), [None, Some(len), Some(len)]);
        assert_eq!(found(&items, Some(2), &["other"]), [Some(len)]);
        for at in 0..10_000 {
            items.keep(Some(3), &[message(&at.to_string(), 1)]);
        }
        assert!(items.kept().bytes <= 3 * SHARE);
        assert_eq!(found(&items, Some(3), &["0", "9999"]), [None, Some(1)]);
        items.keep(Some(4), &[message("large", SHARE)]);
        assert_eq!(found(&items, Some(4), &["large"]), [None]);
        // A request cannot multiply an item.
        assert_eq!(found(&items, Some(2), &["other"; 99]).iter().flatten().count(), NAMED * 2 / SHARE);
        // If there are too many clients, the client that has stored no item for the longest time is forgotten.
        (5..40).for_each(|client| items.keep(Some(client), &[message("a", len)]));
        assert!(items.kept().bytes <= ITEMS);
        assert_eq!(
            (found(&items, Some(2), &["other"]), found(&items, Some(39), &["a"])),
            (vec![None], vec![Some(len)])
        );
        // Clients that share their items have room for more.
        items.keep(None, &[message("large", SHARE)]);
        assert_eq!(found(&items, None, &["large"]), [Some(SHARE)]);
    }
}
