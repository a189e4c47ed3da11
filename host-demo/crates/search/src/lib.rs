//! Search by meaning in the files of a folder.
//!
//! | file | |
//! |---|---|
//! | `read` | the text of a file: plain text, Markdown, source code, HTML |
//! | `passages` | texts cut into passages of limited length |
//! | `index` | passages and their vectors, in a file that is updated when the folder changes |
//! | `search` | the passages nearest to a question |
//!
//! ```
//! use arenite_run::{Loaded, RunOptions};
//! use arenite_search::{Index, Prefixes};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("pets.md"), "# Pets\n\nThe dog barks at night.\n")?;
//! let model = Loaded::open("../../../tests/fixtures/small/nomic_bert_moe/model.gguf", RunOptions::default())?;
//! let index = Index::default().updated(&model, folder.path(), Prefixes::default(), &mut |_| true)?;
//! let found = index.search(&model, "Who barks?", 5)?;
//! assert_eq!((found[0].passage.file.as_str(), found[0].passage.line), ("pets.md", 1));
//! # Ok::<(), arenite_run::Error>(())
//! ```
#![deny(unsafe_code)]

mod index;
mod passages;
mod read;
mod search;

pub use index::{Index, Prefixes, Step};
pub use passages::Passage;
pub use read::OtherEncoding;
pub use search::{Found, reranked};
