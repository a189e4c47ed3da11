//! Stores keys and values in the KV cache, in the layout of [`crate::memory::HeadLayout`].

use super::{Form, Kernels};
use crate::memory::{HeadLayout, KvType, TILE};
use crate::quant::{TensorType, encode_row};

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

/// Loads what [`store`] has stored for `position`: the keys and values of one or more heads.
pub fn load(
    layout: HeadLayout,
    (tiles, head_bytes): (&[u8], usize),
    pages: &[u32],
    position: usize,
    keys: &mut [f32],
    values: &mut [f32],
) {
    let page = (position / TILE).checked_rem(pages.len()).and_then(|entry| pages.get(entry));
    let (bytes, slot, dim) = (layout.tile_bytes(), position % TILE, layout.dim);
    let Some(start) = page.and_then(|page| bytes.checked_mul(*page as usize)) else { return };
    let (keys_in_4_bits, values_in_4_bits) = in_4_bits(layout.kind);
    // The elements of a key are in successive rows of the tile, one element in each. The same holds for its scales.
    let key = Elements { at: slot, step: TILE, scales: layout.key_scales(), in_4_bits: keys_in_4_bits };
    let (width, scales) = (layout.value_bytes(), layout.value_scales());
    let value = Elements { at: slot * width, step: 1, scales, in_4_bits: values_in_4_bits };
    let heads = keys.chunks_exact_mut(dim.max(1)).zip(values.chunks_exact_mut(dim.max(1)));
    for (tiles, (to_key, to_value)) in tiles.chunks_exact(head_bytes.max(1)).zip(heads) {
        let Some(tile) = tiles.get(start..).and_then(|tiles| tiles.get(..bytes)) else { return };
        for (i, x) in to_key.iter_mut().enumerate() {
            *x = key.element(layout.kind, tile, 0, (slot, i));
        }
        for (i, x) in to_value.iter_mut().enumerate() {
            *x = value.element(layout.kind, tile, layout.values(), (slot, i));
        }
    }
}

/// The elements of a key or a value in a tile.
struct Elements {
    /// Index of the first element; of a value, its byte.
    at: usize,
    /// Distance of the elements.
    step: usize,
    /// Offset of the scales.
    scales: usize,
    in_4_bits: bool,
}

impl Elements {
    /// Reads element `i` of the key or value that is at position `slot` of a tile. `section` is the byte of the tile at
    /// which its keys or its values begin.
    fn element(&self, kind: KvType, tile: &[u8], section: usize, (slot, i): (usize, usize)) -> f32 {
        let is_value = self.step == 1;
        let read = |unit: usize, width: usize| {
            let at = if is_value { self.at + width * unit } else { width * (self.at + self.step * unit) };
            tile.get(section + at..).unwrap_or(&[])
        };
        let half = |bytes: &[u8]| bytes.first_chunk().map_or(0.0, |h| half::f16::from_le_bytes(*h).to_f32());
        match kind {
            KvType::F32 => read(i, 4).first_chunk().map_or(0.0, |x| f32::from_le_bytes(*x)),
            KvType::F16 => half(read(i, 2)),
            KvType::Q8_0 | KvType::Q4_0 | KvType::Q8_0Q4_0 => {
                let block = i / 32;
                let code = |unit: usize| read(unit, 1).first().copied().unwrap_or(0);
                let code = match (self.in_4_bits, i % 32) {
                    (false, _) => f32::from(code(i).cast_signed()),
                    (true, j @ 0..16) => f32::from(code(16 * block + j) & 15) - 8.0,
                    (true, j) => f32::from(code(16 * block + j - 16) >> 4) - 8.0,
                };
                code * half(tile.get(self.scales + 2 * (TILE * block + slot)..).unwrap_or(&[]))
            }
        }
    }
}

/// Returns whether keys and values are stored in 4 bits.
fn in_4_bits(kind: KvType) -> (bool, bool) {
    match kind {
        KvType::Q4_0 => (true, true),
        KvType::Q8_0Q4_0 => (false, true),
        _ => (false, false),
    }
}

/// The location of a position in the tiles of all heads.
pub(super) struct Place {
    pub layout: HeadLayout,
    /// Byte offset of the position's tile from the start of the head's tiles.
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

// Each KV type has such a function, which is not inlined, so that storing one type does not run the set-up of the
// others.
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
    // The type is made a constant, so that most of the layout is computed at compile time.
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
    let (keys_in_4_bits, values_in_4_bits) = in_4_bits(layout.kind);
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

/// Iterates over the elements of position `slot` in the keys of a tile, or in their scales. Each row has one element of
/// `B` bytes per position.
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
        let (mut out, mut codes) = ([0; 18], [0; 32]);
        encode_row(TensorType::Q4_0, &x, &mut out);
        let [d0, d1, low_and_high @ ..] = out;
        codes.iter_mut().zip(low_and_high).for_each(|(to, byte)| *to = byte);
        return (Codes { codes, bytes: 16 }, [d0, d1]);
    }
    let (mut q, mut d, mut sums) = ([0; 32], [0.0], [0; 2]);
    kernels.quantize(Form::Q8, &x, &mut q, &mut d, &mut sums);
    (Codes { codes: q.map(|q| q as u8), bytes: 32 }, half::f16::from_f32_const(d[0]).to_le_bytes())
}
