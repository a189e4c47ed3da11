//! Decode: eight rows of the file's own blocks times one token.
//!
//! Two rows share a 256-bit register, 16 bytes of each, so that the partial sums of eight rows are four
//! registers of four lanes a row; one tree adds them across, and one fused multiply-add serves all eight.
//! Wider registers gain nothing here. Eight rows lie in one piece of memory, but are read as eight short
//! streams, which the hardware prefetcher does not follow: while a group is computed, later groups are
//! prefetched line after line.

use core::any::TypeId;
use core::arch::x86_64::*;
use core::marker::PhantomData;
use core::ops::Range;

use super::bytes::{Ymm, hide, opaque};
use super::products::{Dot, pairs, signed};
use super::q6k;
use super::wide;
use crate::kernel::job::Row;
use crate::kernel::quantized::Blocks;
use crate::quant::formats::q6_k::Q6K;
use crate::quant::{Bytes, Format, Shape};

/// Eight rows of a format, multiplied by `D`.
pub(super) struct Rows<D, F>(PhantomData<(D, F)>);

impl<D: Dot, F: Format> Rows<D, F> {
    const BYTES: usize = size_of::<F::Block>();
    /// Whether a block's sums are formed before the last block's are added up, so that its loads and
    /// products run while those wait for each other.
    const AHEAD: bool = matches!(F::SHAPE, Shape::Nibbles(..));
    /// How long rows are, in bytes, if the next eight of them are called into the first cache, which has room
    /// for both groups: memory is then read in the order of its addresses. Worth 3 to 11 % of the speed of a 0.6 B
    /// model in Q4_0, 16 % in Q6_K (Zen 5). The cache would lose the lines of longer rows before their use;
    /// of shorter ones, what follows comes soon enough.
    const NEXT: Range<usize> = if matches!(F::SHAPE, Shape::Bytes(_)) { 1024..2049 } else { 512..2049 };
    /// How many bytes ahead of its use a line of any other row is called into the first cache, of rows shorter than a
    /// kilobyte and of longer ones; 0 to leave it to the loads, where computing takes longer than they do. The first
    /// distance costs long rows of Q8_0 2 to 5 % of a model's speed (Zen 4).
    const NEAR: [usize; 2] = if matches!(F::SHAPE, Shape::Bytes(_)) { [576, 384] } else { [0; 2] };
}

// SAFETY: `dot` reads whole blocks of eight rows and as much of `x`, and writes eight outputs.
unsafe impl<D: Dot, F: Format> Blocks for Rows<D, F> {
    type Format = F;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        // SAFETY: the caller has the features and eight rows as long as `x`.
        unsafe {
            let rows = Eight { s: Ymm::new(), rows: core::array::from_fn(|r| w.add(r * row_bytes)), row_bytes };
            let next = Self::NEXT.contains(&row_bytes);
            let acc = if const { D::WIDE && F::SUPER.is_some() } {
                Self::wide(&rows, x)
            } else if const { F::ELEMENTS == 256 } {
                Self::whole(&rows, x, next)
            } else if next {
                Self::pieces(&rows, x, true)
            } else {
                Self::pieces(&rows, x, false)
            };
            // Lanes hold even rows, then odd ones.
            let in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(acc, in_order));
        }
    }
}

/// Eight rows and how far they are apart.
struct Eight {
    s: Ymm,
    rows: [*const u8; 8],
    row_bytes: usize,
}

