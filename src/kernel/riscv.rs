//! 64-bit RISC-V with the vector extension V, under Linux. Linux reports whether the processor has V.
//!
//! Each step loads vectors from memory and stores its results to memory, because stable Rust has no type for vectors of
//! V. The code is for vectors of 128 bits, the minimum of V; longer vectors give the same results.

use core::arch::asm;
use core::mem::MaybeUninit;

use super::fours::{self, Vectors};
use super::scalar::{Scalar, Unit};
use super::{Job, Kernels, float};
use crate::quant::{Bytes, Format, formats_list};

const RVV: Kernels = table!("rvv", Scalar<Rvv>, matmul);

/// The table, if the machine supports it.
pub(super) fn available() -> impl Iterator<Item = &'static Kernels> {
    // From Linux' `asm/hwcap.h`.
    const HWCAP_ISA_V: libc::c_ulong = 1 << (b'V' - b'A');
    // SAFETY: `getauxval` has no preconditions.
    let there = unsafe { libc::getauxval(libc::AT_HWCAP) & HWCAP_ISA_V != 0 };
    there.then_some(&RVV).into_iter()
}

formats_list!(choose matmul floats blocks);

fn floats<W: float::Weight>(job: &mut Job<'_>) {
    float::matmul::<_, W, 1, 1>(Scalar::<Rvv>::HERE, job);
}

unsafe fn blocks<F: Format>(job: &mut Job<'_>) {
    // SAFETY: the caller promises the same.
    unsafe { fours::matmul::<F, Rvv>(job) }
}

/// `asm!` of vector instructions, which may clobber v8 to v31.
macro_rules! vectors {
    ($($code:expr,)* ; $($operands:tt)*) => {
        asm!(
            ".option push",
            ".option arch, +v",
            $($code,)*
            ".option pop",
            $($operands)*
            out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v14") _, out("v15") _,
            out("v16") _, out("v17") _, out("v18") _, out("v19") _, out("v20") _, out("v21") _, out("v22") _,
            out("v23") _, out("v24") _, out("v25") _, out("v26") _, out("v27") _, out("v28") _, out("v29") _,
            out("v30") _, out("v31") _,
            options(nostack),
        )
    };
}

/// The vector extension V.
#[derive(Clone, Copy)]
struct Rvv;

// SAFETY: each block states what it reads and writes. The instructions are there, because `available` only returns this
// table if the processor has the vector extension (V).
unsafe impl Unit for Rvv {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        let out;
        // SAFETY: uses registers only.
        unsafe {
            asm!(
                "fmadd.s {out}, {a}, {b}, {c}",
                out = lateout(freg) out,
                a = in(freg) a,
                b = in(freg) b,
                c = in(freg) c,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        out
    }

    #[inline(always)]
    fn fma_lanes(a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        let mut out = MaybeUninit::<[f32; 16]>::uninit();
        // SAFETY: reads three arrays of 16 floats, and writes the whole result.
        unsafe {
            vectors!(
                "vsetivli zero, 16, e32, m4, ta, ma",
                "vle32.v v8, ({a})",
                "vle32.v v12, ({b})",
                "vle32.v v16, ({c})",
                "vfmacc.vv v16, v8, v12",
                "vse32.v v16, ({out})",
                ;
                a = in(reg) a.as_ptr(),
                b = in(reg) b.as_ptr(),
                c = in(reg) c.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
            );
            out.assume_init()
        }
    }
}

/// Multiplies the quants in v8 with the codes of a row, from which the bias is subtracted. The products go to v16, v20,
/// v24 or v28.
macro_rules! multiply {
    ($codes:literal, $products:literal) => {
        concat!("vle8.v v12, (", $codes, ")\nvsub.vx v12, v12, {bias}\nvwmul.vv ", $products, ", v12, v8\n")
    };
}

// SAFETY: each block states what it reads and writes; sums of 32 products fit 32 bits.
unsafe impl Vectors for Rvv {
    type Bytes = Words;
    const BYTES: Words = Words;

    #[inline(always)]
    fn store(codes: [u64; 4], to: &mut [u8; 32]) {
        *to = bytemuck::must_cast(codes);
    }

