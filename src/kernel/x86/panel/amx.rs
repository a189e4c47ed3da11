//! Prefill with 16 rows by 16 tokens in a tile of Intel AMX. A panel is the same as for AVX-512: the codes of a group
//! are a tile. AVX-512 multiplies the sums by scales, and multiplies the last tokens of a batch.

use core::arch::x86_64::*;

use super::super::ahead::Ahead;
use super::super::amx::{Scratch, TOKENS};
use super::super::pack::{BlockLayout, CODES, LINE, chunk_size};
use super::super::products::{fits_i16, words_by, words512};
use super::avx512::{self, add};
use super::prefetch;
use crate::kernel::panel::{functions, scales};
use crate::kernel::quantized::{Multiply, Tile};
use crate::quant::Format;

/// Activations that a tile multiplies: the weights of a row that share a scale.
pub const fn span<F: Format>() -> usize {
    if F::ELEMENTS == 256 && F::GROUP == 16 || F::FLOAT_GROUPS { 16 } else { 32 }
}

/// The functions for a format. Their first argument is true if a group's sum of products fits an i16.
pub const fn of<F: Format>() -> &'static [Multiply] {
    const { assert!(F::M.is_none() || F::BIAS == 0) }
    if const { F::ELEMENTS == 256 && fits_i16::<F>(F::GROUP as u32) } {
        functions!(F, [true,], 16 8 4 2 1)
    } else {
        functions!(F, [false,], 16 8 4 2 1)
    }
}

/// Pointers to a value of each of 16 tokens. Four are stored, because 16 would not fit in registers.
struct Each<T> {
    fourth: [*const T; TOKENS / 4],
    stride: usize,
}

impl<T> Each<T> {
    #[inline(always)]
    fn new(first: *const T, stride: usize) -> Self {
        Self { fourth: core::array::from_fn(|i| first.wrapping_add(i * 4 * stride)), stride }
    }
    #[inline(always)]
    fn at(&self, t: usize, i: usize) -> *const T {
        self.fourth[t / 4].wrapping_add(t % 4 * self.stride + i)
    }
}

#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
unsafe fn chunks<const SHORT: bool, const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
    // SAFETY: the caller promises AVX-512 with VNNI, and tiles; the tile has a packed panel and `T` tokens.
    unsafe {
        if T != TOKENS {
            return avx512::chunks::<SHORT, T, SCALES>(tile);
        }
        prefetch::<T>(tile);
        let [d] = tile.d::<1>(32);
        let [sums] = tile.sums::<1>();
        let [q] = tile.q::<1>();
        let (d, sums) = (Each::new(d, tile.cols / 32), Each::new(sums, tile.cols / 16));
        let size = chunk_size(if SCALES == scales::ONE { 1 } else { 2 });
        let halves = if SCALES == scales::HALVES { 2 } else { 1 };
        let groups = tile.cols / 32 * halves;
        let mut ahead = Ahead::new(tile.ahead, groups);
        let mut scratch = Scratch::new();
        let multiply = |scratch: &mut Scratch, g: usize| {
            let w = tile.panel.add(g / halves * size + g % halves * (CODES / 2));
            scratch.multiply(g, w, q.add(g * (32 / halves)), tile.cols);
        };
        // Factors on two sums of activations, which subtract the bias of both halves or of one.
        let less = -i16::from(tile.bias);
        let words = |low: i16, high: i16| _mm512_set1_epi32(i32::from(high) << 16 | i32::from(low) & 0xffff);
        let less = if SCALES == scales::HALVES { [words(less, 0), words(0, less)] } else { [words(less, less); 2] };
        let (zero, one) = (_mm512_setzero_si512(), _mm512_set1_epi16(1));
        let mut acc = [_mm512_setzero_ps(); TOKENS];
        multiply(&mut scratch, 0);
        for g in 0..groups {
            ahead.step();
            if g + 1 < groups {
                multiply(&mut scratch, g + 1);
            }
            let b = g / halves;
            let floats = |line: usize| _mm512_loadu_ps(tile.panel.add(b * size + CODES + line * LINE).cast());
            let (scale, less) = (floats(g % halves), less[g % halves]);
            for (t, acc) in acc.iter_mut().enumerate() {
                let d = *d.at(t, b);
                let of = |to, factors| words_by(to, factors, sums.at(t, b * 2));
                let sum = scratch.token(g, t);
                if SCALES == scales::MINIMUM {
                    *acc = add(*acc, scale, d, sum);
                    *acc = add(*acc, floats(1), d, of(zero, one));
                } else {
                    *acc = add(*acc, scale, d, of(sum, less));
                }
            }
        }
        for (out, acc) in tile.out::<TOKENS>().into_iter().zip(acc) {
            _mm512_storeu_ps(out, acc);
        }
    }
}

