//! The workspace requirements of a file's weight types.

use super::layout::max;
use crate::kernel::{Form, panel_bytes};
use crate::{Error, Gguf, Name};

/// Workspace requirements of the file's weight types.
pub(crate) struct Formats {
    pub quantized: bool,
    pub panel: usize,
    /// Number of tensors with more than one dimension.
    #[cfg(feature = "lora")]
    pub matrices: usize,
    /// Bytes of the longest row in a storage.
    #[cfg(feature = "storage")]
    pub stored_row: usize,
}

impl Formats {
    /// Finds out what formats the file's matrices have. A tensor that is wider than `widest`, the largest input of a
    /// linear layer, is no matrix.
    pub const fn of(gguf: &Gguf<'_>, widest: usize) -> Result<Self, Error> {
        let mut formats = Self {
            quantized: false,
            panel: 0,
            #[cfg(feature = "lora")]
            matrices: 0,
            #[cfg(feature = "storage")]
            stored_row: 0,
        };
        let mut tensors = gguf.tensors();
        while let Some(tensor) = tensors.next_tensor() {
            if tensor.kind.feature().is_some() && !tensor.kind.is_built() {
                return Err(Error::TensorType { tensor: Name::new(tensor.name.as_bytes()), kind: tensor.kind });
            }
            #[cfg(feature = "lora")]
            if tensor.dim_count > 1 {
                formats.matrices += 1;
            }
            #[cfg(feature = "storage")]
            if tensor.in_storage() {
                formats.stored_row = max(
                    formats.stored_row,
                    match tensor.kind.row_bytes(tensor.dims[0] as usize) {
                        Some(bytes) => bytes,
                        None => return Err(Error::PlanTooLarge),
                    },
                );
            }
            formats.quantized |= !matches!(Form::of(tensor.kind), None | Some(Form::F32));
            if tensor.dims[0] <= widest as u64 {
                formats.panel = max(formats.panel, panel_bytes(tensor.kind, tensor.dims[0] as usize));
            }
        }
        Ok(formats)
    }
}
