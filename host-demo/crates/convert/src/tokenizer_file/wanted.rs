//! Facts about a model that are known before its vocabulary is read.

use std::path::Path;

use serde_json::Value;

use super::VocabularyRules;

/// The vocabulary to find.
pub struct Wanted<'w> {
    /// A folder, or the file itself.
    pub directory: &'w Path,
    pub architecture: &'w str,
    pub config: &'w Value,
    /// Rows of the embedding.
    pub rows: usize,
    pub rules: &'w VocabularyRules,
}
