//! LoRA adapters: equal to transformers with PEFT and to merged models; each context has the bits that it would have
//! alone; the plan is exact; adapters that do not fit are refused.

use crate::common::encoders::{ENCODERS, encoder};
use crate::common::families::{DECODERS, RECURRENT, decoder};
use crate::common::fixture::relative_error;
use crate::common::fixtures::committed;
use crate::common::gguf::Builder;
use crate::common::tiny::{Random, tiny_llama};
use crate::common::unwritten::unwritten;
use crate::common::variants::{FAMILIES, quantized, tiny};
use crate::common::workers::Scoped;
use crate::pieces::{cut, slices};
use arenite::{Adapter, Engine, Error, Gguf, Kernels, KvType, Line, Model, Options, Plan, Work};

const IDS: [u32; 11] = [46, 349, 220, 494, 262, 258, 257, 72, 271, 264, 266];

fn fixture(path: &str) -> Vec<u8> {
    std::fs::read(committed().join(path)).unwrap()
}

/// Memory for an engine, filled with NaN.
fn memory(bytes: usize) -> Vec<Line> {
    let mut lines = vec![Line::ZERO; bytes.div_ceil(64)];
    Line::bytes_mut(&mut lines).fill(0xff);
    lines
}

/// The logits of the last of `ids` in one context with these adapters.
fn logits(file: &[u8], adapters: &[&[u8]], chosen: &[(usize, f32)], ids: &[u32], options: Options) -> Vec<f32> {
    logits_of(&Gguf::parse(file).unwrap(), adapters, chosen, ids, options)
}

fn logits_of(gguf: &Gguf<'_>, adapters: &[&[u8]], chosen: &[(usize, f32)], ids: &[u32], options: Options) -> Vec<f32> {
    let model = Model::new(gguf).unwrap();
    let adapters: Vec<Adapter<'_>> =
        adapters.iter().map(|file| Adapter::new(&Gguf::parse(file).unwrap(), &model).unwrap()).collect();
    let rank = adapters.iter().map(Adapter::rank).max().unwrap_or(0);
    let plan = Plan::new(gguf, options.adapters(adapters.len()).rank(rank)).unwrap();
    let (mut workspace, mut kv) = (memory(plan.workspace), memory(plan.kv));
    let (workspace, kv) = (unwritten(Line::bytes_mut(&mut workspace)), Line::bytes_mut(&mut kv));
    let mut engine = Engine::new(&model, plan, workspace, kv).unwrap().with_adapters(&adapters).unwrap();
    let mut context = engine.open().unwrap();
    engine.adapt(&mut context, chosen).unwrap();
    match gguf.architecture().unwrap() {
        "bert" | "mpnet" | "gemma-embedding" => {
            let mut buffer = vec![0.0; model.spec().embedding_buffer()];
            return engine.embed(&mut context, ids, &mut buffer).unwrap().to_vec();
        }
        "t5" | "seq2seq" => engine.encode(&mut context, &[5, 6, 7]).unwrap(),
        _ => {}
    }
    engine.run(&mut [Work::prefill(&mut context, ids)]).unwrap();
    engine.logits(&context).to_vec()
}

