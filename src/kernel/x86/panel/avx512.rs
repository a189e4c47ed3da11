//! Prefill with 16 rows in a 512-bit register.

use core::arch::x86_64::*;
use core::marker::PhantomData;

use super::super::ahead::Ahead;
use super::super::pack::{self, BlockLayout, CODES, LINE, chunk_size};
use super::super::products::{fits_i16, words_by, words512};
use super::{Selection, prefetch, sum};
use crate::kernel::panel::{functions, scales};
use crate::kernel::quantized::{Multiply, Pack, PackAndMultiply, Tile, further};
use crate::quant::Format;

/// The most tokens that a function multiplies at once.
const TOKENS: usize = 8;

/// The functions for a format. The first generic argument of these functions is true if a group's sum of products fits
/// an i16.
pub const fn of<F: Format>() -> &'static [Multiply] {
    if const { F::ELEMENTS == 256 && fits_i16::<F>(F::GROUP as u32) } {
        functions!(F, [true,], 8 4 2 1)
    } else {
        functions!(F, [false,], 8 4 2 1)
    }
}

/// Adds to `sums` the products of the activations with `STEPS` lines of codes at `w`. A line has four codes of each of
/// 16 rows.
#[inline(always)]
unsafe fn products<const T: usize, const STEPS: usize>(sums: &mut [__m512i; T], w: *const u8, q: [*const i8; T]) {
    // SAFETY: the caller promises AVX-512 with VNNI, the codes and the activations.
    unsafe {
        for k in 0..STEPS {
            let w = _mm512_loadu_si512(w.add(k * LINE).cast());
            for (sums, q) in sums.iter_mut().zip(q) {
                *sums = _mm512_dpbusd_epi32(*sums, w, _mm512_set1_epi32(q.add(k * 4).cast::<i32>().read_unaligned()));
            }
        }
    }
}

/// `acc + sum * w * x`.
#[inline]
#[target_feature(enable = "avx512f")]
fn add(acc: __m512, w: __m512, x: f32, sum: __m512i) -> __m512 {
    _mm512_fmadd_ps(_mm512_mul_ps(w, _mm512_set1_ps(x)), _mm512_cvtepi32_ps(sum), acc)
}

#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn chunks<const SHORT: bool, const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
    // SAFETY: the caller promises the same.
    unsafe {
        if T == TOKENS && tile.ahead.is_empty() {
            chunks_of::<_, T, SCALES, false>(&Packed, tile);
        } else {
            chunks_of::<_, T, SCALES, true>(&Packed, tile);
        }
    }
}

/// The function that packs and multiplies, for formats with blocks of less than 256.
pub const fn both<F: Format>() -> Option<PackAndMultiply> {
    if const { F::ELEMENTS == 256 } {
        None
    } else if const { F::M.is_some() } {
        Some((TOKENS, packing::<F, { scales::MINIMUM }>))
    } else if const { F::FLOAT_GROUPS } {
        Some((TOKENS, packing::<F, { scales::HALVES }>))
    } else {
        Some((TOKENS, packing::<F, { scales::ONE }>))
    }
}

#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
unsafe fn packing<F: Format, const SCALES: u8>(pack: &Pack<'_>, tile: &Tile<'_>) {
    // SAFETY: the caller promises the same.
    unsafe { chunks_of::<_, TOKENS, SCALES, true>(&Packing::<F>(pack, PhantomData), tile) }
}

/// A panel of weights. Its chunks are packed either before the multiplication ([`Packed`]) or when they are first
/// needed ([`Packing`]).
///
/// # Safety
///
/// After `chunk(b)` the panel contains chunk `b`.
unsafe trait Source {
    /// Number of chunks of a panel that are packed before the panel's first chunk is multiplied.
    const LEAD: usize;
    /// Ensures that chunk `b` is in the panel.
    ///
    /// # Safety
    ///
    /// The processor has AVX-512, and this function was called for all earlier chunks.
    unsafe fn chunk(&self, b: usize);
    /// Loads the floats of a line of the panel: `d` or `m` of each row. Each line is loaded once.
    ///
    /// # Safety
    ///
    /// The processor has AVX-512, and the line is in the panel.
    unsafe fn floats<const M: bool>(&self, line: *const u8) -> __m512;
}

