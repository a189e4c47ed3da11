//! Decode of blocks of 256 with low-bit scales under AVX-512: 64 codes of a row per register, and the scales of four
//! rows per register.
//!
//! The bottleneck of these formats is not memory but the number of instructions per block, because scales of six bits
//! take as many instructions as the products. Therefore scales and minimums are unpacked for four rows at once, each
//! row in a quarter of a register, and multiplied with sums of four products, which are packed to i16 if they fit.

use core::arch::x86_64::*;

use bytemuck::must_cast;

use super::ahead;
use super::bytes::in_order;
use super::products::words512;
use crate::quant::formats::iq4_nl::TABLE;
use crate::quant::{Format, TensorType, bytes_at};

/// True if this module has functions for the format.
pub(super) const fn has<F: Format>() -> bool {
    matches!(F::KIND, TensorType::Q2_K | TensorType::Q3_K | TensorType::Q4_K | TensorType::IQ4_XS)
}

/// The activations of a block, arranged for the products with eight rows.
#[derive(Clone, Copy)]
pub(super) struct Activations {
    /// 64 activations per register, in the order of [`order`].
    q: [__m512i; 4],
    /// The sums of each group's activations, as i16. If a group has 32 weights, each quarter of the register has all
    /// eight sums. If a group has 16 weights, one quarter has the sums of the even groups, and the next quarter has
    /// those of the odd groups.
    sums: __m512i,
}

/// The order of a block in four registers: for each register, the numbers of the chunks in its lower and upper half. IQ4_XS
/// has another order: the first halves of chunks 0 to 3, their second halves, then the same for chunks 4 to 7.
const fn order<F: Format>() -> [[usize; 2]; 4] {
    match F::KIND {
        TensorType::Q4_K => [[0, 2], [1, 3], [4, 6], [5, 7]],
        _ => [[0, 1], [2, 3], [4, 5], [6, 7]],
    }
}

impl Activations {
    pub const NONE: Self = Self { q: [must_cast([0u8; 64]); 4], sums: must_cast([0u8; 64]) };

    #[inline]
    #[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
    pub fn new<F: Format>(q: &[i8; 256], sums: &[i16; 16]) -> Self {
        let q: [__m256i; 8] = must_cast(*q);
        let two = |[a, b]: [usize; 2]| _mm512_inserti64x4::<1>(_mm512_castsi256_si512(q[a]), q[b]);
        let [a, b, c, d] = const { order::<F>() };
        let sums = must_cast(*sums);
        let sums = if F::GROUP == 16 {
            let apart =
                _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
            let apart = _mm256_shuffle_epi8(sums, apart);
            _mm512_broadcast_i64x4(_mm256_permute4x64_epi64::<0b11_01_10_00>(apart))
        } else {
            _mm512_broadcast_i32x4(_mm256_cvtepi32_epi16(_mm256_madd_epi16(sums, _mm256_set1_epi16(1))))
        };
        let q = [two(a), two(b), two(c), two(d)];
        let q = if const { fits_in_words::<F>() } {
            q
        } else {
            // Separates the first and the second halves of chunks, as the codes of IQ4_XS are.
            let first = |a, b| _mm512_shuffle_i64x2::<0x88>(a, b);
            let second = |a, b| _mm512_shuffle_i64x2::<0xdd>(a, b);
            [first(q[0], q[1]), second(q[0], q[1]), first(q[2], q[3]), second(q[2], q[3])]
        };
        Self { q, sums }
    }

    /// Multiplies the sums of activations by the scales or minimums of four rows. A row's product is the sum of the
    /// four lanes in its quarter.
    #[inline]
    #[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
    fn of_sums<F: Format>(&self, [first, last]: [__m512i; 2]) -> __m512i {
        let first = _mm512_madd_epi16(first, self.sums);
        if F::GROUP == 32 {
            return first;
        }
        let last = _mm512_madd_epi16(last, self.sums);
        _mm512_add_epi32(_mm512_shuffle_i64x2::<0x88>(first, last), _mm512_shuffle_i64x2::<0xdd>(first, last))
    }

