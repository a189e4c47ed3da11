//! Measures the peak rate of integer multiply-adds, which is an upper bound on prefill speed.

use super::Kernels;

/// Number of instructions in a round of the loop. They use different registers, so that none of them waits for the
/// result of another.
const INSTRUCTIONS: u64 = 12;

/// Defines a function that runs the same instruction [`INSTRUCTIONS`] times per round, for `rounds` rounds. The
/// instruction's text is `$start`, the register's `$number`, `$end`; each use has a different destination register, so
/// that none waits for another.
#[allow(unused_macros)] // some targets have none
macro_rules! repeated {
    ($(#[$feature:meta])? fn $name:ident: $start:literal $end:literal, $($number:literal = $register:tt),*) => {
        $(#[$feature])?
        fn $name(rounds: u32) {
            for _ in 0..rounds {
                // SAFETY: callers run on a processor that has the instruction. The instruction accesses only registers,
                // and their old values are not needed.
                unsafe {
                    core::arch::asm!(
                        $(concat!($start, $number, $end),)*
                        $(out($register) _,)*
                        options(nomem, nostack, preserves_flags)
                    );
                }
            }
        }
    };
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(memory_sanitizer)))]
mod isa {
    macro_rules! on_vectors {
        ($(#[$feature:meta])? fn $name:ident: $start:literal $end:literal) => {
            repeated! {
                $(#[$feature])? fn $name: $start $end,
                "0" = "xmm0", "1" = "xmm1", "2" = "xmm2", "3" = "xmm3", "4" = "xmm4", "5" = "xmm5",
                "6" = "xmm6", "7" = "xmm7", "8" = "xmm8", "9" = "xmm9", "10" = "xmm10", "11" = "xmm11"
            }
        };
    }
    on_vectors! { #[target_feature(enable = "avx512vnni")] fn dpbusd_512: "vpdpbusd zmm" ", zmm14, zmm15" }
    on_vectors! { #[target_feature(enable = "avxvnni")] fn dpbusd: "{{vex}} vpdpbusd ymm" ", ymm14, ymm15" }
    on_vectors! { #[target_feature(enable = "avx2")] fn maddubs: "vpmaddubsw ymm" ", ymm14, ymm15" }

    /// Runs the table's multiply instruction for the given number of rounds. Returns the number of multiply-adds in one
    /// instruction.
    pub(super) fn run(table: &str, rounds: u32) -> Option<u64> {
        // SAFETY: a table is available only if the processor has its instruction set.
        unsafe {
            let products = match table {
                "avx512" => (dpbusd_512(rounds), 64).1,
                "avxvnni" => (dpbusd(rounds), 32).1,
                "avx2" => (maddubs(rounds), 32).1,
                _ => return None,
            };
            // Clears the upper halves of the registers, because SSE code is slow while the upper halves are in use.
            core::arch::asm!("vzeroupper", options(nomem, nostack, preserves_flags));
            Some(products)
        }
    }
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod isa {
    macro_rules! on_vectors {
        ($(#[$feature:meta])? fn $name:ident: $start:literal $end:literal) => {
            repeated! {
                $(#[$feature])? fn $name: $start $end,
                "0" = "v0", "1" = "v1", "2" = "v2", "3" = "v3", "4" = "v4", "5" = "v5",
                "6" = "v6", "7" = "v7", "16" = "v16", "17" = "v17", "18" = "v18", "19" = "v19"
            }
        };
    }
    on_vectors! { #[target_feature(enable = "i8mm")] fn smmla: "smmla v" ".4s, v30.16b, v31.16b" }
    on_vectors! { #[target_feature(enable = "dotprod")] fn sdot: "sdot v" ".4s, v30.16b, v31.16b" }

    /// Runs the table's multiply instruction for the given number of rounds. Returns the number of multiply-adds in one
    /// instruction.
    pub(super) fn run(table: &str, rounds: u32) -> Option<u64> {
        // SAFETY: a table is available only if the processor has its instruction set.
        unsafe {
            match table {
                "i8mm" => (smmla(rounds), 32),
                "dotprod" => (sdot(rounds), 16),
                _ => return None,
            }
        }
        .1
        .into()
    }
}

#[cfg(not(any(
    all(target_arch = "x86_64", target_feature = "sse2", not(memory_sanitizer)),
    all(target_arch = "aarch64", target_feature = "neon")
)))]
mod isa {
    pub(super) fn run(_: &str, _: u32) -> Option<u64> {
        None
    }
}

impl Kernels {
    /// Multiplies integers in registers, with the instruction of this table's products, as fast as the processor can.
    /// Returns the number of multiply-adds, which is proportional to `rounds`; `None` if the table has no such
    /// instruction. Together with a clock, this number tells how fast a prompt can be processed at best.
    ///
    /// # Examples
    ///
    /// ```
    /// use arenite::Kernels;
    /// use std::time::Instant;
    ///
    /// let start = Instant::now();
    /// if let Some(products) = Kernels::detect().multiply_integers(100_000) {
    ///     println!("{:.0} G multiply-adds per second", products as f64 / start.elapsed().as_secs_f64() * 1e-9);
    /// }
    /// ```
    pub fn multiply_integers(&self, rounds: u32) -> Option<u64> {
        isa::run(self.name, rounds).map(|products| products * INSTRUCTIONS * u64::from(rounds))
    }
}
