//! Decode: eight rows of the file's own blocks times one token.
//!
//! Two rows share a 256-bit register, 16 bytes of each. The partial sums of eight rows are then four registers with
//! four lanes per row; one tree sums these registers across lanes, and one fused multiply-add serves all eight rows.
//! Wider registers gain nothing, except in the formats of [`wide`] and [`q6k`]. Eight rows are contiguous in memory,
//! but they are read as eight short streams, which the hardware prefetcher does not follow. Therefore later rows are
//! prefetched line by line while eight rows are computed.

use core::arch::x86_64::*;
use core::marker::PhantomData;
use core::ops::Range;

use bytemuck::must_cast;

use super::ahead;
use super::bytes::{Ymm, hide, opaque};
use super::products::{Dot, add_across, join, pairs, signed};
use super::q6k;
use super::wide;
use crate::kernel::job::Row;
use crate::kernel::quantized::Blocks;
use crate::quant::{Bytes, Format, Shape, TensorType, bytes_at};

/// Eight rows of format `F`, multiplied with the instructions of `D`.
pub(super) struct Rows<D, F>(PhantomData<(D, F)>);

impl<D: Dot, F: Format> Rows<D, F> {
    const BYTES: usize = size_of::<F::Block>();
    /// True if the sums of the next block are computed before the sums of the current block are scaled and added. The
    /// loads and products of the next block then overlap with the latency of these additions.
    const AHEAD: bool = matches!(F::SHAPE, Shape::Nibbles(..));
    /// The row lengths, in bytes, for which the next eight rows are prefetched into the first-level cache, so that
    /// memory is read in order of address. The cache has room for the next and the current eight rows. This prefetch is
    /// worth 3 to 11 % of the speed of a 0.6 B model in Q4_0, 16 % in Q6_K (Zen 5). Longer rows would be evicted before
    /// their use; shorter rows arrive early enough from the second level.
    const NEXT: Range<usize> = if matches!(F::SHAPE, Shape::Bytes(_)) { 1024..2049 } else { 512..2049 };
    /// Distance in bytes at which rows of all other lengths are prefetched into the first-level cache: first for rows
    /// shorter than a kilobyte, then for longer rows. 0 means no prefetch, for formats whose computation takes longer
    /// than their loads. If long rows had the distance of short rows, a model in Q8_0 would be 2 to 5 % slower (Zen 4).
    const NEAR: [usize; 2] = if matches!(F::SHAPE, Shape::Bytes(_)) { [576, 384] } else { [0; 2] };
}

// SAFETY: `dot` reads the blocks of eight rows, reads the activations of as many blocks as a row has, and writes eight
// outputs.
unsafe impl<D: Dot, F: Format> Blocks for Rows<D, F> {
    type Format = F;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        // SAFETY: the caller promises the same.
        unsafe { Self::dots(w, row_bytes, [x], out, 0) }
    }

    #[inline(always)]
    unsafe fn dots<const T: usize>(w: *const u8, row_bytes: usize, x: [Row<'_>; T], out: *mut f32, stride: usize) {
        // SAFETY: the caller promises the features, and eight rows that are as long as each token of `x`.
        unsafe {
            let rows = EightRows::new(w, row_bytes);
            let next = Self::NEXT.contains(&row_bytes);
            let acc = if const { D::WIDE && wide::has::<F>() } {
                Self::wide(&rows, x)
            } else if const { F::ELEMENTS == 256 } {
                Self::blocks(&rows, x, next)
            } else if next {
                Self::chunks(&rows, x, true)
            } else {
                Self::chunks(&rows, x, false)
            };
            // The even rows are in the lanes 0 to 3, and the odd rows are in the lanes 4 to 7.
            let in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            for (t, acc) in acc.into_iter().enumerate() {
                _mm256_storeu_ps(out.add(t * stride), _mm256_permutevar8x32_ps(acc, in_order));
            }
        }
    }
}

/// Eight rows, `row_bytes` apart.
struct EightRows {
    s: Ymm,
    rows: [*const u8; 8],
    row_bytes: usize,
}

