//! Sixteen rows in a 512-bit register.

use core::arch::x86_64::*;
use core::marker::PhantomData;

use super::super::ahead::Ahead;
use super::super::pack::{self, CODES, LINE, Whole, piece};
use super::super::products::{fits_i16, words_by, words512};
use super::{four, prefetch, scales};
use crate::kernel::quantized::{MAX_TOKENS, Multiply, Pack, PackAndMultiply, Tile};
use crate::quant::Format;

/// The functions for a format; the first constant says whether a group's sum of products fits 16 bits.
pub const fn of<F: Format>() -> &'static [Multiply] {
    if const { F::ELEMENTS == 256 && fits_i16::<F>(F::GROUP as u32) } {
        functions!(F, [true,], 8 4 2 1)
    } else {
        functions!(F, [false,], 8 4 2 1)
    }
}

/// Adds the products of `STEPS` times four codes of 16 rows at `w` with the activations.
#[inline(always)]
unsafe fn products<const T: usize, const STEPS: usize>(sums: &mut [__m512i; T], w: *const u8, q: [*const i8; T]) {
    // SAFETY: the caller has AVX-512 with VNNI, the codes and the activations.
    unsafe {
        for k in 0..STEPS {
            let w = _mm512_loadu_si512(w.add(k * LINE).cast());
            for (sums, q) in sums.iter_mut().zip(q) {
                *sums = _mm512_dpbusd_epi32(*sums, w, _mm512_set1_epi32(four(q.add(k * 4))));
            }
        }
    }
}

/// `acc` plus the sum times both scales.
#[inline(always)]
unsafe fn add(acc: __m512, w: __m512, x: f32, sum: __m512i) -> __m512 {
    // SAFETY: the caller has AVX-512.
    unsafe { _mm512_fmadd_ps(_mm512_mul_ps(w, _mm512_set1_ps(x)), _mm512_cvtepi32_ps(sum), acc) }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni")]
unsafe fn pieces<const SHORT: bool, const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        if T == MAX_TOKENS && tile.ahead.is_empty() {
            pieces_of::<_, T, SCALES, false>(&Packed, tile);
        } else {
            pieces_of::<_, T, SCALES, true>(&Packed, tile);
        }
    }
}