    /// Sixteen i32 whose sum is the dot product of a row's block, before the contribution of the bias is subtracted.
    #[inline]
    #[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
    fn dot<F: Format>(&self, codes: &[__m512i; 4], scales: &[__m512i; 2]) -> __m512i {
        let add_dot = |acc, i: usize| _mm512_dpbusd_epi32(acc, codes[i], self.q[i]);
        let dot = |i: usize| add_dot(_mm512_setzero_si512(), i);
        if const { fits_in_words::<F>() } {
            let acc = _mm512_madd_epi16(_mm512_packs_epi32(dot(0), dot(1)), scales[0]);
            words512(acc, _mm512_packs_epi32(dot(2), dot(3)), scales[1])
        } else {
            // Registers 2i and 2i + 1 have the two halves of the same chunks, so one scale serves both.
            let scaled = |i: usize| _mm512_mullo_epi32(add_dot(dot(2 * i), 2 * i + 1), scales[i]);
            _mm512_add_epi32(scaled(0), scaled(1))
        }
    }
}

/// True if the sum of four products fits an i16.
const fn fits_in_words<F: Format>() -> bool {
    F::MAX as u32 * 127 * 4 <= 32767
}

/// Arranges the scales of a row as factors for [`Activations::dot`]. Every quarter of the register `scales` has the
/// scales of the whole row.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn factors<F: Format>(scales: __m512i) -> [__m512i; 2] {
    if const { fits_in_words::<F>() } {
        let [a, b, c, d] = const { order::<F>() };
        let two = |a: [usize; 2], b: [usize; 2]| _mm512_shuffle_epi8(scales, four_times([a[0], b[0]], [a[1], b[1]]));
        [two(a, b), two(c, d)]
    } else {
        [0, 4].map(|first| _mm512_srai_epi32::<16>(_mm512_shuffle_epi8(scales, upper(first))))
    }
}

/// Multiplies a block of each of eight rows with each token. Returns, for each token, the integer dot products and the
/// sums for the minimums, each with the even rows first, then the odd rows. Meanwhile, as many bytes as eight blocks
/// have are prefetched from `ahead` into the second-level cache.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
pub(super) fn dots<F: Format, const T: usize>(
    x: &[Activations; T],
    blocks: &[&F::Block; 8],
    ahead: *const u8,
) -> [[__m256i; 2]; T] {
    let zero = _mm512_setzero_si512();
    let (mut sums, mut extra, mut minimums) = ([[zero; 2]; T], [[zero; 2]; T], [[zero; 2]; T]);
    macro_rules! four {
        ($four:literal: $($row:literal)*) => {
            let four = FourRows::new::<F>(blocks, 4 * $four);
            let mut all = [[zero; 4]; T];
            for (t, x) in x.iter().enumerate() {
                if F::BIAS > 0 {
                    extra[t][$four] = x.of_sums::<F>(four.scales);
                }
                if F::M.is_some() {
                    minimums[t][$four] = x.of_sums::<F>(four.minimums);
                }
            }
            $(
                prefetch::<F>(ahead, 4 * $four + $row);
                let (w, scales) = (codes::<F>(blocks[4 * $four + $row]), factors::<F>(four.of_row::<F, $row>()));
                for (x, all) in x.iter().zip(&mut all) {
                    all[$row] = x.dot::<F>(&w, &scales);
                }
                in_order();
            )*
            for (sums, all) in sums.iter_mut().zip(all) {
                sums[$four] = quarters_of(all);
            }
        };
    }
    four!(0: 0 1 2 3);
    four!(1: 0 1 2 3);
    core::array::from_fn(|t| {
        let mut sums = add_across(sums[t]);
        if F::BIAS > 0 {
            let extra = _mm256_mullo_epi32(add_across(extra[t]), _mm256_set1_epi32(F::BIAS.into()));
            sums = _mm256_sub_epi32(sums, extra);
        }
        [sums, if F::M.is_some() { add_across(minimums[t]) } else { _mm256_setzero_si256() }]
    })
}