impl EightRows {
    /// # Safety
    ///
    /// The processor has AVX2, and `w` is the first of eight rows.
    #[inline(always)]
    unsafe fn new(w: *const u8, row_bytes: usize) -> Self {
        let mut rows = [w; 8];
        for (r, row) in rows.iter_mut().enumerate() {
            // SAFETY: the caller promises eight rows.
            *row = unsafe { w.add(r * row_bytes) };
        }
        // SAFETY: the caller promises AVX2.
        Self { s: unsafe { Ymm::new() }, rows, row_bytes }
    }

    /// # Safety
    ///
    /// Every row has a block of format `F` at byte `at`.
    #[inline(always)]
    unsafe fn blocks<F: Format>(&self, at: usize) -> [&F::Block; 8] {
        // SAFETY: the caller promises the blocks, which are arrays of bytes: any address and contents are valid.
        core::array::from_fn(|r| unsafe { &*self.rows[r].add(at).cast() })
    }
}

impl<D: Dot, F: Format> Rows<D, F> {
    /// Returns the dot products of eight rows with each token, even rows first, for formats with blocks of less than
    /// 256. If `next` is true, also prefetches the next eight rows: see [`Self::NEXT`].
    #[inline(always)]
    unsafe fn chunks<const T: usize>(rows: &EightRows, x: [Row<'_>; T], next: bool) -> [__m256; T] {
        // SAFETY: the caller promises the features, and eight rows that are as long as each token of `x`.
        unsafe {
            let mut acc = [_mm256_setzero_ps(); T];
            let mut ahead = [[[_mm256_setzero_si256(); 4]; 2]; T];
            let chunks = x[0].d.len();
            // With more tokens, the next sums are not computed ahead, because no registers are left for these sums. The
            // computations of several tokens overlap anyway.
            let is_ahead = Self::AHEAD && (T == 1 || D::WIDE && T == 2);
            if is_ahead && chunks > 0 {
                ahead = Self::sums(rows, &x, 0, next);
            }
            for i in 0..chunks {
                let now = if is_ahead {
                    let after = if i + 1 < chunks { Self::sums(rows, &x, i + 1, next) } else { ahead };
                    core::mem::replace(&mut ahead, after)
                } else {
                    Self::sums(rows, &x, i, next)
                };
                let (block, chunk) = (i / (F::ELEMENTS / 32), i % (F::ELEMENTS / 32));
                let blocks = rows.blocks::<F>(block * Self::BYTES);
                for t in 0..T {
                    let dx = _mm256_set1_ps(*x[t].d.as_ptr().add(i));
                    let [scales, minimums] = Self::scales_and_minimums(rows.s, &blocks, chunk * 32, dx);
                    acc[t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(add_across(now[t][0])), acc[t]);
                    if F::FLOAT_GROUPS {
                        let scales = _mm256_mul_ps(Self::scales(rows.s, &blocks, chunk * 32 + 16), dx);
                        acc[t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(add_across(now[t][1])), acc[t]);
                    }
                    if F::M.is_some() {
                        let sums = x[t].sums.as_ptr().add(2 * i);
                        let sum = i32::from(sums.read()) + i32::from(sums.add(1).read());
                        acc[t] = _mm256_fmadd_ps(minimums, _mm256_set1_ps(sum as f32), acc[t]);
                    }
                }
            }
            acc
        }
    }

    /// Multiplies chunk `i` of eight rows with each token. The sums of a row are four lanes, so a register has two
    /// rows. If each half of a chunk has a scale of its own, the second halves have separate sums.
    #[inline(always)]
    unsafe fn sums<const T: usize>(rows: &EightRows, x: &[Row<'_>; T], i: usize, next: bool) -> [[[__m256i; 4]; 2]; T] {
        // SAFETY: the caller promises the features, and that every row and every token of `x` has a chunk `i`.
        unsafe {
            let (block, chunk) = (i / (F::ELEMENTS / 32), i % (F::ELEMENTS / 32));
            let at = block * Self::BYTES;
            let blocks = rows.blocks::<F>(at);
            let zero = _mm256_setzero_si256();
            let (mut q, mut start) = ([[zero; 2]; T], [[zero; 2]; T]);
            for t in 0..T {
                let both = x[t].q.as_ptr().add(i * 32);
                q[t] = [twice_16(both), twice_16(both.add(16))];
                if F::BIAS > 0 && !D::signed::<F>() {
                    // The bias is subtracted in only one of the four lanes of a row, because the result is the sum of
                    // the four lanes.
                    let sums = x[t].sums.as_ptr().add(i * 2).cast::<i32>().read_unaligned();
                    start[t] = biases::<F>(_mm256_set1_epi32(sums));
                }
            }
            let mut all = [[[zero; 4]; 2]; T];
            for pair in 0..4 {
                if chunk == 0 {
                    Self::prefetch(rows, at, pair, next);
                }
                let [low, high] = Self::halves(rows.s, blocks[2 * pair], blocks[2 * pair + 1], chunk);
                for t in 0..T {
                    all[t][0][pair] = D::dot::<F>(start[t][0], low, q[t][0]);
                    if F::FLOAT_GROUPS {
                        all[t][1][pair] = D::dot::<F>(start[t][1], high, q[t][1]);
                    } else {
                        all[t][0][pair] = D::dot::<F>(all[t][0][pair], high, q[t][1]);
                    }
                }
            }
            all
        }
    }

    /// Unpacks the same chunk of two blocks. In each register, the lower half has codes of block `a` and the upper half
    /// has codes of block `b`. The first register has the first 16 codes of the chunk, the second register the next 16.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn halves(s: Ymm, a: &F::Block, b: &F::Block, chunk: usize) -> [__m256i; 2] {
        let two = |at: usize| {
            let half = |block: &F::Block| must_cast(*bytes_at::<16>(block.as_ref(), at));
            let (a, b) = (half(a), half(b));
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b)
        };
        match F::SHAPE {
            Shape::Bytes(at) => [s.xor(two(at), s.splat(128)), s.xor(two(at + 16), s.splat(128))],
            Shape::Nibbles(at, table) => {
                let q = two(at);
                let halves = [s.and(q, s.splat(15)), s.shift(q, -4, 15)];
                let [low, high] = halves;
                match table {
                    Some(table) => [s.lookup(table, low), s.lookup(table, high)],
                    None => [low, high],
                }
            }
            Shape::Halves(_) | Shape::Other => {
                let (a, b) = (F::unpack(s, a, chunk), F::unpack(s, b, chunk));
                [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)]
            }
        }
    }

    /// Returns the dot products of eight rows with each token, even rows first, for formats with blocks of 256. If
    /// `next` is true, also prefetches the next eight rows: see [`Self::NEXT`].
    #[inline(always)]
    unsafe fn blocks<const T: usize>(rows: &EightRows, x: [Row<'_>; T], next: bool) -> [__m256; T] {
        // SAFETY: the caller promises the features, and eight rows that are as long as each token of `x`.
        unsafe {
            let mut acc = [_mm256_setzero_ps(); T];
            let mut scales = Scales([[0; 8]; 8]);
            for b in 0..x[0].d.len() {
                let at = b * Self::BYTES;
                let zero = _mm256_setzero_si256();
                let mut q = [&[0; 256]; T];
                let mut sums = [Sums { words: zero, less: zero }; T];
                for t in 0..T {
                    q[t] = &*x[t].q.as_ptr().add(b * 256).cast();
                    sums[t] = Sums::new::<F>(&*x[t].sums.as_ptr().add(b * 16).cast());
                }
                let blocks = rows.blocks::<F>(at);
                if F::GROUP == 32 {
                    for (block, scales) in blocks.iter().zip(&mut scales.0) {
                        *scales = twice(F::scale_words(block));
                    }
                    hide(&scales);
                }
                let mut all = [[_mm256_setzero_si256(); 4]; T];
                let mut of_minimums = [[_mm256_setzero_si256(); 4]; T];
                for pair in 0..4 {
                    Self::prefetch(rows, at, pair, next);
                    let (a, b) = (blocks[2 * pair], blocks[2 * pair + 1]);
                    let first = block_sums::<D, F, T>(rows.s, a, &q, &sums, &scales.0[2 * pair]);
                    let second = block_sums::<D, F, T>(rows.s, b, &q, &sums, &scales.0[2 * pair + 1]);
                    for t in 0..T {
                        all[t][pair] = join(first[t], second[t]);
                        if F::M.is_some() {
                            of_minimums[t][pair] = minimums::<F>(F::minimum_words(a), F::minimum_words(b), &sums[t]);
                        }
                    }
                }
                for t in 0..T {
                    let dx = _mm256_set1_ps(x[t].d[b]);
                    let [scales, minimums] = Self::scales_and_minimums(rows.s, &blocks, 0, dx);
                    acc[t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(add_across(all[t])), acc[t]);
                    if F::M.is_some() {
                        acc[t] = _mm256_fmadd_ps(minimums, _mm256_cvtepi32_ps(add_across(of_minimums[t])), acc[t]);
                    }
                }
            }
            acc
        }
    }

    /// Multiplies eight rows with each token, for the formats of the module [`wide`]. The results have the even rows
    /// first, then the odd rows. Rows are not prefetched into the first-level cache, because this did not make whole
    /// models faster.
    #[inline(always)]
    unsafe fn wide<const T: usize>(rows: &EightRows, x: [Row<'_>; T]) -> [__m256; T] {
        // SAFETY: the caller promises AVX-512 with VNNI, and eight rows that are as long as each token of `x`.
        unsafe {
            let mut acc = [_mm256_setzero_ps(); T];
            for b in 0..x[0].d.len() {
                let at = b * Self::BYTES;
                let blocks = rows.blocks::<F>(at);
                let mut each = [wide::Activations::NONE; T];
                for t in 0..T {
                    let (q, sums) = (x[t].q.as_ptr().add(b * 256), x[t].sums.as_ptr().add(b * 16));
                    each[t] = wide::Activations::new::<F>(&*q.cast(), &*sums.cast());
                }
                // The prefetched rows are 24 rows ahead. With 16 or 32 rows, whole models were 1 % slower.
                let ahead = rows.rows[0].wrapping_add(3 * 8 * rows.row_bytes + 8 * at);
                let all = wide::dots::<F, T>(&each, &blocks, ahead);
                for (t, [sums, of_minimums]) in all.into_iter().enumerate() {
                    let dx = _mm256_set1_ps(x[t].d[b]);
                    let [scales, minimums] = Self::scales_and_minimums(rows.s, &blocks, 0, dx);
                    acc[t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(sums), acc[t]);
                    if F::M.is_some() {
                        acc[t] = _mm256_fmadd_ps(minimums, _mm256_cvtepi32_ps(of_minimums), acc[t]);
                    }
                }
            }
            acc
        }
    }

    /// Returns the scales `d` of eight blocks for the weights from element `i` on. The even rows come first, then the
    /// odd rows.
    #[inline(always)]
    fn scales(s: Ymm, blocks: &[&F::Block; 8], i: usize) -> __m256 {
        let d = |r: usize| F::d(blocks[r], i, |bytes| s.f16(bytes));
        // SAFETY: `s` proves AVX2 and F16C.
        unsafe {
            match F::D {
                Some((offset, factor)) => halves::<F>(blocks, offset, factor),
                None => _mm256_setr_ps(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7)),
            }
        }
    }

    /// Returns the scales `d` and the minimums' factors `m` of eight blocks, each multiplied by `dx`. They are those
    /// for the weights from element `i` on. Each result has the even rows first, then the odd rows.
    #[inline(always)]
    fn scales_and_minimums(s: Ymm, blocks: &[&F::Block; 8], i: usize, dx: __m256) -> [__m256; 2] {
        // SAFETY: `s` proves AVX2 and F16C.
        unsafe {
            let (Some((offset, _)), Some((_, factor))) = (F::D, F::M) else {
                return [_mm256_mul_ps(Self::scales(s, blocks, i), dx), _mm256_setzero_ps()];
            };
            // The f16 of `m` follows the f16 of `d` directly, so one load reads both.
            let both = |r: usize| i32::from_le_bytes(*bytes_at(blocks[r].as_ref(), offset));
            let both = _mm256_setr_epi32(both(0), both(2), both(4), both(6), both(1), both(3), both(5), both(7));
            let apart =
                _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
            let apart = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(both, apart));
            let d = _mm256_cvtph_ps(_mm256_castsi256_si128(apart));
            let m = _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(apart));
            [_mm256_mul_ps(d, dx), _mm256_mul_ps(_mm256_mul_ps(m, _mm256_set1_ps(factor)), dx)]
        }
    }

    /// Prefetches for later rows while pair `i` of the eight blocks at byte `at` is computed. Eight rows are contiguous
    /// in memory. Each pair prefetches only a quarter of the lines that correspond to these blocks, because prefetches
    /// of all lines at once would wait for each other, which costs 7 % of the speed of Q6_K.
    ///
    /// Second-level cache: prefetch at least 10 to 15 KB ahead. Less costs 10 % with rows of 324 bytes and 5 % with
    /// rows of 612 bytes. First-level cache: the next eight rows for row lengths in [`Self::NEXT`], otherwise the
    /// pair's own rows [`Self::NEAR`] bytes ahead.
    #[inline(always)]
    fn prefetch(rows: &EightRows, at: usize, i: usize, next: bool) {
        let EightRows { rows, row_bytes, .. } = rows;
        let group = 8 * row_bytes;
        let far = match row_bytes {
            0..512 => 4 * group,
            512..1024 => 3 * group,
            _ => 2 * group,
        };
        let lines = (8 * Self::BYTES).div_ceil(64);
        for k in 0..lines.div_ceil(4) {
            let line = i * lines.div_ceil(4) + k;
            if line < lines {
                let here = rows[0].wrapping_add(8 * at + 64 * line);
                ahead::prefetch::<_MM_HINT_T1>(here.wrapping_add(far));
                if next {
                    ahead::prefetch::<_MM_HINT_T0>(here.wrapping_add(group));
                }
            }
        }
        if Self::NEAR[0] > 0 && !next {
            // If the address to prefetch is past the end of a row, prefetches from the row that follows the current
            // eight rows.
            let near = at + Self::NEAR[usize::from(*row_bytes >= 1024)];
            let near = if near < *row_bytes { near } else { near + 7 * row_bytes };
            // Each cache line is prefetched once.
            if near % 64 < Self::BYTES {
                for row in &rows[2 * i..2 * i + 2] {
                    ahead::prefetch::<_MM_HINT_T0>(row.wrapping_add(near - near % 64));
                }
            }
        }
    }
}

