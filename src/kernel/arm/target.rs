//! The build script: determines the instructions of a 32-bit Arm target.
//!
//! This script derives the instructions from the target's name and, for ARMv8-M, from `-C target-cpu` and `-C
//! target-feature`, because stable compilers do not report these instructions in `cfg(target_feature)`. It sets these
//! cfgs:
//!
//! - `cortex_m0`: a Cortex-M0, M0+ or M1, without products of 64 bits.
//! - `riscv_fpu`: 32-bit RISC-V with a floating-point unit.
//! - `cortex_m_fpu`: a Cortex-M with VFMA and conversions of f16.
//! - `cortex_m_dsp`: a Cortex-M with the DSP extension (SMLAD).
//! - `helium`: an ARMv8-M processor with `cortex_m_fpu` and `cortex_m_dsp`, if the Cargo feature `helium` is on.
//! - `arm_linux`: 32-bit Arm with Linux and hard floats. VFMA and the conversions are detected at run time, together
//!   with NEON.
//! - `arm_fpu`: `cortex_m_fpu` or `arm_linux`.
//!
//! The script declares one more cfg, `memory_sanitizer`, but does not set it. `.ci/instrument memory` sets this cfg,
//! which limits a build to the scalar kernels.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=src/kernel/arm/target.rs");
    println!(
        "cargo::rustc-check-cfg=cfg(arm_fpu, arm_linux, riscv_fpu, cortex_m0, cortex_m_fpu, cortex_m_dsp, helium, memory_sanitizer)"
    );
    let target = var("TARGET").unwrap_or_default();
    let linux = ["-linux-gnueabihf", "-linux-musleabihf"].iter().any(|end| target.ends_with(end));
    if linux && (target.starts_with("arm") || target.starts_with("thumbv7")) {
        println!("cargo::rustc-cfg=arm_fpu");
        println!("cargo::rustc-cfg=arm_linux");
    }
    if target.starts_with("riscv32imafc") {
        println!("cargo::rustc-cfg=riscv_fpu");
    }
    if target.starts_with("thumbv6m") {
        println!("cargo::rustc-cfg=cortex_m0");
    }
    let (v7em, v8m) = (target.starts_with("thumbv7em"), target.starts_with("thumbv8m.main"));
    if (v7em || v8m) && target.ends_with("hf") {
        println!("cargo::rustc-cfg=arm_fpu");
        println!("cargo::rustc-cfg=cortex_m_fpu");
    }
    // The DSP extension is an option of ARMv8-M. The processors named below have this extension.
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let (mut cpu_has_dsp, mut dsp) = (false, None);
    for (name, value) in settings(&flags) {
        match name {
            // These processors are refused: for them, the compiler would use vector instructions that flush denormals,
            // which changes results.
            "target-cpu" if ["cortex-m52", "cortex-m55", "cortex-m85"].contains(&value) => refuse_vectors(name, value),
            "target-cpu" => cpu_has_dsp = ["cortex-m33", "cortex-m35p"].contains(&value),
            "target-feature" => {
                for feature in value.split(',') {
                    match feature {
                        "+dsp" => dsp = Some(true),
                        "-dsp" => dsp = Some(false),
                        "+mve" | "+mve.fp" => refuse_vectors(name, feature),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if v7em || v8m && dsp.unwrap_or(cpu_has_dsp) {
        println!("cargo::rustc-cfg=cortex_m_dsp");
        if v8m && target.ends_with("hf") && var("CARGO_FEATURE_HELIUM").is_ok() {
            println!("cargo::rustc-cfg=helium");
        }
    }
}

fn refuse_vectors(name: &str, value: &str) {
    println!("cargo::error=-C {name}={value} changes results: use target-cpu=cortex-m33, and the feature helium");
}

/// Yields name and value of every `-C name=value` and `-Cname=value` in `flags`, which cargo separates by 0x1f.
fn settings(flags: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut flags = flags.split('\x1f');
    std::iter::from_fn(move || {
        loop {
            let flag = flags.next()?;
            let setting = match flag.strip_prefix("-C").or_else(|| flag.strip_prefix("--codegen=")) {
                Some("") => flags.next()?,
                Some(setting) => setting,
                None if flag == "--codegen" => flags.next()?,
                None => continue,
            };
            if let Some(pair) = setting.split_once('=') {
                return Some(pair);
            }
        }
    })
}
