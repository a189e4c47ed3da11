//! Hands the linker the memory map.

fn main() {
    println!("cargo::rustc-link-arg-bins=-T{}/virt.x", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=virt.x");
}