/// Loads sixteen activations into both halves of a register.
///
/// # Safety
///
/// `q` points to sixteen activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn twice_16(q: *const i8) -> __m256i {
    // SAFETY: the caller promises the activations.
    unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(q.cast())) }
}

/// The corrections for the codes' bias in the products of a chunk with the activations. Each correction is in one of
/// four lanes, the others are 0. There is one correction for the whole chunk, or one for each half if each half has its
/// own scale. `sums` has the sums of the activations of both halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn biases<F: Format>(sums: __m256i) -> [__m256i; 2] {
    let less = -i16::from(F::BIAS);
    let bias = |low: i16, high: i16| {
        let words = i64::from((i32::from(high) << 16) | (i32::from(low) & 0xffff)) & 0xffff_ffff;
        _mm256_madd_epi16(sums, _mm256_setr_epi64x(words, 0, words, 0))
    };
    if F::FLOAT_GROUPS { [bias(less, 0), bias(0, less)] } else { [bias(less, less), _mm256_setzero_si256()] }
}

/// Loads the f16 at byte `at` of each of eight blocks and multiplies them by `factor`. The result has the even rows
/// first, then the odd rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves<F: Format>(blocks: &[&F::Block; 8], at: usize, factor: f32) -> __m256 {
    let d = |r: usize| i16::from_le_bytes(*bytes_at(blocks[r].as_ref(), at));
    let d = _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7)));
    if factor == 1.0 { d } else { _mm256_mul_ps(d, _mm256_set1_ps(factor)) }
}

