//! Stores keys and values in the KV cache, in the layout of [`crate::memory::HeadLayout`].

use super::{Form, Kernels};
use crate::memory::{HeadLayout, KvType, TILE};

/// Stores the keys and values of `position` for one or more heads. Each head has `head_bytes` bytes of tiles. `pages`
/// is the context's table of pages and selects the tile.
pub fn store(
    kernels: &Kernels,
    layout: HeadLayout,
    (tiles, head_bytes): (&mut [u8], usize),
    pages: &[u32],
    position: usize,
    keys: &[f32],
    values: &[f32],
) {
    let page = (position / TILE).checked_rem(pages.len()).and_then(|entry| pages.get(entry));
    let bytes = layout.tile_bytes();
    let Some(start) = page.and_then(|page| bytes.checked_mul(*page as usize)) else { return };
    let at = Place { layout, start, bytes, head_bytes, slot: position % TILE };
    match layout.kind {
        kind if !kind.is_built() => {}
        KvType::F32 => kernels.store_floats(&at, tiles, keys, values),
        KvType::F16 => store_halves(kernels, layout, at.slot, at.heads(tiles, keys, values)),
        KvType::Q8_0 | KvType::Q4_0 | KvType::Q8_0Q4_0 => {
            store_blocks(kernels, layout, at.slot, at.heads(tiles, keys, values));
        }
    }
}

/// The location of a position in the tiles of all heads.
pub(super) struct Place {
    pub layout: HeadLayout,
    /// Byte at which the position's tile starts in the tiles of a head.
    pub start: usize,
    /// Bytes of a tile.
    bytes: usize,
    /// Bytes of the tiles of a head.
    pub head_bytes: usize,
    /// The position in its tile.
    pub slot: usize,
}

impl Place {
    /// The tile, the key and the value of each head.
    #[inline(always)]
    fn heads<'a>(
        &self,
        tiles: &'a mut [u8],
        mut keys: &'a [f32],
        mut values: &'a [f32],
    ) -> impl Iterator<Item = Head<'a>> {
        let (start, bytes, dim) = (self.start, self.bytes, self.layout.dim);
        tiles.chunks_exact_mut(self.head_bytes.max(1)).map_while(move |tiles| {
            let (key, value);
            (key, keys) = keys.split_at_checked(dim)?;
            (value, values) = values.split_at_checked(dim)?;
            Some((tiles.get_mut(start..)?.get_mut(..bytes)?, key, value))
        })
    }
}

/// The tile, the key and the value of a head.
type Head<'a> = (&'a mut [u8], &'a [f32], &'a [f32]);

// (Each KV type has a function that is not inlined, so that storing one type does not run the set-up of the others.)
/// [`Kernels::store_floats`] in plain Rust.
#[inline(never)]
pub(super) fn store_floats(at: &Place, tiles: &mut [u8], keys: &[f32], values: &[f32]) {
    if const { !KvType::F32.is_built() } {
        return; // this build never calls the function, but its table refers to it
    }
    let (layout, slot, width) = (at.layout, at.slot, at.layout.padded());
    for (tile, key, value) in at.heads(tiles, keys, values) {
        let Ok(tile) = bytemuck::try_cast_slice_mut::<_, f32>(tile) else { return };
        let (keys, values) = tile.split_at_mut_checked(TILE * layout.dim).unwrap_or_default();
        let Some(column) = keys.get_mut(slot..) else { return };
        for (to, k) in column.iter_mut().step_by(TILE).zip(key) {
            *to = *k;
        }
        let Some(row) = values.get_mut(slot * width..(slot + 1) * width) else { continue };
        let mut value = value.iter();
        for to in row {
            *to = value.next().copied().unwrap_or(0.0);
        }
    }
}

#[inline(never)]
fn store_halves<'a>(kernels: &Kernels, layout: HeadLayout, slot: usize, heads: impl Iterator<Item = Head<'a>>) {
    // With the type as a constant, most of the layout is computed at compile time.
    let layout = HeadLayout { kind: KvType::F16, ..layout };
    for (tile, key, value) in heads {
        let Some([keys, _, values, _]) = parts(layout, tile) else { return };
        if !layout.shares() {
            let row = row(values, slot, 2 * layout.padded());
            let Some((row, pad)) = row.split_at_mut_checked(2 * layout.dim) else { return };
            kernels.to_f16(value, row);
            if !pad.is_empty() {
                pad.fill(0);
            }
        }
        let mut keys = column(keys, slot);
        for key in key.chunks(64) {
            let mut half = [0; 128];
            let Some(half) = half.get_mut(..2 * key.len()) else { return };
            kernels.to_f16(key, half);
            for (h, to) in half.as_chunks::<2>().0.iter().zip(&mut keys) {
                *to = *h;
            }
        }
    }
}

