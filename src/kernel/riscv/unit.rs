//! Floats: one at a time, and sixteen in four vector registers of 128 bits.

use core::arch::asm;
use core::mem::MaybeUninit;

use crate::kernel::scalar::Unit;

/// The extension F.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Float;

/// The extension V. Used only where it is there.
#[derive(Clone, Copy)]
pub(super) struct Vector;

// SAFETY: registers only.
unsafe impl Unit for Float {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        let d;
        // SAFETY: registers only.
        unsafe {
            asm!(
                "fmadd.s {d}, {a}, {b}, {c}",
                d = lateout(freg) d,
                a = in(freg) a,
                b = in(freg) b,
                c = in(freg) c,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        d
    }
}

/// `asm!` with vectors: sixteen floats from v0, v4, v8 and v12 on.
macro_rules! vectors {
    ($($code:literal,)* ; $($operands:tt)*) => {
        asm!(
            ".option push",
            ".option arch, +v",
            "vsetivli zero, 16, e32, m4, ta, ma",
            $($code,)*
            ".option pop",
            $($operands)*
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v14") _, out("v15") _,
            options(nostack),
        )
    };
}

// SAFETY: each block says what it reads and writes.
unsafe impl Unit for Vector {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        Float::fma(a, b, c)
    }

    #[inline(always)]
    fn fma_lanes(a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        let mut out = MaybeUninit::<[f32; 16]>::uninit();
        // SAFETY: three arrays of 16, and the whole result is written.
        unsafe {
            vectors!(
                "vle32.v v0, ({a})",
                "vle32.v v4, ({b})",
                "vle32.v v8, ({c})",
                "vfmacc.vv v8, v0, v4",
                "vse32.v v8, ({out})",
                ;
                a = in(reg) a.as_ptr(),
                b = in(reg) b.as_ptr(),
                c = in(reg) c.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
            );
            out.assume_init()
        }
    }

    #[inline(always)]
    unsafe fn add_products(
        start: *const f32,
        rows: *const f32,
        stride: usize,
        x: *const f32,
        n: usize,
        _lanes: usize,
        to: *mut f32,
    ) {
        // SAFETY: the caller has 16 numbers at the start, n rows and n factors, and room for 16.
        unsafe {
            vectors!(
                "vle32.v v8, ({start})",
                "beqz {n}, 3f",
                "2:",
                "flw {f}, 0({x})",
                "vle32.v v0, ({rows})",
                "addi {x}, {x}, 4",
                "add {rows}, {rows}, {step}",
                "addi {n}, {n}, -1",
                "vfmacc.vf v8, {f}, v0",
                "bnez {n}, 2b",
                "3:",
                "vse32.v v8, ({to})",
                ;
                start = in(reg) start,
                rows = inout(reg) rows => _,
                step = in(reg) stride.wrapping_mul(4),
                x = inout(reg) x => _,
                n = inout(reg) n => _,
                to = in(reg) to,
                f = out(freg) _,
            );
        }
    }
}