/// The function that packs and multiplies, for formats with blocks of less than 256.
pub const fn both<F: Format>() -> Option<PackAndMultiply> {
    if const { F::ELEMENTS == 256 } {
        None
    } else if const { F::M.is_some() } {
        Some((MAX_TOKENS, packing::<F, { scales::MINIMUM }>))
    } else if const { F::FLOAT_GROUPS } {
        Some((MAX_TOKENS, packing::<F, { scales::HALVES }>))
    } else {
        Some((MAX_TOKENS, packing::<F, { scales::ONE }>))
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni")]
unsafe fn packing<F: Format, const SCALES: u8>(pack: &Pack<'_>, tile: &Tile<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { pieces_of::<_, MAX_TOKENS, SCALES, true>(&Packing::<F>(pack, PhantomData), tile) }
}

/// Where the pieces of a panel come from, 32 weights of each row.
///
/// # Safety
///
/// After `piece` the panel has what its name says.
unsafe trait Source {
    /// How many pieces are packed before the first is multiplied.
    const EARLIER: usize;
    /// Piece `b` is in the panel after this.
    ///
    /// # Safety
    ///
    /// The caller has AVX-512; the pieces before this one have been asked for.
    unsafe fn piece(&self, b: usize);
    /// The numbers in a line of the panel, `d` or `m` of each row. Asked for once.
    ///
    /// # Safety
    ///
    /// The caller has AVX-512, and the line is in the panel.
    unsafe fn floats<const M: bool>(&self, line: *const u8) -> __m512;
}

/// A panel that is packed.
struct Packed;

// SAFETY: nothing is to be done.
unsafe impl Source for Packed {
    const EARLIER: usize = 0;
    #[inline(always)]
    unsafe fn piece(&self, _: usize) {}
    #[inline(always)]
    unsafe fn floats<const M: bool>(&self, line: *const u8) -> __m512 {
        // SAFETY: the caller has the line.
        unsafe { _mm512_loadu_ps(line.cast()) }
    }
}

/// A panel that is packed on the way.
struct Packing<'a, F>(&'a Pack<'a>, PhantomData<F>);

// SAFETY: blocks are packed when their first piece is asked for.
unsafe impl<F: Format> Source for Packing<'_, F> {
    /// Numbers that were written one by one cannot be loaded together at once.
    const EARLIER: usize = 1;
    #[inline(always)]
    unsafe fn piece(&self, b: usize) {
        let pieces = F::ELEMENTS / 32;
        if b.is_multiple_of(pieces) {
            // SAFETY: passed on to the caller.
            unsafe { pack::block::<F, true, false, true>(self.0, b / pieces) };
        }
    }
    /// Makes f16 into what the next tokens read.
    #[inline(always)]
    unsafe fn floats<const M: bool>(&self, line: *const u8) -> __m512 {
        // SAFETY: the caller has the line, which is the panel's, and the panel is ours to write.
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
unsafe fn pieces_of<S: Source, const T: usize, const SCALES: u8, const AHEAD: bool>(source: &S, tile: &Tile<'_>) {
    // SAFETY: the caller has AVX-512 with VNNI; the tile has `T` tokens and a panel that is packed, or is by `source`.
    unsafe {
        prefetch::<T>(tile);
        let (q, d, sums) = (tile.q::<T>(), tile.d::<T>(32), tile.sums::<T>());
        let pieces = tile.cols / 32;
        let mut ahead = Ahead::new(tile.ahead, pieces);
        let mut acc = [_mm512_setzero_ps(); T];
        let size = piece(if SCALES == scales::ONE { 1 } else { 2 });
        // What meets two sums of activations to take back the bias of both halves, or of one.
        let less = -i16::from(tile.bias);
        let words = |low: i16, high: i16| _mm512_set1_epi32(i32::from(high) << 16 | i32::from(low) & 0xffff);
        let (zero, one) = (_mm512_setzero_si512(), _mm512_set1_epi16(1));
        for next in 0..pieces + S::EARLIER {
            if next < pieces {
                source.piece(next);
            }
            if next < S::EARLIER {
                continue;
            }
            let b = next - S::EARLIER;
            if AHEAD {
                ahead.step();
            }
            let w = tile.panel.add(b * size);
            let line = |line: usize| w.add(CODES + line * LINE);
            let of = |t: usize, factors| words_by(zero, factors, sums[t].add(b * 2));
            let q = q.map(|q| q.add(b * 32));
            let d = |t: usize| *d[t].add(b);
            if SCALES == scales::HALVES {
                for (half, less) in [words(less, 0), words(0, less)].into_iter().enumerate() {
                    let mut sums: [_; T] = core::array::from_fn(|t| of(t, less));
                    products::<T, 4>(&mut sums, w.add(half * 4 * LINE), q.map(|q| q.add(half * 16)));
                    let scale = source.floats::<false>(line(half));
                    for (t, (acc, sums)) in acc.iter_mut().zip(sums).enumerate() {
                        *acc = add(*acc, scale, d(t), sums);
                    }
                }
                continue;
            }
            let mut sums: [_; T] = core::array::from_fn(|t| of(t, words(less, less)));
            products::<T, 8>(&mut sums, w, q);
            let scale = source.floats::<false>(line(0));
            for (t, (acc, sums)) in acc.iter_mut().zip(sums).enumerate() {
                *acc = add(*acc, scale, d(t), sums);
            }
            if SCALES == scales::MINIMUM {
                let scale = source.floats::<true>(line(1));
                for (t, acc) in acc.iter_mut().enumerate() {
                    *acc = add(*acc, scale, d(t), of(t, one));
                }
            }
        }
        for (out, acc) in tile.out::<T>().into_iter().zip(acc) {
            _mm512_storeu_ps(out, acc);
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni")]
unsafe fn whole<const SHORT: bool, const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        if T == MAX_TOKENS && tile.ahead.is_empty() {
            whole_of::<SHORT, T, GROUP, MINIMUMS, false>(tile);
        } else {
            whole_of::<SHORT, T, GROUP, MINIMUMS, true>(tile);
        }
    }
}

#[inline(always)]
unsafe fn whole_of<const SHORT: bool, const T: usize, const GROUP: usize, const MINIMUMS: bool, const AHEAD: bool>(
    tile: &Tile<'_>,
) {
    // SAFETY: the caller has AVX-512 with VNNI; the tile has a packed panel and `T` tokens.
    unsafe {
        prefetch::<T>(tile);
        let places = const { Whole::of(GROUP, MINIMUMS) };
        let (q, d, sums) = (tile.q::<T>(), tile.d::<T>(256), tile.sums::<T>());
        let mut ahead = Ahead::new(tile.ahead, tile.cols / GROUP);
        let mut acc = [_mm512_setzero_ps(); T];
        for b in 0..tile.cols / 256 {
            let w = tile.panel.add(b * places.size);
            let pairs = || {
                let mut total = [_mm512_setzero_si512(); T];
                for p in 0..8 {
                    let w = _mm512_loadu_si512(w.add(places.pairs + p * LINE).cast());
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
                let q = q.map(|q| q.add(b * 256 + group * GROUP));
                if GROUP == 32 {
                    products::<T, 8>(&mut sums, w.add(group * 8 * LINE), q);
                } else {
                    products::<T, 4>(&mut sums, w.add(group * 4 * LINE), q);
                }
                let scale = _mm512_loadu_si512(w.add(Whole::SCALES + group * LINE).cast());
                // The sum is a word and its sign, which meets zero.
                let scale = if SHORT { _mm512_maskz_mov_epi16(0x5555_5555, scale) } else { scale };
                for (total, sums) in total.iter_mut().zip(sums) {
                    *total = if SHORT {
                        words512(*total, sums, scale)
                    } else {
                        _mm512_add_epi32(*total, _mm512_mullo_epi32(sums, scale))
                    };
                }
            }
            let scale = _mm512_loadu_ps(w.add(places.d).cast());
            for (t, (acc, total)) in acc.iter_mut().zip(total).enumerate() {
                *acc = add(*acc, scale, *d[t].add(b), total);
            }
            if MINIMUMS {
                let scale = _mm512_loadu_ps(w.add(places.m).cast());
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
