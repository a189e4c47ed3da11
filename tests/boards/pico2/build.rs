//! Hands the linker the run-time's script and the board's memory map.

use std::{env, fs, path::Path};

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    let arm = env::var("CARGO_CFG_TARGET_ARCH").unwrap() == "arm";
    fs::copy(if arm { "memory.x" } else { "memory-riscv.x" }, Path::new(&out).join("memory.x")).unwrap();
    println!("cargo::rustc-link-search={out}");
    if arm {
        println!("cargo::rustc-link-arg-bins=--nmagic");
    } else {
        println!("cargo::rustc-link-arg-bins=-Tmemory.x"); // cortex-m-rt's script includes it
    }
    println!("cargo::rustc-link-arg-bins=-Tlink.x");
    println!("cargo::rerun-if-changed=memory.x");
    println!("cargo::rerun-if-changed=memory-riscv.x");
}
