//! The limits of the machine: how fast it reads memory, and how fast it multiplies bytes.

/// Reads all of `bytes`, with as little computation as possible.
pub fn read(bytes: &[u8]) -> u64 {
    // The compiler vectorizes sums in 16 lanes on every target, so loads take most of the time.
    let mut sums = [0u64; 16];
    let (chunks, _) = bytes.as_chunks::<128>();
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// A loop that only multiplies bytes and sums the products in 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Multiplier {
    /// Name of the instruction set, as in `arenite::Kernels`.
    pub name: &'static str,
    /// Multiplications per call.
    pub count: usize,
    /// Runs the loop.
    pub run: fn() -> i32,
}

/// The multipliers that this machine can run.
pub fn multipliers() -> Vec<Multiplier> {
    #[cfg(target_arch = "x86_64")]
    let all = x86::multipliers();
    #[cfg(not(target_arch = "x86_64"))]
    let all = Vec::new();
    all
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::asm;
    use core::arch::x86_64::*;
    use std::hint::black_box;

    use super::Multiplier;

    /// Independent sums, enough to hide the latency of an addition.
    const SUMS: usize = 12;
    /// Steps of each sum per call.
    const STEPS: usize = 4096;

    /// Defines a function that repeats `$step(sum, a, b)`.
    macro_rules! multiplier {
        ($name:ident, $features:literal, $set:ident, $low:expr, $step:expr) => {
            fn $name() -> i32 {
                #[target_feature(enable = $features)]
                fn run() -> i32 {
                    let (a, b) = ($set(black_box(0x0102_0304)), $set(black_box(0x0101_0101)));
                    let mut sums = [$set(0); SUMS];
                    for (i, sum) in (0..).zip(&mut sums) {
                        *sum = $set(black_box(i));
                    }
                    for _ in 0..STEPS {
                        for sum in &mut sums {
                            *sum = $step(*sum, a, b);
                        }
                    }
                    sums.into_iter().fold(0, |total, sum| total.wrapping_add($low(sum)))
                }
                // SAFETY: `multipliers` only returns this function if the machine has the features.
                unsafe { run() }
            }
        };
    }
    multiplier!(avx2, "avx2", _mm256_set1_epi32, _mm256_cvtsi256_si32, |sum, mut a, b| {
        // SAFETY: contains no instruction. It hides from the compiler that the products are always the same.
        unsafe { asm!("/* {} */", inout(ymm_reg) a, options(nomem, nostack, preserves_flags)) };
        _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)))
    });
    multiplier!(avxvnni, "avx2,avxvnni", _mm256_set1_epi32, _mm256_cvtsi256_si32, |sum, a, b| {
        _mm256_dpbusd_avx_epi32(sum, a, b)
    });
    multiplier!(avx512, "avx512f,avx512vnni", _mm512_set1_epi32, _mm512_cvtsi512_si32, |sum, a, b| {
        _mm512_dpbusd_epi32(sum, a, b)
    });

    pub fn multipliers() -> Vec<Multiplier> {
        let count = |bytes| bytes * SUMS * STEPS;
        [
            (is_x86_feature_detected!("avx512vnni"), Multiplier { name: "avx512", count: count(64), run: avx512 }),
            (is_x86_feature_detected!("avxvnni"), Multiplier { name: "avxvnni", count: count(32), run: avxvnni }),
            (is_x86_feature_detected!("avx2"), Multiplier { name: "avx2", count: count(32), run: avx2 }),
        ]
        .into_iter()
        .filter_map(|(has, multiplier)| has.then_some(multiplier))
        .collect()
    }
}
