//! Layout of the KV cache.
//!
//! For each KV head, a layer's cache is an array of tiles, one per page of its pool (see [`Pool`](super::Pool)). A tile
//! holds [`TILE`] positions:
//!
//! - **keys** transposed, `[head_dim][16 positions]`, so that scores are computed with positions as vector lanes, one
//!   fused multiply-add per dimension, and nothing is summed across lanes;
//! - **values** by row, `[16 positions][head_dim]`, each row padded to 16 elements: the weighted sum is computed with
//!   dimensions as lanes.
//!
//! In q8_0 and q4_0, the keys are followed by the keys' scales, and the values by the values' scales: one f16 scale per
//! position and block of 32 dimensions, `[blocks][16 positions]`. In q8_0 an element is a byte. In q4_0 a block is 16
//! bytes per position: byte `i` holds dimension `i` in its low four bits and dimension `i + 16` in its high four bits.
//! The codes 0 to 15 mean -8 to 7.
//!
//! Position `p` is in the page given by entry `p / 16 % entries` of the context's page table, which covers the whole
//! context or a sliding window.

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
    /// 34 bytes per 32 elements. Keys and values are rotated by a Hadamard matrix before they are quantized.
    Q8_0,
    /// 18 bytes per 32 elements. As with [`Q8_0`](Self::Q8_0), keys and values are rotated by a Hadamard matrix before
    /// they are quantized.
    Q4_0,
    /// Keys as in [`Q8_0`](Self::Q8_0), values as in [`Q4_0`](Self::Q4_0).
    Q8_0Q4_0,
}

/// Element type of keys or of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    F32,
    F16,
    Q8,
    Q4,
}

impl Store {
    /// Keys of `dim` elements are stored in rows, each with a part of several positions' keys. Returns the number of
    /// rows, and the number of bytes that a position takes in each row.
    const fn key_rows(self, dim: usize) -> (usize, usize) {
        match self {
            Self::F32 => (dim, 4),
            Self::F16 => (dim, 2),
            Self::Q8 => (dim, 1),
            Self::Q4 => (16 * dim.div_ceil(32), 1),
        }
    }

    /// Bytes of a value of `dim` elements, with padding.
    const fn value_bytes(self, dim: usize) -> usize {
        let padded = dim.next_multiple_of(16);
        match self {
            Self::F32 => 4 * padded,
            Self::F16 => 2 * padded,
            Self::Q8 => padded,
            Self::Q4 => 16 * dim.div_ceil(32),
        }
    }

    /// Number of scales for `dim` elements.
    const fn scales(self, dim: usize) -> usize {
        match self {
            Self::F32 | Self::F16 => 0,
            Self::Q8 | Self::Q4 => dim.div_ceil(32),
        }
    }
}

impl KvType {
    /// True if this build supports the type.
    #[allow(clippy::match_like_matches_macro)] // the lint only applies with all features
    pub const fn is_built(self) -> bool {
        match self {
            Self::F32 => cfg!(feature = "kv-f32"),
            Self::F16 => cfg!(feature = "kv-f16"),
            Self::Q8_0 => cfg!(feature = "kv-q8_0"),
            Self::Q4_0 | Self::Q8_0Q4_0 => cfg!(feature = "kv-q4_0"),
        }
    }

    /// All types.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Q8_0, Self::Q4_0, Self::Q8_0Q4_0];

    /// The name of the type. If keys and values have different types, the two names are separated by a comma.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q8_0Q4_0 => "q8_0,q4_0",
        }
    }

    /// True if keys and values are rotated before they are stored, because the rotation spreads an outlier over its
    /// block.
    pub(crate) const fn is_rotated(self) -> bool {
        self.is_built() && matches!(self, Self::Q8_0 | Self::Q4_0 | Self::Q8_0Q4_0)
    }

    /// Element type of keys.
    pub(crate) const fn keys(self) -> Store {
        match self {
            Self::F32 => Store::F32,
            Self::F16 => Store::F16,
            Self::Q8_0 | Self::Q8_0Q4_0 => Store::Q8,
            Self::Q4_0 => Store::Q4,
        }
    }

    /// Element type of values.
    pub(crate) const fn values(self) -> Store {
        match self {
            Self::Q8_0Q4_0 => Store::Q4,
            _ => self.keys(),
        }
    }

    /// The crate feature that enables the type.
    pub const fn feature(self) -> &'static str {
        match self {
            Self::F32 => "kv-f32",
            Self::F16 => "kv-f16",
            Self::Q8_0 => "kv-q8_0",
            Self::Q4_0 | Self::Q8_0Q4_0 => "kv-q4_0",
        }
    }
}

