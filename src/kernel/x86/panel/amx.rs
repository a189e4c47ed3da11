//! Prefill with 16 rows by 16 tokens in a tile of Intel AMX. The panel is the same as for AVX-512: the codes of a group
//! fill a tile. AVX-512 multiplies the sums by scales, and also multiplies the last tokens of a batch, which do not
//! fill a tile.

use core::arch::asm;
use core::arch::x86_64::*;

use super::super::ahead::Ahead;
use super::super::amx::{Scratch, TOKENS};
use super::super::pack::{BlockLayout, CODES, LINE, chunk_size};
use super::super::products::{fits_i16, words_by, words512};
use super::{avx512, prefetch};
use crate::kernel::panel::{functions, scales};
use crate::kernel::quantized::{Multiply, Tile};
use crate::quant::Format;

/// Number of consecutive weights of a row that one product of tiles multiplies. All of these weights have the same
/// scale.
pub const fn span<F: Format>() -> usize {
    if F::ELEMENTS == 256 && F::GROUP == 16 || F::FLOAT_GROUPS { 16 } else { 32 }
}

/// Returns the functions that multiply a panel of a format. Their first generic argument is true if the sum of a
/// group's products fits in an i16.
pub const fn of<F: Format>() -> &'static [Multiply] {
    const { assert!(F::M.is_none() || F::BIAS == 0 && !F::FLOAT_GROUPS) }
    if const { F::ELEMENTS == 256 && fits_i16::<F>(F::GROUP as u32) } {
        functions!(F, [true,], 16 8 4 2 1)
    } else {
        functions!(F, [false,], 16 8 4 2 1)
    }
}

/// Returns `acc + sum * w * x`. This is assembly, because the instruction has several forms. The form used here keeps
/// `acc` in its register. With the forms that the compiler would choose, it copies all accumulators for every group and
/// keeps some of them in memory.
#[inline]
#[target_feature(enable = "avx512f")]
fn add(mut acc: __m512, w: __m512, x: f32, sum: __m512i) -> __m512 {
    let (w, sum) = (_mm512_mul_ps(w, _mm512_set1_ps(x)), _mm512_cvtepi32_ps(sum));
    // SAFETY: uses registers.
    unsafe {
        asm!("vfmadd231ps {}, {}, {}", inout(zmm_reg) acc, in(zmm_reg) w, in(zmm_reg) sum, options(pure, nomem, nostack))
    };
    acc
}

/// Returns `offset` and adds `stride` to it. This is also a compiler barrier: otherwise the compiler would compute the
/// offsets of all tokens beforehand and load the operands of all tokens at once, and run out of registers.
#[inline(always)]
fn next(offset: &mut usize, stride: usize) -> usize {
    let at = *offset;
    // SAFETY: adds two registers.
    unsafe { asm!("add {}, {}", inout(reg) *offset, in(reg) stride, options(nostack)) };
    at
}

