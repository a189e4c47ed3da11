//! Block formats: how numbers lie in a tensor's bytes, and how one row of them is read back.
//!
//! Owns the geometry and the exact values; knows nothing of models and does no dot products, which
//! are in [`crate::kernel`].

mod decode;
mod encode;
mod types;

pub use decode::decode_row;
pub(crate) use decode::{Q6K, le_f16, le_f32};
pub use encode::encode_row;
pub use types::TensorType;
