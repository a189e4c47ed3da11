//! Hands the linker cortex-m-rt's script and the board's memory map.

use std::{env, fs, path::Path};

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    fs::copy("memory.x", Path::new(&out).join("memory.x")).unwrap();
    println!("cargo::rustc-link-search={out}");
    println!("cargo::rustc-link-arg-bins=--nmagic");
    println!("cargo::rustc-link-arg-bins=-Tlink.x");
    println!("cargo::rerun-if-changed=memory.x");
}