#[inline(never)]
fn store_blocks<'a>(kernels: &Kernels, layout: HeadLayout, slot: usize, heads: impl Iterator<Item = Head<'a>>) {
    let (keys_in_4_bits, values_in_4_bits) = match layout.kind {
        KvType::Q4_0 => (true, true),
        KvType::Q8_0Q4_0 => (false, true),
        _ => (false, false),
    };
    for (tile, key, value) in heads {
        let Some([keys, key_scales, values, value_scales]) = parts(layout, tile) else { return };
        let mut row = row(values, slot, layout.value_bytes()).iter_mut();
        let value = if layout.shares() { &[] } else { value };
        for (block, scale) in value.chunks(32).zip(column(value_scales, slot)) {
            let (codes, d) = quantize(kernels, block, values_in_4_bits);
            *scale = d;
            codes.bytes().zip(&mut row).for_each(|(code, to)| *to = code);
        }
        let mut keys = column(keys, slot);
        for (block, scale) in key.chunks(32).zip(column(key_scales, slot)) {
            let (codes, d) = quantize(kernels, block, keys_in_4_bits);
            *scale = d;
            codes.bytes().zip(&mut keys).for_each(|(code, to)| *to = [code]);
        }
    }
}

/// The keys, key scales, values and value scales of a tile.
#[inline(always)]
fn parts(layout: HeadLayout, tile: &mut [u8]) -> Option<[&mut [u8]; 4]> {
    let (keys, values) = tile.split_at_mut_checked(layout.values())?;
    let (keys, key_scales) = keys.split_at_mut_checked(layout.key_scales())?;
    let (values, value_scales) = match layout.shares() {
        true => Default::default(),
        false => values.split_at_mut_checked(layout.value_scales() - layout.values())?,
    };
    Some([keys, key_scales, values, value_scales])
}

/// Row `slot` of `rows`, each of which has `bytes` bytes.
fn row(rows: &mut [u8], slot: usize, bytes: usize) -> &mut [u8] {
    rows.get_mut(slot * bytes..(slot + 1) * bytes).unwrap_or_default()
}

/// The element of `slot` in each row of a tile's keys or scales. A row has an element of `B` bytes per position.
fn column<const B: usize>(rows: &mut [u8], slot: usize) -> impl Iterator<Item = &mut [u8; B]> {
    rows.as_chunks_mut().0.as_chunks_mut::<TILE>().0.iter_mut().map(move |row| &mut row[slot % TILE])
}

/// The codes of a block of 32 elements.
struct Codes {
    codes: [u8; 32],
    /// Number of bytes in use.
    bytes: usize,
}

impl Codes {
    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.codes.iter().take(self.bytes).copied()
    }
}

/// Quantizes up to 32 elements as Q8_0 or, in 4 bits, as Q4_0. Returns the codes and the f16 scale.
fn quantize(kernels: &Kernels, block: &[f32], in_4_bits: bool) -> (Codes, [u8; 2]) {
    let mut x = [0.0; 32];
    for (x, v) in x.iter_mut().zip(block) {
        *x = *v;
    }
    if in_4_bits {
        let (codes, d) = closest_in_4_bits(&x);
        return (Codes { codes, bytes: 16 }, d);
    }
    let (mut q, mut d, mut sums) = ([0; 32], [0.0], [0; 2]);
    kernels.quantize(Form::Q8, &x, &mut q, &mut d, &mut sums);
    (Codes { codes: q.map(|q| q as u8), bytes: 32 }, half::f16::from_f32_const(d[0]).to_le_bytes())
}

/// The scales that [`closest_in_4_bits`] tries, relative to the scale of ggml's Q4_0. For normally distributed elements,
/// these three leave 0.90 times the squared error of that scale.
const SCALES: [f32; 3] = [1.0, 0.94, 1.12];

