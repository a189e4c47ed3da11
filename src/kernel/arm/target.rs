//! The build script: what instructions a Cortex-M target has.
//!
//! Stable compilers do not say so in `cfg(target_feature)`, but the target's name does:
//! `cortex_m_fpu` (VFMA and conversions of f16) and `cortex_m_dsp` (SMLAD).

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=src/kernel/arm/target.rs");
    println!("cargo::rustc-check-cfg=cfg(cortex_m_fpu, cortex_m_dsp)");
    let target = var("TARGET").unwrap_or_default();
    let (v7em, v8m) = (target.starts_with("thumbv7em"), target.starts_with("thumbv8m.main"));
    if (v7em || v8m) && target.ends_with("hf") {
        println!("cargo::rustc-cfg=cortex_m_fpu");
    }
    // An option of ARMv8-M, which these processors have.
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let has_dsp =
        ["cortex-m33", "cortex-m35p", "cortex-m55", "cortex-m85", "+dsp"].iter().any(|flag| flags.contains(flag));
    if v7em || v8m && has_dsp {
        println!("cargo::rustc-cfg=cortex_m_dsp");
    }
}
