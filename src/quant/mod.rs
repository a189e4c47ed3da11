//! Block formats: the layout of quantized weights in a tensor's bytes, and conversion of rows to and from f32.
//!
//! This module defines the layout and the exact values of blocks. Dot products are in [`crate::kernel`].

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
#[allow(unused_imports)] // `Bytes` is used only by instruction sets
pub(crate) use format::{Bytes, Format, Named, Plain, Shape, bytes_at, codes};
pub(crate) use list::formats as formats_list;
pub use types::TensorType;