/// Quantizes a block as Q4_0, with the least squared error of several scales. Returns the codes, in the first 16 bytes,
/// and the f16 scale.
fn closest_in_4_bits(x: &[f32; 32]) -> ([u8; 32], [u8; 2]) {
    let top = x.iter().fold(0.0, |top: f32, &x| if x.abs() > top.abs() { x } else { top });
    // The scale of a block of zeros is 0. NaN, if an element is not finite, makes the logits NaN.
    let (mut most, mut best, mut d) = (0.0, [0.0; 32], product(x, &[0.0; 32]));
    for scale in SCALES {
        let scale = -8.0 / (top * scale);
        let q = x.map(|x| nearest((x * scale).clamp(-8.0, 7.0)));
        // The squared error, `sum((x - d * q)^2)`, is least for `d = xq / qq`. It is `sum(x^2) - xq^2 / qq` then.
        let (xq, qq) = (product(x, &q), product(&q, &q));
        let explained = xq * xq / qq;
        if explained > most {
            (most, best, d) = (explained, q, xq / qq);
        }
    }
    let mut codes = [0; 32];
    let (low, high) = best.split_at(16);
    for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
        *code = (low + 8.0) as u8 | ((high + 8.0) as u8) << 4;
    }
    (codes, half::f16::from_f32_const(d).to_le_bytes())
}

/// Rounds to the nearest integer, halves to even ones. `x` is far below 2^22.
fn nearest(x: f32) -> f32 {
    // From 1.5 * 2^23, the distance of two f32 is 1.
    const LARGE: f32 = 12_582_912.0;
    x + LARGE - LARGE
}

/// The sum of products, in eight partial sums, which the compiler keeps in a vector.
fn product(a: &[f32; 32], b: &[f32; 32]) -> f32 {
    let mut sums = [0.0; 8];
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{TensorType, decode_row, encode_row};

    /// The expected blocks are from numpy, in f64. The best scale is the first, the second and the third.
    #[test]
    fn the_best_scale_is_chosen() {
        for (k, scale, codes) in [
            (
                3,
                0x3a61,
                [0xd0, 0x22, 0xa7, 0x5f, 0x3b, 0x5a, 0x9c, 0x11, 0xc9, 0xa5, 0xb3, 0xf5, 0x7a, 0x22, 0x0d, 0x1c],
            ), // 1.0
            (
                18,
                0x39f3,
                [0xf0, 0xcd, 0xbc, 0xef, 0x33, 0xcc, 0x77, 0x66, 0x77, 0xcc, 0x33, 0xfe, 0xcb, 0xdc, 0x0f, 0x75],
            ), // 0.94
            (
                8,
                0x3af5,
                [0x81, 0x51, 0xfe, 0x8a, 0xd4, 0x2a, 0x4f, 0x33, 0xf4, 0xa2, 0x4d, 0xa8, 0xef, 0x15, 0x18, 0xd9],
            ), // 1.12
        ] {
            let x = core::array::from_fn(|i| ((i * i * 37 * k + i * k) % 101) as f32 / 8.0 - 6.25);
            let (got, d) = closest_in_4_bits(&x);
            assert_eq!((&got[..16], u16::from_le_bytes(d)), (&codes[..], scale), "{k}");
        }
        assert_eq!(closest_in_4_bits(&[0.0; 32]).1, [0, 0]);
        for odd in [f32::NAN, f32::INFINITY] {
            let (_, d) = closest_in_4_bits(&core::array::from_fn(|i| if i == 7 { odd } else { 1.0 }));
            assert!(half::f16::from_le_bytes(d).is_nan(), "{odd}");
        }
    }

    /// Blocks of sums of uniform numbers, which are close to normally distributed.
    #[test]
    fn the_error_is_less_than_that_of_q4_0() {
        let mut state = 1u32;
        let mut uniform = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 16_777_216.0 - 0.5
        };
        let (mut ours, mut plain) = (0.0, 0.0);
        for _ in 0..500 {
            let x: [f32; 32] = core::array::from_fn(|_| (0..12).map(|_| uniform()).sum());
            let error = |block: &[u8]| {
                let mut back = [0.0; 32];
                assert!(decode_row(TensorType::Q4_0, block, &mut back));
                x.iter().zip(back).map(|(x, y)| (x - y) * (x - y)).sum::<f32>()
            };
            let (codes, d) = closest_in_4_bits(&x);
            let mut block = [0; 18];
            assert!(encode_row(TensorType::Q4_0, &x, &mut block));
            let (best, first) = (error(&[&d[..], &codes[..16]].concat()), error(&block));
            assert!(best <= first * 1.001, "{best} {first}");
            (ours, plain) = (ours + best, plain + first);
        }
        assert!(ours < 0.92 * plain, "{ours} {plain}");
    }
}
