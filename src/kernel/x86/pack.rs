//! Prefill: rows are packed into panels of 16.
//!
//! For each 32 weights of a row a panel has 512 bytes: four codes of each of 16 rows side by side, eight times over.
//! One instruction multiplies four bytes of 16 (or 8) rows with four activations that are broadcast from memory,
//! so that rows are lanes from the first byte to the last and nothing is added across. After each 32 weights, or after
//! each block of 256, come the rows' scales.

use core::arch::x86_64::*;

use super::ahead::Ahead;
use super::bytes::Ymm;
use super::products::signed;
use super::quad::Quad;
use crate::kernel::panel::PANEL_ROWS;
use crate::kernel::quantized::Pack;
use crate::quant::{Bytes, Format};

/// Bytes of 32 codes of every row, and of a number for every row.
pub(super) const CODES: usize = PANEL_ROWS * 32;
pub(super) const LINE: usize = PANEL_ROWS * 4;

/// Where things lie in a panel, for 256 weights of formats with blocks of 256: codes; each group's scale as an i32;
/// eight lines of two i16, for each 32 weights the minimums of their halves, or where there are none minus the bias times
/// the scales of their halves; `d`; `m`.
pub(super) struct Whole {
    pub pairs: usize,
    pub d: usize,
    pub m: usize,
    pub size: usize,
}

impl Whole {
    pub const SCALES: usize = 8 * CODES;
    pub const fn of(group: usize, minimums: bool) -> Self {
        let pairs = Self::SCALES + 256 / group * LINE;
        let d = pairs + 8 * LINE;
        let m = d + LINE;
        Self { pairs, d, m, size: if minimums { m + LINE } else { m } }
    }
}

/// Bytes of a panel for 32 weights of the other formats: codes, `d`, and where there are any `m` or the `d` of the second
/// half.
pub(super) const fn piece(floats: usize) -> usize {
    CODES + floats * LINE
}

/// Writes eight dwords of every row, the first of all rows side by side, and so on. A macro: a closure that the compiler does
/// not inline would not have the instruction set.
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

/// Packs rows.
///
/// # Safety
///
/// As [`Pack`] says; the caller has AVX2 and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn avx2<F: Format>(pack: &Pack<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { all::<F, false, true>(pack) }
}

/// The same for AVX-VNNI, which wants no code signed.
///
/// # Safety
///
/// As above.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn avxvnni<F: Format>(pack: &Pack<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        if const { signed::<F>() } {
            all::<F, false, false>(pack);
        } else {
            avx2::<F>(pack);
        }
    }
}

/// The same with AVX-512.
///
/// # Safety
///
/// As above; the caller has AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl")]
pub(super) unsafe fn avx512<F: Format>(pack: &Pack<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { all::<F, true, false>(pack) }
}

/// With registers of 512 bits if `WIDE`; for products by AVX2 alone if `MADD`, for which some formats' codes are made signed.
#[inline(always)]
unsafe fn all<F: Format, const WIDE: bool, const MADD: bool>(pack: &Pack<'_>) {
    // SAFETY: the caller has the rows, and room in the panel.
    unsafe {
        let bytes = size_of::<F::Block>();
        let mut ahead = Ahead::new(pack.ahead, pack.cols / F::ELEMENTS);
        for b in 0..pack.cols / F::ELEMENTS {
            ahead.step();
            // The last panel asked for these rows. Where registers are narrower, it helps to bring
            // them nearer: sixteen rows are more than the processor itself would follow.
            if !WIDE && (b % 2 == 0 || bytes > 64) {
                for r in 0..PANEL_ROWS {
                    ask(pack.w.wrapping_add(r * pack.row_bytes + b * bytes + 192), bytes);
                }
            }
            block::<F, WIDE, MADD, false>(pack, b);
        }
    }
}

/// Packs a block of each row. If `RAW`, scales and minimums that are f16 in the file are so in the panel, too: of blocks of
/// less than 256.
///
/// # Safety
///
/// As [`Pack`] says; the caller has AVX2 and F16C, and AVX-512 if `WIDE`.
#[inline(always)]
pub(super) unsafe fn block<F: Format, const WIDE: bool, const MADD: bool, const RAW: bool>(pack: &Pack<'_>, b: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        let s = Ymm::new();
        let first = pack.w.add(b * size_of::<F::Block>());
        let blocks = Sixteen { first, row_bytes: pack.row_bytes, rows: pack.rows };
        if const { F::ELEMENTS == 256 } {
            let whole = const { Whole::of(F::GROUP, F::M.is_some()) };
            let to = pack.panel.add(b * whole.size);
            for chunk in 0..8 {
                codes::<F, WIDE, MADD>(s, blocks, chunk, to.add(chunk * CODES));
            }
            for eight in 0..32 / F::GROUP {
                transpose!(to.add(Whole::SCALES + eight * 8 * LINE), |r| {
                    let [low, high] = F::scale_words(blocks.row::<F>(r));
                    _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(if eight == 0 { low } else { high } as i64))
                });
            }
            transpose!(to.add(whole.pairs), |r| pairs::<F>(blocks.row::<F>(r)));
            scales::<F>(s, blocks, 0, to.add(whole.d));
            minimums::<F>(blocks, to.add(whole.m));
        } else {
            let two = F::M.is_some() || F::FLOAT_GROUPS;
            for chunk in 0..F::ELEMENTS / 32 {
                let to = pack.panel.add((b * (F::ELEMENTS / 32) + chunk) * piece(1 + usize::from(two)));
                codes::<F, WIDE, MADD>(s, blocks, chunk, to);
                if const { RAW && F::D.is_some() } {
                    raw(blocks, F::D, to.add(CODES));
                    raw(blocks, F::M, to.add(CODES + LINE));
                    continue;
                }
                scales::<F>(s, blocks, chunk * 32, to.add(CODES));
                minimums::<F>(blocks, to.add(CODES + LINE));
                if F::FLOAT_GROUPS {
                    scales::<F>(s, blocks, chunk * 32 + 16, to.add(CODES + LINE));
                }
            }
        }
    }
}

