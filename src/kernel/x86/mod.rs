//! x86-64: AVX2 with FMA, AVX-VNNI, AVX-512 with VNNI, and AMX. Processors without AVX2 use the scalar kernels.
//!
//! Weights stay unsigned codes, because the instructions of x86 multiply unsigned bytes by signed bytes. The
//! contribution of the bias is subtracted with the help of the activations' sums. These integer operations are exact.
//! (AVX2 without VNNI multiplies signed weights in some formats: see [`products::signed`].)

/// Defines methods whose bodies are compiled for an instruction set. A value of `$type` proves that the processor has
/// the instruction set.
macro_rules! methods {
    (
        $type:ty, $features:literal;
        $($(#[$doc:meta])* fn $name:ident($this:ident $(, $x:ident: $arg:ty)*) $(-> $result:ty)? $body:block)*
    ) => { $(
        $(#[$doc])*
        #[inline(always)]
        fn $name(self $(, $x: $arg)*) $(-> $result)? {
            #[inline]
            #[target_feature(enable = $features)]
            fn $name($this: $type $(, $x: $arg)*) $(-> $result)? $body
            // SAFETY: `self` proves that the processor has the features.
            unsafe { $name(self $(, $x)*) }
        }
    )* };
}

mod ahead;
mod amx;
mod avx2;
mod avx512;
mod bytes;
mod decode;
mod pack;
mod panel;
mod products;
mod q6k;
mod quad;
mod wide;

use core::arch::x86_64::{__cpuid_count, CpuidResult};

use super::lanes::Isa;
use super::quantized::Panels;
use super::{Job, Kernels, float, quantized};
use crate::quant::{Format, TensorType, formats_list};
use decode::Rows;
use products::{Madd, Vnni, Vnni512};

cpufeatures::new!(has_avx2, "avx2", "fma");
cpufeatures::new!(has_avx512, "avx512f", "avx512dq", "avx512bw", "avx512vl");

/// The tables that this machine can run, the fastest first.
pub(super) fn available() -> impl Iterator<Item = &'static Kernels> {
    // Reads the CPUID bits of F16C, AVX-512 VNNI and AVX-VNNI, because `cpufeatures` does not detect these.
    let f16c = cpuid(1, 0).ecx >> 29 & 1 != 0;
    let avx2 = has_avx2::get() && f16c;
    let leaf7 = avx2.then(|| (cpuid(7, 0), cpuid(7, 1)));
    let avx512 = has_avx512::get() && leaf7.is_some_and(|(leaf, _)| leaf.ecx >> 11 & 1 != 0);
    let vnni = leaf7.is_some_and(|(leaf, sub)| leaf.eax >= 1 && sub.eax >> 4 & 1 != 0);
    [(avx512 && avx2 && amx::is_permitted(), &AMX), (avx512 && avx2, &AVX512), (vnni, &AVXVNNI), (avx2, &AVX2)]
        .into_iter()
        .filter_map(|(has, table)| has.then_some(table))
}

/// See [`Kernels::request_amx`].
pub(super) fn request_amx() -> bool {
    available().any(|kernels| kernels.name == AVX512.name) && amx::request()
}

/// Runs the CPUID instruction. `__cpuid_count` is unsafe in the minimum supported compiler version and safe in newer
/// versions.
#[allow(unused_unsafe)]
fn cpuid(leaf: u32, sub_leaf: u32) -> CpuidResult {
    // SAFETY: every processor of this architecture has the CPUID instruction.
    unsafe { __cpuid_count(leaf, sub_leaf) }
}

const AVX2: Kernels = table!("avx2", avx2::Avx2, avx2_matmul, "avx2,fma,f16c");
const AVXVNNI: Kernels = Kernels { name: "avxvnni", matmul: avxvnni_matmul, ..AVX2 };
const AVX512: Kernels = table!("avx512", avx512::Avx512, avx512_matmul, "avx512dq,avx512bw,avx512vl,avx512vnni");
const AMX: Kernels = Kernels { name: "amx", matmul: amx_matmul, ..AVX512 };

/// Returns the table of AMX without asking the operating system for permission.
///
/// # Safety
///
/// The processor has AVX-512 with VNNI. It also has AMX and the process may use AMX, or an emulator executes the AMX
/// instructions.
#[cfg(feature = "internals")]
pub unsafe fn amx_table() -> &'static Kernels {
    &AMX
}

formats_list!(choose avx2_matmul avx2_floats avx2_blocks);
formats_list!(choose avxvnni_matmul avx2_floats avxvnni_blocks);
formats_list!(choose avx512_matmul avx512_floats avx512_blocks);
formats_list!(choose amx_matmul avx512_floats amx_blocks);

/// The matrix product of float weights, in tiles of 2 rows by 3 tokens.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2_floats<W: float::Weight>(job: &mut Job<'_>) {
    // SAFETY: the caller promises the features.
    float::matmul::<_, W, 2, 3>(unsafe { avx2::Avx2::new() }, job);
}

