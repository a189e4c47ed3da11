//! Hands the linker cortex-m-rt's script and the memory map of the board for this target.

use std::{env, fs, path::Path};

fn main() {
    // The model. On the Cortex-M33, a file of more than 3 MiB, which does not fit into the flash, goes to external flash.
    println!("cargo:rerun-if-env-changed=ARENITE_MODEL");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let model = env::var("ARENITE_MODEL").map_or(root.join("host-demo/models/stories.gguf"), Into::into);
    println!("cargo:rustc-env=ARENITE_MODEL={}", model.display());
    let target = env::var("TARGET").unwrap();
    let is_m33 = target.starts_with("thumbv8m") && env::var("CARGO_FEATURE_HELIUM").is_err();
    let is_external = is_m33 && fs::metadata(&model).is_ok_and(|file| file.len() > 3 << 20);
    println!("cargo:rustc-check-cfg=cfg(external_flash)");
    if is_external {
        println!("cargo:rustc-cfg=external_flash");
    }

    let board = match target.split('.').next() {
        _ if is_external => "mps2-an505-external",
        _ if is_m33 => "mps2-an505",
        Some("thumbv8m") => "mps3-an547",
        Some("thumbv6m-none-eabi") => "microbit",
        _ => "mps2-an386",
    };
    let out = env::var("OUT_DIR").unwrap();
    fs::copy(format!("memory/{board}.x"), Path::new(&out).join("memory.x")).unwrap();
    println!("cargo:rustc-link-search={out}");
    println!("cargo:rustc-link-arg-bins=--nmagic");
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
    println!("cargo:rerun-if-changed=memory");

    // The directory of the adapters. If ARENITE_ADAPTERS is not set, empty files let the program build for Clippy.
    println!("cargo:rerun-if-env-changed=ARENITE_ADAPTERS");
    let adapters = env::var("ARENITE_ADAPTERS").unwrap_or_else(|_| {
        for name in ["first.gguf", "second.gguf"] {
            fs::write(Path::new(&out).join(name), []).unwrap();
        }
        out.clone()
    });
    println!("cargo:rustc-env=ARENITE_ADAPTERS={adapters}");
}
