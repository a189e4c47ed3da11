//! x86-64: AVX2 with FMA, AVX-VNNI, AVX-512 with VNNI. Below that, the scalar kernels.
//!
//! Weights are unsigned here (a Q8_0 byte plus 128, a Q4_0 nibble as it is), because the
//! instructions multiply unsigned by signed bytes; what that adds is taken back by the activations'
//! offsets, all in exact integers.

mod avx2;
mod avx512;
mod decode;
mod panel;
mod q6k;

use core::arch::x86_64::{__cpuid_count, CpuidResult};

use super::{Job, Kernels, float, quantized};
use crate::quant::TensorType;
use decode::{Q4_0, Q6K, Q8_0, Rows};
use panel::Shapes;

cpufeatures::new!(has_avx2, "avx2", "fma");
cpufeatures::new!(has_avx512, "avx512f", "avx512dq", "avx512bw", "avx512vl");

/// The tables that this machine can run, the fastest first.
pub(super) fn available() -> impl Iterator<Item = &'static Kernels> {
    // What `cpufeatures` does not know: conversion from f16, and the VNNI instructions.
    let f16c = cpuid(1, 0).ecx >> 29 & 1 != 0;
    let avx2 = has_avx2::get() && f16c;
    let leaf7 = avx2.then(|| (cpuid(7, 0), cpuid(7, 1)));
    let avx512 = has_avx512::get() && leaf7.is_some_and(|(leaf, _)| leaf.ecx >> 11 & 1 != 0);
    let vnni = leaf7.is_some_and(|(leaf, sub)| leaf.eax >= 1 && sub.eax >> 4 & 1 != 0);
    [(avx512 && avx2, &AVX512), (vnni, &AVXVNNI), (avx2, &AVX2)]
        .into_iter()
        .filter_map(|(has, table)| has.then_some(table))
}

/// What the processor says of itself. The function is unsafe for compilers of the minimum version and safe for newer ones.
#[allow(unused_unsafe)]
fn cpuid(leaf: u32, sub_leaf: u32) -> CpuidResult {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { __cpuid_count(leaf, sub_leaf) }
}

static AVX2: Kernels = table!("avx2", avx2::Avx2, avx2_matmul, "avx2,fma,f16c");
static AVXVNNI: Kernels = table!("avxvnni", avx2::Avx2, avxvnni_matmul, "avx2,fma,f16c,avxvnni");
static AVX512: Kernels =
    table!("avx512", avx512::Avx512, avx512_matmul, "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni");

/// Defines the choice among weight types for one table: float tiles of `$r` rows by `$t` tokens, and the
/// quantized formats decoded by `$dot` and multiplied by `$panel`, `$tokens` tokens at once.
macro_rules! matmul {
    ($name:ident, $lanes:ty, $r:literal x $t:literal, $dot:ty, $panel:ty, $tokens:literal) => {
        #[inline(always)]
        unsafe fn $name(kind: TensorType, job: &mut Job<'_>) {
            // SAFETY: the caller has the table's features, and `job` is as `Job` says.
            unsafe {
                match kind {
                    TensorType::F32 => float::matmul::<$lanes, float::F32, $r, $t>(job),
                    TensorType::F16 => float::matmul::<$lanes, float::F16, $r, $t>(job),
                    TensorType::BF16 => float::matmul::<$lanes, float::Bf16, $r, $t>(job),
                    TensorType::Q8_0 => quantized::matmul::<Shapes<Rows<$dot, Q8_0>, Q8_0, $panel>, $tokens>(job),
                    TensorType::Q4_0 => quantized::matmul::<Shapes<Rows<$dot, Q4_0>, Q4_0, $panel>, $tokens>(job),
                    TensorType::Q6_K => quantized::decode::<Rows<$dot, Q6K>>(job),
                    _ => {}
                }
            }
        }
    };
}
matmul!(avx2_matmul, avx2::Avx2, 2 x 3, decode::Madd, panel::Madd, 3);
matmul!(avxvnni_matmul, avx2::Avx2, 2 x 3, decode::Vnni, panel::Vnni, 4);
matmul!(avx512_matmul, avx512::Avx512, 4 x 5, decode::Vnni512, panel::Vnni512, 8);
