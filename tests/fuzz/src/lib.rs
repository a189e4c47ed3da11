//! Code shared by the fuzz targets: nearly correct files, and sessions in memory with arbitrary contents.
//!
//! A case is one of the tests' models of some family with a few changes, so that most files are not refused early.
//! For every file that loads, the logits must not depend on the contents of memory, on earlier prompts, or on saving
//! and restoring the session.
#![allow(missing_docs)]

#[path = "../../common/encoders.rs"]
pub mod encoders;
#[path = "../../common/families.rs"]
pub mod families;
#[path = "../../common/gguf.rs"]
pub mod gguf;
#[path = "../../common/others.rs"]
pub mod others;
#[path = "../../common/tiny.rs"]
pub mod tiny;
#[path = "../../common/unwritten.rs"]
pub mod unwritten;
#[path = "../../common/variants.rs"]
pub mod variants;

pub mod change;
pub mod list;
pub mod same;
