//! Prefill: multiplies a packed panel of 16 rows with several tokens. Formats with the same panel layout share these
//! functions.

use core::arch::x86_64::*;

use super::ahead::{self, Ahead};
use super::bytes::{in_order, opaque};
use super::pack::{BlockLayout, CODES, LINE, chunk_size};
use super::products::fits_i16;
use crate::kernel::panel::{functions, scales};
use crate::kernel::quantized::{Multiply, PackAndMultiply, Tile, further};
use crate::quant::Format;

/// The sum of 32 activations, or of the first or last 16 of them, from the two stored sums of 16. The addition uses the
/// otherwise idle integer unit, because with vector registers it would take 8 % of the total time.
#[inline(always)]
unsafe fn sum(sums: *const i16, selection: Selection) -> i32 {
    // SAFETY: the caller promises two sums.
    unsafe {
        let [first, second] = [i32::from(*sums), i32::from(*sums.add(1))];
        match selection {
            Selection::Both => first + second,
            Selection::First => first,
            Selection::Second => second,
        }
    }
}

/// The activations whose sum [`sum`] computes.
#[derive(Clone, Copy)]
enum Selection {
    Both,
    First,
    Second,
}

mod amx;
mod avx512;

/// For each of the next `T` tokens, prefetches the cache line that the outputs will be written to. These lines are too
/// far apart for the hardware prefetcher.
#[inline(always)]
fn prefetch<const T: usize>(tile: &Tile<'_>) {
    for t in T..2 * T {
        ahead::prefetch::<_MM_HINT_T1>(tile.out.wrapping_add(t * tile.stride).cast());
    }
}

/// Multiplies eight rows of a panel at a time, in a 256-bit register. The two halves of the panel are multiplied one
/// after the other.
///
/// # Safety
///
/// `products` reads only the codes and the activations that its documentation names.
unsafe trait EightRows {
    /// Multiplies `STEPS` lines of codes with activations and adds the products to `sums`. Lines are [`LINE`] bytes
    /// apart. A line has four codes of each of eight rows, and is multiplied with four activations. If there is a
    /// scale, the products are multiplied by it.
    ///
    /// # Safety
    ///
    /// The processor has the instruction set; `w` has the codes and each `q` has `4 * STEPS` activations.
    unsafe fn products<const T: usize, const STEPS: usize>(
        sums: &mut [__m256i; T],
        w: *const u8,
        q: [*const i8; T],
        scale: Option<__m256i>,
    );
    /// True if the codes of the format are signed, so that there is no bias to subtract.
    const SIGNED: bool = false;
}

/// Products by AVX-VNNI.
struct Vnni;
// SAFETY: reads `STEPS` lines of codes, and four activations per line.
unsafe impl EightRows for Vnni {
    #[inline(always)]
    unsafe fn products<const T: usize, const STEPS: usize>(
        to: &mut [__m256i; T],
        w: *const u8,
        q: [*const i8; T],
        scale: Option<__m256i>,
    ) {
        // SAFETY: the caller promises the codes, the activations and the instruction set.
        unsafe {
            let mut sums = if scale.is_some() { [_mm256_setzero_si256(); T] } else { *to };
            for k in 0..STEPS {
                let w = _mm256_loadu_si256(w.add(k * LINE).cast());
                for (sums, q) in sums.iter_mut().zip(q) {
                    *sums = _mm256_dpbusd_avx_epi32(
                        *sums,
                        w,
                        _mm256_set1_epi32(q.add(k * 4).cast::<i32>().read_unaligned()),
                    );
                }
            }
            for (to, sums) in to.iter_mut().zip(sums) {
                *to = scale.map_or(sums, |scale| _mm256_add_epi32(*to, _mm256_mullo_epi32(sums, scale)));
            }
        }
    }
}

