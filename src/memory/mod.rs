//! Memory provided by the caller: aligned statics, the arena that splits them, and the layout and pages of the KV
//! cache. This module does not depend on models: [`crate::Plan`] computes the sizes.

mod arena;
pub(crate) mod kv;
mod pages;
#[cfg(feature = "storage")]
mod storage;

pub(crate) use arena::Arena;
#[cfg(any(target_has_atomic = "8", feature = "critical-section"))]
pub use arena::Workspace;
pub use arena::{ALIGN, Aligned, Line, static_bytes};
pub use kv::KvType;
pub(crate) use kv::{HeadLayout, TILE};
pub(crate) use pages::{MAX_PAGES, Pool};
#[cfg(feature = "storage")]
pub use storage::Storage;
