//! Checks that loading and running a model allocate nothing. The crate itself has no allocator; the test counts the
//! calls of the global allocator that the crate could make through its dependencies.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Gguf, KvType, Line, Model, Options, Plan, Session};
use common::fixtures;
use common::tiny::tiny_llama;
use common::variants::{FAMILIES, quantized, tiny};

/// The system's allocator with a call counter for each thread.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // `try_with` fails in a thread that is ending, whose counter is already destroyed.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: all calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `f` and counts its allocations and deallocations.
fn calls<R>(f: impl FnOnce() -> R) -> (usize, R) {
    let before = CALLS.get();
    let result = f();
    (CALLS.get() - before, result)
}

#[test]
fn the_counter_counts() {
    let (calls, boxed) = calls(|| black_box(Box::new(1)));
    assert_eq!((calls, *boxed), (1, 1));
}

#[test]
fn loading_and_running_allocate_nothing() {
    let mut files: Vec<_> = FAMILIES.iter().map(|family| tiny(family).build()).collect();
    files.extend(["Q8_0", "Q4_0"].map(|kind| quantized(tiny("llama"), kind).build()));
    for file in files {
        for kv in KvType::ALL {
            let (calls_of_load, (gguf, plan)) = calls(|| {
                let gguf = Gguf::parse(&file).unwrap();
                let options = Options::new().context(48).batch(8).kv(kv).workers(1);
                (gguf, Plan::new(&gguf, options).unwrap())
            });
            assert_eq!(calls_of_load, 0, "reading and planning");
            // The caller allocates the memory.
            let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
            let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
            let (calls, ()) = calls(|| {
                let model = Model::new(&gguf).unwrap();
                let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
                let mut session = Session::new(&model, plan, workspace, kv).unwrap();
                session.prefill(&[1; 20]).unwrap();
                for token in 0..20 {
                    session.decode(token).unwrap();
                }
                session.rewind(3).unwrap();
                session.prefill_all(&[7, 8, 9], |_, logits| assert!(!logits.is_empty())).unwrap();
                assert!(session.prefill(&[]).is_err());
                assert!(session.decode(u32::MAX).is_err());
            });
            assert_eq!(calls, 0, "loading and running");
        }
    }
}

/// Checks that tokenizing, sampling with penalties, and decoding the text allocate nothing. Skips a model without a
/// tokenizer.
fn tells_without_allocating(file: &[u8], name: &str) {
    let gguf = Gguf::parse(file).unwrap();
    let Ok(index) = Tokenizer::index_bytes(&gguf) else { return };
    let text = "Once upon a time, in a caf\u{e9} \u{1f60a} there was 1234.\n\tThe end!";
    let params = Params {
        temperature: 1.5,
        top_k: 0,
        repeat_penalty: 1.1,
        frequency_penalty: 0.1,
        presence_penalty: 0.1,
        ..Params::DEFAULT
    };
    let plan = Plan::new(&gguf, Options::new().context(200).batch(8)).unwrap();
    let model = Model::new(&gguf).unwrap();
    let vocab = model.spec().vocab;
    let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    let mut index = vec![0; index];
    let mut scratch = vec![0; Tokenizer::scratch_bytes(text.len())];
    let mut ids = vec![0; 100];
    let mut sampler_memory = vec![0; Sampler::scratch_bytes(&params, vocab)];
    let (calls, told) = calls(|| {
        let tokenizer = Tokenizer::new(&gguf, &mut index).unwrap();
        let n = tokenizer.encode(text.as_bytes(), Encode::PROMPT, &mut scratch, &mut ids).unwrap();
        let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
        let mut session = Session::new(&model, plan, workspace, kv).unwrap();
        let mut sampler = Sampler::new(params, &[(5, -1.0)], vocab, &mut sampler_memory).unwrap();
        let (mut rng, mut decoder, mut told) = (Pcg32::new(1), tokenizer.decoder_after_prompt(), 0);
        session.prefill(&ids[..n]).unwrap();
        for _ in 0..50 {
            let token = sampler.sample(session.logits_mut(), &mut rng).unwrap();
            let _ = decoder.push(token, &tokenizer, |text| told += text.len());
            session.decode(token).unwrap();
        }
        decoder.finish(|text| told += text.len());
        told
    });
    assert_eq!(calls, 0, "{name}");
    assert!(told > 0, "{name}");
}

#[test]
fn telling_a_story_allocates_nothing() {
    tells_without_allocating(&tiny_llama().build(), "tiny");
    for name in ["stories260K", "qwen3", "gpt2"] {
        for root in [Some(fixtures::committed()), fixtures::external()].into_iter().flatten() {
            if let Ok(file) = std::fs::read(root.join(name).join("model.gguf")) {
                tells_without_allocating(&file, name);
            }
        }
    }
}
