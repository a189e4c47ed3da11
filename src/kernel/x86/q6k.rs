//! Q6_K under AVX-512: the integer dot product of a row's block, faster than the general code of `decode::block_sums`.

use core::arch::x86_64::*;

use bytemuck::must_cast;

use super::products::words512;
use crate::quant::bytes_at;

/// Multiplies a Q6_K block with each of `T` tokens. A token's result is a register of eight i32; their sum is the dot
/// product. The sum of four products of a 6-bit code and an 8-bit activation fits an i16. Therefore the sums of one
/// half of the weights and of the next are packed into one register of i16, and one instruction multiplies them with
/// their scales. `extra` is the contribution of the codes' bias, and is subtracted.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
pub(super) fn sums512<const T: usize>(block: &[u8], x: &[&[i8; 256]; T], extra: [__m256i; T]) -> [__m256i; T] {
    // A block has 128 bytes of low bits, 64 bytes of high bits and 16 scales.
    let scales = must_cast(*bytes_at::<16>(block, 192));
    let scales = _mm256_cvtepi8_epi16(scales);
    let scales = _mm512_castsi256_si512(scales);
    let mut acc = [_mm512_setzero_si512(); T];
    // `pick` repeats each scale in four words, in the order of the packed sums: a scale of the first 64 weights, then a
    // scale of the second 64.
    const fn four(scale: i64) -> i64 {
        scale * 0x0001_0001_0001_0001
    }
    let mut pick = _mm512_setr_epi64(four(0), four(4), four(1), four(5), four(2), four(6), four(3), four(7));
    let halves = |low: i16, high: i16| _mm512_inserti64x4::<1>(_mm512_set1_epi16(low), _mm256_set1_epi16(high));
    let (left, right) = (halves(4, 2), halves(0, 2));
    for half in 0..2 {
        let low = must_cast(*bytes_at::<64>(block, half * 64));
        let high = _mm512_broadcast_i64x4(must_cast(*bytes_at::<32>(block, 128 + half * 32)));
        let first = weights(low, _mm512_sllv_epi16(high, left));
        let second = weights(_mm512_srli_epi16::<4>(low), _mm512_srlv_epi16(high, right));
        let scales = _mm512_permutexvar_epi16(pick, scales);
        for (acc, x) in acc.iter_mut().zip(x) {
            let x: [[i8; 64]; 4] = must_cast(**x);
            let dot = |w, x: [i8; 64]| _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, must_cast(x));
            let (first, second) = (dot(first, x[2 * half]), dot(second, x[2 * half + 1]));
            *acc = words512(*acc, _mm512_packs_epi32(first, second), scales);
        }
        pick = _mm512_add_epi16(pick, _mm512_set1_epi16(8));
    }
    core::array::from_fn(|t| {
        let sum = _mm256_add_epi32(_mm512_castsi512_si256(acc[t]), _mm512_extracti64x4_epi64::<1>(acc[t]));
        _mm256_sub_epi32(sum, extra[t])
    })
}

/// Joins the bits of 64 codes. Each code has its low four bits in a byte of `low` and its high two bits in `high`.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn weights(low: __m512i, high: __m512i) -> __m512i {
    let (nibble, bits) = (_mm512_set1_epi8(15), _mm512_set1_epi8(0x30));
    // low nibble | (high & bits)
    _mm512_ternarylogic_epi32::<0xf8>(_mm512_and_si512(low, nibble), high, bits)
}