impl<D: Dot, F: Format> Rows<D, F> {
    /// Blocks of less than 256, with the next eight rows prefetched or not: see [`Self::NEXT`].
    #[inline(always)]
    unsafe fn pieces(rows: &Eight, x: Row<'_>, next: bool) -> __m256 {
        // SAFETY: the caller has the features and eight rows as long as `x`, which has a block at least.
        unsafe {
            let mut acc = _mm256_setzero_ps();
            let mut ahead = if Self::AHEAD { Self::sums(rows, x, 0, next) } else { [[_mm256_setzero_si256(); 4]; 2] };
            for (i, dx) in x.d.iter().enumerate() {
                let now = if Self::AHEAD {
                    let after = if i + 1 < x.d.len() { Self::sums(rows, x, i + 1, next) } else { ahead };
                    core::mem::replace(&mut ahead, after)
                } else {
                    Self::sums(rows, x, i, next)
                };
                let (block, chunk) = (i / (F::ELEMENTS / 32), i % (F::ELEMENTS / 32));
                let (at, dx) = (block * Self::BYTES, _mm256_set1_ps(*dx));
                let [scales, minimums] = Self::scales_and_minimums(rows, at, chunk * 32, dx);
                acc = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(add_across(now[0])), acc);
                if F::FLOAT_GROUPS {
                    let scales = _mm256_mul_ps(Self::scales(rows, at, chunk * 32 + 16), dx);
                    acc = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(add_across(now[1])), acc);
                }
                if F::M.is_some() {
                    let sum =
                        i32::from(x.sums.as_ptr().add(2 * i).read()) + i32::from(x.sums.as_ptr().add(2 * i + 1).read());
                    acc = _mm256_fmadd_ps(minimums, _mm256_set1_ps(sum as f32), acc);
                }
            }
            acc
        }
    }

    /// The sums of 32 numbers of eight rows: a register for two rows, four lanes for each. Where halves of them have
    /// scales of their own, the second halves apart.
    #[inline(always)]
    unsafe fn sums(rows: &Eight, x: Row<'_>, i: usize, next: bool) -> [[__m256i; 4]; 2] {
        // SAFETY: the caller has the features and these numbers in every row and in `x`.
        unsafe {
            let (block, chunk) = (i / (F::ELEMENTS / 32), i % (F::ELEMENTS / 32));
            let at = block * Self::BYTES;
            let q = x.q.as_ptr().add(i * 32);
            let both = |at: usize| _mm256_broadcastsi128_si256(_mm_loadu_si128(q.add(at).cast()));
            let (first, second) = (both(0), both(16));
            // What the bias adds, taken off in one lane of four.
            let sums = _mm256_set1_epi32(x.sums.as_ptr().add(i * 2).cast::<i32>().read_unaligned());
            let bias = |low: i16, high: i16| {
                let words = i64::from((i32::from(high) << 16) | (i32::from(low) & 0xffff)) & 0xffff_ffff;
                _mm256_madd_epi16(sums, _mm256_setr_epi64x(words, 0, words, 0))
            };
            let less = -i16::from(F::BIAS);
            let start = match F::BIAS {
                bias if bias == 0 || D::signed::<F>() => [_mm256_setzero_si256(); 2],
                _ if F::FLOAT_GROUPS => [bias(less, 0), bias(0, less)],
                _ => [bias(less, less), _mm256_setzero_si256()],
            };
            let mut all = [[_mm256_setzero_si256(); 4]; 2];
            #[allow(clippy::needless_range_loop)] // into two arrays
            for pair in 0..4 {
                if chunk == 0 {
                    Self::prefetch(rows, at, pair, next);
                }
                let [low, high] =
                    Self::halves(rows.s, rows.rows[2 * pair].add(at), rows.rows[2 * pair + 1].add(at), chunk);
                all[0][pair] = D::dot::<F>(start[0], low, first);
                if F::FLOAT_GROUPS {
                    all[1][pair] = D::dot::<F>(start[1], high, second);
                } else {
                    all[0][pair] = D::dot::<F>(all[0][pair], high, second);
                }
            }
            all
        }
    }

    /// The codes of 16 numbers of block `a`, then of block `b`; and those of the next 16.
    #[inline(always)]
    unsafe fn halves(s: Ymm, a: *const u8, b: *const u8, chunk: usize) -> [__m256i; 2] {
        // SAFETY: the caller has the blocks.
        unsafe {
            let two = |at: usize| {
                let a = _mm256_castsi128_si256(_mm_loadu_si128(a.add(at).cast()));
                _mm256_inserti128_si256::<1>(a, _mm_loadu_si128(b.add(at).cast()))
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
                    let (a, b) = (F::unpack(s, &*a.cast(), chunk), F::unpack(s, &*b.cast(), chunk));
                    [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)]
                }
            }
        }
    }

    /// The same for blocks of 256.
    #[inline(always)]
    unsafe fn whole(rows: &Eight, x: Row<'_>, next: bool) -> __m256 {
        // SAFETY: the caller has the features and eight rows as long as `x`.
        unsafe {
            let mut acc = _mm256_setzero_ps();
            let mut scales = Scales([[0; 8]; 8]);
            for (b, dx) in x.d.iter().enumerate() {
                let (at, q) = (b * Self::BYTES, x.q.as_ptr().add(b * 256));
                let sums = Sums::new::<F>(x.sums.as_ptr().add(b * 16));
                if F::GROUP == 32 {
                    for (row, scales) in rows.rows.iter().zip(&mut scales.0) {
                        *scales = twice(F::scale_words(&*row.add(at).cast()));
                    }
                    hide(&scales);
                }
                let mut all = [_mm256_setzero_si256(); 4];
                let mut of_minimums = [_mm256_setzero_si256(); 4];
                #[allow(clippy::needless_range_loop)] // into two arrays
                for pair in 0..4 {
                    Self::prefetch(rows, at, pair, next);
                    // Without closures, which would not have the instruction set.
                    let a = &*rows.rows[2 * pair].add(at).cast::<F::Block>();
                    let b = &*rows.rows[2 * pair + 1].add(at).cast::<F::Block>();
                    all[pair] = join(
                        whole::<D, F>(rows.s, a, q, &sums, scales.0[2 * pair].as_ptr()),
                        whole::<D, F>(rows.s, b, q, &sums, scales.0[2 * pair + 1].as_ptr()),
                    );
                    if F::M.is_some() {
                        of_minimums[pair] = minimums::<F>(F::minimum_words(a), F::minimum_words(b), &sums);
                    }
                }
                let [scales, minimums] = Self::scales_and_minimums(rows, at, 0, _mm256_set1_ps(*dx));
                acc = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(add_across(all)), acc);
                if F::M.is_some() {
                    acc = _mm256_fmadd_ps(minimums, _mm256_cvtepi32_ps(add_across(of_minimums)), acc);
                }
            }
            acc
        }
    }

    /// The same for those that [`wide`] has forms for. Nothing is prefetched into the first cache: whole models gain
    /// nothing by it here.
    #[inline(always)]
    unsafe fn wide(rows: &Eight, x: Row<'_>) -> __m256 {
        // SAFETY: the caller has AVX-512 with VNNI and eight rows as long as `x`.
        unsafe {
            let mut acc = _mm256_setzero_ps();
            for (b, dx) in x.d.iter().enumerate() {
                let at = b * Self::BYTES;
                let x = wide::Activations::new::<F>(x.q.as_ptr().add(b * 256), x.sums.as_ptr().add(b * 16));
                // Three groups of rows further on: whole models lose a hundredth by two or four.
                let ahead = rows.rows[0].wrapping_add(3 * 8 * rows.row_bytes + 8 * at);
                let [sums, of_minimums] = x.dots::<F>(&rows.rows, at, ahead);
                let [scales, minimums] = Self::scales_and_minimums(rows, at, 0, _mm256_set1_ps(*dx));
                acc = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(sums), acc);
                if F::M.is_some() {
                    acc = _mm256_fmadd_ps(minimums, _mm256_cvtepi32_ps(of_minimums), acc);
                }
            }
            acc
        }
    }

    /// `d` of the eight rows' blocks, `at` bytes into them, for the numbers from `i`: even rows, then odd ones.
    #[inline(always)]
    unsafe fn scales(rows: &Eight, at: usize, i: usize) -> __m256 {
        // SAFETY: the caller has eight blocks.
        unsafe {
            match F::D {
                Some((place, factor)) => halves(rows, at + place, factor),
                None => {
                    let d = |r: usize| F::d(&*rows.rows[r].add(at).cast(), i, |bytes| rows.s.f16(bytes));
                    _mm256_setr_ps(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7))
                }
            }
        }
    }

    /// `d` and `m` of the eight rows' blocks, `at` bytes into them, for the numbers from `i`, times `dx`: even rows, then
    /// odd ones.
    #[inline(always)]
    unsafe fn scales_and_minimums(rows: &Eight, at: usize, i: usize, dx: __m256) -> [__m256; 2] {
        // SAFETY: the caller has F16C and eight blocks.
        unsafe {
            let (Some((place, _)), Some((_, factor))) = (F::D, F::M) else {
                return [_mm256_mul_ps(Self::scales(rows, at, i), dx), _mm256_setzero_ps()];
            };
            // The f16 of `m` follows that of `d`.
            let both = |r: usize| rows.rows[r].add(at + place).cast::<i32>().read_unaligned();
            let both = _mm256_setr_epi32(both(0), both(2), both(4), both(6), both(1), both(3), both(5), both(7));
            let apart =
                _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
            let apart = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(both, apart));
            let d = _mm256_cvtph_ps(_mm256_castsi256_si128(apart));
            let m = _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(apart));
            [_mm256_mul_ps(d, dx), _mm256_mul_ps(_mm256_mul_ps(m, _mm256_set1_ps(factor)), dx)]
        }
    }

    /// While pair `i` of eight rows' blocks, `at` bytes into them, is computed: prefetches its part of what the
    /// block is to groups of eight rows further on, each of which lies in one piece. All at once would wait for each
    /// other: 7 % of the speed of Q6_K.
    ///
    /// Into the second cache, a group so far on that it comes in time: 10 to 15 KB or more (less costs models with
    /// rows of 324 and 612 bytes a tenth and a twentieth). Into the first, the next group, for rows that
    /// [`Self::NEXT`] names, else what comes [`Self::NEAR`] bytes later in the pair itself.
    #[inline(always)]
    unsafe fn prefetch(rows: &Eight, at: usize, i: usize, next: bool) {
        // SAFETY: prefetching never faults, wherever it reaches.
        unsafe {
            let Eight { rows, row_bytes, .. } = rows;
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
                    _mm_prefetch::<_MM_HINT_T1>(here.wrapping_add(far).cast());
                    if next {
                        _mm_prefetch::<_MM_HINT_T0>(here.wrapping_add(group).cast());
                    }
                }
            }
            if Self::NEAR[0] > 0 && !next {
                // At the end of a row, the beginning of the one that is eight further.
                let near = at + Self::NEAR[usize::from(*row_bytes >= 1024)];
                let near = if near < *row_bytes { near } else { near + 7 * row_bytes };
                // Once for every 64 bytes.
                if near % 64 < Self::BYTES {
                    for row in &rows[2 * i..2 * i + 2] {
                        _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(near - near % 64).cast());
                    }
                }
            }
        }
    }
}

