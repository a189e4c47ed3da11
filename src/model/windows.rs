//! Reads which layers have a sliding window.

use super::Spec;
use super::keys::Keys;
use super::layers::{HeadSpec, Pattern};
use super::rope::Rope;
use crate::{Error, tri};

impl<'a> Keys<'_, 'a> {
    /// Makes the layers in the file's pattern local, or the layers in `otherwise` if the file has no pattern. Local
    /// layers have the file's window; if the file has no window, no layer is local. Keys of the file replace base and
    /// dimension of the rotary positions in `spec.local`.
    pub const fn windowed(&mut self, spec: Spec<'a>, otherwise: Pattern<'a>) -> Result<Spec<'a>, Error> {
        let local_layers = match (spec.global.window, tri!(self.local_layers(spec.layers))) {
            (None, _) => Pattern::Never,
            (Some(_), Some(pattern)) => pattern,
            (Some(_), None) => otherwise,
        };
        let heads = spec.local;
        let rope = match heads.rope {
            Some(rope) => Some(Rope {
                base: tri!(self.or("rope.freq_base_swa", rope.base)),
                dim: match self.has_key("rope.dimension_count_swa") {
                    true => tri!(self.rope_dim("rope.dimension_count_swa", heads.dim)),
                    false => rope.dim,
                },
                ..rope
            }),
            None => None,
        };
        let global = HeadSpec { window: None, ..spec.global };
        Ok(Spec { global, local: HeadSpec { rope, ..heads }, local_layers, ..spec })
    }

    /// Like [`windowed`](Self::windowed), for a model that must have a window.
    pub const fn always_windowed(&mut self, spec: Spec<'a>, otherwise: Pattern<'a>) -> Result<Spec<'a>, Error> {
        if spec.global.window.is_none() {
            return Err(self.missing("attention.sliding_window"));
        }
        self.windowed(spec, otherwise)
    }

    /// Like [`windowed`](Self::windowed). If the model has a window, its global layers have no rotary positions.
    pub const fn rotated_windows(&mut self, spec: Spec<'a>, otherwise: Pattern<'a>) -> Result<Spec<'a>, Error> {
        let global = if spec.global.window.is_some() { spec.global.unrotated() } else { spec.global };
        self.windowed(Spec { global, ..spec }, otherwise)
    }
}
