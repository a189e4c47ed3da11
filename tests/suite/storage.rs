//! Matrices in a storage: the same bits as in memory, memory as planned, and errors of the storage that lose nothing.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::common::apart::{Careless, Counted, Noted, Overlapped, apart, divided};
use crate::common::encoders::{ENCODERS, encoder};
use crate::common::families::{DECODERS, RECURRENT, decoder};
use crate::common::fixtures::{committed, external, read};
use crate::common::gguf::Builder;
use crate::common::peers::all_peers;
use crate::common::run::{Run, argmax};
use crate::common::variants::{FAMILIES, quantized, tiny};
use crate::common::workers::Scoped;
use arenite::gguf::HEAD_KEY;
use arenite::{
    Adapter, Answers, Engine, Error, ErrorKind, Gguf, Kernels, KvType, Line, Model, Options, Plan, Storage, Work,
};

/// Settings with which a model is run.
#[derive(Clone, Copy, Debug)]
struct Way {
    kernels: &'static Kernels,
    batch: usize,
    workers: usize,
    window: usize,
}

impl Way {
    const PLAIN: fn() -> Self = || Self { kernels: Kernels::detect(), batch: 16, workers: 1, window: 8192 };

    fn all() -> Vec<Self> {
        let scalar = Kernels::by_name("scalar").unwrap();
        let mut ways = vec![Self { kernels: scalar, batch: 16, workers: 1, window: 4096 }];
        for (batch, workers, window) in [(1, 1, 0), (1, 2, 2000), (7, 1, 0), (7, 2, 1 << 20), (16, 3, 3000)] {
            ways.push(Self { batch, workers, window, ..Self::PLAIN() });
        }
        ways
    }

    fn options(&self, options: &mut Options) {
        let Self { batch, workers, window, .. } = *self;
        *options = Options::new().context(64).batch(batch).workers(workers).kv(KvType::F16).window(window).sound(300);
    }

    /// Bits of the states or logits of a text or sound, and of an embedding.
    fn run(&self, gguf: &Gguf<'_>, storage: Option<&mut (dyn Storage + 'static)>) -> Vec<u32> {
        let mut run = Run::of(gguf, |options| self.options(options));
        run.kernels = self.kernels;
        run.fill(0xff);
        let ids: Vec<u32> = (0..40).map(|i| (i * i * 31 + 17 * i + 1) % 200).collect();
        let threads = Scoped(self.workers);
        let mut buffer = vec![0.0; run.model.spec().embedding_buffer()];
        let mut session = run.session();
        if self.workers > 1 {
            session = session.with_workers(&threads);
        }
        if let Some(storage) = storage {
            session = session.with_storage(storage);
        }
        let mut all = vec![];
        let mut add = |values: &[f32]| all.extend(values.iter().map(|x| x.to_bits()));
        match session.encode(&ids[..21]) {
            Ok(()) => {
                add(session.states());
                add(session.embed(&ids[..9], &mut buffer).unwrap());
                session.encode(&ids[..21]).unwrap();
            }
            Err(Error::NoPart { part: "encoder of text" }) => {
                let sound: Vec<f32> = (0..16000).map(|i| (i as f32 * 0.37).sin() * 0.3).collect();
                session.listen(&sound).unwrap();
                add(session.states());
            }
            Err(error) => assert_eq!(error, Error::NoPart { part: "encoder" }),
        }
        match session.prefill(&ids[..30]) {
            Err(Error::NoPart { part: "decoder" }) => return all,
            result => result.unwrap(),
        }
        add(session.logits());
        for id in &ids[30..33] {
            session.decode(*id).unwrap();
            add(session.logits());
        }
        session.prefill_all(&ids[33..], |_, logits| add(logits)).unwrap();
        all
    }
}

