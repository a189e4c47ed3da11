//! Reads rotary positions and their scaling.

use super::{Keys, MAX_WIDTH};
#[cfg(feature = "vision")]
use crate::gguf::Value;
#[cfg(feature = "vision")]
use crate::model::Sections;
use crate::model::rope::{Rope, RopeStyle, Scaling};
use crate::model::{Spec, Temperature};
use crate::{Error, Name, built, tri};

/// Largest number of pairs of an axis.
#[cfg(feature = "vision")]
const MAX: i32 = MAX_WIDTH as i32;

impl<'a> Keys<'_, 'a> {
    pub(super) const fn rope(&mut self, style: RopeStyle, head_dim: usize) -> Result<Rope, Error> {
        let dim = tri!(self.rope_dim("rope.dimension_count", head_dim));
        let base = tri!(self.or("rope.freq_base", 10000.0)); // the format's default
        Ok(Rope { style, dim, base, scaling: tri!(self.scaling()) })
    }

    /// Reads the number of rotated elements per head.
    pub const fn rope_dim(&mut self, name: &'static str, head_dim: usize) -> Result<usize, Error> {
        let dim = match tri!(self.optional_size(name, MAX_WIDTH)) {
            Some(dim) => dim,
            None => head_dim,
        };
        if dim % 2 != 0 {
            return Err(self.wrong(name, "is odd: rotary positions rotate pairs"));
        }
        if dim > head_dim {
            return Err(self.wrong(name, "is larger than a head"));
        }
        Ok(dim)
    }

    /// Reads how many rotary pairs each axis of positions has.
    #[cfg(feature = "vision")]
    pub const fn sections(&mut self, spec: &mut Spec<'_>, in_turns: bool) -> Result<(), Error> {
        const NAME: &str = "rope.dimension_sections";
        let Some(Value::Array(array)) = self.get(NAME) else { return Ok(()) };
        match (array.get_i32(0), array.get_i32(1), array.get_i32(2)) {
            (Some(time @ 0..=MAX), Some(lines @ 0..=MAX), Some(columns @ 0..=MAX)) => {
                spec.sections = Some(Sections { pairs: [time as usize, lines as usize, columns as usize], in_turns });
                Ok(())
            }
            _ => Err(self.wrong(NAME, "must have three numbers of pairs")),
        }
    }

    /// Reads the number of buckets of relative positions. Each bucket is a range of distances whose attention scores
    /// get the same bias.
    pub const fn relative_buckets(&mut self) -> Result<usize, Error> {
        let buckets = tri!(self.size("attention.relative_buckets_count", 1 << 10));
        if buckets < 4 {
            // In an encoder, half of the buckets are for later positions, and half of each half is for single
            // distances. So at least 4 buckets are needed.
            return Err(self.wrong("attention.relative_buckets_count", "is less than 4"));
        }
        Ok(buckets)
    }

    /// Reads the temperature by which queries grow with the position, if the file has a temperature. If the file does
    /// not give the temperature's length, this is the context length before YaRN's scaling.
    pub const fn temperature(&mut self, spec: &Spec<'_>) -> Result<Option<Temperature>, Error> {
        let length = match (tri!(self.nonzero("attention.temperature_length", i32::MAX as usize)), spec.global.rope) {
            (Some(length), _) => length,
            (None, Some(Rope { scaling: Scaling::Yarn { original, .. }, .. })) => original as usize,
            _ => spec.context,
        };
        match tri!(self.unless_zero("attention.temperature_scale")) {
            Some(scale) => Ok(Some(Temperature { scale, length, offset: 0, only_unrotated: false })),
            None => Ok(None),
        }
    }

    const fn scaling(&mut self) -> Result<Scaling, Error> {
        const TYPE: &str = "rope.scaling.type";
        let kind = tri!(self.text(TYPE));
        let older = tri!(self.unless_zero("rope.scale_linear"));
        let factor = match tri!(self.unless_zero("rope.scaling.factor")) {
            Some(factor) => Some(factor),
            None => older,
        };
        let original = match tri!(self.optional_size("rope.scaling.original_context_length", i32::MAX as usize)) {
            Some(original) => original,
            None => tri!(self.size("context_length", i32::MAX as usize)),
        };
        let attn_factor = tri!(self.or("rope.scaling.attn_factor", 1.0));
        let beta_fast = tri!(self.or("rope.scaling.yarn_beta_fast", 32.0));
        let beta_slow = tri!(self.or("rope.scaling.yarn_beta_slow", 1.0));
        let magnitude = tri!(self.unless_zero("rope.scaling.yarn_attn_factor"));
        let log_multiplier = match tri!(self.unless_zero("rope.scaling.yarn_log_multiplier")) {
            Some(log_multiplier) => log_multiplier,
            None => 0.0,
        };
        match (kind, factor) {
            (Some(b"none"), _) | (None, None) => Ok(Scaling::None),
            // Old files have a factor but no key for the type of scaling. Their scaling is linear.
            (Some(b"linear") | None, Some(factor)) => Ok(Scaling::Linear { factor }),
            (Some(b"linear"), None) => Ok(Scaling::Linear { factor: 1.0 }),
            (Some(b"yarn"), factor) => {
                let factor = match factor {
                    Some(factor) => factor,
                    None => 1.0,
                };
                Ok(Scaling::Yarn {
                    factor,
                    original: original as f32,
                    beta_fast,
                    beta_slow,
                    attn_factor,
                    log_multiplier,
                    magnitude,
                    whole_pairs: !built::LENIENT
                        || !matches!(tri!(self.switch("rope.scaling.yarn_truncate")), Some(false)),
                })
            }
            (Some(b"longrope"), _) => Ok(Scaling::Long { original, attn_factor }),
            (Some(name), _) => Err(Error::Unsupported { what: "rope scaling", name: Name::new(name) }),
        }
    }
}
