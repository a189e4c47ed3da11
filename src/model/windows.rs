//! Reads the layers with a sliding window.

use super::Spec;
use super::keys::Keys;
use super::layers::{HeadSpec, Pattern};
use super::rope::Rope;
use crate::{Error, tri};

impl<'a> Keys<'_, 'a> {
    /// Sets the window of the layers in the file's pattern, or in `otherwise` if it has none. Without a window in the
    /// file, no layer has one. The file may have separate rotary positions for these layers.
    pub const fn windowed(&mut self, spec: Spec<'a>, otherwise: Pattern<'a>) -> Result<Spec<'a>, Error> {
        let heads = spec.global;
        let local_layers = match (heads.window, tri!(self.local_layers(spec.layers))) {
            (None, _) => Pattern::Never,
            (Some(_), Some(pattern)) => pattern,
            (Some(_), None) => otherwise,
        };
        let rope = match heads.rope {
            Some(rope) => Some(Rope {
                base: tri!(self.or("rope.freq_base_swa", rope.base)),
                dim: match tri!(self.optional_size("rope.dimension_count_swa", heads.dim)) {
                    Some(dim) if dim % 2 == 0 => dim,
                    Some(_) => {
                        return Err(self.wrong("rope.dimension_count_swa", "is odd: rotary positions rotate pairs"));
                    }
                    None => rope.dim,
                },
                ..rope
            }),
            None => None,
        };
        Ok(Spec { global: HeadSpec { window: None, ..heads }, local: HeadSpec { rope, ..heads }, local_layers, ..spec })
    }
}