#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
unsafe fn blocks<const SHORT: bool, const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
    // SAFETY: the caller promises AVX-512 with VNNI, and tiles; the tile has a packed panel and `T` tokens.
    unsafe {
        if T != TOKENS {
            return avx512::blocks::<SHORT, T, GROUP, MINIMUMS>(tile);
        }
        prefetch::<T>(tile);
        let layout = const { BlockLayout::of(GROUP, MINIMUMS) };
        let [d] = tile.d::<1>(256);
        let [sums] = tile.sums::<1>();
        let [q] = tile.q::<1>();
        let (d, sums) = (Each::new(d, tile.cols / 256), Each::new(sums, tile.cols / 16));
        let (groups, per_block) = (tile.cols / GROUP, 256 / GROUP);
        let mut ahead = Ahead::new(tile.ahead, groups);
        let mut scratch = Scratch::new();
        let multiply = |scratch: &mut Scratch, g: usize| {
            let w = tile.panel.add(g / per_block * layout.size + g % per_block * (GROUP / 4 * LINE));
            scratch.multiply(g, w, q.add(g * GROUP), tile.cols);
        };
        let mut acc = [_mm512_setzero_ps(); TOKENS];
        multiply(&mut scratch, 0);
        for b in 0..tile.cols / 256 {
            let w = tile.panel.add(b * layout.size);
            let pairs = || {
                let mut total = [_mm512_setzero_si512(); TOKENS];
                for p in 0..8 {
                    let w = _mm512_loadu_si512(w.add(layout.pairs + p * LINE).cast());
                    for (t, total) in total.iter_mut().enumerate() {
                        *total = words_by(*total, w, sums.at(t, b * 16 + p * 2));
                    }
                }
                total
            };
            let mut total = if MINIMUMS { [_mm512_setzero_si512(); TOKENS] } else { pairs() };
            for group in 0..per_block {
                ahead.step();
                let g = b * per_block + group;
                if g + 1 < groups {
                    multiply(&mut scratch, g + 1);
                }
                let scale = _mm512_loadu_si512(w.add(BlockLayout::SCALES + group * LINE).cast());
                // See `avx512::blocks`.
                let scale = if SHORT { _mm512_maskz_mov_epi16(0x5555_5555, scale) } else { scale };
                for (t, total) in total.iter_mut().enumerate() {
                    let sums = scratch.token(g, t);
                    *total = if SHORT {
                        words512(*total, sums, scale)
                    } else {
                        _mm512_add_epi32(*total, _mm512_mullo_epi32(sums, scale))
                    };
                }
            }
            let mut finish = |line: usize, total: [__m512i; TOKENS]| {
                let scale = _mm512_loadu_ps(w.add(line).cast());
                for (t, (acc, total)) in acc.iter_mut().zip(total).enumerate() {
                    *acc = add(*acc, scale, *d.at(t, b), total);
                }
            };
            finish(layout.d, total);
            if MINIMUMS {
                finish(layout.m, pairs());
            }
        }
        for (out, acc) in tile.out::<TOKENS>().into_iter().zip(acc) {
            _mm512_storeu_ps(out, acc);
        }
    }
}