/// Tiny models of every family, and the fixtures in the repository.
fn models() -> Vec<(String, Vec<u8>)> {
    let mut models: Vec<(String, Builder)> = FAMILIES.iter().map(|name| (name.to_string(), tiny(name))).collect();
    for kind in ["Q8_0", "Q4_0"] {
        models.push((format!("llama {kind}"), quantized(tiny("llama"), kind)));
    }
    models.extend(DECODERS.iter().chain(&RECURRENT).map(|name| (name.to_string(), decoder(name))));
    models.extend(all_peers().map(|(name, file)| (name.to_string(), file)));
    models.extend(all_peers().map(|(name, file)| (format!("{name} Q8_0"), quantized(file, "Q8_0"))));
    models.extend(ENCODERS.iter().map(|name| (name.to_string(), encoder(name))));
    let mut models: Vec<_> = models.into_iter().map(|(name, file)| (name, file.build())).collect();
    let root = committed();
    let mut files = vec![root.join("stories.gguf"), root.join("mtp_qwen35.gguf")];
    let list = |path: &Path| path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut directories = list(&root);
    match root.join("small") {
        small if small.exists() => directories.extend(list(&small)),
        _ => println!("SKIP: tests/fixtures/small is missing"), // in the published crate
    }
    // All types of weights.
    let others = external().map_or(vec![], |root| list(&root)).into_iter();
    directories
        .extend(others.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("q_"))));
    directories.retain(|path| path.is_dir() && !path.ends_with("tokenizers") && !path.ends_with("lora"));
    files.extend(directories.iter().flat_map(|path| list(path)));
    files.retain(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    models.extend(files.into_iter().map(|path| (path.display().to_string(), read(&path))));
    models
}

#[test]
fn every_model_has_the_bits_that_it_has_in_memory() {
    let models = models();
    assert!(models.len() > 120, "{}", models.len());
    let mut stored = 0;
    for (i, (name, file)) in models.iter().enumerate() {
        let gguf = Gguf::parse(file).unwrap();
        if Model::new(&gguf).is_err() {
            println!("not a model by itself: {name}");
            continue;
        }
        let (head, rest) = apart(file);
        let half = Gguf::parse(&head).unwrap();
        assert!(half.data() == head && half.tensor_count() == gguf.tensor_count(), "{name}");
        let want = Way::PLAIN().run(&gguf, None);
        // Each model runs in two ways; all ways occur often.
        let ways = Way::all();
        for way in [ways[i % ways.len()], ways[(i / ways.len() + i + 1) % ways.len()]] {
            let mut storage = Counted::new(&rest);
            assert!(way.run(&half, Some(&mut storage)) == want, "{name} {way:?}");
            stored += storage.read_bytes();
            assert!(storage.read_bytes() > 0, "{name}: nothing was read");
        }
    }
    assert!(stored > 10_000_000, "{stored}");
}

#[test]
fn reads_while_the_rows_before_are_multiplied() {
    for name in ["llama", "gpt2"] {
        let file = quantized(tiny(name), "Q8_0").build();
        let want = Way::PLAIN().run(&Gguf::parse(&file).unwrap(), None);
        let (head, rest) = apart(&file);
        let gguf = Gguf::parse(&head).unwrap();
        for window in [0, 1000, 1 << 16] {
            let way = Way { window, ..Way::PLAIN() };
            assert!(way.run(&gguf, Some(&mut Overlapped(rest.clone()))) == want, "{name}");
            for times in [0, 2] {
                assert!(way.run(&gguf, Some(&mut Careless(rest.clone(), times))) == want, "{name}, {times} times");
            }
        }
    }
}

/// A decoded token reads the row of its embedding, and each matrix once, in order and without gaps.
#[test]
fn each_matrix_is_read_once() {
    let (head, rest) = apart(&tiny("llama").build());
    let gguf = Gguf::parse(&head).unwrap();
    let mut run = Run::of(&gguf, |options| *options = Options::new().context(64).batch(1).window(3000));
    let reads = Arc::new(Mutex::new(vec![]));
    run.session().with_storage(&mut Noted(rest, reads.clone())).decode(3).unwrap();
    let reads = reads.lock().unwrap();
    let start = gguf.data().len() as u64;
    let words = gguf.tensor("token_embd.weight").unwrap();
    let row = words.bytes() / words.dims[1];
    assert_eq!(reads[0], (words.offset - start + 3 * row, row as usize));
    let matrices: Vec<_> =
        gguf.tensors().filter(|tensor| tensor.offset >= start && tensor.name != words.name).collect();
    let mut left = &reads[1..];
    let read_of = |left: &mut &[(u64, usize)], tensor: &arenite::gguf::Tensor<'_>| {
        let mut at = tensor.offset - start;
        let end = at + tensor.bytes();
        while at < end {
            assert_eq!(left[0].0, at, "{}", tensor.name);
            assert!(left[0].1 <= 1536, "a half of the window");
            at += left[0].1 as u64;
            *left = &left[1..];
        }
    };
    for layer in 0..run.model.spec().layers {
        for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
            let tensor = gguf.tensor(&format!("blk.{layer}.{name}.weight")).unwrap();
            read_of(&mut left, &tensor);
        }
    }
    let last = gguf.tensor("output.weight").unwrap_or(words);
    read_of(&mut left, &last);
    assert!(left.is_empty() && matrices.len() >= 7 * run.model.spec().layers);
}

