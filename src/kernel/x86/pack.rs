//! Prefill: packs 16 rows into a panel.
//!
//! A chunk of a panel has 512 bytes of codes, 32 bytes of each row. It consists of eight lines, each with four codes of
//! all 16 rows side by side. One instruction multiplies four codes of 16 (or 8) rows with four activations that are
//! broadcast from memory. Every row keeps its own lane, and nothing is summed across lanes. The scales of the rows
//! follow each chunk, or each block of 256.

use core::arch::x86_64::*;

use super::ahead::{self, Ahead};
use super::bytes::Ymm;
use super::products::signed;
use super::quad::transposed;
use crate::kernel::panel::PANEL_ROWS;
use crate::kernel::quantized::Pack;
use crate::quant::{Bytes, Format};

/// Bytes of the codes of a chunk, for all 16 rows.
pub(super) const CODES: usize = PANEL_ROWS * 32;
/// A panel consists of lines. This is the number of bytes of a line, which has four bytes or one f32 for each row.
pub(super) const LINE: usize = PANEL_ROWS * 4;

/// Layout of a panel for one block of 256, as byte offsets. The codes of eight chunks come first, then a line of i32
/// scales per group. At `pairs` are eight lines, one per chunk, with two i16 per row, one for each half of the chunk.
/// An i16 is the minimum of the half or, in formats without minimums, the half's scale times minus the bias. A line of
/// `d` follows and, in formats with minimums, a line of `m`.
pub(super) struct BlockLayout {
    pub pairs: usize,
    pub d: usize,
    pub m: usize,
    pub size: usize,
}

impl BlockLayout {
    pub const SCALES: usize = 8 * CODES;
    pub const fn of(group: usize, minimums: bool) -> Self {
        let pairs = Self::SCALES + 256 / group * LINE;
        let d = pairs + 8 * LINE;
        let m = d + LINE;
        Self { pairs, d, m, size: if minimums { m + LINE } else { m } }
    }
}

/// Number of bytes per chunk of a panel, in formats with blocks of less than 256: the codes, then `floats` lines of
/// floats. The first of these lines has `d`. A second line has `m`, or the `d` of the second half of the chunk.
pub(super) const fn chunk_size(floats: usize) -> usize {
    CODES + floats * LINE
}

/// Transposes eight dwords of each row and stores them in lines: line `k` has dword `k` of all rows. It is a macro and
/// not a function with a closure, because a closure that is not inlined would be compiled without the instruction set.
macro_rules! transpose {
    ($to:expr, |$r:ident| $row:expr) => {{
        let to: *mut u8 = $to;
        for r in (0..PANEL_ROWS).step_by(8) {
            macro_rules! row {
                ($i:literal) => {{
                    let $r = r + $i;
                    $row
                }};
            }
            let (first, second) = ([row!(0), row!(1), row!(2), row!(3)], [row!(4), row!(5), row!(6), row!(7)]);
            transpose_eight(first, second, to.add(r * 4));
        }
    }};
}

/// Packs rows for AVX2.
///
/// # Safety
///
/// `pack` is as described at [`Pack`]; the processor has AVX2 and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn avx2<F: Format>(pack: &Pack<'_>) {
    // SAFETY: the caller promises the same.
    unsafe { all::<F, false, true>(pack) }
}

/// Packs rows for AVX-VNNI, whose codes are always unsigned.
///
/// # Safety
///
/// `pack` is as described at [`Pack`]; the processor has AVX2 and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn avxvnni<F: Format>(pack: &Pack<'_>) {
    // SAFETY: the caller promises the same.
    unsafe {
        if const { signed::<F>() } {
            all::<F, false, false>(pack);
        } else {
            avx2::<F>(pack);
        }
    }
}

/// Packs rows for AVX-512.
///
/// # Safety
///
/// `pack` is as described at [`Pack`]; the processor has AVX2, F16C and AVX-512.
#[target_feature(enable = "avx512dq,avx512bw,avx512vl")]
pub(super) unsafe fn avx512<F: Format>(pack: &Pack<'_>) {
    // SAFETY: the caller promises the same.
    unsafe { all::<F, true, false>(pack) }
}

