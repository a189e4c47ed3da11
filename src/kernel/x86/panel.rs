//! Prefill: a packed panel of 16 rows times several tokens.
//!
//! For each 32 weights of a row, a panel has 512 bytes and 64 bytes of scales: four bytes of each
//! of 16 rows side by side, eight times over, unsigned (the weight plus 128); then the 16 rows'
//! f32 scales. One instruction multiplies four bytes of 16 (or 8) rows with four activations that
//! are broadcast from memory, so that rows are lanes from the first byte to the last and nothing
//! is added across.

use core::arch::x86_64::*;
use core::marker::PhantomData;

use super::decode::{Format, Q4_0, Q8_0};
use crate::kernel::linear::PANEL_ROWS;
use crate::kernel::quantized::{Blocks, Panel};
use crate::kernel::{Acts, Row};

/// Bytes of a panel for 32 weights of each row: the weights, then the scales.
const WEIGHTS: usize = PANEL_ROWS * 32;
const BLOCK: usize = WEIGHTS + PANEL_ROWS * 4;

/// A 32-block format `F`, decoded by `K` and multiplied by `P`.
pub(super) struct Shapes<K, F, P>(PhantomData<(K, F, P)>);

/// A block's weights as signed or unsigned bytes plus what makes them unsigned by 128.
pub(super) trait Pack: Format {
    unsafe fn unsigned(block: *const u8) -> __m256i;
}

impl Pack for Q8_0 {
    #[inline(always)]
    unsafe fn unsigned(block: *const u8) -> __m256i {
        // SAFETY: the caller has AVX2 and a block.
        unsafe { _mm256_xor_si256(_mm256_loadu_si256(block.add(2).cast()), _mm256_set1_epi8(-128)) }
    }
}

impl Pack for Q4_0 {
    #[inline(always)]
    unsafe fn unsigned(block: *const u8) -> __m256i {
        // SAFETY: the caller has AVX2 and a block.
        unsafe {
            let q = _mm_loadu_si128(block.add(2).cast());
            let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(q), _mm_srli_epi16::<4>(q));
            _mm256_add_epi8(_mm256_and_si256(both, _mm256_set1_epi8(15)), _mm256_set1_epi8(120))
        }
    }
}

/// The product of a panel with `T` tokens.
pub(super) trait Multiply {
    unsafe fn multiply<const T: usize>(panel: *const u8, cols: usize, x: &Acts<'_>, first: usize, out: [*mut f32; T]);
}

impl<K: Blocks, F: Pack, P: Multiply> Blocks for Shapes<K, F, P> {
    const ROWS: usize = K::ROWS;
    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        // SAFETY: passed on to the caller.
        unsafe { K::dot(w, row_bytes, x, out) }
    }
    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        K::dot_one(row, x)
    }
}

impl<K: Blocks, F: Pack, P: Multiply> Panel for Shapes<K, F, P> {
    #[inline(always)]
    unsafe fn pack(w: *const u8, row_bytes: usize, rows: usize, cols: usize, panel: *mut u8) {
        // SAFETY: the caller has AVX2, `rows` rows, and room for `cols / 32` blocks. Rows that are
        // missing repeat the last one.
        unsafe {
            for b in 0..cols / 32 {
                let to = panel.add(b * BLOCK);
                let row = |r: usize| w.add(r.min(rows - 1) * row_bytes + b * F::BYTES);
                // The next panel comes from memory while this one is multiplied.
                for r in PANEL_ROWS..2 * PANEL_ROWS {
                    _mm_prefetch::<_MM_HINT_T1>(w.wrapping_add(r * row_bytes + b * F::BYTES).cast());
                }
                for r in (0..PANEL_ROWS).step_by(4) {
                    let [a, b, c, d] = [row(r), row(r + 1), row(r + 2), row(r + 3)];
                    let [a, b, c, d] = [F::unsigned(a), F::unsigned(b), F::unsigned(c), F::unsigned(d)];
                    // Transpose four rows of four dwords, in both halves at once.
                    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                    let (ab2, cd2) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                    let columns = [
                        _mm256_unpacklo_epi64(ab, cd),
                        _mm256_unpackhi_epi64(ab, cd),
                        _mm256_unpacklo_epi64(ab2, cd2),
                        _mm256_unpackhi_epi64(ab2, cd2),
                    ];
                    for (k, column) in columns.into_iter().enumerate() {
                        let at = to.add(k * 64 + r * 4);
                        _mm_storeu_si128(at.cast(), _mm256_castsi256_si128(column));
                        _mm_storeu_si128(at.add(256).cast(), _mm256_extracti128_si256::<1>(column));
                    }
                }
                let scales: *mut f32 = to.add(WEIGHTS).cast();
                for r in 0..PANEL_ROWS {
                    let d = row(r).add(F::SCALE_AT).cast::<i16>().read_unaligned();
                    scales.add(r).write_unaligned(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(d.into()))));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn multiply<const T: usize>(panel: *const u8, cols: usize, x: &Acts<'_>, first: usize, out: [*mut f32; T]) {
        // SAFETY: passed on to the caller.
        unsafe { P::multiply(panel, cols, x, first, out) }
    }

    #[inline(always)]
    fn prefetch(out: *const f32) {
        // SAFETY: a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(out.cast()) };
    }
}

/// Four activations in every dword.
#[inline(always)]
unsafe fn four(x: *const i8) -> i32 {
    // SAFETY: the caller has four activations.
    unsafe { x.cast::<i32>().read_unaligned() }
}

/// 16 rows in a 512-bit register.
pub(super) struct Vnni512;
impl Multiply for Vnni512 {
    #[inline(always)]
    unsafe fn multiply<const T: usize>(panel: *const u8, cols: usize, x: &Acts<'_>, first: usize, out: [*mut f32; T]) {
        let blocks = cols / 32;
        // SAFETY: the caller has AVX-512 with VNNI, a packed panel and tokens `first..first + T`.
        unsafe {
            let q = x.q.as_ptr().add(first * cols);
            let d = x.d.as_ptr().add(first * blocks);
            let offsets = x.offsets.as_ptr().add(first * blocks);
            let mut acc = [_mm512_setzero_ps(); T];
            for b in 0..blocks {
                let w = panel.add(b * BLOCK);
                let mut sums = [_mm512_setzero_si512(); T];
                for (t, sums) in sums.iter_mut().enumerate() {
                    *sums = _mm512_set1_epi32(*offsets.add(t * blocks + b));
                }
                for k in 0..8 {
                    let w = _mm512_loadu_si512(w.add(k * 64).cast());
                    for (t, sums) in sums.iter_mut().enumerate() {
                        let x = _mm512_set1_epi32(four(q.add(t * cols + b * 32 + k * 4)));
                        *sums = _mm512_dpbusd_epi32(*sums, w, x);
                    }
                }
                let scale = _mm512_loadu_ps(w.add(WEIGHTS).cast());
                for (t, (acc, sums)) in acc.iter_mut().zip(sums).enumerate() {
                    let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*d.add(t * blocks + b)));
                    *acc = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sums), *acc);
                }
            }
            for (out, acc) in out.into_iter().zip(acc) {
                _mm512_storeu_ps(out, acc);
            }
        }
    }
}

