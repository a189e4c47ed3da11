//! The caller's memory: aligned statics, the arena that is cut from them, and the layout of the KV
//! cache. Knows nothing of models; the numbers come from [`crate::Plan`].

mod arena;
mod kv;

pub(crate) use arena::Arena;
#[cfg(target_has_atomic = "8")]
pub use arena::Workspace;
pub use arena::{ALIGN, Aligned, Line, static_bytes};
pub use kv::KvType;
pub(crate) use kv::{HeadLayout, TILE};