/// Packs all blocks, with 512-bit registers if `WIDE` is true. `MADD` is for products by AVX2 without VNNI, for which
/// the codes of some formats are stored as signed weights (see [`signed`]).
#[inline(always)]
unsafe fn all<F: Format, const WIDE: bool, const MADD: bool>(pack: &Pack<'_>) {
    // SAFETY: the caller promises the rows, and room in the panel.
    unsafe {
        let bytes = size_of::<F::Block>();
        let mut ahead = Ahead::new(pack.ahead, pack.cols / F::ELEMENTS);
        for b in 0..pack.cols / F::ELEMENTS {
            ahead.step();
            // The rows were prefetched into the second-level cache while the previous panel was multiplied. With
            // 256-bit registers, prefetching them into the first-level cache helps, too, because the hardware
            // prefetcher cannot follow sixteen streams.
            if !WIDE && (b % 2 == 0 || bytes > 64) {
                for r in 0..PANEL_ROWS {
                    prefetch_near(pack.w.wrapping_add(r * pack.row_bytes + b * bytes + 192), bytes);
                }
            }
            block::<F, WIDE, MADD, false>(pack, b);
        }
    }
}

/// Packs block `b` of each row. `RAW` matters only for blocks of less than 256 weights: if it is true, scales and
/// minimums that the file stores as f16 are also stored as f16 in the panel.
///
/// # Safety
///
/// `pack` is as described at [`Pack`]; the processor has AVX2 and F16C, and AVX-512 if `WIDE` is true.
#[inline(always)]
pub(super) unsafe fn block<F: Format, const WIDE: bool, const MADD: bool, const RAW: bool>(pack: &Pack<'_>, b: usize) {
    // SAFETY: the caller promises the rows, which have a block `b`, and room in the panel.
    unsafe {
        let s = Ymm::new();
        let first = pack.w.add(b * size_of::<F::Block>());
        let blocks = SixteenRows { first, row_bytes: pack.row_bytes, rows: pack.rows };
        if const { F::ELEMENTS == 256 } {
            let layout = const { BlockLayout::of(F::GROUP, F::M.is_some()) };
            let to = pack.panel.add(b * layout.size);
            for chunk in 0..8 {
                codes::<F, WIDE, MADD>(s, blocks, chunk, to.add(chunk * CODES));
            }
            for eight in 0..32 / F::GROUP {
                transpose!(to.add(BlockLayout::SCALES + eight * 8 * LINE), |r| {
                    let [low, high] = F::scale_words(blocks.row::<F>(r));
                    _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(if eight == 0 { low } else { high } as i64))
                });
            }
            transpose!(to.add(layout.pairs), |r| pairs::<F>(blocks.row::<F>(r)));
            scales::<F>(s, blocks, 0, to.add(layout.d));
            if let Some(m) = F::M {
                halves(blocks, m, to.add(layout.m));
            }
        } else {
            let two = F::M.is_some() || F::FLOAT_GROUPS;
            for chunk in 0..F::ELEMENTS / 32 {
                let to = pack.panel.add((b * (F::ELEMENTS / 32) + chunk) * chunk_size(1 + usize::from(two)));
                codes::<F, WIDE, MADD>(s, blocks, chunk, to);
                if const { RAW && F::D.is_some() } {
                    raw(blocks, F::D, to.add(CODES));
                    raw(blocks, F::M, to.add(CODES + LINE));
                    continue;
                }
                scales::<F>(s, blocks, chunk * 32, to.add(CODES));
                if let Some(m) = F::M {
                    halves(blocks, m, to.add(CODES + LINE));
                }
                if F::FLOAT_GROUPS {
                    scales::<F>(s, blocks, chunk * 32 + 16, to.add(CODES + LINE));
                }
            }
        }
    }
}

/// The current block of each of a panel's 16 rows. If the matrix has fewer rows left, the last row stands for the
/// missing ones.
#[derive(Clone, Copy)]
struct SixteenRows {
    first: *const u8,
    row_bytes: usize,
    rows: usize,
}

impl SixteenRows {
    #[inline(always)]
    fn at(self, r: usize) -> *const u8 {
        self.first.wrapping_add(r.min(self.rows - 1) * self.row_bytes)
    }
    /// Returns a row's block.
    ///
    /// # Safety
    ///
    /// [`at`](Self::at) is the address of a block of format `F`.
    #[inline(always)]
    unsafe fn row<'a, F: Format>(self, r: usize) -> &'a F::Block {
        // SAFETY: the caller promises the block. A block is an array of bytes, so any address and contents are valid.
        unsafe { &*self.at(r).cast() }
    }
}

/// Prefetches `bytes` bytes into the first-level cache.
#[inline(always)]
fn prefetch_near(from: *const u8, bytes: usize) {
    for line in 0..bytes.div_ceil(64) {
        ahead::prefetch::<_MM_HINT_T0>(from.wrapping_add(line * 64));
    }
}