/// The scales of eight rows for groups of 32 weights. Each scale is stored twice in a dword. A scale is broadcast by
/// loading it from memory and not by a shuffle, because shuffles are the bottleneck here.
#[repr(align(32))]
struct Scales([[i32; 8]; 8]);

/// Widens eight scales to dwords of two equal words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn twice([scales, _]: [u64; 2]) -> [i32; 8] {
    let low = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(scales as i64));
    must_cast(_mm256_blend_epi16::<0b1010_1010>(low, _mm256_slli_epi32::<16>(low)))
}

/// The sums of a block's activations: one for each group of 16 or 32.
#[derive(Clone, Copy)]
struct Sums {
    /// The sums of a group's activations as i16. If groups have 16 elements, the lower half of the register has the
    /// sums of the even groups and the upper half those of the odd groups. If groups have 32 elements, both halves have
    /// the same eight sums.
    words: __m256i,
    /// With groups of 32, the sums times minus the bias.
    less: __m256i,
}

impl Sums {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn new<F: Format>(sums: &[i16; 16]) -> Self {
        let sums = must_cast(*sums);
        if F::GROUP == 16 {
            let apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
            let apart = _mm256_shuffle_epi8(sums, _mm256_broadcastsi128_si256(apart));
            return Self { words: _mm256_permute4x64_epi64::<0b11_01_10_00>(apart), less: _mm256_setzero_si256() };
        }
        let eight = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
        let words = _mm256_packs_epi32(eight, eight);
        Self {
            words: _mm256_permute4x64_epi64::<0b10_00_10_00>(words),
            less: _mm256_mullo_epi32(eight, _mm256_set1_epi32(-i32::from(F::BIAS))),
        }
    }
}

