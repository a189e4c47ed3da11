//! The core's own source, with atomics and threads whose every step the scheduler decides on.

use std::{env, fs, path::Path};

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    for (name, place) in [("pool", "workers/pool"), ("pair", "workers/pair"), ("fork", "kernel/fork")] {
        let path = format!("../../src/{place}.rs");
        println!("cargo::rerun-if-changed={path}");
        let source = fs::read_to_string(&path).unwrap();
        fs::write(Path::new(&out).join(format!("{name}.rs")), scheduled(&source)).unwrap();
    }
}

fn scheduled(source: &str) -> String {
    // Without its tests, and without what quantizes, which is nothing but a `fork`.
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let source = source.split("/// Quantizes one or more").next().unwrap_or_default();
    // An included file has no documentation and no attributes of its own.
    let lines = source.lines().filter(|line| !line.starts_with("//!") && !line.starts_with("#!["));
    let mut source: String = lines.flat_map(|line| [line, "\n"]).collect();
    let changes = [
        ("core::sync::atomic", "shuttle::sync::atomic"),
        ("std::sync::Arc", "shuttle::sync::Arc"),
        ("std::thread::{self, JoinHandle}", "shuttle::thread::{self, JoinHandle}"),
        ("core::hint::spin_loop()", "shuttle::thread::yield_now()"),
        // Time passes at once: threads look for a job, then sleep.
        ("waited > LINGER", "waited >= Duration::ZERO"),
        ("for _ in 0..32", "for _ in 0..2"),
        (
            "[const { Taken(AtomicUsize::new(0)) }; PARTS]",
            "core::array::from_fn::<_, PARTS, _>(|_| Taken(AtomicUsize::new(0)))",
        ),
    ];
    for (from, to) in changes {
        source = source.replace(from, to);
    }
    source
}