#[test]
fn the_plan_counts_the_window() {
    let file = quantized(tiny("llama"), "Q8_0").build();
    let (head, rest) = apart(&file);
    let (whole, half) = (Gguf::parse(&file).unwrap(), Gguf::parse(&head).unwrap());
    let options = Options::new().context(64).batch(1);
    let in_memory = Plan::new(&whole, options).unwrap();
    for (window, bytes) in [(8192, 8192), (8193, 8192), (8321, 8320), (1 << 20, 1 << 20)] {
        let plan = Plan::new(&half, options.window(window)).unwrap();
        assert_eq!((plan.workspace, plan.kv), (in_memory.workspace + bytes, in_memory.kv));
    }
    let least = Plan::new(&half, options.window(0)).unwrap();
    let longest = half.tensors().filter(|tensor| tensor.data.is_empty()).map(|tensor| tensor.bytes() / tensor.dims[1]);
    let longest = longest.max().unwrap() as usize;
    assert_eq!(least.workspace - in_memory.workspace, 2 * longest.next_multiple_of(64));
    // Exactly the planned bytes are enough.
    let model = Model::new(&half).unwrap();
    let mut workspace = vec![Line::ZERO; least.workspace / 64];
    let mut kv = vec![Line::ZERO; least.kv.div_ceil(64)];
    let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
    let short = Engine::new(&model, least, &mut workspace[..least.workspace - 1], kv);
    assert!(matches!(short, Err(Error::WorkspaceTooSmall { .. })));
    let storage = Counted::new(&rest);
    let mut reader = storage.clone();
    let mut engine = Engine::new(&model, least, workspace, kv).unwrap().with_storage(&mut reader);
    let mut context = engine.open().unwrap();
    engine.run(&mut [Work::decode(&mut context, 5)]).unwrap();
    // A plan for another window is not the plan of this memory, and a model in memory has no window.
    assert_ne!(Plan::new(&half, options.window(100)).unwrap(), least);
    assert_eq!(Plan::new(&whole, options.window(0)).unwrap().workspace, in_memory.workspace);
}

/// Whichever read fails, the run is an error, there are no logits, and the same tokens run afterwards.
#[test]
fn an_error_of_the_storage_is_no_token() {
    for name in ["llama", "mixtral", "lfm2", "gemma2"] {
        let file = quantized(if name == "llama" { tiny(name) } else { decoder(name) }, "Q8_0").build();
        let (head, rest) = apart(&file);
        let half = Gguf::parse(&head).unwrap();
        let storage = Counted::new(&rest);
        let mut reader = storage.clone();
        let mut run = Run::of(&half, |options| {
            *options = Options::new().context(64).batch(4).window(1 << 14).checkpoints(1);
        });
        let mut session = run.session().with_storage(&mut reader);
        let (first, second) = ([5, 6, 7, 8, 9, 10], [11, 12, 13]);
        session.prefill(&first).unwrap();
        let (engine, context) = session.parts();
        engine.checkpoint(context).unwrap();
        let start = storage.reads();
        session.prefill(&second).unwrap();
        let (want, reads) = (session.logits().to_vec(), storage.reads() - start);
        session.rewind(6).unwrap();
        assert!(reads > 10);
        for number in 0..reads {
            storage.fail_after(number);
            let error = session.prefill(&second).unwrap_err();
            assert!(matches!(error, Error::Storage { code: -7, bytes: 1.., .. }), "{name}: {error}");
            assert_eq!(error.kind(), ErrorKind::Storage);
            assert!(session.logits().is_empty(), "{name}: logits of earlier tokens after read {number}");
            assert_eq!(session.position(), 6);
            session.rewind(6).unwrap(); // to the checkpoint, in models with states
            session.prefill(&second).unwrap();
            assert!(session.logits() == want, "{name}: other logits after an error in read {number}");
            session.rewind(6).unwrap();
        }
        storage.fail_after(3);
        assert!(session.prefill_all(&second, |_, _| ()).is_err());
        let mut session = run.session().with_storage(&mut reader);
        storage.fail_after(3);
        assert!(session.prefill_observed(&second, &mut ()).is_err());
    }
}