/// Adds up the lanes of each of four registers to four lanes. The result has these four lanes for each register, one
/// register per quarter.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn quarters_of([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let half = |a, b| _mm512_add_epi32(_mm512_shuffle_i64x2::<0x88>(a, b), _mm512_shuffle_i64x2::<0xdd>(a, b));
    half(half(a, b), half(c, d))
}

/// Prefetches one eighth of the eight blocks at `at`; each row calls this with its index `row`. They are not prefetched
/// all at once, because this would delay the loads of the rows, which costs 4 % of the speed of Q4_K.
#[inline(always)]
fn prefetch<F: Format>(at: *const u8, row: usize) {
    let lines = (8 * size_of::<F::Block>()).div_ceil(64);
    for line in row * lines / 8..(row + 1) * lines / 8 {
        ahead::prefetch::<_MM_HINT_T1>(at.wrapping_add(64 * line));
    }
}

/// Indices for a byte shuffle that, in each quarter of a register, repeats one word four times and then a second word
/// four times. The two words are `first` in the lower half of the register, and `second` in the upper half.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn four_times(first: [usize; 2], second: [usize; 2]) -> __m512i {
    let word = |i: usize| (0x0100 + 0x0202 * i as i64) * 0x0001_0001_0001_0001;
    let quarter = |[low, high]: [usize; 2]| _mm_set_epi64x(word(high), word(low));
    _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(quarter(first)), 0xff00, quarter(second))
}

/// Indices for a byte shuffle that copies one word of the source to the upper word of every dword, and clears the lower
/// words. Quarter `j` of the register copies word `first + j`.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn upper(first: usize) -> __m512i {
    let dword = |lane: usize| ((0x0100 + 0x0202 * (first + lane / 4) as i32) << 16) | 0x8080;
    must_cast(core::array::from_fn::<i32, 16, _>(dword))
}

/// Adds the four lanes of each of eight rows. `first` and `last` have a row in each quarter; the result has the sums of
/// the even rows, then of the odd rows.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn add_across([first, last]: [__m512i; 2]) -> __m256i {
    let both = _mm512_add_epi32(_mm512_unpacklo_epi32(first, last), _mm512_unpackhi_epi32(first, last));
    let both = _mm512_add_epi32(both, _mm512_shuffle_epi32::<0b01_00_11_10>(both));
    let order = _mm512_setr_epi32(0, 8, 1, 9, 4, 12, 5, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, both))
}

/// Scales and minimums of four rows as i16. With groups of 32, each row has a quarter of the first register. With
/// groups of 16, each row has two quarters, one for its even groups and one for its odd groups, so a register has two
/// rows.
struct FourRows {
    scales: [__m512i; 2],
    minimums: [__m512i; 2],
}

