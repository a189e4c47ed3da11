//! What the fuzz targets share: files that are nearly right, and sessions whose memory held anything before.
//!
//! A case is a model of some family as the tests make them, and a few changes to it, so that most files get far. What
//! must hold of every file that loads: the same logits whatever the memory held, whatever ran before, and after a
//! session was saved and restored.
#![allow(missing_docs)]

#[path = "../../common/encoders.rs"]
pub mod encoders;
#[path = "../../common/families.rs"]
pub mod families;
#[path = "../../common/gguf.rs"]
pub mod gguf;
#[path = "../../common/tiny.rs"]
pub mod tiny;
#[path = "../../common/unwritten.rs"]
pub mod unwritten;
#[path = "../../common/variants.rs"]
pub mod variants;

pub mod change;
pub mod list;
pub mod same;