/// Multiplies by AVX2. `2 * FIT` products of codes and activations can be added in an i16. If `FIT` is 0, not even two
/// products can, and the codes are signed.
struct Madd<const FIT: usize>;
// SAFETY: reads `STEPS` lines of codes, and four activations per line.
unsafe impl<const FIT: usize> EightRows for Madd<FIT> {
    const SIGNED: bool = FIT == 0;
    #[inline(always)]
    unsafe fn products<const T: usize, const STEPS: usize>(
        to: &mut [__m256i; T],
        w: *const u8,
        q: [*const i8; T],
        scale: Option<__m256i>,
    ) {
        // SAFETY: the caller promises the codes, the activations and the instruction set.
        unsafe {
            // The scale in both words of a lane.
            let scale = scale.map_or(_mm256_set1_epi16(1), |scale| {
                _mm256_or_si256(_mm256_slli_epi32::<16>(scale), _mm256_and_si256(scale, _mm256_set1_epi32(0xffff)))
            });
            if FIT == 0 {
                // The steps are written out by a macro, because the compiler would not unroll a loop over them for four
                // tokens.
                macro_rules! steps {
                    ($($k:literal)*) => { $(
                        if $k < STEPS {
                            let w = _mm256_loadu_si256(w.add($k * LINE).cast());
                            let size = _mm256_abs_epi8(w);
                            in_order();
                            for (to, q) in to.iter_mut().zip(q) {
                                let x = _mm256_set1_epi32(q.add($k * 4).cast::<i32>().read_unaligned());
                                let products = _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, w));
                                *to = opaque(_mm256_add_epi32(*to, _mm256_madd_epi16(products, scale)));
                            }
                        }
                    )* };
                }
                steps!(0 1 2 3 4 5 6 7);
                return;
            }
            let fit = if FIT < STEPS { FIT } else { STEPS };
            for first in (0..STEPS).step_by(fit.max(1)) {
                let mut sums = [_mm256_setzero_si256(); T];
                for k in first..first + fit {
                    let w = _mm256_loadu_si256(w.add(k * LINE).cast());
                    for (sums, q) in sums.iter_mut().zip(q) {
                        let products =
                            _mm256_maddubs_epi16(w, _mm256_set1_epi32(q.add(k * 4).cast::<i32>().read_unaligned()));
                        *sums = if k == first { products } else { _mm256_add_epi16(*sums, products) };
                    }
                }
                for (to, sums) in to.iter_mut().zip(sums) {
                    *to = opaque(_mm256_add_epi32(*to, _mm256_madd_epi16(sums, scale)));
                }
            }
        }
    }
}

/// `acc + sum * w * x`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add(acc: __m256, w: __m256, x: f32, sum: __m256i) -> __m256 {
    _mm256_fmadd_ps(_mm256_mul_ps(w, _mm256_set1_ps(x)), _mm256_cvtepi32_ps(sum), acc)
}

#[inline(always)]
unsafe fn chunks<E: EightRows, const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
    // SAFETY: the caller promises the instruction set; the tile has a packed panel and `T` tokens.
    unsafe {
        prefetch::<T>(tile);
        let (q, d, sums) = (tile.q::<T>(), tile.d::<T>(32), tile.sums::<T>());
        let size = chunk_size(if SCALES == scales::ONE { 1 } else { 2 });
        let mut ahead = Ahead::new(tile.ahead, 2 * tile.cols / 32);
        let less = if E::SIGNED { 0 } else { -i32::from(tile.bias) };
        for half in 0..2 {
            let mut acc = [_mm256_setzero_ps(); T];
            for b in 0..tile.cols / 32 {
                ahead.step();
                let w = tile.panel.add(b * size + half * (LINE / 2));
                let floats = |line: usize| _mm256_loadu_ps(w.add(CODES + line * LINE).cast());
                let of = |t: usize, selection| sum(sums[t].add(b * 2), selection);
                let q = further(q, b * 32);
                let d = |t: usize| *d[t].add(b);
                if SCALES == scales::HALVES {
                    for (half, selection) in [Selection::First, Selection::Second].into_iter().enumerate() {
                        let mut sums = [_mm256_setzero_si256(); T];
                        for (t, sums) in sums.iter_mut().enumerate() {
                            *sums = _mm256_set1_epi32(less * of(t, selection));
                        }
                        let q = further(q, half * 16);
                        E::products::<T, 4>(&mut sums, w.add(half * 4 * LINE), q, None);
                        for (t, (acc, sums)) in acc.iter_mut().zip(sums).enumerate() {
                            *acc = add(*acc, floats(half), d(t), sums);
                        }
                    }
                    continue;
                }
                let mut sums = [_mm256_setzero_si256(); T];
                for (t, sums) in sums.iter_mut().enumerate() {
                    *sums = _mm256_set1_epi32(less * of(t, Selection::Both));
                }
                E::products::<T, 8>(&mut sums, w, q, None);
                for (t, (acc, sums)) in acc.iter_mut().zip(sums).enumerate() {
                    *acc = add(*acc, floats(0), d(t), sums);
                    if SCALES == scales::MINIMUM {
                        *acc = add(*acc, floats(1), d(t), _mm256_set1_epi32(of(t, Selection::Both)));
                    }
                }
            }
            for (out, acc) in tile.out::<T>().into_iter().zip(acc) {
                _mm256_storeu_ps(out.add(half * 8), acc);
            }
        }
    }
}

