//! Layout of the KV cache.
//!
//! For each KV head, a layer's cache is an array of tiles, one per page of its pool (see [`Pool`](super::Pool)). A tile
//! holds [`TILE`] positions:
//!
//! - **keys** transposed, `[head_dim][16 positions]`: scores are computed with positions as vector lanes, one fused
//!   multiply-add per dimension;
//! - **values** by row, `[16 positions][head_dim]`, each row padded to 16 elements: the weighted sum is computed with
//!   dimensions as lanes.
//!
//! In q8_0 both are bytes, followed by one f16 scale per position and 32 dimensions: keys' scales `[head_dim / 32][16
//! positions]`, values' scales `[16 positions][head_dim / 32]`.
//!
//! Position `p` is in the page given by entry `p / 16 % entries` of the context's table, which covers the whole context
//! or a sliding window.

use crate::built;

/// Positions per tile.
pub(crate) const TILE: usize = 16;

/// Element type of the KV cache.
///
/// # Examples
///
/// ```
/// use arenite::{Gguf, KvType, Options, Plan};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let exact = Plan::new(&gguf, Options::new().context(64).kv(KvType::F32))?;
/// let half = Plan::new(&gguf, Options::new().context(64).kv(KvType::F16))?;
/// assert_eq!(exact.kv, 2 * half.kv);
/// assert_eq!(KvType::Q8_0.feature(), "kv-q8_0"); // what a build with few features needs for it
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// 4 bytes per element.
    F32,
    /// 2 bytes per element; the default.
    #[default]
    F16,
    /// 34 bytes per 32 elements.
    Q8_0,
}

impl KvType {
    /// True if this build supports the type.
    #[allow(clippy::match_like_matches_macro)] // the lint only applies with all features
    pub const fn is_built(self) -> bool {
        match self {
            Self::F32 => cfg!(feature = "kv-f32"),
            Self::F16 => cfg!(feature = "kv-f16"),
            Self::Q8_0 => cfg!(feature = "kv-q8_0"),
        }
    }

    /// The crate feature that enables the type.
    pub const fn feature(self) -> &'static str {
        match self {
            Self::F32 => "kv-f32",
            Self::F16 => "kv-f16",
            Self::Q8_0 => "kv-q8_0",
        }
    }
}

/// Layout of one KV head's tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLayout {
    pub kind: KvType,
    /// Elements of a key, and of a value.
    pub dim: usize,
    /// Elements of a key that are the value as well, the first ones; 0 if values are stored apart.
    pub shared: usize,
}

impl HeadLayout {
    /// Elements of a value.
    pub const fn value(self) -> usize {
        if self.shares() { self.shared } else { self.dim }
    }

    /// True if values are part of the keys instead of being stored separately.
    pub const fn shares(self) -> bool {
        built::LATENT && self.shared > 0
    }

    /// Elements of a value's row, padded.
    pub const fn padded(self) -> usize {
        self.value().next_multiple_of(16)
    }

    /// Number of scales per key or value in q8_0.
    pub const fn blocks(self) -> usize {
        self.dim.div_ceil(32)
    }

    /// Bytes of the elements and of the scales of keys or values, with `per_position` elements per position.
    const fn part(self, per_position: usize) -> (usize, usize) {
        let n = TILE * per_position;
        match self.kind {
            KvType::F32 => (4 * n, 0),
            KvType::F16 => (2 * n, 0),
            KvType::Q8_0 => (n, 2 * TILE * self.blocks()),
        }
    }

    /// Sections of a tile in order, each as a number of rows and the bytes per position in a row: keys, their scales,
    /// values, their scales.
    pub const fn rows(self) -> [(usize, usize); 4] {
        let (element, blocks) = match self.kind {
            KvType::F32 => (4, 0),
            KvType::F16 => (2, 0),
            KvType::Q8_0 => (1, self.blocks()),
        };
        let values = if self.shares() { 0 } else { 1 };
        [(self.dim, element), (blocks, 2), (values, element * self.padded()), (values, 2 * blocks)]
    }

    /// Offset of the keys' scales.
    pub const fn key_scales(self) -> usize {
        self.part(self.dim).0
    }

    /// Offset of the values.
    pub const fn values(self) -> usize {
        let (elements, scales) = self.part(self.dim);
        elements + scales
    }

    /// Offset of the values' scales.
    pub const fn value_scales(self) -> usize {
        self.values() + self.part(self.padded()).0
    }

    /// Bytes of a tile: a multiple of 32.
    pub const fn tile_bytes(self) -> usize {
        if self.shares() {
            return self.values().next_multiple_of(32);
        }
        let (elements, scales) = self.part(self.padded());
        self.values() + elements + scales
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_tile_follow_each_other() {
        for (kind, element, scale) in [(KvType::F32, 4, 0), (KvType::F16, 2, 0), (KvType::Q8_0, 1, 2)] {
            for dim in (2..=130).step_by(2) {
                let head = HeadLayout { kind, dim, shared: 0 };
                let (padded, blocks) = (dim.div_ceil(16) * 16, dim.div_ceil(32));
                assert_eq!((head.padded(), head.blocks()), (padded, blocks));
                let parts = [16 * dim * element, 16 * blocks * scale, 16 * padded * element, 16 * blocks * scale];
                let mut ends = parts;
                for i in 1..4 {
                    ends[i] += ends[i - 1];
                }
                assert_eq!([head.key_scales(), head.values(), head.value_scales(), head.tile_bytes()], ends);
                assert_eq!(head.rows().map(|(rows, bytes)| 16 * rows * bytes), parts, "{kind:?}, {dim}");
                assert_eq!(head.tile_bytes() % 32, 0);
            }
        }
    }

    #[test]
    fn each_type_has_a_feature() {
        let kinds = [KvType::F32, KvType::F16, KvType::Q8_0];
        assert_eq!(kinds.map(KvType::feature), ["kv-f32", "kv-f16", "kv-q8_0"]);
        let built = [cfg!(feature = "kv-f32"), cfg!(feature = "kv-f16"), cfg!(feature = "kv-q8_0")];
        assert_eq!(kinds.map(KvType::is_built), built);
    }
}