/// In steps, the last step returns false, and the engine has the error.
#[test]
fn an_error_in_steps() {
    let (head, rest) = apart(&tiny("llama").build());
    let gguf = Gguf::parse(&head).unwrap();
    let storage = Counted::new(&rest);
    let mut reader = storage.clone();
    let mut run = Run::of(&gguf, |options| *options = Options::new().context(64));
    let mut session = run.session().with_storage(&mut reader);
    let (engine, context) = session.parts();
    engine.run(&mut [Work::decode(context, 4)]).unwrap();
    assert_eq!(engine.storage_error(), None);
    storage.fail_after(12);
    let mut works = [Work::prefill(context, &[5, 6, 7])];
    let mut pass = engine.begin(&mut works).unwrap();
    let steps = std::iter::from_fn(|| pass.step().then_some(())).count();
    assert!(!pass.step());
    assert!((1..4).contains(&steps), "{steps}");
    assert!(engine.logits(context).is_empty() && context.position() == 1);
    assert!(matches!(engine.storage_error(), Some(Error::Storage { code: -7, .. })));
    assert_eq!(engine.storage_error(), None);
}

#[test]
fn errors_in_encoders() {
    for name in ENCODERS {
        let (head, rest) = apart(&encoder(name).build());
        let gguf = Gguf::parse(&head).unwrap();
        let storage = Counted::new(&rest);
        let mut reader = storage.clone();
        let mut run = Run::of(&gguf, |options| *options = Options::new().context(32).batch(4));
        let mut buffer = vec![0.0; run.model.spec().embedding_buffer()];
        let mut session = run.session().with_storage(&mut reader);
        session.encode(&[5, 6, 7, 8, 9, 10]).unwrap();
        let (want, reads) = (session.states().to_vec(), storage.reads());
        for number in 0..reads {
            storage.fail_after(number);
            let error = session.encode(&[5, 6, 7, 8, 9, 10]).unwrap_err();
            assert!(matches!(error, Error::Storage { .. }), "{name}: {error}");
            assert!(session.states().is_empty());
            assert_eq!(session.pooled(&mut buffer).unwrap_err(), Error::NoSource);
            storage.fail_after(number);
            assert!(matches!(session.embed(&[5, 6, 7, 8, 9, 10], &mut buffer), Err(Error::Storage { .. })));
            session.encode(&[5, 6, 7, 8, 9, 10]).unwrap();
            assert!(session.states() == want, "{name}: {number}");
        }
    }
}

#[test]
fn decisions_and_embeddings_of_decoders() {
    let file = read(&committed().join("qwen3_embedding/model.gguf"));
    let (head, rest) = apart(&file);
    let storage = Counted::new(&rest);
    let mut reader = storage.clone();
    let [whole, half] = [&file, &head].map(|file| Gguf::parse(file).unwrap());
    let mut results = vec![];
    for (gguf, is_stored) in [(&whole, false), (&half, true)] {
        let mut run = Run::of(gguf, |options| *options = Options::new().context(32));
        let mut buffer = vec![0.0; run.model.spec().embedding_buffer()];
        let mut session = run.session().with_storage(&mut reader);
        let mut probabilities = [0.0; 3];
        session.decide(&[5, 6, 7], Answers::Tokens(&[8, 9, 10]), 1.0, &mut probabilities, &mut []).unwrap();
        results.push((session.embed(&[5, 6, 7], &mut buffer).unwrap().to_vec(), probabilities));
        if is_stored {
            storage.fail_after(20);
            assert!(matches!(session.embed(&[5, 6, 7], &mut buffer), Err(Error::Storage { .. })));
        }
    }
    assert_eq!(results[0], results[1]);
}