/// A block of each row of a panel. Rows that are missing repeat the last one.
#[derive(Clone, Copy)]
struct Sixteen {
    first: *const u8,
    row_bytes: usize,
    rows: usize,
}

impl Sixteen {
    #[inline(always)]
    fn at(self, r: usize) -> *const u8 {
        self.first.wrapping_add(r.min(self.rows - 1) * self.row_bytes)
    }
    /// # Safety
    ///
    /// The rows have blocks of this format here.
    #[inline(always)]
    unsafe fn row<'a, F: Format>(self, r: usize) -> &'a F::Block {
        // SAFETY: by the contract; blocks are bytes.
        unsafe { &*self.at(r).cast() }
    }
}

/// Calls lines of memory into the first cache.
#[inline(always)]
unsafe fn ask(from: *const u8, bytes: usize) {
    for line in 0..bytes.div_ceil(64) {
        // SAFETY: a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line * 64).cast()) };
    }
}

/// Writes the codes of 32 numbers of every row.
#[inline(always)]
unsafe fn codes<F: Format, const WIDE: bool, const MADD: bool>(s: Ymm, blocks: Sixteen, chunk: usize, to: *mut u8) {
    // SAFETY: the caller has the blocks, room for their codes, and AVX-512 if it says so.
    unsafe {
        if const { WIDE && F::BYTEWISE } {
            Quad::transpose::<F>(core::array::from_fn(|r| blocks.at(r)), chunk, to, LINE);
        } else {
            transpose!(to, |r| {
                let codes = F::unpack(s, blocks.row::<F>(r), chunk);
                if const { MADD && signed::<F>() } { s.sub(codes, s.splat(F::BIAS)) } else { codes }
            });
        }
    }
}

/// Writes `d` of the weights from `at` on, of every row.
#[inline(always)]
unsafe fn scales<F: Format>(s: Ymm, blocks: Sixteen, at: usize, to: *mut u8) {
    // SAFETY: the caller has the blocks and room for their numbers.
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

/// Writes `m` of every row, where the format has one.
#[inline(always)]
unsafe fn minimums<F: Format>(blocks: Sixteen, to: *mut u8) {
    if let Some(field) = F::M {
        // SAFETY: as above.
        unsafe { halves(blocks, field, to) };
    }
}

/// Writes eight dwords of eight rows side by side: half of `transpose!`'s work.
#[inline(always)]
unsafe fn transpose_eight(first: [__m256i; 4], second: [__m256i; 4], to: *mut u8) {
    // SAFETY: the caller has AVX2 and room for them.
    unsafe {
        for (k, (a, b)) in columns(first).into_iter().zip(columns(second)).enumerate() {
            let at = to.add(k * LINE);
            _mm256_storeu_si256(at.cast(), _mm256_permute2x128_si256::<0x20>(a, b));
            _mm256_storeu_si256(at.add(4 * LINE).cast(), _mm256_permute2x128_si256::<0x31>(a, b));
        }
    }
}

/// Four rows of four dwords turned into columns, in both halves at once.
#[inline(always)]
unsafe fn columns([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: the caller has AVX2.
    unsafe {
        let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
        let (ab2, cd2) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab, cd),
            _mm256_unpackhi_epi64(ab, cd),
            _mm256_unpacklo_epi64(ab2, cd2),
            _mm256_unpackhi_epi64(ab2, cd2),
        ]
    }
}

/// Writes the f16 at a place in every row's block as f32, times a factor.
#[inline(always)]
unsafe fn halves(blocks: Sixteen, (place, factor): (usize, f32), to: *mut u8) {
    // SAFETY: the caller has F16C, the f16 and room for them.
    unsafe {
        for r in (0..PANEL_ROWS).step_by(8) {
            // A macro: a closure might not be inlined.
            macro_rules! h {
                ($i:literal) => {
                    blocks.at(r + $i).add(place).cast::<i16>().read_unaligned()
                };
            }
            let halves = _mm_setr_epi16(h!(0), h!(1), h!(2), h!(3), h!(4), h!(5), h!(6), h!(7));
            let floats = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(factor));
            _mm256_storeu_ps(to.cast::<f32>().add(r), floats);
        }
    }
}

/// Two i16 for each 32 weights of a block: see [`Whole`].
#[inline(always)]
unsafe fn pairs<F: Format>(block: &F::Block) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let [low, high] = if F::M.is_some() { F::minimum_words(block) } else { F::scale_words(block) };
        let bytes = _mm_set_epi64x(high as i64, low as i64);
        let both = if F::GROUP == 16 { bytes } else { _mm_unpacklo_epi8(bytes, bytes) };
        let words = _mm256_cvtepi8_epi16(both);
        if F::M.is_some() { words } else { _mm256_mullo_epi16(words, _mm256_set1_epi16(-i16::from(F::BIAS))) }
    }
}

/// Writes the f16 at a place in every row's block, as it is.
#[inline(always)]
unsafe fn raw(blocks: Sixteen, place: Option<(usize, f32)>, to: *mut u8) {
    if let Some((place, _)) = place {
        for r in 0..PANEL_ROWS {
            // SAFETY: the caller has the f16 and room for them.
            unsafe { to.cast::<u16>().add(r).write_unaligned(blocks.at(r).add(place).cast::<u16>().read_unaligned()) };
        }
    }
}
