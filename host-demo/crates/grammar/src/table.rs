//! A compiled grammar.

use std::collections::HashSet;
use std::ops::Deref;

/// Maximum number of differences that a table lists.
const MOST_DIFFERENCES: usize = 16;

/// The table of a grammar, which [`arenite::grammar::Grammar`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    bytes: Vec<u8>,
    differences: Vec<String>,
}

impl Table {
    pub(crate) fn new(bytes: Vec<u8>, mut differences: Vec<String>) -> Self {
        let mut known = HashSet::new();
        differences.retain(|difference| known.insert(difference.clone()));
        let more = differences.len().saturating_sub(MOST_DIFFERENCES);
        differences.truncate(MOST_DIFFERENCES);
        differences.extend((more > 0).then(|| format!("and {more} more")));
        Self { bytes, differences }
    }

    /// The differences between the values that the grammar allows and the values that its schemas allow. Each
    /// difference is a sentence with the place in the schema, and with the keyword that is not enforced or the type
    /// that is generated. Differences that every grammar of a schema has are not listed: a value has one spelling,
    /// properties come in the order of the schema, and only properties that the schema names are generated.
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
