//! Writes the linker script for the memory of a board, and the constants of the plan, from the environment:
//!
//! - `FIT_MODEL`: path of the model; `FIT_OPTIONS`: "CONTEXT BATCH WORKERS"
//! - `FIT_FLASH`, `FIT_RAM`: bytes of the flash, and of each RAM region: "524288 4096"
//! - `FIT_REGIONS`: the region of workspace, KV cache, tokenizer's index, statics, and each worker's stack: "0 0 0 1 0"

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

/// Size of a worker's stack in bytes, as in `host-demo/src/boards/mod.rs`.
const STACK: usize = 16 * 1024;

fn numbers(name: &str, default: &str) -> Vec<usize> {
    println!("cargo::rerun-if-env-changed={name}");
    let text = env::var(name).unwrap_or(default.to_string());
    text.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn main() {
    println!("cargo::rerun-if-env-changed=FIT_MODEL");
    let own = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../../host-demo/models/stories.gguf");
    let model = env::var("FIT_MODEL").map_or(own, Into::into);
    println!("cargo::rustc-env=FIT_MODEL={}", model.display());

    let out = env::var("OUT_DIR").unwrap();
    let options = numbers("FIT_OPTIONS", "256 8 1");
    let options = format!("Options::new().context({}).batch({}).workers({})", options[0], options[1], options[2]);
    fs::write(Path::new(&out).join("options.rs"), options).unwrap();

    let flash = numbers("FIT_FLASH", "4194304")[0];
    let ram = numbers("FIT_RAM", "1048576");
    let regions = numbers("FIT_REGIONS", "0 0 0 0 0");
    let [workspace, kv, index, statics, stacks @ ..] = &regions[..] else { panic!("FIT_REGIONS is too short") };
    let mut script = format!("ENTRY(_start)\nMEMORY {{\n  FLASH : ORIGIN = 0x08000000, LENGTH = {flash}\n");
    for (i, bytes) in ram.iter().enumerate() {
        writeln!(script, "  RAM{i} : ORIGIN = {:#x}, LENGTH = {bytes}", 0x2000_0000 + i * 0x0800_0000).unwrap();
    }
    script += "}\nSECTIONS {\n";
    script += "  .text : { KEEP(*(.start)) *(.text .text.*) } > FLASH\n";
    script += "  .rodata : { *(.rodata .rodata.* .srodata .srodata.*) } > FLASH\n";
    // Stacks come first in their region, so that an overflow leaves the RAM and does not reach statics.
    for (i, region) in stacks.iter().enumerate() {
        writeln!(script, "  .stack{i} (NOLOAD) : ALIGN(16) {{ . += {STACK}; _stack_{i} = .; }} > RAM{region}").unwrap();
    }
    writeln!(script, "  .data : {{ *(.data .data.* .sdata .sdata.*) }} > RAM{statics} AT > FLASH").unwrap();
    writeln!(script, "  .bss (NOLOAD) : {{ *(.bss .bss.* .sbss .sbss.*) }} > RAM{statics}").unwrap();
    for (name, region) in [("workspace", workspace), ("kv", kv), ("index", index)] {
        writeln!(script, "  .fit.{name} (NOLOAD) : {{ *(.fit.{name}) }} > RAM{region}").unwrap();
    }
    script += "  /DISCARD/ : { *(.eh_frame .eh_frame_hdr .ARM.exidx .ARM.exidx.*) }\n}\n";
    fs::write(Path::new(&out).join("fit.x"), script).unwrap();
    println!("cargo::rustc-link-arg-bins=-T{out}/fit.x");
    println!("cargo::rustc-link-arg-bins=--nmagic");
}
