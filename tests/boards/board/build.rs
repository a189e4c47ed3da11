//! Selects the board of the target.

use std::env;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(board, values(\"an386\", \"an505\", \"an547\"))");
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("TARGET").unwrap();
    let name = match target.split('-').next().unwrap() {
        "thumbv7em" => "an386",
        "thumbv8m.main" if env::var_os("CARGO_FEATURE_CORTEX_M55").is_some() => "an547",
        "thumbv8m.main" => "an505",
        _ => return,
    };
    println!("cargo::rustc-cfg=board=\"{name}\"");
}
