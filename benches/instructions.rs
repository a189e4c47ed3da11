//! The work that `instructions.sh` counts: decodes 16 tokens at positions 24 to 39, then prefills a batch of 64 and
//! computes the logits of its last token. It runs on one thread, with an f16 cache.
//!
//! `instructions MODEL.gguf [ISA]`

use std::process::ExitCode;

use arenite::{Gguf, Kernels, Line, Model, Options, Plan, Session};

/// Marks a point of the run: at every call, the qemu plugin (`instructions.c`) prints the number of instructions since
/// the last call.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn token_mark() {
    std::hint::black_box(());
}

fn main() -> ExitCode {
    // `cargo bench` adds an option of its own.
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let Some(path) = arguments.next() else {
        println!("instructions: see benches/instructions.sh");
        return ExitCode::SUCCESS;
    };
    let kernels = match arguments.next() {
        Some(name) => Kernels::by_name(&name).unwrap_or_else(|| panic!("this machine has no {name}")),
        None => Kernels::detect(),
    };
    println!("{}", kernels.name);

    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let gguf = Gguf::parse(&file).expect("a GGUF file");
    let model = Model::new(&gguf).expect("a model of a known kind");
    let plan = Plan::new(&gguf, Options::new().context(128).batch(64)).expect("a plan");
    let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    let mut session = Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))
        .expect("a session")
        .with_kernels(kernels);

    let ids: Vec<u32> = (0..64).map(|i| (i * i * 31 + 17 * i + 1) % 256).collect();
    session.prefill(&ids[..24]).expect("prefill");
    token_mark();
    for &id in &ids[24..40] {
        session.decode(id).expect("decode");
        token_mark();
    }
    session.rewind(0).expect("rewind");
    token_mark();
    session.prefill(&ids).expect("prefill");
    token_mark();
    println!("logit 0: {}", session.logits()[0]);
    ExitCode::SUCCESS
}