    #[inline(always)]
    unsafe fn dots<const N: usize>(codes: [*const u8; 4], bias: u8, q: *const i8) -> [i32; 4] {
        let (a, b, c, d): (*const u8, *const u8, *const u8, *const u8);
        // SAFETY: reads N codes of each row, and N quants.
        unsafe {
            vectors!(
                "vsetvli zero, {n}, e8, m2, ta, ma",
                "vle8.v v8, ({q})",
                multiply!("{a}", "v16"),
                multiply!("{b}", "v20"),
                multiply!("{c}", "v24"),
                multiply!("{d}", "v28"),
                "vsetvli zero, zero, e16, m4, ta, ma",
                "vmv.v.i v8, 0",
                "vwredsum.vs v12, v16, v8",
                "vwredsum.vs v13, v20, v8",
                "vwredsum.vs v14, v24, v8",
                "vwredsum.vs v15, v28, v8",
                "vsetivli zero, 1, e32, m1, ta, ma",
                "vmv.x.s {a}, v12",
                "vmv.x.s {b}, v13",
                "vmv.x.s {c}, v14",
                "vmv.x.s {d}, v15",
                ;
                n = in(reg) N,
                q = in(reg) q,
                bias = in(reg) usize::from(bias),
                a = inout(reg) codes[0] => a,
                b = inout(reg) codes[1] => b,
                c = inout(reg) codes[2] => c,
                d = inout(reg) codes[3] => d,
            );
        }
        [a, b, c, d].map(|sum| sum.addr() as i32)
    }
}

/// Operations on 32 bytes, held in four 64-bit registers. The bytes are loaded by vector instructions, because not
/// every processor can load words that are not aligned.
#[derive(Clone, Copy)]
struct Words;

const ONES: u64 = 0x0101_0101_0101_0101;
/// The top bit of every byte.
const TOP: u64 = 0x80 * ONES;

#[inline(always)]
fn zip(a: [u64; 4], b: [u64; 4], f: impl Fn(u64, u64) -> u64) -> [u64; 4] {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

/// 255 for every byte whose top bit is set, else 0.
#[inline(always)]
fn fill(x: u64) -> u64 {
    ((x & TOP) >> 7) * 255
}

impl Bytes for Words {
    type V = [u64; 4];
    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> [u64; 4] {
        let mut out = MaybeUninit::<[u64; 4]>::uninit();
        // SAFETY: reads 32 bytes, and writes the whole result.
        unsafe {
            vectors!(
                "vsetvli zero, {n}, e8, m2, ta, ma",
                "vle8.v v8, ({bytes})",
                "vse8.v v8, ({out})",
                ;
                n = in(reg) 32,
                bytes = in(reg) bytes.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
            );
            out.assume_init()
        }
    }
    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> [u64; 4] {
        let mut out = MaybeUninit::<[u64; 4]>::uninit();
        // SAFETY: reads 16 bytes, and writes the whole result.
        unsafe {
            vectors!(
                "vsetivli zero, 16, e8, m1, ta, ma",
                "vle8.v v8, ({bytes})",
                "vand.vi v9, v8, 15",
                "vsrl.vi v8, v8, 4",
                "vse8.v v9, ({out})",
                "vse8.v v8, ({upper})",
                ;
                bytes = in(reg) bytes.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
                upper = in(reg) out.as_mut_ptr().cast::<u8>().add(16),
            );
            out.assume_init()
        }
    }
    #[inline(always)]
    fn words(self, words: [u64; 4]) -> [u64; 4] {
        words
    }
    #[inline(always)]
    fn splat(self, byte: u8) -> [u64; 4] {
        [u64::from(byte) * ONES; 4]
    }
    #[inline(always)]
    fn or(self, a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
        zip(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn and(self, a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
        zip(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn xor(self, a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
        zip(a, b, |a, b| a ^ b)
    }
    /// Adds eight bytes at a time. The top bit of each byte is cleared before the addition and added afterwards by xor,
    /// so that no carry goes from byte to byte.
    #[inline(always)]
    fn add(self, a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
        zip(a, b, |a, b| ((a & !TOP) + (b & !TOP)) ^ ((a ^ b) & TOP))
    }
    #[inline(always)]
    fn sub(self, a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
        zip(a, b, |a, b| ((a | TOP) - (b & !TOP)) ^ (!(a ^ b) & TOP))
    }
    #[inline(always)]
    fn shift(self, x: [u64; 4], left: i32, mask: u8) -> [u64; 4] {
        let by = left.unsigned_abs();
        if left < 0 {
            let mask = u64::from(mask & 0xff_u8.unbounded_shr(by)) * ONES;
            x.map(|x| x >> (by % 64) & mask)
        } else {
            let mask = u64::from(mask & 0xff_u8.unbounded_shl(by)) * ONES;
            x.map(|x| x << (by % 64) & mask)
        }
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: [u64; 4]) -> [u64; 4] {
        let mut out = MaybeUninit::<[u64; 4]>::uninit();
        // SAFETY: reads 16 bytes of the table and 32 indices, and writes the whole result.
        unsafe {
            vectors!(
                "vsetivli zero, 16, e8, m2, ta, ma",
                "vle8.v v8, ({table})",
                "vsetvli zero, {n}, e8, m2, ta, ma",
                "vle8.v v10, ({x})",
                "vrgather.vv v12, v8, v10",
                "vse8.v v12, ({out})",
                ;
                n = in(reg) 32,
                table = in(reg) table.as_ptr(),
                x = in(reg) x.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
            );
            out.assume_init()
        }
    }
    #[inline(always)]
    fn spread(self, bits: u32) -> [u64; 4] {
        bits.to_le_bytes().map(|byte| fill((u64::from(byte) * ONES & 0x8040_2010_0804_0201) + !TOP))
    }
    #[inline(always)]
    fn at_least(self, x: [u64; 4], least: u8) -> [u64; 4] {
        let least = u64::from(least) * ONES;
        x.map(|x| fill((x & !least) | (!(x ^ least) & ((x | TOP) - (least & !TOP)))))
    }
}
