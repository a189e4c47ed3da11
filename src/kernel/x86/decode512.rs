//! Decode with AVX-512: as in [`super::decode`], with two rows in a register.
//!
//! Rows `i` and `i + 4` share register `i`. One transposing tree then leaves the eight sums in order.

use core::arch::x86_64::*;

use super::decode::{Eight, Format, Q4_0, Q6K, Q8_0};

/// A block format, two rows at a time.
pub(super) trait Pair: Format {
    /// Partial sums of one row in the lower eight lanes and of the other in the upper ones; as
    /// [`Format::partial`].
    unsafe fn pair(a: *const u8, b: *const u8, x: *const i8, offsets: *const i32) -> __m512i;
}

/// 32 activations in both halves.
#[inline(always)]
unsafe fn twice(x: *const i8) -> __m512i {
    // SAFETY: the caller has AVX-512 and 32 activations.
    unsafe { _mm512_broadcast_i64x4(_mm256_loadu_si256(x.cast())) }
}

impl Pair for Q8_0 {
    #[inline(always)]
    unsafe fn pair(a: *const u8, b: *const u8, x: *const i8, _: *const i32) -> __m512i {
        // SAFETY: the caller has AVX-512 with VNNI, two blocks and their activations.
        unsafe {
            let a = _mm512_castsi256_si512(_mm256_loadu_si256(a.add(2).cast()));
            let w = _mm512_inserti64x4::<1>(a, _mm256_loadu_si256(b.add(2).cast()));
            let w = _mm512_xor_si512(w, _mm512_set1_epi8(-128));
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, twice(x))
        }
    }
}

impl Pair for Q4_0 {
    #[inline(always)]
    unsafe fn pair(a: *const u8, b: *const u8, x: *const i8, _: *const i32) -> __m512i {
        // SAFETY: the caller has AVX-512 with VNNI, two blocks and their activations.
        unsafe {
            let load = |block: *const u8| _mm_loadu_si128(block.add(2).cast());
            let w = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load(a)), 0xff00, load(b));
            // The low nibbles of each row, then the high ones.
            let shift = _mm512_broadcast_i64x4(_mm256_setr_epi64x(0, 0, 0x0004_0004_0004_0004, 0x0004_0004_0004_0004));
            let w = _mm512_and_si512(_mm512_srlv_epi16(w, shift), _mm512_set1_epi8(15));
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, twice(x))
        }
    }
}

impl Pair for Q6K {
    #[inline(always)]
    unsafe fn pair(a: *const u8, b: *const u8, x: *const i8, offsets: *const i32) -> __m512i {
        // SAFETY: passed on to the caller.
        unsafe {
            let a = _mm512_castsi256_si512(q6_k(a, x, offsets));
            _mm512_inserti64x4::<1>(a, q6_k(b, x, offsets))
        }
    }
}

/// A super-block of one row, 64 weights at a time.
#[inline(always)]
unsafe fn q6_k(block: *const u8, x: *const i8, offsets: *const i32) -> __m256i {
    // SAFETY: the caller has AVX-512 with VNNI, a block (128 low bytes, 64 high bytes, 16 scales),
    // 256 activations and 16 offsets.
    unsafe {
        let scales = _mm512_cvtepi8_epi32(_mm_loadu_si128(block.add(192).cast()));
        let mut acc = _mm512_mullo_epi32(scales, _mm512_loadu_si512(offsets.cast()));
        let halves = |low: i16, high: i16| _mm512_inserti64x4::<1>(_mm512_set1_epi16(low), _mm256_set1_epi16(high));
        let (left, right) = (halves(4, 2), halves(0, 2));
        let (nibble, bits) = (_mm512_set1_epi8(15), _mm512_set1_epi8(0x30));
        // Each scale in four lanes.
        let mut pick = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        for half in 0..2 {
            let low = _mm512_loadu_si512(block.add(half * 64).cast());
            let high = _mm512_broadcast_i64x4(_mm256_loadu_si256(block.add(128 + half * 32).cast()));
            let quarters =
                [(low, _mm512_sllv_epi16(high, left)), (_mm512_srli_epi16::<4>(low), _mm512_srlv_epi16(high, right))];
            for (k, (low, high)) in quarters.into_iter().enumerate() {
                // low nibble | (high & bits)
                let w = _mm512_ternarylogic_epi32::<0xf8>(_mm512_and_si512(low, nibble), high, bits);
                let x = _mm512_loadu_si512(x.add(half * 128 + k * 64).cast());
                let sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, x);
                acc = _mm512_add_epi32(acc, _mm512_mullo_epi32(sums, _mm512_permutexvar_epi32(pick, scales)));
                pick = _mm512_add_epi32(pick, _mm512_set1_epi32(4));
            }
        }
        _mm256_add_epi32(_mm512_castsi512_si256(acc), _mm512_extracti64x4_epi64::<1>(acc))
    }
}

/// Eight rows in four registers.
pub(super) struct Pairs;

impl<F: Pair> Eight<F> for Pairs {
    #[inline(always)]
    unsafe fn sums(block: *const u8, row_bytes: usize, x: *const i8, offsets: *const i32) -> __m256i {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut sums = [_mm512_setzero_si512(); 4];
            for (r, sums) in sums.iter_mut().enumerate() {
                *sums = F::pair(block.add(r * row_bytes), block.add((r + 4) * row_bytes), x, offsets);
            }
            add_across(sums)
        }
    }
}

/// Lane `r` of the result is the sum of the lower lanes of `rows[r]`, lane `r + 4` of the upper ones.
#[inline(always)]
unsafe fn add_across(rows: [__m512i; 4]) -> __m256i {
    // SAFETY: the caller has AVX-512.
    unsafe {
        let [a, b, c, d] = rows;
        let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        // Each 128 bits now hold a partial sum of a, b, c and d.
        let sums = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
        let (low, high) = (_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64::<1>(sums));
        _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high))
    }
}