/// A panel that is already packed.
struct Packed;

// SAFETY: the panel contains all chunks from the start.
unsafe impl Source for Packed {
    const LEAD: usize = 0;
    #[inline(always)]
    unsafe fn chunk(&self, _: usize) {}
    #[inline(always)]
    unsafe fn floats<const M: bool>(&self, line: *const u8) -> __m512 {
        // SAFETY: the caller promises the line.
        unsafe { _mm512_loadu_ps(line.cast()) }
    }
}

/// A panel that is packed while it is multiplied.
struct Packing<'a, F>(&'a Pack<'a>, PhantomData<F>);

// SAFETY: a block is packed when the first chunk of the block is requested.
unsafe impl<F: Format> Source for Packing<'_, F> {
    /// Each chunk is packed one step before it is multiplied. If it were multiplied at once, the vector load of a line
    /// would have to wait, because the floats of the line are stored one by one.
    const LEAD: usize = 1;
    #[inline(always)]
    unsafe fn chunk(&self, b: usize) {
        let chunks = F::ELEMENTS / 32;
        if b.is_multiple_of(chunks) {
            // SAFETY: the caller promises AVX-512 and valid arguments of packing.
            unsafe { pack::block::<F, true, false, true>(self.0, b / chunks) };
        }
    }
    /// Converts a line of f16 of the panel to floats. Also stores the floats in the panel, because the next tokens are
    /// multiplied with the converted panel.
    #[inline(always)]
    unsafe fn floats<const M: bool>(&self, line: *const u8) -> __m512 {
        // SAFETY: the caller promises the line, which is in the panel that this value packs.
        unsafe {
            let Some((_, factor)) = (if M { F::M } else { F::D }) else { return _mm512_loadu_ps(line.cast()) };
            let halves = _mm256_loadu_si256(line.cast());
            let floats = _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(factor));
            _mm512_storeu_ps(line.cast_mut().cast(), floats);
            floats
        }
    }
}

#[inline(always)]
unsafe fn chunks_of<S: Source, const T: usize, const SCALES: u8, const AHEAD: bool>(source: &S, tile: &Tile<'_>) {
    // SAFETY: the caller promises AVX-512 with VNNI; the tile has `T` tokens, and a panel that is packed, or that
    // `source` packs.
    unsafe {
        prefetch::<T>(tile);
        let (q, d, sums) = (tile.q::<T>(), tile.d::<T>(32), tile.sums::<T>());
        let chunks = tile.cols / 32;
        let mut ahead = Ahead::new(tile.ahead, chunks);
        let mut acc = [_mm512_setzero_ps(); T];
        let size = chunk_size(if SCALES == scales::ONE { 1 } else { 2 });
        let less = -i32::from(tile.bias);
        for next in 0..chunks + S::LEAD {
            if next < chunks {
                source.chunk(next);
            }
            if next < S::LEAD {
                continue;
            }
            let b = next - S::LEAD;
            if AHEAD {
                ahead.step();
            }
            let w = tile.panel.add(b * size);
            let line = |line: usize| w.add(CODES + line * LINE);
            let of = |t: usize, selection| sum(sums[t].add(b * 2), selection);
            let q = further(q, b * 32);
            let d = |t: usize| *d[t].add(b);
            if SCALES == scales::HALVES {
                for (half, selection) in [Selection::First, Selection::Second].into_iter().enumerate() {
                    let mut sums = [_mm512_setzero_si512(); T];
                    sums.iter_mut()
                        .enumerate()
                        .for_each(|(t, sums)| *sums = _mm512_set1_epi32(less * of(t, selection)));
                    products::<T, 4>(&mut sums, w.add(half * 4 * LINE), further(q, half * 16));
                    let scale = source.floats::<false>(line(half));
                    for (t, (acc, sums)) in acc.iter_mut().zip(sums).enumerate() {
                        *acc = add(*acc, scale, d(t), sums);
                    }
                }
                continue;
            }
            let mut sums = [_mm512_setzero_si512(); T];
            sums.iter_mut().enumerate().for_each(|(t, sums)| *sums = _mm512_set1_epi32(less * of(t, Selection::Both)));
            products::<T, 8>(&mut sums, w, q);
            let scale = source.floats::<false>(line(0));
            for (t, (acc, sums)) in acc.iter_mut().zip(sums).enumerate() {
                *acc = add(*acc, scale, d(t), sums);
            }
            if SCALES == scales::MINIMUM {
                let scale = source.floats::<true>(line(1));
                for (t, acc) in acc.iter_mut().enumerate() {
                    *acc = add(*acc, scale, d(t), _mm512_set1_epi32(of(t, Selection::Both)));
                }
            }
        }
        for (out, acc) in tile.out::<T>().into_iter().zip(acc) {
            _mm512_storeu_ps(out, acc);
        }
    }
}