/// Runs an expression for each token `t`. The values of the token are at byte `at` of an array, `stride` bytes after
/// the values of the previous token. This is not a loop, because a loop would not be unrolled, and its accumulators
/// would be in memory.
macro_rules! each {
    ($t:ident, ($at:ident, $first:expr, $stride:expr), $body:expr) => {{
        let (mut offset, stride): (usize, usize) = ($first, $stride);
        each!($t, {
            let $at = next(&mut offset, stride);
            $body;
        });
    }};
    ($t:ident, $body:expr) => {
        each!(@ $t, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $t:ident, $body:expr, $($n:literal)*) => {{
        $(
            let $t = $n;
            $body;
        )*
    }};
}

/// Returns the chunk that contains the group `g` of weights. If a chunk has two groups, also returns in which half of
/// the chunk the group is, 0 or 1; otherwise this is 0.
#[inline(always)]
fn place<const SCALES: u8>(g: usize) -> (usize, usize) {
    if SCALES == scales::HALVES { (g / 2, g % 2) } else { (g, 0) }
}

#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
unsafe fn chunks<const SHORT: bool, const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
    // SAFETY: the caller promises AVX-512 with VNNI, and tiles; the tile has a packed panel and `T` tokens.
    unsafe {
        if T != TOKENS {
            return avx512::chunks::<SHORT, T, SCALES>(tile);
        }
        prefetch::<T>(tile);
        let ([q], [d], [sums]) = (tile.q::<1>(), tile.d::<1>(32), tile.sums::<1>());
        let size = chunk_size(if SCALES == scales::ONE { 1 } else { 2 });
        let span = if SCALES == scales::HALVES { 16 } else { 32 };
        let groups = if SCALES == scales::HALVES { tile.cols / 16 } else { tile.cols / 32 };
        let mut ahead = Ahead::new(tile.ahead, groups);
        let mut scratch = Scratch::new();
        let multiply = |scratch: &mut Scratch, g: usize| {
            let (b, half) = place::<SCALES>(g);
            scratch.multiply(g, tile.panel.add(b * size + half * (CODES / 2)), q.add(g * span), tile.cols);
        };
        // Each sum of activations is multiplied by one of these factors and added. This subtracts the bias from both
        // halves of a chunk or from one half.
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
            let (b, half) = place::<SCALES>(g);
            let floats = |line: usize| _mm512_loadu_ps(tile.panel.add(b * size + CODES + line * LINE).cast());
            let (scale, less) = (floats(half), if half == 0 { less[0] } else { less[1] });
            let minimum = if SCALES == scales::MINIMUM { floats(1) } else { scale };
            // `at` is an offset in bytes of the scales and of the sums. It is the same for both, because a scale has as
            // many bytes as two sums.
            each!(t, (at, b * 4, tile.cols / 8), {
                let d = *d.byte_add(at);
                let of = |to, factors| words_by(to, factors, sums.byte_add(at));
                let sum = scratch.token(g, t);
                if SCALES == scales::MINIMUM {
                    acc[t] = add(acc[t], scale, d, sum);
                    acc[t] = add(acc[t], minimum, d, of(zero, one));
                } else {
                    acc[t] = add(acc[t], scale, d, of(sum, less));
                }
            });
        }
        each!(t, _mm512_storeu_ps(tile.out.add(t * tile.stride), acc[t]));
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
        let ([q], [d], [sums]) = (tile.q::<1>(), tile.d::<1>(256), tile.sums::<1>());
        let (groups, per_block) = (tile.cols / GROUP, 256 / GROUP);
        let mut ahead = Ahead::new(tile.ahead, groups);
        let mut scratch = Scratch::new();
        let multiply = |scratch: &mut Scratch, g: usize| {
            // The divisors are constants, because the compiler must assume that a captured variable can be 0, if the
            // compiler does not inline the closure.
            let (b, group) = (g / (256 / GROUP), g % (256 / GROUP));
            let w = tile.panel.add(b * layout.size + group * (GROUP / 4 * LINE));
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
                    each!(t, (at, (b * 8 + p) * 4, tile.cols / 8), {
                        total[t] = words_by(total[t], w, sums.byte_add(at));
                    });
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
                // See the comment in `avx512::blocks_of`.
                let scale = if SHORT { _mm512_maskz_mov_epi16(0x5555_5555, scale) } else { scale };
                each!(t, {
                    let sums = scratch.token(g, t);
                    total[t] = if SHORT {
                        words512(total[t], sums, scale)
                    } else {
                        _mm512_add_epi32(total[t], _mm512_mullo_epi32(sums, scale))
                    };
                });
            }
            // `finish` is a macro and not a closure. A closure would not be inlined, so the accumulators that it uses
            // would be in memory.
            macro_rules! finish {
                ($line:expr, $total:expr) => {{
                    let (scale, total) = (_mm512_loadu_ps(w.add($line).cast()), $total);
                    each!(t, (at, b * 4, tile.cols / 64), acc[t] = add(acc[t], scale, *d.byte_add(at), total[t]));
                }};
            }
            finish!(layout.d, total);
            if MINIMUMS {
                finish!(layout.m, pairs());
            }
        }
        each!(t, _mm512_storeu_ps(tile.out.add(t * tile.stride), acc[t]));
    }
}
