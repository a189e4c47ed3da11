//! Hands the linker the memory map of the board for this target.

use std::{env, fs, path::Path};

fn main() {
    let target = env::var("TARGET").unwrap();
    let board = match target.split('-').next().unwrap() {
        "thumbv7em" => "mps2-an386",
        "thumbv8m.main" => "mps2-an505",
        _ => "virt",
    };
    println!("cargo::rustc-check-cfg=cfg(armv7em, armv8m)");
    match board {
        "mps2-an386" => println!("cargo::rustc-cfg=armv7em"),
        "mps2-an505" => println!("cargo::rustc-cfg=armv8m"),
        _ => {}
    }
    // cortex-m-rt's script includes it by this name.
    let out = env::var("OUT_DIR").unwrap();
    fs::copy(format!("memory/{board}.x"), Path::new(&out).join("memory.x")).unwrap();
    println!("cargo::rustc-link-search={out}");
    let script = if board == "virt" { "memory.x" } else { "link.x" };
    println!("cargo::rustc-link-arg-bins=--nmagic");
    println!("cargo::rustc-link-arg-bins=-T{script}");
    println!("cargo::rerun-if-changed=memory");
}