/// Eight rows in a 256-bit register; the panel in two halves.
pub(super) struct Vnni;
impl Multiply for Vnni {
    #[inline(always)]
    unsafe fn multiply<const T: usize>(panel: *const u8, cols: usize, x: &Acts<'_>, first: usize, out: [*mut f32; T]) {
        // SAFETY: as for the function called, which gets AVX-VNNI's instruction.
        unsafe {
            multiply_halves::<T, __m256i>(
                panel,
                cols,
                x,
                first,
                out,
                |sums, w, x| {
                    let w = _mm256_loadu_si256(w.cast());
                    _mm256_dpbusd_avx_epi32(sums, w, _mm256_set1_epi32(four(x)))
                },
                |sums| sums,
            );
        }
    }
}

/// Eight rows in two registers of 16-bit products, which are added in pairs at the end of a block.
pub(super) struct Madd;
impl Multiply for Madd {
    #[inline(always)]
    unsafe fn multiply<const T: usize>(panel: *const u8, cols: usize, x: &Acts<'_>, first: usize, out: [*mut f32; T]) {
        // SAFETY: as for the function called, which gets AVX2's instructions.
        unsafe {
            multiply_halves::<T, [__m256i; 2]>(
                panel,
                cols,
                x,
                first,
                out,
                |[low, high], w, x| {
                    let w = |at: usize| _mm256_cvtepu8_epi16(_mm_loadu_si128(w.add(at).cast()));
                    let x = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(four(x))));
                    [
                        _mm256_add_epi32(low, _mm256_madd_epi16(w(0), x)),
                        _mm256_add_epi32(high, _mm256_madd_epi16(w(16), x)),
                    ]
                },
                |[low, high]| _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(low, high)),
            );
        }
    }
}

/// What accumulates products for eight rows.
trait Sums: Copy {
    unsafe fn zero() -> Self;
}
impl Sums for __m256i {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_setzero_si256() }
    }
}
impl Sums for [__m256i; 2] {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { [_mm256_setzero_si256(); 2] }
    }
}

/// `step` adds the products of four bytes of eight rows with four activations; `finish` gives the
/// eight rows' sums.
#[inline(always)]
unsafe fn multiply_halves<const T: usize, S: Sums>(
    panel: *const u8,
    cols: usize,
    x: &Acts<'_>,
    first: usize,
    out: [*mut f32; T],
    step: impl Fn(S, *const u8, *const i8) -> S,
    finish: impl Fn(S) -> __m256i,
) {
    let blocks = cols / 32;
    // SAFETY: the caller has AVX2 and FMA, a packed panel and tokens `first..first + T`.
    unsafe {
        let q = x.q.as_ptr().add(first * cols);
        let d = x.d.as_ptr().add(first * blocks);
        let offsets = x.offsets.as_ptr().add(first * blocks);
        for half in 0..2 {
            let mut acc = [_mm256_setzero_ps(); T];
            for b in 0..blocks {
                let w = panel.add(b * BLOCK + half * 32);
                let mut sums = [S::zero(); T];
                for k in 0..8 {
                    for (t, sums) in sums.iter_mut().enumerate() {
                        *sums = step(*sums, w.add(k * 64), q.add(t * cols + b * 32 + k * 4));
                    }
                }
                let scale = _mm256_loadu_ps(panel.add(b * BLOCK + WEIGHTS + half * 32).cast());
                for (t, (acc, sums)) in acc.iter_mut().zip(sums).enumerate() {
                    let sum = _mm256_add_epi32(finish(sums), _mm256_set1_epi32(*offsets.add(t * blocks + b)));
                    let scale = _mm256_mul_ps(scale, _mm256_set1_ps(*d.add(t * blocks + b)));
                    *acc = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sum), *acc);
                }
            }
            for (out, acc) in out.into_iter().zip(acc) {
                _mm256_storeu_ps(out.add(half * 8), acc);
            }
        }
    }
}
