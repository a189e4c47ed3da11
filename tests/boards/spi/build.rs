//! Hands the linker the memory map of the board for this target, and the compiler the path of the model's head.

use std::{env, fs, path::Path};

fn main() {
    let own = env::var("CARGO_MANIFEST_DIR").unwrap();
    println!("cargo::rerun-if-env-changed=ARENITE_HEAD");
    // Without a head of its own, the program runs a small model that is in memory as a whole.
    let model = Path::new(&own).join("../../../host-demo/models/faults_decoder.gguf");
    println!("cargo::rustc-env=ARENITE_HEAD={}", env::var("ARENITE_HEAD").unwrap_or(model.display().to_string()));

    let board = match env::var("TARGET").unwrap().split('-').next().unwrap() {
        "thumbv7em" => "mps2-an386",
        "thumbv8m.main" => "mps2-an505",
        _ => return, // the host
    };
    // cortex-m-rt's script includes the memory map by this name.
    let out = env::var("OUT_DIR").unwrap();
    fs::copy(format!("memory/{board}.x"), Path::new(&out).join("memory.x")).unwrap();
    println!("cargo::rustc-link-search={out}");
    println!("cargo::rustc-link-arg-bins=--nmagic");
    println!("cargo::rustc-link-arg-bins=-Tlink.x");
    println!("cargo::rerun-if-changed=memory");
}
