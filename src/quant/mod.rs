//! Block formats: how numbers lie in a tensor's bytes, and how one row of them is read back.
//!
//! Owns the geometry and the exact values; knows nothing of models and does no dot products, which
//! are in [`crate::kernel`].

mod decode;
mod encode;
mod format;
pub(crate) mod formats;
mod grids;
mod list;
mod types;

pub use decode::decode_row;
pub(crate) use decode::{le_f16, le_f32};
pub use encode::encode_row;
#[allow(unused_imports)] // `Bytes` is for instruction sets
pub(crate) use format::{Bytes, Format, Plain, Shape, SuperBlock, codes};
pub(crate) use list::formats as formats_list;
pub use types::TensorType;
