//! Hands the linker the memory map of the board for this target, and the compiler the paths of the model and its grammar.

use std::{env, fs, path::Path};

fn main() {
    models();
    let target = env::var("TARGET").unwrap();
    let board = match target.split('-').next().unwrap() {
        "thumbv7em" => "mps2-an386",
        "thumbv8m.main" => "mps2-an505",
        _ => "virt",
    };
    // cortex-m-rt's script includes the memory map by this name.
    let out = env::var("OUT_DIR").unwrap();
    let mut map = fs::read_to_string(format!("memory/{board}.x")).unwrap();
    if env::var_os("CARGO_FEATURE_SOUND").is_some() {
        // Two models and a recording need 1.5 MiB of flash and 272 KiB of RAM.
        for (one, two) in [("= 512K", "= 1536K"), ("= 16K", "= 32K"), ("4000, LENGTH = 112K", "8000, LENGTH = 240K")] {
            map = map.replace(one, two);
        }
    }
    fs::write(Path::new(&out).join("memory.x"), map).unwrap();
    println!("cargo::rustc-link-search={out}");
    let script = if board == "virt" { "memory.x" } else { "link.x" };
    println!("cargo::rustc-link-arg-bins=--nmagic");
    println!("cargo::rustc-link-arg-bins=-T{script}");
    println!("cargo::rerun-if-changed=memory");
}

/// Selects the models, the grammar, and the largest model of an update. The environment names them; the defaults are the
/// repository's.
fn models() {
    let models =
        Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../../host-demo/models").canonicalize().unwrap();
    let path = |name, default| {
        println!("cargo::rerun-if-env-changed={name}");
        let path = env::var(name).unwrap_or(default);
        println!("cargo::rustc-env={name}={path}");
        path
    };
    let model = path("ARENITE_MODEL", models.join("commands.gguf").display().to_string());
    path("ARENITE_GRAMMAR", models.join("commands.table").display().to_string());
    path("ARENITE_LARGEST", model);
    println!("cargo::rerun-if-env-changed=ARENITE_UPDATE_KEY");
    if env::var_os("CARGO_FEATURE_SIGNED").is_some() && env::var_os("ARENITE_UPDATE_KEY").is_none() {
        println!(
            "cargo::error=the feature `signed` needs ARENITE_UPDATE_KEY, the file of a public ed25519 key of 32 bytes"
        );
    }
    path("ARENITE_RECOGNIZER", models.join("recognizer.gguf").display().to_string());
}