impl FourRows {
    #[inline]
    #[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
    fn new<F: Format>(blocks: &[&F::Block; 8], first: usize) -> Self {
        let all = |byte: i8| _mm512_set1_epi8(byte);
        let pick = |low: i64, high: i64| _mm512_broadcast_i32x4(_mm_set_epi64x(high, low));
        let zero = _mm512_setzero_si512();
        match F::KIND {
            TensorType::Q4_K => {
                // Dword 1 has the six bits of scales 0 to 3, dword 2 the six bits of minimums 0 to 3. Dword 3 has the
                // low four bits of scales and minimums 4 to 7, whose high two bits are in the high bits of dwords 1 and
                // 2.
                let bytes = quarters::<F>(blocks, first, 0);
                let rest = _mm512_shuffle_epi32::<0b11_11_11_11>(bytes);
                let rest = _mm512_and_si512(_mm512_srlv_epi32(rest, _mm512_set1_epi64(4 << 32)), all(15));
                let firsts = _mm512_shuffle_epi32::<0b10_01_10_01>(bytes);
                let rest = _mm512_ternarylogic_epi32::<0xf8>(rest, _mm512_srli_epi32::<2>(firsts), all(0x30));
                let both = _mm512_unpacklo_epi32(_mm512_and_si512(firsts, all(0x3f)), rest);
                Self {
                    scales: [_mm512_unpacklo_epi8(both, zero), zero],
                    minimums: [_mm512_unpackhi_epi8(both, zero), zero],
                }
            }
            TensorType::Q3_K => {
                // Each of the bytes 2 to 9 has the low four bits of two scales. Each of the bytes 10 to 13 has the high
                // two bits of four scales.
                let bytes = quarters::<F>(blocks, first, 94);
                let low = _mm512_shuffle_epi8(bytes, pick(0x0908_0706_0504_0302, 0x0908_0706_0504_0302));
                let low = _mm512_srlv_epi64(low, _mm512_broadcast_i32x4(_mm_set_epi64x(4, 0)));
                let high = _mm512_shuffle_epi8(bytes, pick(0x0d0c_0b0a_0d0c_0b0a, 0x0d0c_0b0a_0d0c_0b0a));
                let high = _mm512_srlv_epi32(high, _mm512_broadcast_i32x4(_mm_setr_epi32(0, 2, 4, 6)));
                let high = _mm512_slli_epi16::<4>(_mm512_and_si512(high, all(3)));
                let scales = _mm512_ternarylogic_epi32::<0xf8>(high, low, all(15));
                Self { scales: two_rows(_mm512_sub_epi8(scales, all(32))), minimums: [zero; 2] }
            }
            TensorType::Q2_K => {
                let bytes = quarters::<F>(blocks, first, 0);
                Self {
                    scales: two_rows(_mm512_and_si512(bytes, all(15))),
                    minimums: two_rows(_mm512_and_si512(_mm512_srli_epi16::<4>(bytes), all(15))),
                }
            }
            TensorType::IQ4_XS => {
                // Bytes 2 and 3 have the high two bits of eight scales, bytes 4 to 7 have their low four bits.
                let bytes = quarters::<F>(blocks, first, 0);
                let low = _mm512_shuffle_epi8(
                    bytes,
                    pick(0x8005_8005_8004_8004_u64 as i64, 0x8007_8007_8006_8006_u64 as i64),
                );
                let low = _mm512_srlv_epi16(low, _mm512_set1_epi32(4 << 16));
                let low = _mm512_and_si512(low, _mm512_set1_epi16(15));
                let high = _mm512_shuffle_epi8(bytes, _mm512_set1_epi16(0x0302));
                let high = _mm512_srlv_epi16(high, _mm512_broadcast_i32x4(_mm_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14)));
                let high = _mm512_slli_epi16::<4>(_mm512_and_si512(high, _mm512_set1_epi16(3)));
                let scales = _mm512_sub_epi16(_mm512_or_si512(low, high), _mm512_set1_epi16(32));
                Self { scales: [scales, zero], minimums: [zero; 2] }
            }
            _ => Self { scales: [zero; 2], minimums: [zero; 2] },
        }
    }

    /// Spreads the scales of row `ROW` to all four quarters of a register. If groups have 16 weights, quarters with the
    /// scales of even groups alternate with quarters with those of odd groups.
    #[inline]
    #[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
    fn of_row<F: Format, const ROW: usize>(&self) -> __m512i {
        let [a, b] = self.scales;
        match (F::GROUP, ROW) {
            (32, 0) => _mm512_shuffle_i64x2::<0x00>(a, a),
            (32, 1) => _mm512_shuffle_i64x2::<0x55>(a, a),
            (32, 2) => _mm512_shuffle_i64x2::<0xaa>(a, a),
            (32, _) => _mm512_shuffle_i64x2::<0xff>(a, a),
            (_, 0) => _mm512_shuffle_i64x2::<0x44>(a, a),
            (_, 1) => _mm512_shuffle_i64x2::<0xee>(a, a),
            (_, 2) => _mm512_shuffle_i64x2::<0x44>(b, b),
            _ => _mm512_shuffle_i64x2::<0xee>(b, b),
        }
    }
}

