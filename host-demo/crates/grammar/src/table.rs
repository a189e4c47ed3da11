//! A compiled grammar.

use std::ops::Deref;

/// The table of a grammar, which [`arenite::grammar::Grammar`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    bytes: Vec<u8>,
    differences: Vec<String>,
}

impl Table {
    pub(crate) fn new(bytes: Vec<u8>, differences: Vec<String>) -> Self {
        Self { bytes, differences }
    }

    /// Where the grammar allows other values than its schemas, a sentence each: the place in the schema, and what is not
    /// enforced or not generated. Differences that all grammars of schemas have are not listed: a value has one spelling,
    /// properties come in the order of the schema, and only those that the schema names are generated.
    pub fn differences(&self) -> &[String] {
        &self.differences
    }
}

impl Deref for Table {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