/// Widens sixteen scales or minimums to i16, and arranges them like the sums in [`Sums::words`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn apart([low, high]: [u64; 2]) -> __m256i {
    let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    opaque(_mm256_cvtepi8_epi16(_mm_shuffle_epi8(_mm_set_epi64x(high as i64, low as i64), order)))
}

/// For each of two rows, adds up the products of the minimums and the activations' sums. The total is spread over four
/// lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn minimums<F: Format>(a: [u64; 2], b: [u64; 2], sums: &Sums) -> __m256i {
    if F::GROUP == 16 {
        return join(_mm256_madd_epi16(apart(a), sums.words), _mm256_madd_epi16(apart(b), sums.words));
    }
    let words = _mm256_cvtepi8_epi16(_mm_set_epi64x(b[0] as i64, a[0] as i64));
    _mm256_madd_epi16(words, sums.words)
}

/// The integer dot products of a block of 256 weights with `T` tokens. A token's product is the sum of the eight i32 in
/// its register. `scales` is only used for formats with a scale per 32 weights.
#[inline(always)]
unsafe fn block_sums<D: Dot, F: Format, const T: usize>(
    s: Ymm,
    block: &F::Block,
    x: &[&[i8; 256]; T],
    sums: &[Sums; T],
    scales: &[i32; 8],
) -> [__m256i; T] {
    // SAFETY: the caller promises the features.
    unsafe {
        let words = if F::GROUP == 16 { apart(F::scale_words(block)) } else { _mm256_setzero_si256() };
        if const { D::WIDE && matches!(F::KIND, TensorType::Q6_K) } {
            let mut extra = [_mm256_setzero_si256(); T];
            for (extra, sums) in extra.iter_mut().zip(sums) {
                *extra = _mm256_slli_epi32::<5>(_mm256_madd_epi16(words, sums.words));
            }
            return q6k::sums512(block.as_ref(), x, extra);
        }
        let mut acc = [_mm256_setzero_si256(); T];
        for (acc, sums) in acc.iter_mut().zip(sums) {
            *acc = match F::BIAS {
                bias if bias == 0 || signed::<F>() => *acc,
                bias if F::GROUP == 16 => {
                    _mm256_mullo_epi32(_mm256_madd_epi16(words, sums.words), _mm256_set1_epi32(-i32::from(bias)))
                }
                _ => _mm256_mullo_epi32(_mm256_srai_epi32::<16>(must_cast(*scales)), sums.less),
            };
        }
        // Byte indices for a shuffle that copies the first scale to every word, if groups have 16 weights.
        let first = opaque(_mm256_set1_epi16(0x0100));
        macro_rules! chunks {
            ($($chunk:literal)*) => { $({
                let codes = F::unpack(s, block, $chunk);
                let scale = if F::GROUP == 32 {
                    _mm256_set1_epi32(scales[$chunk])
                } else {
                    _mm256_shuffle_epi8(words, _mm256_add_epi8(first, _mm256_set1_epi8(2 * $chunk)))
                };
                for (acc, x) in acc.iter_mut().zip(x) {
                    let chunks: [[i8; 32]; 8] = must_cast(**x);
                    *acc = D::words(*acc, pairs::<F>(codes, must_cast(chunks[$chunk])), scale);
                }
            })* };
        }
        chunks!(0 1 2 3 4 5 6 7);
        acc
    }
}