/// Loads sixteen bytes, from byte `at` on, of each of four blocks, from block `first` on.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn quarters<F: Format>(blocks: &[&F::Block; 8], first: usize, at: usize) -> __m512i {
    let row = |r: usize| must_cast(*bytes_at::<16>(blocks[first + r].as_ref(), at));
    let ab = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(row(0)), row(1));
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(ab, row(2)), row(3))
}

/// Extends sixteen signed bytes of each of four rows to i16. Each register of the result has two of the rows: see
/// [`FourRows`].
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn two_rows(bytes: __m512i) -> [__m512i; 2] {
    let apart = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    let bytes = _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(apart));
    [_mm512_cvtepi8_epi16(_mm512_castsi512_si256(bytes)), _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64::<1>(bytes))]
}

/// Unpacks the codes of a block, 64 codes per register, in the order of [`order`].
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn codes<F: Format>(block: &F::Block) -> [__m512i; 4] {
    let block = block.as_ref();
    let load = |at: usize| must_cast::<_, __m512i>(*bytes_at::<64>(block, at));
    let half = |at: usize| must_cast::<_, __m256i>(*bytes_at::<32>(block, at));
    let twice = |at: usize| _mm512_broadcast_i64x4(half(at));
    let (nibble, two) = (_mm512_set1_epi8(15), _mm512_set1_epi8(3));
    let nibbles = |at: usize| {
        let (a, b) = (load(at), load(at + 64));
        [a, _mm512_srli_epi16::<4>(a), b, _mm512_srli_epi16::<4>(b)].map(|x| _mm512_and_si512(x, nibble))
    };
    // `x` with the bits of `mask` from `high` added.
    let or = |x, high, mask: i8| _mm512_ternarylogic_epi32::<0xf8>(x, high, _mm512_set1_epi8(mask));
    match F::KIND {
        TensorType::Q4_K => nibbles(16),
        TensorType::Q2_K => {
            let (a, b) = (twice(16), twice(48));
            [right(a, 0, 2), right(a, 4, 6), right(b, 0, 2), right(b, 4, 6)].map(|x| _mm512_and_si512(x, two))
        }
        TensorType::Q3_K => {
            let (a, b, high) = (twice(32), twice(64), twice(0));
            let low = [right(a, 0, 2), right(a, 4, 6), right(b, 0, 2), right(b, 4, 6)];
            let [a, b, c, d] = low.map(|x| _mm512_and_si512(x, two));
            let third = [left(high, 2, 1), right(high, 0, 1), right(high, 2, 3), right(high, 4, 5)];
            [or(a, third[0], 4), or(b, third[1], 4), or(c, third[2], 4), or(d, third[3], 4)]
        }
        TensorType::IQ4_XS => {
            let table = _mm512_broadcast_i32x4(must_cast(*TABLE));
            nibbles(8).map(|x| _mm512_shuffle_epi8(table, x))
        }
        _ => [_mm512_setzero_si512(); 4],
    }
}

/// Shifts words to the left, by `first` bits in the lower half and by `second` bits in the upper half.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn left(x: __m512i, first: i16, second: i16) -> __m512i {
    _mm512_sllv_epi16(x, halves(first, second))
}

/// Shifts words to the right, by `first` bits in the lower half and by `second` bits in the upper half.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn right(x: __m512i, first: i16, second: i16) -> __m512i {
    _mm512_srlv_epi16(x, halves(first, second))
}

#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn halves(first: i16, second: i16) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_set1_epi16(first), _mm256_set1_epi16(second))
}