#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn blocks<const SHORT: bool, const T: usize, const GROUP: usize, const MINIMUMS: bool>(
    tile: &Tile<'_>,
) {
    // SAFETY: the caller promises the same.
    unsafe {
        if T == TOKENS && tile.ahead.is_empty() {
            blocks_of::<SHORT, T, GROUP, MINIMUMS, false>(tile);
        } else {
            blocks_of::<SHORT, T, GROUP, MINIMUMS, true>(tile);
        }
    }
}

#[inline(always)]
unsafe fn blocks_of<const SHORT: bool, const T: usize, const GROUP: usize, const MINIMUMS: bool, const AHEAD: bool>(
    tile: &Tile<'_>,
) {
    // SAFETY: the caller promises AVX-512 with VNNI; the tile has a packed panel and `T` tokens.
    unsafe {
        prefetch::<T>(tile);
        let layout = const { BlockLayout::of(GROUP, MINIMUMS) };
        let (q, d, sums) = (tile.q::<T>(), tile.d::<T>(256), tile.sums::<T>());
        let mut ahead = Ahead::new(tile.ahead, tile.cols / GROUP);
        let mut acc = [_mm512_setzero_ps(); T];
        for b in 0..tile.cols / 256 {
            let w = tile.panel.add(b * layout.size);
            let pairs = || {
                let mut total = [_mm512_setzero_si512(); T];
                for p in 0..8 {
                    let w = _mm512_loadu_si512(w.add(layout.pairs + p * LINE).cast());
                    for (total, sums) in total.iter_mut().zip(sums) {
                        *total = words_by(*total, w, sums.add(b * 16 + p * 2));
                    }
                }
                total
            };
            let mut total = if MINIMUMS { [_mm512_setzero_si512(); T] } else { pairs() };
            for group in 0..256 / GROUP {
                if AHEAD {
                    ahead.step();
                }
                let mut sums = [_mm512_setzero_si512(); T];
                let q = further(q, b * 256 + group * GROUP);
                if GROUP == 32 {
                    products::<T, 8>(&mut sums, w.add(group * 8 * LINE), q);
                } else {
                    products::<T, 4>(&mut sums, w.add(group * 4 * LINE), q);
                }
                let scale = _mm512_loadu_si512(w.add(BlockLayout::SCALES + group * LINE).cast());
                // If sums are short, each lane has an i16 sum in its lower word. The upper word has only copies of the
                // sum's sign, so it is multiplied by zero.
                let scale = if SHORT { _mm512_maskz_mov_epi16(0x5555_5555, scale) } else { scale };
                for (total, sums) in total.iter_mut().zip(sums) {
                    *total = if SHORT {
                        words512(*total, sums, scale)
                    } else {
                        _mm512_add_epi32(*total, _mm512_mullo_epi32(sums, scale))
                    };
                }
            }
            let scale = _mm512_loadu_ps(w.add(layout.d).cast());
            for (t, (acc, total)) in acc.iter_mut().zip(total).enumerate() {
                *acc = add(*acc, scale, *d[t].add(b), total);
            }
            if MINIMUMS {
                let scale = _mm512_loadu_ps(w.add(layout.m).cast());
                for (t, (acc, total)) in acc.iter_mut().zip(pairs()).enumerate() {
                    *acc = add(*acc, scale, *d[t].add(b), total);
                }
            }
        }
        for (out, acc) in tile.out::<T>().into_iter().zip(acc) {
            _mm512_storeu_ps(out, acc);
        }
    }
}