/// The f16 of eight rows, `at` bytes into them, times `factor`: even rows, then odd ones.
#[inline(always)]
unsafe fn halves(rows: &Eight, at: usize, factor: f32) -> __m256 {
    // SAFETY: the caller has F16C and eight rows.
    unsafe {
        let d = |r: usize| rows.rows[r].add(at).cast::<i16>().read_unaligned();
        let d = _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7)));
        if factor == 1.0 { d } else { _mm256_mul_ps(d, _mm256_set1_ps(factor)) }
    }
}

/// The scales of eight rows with groups of 32, each as two words of a dword. They are broadcast from memory, which loads
/// do by the way; shuffles are what there is too little of.
#[repr(align(32))]
struct Scales([[i32; 8]; 8]);

/// See [`Scales`].
#[inline(always)]
unsafe fn twice([scales, _]: [u64; 2]) -> [i32; 8] {
    // SAFETY: the caller has AVX2.
    unsafe {
        let low = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(scales as i64));
        let both = _mm256_blend_epi16::<0b1010_1010>(low, _mm256_slli_epi32::<16>(low));
        core::mem::transmute::<__m256i, [i32; 8]>(both)
    }
}

/// The sums of the activations of 16 or 32, as the groups are.
struct Sums {
    /// As words: of 16, the even ones in a half and the odd ones in the other; of 32, the same in both.
    words: __m256i,
    /// Of 32, minus the bias times them.
    less: __m256i,
}