/// Writes the codes of a chunk of every row.
#[inline(always)]
unsafe fn codes<F: Format, const WIDE: bool, const MADD: bool>(s: Ymm, blocks: SixteenRows, chunk: usize, to: *mut u8) {
    // SAFETY: the caller promises the blocks, room for their codes, and AVX-512 if `WIDE` is true.
    unsafe {
        if const { WIDE && F::BYTEWISE } {
            let lines = transposed::<F>(core::array::from_fn(|r| blocks.row::<F>(r)), chunk);
            for (k, line) in lines.into_iter().enumerate() {
                _mm512_storeu_si512(to.add(k * LINE).cast(), line);
            }
        } else {
            transpose!(to, |r| {
                let codes = F::unpack(s, blocks.row::<F>(r), chunk);
                if const { MADD && signed::<F>() } { s.sub(codes, s.splat(F::BIAS)) } else { codes }
            });
        }
    }
}

/// Writes the scale `d` of every row to the panel, for the weights from element `at` of the block on.
#[inline(always)]
unsafe fn scales<F: Format>(s: Ymm, blocks: SixteenRows, at: usize, to: *mut u8) {
    // SAFETY: the caller promises the blocks, and room for a line.
    unsafe {
        if let Some(field) = F::D {
            return halves(blocks, field, to);
        }
        for r in 0..PANEL_ROWS {
            let d = F::d(blocks.row::<F>(r), at, |bytes| s.f16(bytes));
            to.cast::<f32>().add(r).write_unaligned(d);
        }
    }
}

/// Transposes eight dwords of each of eight rows and stores them in lines. This is half of the work of the macro
/// `transpose!`.
#[inline(always)]
unsafe fn transpose_eight(first: [__m256i; 4], second: [__m256i; 4], to: *mut u8) {
    // SAFETY: the caller promises AVX2, and that half of each of the eight lines from `to` on may be written.
    unsafe {
        for (k, (a, b)) in columns(first).into_iter().zip(columns(second)).enumerate() {
            let at = to.add(k * LINE);
            _mm256_storeu_si256(at.cast(), _mm256_permute2x128_si256::<0x20>(a, b));
            _mm256_storeu_si256(at.add(4 * LINE).cast(), _mm256_permute2x128_si256::<0x31>(a, b));
        }
    }
}

/// Transposes four rows of four dwords, in both 128-bit halves at once.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn columns([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (ab2, cd2) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab, cd),
        _mm256_unpackhi_epi64(ab, cd),
        _mm256_unpacklo_epi64(ab2, cd2),
        _mm256_unpackhi_epi64(ab2, cd2),
    ]
}

/// Writes a line of the panel: the f16 at byte `offset` of each row's block, converted to f32 and multiplied by
/// `factor`.
#[inline(always)]
unsafe fn halves(blocks: SixteenRows, (offset, factor): (usize, f32), to: *mut u8) {
    // SAFETY: the caller promises F16C, blocks with an f16 at `offset`, and room for a line.
    unsafe {
        for r in (0..PANEL_ROWS).step_by(8) {
            // This is a macro, because a closure might not be inlined.
            macro_rules! h {
                ($i:literal) => {
                    blocks.at(r + $i).add(offset).cast::<i16>().read_unaligned()
                };
            }
            let halves = _mm_setr_epi16(h!(0), h!(1), h!(2), h!(3), h!(4), h!(5), h!(6), h!(7));
            let floats = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(factor));
            _mm256_storeu_ps(to.cast::<f32>().add(r), floats);
        }
    }
}

/// Two i16 per chunk of a block: see [`BlockLayout`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pairs<F: Format>(block: &F::Block) -> __m256i {
    let [low, high] = if F::M.is_some() { F::minimum_words(block) } else { F::scale_words(block) };
    let bytes = _mm_set_epi64x(high as i64, low as i64);
    let both = if F::GROUP == 16 { bytes } else { _mm_unpacklo_epi8(bytes, bytes) };
    let words = _mm256_cvtepi8_epi16(both);
    if F::M.is_some() { words } else { _mm256_mullo_epi16(words, _mm256_set1_epi16(-i16::from(F::BIAS))) }
}

/// Writes a line of the panel: the f16 at byte `offset` of each row's block, without converting it.
#[inline(always)]
unsafe fn raw(blocks: SixteenRows, offset: Option<(usize, f32)>, to: *mut u8) {
    if let Some((offset, _)) = offset {
        for r in 0..PANEL_ROWS {
            // SAFETY: the caller promises blocks with an f16 at `offset`, and room for a line.
            unsafe { to.cast::<u16>().add(r).write_unaligned(blocks.at(r).add(offset).cast::<u16>().read_unaligned()) };
        }
    }
}