#[inline(always)]
unsafe fn blocks<E: EightRows, const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
    // SAFETY: the caller promises the instruction set; the tile has a packed panel and `T` tokens.
    unsafe {
        prefetch::<T>(tile);
        let layout = const { BlockLayout::of(GROUP, MINIMUMS) };
        let (q, d, sums) = (tile.q::<T>(), tile.d::<T>(256), tile.sums::<T>());
        let mut ahead = Ahead::new(tile.ahead, 2 * tile.cols / GROUP);
        for half in 0..2 {
            let mut acc = [_mm256_setzero_ps(); T];
            for b in 0..tile.cols / 256 {
                let w = tile.panel.add(b * layout.size + half * (LINE / 2));
                let pairs = || {
                    let mut total = [_mm256_setzero_si256(); T];
                    for p in 0..8 {
                        let w = _mm256_loadu_si256(w.add(layout.pairs + p * LINE).cast());
                        for (total, sums) in total.iter_mut().zip(sums) {
                            let x = _mm256_set1_epi32(sums.add(b * 16 + p * 2).cast::<i32>().read_unaligned());
                            *total = _mm256_add_epi32(*total, _mm256_madd_epi16(w, x));
                        }
                    }
                    total
                };
                let mut total = if MINIMUMS || E::SIGNED { [_mm256_setzero_si256(); T] } else { pairs() };
                for group in 0..256 / GROUP {
                    ahead.step();
                    let q = further(q, b * 256 + group * GROUP);
                    let scale = Some(_mm256_loadu_si256(w.add(BlockLayout::SCALES + group * LINE).cast()));
                    if GROUP == 32 {
                        E::products::<T, 8>(&mut total, w.add(group * 8 * LINE), q, scale);
                    } else {
                        E::products::<T, 4>(&mut total, w.add(group * 4 * LINE), q, scale);
                    }
                }
                let scale = _mm256_loadu_ps(w.add(layout.d).cast());
                for (t, (acc, total)) in acc.iter_mut().zip(total).enumerate() {
                    *acc = add(*acc, scale, *d[t].add(b), total);
                }
                if MINIMUMS {
                    let scale = _mm256_loadu_ps(w.add(layout.m).cast());
                    for (t, (acc, total)) in acc.iter_mut().zip(pairs()).enumerate() {
                        *acc = add(*acc, scale, *d[t].add(b), total);
                    }
                }
            }
            for (out, acc) in tile.out::<T>().into_iter().zip(acc) {
                _mm256_storeu_ps(out.add(half * 8), acc);
            }
        }
    }
}

/// The largest power of two `fit`, at most 8, for which the sum of `2 * fit` products of codes and activations fits an
/// i16. 0 if not even the sum of two products fits.
const fn fit<F: Format>() -> usize {
    let mut fit = 8;
    while fit > 0 && !fits_i16::<F>(2 * fit) {
        fit /= 2;
    }
    fit as usize
}

/// Defines the functions that multiply with [`EightRows`], in a module that is compiled for an instruction set.
macro_rules! eight {
    ($name:ident, $features:literal) => {
        mod $name {
            use super::*;

            pub const fn of<F: Format, E: EightRows>() -> &'static [Multiply] {
                functions!(F, [E,], 4 2 1)
            }

            #[target_feature(enable = $features)]
            unsafe fn chunks<E: EightRows, const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
                // SAFETY: the caller promises the same.
                unsafe { super::chunks::<E, T, SCALES>(tile) }
            }

            #[target_feature(enable = $features)]
            unsafe fn blocks<E: EightRows, const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
                // SAFETY: the caller promises the same.
                unsafe { super::blocks::<E, T, GROUP, MINIMUMS>(tile) }
            }
        }
    };
}
eight!(avx2, "avx2,fma,f16c");
eight!(avxvnni, "avx2,fma,f16c,avxvnni");

/// The functions for a format under AVX2.
pub(super) const fn avx2<F: Format>() -> &'static [Multiply] {
    if const { fit::<F>() == 0 } {
        avx2::of::<F, Madd<0>>()
    } else if const { fit::<F>() == 1 } {
        avx2::of::<F, Madd<1>>()
    } else if const { fit::<F>() == 2 } {
        avx2::of::<F, Madd<2>>()
    } else if const { fit::<F>() == 4 } {
        avx2::of::<F, Madd<4>>()
    } else {
        avx2::of::<F, Madd<8>>()
    }
}

/// The functions for a format under AVX-VNNI.
pub(super) const fn avxvnni<F: Format>() -> &'static [Multiply] {
    avxvnni::of::<F, Vnni>()
}

/// The functions for a format under AVX-512 with VNNI.
pub(super) const fn avx512<F: Format>() -> &'static [Multiply] {
    avx512::of::<F>()
}

/// The function for a format that packs and multiplies under AVX-512, if there is one.
pub(super) const fn avx512_both<F: Format>() -> Option<PackAndMultiply> {
    avx512::both::<F>()
}

/// The functions for a format under AMX.
pub(super) const fn amx<F: Format>() -> &'static [Multiply] {
    amx::of::<F>()
}
pub(super) use amx::span as amx_span;