#[test]
fn a_model_without_its_storage_does_not_run() {
    for name in ["bert", "t5"] {
        let (head, _) = apart(&encoder(name).build());
        let gguf = Gguf::parse(&head).unwrap();
        assert_eq!(Run::of(&gguf, |_| ()).session().encode(&[5]), Err(Error::NoStorage));
    }
    let (head, _) = apart(&tiny("llama").build());
    let gguf = Gguf::parse(&head).unwrap();
    let mut run = Run::of(&gguf, |_| ());
    assert_eq!(run.session().prefill(&[5]), Err(Error::NoStorage));
    let mut session = run.session();
    let (engine, context) = session.parts();
    assert!(matches!(engine.begin(&mut [Work::decode(context, 5)]), Err(Error::NoStorage)));
}

/// Adapters find their matrices in a storage; an adapter itself must be in memory.
#[test]
fn adapters_and_drafts() {
    let [base, first] = ["qwen3/model.gguf", "lora/first.gguf"].map(|path| read(&committed().join(path)));
    let (head, rest) = apart(&base);
    let storage = Counted::new(&rest);
    let mut reader = storage.clone();
    let mut results = vec![];
    for file in [&base, &head] {
        let gguf = Gguf::parse(file).unwrap();
        let model = Model::new(&gguf).unwrap();
        let adapters = [Adapter::new(&Gguf::parse(&first).unwrap(), &model).unwrap()];
        let options = Options::new().context(32).adapters(1).rank(adapters[0].rank());
        let mut run = Run::of(&gguf, |chosen| *chosen = options);
        let mut session = run.session().with_storage(&mut reader).with_adapters(&adapters).unwrap();
        let mut rows = vec![];
        for scale in [0.0, 1.0] {
            session.adapt(&[(0, scale)]).unwrap();
            session.prefill(&[46, 349, 220, 494]).unwrap();
            rows.push(session.logits().to_vec());
        }
        assert!(rows[0] != rows[1]);
        results.push(rows);
        let (adapter, _) = divided(Builder::read(&first), |name| name.ends_with(".lora_b"));
        let adapter = Gguf::parse(&adapter).unwrap();
        assert!(matches!(Adapter::new(&adapter, &model), Err(Error::MissingTensor { .. })));
    }
    assert!(results[0] == results[1]);

    let file = read(&committed().join("mtp_qwen35.gguf"));
    let (head, rest) = apart(&file);
    let storage = Counted::new(&rest);
    let mut reader = storage.clone();
    let [whole, half] = [&file, &head].map(|file| Gguf::parse(file).unwrap());
    let guesses = [&whole, &half].map(|gguf| {
        let options = Options::new().context(64).drafts(2).own_drafts(true).logits(3);
        let mut run = Run::of(gguf, |chosen| *chosen = options);
        let mut session = run.session().with_storage(&mut reader);
        let (engine, context) = session.parts();
        engine.run(&mut [Work::prefill(context, &[266, 356, 260])]).unwrap();
        let mut guesses = vec![engine.logits(context).to_vec()];
        for _ in 0..2 {
            let token = argmax(guesses.last().unwrap());
            engine.draft(&mut [Work::decode(context, token)]).unwrap();
            guesses.push(engine.logits(context).to_vec());
        }
        guesses
    });
    assert!(guesses[0] == guesses[1]);
    // An error while the predicting layer reads.
    let mut run = Run::of(&half, |chosen| *chosen = Options::new().context(64).drafts(2).own_drafts(true).logits(3));
    let mut session = run.session().with_storage(&mut reader);
    let (engine, context) = session.parts();
    engine.run(&mut [Work::prefill(context, &[266, 356, 260])]).unwrap();
    storage.fail_after(2);
    assert!(matches!(engine.draft(&mut [Work::decode(context, 5)]), Err(Error::Storage { .. })));
    assert!(engine.logits(context).is_empty());
    engine.draft(&mut [Work::decode(context, argmax(&guesses[1][0]))]).unwrap();
    assert!(engine.logits(context) == guesses[1][1]);
}

