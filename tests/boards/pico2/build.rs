//! Hands the linker the run-time's script and the board's memory map.

use std::{env, fs, path::Path};

fn main() {
    if env::var("CARGO_CFG_TARGET_ARCH").unwrap() == "arm" {
        // cortex-m-rt's script includes the memory map by this name.
        let out = env::var("OUT_DIR").unwrap();
        fs::copy("memory.x", Path::new(&out).join("memory.x")).unwrap();
        println!("cargo::rustc-link-search={out}");
        println!("cargo::rustc-link-arg-bins=--nmagic");
    } else {
        println!("cargo::rustc-link-arg-bins=-T{}/memory-riscv.x", env!("CARGO_MANIFEST_DIR"));
        println!("cargo::rustc-link-arg-bins=-Tdevice.x"); // the names of interrupts
    }
    println!("cargo::rustc-link-arg-bins=-Tlink.x");
    println!("cargo::rerun-if-changed=memory.x");
    println!("cargo::rerun-if-changed=memory-riscv.x");
}
