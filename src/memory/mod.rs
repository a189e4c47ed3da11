//! The caller's memory: aligned statics, the arena that cuts them, and the KV cache: its pages and
//! their layout. Knows nothing of models; the numbers come from [`crate::Plan`].

mod arena;
mod kv;
mod pages;

pub(crate) use arena::Arena;
#[cfg(any(target_has_atomic = "8", feature = "critical-section"))]
pub use arena::Workspace;
pub use arena::{ALIGN, Aligned, Line, static_bytes};
pub use kv::KvType;
pub(crate) use kv::{HeadLayout, TILE};
pub(crate) use pages::{MAX_PAGES, Pool};
