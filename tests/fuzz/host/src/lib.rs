//! Code shared by the host's fuzz targets: nearly correct JSON documents, and texts that consist of known words.
#![allow(missing_docs)]

pub mod files;

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use fuzz::change::Real;
use fuzz::list::List;
use serde_json::{Map, Value};

/// A text that consists of words from the fuzz target's list and of arbitrary characters.
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

/// Changes to a document. The values to change are chosen by number.
#[derive(Arbitrary, Clone, Debug)]
pub struct Edits {
    edits: List<Edit, 6>,
    /// Bytes of the text to overwrite: each has a position, in 65536ths of the text, and a new value.
    bytes: List<(u16, u8), 2>,
}

#[derive(Arbitrary, Clone, Debug)]
enum Edit {
    Set { at: u16, atom: Atom },
    Copy { at: u16, from: u16 },
    Remove { at: u16, child: u8 },
    Rename { at: u16, child: u8, key: String },
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
            Self::Real(value) => value.get().into(), // NaN and infinity become null
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
        match self {
            Self::Set { at, atom } => *place(document, *at) = atom.value(),
            Self::Copy { at, from } => {
                let copy = place(document, *from).clone();
                *place(document, *at) = copy;
            }
            Self::Remove { at, child } => _ = taken(place(document, *at), *child),
            Self::Rename { at, child, key } => {
                let parent = place(document, *at);
                if let (Some(value), Value::Object(object)) = (taken(parent, *child), parent) {
                    object.insert(key.clone(), value);
                }
            }
            Self::Wrap { at, depth, in_objects } => {
                let place = place(document, *at);
                let wrap = |inner: Value, _| match in_objects {
                    true => Value::Object(Map::from_iter([("a".to_string(), inner)])),
                    false => Value::Array(vec![inner]),
                };
                *place = (0..*depth).fold(place.take(), wrap);
            }
        }
    }
}

/// Removes one of the values in `parent`.
fn taken(parent: &mut Value, child: u8) -> Option<Value> {
    match parent {
        Value::Object(object) => {
            let key = object.keys().nth(usize::from(child) % object.len().max(1))?.clone();
            object.remove(&key)
        }
        Value::Array(list) if !list.is_empty() => Some(list.remove(usize::from(child) % list.len())),
        _ => None,
    }
}

/// Finds a value by its number. Outer values come first and are chosen more often.
fn place(document: &mut Value, at: u16) -> &mut Value {
    let (mut left, mut count) = (vec![&*document], 0);
    while let Some(value) = left.pop() {
        count += 1;
        match value {
            Value::Object(object) => left.extend(object.values()),
            Value::Array(list) => left.extend(list),
            _ => {}
        }
    }
    let number = if at.is_multiple_of(2) { at / 2 % 32 } else { at / 2 };
    let mut left = VecDeque::from([document]);
    for _ in 0..usize::from(number) % count {
        match left.pop_front() {
            Some(Value::Object(object)) => left.extend(object.values_mut()),
            Some(Value::Array(list)) => left.extend(list),
            _ => {}
        }
    }
    left.pop_front().expect("there are so many")
}
