//! What the fuzz targets of the host share: documents in JSON that are nearly right, and texts of words.
#![allow(missing_docs)]

pub mod files;

use arbitrary::Arbitrary;
use fuzz::change::Real;
use fuzz::list::List;
use serde_json::{Map, Value};

/// A text: words of a list that a target gives, and any other.
#[derive(Arbitrary, Clone, Debug)]
pub struct Words<const MOST: usize>(List<Word, MOST>);

#[derive(Arbitrary, Clone, Debug)]
enum Word {
    Known(u8),
    KnownToo(u8),
    Letter(char),
}

impl<const MOST: usize> Words<MOST> {
    pub fn text(&self, known: &[&str]) -> String {
        let mut text = String::new();
        for word in self.0.iter() {
            match word {
                Word::Known(number) | Word::KnownToo(number) => text += known[usize::from(*number) % known.len()],
                Word::Letter(letter) => text.push(*letter),
            }
        }
        text
    }
}

/// Changes to a document. Places are chosen by number among its values.
#[derive(Arbitrary, Clone, Debug)]
pub struct Edits {
    edits: List<Edit, 6>,
    /// Bytes of the text to overwrite: where (of 65536 parts of it), and with what.
    bytes: List<(u16, u8), 2>,
}

#[derive(Arbitrary, Clone, Debug)]
enum Edit {
    Set { at: u16, atom: Atom },
    Copy { at: u16, from: u16 },
    Remove { at: u16 },
    Rename { at: u16, key: String },
    Wrap { at: u16, depth: u8, in_objects: bool },
}

#[derive(Arbitrary, Clone, Debug)]
pub enum Atom {
    Null,
    Bool(bool),
    Small(u8),
    Whole(i64),
    Large(u64),
    Real(Real),
    Text(String),
    List,
    Object,
}

impl Atom {
    pub fn value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Small(value) => (*value).into(),
            Self::Whole(value) => (*value).into(),
            Self::Large(value) => (*value).into(),
            Self::Real(value) => value.get().into(), // null, where JSON has no such number
            Self::Text(text) => text.as_str().into(),
            Self::List => Value::Array(vec![]),
            Self::Object => Value::Object(Map::new()),
        }
    }
}

impl Edits {
    pub fn is_none(&self) -> bool {
        self.edits.is_empty() && self.bytes.is_empty()
    }

    pub fn document(&self, mut document: Value) -> Value {
        self.edits.iter().for_each(|edit| edit.apply(&mut document));
        document
    }

    pub fn bytes(&self, document: Value) -> Vec<u8> {
        let mut bytes = self.document(document).to_string().into_bytes();
        for (at, byte) in self.bytes.iter() {
            let at = (usize::from(*at) * bytes.len()) >> 16;
            bytes[at] = *byte;
        }
        bytes
    }
}

impl Edit {
    fn apply(&self, document: &mut Value) {
        let places = places(document);
        let place = |at: u16| places[usize::from(at) % places.len()].as_str();
        let found = |document: &Value, at: u16| document.pointer(place(at)).cloned().unwrap_or_default();
        match self {
            Self::Set { at, atom } => set(document, place(*at), atom.value()),
            Self::Copy { at, from } => {
                let copy = found(document, *from);
                set(document, place(*at), copy);
            }
            Self::Remove { at } => _ = taken(document, place(*at)),
            Self::Rename { at, key } => {
                if let Some((Value::Object(object), value)) = taken(document, place(*at)) {
                    object.insert(key.clone(), value);
                }
            }
            Self::Wrap { at, depth, in_objects } => {
                let wrap = |inner: Value, _| match in_objects {
                    true => Value::Object(Map::from_iter([("a".to_string(), inner)])),
                    false => Value::Array(vec![inner]),
                };
                let wrapped = (0..*depth).fold(found(document, *at), wrap);
                set(document, place(*at), wrapped);
            }
        }
    }
}

fn set(document: &mut Value, place: &str, value: Value) {
    if let Some(old) = document.pointer_mut(place) {
        *old = value;
    }
}

/// Takes a value out; what it was part of, too.
fn taken<'d>(document: &'d mut Value, place: &str) -> Option<(&'d mut Value, Value)> {
    let (parent, name) = place.rsplit_once('/')?;
    let parent = document.pointer_mut(parent)?;
    let value = match parent {
        Value::Object(object) => object.remove(&name.replace("~1", "/").replace("~0", "~"))?,
        Value::Array(list) => list.remove(name.parse().ok()?),
        _ => return None,
    };
    Some((parent, value))
}

/// JSON pointers to all values, the whole first.
fn places(document: &Value) -> Vec<String> {
    let mut places = vec![String::new()];
    let mut at = 0;
    while let Some(place) = places.get(at).cloned() {
        match document.pointer(&place) {
            Some(Value::Object(object)) => {
                let keys = object.keys().map(|key| key.replace('~', "~0").replace('/', "~1"));
                places.extend(keys.map(|key| format!("{place}/{key}")));
            }
            Some(Value::Array(list)) => places.extend((0..list.len()).map(|n| format!("{place}/{n}"))),
            _ => {}
        }
        at += 1;
    }
    places
}
