//! Q6_K: the integer dot product of a super-block of one row.

use core::arch::x86_64::*;

use super::decode::Dot;

/// Eight i32 whose sum is the product, 32 weights at a time.
#[inline(always)]
pub(super) unsafe fn sums<D: Dot>(block: *const u8, x: *const i8, offsets: *const i32) -> __m256i {
    // SAFETY: the caller has the features, a block (128 low bytes, 64 high bytes, 16 scales), 256
    // activations and 16 offsets.
    unsafe {
        let scales = _mm256_cvtepi8_epi16(_mm_loadu_si128(block.add(192).cast()));
        let low_scales = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(scales));
        let high_scales = _mm256_cvtepi16_epi32(_mm256_extracti128_si256::<1>(scales));
        let mut acc = _mm256_add_epi32(
            _mm256_mullo_epi32(low_scales, _mm256_loadu_si256(offsets.cast())),
            _mm256_mullo_epi32(high_scales, _mm256_loadu_si256(offsets.add(8).cast())),
        );
        let (nibble, bits) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
        for half in 0..2 {
            let scales = if half == 0 { low_scales } else { high_scales };
            let low = block.add(half * 64);
            let (a, b) = (_mm256_loadu_si256(low.cast()), _mm256_loadu_si256(low.add(32).cast()));
            let high = _mm256_loadu_si256(block.add(128 + half * 32).cast());
            let quarters = [
                (a, _mm256_slli_epi16::<4>(high)),
                (b, _mm256_slli_epi16::<2>(high)),
                (_mm256_srli_epi16::<4>(a), high),
                (_mm256_srli_epi16::<4>(b), _mm256_srli_epi16::<2>(high)),
            ];
            for (k, (low, high)) in quarters.into_iter().enumerate() {
                let w = _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(high, bits));
                let sums =
                    D::dot(_mm256_setzero_si256(), w, D::x(_mm256_loadu_si256(x.add(half * 128 + k * 32).cast())));
                // Four lanes for each of two scales.
                let (first, second) = (2 * k as i32, 2 * k as i32 + 1);
                let pick = _mm256_setr_epi32(first, first, first, first, second, second, second, second);
                let scale = _mm256_permutevar8x32_epi32(scales, pick);
                acc = _mm256_add_epi32(acc, _mm256_mullo_epi32(sums, scale));
            }
        }
        acc
    }
}

/// The same, 64 weights at a time. Four products of 6 and 8 bits fit into 16: the sums of two times 64
/// weights are packed and meet their scales in one instruction.
#[inline(always)]
pub(super) unsafe fn sums512(block: *const u8, x: *const i8, offsets: *const i32) -> __m256i {
    // SAFETY: the caller has AVX-512 with VNNI, a block (128 low bytes, 64 high bytes, 16 scales),
    // 256 activations and 16 offsets.
    unsafe {
        let scales = _mm_loadu_si128(block.add(192).cast());
        let mut acc = _mm512_mullo_epi32(_mm512_cvtepi8_epi32(scales), _mm512_loadu_si512(offsets.cast()));
        let scales = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(scales));
        // Each scale in four words: one of the first 64 weights, then one of the others.
        const fn four(scale: i64) -> i64 {
            scale * 0x0001_0001_0001_0001
        }
        let mut pick = _mm512_setr_epi64(four(0), four(4), four(1), four(5), four(2), four(6), four(3), four(7));
        let halves = |low: i16, high: i16| _mm512_inserti64x4::<1>(_mm512_set1_epi16(low), _mm256_set1_epi16(high));
        let (left, right) = (halves(4, 2), halves(0, 2));
        for half in 0..2 {
            let low = _mm512_loadu_si512(block.add(half * 64).cast());
            let high = _mm512_broadcast_i64x4(_mm256_loadu_si256(block.add(128 + half * 32).cast()));
            let x = x.add(half * 128);
            let first = dot512(low, _mm512_sllv_epi16(high, left), x);
            let second = dot512(_mm512_srli_epi16::<4>(low), _mm512_srlv_epi16(high, right), x.add(64));
            let scales = _mm512_permutexvar_epi16(pick, scales);
            acc = _mm512_dpwssd_epi32(acc, _mm512_packs_epi32(first, second), scales);
            pick = _mm512_add_epi16(pick, _mm512_set1_epi16(8));
        }
        _mm256_add_epi32(_mm512_castsi512_si256(acc), _mm512_extracti64x4_epi64::<1>(acc))
    }
}

/// Of 64 weights, the low nibbles of `low` and two bits of `high`: sums of four products.
#[inline(always)]
unsafe fn dot512(low: __m512i, high: __m512i, x: *const i8) -> __m512i {
    // SAFETY: the caller has AVX-512 with VNNI and 64 activations.
    unsafe {
        let (nibble, bits) = (_mm512_set1_epi8(15), _mm512_set1_epi8(0x30));
        // low nibble | (high & bits)
        let w = _mm512_ternarylogic_epi32::<0xf8>(_mm512_and_si512(low, nibble), high, bits);
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, _mm512_loadu_si512(x.cast()))
    }
}