/// Layout of one KV head's tile.
#[derive(Clone, Copy, Debug)]
pub struct HeadLayout {
    /// Type of keys and values.
    pub kind: KvType,
    /// Number of elements of a key, and of a value if values are stored separately.
    pub dim: usize,
    /// If keys and values are stored together, this many elements at the start of a key are also the value of the
    /// position. 0 if values are stored separately.
    pub shared: usize,
}

impl HeadLayout {
    /// Elements of a value.
    pub const fn value(self) -> usize {
        if self.shares() { self.shared } else { self.dim }
    }

    /// True if each value is a part of the key at the same position, and is not stored separately.
    pub const fn shares(self) -> bool {
        built::LATENT && self.shared > 0
    }

    /// Elements of a value's row, padded.
    pub const fn padded(self) -> usize {
        self.value().next_multiple_of(16)
    }

    /// Number of scales per key or value in q8_0 and q4_0.
    pub const fn blocks(self) -> usize {
        self.dim.div_ceil(32)
    }

    /// Number of bytes of one position's value, with padding and without scales.
    pub const fn value_bytes(self) -> usize {
        self.kind.values().value_bytes(self.dim)
    }

    /// The sections of a tile, in order: keys, scales of keys, values, scales of values. Each section is given as its
    /// number of rows and the number of bytes per position in a row.
    pub const fn rows(self) -> [(usize, usize); 4] {
        let (keys, values) = (self.kind.keys(), self.kind.values());
        let value_rows = if self.shares() { 0 } else { 1 };
        [
            keys.key_rows(self.dim),
            (keys.scales(self.dim), 2),
            (value_rows, values.value_bytes(self.dim)),
            (value_rows * values.scales(self.dim), 2),
        ]
    }

    /// Offset of the keys' scales.
    pub const fn key_scales(self) -> usize {
        let (rows, bytes) = self.kind.keys().key_rows(self.dim);
        TILE * rows * bytes
    }

    /// Offset of the values.
    pub const fn values(self) -> usize {
        self.key_scales() + 2 * TILE * self.kind.keys().scales(self.dim)
    }

    /// Offset of the values' scales.
    pub const fn value_scales(self) -> usize {
        self.values() + TILE * self.value_bytes()
    }

    /// Bytes of a tile: a multiple of 32.
    pub const fn tile_bytes(self) -> usize {
        if self.shares() {
            return self.values().next_multiple_of(32);
        }
        self.value_scales() + 2 * TILE * self.kind.values().scales(self.dim)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn parts_of_a_tile_follow_each_other() {
        // A q4_0 tile of 16 positions and 64 dimensions has 32 blocks of 18 bytes for the keys, and as many for the
        // values.
        let sizes = |kind| HeadLayout { kind, dim: 64, shared: 0 }.rows().map(|(rows, bytes)| 16 * rows * bytes);
        assert_eq!(sizes(KvType::Q4_0), [16 * 32, 16 * 4, 16 * 32, 16 * 4]);
        assert_eq!(sizes(KvType::Q8_0Q4_0), [16 * 64, 16 * 4, 16 * 32, 16 * 4]);
        for kind in KvType::ALL {
            for dim in (2..=130).step_by(2) {
                let head = HeadLayout { kind, dim, shared: 0 };
                let ends = head.rows().map(|(rows, bytes)| 16 * rows * bytes);
                let offsets = [head.key_scales(), head.values(), head.value_scales(), head.tile_bytes()];
                let mut end = 0;
                for (bytes, offset) in ends.into_iter().zip(offsets) {
                    end += bytes;
                    assert_eq!(offset, end);
                }
                assert_eq!(end % 32, 0);
            }
        }
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
        assert_eq!(KvType::ALL.map(KvType::feature), ["kv-f32", "kv-f16", "kv-q8_0", "kv-q4_0", "kv-q4_0"]);
        let built = [cfg!(feature = "kv-f32"), cfg!(feature = "kv-f16"), cfg!(feature = "kv-q8_0")];
        assert_eq!(KvType::ALL[..3].iter().map(|kind| kind.is_built()).collect::<std::vec::Vec<_>>(), built);
        assert_eq!(KvType::Q4_0.is_built(), cfg!(feature = "kv-q4_0"));
    }
}