impl Sums {
    #[inline(always)]
    unsafe fn new<F: Format>(sums: *const i16) -> Self {
        // SAFETY: the caller has AVX2 and 16 sums.
        unsafe {
            let sums = _mm256_loadu_si256(sums.cast());
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
}

/// Sixteen scales or minimums in the order of [`Sums::words`].
#[inline(always)]
unsafe fn apart([low, high]: [u64; 2]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        opaque(_mm256_cvtepi8_epi16(_mm_shuffle_epi8(_mm_set_epi64x(high as i64, low as i64), order)))
    }
}

/// The sums of two rows' minimums times those of the activations, in four lanes each.
#[inline(always)]
unsafe fn minimums<F: Format>(a: [u64; 2], b: [u64; 2], sums: &Sums) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        if F::GROUP == 16 {
            return join(_mm256_madd_epi16(apart(a), sums.words), _mm256_madd_epi16(apart(b), sums.words));
        }
        let words = _mm256_cvtepi8_epi16(_mm_set_epi64x(b[0] as i64, a[0] as i64));
        _mm256_madd_epi16(words, sums.words)
    }
}

/// Eight i32 whose sum is the dot product of a block of 256 as a whole number; `scales` are those of groups of 32.
#[inline(always)]
unsafe fn whole<D: Dot, F: Format>(s: Ymm, block: &F::Block, x: *const i8, sums: &Sums, scales: *const i32) -> __m256i {
    // SAFETY: the caller has the features and 256 activations.
    unsafe {
        let words = if F::GROUP == 16 { apart(F::scale_words(block)) } else { _mm256_setzero_si256() };
        if D::WIDE && TypeId::of::<F>() == TypeId::of::<Q6K>() {
            let extra = _mm256_slli_epi32::<5>(_mm256_madd_epi16(words, sums.words));
            return q6k::sums512(block.as_ref().as_ptr(), x, extra);
        }
        let mut acc = match F::BIAS {
            bias if bias == 0 || signed::<F>() => _mm256_setzero_si256(),
            bias if F::GROUP == 16 => {
                _mm256_mullo_epi32(_mm256_madd_epi16(words, sums.words), _mm256_set1_epi32(-i32::from(bias)))
            }
            _ => _mm256_mullo_epi32(_mm256_srai_epi32::<16>(_mm256_loadu_si256(scales.cast())), sums.less),
        };
        // Of groups of 16, where the word of the first scale lies.
        let place = opaque(_mm256_set1_epi16(0x0100));
        macro_rules! chunks {
            ($($chunk:literal)*) => { $({
                let codes = F::unpack(s, block, $chunk);
                let x = _mm256_loadu_si256(x.add($chunk * 32).cast());
                let pairs = pairs::<F>(codes, x);
                let scale = if F::GROUP == 32 {
                    _mm256_set1_epi32(scales.add($chunk).read())
                } else {
                    _mm256_shuffle_epi8(words, _mm256_add_epi8(place, _mm256_set1_epi8(2 * $chunk)))
                };
                acc = D::words(acc, pairs, scale);
            })* };
        }
        chunks!(0 1 2 3 4 5 6 7);
        acc
    }
}

/// Four lanes of each.
#[inline(always)]
pub(super) unsafe fn join(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)) }
}

/// The sums of four lanes each: first the lower halves of the four registers, then the upper ones.
#[inline(always)]
pub(super) unsafe fn add_across(pairs: [__m256i; 4]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let [a, b, c, d] = pairs;
        let ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd))
    }
}