/// Heads whose size or tensors are wrong are errors.
#[test]
fn damaged_heads() {
    let (head, rest) = apart(&tiny("llama").build());
    let whole = [&head[..], &rest].concat();
    let at = head.windows(HEAD_KEY.len()).position(|bytes| bytes == HEAD_KEY.as_bytes()).unwrap() + HEAD_KEY.len() + 4;
    let with = |file: &[u8], size: u32| {
        let mut file = file.to_vec();
        file[at..at + 4].copy_from_slice(&size.to_le_bytes());
        Gguf::parse(&file).and_then(|gguf| Model::new(&gguf).map(|_| ()))
    };
    let size = head.len() as u32;
    assert_eq!(with(&head, size), Ok(()));
    assert_eq!(with(&whole, size), Ok(())); // memory behind the head does not matter
    for wrong in (0..size).rev().take(4000).chain([0, 1, 24, size / 2]) {
        assert!(with(&head, wrong).is_err(), "{wrong} of {size}");
    }
    assert_eq!(with(&head, size + 1), Err(Error::Truncated { what: "the head of a model", at: 0 }));
    // Tensors that would be divided, or whose vectors would be in the storage.
    assert!(with(&whole, size + 1).is_err());
    let (stored, _) = divided(tiny("llama"), |name| name.ends_with("norm.weight"));
    let error = Model::new(&Gguf::parse(&stored).unwrap()).unwrap_err();
    assert!(matches!(error, Error::TensorData { .. }), "{error}");
    for len in 0..head.len() {
        assert!(Gguf::parse(&head[..len]).is_err());
    }
    let mut typed = Builder::read(&tiny("llama").build());
    typed.set(HEAD_KEY, "text");
    assert!(matches!(Gguf::parse(&typed.build()), Err(Error::KeyType { .. })));
    // Sizes whose sums overflow.
    let mut large = Builder::read(&tiny("llama").build());
    large.set(HEAD_KEY, 0u32);
    for dim in [1u64 << 40, 1 << 45, 1 << 60, i64::MAX as u64] {
        large.tensors.last_mut().unwrap().dims = vec![32, dim];
        let bytes = large.build();
        let (gguf, len) = (large.set(HEAD_KEY, bytes.len() as u32).build(), bytes.len());
        assert!(Gguf::parse(&gguf[..len]).and_then(|gguf| Model::new(&gguf).map(|_| ())).is_err());
    }
}

#[test]
fn verifies_the_storage_as_well() {
    let hashed = read(&committed().join("hashes.gguf"));
    let names: Vec<_> = Gguf::parse(&hashed).unwrap().tensors().map(|tensor| tensor.name.to_owned()).collect();
    let last = names.last().unwrap();
    let (head, rest) = divided(Builder::read(&hashed), |name| name == last);
    let gguf = Gguf::parse(&head).unwrap();
    let mut buffer = [0; 16];
    let check = |rest: Vec<u8>, buffer: &mut [u8]| {
        let (mut storage, mut verify) = (Counted::new(&rest), gguf.verify().unwrap().unwrap());
        while verify.step_with(&mut storage, buffer)? {}
        Ok(())
    };
    assert_eq!(check(rest.clone(), &mut buffer), Ok(()));
    assert!(matches!(check(rest.clone(), &mut []), Err(Error::BufferTooSmall { .. })));
    for at in 0..rest.len() {
        let mut damaged = rest.clone();
        damaged[at] ^= 1;
        assert!(matches!(check(damaged, &mut buffer), Err(Error::DamagedTensor { .. })), "{at}");
    }
    let mut verify = gguf.verify().unwrap().unwrap();
    let result = std::iter::repeat_with(|| verify.step(64)).find(|result| *result != Ok(true));
    assert_eq!(result, Some(Err(Error::NoStorage)));
    let mut storage = Counted::new(&rest);
    storage.fail_after(0);
    let mut verify = gguf.verify().unwrap().unwrap();
    let mut errors = 0;
    loop {
        match verify.step_with(&mut storage, &mut buffer) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                assert!(matches!(error, Error::Storage { .. }), "{error}");
                errors += 1;
            }
        }
    }
    assert_eq!(errors, 1, "read again after an error");
}
