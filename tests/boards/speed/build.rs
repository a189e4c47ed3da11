//! Hands the linker the memory map of the board for this target, and the addresses where qemu puts the model and the
//! settings.

use std::{env, fs, path::Path};

fn main() {
    let target = env::var("TARGET").unwrap();
    let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!("cargo::rerun-if-changed=build.rs");
    if target.starts_with("riscv32") {
        println!("cargo::rustc-link-arg-bins=-T{}/riscv-virt/virt.x", boards.display());
        println!("cargo::rustc-link-arg-bins=--defsym=_model=0x81000000");
    } else {
        let is_m55 = env::var("CARGO_FEATURE_HELIUM").is_ok();
        let board = match target.starts_with("thumbv8m") {
            true if is_m55 => "mps3-an547",
            true => "mps2-an505",
            false => "mps2-an386",
        };
        let out = env::var("OUT_DIR").unwrap();
        fs::copy(boards.join(format!("../firmware/memory/{board}.x")), Path::new(&out).join("memory.x")).unwrap();
        println!("cargo::rustc-link-search={out}");
        println!("cargo::rustc-link-arg-bins=--nmagic");
        println!("cargo::rustc-link-arg-bins=-Tlink.x");
    }
    println!("cargo::rustc-link-arg-bins=--defsym=_settings=_model+0xf00000");
}
