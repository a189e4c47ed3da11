//! The build script: what instructions a 32-bit Arm target has.
//!
//! Stable compilers do not say so in `cfg(target_feature)`, but the target's name does: `cortex_m_fpu` (VFMA and
//! conversions of f16) and `cortex_m_dsp` (SMLAD). Under `arm_linux` the processor may have the former with NEON, of which
//! the operating system tells. `arm_fpu` is either. (`memory_sanitizer`, with scalar kernels alone, is what `.ci/sanitizers` sets.)

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=src/kernel/arm/target.rs");
    println!("cargo::rustc-check-cfg=cfg(arm_fpu, arm_linux, cortex_m_fpu, cortex_m_dsp, memory_sanitizer)");
    let target = var("TARGET").unwrap_or_default();
    let linux = ["-linux-gnueabihf", "-linux-musleabihf"].iter().any(|end| target.ends_with(end));
    if linux && (target.starts_with("arm") || target.starts_with("thumbv7")) {
        println!("cargo::rustc-cfg=arm_fpu");
        println!("cargo::rustc-cfg=arm_linux");
    }
    let (v7em, v8m) = (target.starts_with("thumbv7em"), target.starts_with("thumbv8m.main"));
    if (v7em || v8m) && target.ends_with("hf") {
        println!("cargo::rustc-cfg=arm_fpu");
        println!("cargo::rustc-cfg=cortex_m_fpu");
    }
    // An option of ARMv8-M, which these processors have.
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let (mut cpu_has_dsp, mut dsp) = (false, None);
    for (name, value) in settings(&flags) {
        match name {
            "target-cpu" => cpu_has_dsp = ["cortex-m33", "cortex-m35p", "cortex-m55", "cortex-m85"].contains(&value),
            "target-feature" => {
                for feature in value.split(',') {
                    match feature {
                        "+dsp" => dsp = Some(true),
                        "-dsp" => dsp = Some(false),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if v7em || v8m && dsp.unwrap_or(cpu_has_dsp) {
        println!("cargo::rustc-cfg=cortex_m_dsp");
    }
}

/// The `name=value` of every `-C name=value` and `-Cname=value` in `flags`, which cargo puts 0x1f between.
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