/// The matrix product of float weights, in tiles of 4 rows by 5 tokens.
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
unsafe fn avx512_floats<W: float::Weight>(job: &mut Job<'_>) {
    // SAFETY: the caller promises the features.
    float::matmul::<_, W, 4, 5>(unsafe { avx512::Avx512::new() }, job);
}

/// The largest number of tokens, at most five, that are multiplied row by row, without a packed panel. For few tokens
/// this is faster: weights are unpacked once for all tokens, and three to five tokens take 0.55 to 1.0 times the time
/// of a panel (Zen 4, weights from memory, AVX-512 and AVX2).
const fn few<F: Format>() -> usize {
    use TensorType::*;
    match F::KIND {
        Q8_0 | MXFP4 | Q2_K | Q3_K | Q4_K | Q5_K | Q6_K => 5,
        Q4_0 | Q4_1 | Q5_0 | Q5_1 | IQ4_NL => 3,
        _ => 1,
    }
}

/// Defines the matrix product of block formats: decode with `$dot`, prefill with the functions of `$panel`.
macro_rules! blocks {
    ($name:ident, $features:literal, $dot:ty, $cost:literal $pack:ident, $panel:ident, $both:expr) => {
        unsafe fn $name<F: Format>(job: &mut Job<'_>) {
            #[target_feature(enable = $features)]
            unsafe fn decode<F: Format, const TOKENS: usize>(job: &mut Job<'_>) {
                // SAFETY: the caller promises the features, and that the job has `TOKENS` tokens.
                unsafe { quantized::decode::<Rows<$dot, F>, TOKENS>(job) }
            }
            // SAFETY: the caller promises the features; all functions are for format `F`, and `$pack` writes the layout
            // that `$panel` reads.
            unsafe {
                match job.x.tokens {
                    1 => decode::<F, 1>(job),
                    2 if const { few::<F>() >= 2 } => decode::<F, 2>(job),
                    3 if const { few::<F>() >= 3 } => decode::<F, 3>(job),
                    4 if const { few::<F>() >= 4 } => decode::<F, 4>(job),
                    5 if const { few::<F>() >= 5 } => decode::<F, 5>(job),
                    _ => {
                        let panels = const {
                            Panels { pack: pack::$pack::<F>, cost: $cost, both: $both, multiply: panel::$panel::<F>() }
                        };
                        quantized::prefill(job, F::BIAS, &panels);
                    }
                }
            }
        }
    };
}
blocks!(avx2_blocks, "avx2,fma,f16c", Madd, 0 avx2, avx2, None);
blocks!(avxvnni_blocks, "avx2,fma,f16c,avxvnni", Vnni, 0 avxvnni, avxvnni, None);
blocks!(avx512_blocks, "avx512dq,avx512bw,avx512vl,avx512vnni", Vnni512, 4 avx512, avx512, panel::avx512_both::<F>());

/// The matrix product of block formats under AMX. Batches with too few tokens to fill a tile are multiplied by AVX-512.
unsafe fn amx_blocks<F: Format>(job: &mut Job<'_>) {
    // SAFETY: the caller promises AVX-512 with VNNI and AMX; all functions are for format `F`, and read the panel that
    // `pack::avx512` writes. `multiply` does not panic, because no kernel does.
    unsafe {
        if job.x.tokens < amx::TOKENS {
            return avx512_blocks::<F>(job);
        }
        let panels = const { Panels { pack: pack::avx512::<F>, cost: 0, both: None, multiply: panel::amx::<F>() } };
        let multiply = || quantized::prefill(job, F::BIAS, &panels);
        if const { panel::amx_span::<F>() == 16 } {
            amx::with_tiles::<16>(multiply);
        } else {
            amx::with_tiles::<32>(multiply);
        }
    }
}
