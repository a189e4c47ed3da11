//! Keys and values at other positions.

use crate::common::fixture::relative_error;
use crate::common::gguf::Builder;
use crate::common::tiny::tiny_llama;
use crate::common::variants::{one_layer, tiny, windowed, with_heads_of};
use arenite::{Engine, Error, Gguf, KvType, Line, Model, Options, Plan, TokenId, Work};

const CONTEXT: usize = 64;

/// Runs `check` with an engine for a model.
fn with_engine(file: &[u8], options: Options, check: impl FnOnce(&mut Engine<'_, '_>)) {
    let gguf = Gguf::parse(file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let plan = Plan::new(&gguf, options.context(CONTEXT).contexts(4)).unwrap();
    let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    check(&mut Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv)).unwrap());
}

/// The logits after `ids`.
fn computed(engine: &mut Engine<'_, '_>, ids: &[TokenId]) -> Vec<f32> {
    let mut context = engine.open().unwrap();
    engine.run(&mut [Work::prefill(&mut context, ids)]).unwrap();
    let logits = engine.logits(&context).to_vec();
    engine.close(context);
    logits
}

/// A model with only one layer, whose keys and values depend on no other tokens.
fn single(family: &str) -> Builder {
    let mut file = tiny(family);
    file.set(&format!("{family}.block_count"), 1u32);
    file.tensors.retain(|tensor| !tensor.name.starts_with(b"blk.1."));
    file
}

/// In a model with one layer, tokens at other positions give the logits of a new computation, except for rounding.
#[test]
fn keys_rotate_to_other_positions() {
    let mut scaled = one_layer(tiny_llama());
    scaled.set("llama.rope.scaling.type", "yarn").set("llama.rope.scaling.factor", 4.0f32);
    scaled.set("llama.rope.scaling.original_context_length", 16u32);
    let models = [single("llama"), single("qwen2"), single("qwen3"), one_layer(with_heads_of(20)), scaled];
    let old: Vec<TokenId> = (3..40).collect();
    for (at, file) in models.iter().enumerate() {
        let file = file.build();
        // 4 bits round much.
        for (kv, limit) in [
            (KvType::F32, 1e-5),
            (KvType::F16, 2e-3),
            (KvType::Q8_0, 2e-2),
            (KvType::Q4_0, 0.25),
            (KvType::Q8_0Q4_0, 0.05),
        ] {
            with_engine(&file, Options::new().kv(kv), |engine| {
                assert!(engine.can_reuse());
                let mut from = engine.open().unwrap();
                engine.run(&mut [Work::prefill(&mut from, &old)]).unwrap();
                // Tokens move forwards and backwards, and across pages.
                for (before, range) in [(&[1, 2][..], 5..37), (&[1; 20], 5..21), (&[1; 33], 1..2), (&[], 9..30)] {
                    let ids = [before, &old[range.clone()], &[2, 1]].concat();
                    let want = computed(engine, &ids);
                    let mut context = engine.open().unwrap();
                    if !before.is_empty() {
                        engine.run(&mut [Work::prefill(&mut context, before)]).unwrap();
                    }
                    engine.reuse(&mut context, &from, range).unwrap();
                    assert_eq!(context.position(), ids.len() - 2);
                    assert!(engine.logits(&context).is_empty());
                    engine.run(&mut [Work::prefill(&mut context, &[2, 1])]).unwrap();
                    let error = relative_error(engine.logits(&context), &want);
                    assert!(error < limit, "model {at}, {kv:?}, {before:?}: {error}");
                    engine.close(context);
                }
            });
        }
    }
}

/// At the same positions nothing is rounded in a cache of floats, whatever the number of layers.
#[test]
fn tokens_at_their_own_positions_keep_their_bits() {
    let file = tiny("qwen3").build();
    let ids: Vec<TokenId> = (3..30).collect();
    for kv in [KvType::F32, KvType::F16] {
        with_engine(&file, Options::new().kv(kv), |engine| {
            let want = computed(engine, &ids);
            let mut from = engine.open().unwrap();
            engine.run(&mut [Work::prefill(&mut from, &ids)]).unwrap();
            let mut context = engine.fork_at(&from, 7).unwrap();
            engine.reuse(&mut context, &from, 7..26).unwrap();
            engine.run(&mut [Work::decode(&mut context, ids[26])]).unwrap();
            assert_eq!(engine.logits(&context), want);
        });
    }
}

#[test]
fn what_cannot_be_reused_changes_nothing() {
    let nemotron = std::fs::read("tests/fixtures/nemotron_h/model.gguf").unwrap();
    for (file, why) in [
        (nemotron, "recurrent layers"),
        (windowed(16).build(), "a sliding window"),
        (tiny("gpt2").build(), "positions in its embeddings"),
    ] {
        with_engine(&file, Options::new(), |engine| {
            assert!(!engine.can_reuse());
            let (mut context, mut from) = (engine.open().unwrap(), engine.open().unwrap());
            engine.run(&mut [Work::prefill(&mut from, &[1, 2, 3])]).unwrap();
            let error = engine.reuse(&mut context, &from, 1..3).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(context.position(), 0);
        });
    }
    with_engine(&tiny_llama().build(), Options::new().pages(4), |engine| {
        let (mut context, mut from) = (engine.open().unwrap(), engine.open().unwrap());
        engine.run(&mut [Work::prefill(&mut from, &[1; 40])]).unwrap();
        engine.run(&mut [Work::prefill(&mut context, &[1; 10])]).unwrap();
        let free = engine.free_pages();
        assert!(matches!(engine.reuse(&mut context, &from, 0..41), Err(Error::CannotRewind { position: 41, .. })));
        assert!(matches!(engine.reuse(&mut context, &from, 0..40), Err(Error::OutOfPages { .. })));
        assert_eq!((context.position(), engine.free_pages()), (10, free));
        engine.reuse(&mut context, &from, 4..4).unwrap();
        engine.reuse(&mut context, &from, 0..6).unwrap();
        let mut long = engine.fork(&from).unwrap();
        assert!(matches!(engine.reuse(&mut long, &from, 0..40), Err(Error::ContextFull { context: 64, needed: 80 })));
        assert_eq!((context.position(), long.position()), (16, 40));
    });
}