fn options() -> Options {
    Options::new().context(32).kv(KvType::F32)
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// `lora.py` made the adapters, and computed the logits with PEFT.
#[test]
fn adapters_equal_peft() {
    let (base, first, second) = (fixture("qwen3/model.gguf"), fixture("lora/first.gguf"), fixture("lora/second.gguf"));
    let expected: Vec<f32> =
        fixture("lora/logits.bin").as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let mut rows = expected.chunks_exact(512);
    let plain = rows.next().unwrap();
    assert!(relative_error(&logits(&base, &[&first], &[], &IDS, options()), plain) < 1e-5);
    for chosen in [vec![(0, 1.0)], vec![(1, 1.0)], vec![(0, 0.5), (1, -1.5)]] {
        for count in [10, 11] {
            let expected = rows.next().unwrap();
            let found = logits(&base, &[&first, &second], &chosen, &IDS[..count], options());
            let error = relative_error(&found, expected);
            assert!(error < 1e-5, "{chosen:?} {count}: {error}");
        }
    }
}

/// `lora_llama_cpp.py` wrote llama.cpp's logits with these adapters.
#[test]
fn adapters_equal_llama_cpp() {
    let (base, first, second) = (fixture("qwen3/model.gguf"), fixture("lora/first.gguf"), fixture("lora/second.gguf"));
    let expected: Vec<f32> =
        fixture("lora/llama_cpp.bin").as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let mut rows = expected.chunks_exact(512);
    for chosen in [vec![(0, 1.0)], vec![(1, 1.0)], vec![(0, 0.5), (1, -1.5)]] {
        let found = logits(&base, &[&first, &second], &chosen, &IDS, options());
        let error = relative_error(&found, rows.next().unwrap());
        assert!(error < 1e-5, "{chosen:?}: {error}");
    }
}

#[test]
fn models_in_pieces_have_adapters() {
    let base = tiny("qwen3");
    let (file, adapter) = (base.build(), adapter(&base, 3, 0).build());
    let logits_of = |gguf: &Gguf<'_>| bits(&logits_of(gguf, &[&adapter], &[(0, 1.0)], &[1, 5, 9, 20, 33], options()));
    let expected = logits_of(&Gguf::parse(&file).unwrap());
    assert!(expected != bits(&logits(&file, &[], &[], &[1, 5, 9, 20, 33], options())));
    for cuts in [vec![1], vec![4, 4, 11], (0..6).map(|i| 3 * i + 2).collect()] {
        let pieces = cut(&base, &cuts);
        assert!(logits_of(&Gguf::parse_split(&slices(&pieces)).unwrap()) == expected, "cut at {cuts:?}");
    }
}

/// An adapter for every tensor that can have one: random matrices of rank 3. The factor on products is 1/2.
fn adapter(base: &Builder, seed: u64, kind: u32) -> Builder {
    let file = base.build();
    let gguf = Gguf::parse(&file).unwrap();
    let (model, mut random) = (Model::new(&gguf).unwrap(), Random(seed));
    let mut whole = empty(gguf.architecture().unwrap());
    for tensor in base.tensors.iter().filter(|tensor| tensor.dims.len() > 1) {
        let name = core::str::from_utf8(&tensor.name).unwrap();
        let mut one = empty(gguf.architecture().unwrap());
        let [a, b] = shapes(name, &tensor.dims);
        for (end, dims) in [("a", a), ("b", b)] {
            let values = (0..dims.iter().product()).map(|_| random.value() * 0.1);
            let data = values.flat_map(|x| match kind {
                0 => x.to_le_bytes().to_vec(),
                1 => half(x).to_vec(),
                _ => x.to_le_bytes()[2..].to_vec(),
            });
            one.push_tensor(format!("{name}.lora_{end}"), &dims, kind, data.collect());
        }
        if Adapter::new(&Gguf::parse(&one.build()).unwrap(), &model).is_ok() {
            whole.tensors.append(&mut one.tensors);
        }
    }
    whole
}

fn half(x: f32) -> [u8; 2] {
    // Converts a normal number by truncation.
    let bits = x.to_bits();
    let exponent = (bits >> 23 & 255) as i32 - 112;
    let magnitude = if exponent <= 0 { 0 } else { (exponent as u32) << 10 | bits >> 13 & 1023 };
    ((bits >> 16 & 0x8000 | magnitude) as u16).to_le_bytes()
}

fn empty(architecture: &str) -> Builder {
    let mut file = Builder::new();
    file.set("general.type", "adapter").set("general.architecture", architecture);
    file.set("adapter.type", "lora").set("adapter.lora.alpha", 1.5f32);
    file
}

const RANK: u64 = 3;

/// Shapes of the two matrices for a tensor.
fn shapes(name: &str, dims: &[u64]) -> [Vec<u64>; 2] {
    let mut shapes = if name.ends_with("token_embd.weight") && !name.starts_with("per_layer") {
        [vec![RANK, dims[1]], vec![RANK, dims[0]]]
    } else {
        [vec![dims[0], RANK], vec![RANK, dims[1]]]
    };
    shapes.iter_mut().for_each(|shape| shape.extend(&dims[2..]));
    shapes
}

/// The model with the products of an adapter (F32) added to its weights.
fn merged(base: &Builder, adapter: &Builder, factor: f64) -> Builder {
    let floats = |data: &[u8]| -> Vec<f64> {
        data.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
    };
    let mut merged = base.clone();
    for pair in adapter.tensors.chunks_exact(2) {
        let name = core::str::from_utf8(&pair[0].name).unwrap().strip_suffix(".lora_a").unwrap();
        let (mut a, b) = (floats(&pair[0].data), floats(&pair[1].data));
        let tensor = merged.tensor_mut(name);
        assert_eq!(tensor.kind, 0, "{name}");
        let (cols, rows, rank) = (tensor.dims[0] as usize, tensor.dims[1] as usize, RANK as usize);
        let is_lookup = name.ends_with("token_embd.weight");
        let mut rest = b;
        if is_lookup {
            // The adapter of an embedding is A B^T instead of B A^T: exchange the two matrices.
            let columns = rest;
            rest = core::mem::take(&mut a);
            a = (0..rank * cols).map(|i| columns[i % cols * rank + i / cols]).collect();
        }
        let mut weights = floats(&tensor.data);
        for (i, w) in weights.iter_mut().enumerate() {
            let (col, row) = (i % cols, i / cols);
            let slab = row / rows;
            for k in 0..rank {
                *w += factor * rest[row * rank + k] * a[(slab * rank + k) * cols + col];
            }
        }
        tensor.data = weights.iter().flat_map(|w| (*w as f32).to_le_bytes()).collect();
    }
    merged
}

/// Adapters of every linear layer of every family, with experts, fused matrices and mixers.
#[test]
fn adapters_equal_merged_models() {
    let mut kinds = 0;
    let all = FAMILIES.into_iter().map(|family| (family, tiny(family)));
    let all = all.chain(DECODERS.into_iter().chain(RECURRENT).map(|family| (family, decoder(family))));
    for (family, mut base) in all.chain(ENCODERS.map(|kind| (kind, encoder(kind)))) {
        let has_head = base.tensors.iter().any(|tensor| tensor.name == b"output.weight");
        let mut adapter = adapter(&base, 3, 0);
        if !has_head {
            // The head shares the embedding's weights: only the lookup is adapted, but merging would change both.
            adapter.tensors.retain(|tensor| !tensor.name.starts_with(b"token_embd"));
        }
        assert!(adapter.tensors.len() >= 8, "{family}: {} tensors", adapter.tensors.len());
        kinds += adapter.tensors.len() / 2;
        base.set("general.name", "base");
        let ids = &IDS.map(|id| id % 200)[..];
        let found = logits(&base.build(), &[&adapter.build()], &[(0, -0.8)], ids, options());
        let expected = logits(&merged(&base, &adapter, -0.4).build(), &[], &[], ids, options());
        let plain = logits(&base.build(), &[], &[], ids, options());
        let error = relative_error(&found, &expected);
        assert!(error < 1e-5, "{family}: {error}");
        assert!(relative_error(&plain, &expected) > 1e-3, "{family}");
    }
    assert!(kinds > 1000, "{kinds}");
}

/// Contexts with different adapters share passes, and have the bits of each alone: over batch sizes, kernels, workers and
/// types of weights.
#[test]
fn each_context_has_the_bits_of_its_own() {
    let choices: [&[(usize, f32)]; 8] =
        [&[], &[(0, 1.0)], &[(1, 1.0)], &[(0, 0.5), (1, 0.5)], &[(1, -2.0)], &[], &[(0, 1.0)], &[(2, 1.0), (0, 0.25)]];
    let qwen3 = decoder("qwen3moe");
    for (base, context_type) in [
        (tiny_llama(), KvType::F16),
        (quantized(tiny_llama(), "Q8_0"), KvType::Q8_0),
        (qwen3, KvType::F32),
        (decoder("lfm2moe"), KvType::F16),
    ] {
        let file = base.build();
        let files = [(3, 0), (4, 1), (5, 30)].map(|(seed, kind)| adapter(&base, seed, kind).build());
        let files = files.each_ref().map(Vec::as_slice);
        let ids: Vec<Vec<u32>> = (0..8).map(|i| (0..5 + i).map(|k| (k * 29 + i * 3) % 200).collect()).collect();
        let alone: Vec<Vec<u32>> = ids
            .iter()
            .zip(choices)
            .map(|(ids, chosen)| bits(&logits(&file, &files, chosen, ids, options().kv(context_type).batch(1))))
            .collect();
        assert_ne!(alone[0], alone[1]);
        let gguf = Gguf::parse(&file).unwrap();
        let model = Model::new(&gguf).unwrap();
        let adapters = files.map(|file| Adapter::new(&Gguf::parse(file).unwrap(), &model).unwrap());
        for (contexts, batch, threads) in [(1, 3, 1), (2, 4, 3), (8, 8, 1), (8, 31, 2)] {
            for kernels in Kernels::available() {
                let workers = Scoped(threads);
                let options = options().kv(context_type).contexts(contexts).batch(batch).workers(threads);
                let plan = Plan::new(&gguf, options.adapters(3).rank(RANK as usize)).unwrap();
                let (mut workspace, mut kv) = (memory(plan.workspace), memory(plan.kv));
                let (workspace, kv) = (unwritten(Line::bytes_mut(&mut workspace)), Line::bytes_mut(&mut kv));
                let engine = Engine::new(&model, plan, workspace, kv).unwrap().with_adapters(&adapters).unwrap();
                let mut engine = engine.with_kernels(kernels).with_workers(&workers);
                let mut open: Vec<_> = choices[..contexts]
                    .iter()
                    .map(|chosen| {
                        let mut context = engine.open().unwrap();
                        engine.adapt(&mut context, chosen).unwrap();
                        context
                    })
                    .collect();
                // Run all but the last token of each context, then the last tokens together in one pass.
                let works = open.iter_mut().zip(&ids);
                let mut works: Vec<_> =
                    works.map(|(context, ids)| Work::prefill(context, &ids[..ids.len() - 1])).collect();
                engine.run(&mut works).unwrap();
                let works = open.iter_mut().zip(&ids);
                let mut works: Vec<_> = works.map(|(context, ids)| Work::decode(context, ids[ids.len() - 1])).collect();
                engine.run(&mut works).unwrap();
                for (i, context) in open.iter().enumerate() {
                    let found = bits(engine.logits(context));
                    assert!(found == alone[i], "context {i} of {contexts}, {batch}, {}", kernels.name);
                }
            }
        }
    }
}

/// A fork has the adapters of its original; a new choice restarts the context; a closed context leaves no adapters.
#[test]
fn choices_belong_to_contexts() {
    let base = tiny_llama();
    let file = base.build();
    let adapter_file = adapter(&base, 3, 0).build();
    let with = |chosen: &[(usize, f32)]| bits(&logits(&file, &[&adapter_file], chosen, &[5, 6, 7], options()));
    let (plain, adapted) = (with(&[]), with(&[(0, 1.0)]));
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let adapters = [Adapter::new(&Gguf::parse(&adapter_file).unwrap(), &model).unwrap()];
    assert_eq!(adapters[0].rank(), RANK as usize);
    let plan = Plan::new(&gguf, options().contexts(2).adapters(1).rank(3)).unwrap();
    let (mut workspace, mut kv) = (memory(plan.workspace), memory(plan.kv));
    let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
    let mut engine = Engine::new(&model, plan, workspace, kv).unwrap().with_adapters(&adapters).unwrap();
    let mut context = engine.open().unwrap();
    assert_eq!(
        engine.adapt(&mut context, &[(1, 1.0)]),
        Err(Error::BufferTooSmall { what: "adapters in the list", needed: 2, given: 1 })
    );
    engine.adapt(&mut context, &[(0, 1.0)]).unwrap();
    engine.run(&mut [Work::prefill(&mut context, &[5, 6])]).unwrap();
    let mut fork = engine.fork(&context).unwrap();
    engine.run(&mut [Work::decode(&mut fork, 7)]).unwrap();
    assert_eq!(bits(engine.logits(&fork)), adapted);

    // A snapshot belongs to the adapters that it was made with.
    let mut snapshot = vec![0; engine.snapshot_bytes(&fork)];
    engine.save(&fork, &mut snapshot).unwrap();
    engine.restore(&mut context, &snapshot).unwrap();
    assert_eq!(bits(engine.logits(&context)), adapted);
    for other in [&[][..], &[(0, 0.5)]] {
        engine.adapt(&mut context, other).unwrap();
        assert_eq!(context.position(), 0);
        assert_eq!(engine.restore(&mut context, &snapshot), Err(Error::ForeignSnapshot { what: "model or adapter" }));
    }
    engine.adapt(&mut fork, &[]).unwrap();
    engine.run(&mut [Work::prefill(&mut fork, &[5, 6, 7])]).unwrap();
    assert_eq!(bits(engine.logits(&fork)), plain);
    engine.adapt(&mut fork, &[(0, 1.0)]).unwrap();
    engine.close(fork);
    let mut next = engine.open().unwrap();
    engine.run(&mut [Work::prefill(&mut next, &[5, 6, 7])]).unwrap();
    assert_eq!(bits(engine.logits(&next)), plain);
}

#[test]
fn plans_are_exact() {
    let base = tiny_llama();
    let (file, adapter_file) = (base.build(), adapter(&base, 3, 0).build());
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let adapters = [Adapter::new(&Gguf::parse(&adapter_file).unwrap(), &model).unwrap(); 2];
    let plan = |adapters, rank| Plan::new(&gguf, options().batch(5).adapters(adapters).rank(rank)).unwrap();
    // The scratch is `4 * batch * rank` floats, in whole lines of 64 bytes.
    assert_eq!(plan(1, 19).workspace - plan(1, 3).workspace, 4 * 5 * 16 * 4);
    assert_eq!(plan(0, 8).workspace, Plan::new(&gguf, options().batch(5)).unwrap().workspace);
    let planned = plan(2, 3);
    let (mut workspace, mut kv) = (memory(planned.workspace), memory(planned.kv));
    let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
    let (needed, given) = (planned.workspace, planned.workspace - 1);
    let error = Engine::new(&model, planned, &mut workspace[..given], kv).unwrap_err();
    assert_eq!(error, Error::WorkspaceTooSmall { needed, given });
    assert!(Engine::new(&model, planned, &mut workspace[..needed], kv).unwrap().with_adapters(&adapters).is_ok());
    let refused = |plan: Plan| {
        let (mut workspace, mut kv) = (memory(plan.workspace), memory(plan.kv));
        let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
        Engine::new(&model, plan, workspace, kv).unwrap().with_adapters(&adapters).unwrap_err()
    };
    let what = "planned adapters (Options::adapters)";
    assert_eq!(refused(plan(1, 3)), Error::BufferTooSmall { what, needed: 2, given: 1 });
    let what = "planned rows per adapter (Options::rank)";
    assert_eq!(refused(plan(2, 2)), Error::BufferTooSmall { what, needed: 3, given: 2 });
    assert_eq!(refused(plan(2, 0)), Error::BufferTooSmall { what, needed: 3, given: 0 });
    assert_eq!(Plan::new(&gguf, options().adapters(usize::MAX)), Err(Error::PlanTooLarge));
    assert_eq!(Plan::new(&gguf, options().adapters(1).rank(usize::MAX)), Err(Error::PlanTooLarge));
}

/// An adapter that does not fit is an error that names the key or tensor.
#[test]
fn hostile_adapters() {
    let base = tiny_llama();
    let file = base.build();
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let good = adapter(&base, 3, 0);
    let error = |change: &dyn Fn(&mut Builder)| {
        let mut file = good.clone();
        change(&mut file);
        let file = file.build();
        match Gguf::parse(&file).and_then(|gguf| Adapter::new(&gguf, &model)) {
            Ok(adapter) => panic!("accepted, with rank {}", adapter.rank()),
            Err(error) => error.to_string(),
        }
    };
    let q = "blk.0.attn_q.weight";
    for (says, change) in [
        (
            "general.type is not adapter: this file is a model",
            &(|file: &mut Builder| {
                file.remove("general.type");
            }) as &dyn Fn(&mut Builder),
        ),
        ("general.type is not adapter", &|file| {
            file.set("general.type", "model");
        }),
        ("adapter.type is not lora", &|file| {
            file.set("adapter.type", "control_vector");
        }),
        ("general.architecture is not", &|file| {
            file.set("general.architecture", "qwen3");
        }),
        ("adapter.lora.alpha is missing", &|file| {
            file.remove("adapter.lora.alpha");
        }),
        ("adapter.lora.alpha must hold a float: convert the file again", &|file| {
            file.set("adapter.lora.alpha", 3u32);
        }),
        ("adapter.lora.alpha is not a finite", &|file| {
            file.set("adapter.lora.alpha", f32::NAN);
        }),
        ("adapter.lora.alpha is not a finite", &|file| {
            file.set("adapter.lora.alpha", f32::INFINITY);
        }),
        ("adapter.alora.invocation_tokens is unknown", &|file| {
            file.set("adapter.alora.invocation_tokens", crate::common::gguf::Meta::array([1u32]));
        }),
        ("blk.0.attn_q.weight.lora_b is missing", &|file| {
            file.remove_tensor(&format!("{q}.lora_b"));
        }),
        ("blk.0.attn_q.weight.lora_a is missing", &|file| {
            file.remove_tensor(&format!("{q}.lora_a"));
        }),
        ("blk.7.attn_q.weight.lora_a is unknown", &|file| {
            file.set_f32("blk.7.attn_q.weight.lora_a", &[2], &[1.0; 2]);
        }),
        ("blk.0.attn_q.weight is unknown", &|file| {
            file.set_f32(q, &[2], &[1.0; 2]);
        }),
        ("blk.0.attn_norm.weight.lora_a is unknown", &|file| {
            file.set_f32("blk.0.attn_norm.weight.lora_a", &[32, 1], &[1.0; 32]);
            file.set_f32("blk.0.attn_norm.weight.lora_b", &[1], &[1.0]);
        }),
        ("lora_a has shape [31, 3, 1, 1], but the metadata requires [32, 3, 1, 1]: convert the file again", &|file| {
            file.set_f32(&format!("{q}.lora_a"), &[31, 3], &[1.0; 93]);
        }),
        ("lora_b has shape [2, 32, 1, 1], but the metadata requires [3, 32, 1, 1]: convert the file again", &|file| {
            file.set_f32(&format!("{q}.lora_b"), &[2, 32], &[1.0; 64]);
        }),
        ("lora_b has shape [3, 33, 1, 1]", &|file| {
            file.set_f32(&format!("{q}.lora_b"), &[3, 33], &[1.0; 99]);
        }),
        ("lora_b has shape [3, 32, 2, 1]", &|file| {
            file.set_f32(&format!("{q}.lora_b"), &[3, 32, 2], &[1.0; 192]);
        }),
        ("the tensor blk.0.attn_q.weight.lora_a is missing", &|file| {
            file.set_f32(&format!("{q}.lora_a"), &[32, 0], &[]);
        }),
        ("beyond the end of the file", &|file| {
            file.tensor_mut(&format!("{q}.lora_a")).dims = vec![32, 1 << 40];
            file.tensor_mut(&format!("{q}.lora_b")).dims = vec![1 << 40, 32];
        }),
        ("token_embd.weight.lora_a has shape [32, 3, 1, 1]", &|file| {
            file.set_f32("token_embd.weight.lora_a", &[32, 3], &[1.0; 96]);
        }),
        ("lora_a has type Q8_0", &|file| {
            file.set_tensor(&format!("{q}.lora_a"), &[32, 3], 8, vec![0; 102]);
        }),
    ] {
        let message = error(change);
        assert!(message.contains(says), "{says}: {message}");
    }
    // A model is no adapter.
    let error = Adapter::new(&gguf, &model).unwrap_err();
    assert_eq!(error.to_string(), "the metadata key general.type is not adapter: this file is a model");
}
