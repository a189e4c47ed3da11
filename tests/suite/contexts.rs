//! Contexts: after any sequence of opening, forking, running, rewinding and closing, every context has the same
//! logits as its conversation alone, and no page is lost.

use std::collections::HashMap;

use crate::common::encoders::{ENCODERS, LAYERS, encoder};
use crate::common::families::decoder;
use crate::common::gguf::Builder;
use crate::common::peers::peer_of;
use crate::common::unwritten::unwritten;
use crate::common::variants::{quantized, tiny, windowed};
use crate::common::workers::Scoped;
use arenite::{Context, Engine, Error, Gguf, Kernels, KvType, Line, Model, Options, Plan, TokenId, Work};

const CONTEXT: usize = 64;

/// Random numbers for schedules.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// Memory for an engine.
struct Memory {
    workspace: Vec<Line>,
    kv: Vec<Line>,
}

impl Memory {
    fn new(plan: &Plan) -> Self {
        // The memory is filled with NaN, so that reads of unwritten memory change the result.
        let lines = |bytes: usize| {
            let mut lines = vec![Line::ZERO; bytes.div_ceil(64)];
            Line::bytes_mut(&mut lines).fill(0xff);
            lines
        };
        Self { workspace: lines(plan.workspace), kv: lines(plan.kv) }
    }

    fn engine<'m, 'w>(&'w mut self, model: &'m Model<'m>, plan: Plan) -> Engine<'m, 'w> {
        Engine::new(model, plan, unwritten(Line::bytes_mut(&mut self.workspace)), Line::bytes_mut(&mut self.kv))
            .unwrap()
    }
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Runs each conversation alone, from the start.
struct Alone<'m, 'w> {
    engine: Engine<'m, 'w>,
    known: HashMap<(Vec<TokenId>, Vec<TokenId>), Vec<u32>>,
}

impl Alone<'_, '_> {
    fn logits(&mut self, text: &[TokenId], read: &[TokenId]) -> Vec<u32> {
        let engine = &mut self.engine;
        self.known
            .entry((text.to_vec(), read.to_vec()))
            .or_insert_with(|| {
                let mut context = engine.open().unwrap();
                if !text.is_empty() {
                    engine.encode(&mut context, text).unwrap();
                }
                engine.run(&mut [Work::prefill(&mut context, read)]).unwrap();
                let logits = bits(engine.logits(&context));
                engine.close(context);
                logits
            })
            .clone()
    }
}

/// A context, its tokens, and the encoder's text.
struct Conversation {
    context: Context,
    read: Vec<TokenId>,
    text: Vec<TokenId>,
}

/// Options of a schedule.
#[derive(Clone, Copy, Debug)]
struct Way {
    contexts: usize,
    /// Pages per context, of the 4 that a full context needs.
    pages: usize,
    batch: usize,
    kv: KvType,
    workers: usize,
    kernels: usize,
}

struct Schedule<'e, 'm, 'w> {
    engine: &'e mut Engine<'m, 'w>,
    open: Vec<Conversation>,
    random: Random,
    has_text: bool,
    vocab: usize,
}

impl Schedule<'_, '_, '_> {
    /// Returns up to `most` tokens: one of five sequences, so that contexts often have common prefixes.
    fn tokens(&mut self, most: usize) -> Vec<TokenId> {
        let (count, start) = (1 + self.random.below(most), self.random.below(5));
        (0..count).map(|i| ((start + i) * 37 % self.vocab) as TokenId).collect()
    }

    fn open(&mut self) {
        match self.engine.open() {
            Ok(context) => self.open.push(Conversation { context, read: vec![], text: vec![] }),
            Err(error) => assert!(matches!(error, Error::TooManyContexts { .. })),
        }
    }

    fn encode(&mut self, at: usize) {
        let text = self.tokens(30);
        let Conversation { context, read, text: old } = &mut self.open[at];
        match self.engine.encode(context, &text) {
            Ok(()) => (*read, *old) = (vec![], text),
            Err(error) => assert!(matches!(error, Error::OutOfPages { .. }), "{error}"),
        }
    }

    fn fork(&mut self, at: usize) {
        let Conversation { context, read, text } = &self.open[at];
        let position = if self.random.below(2) == 0 { read.len() } else { self.random.below(read.len() + 1) };
        match self.engine.fork_at(context, position) {
            Ok(fork) => {
                let (read, text) = (read[..position].to_vec(), text.clone());
                self.open.push(Conversation { context: fork, read, text });
            }
            Err(Error::CannotRewind { .. }) => assert_ne!(self.engine.nearest(context, position), position),
            Err(error) => assert!(matches!(error, Error::TooManyContexts { .. }), "{error}"),
        }
    }

    fn rewind(&mut self, at: usize) {
        let position = self.random.below(self.open[at].read.len() + 1);
        let Conversation { context, read, .. } = &mut self.open[at];
        let nearest = self.engine.nearest(context, position);
        assert!(nearest <= position && self.engine.nearest(context, nearest) == nearest);
        let can = position == nearest;
        assert_eq!(self.engine.rewind(context, position).is_ok(), can);
        if can {
            read.truncate(position);
        }
    }

    fn close(&mut self, at: usize) {
        self.engine.close(self.open.swap_remove(at).context);
    }

    /// Runs tokens of some contexts in one pass and checks the logits of each.
    fn run(&mut self, alone: &mut Alone<'_, '_>) {
        let mut pieces = vec![];
        for at in 0..self.open.len() {
            let (left, ready) = (CONTEXT - self.open[at].read.len(), self.has_text != self.open[at].text.is_empty());
            if left > 0 && ready && self.random.below(3) > 0 {
                let most = if self.random.below(3) == 0 { left.min(40) } else { 1 };
                pieces.push((at, self.tokens(most)));
            }
        }
        let free = self.engine.free_pages();
        let mut works = vec![];
        for (at, Conversation { context, .. }) in self.open.iter_mut().enumerate() {
            if let Some((_, tokens)) = pieces.iter().find(|(piece, _)| *piece == at) {
                works.push(match tokens[..] {
                    [token] => Work::decode(context, token),
                    _ => Work::prefill(context, tokens),
                });
            }
        }
        match self.engine.run(&mut works) {
            Err(Error::OutOfPages { needed, free }) => {
                assert!(needed > free);
                pieces.clear();
            }
            result => result.unwrap(),
        }
        if pieces.is_empty() {
            assert_eq!(self.engine.free_pages(), free);
        }
        for (at, tokens) in pieces {
            let Conversation { context, read, text } = &mut self.open[at];
            read.extend(tokens);
            assert_eq!(context.position(), read.len());
            assert!(bits(self.engine.logits(context)) == alone.logits(text, read), "{text:?} {read:?}");
        }
        assert!(self.open.iter().all(|conversation| conversation.context.position() == conversation.read.len()));
    }

    fn step(&mut self, alone: &mut Alone<'_, '_>) {
        let at = self.open.len().checked_sub(1).map(|last| self.random.below(last + 1));
        match (self.random.below(12), at) {
            (0, _) | (_, None) => self.open(),
            (1..=2, Some(at)) => self.fork(at),
            (3, Some(at)) => self.rewind(at),
            (4, Some(at)) => self.close(at),
            (5, Some(at)) if !self.has_text => self.engine.checkpoint(&self.open[at].context).unwrap(),
            (5, Some(at)) if self.has_text => self.encode(at),
            _ => self.run(alone),
        }
    }
}

/// Runs `count` schedules of a model.
fn schedules(name: &str, file: &Builder, way: Way, count: usize, seed: u64) {
    let file = file.build();
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let Way { contexts, pages, batch, kv, workers, kernels } = way;
    let kernels: Vec<_> = Kernels::available().skip(kernels).chain([Kernels::detect()]).collect();
    let options = Options::new().context(CONTEXT).batch(batch).kv(kv).workers(workers).contexts(contexts);
    let plan = Plan::new(&gguf, options.pages(pages).sources(contexts.div_ceil(2)).checkpoints(contexts % 3)).unwrap();
    let threads = Scoped(workers);
    let mut memory = Memory::new(&plan);
    let mut engine = memory.engine(&model, plan).with_kernels(kernels[0]).with_workers(&threads);

    let plan = Plan::new(&gguf, options.contexts(1).pages(0).batch(CONTEXT)).unwrap();
    let mut memory = Memory::new(&plan);
    let mut alone = Alone { engine: memory.engine(&model, plan), known: HashMap::new() };

    let has_text = ["t5", "post"].contains(&name);
    let free = engine.free_pages();
    for schedule in 0..count as u64 {
        let random = Random(seed ^ schedule << 20);
        let vocab = if has_text { 40 } else { 280 };
        let mut schedule = Schedule { engine: &mut engine, open: vec![], random, has_text, vocab };
        for _ in 0..25 {
            schedule.step(&mut alone);
        }
        while !schedule.open.is_empty() {
            schedule.close(0);
        }
        assert_eq!(engine.free_pages(), free, "{name} {way:?}: pages are lost");
    }
    // All pages are free again, those of windows as well: the contexts can be filled up.
    let mut all: Vec<_> = (0..contexts).map(|_| engine.open().unwrap()).collect();
    let tokens = vec![7; CONTEXT.min(if free > 0 { free / contexts * 16 } else { CONTEXT })];
    if !has_text && !tokens.is_empty() {
        let mut works: Vec<_> = all.iter_mut().map(|context| Work::prefill(context, &tokens)).collect();
        engine.run(&mut works).unwrap();
    }
    all.into_iter().for_each(|context| engine.close(context));
    assert_eq!(engine.free_pages(), free);
}

#[test]
fn a_thousand_schedules() {
    let models = [
        ("llama", tiny("llama")),
        ("Q8_0", quantized(tiny("qwen3"), "Q8_0")),
        ("a window of 10", windowed(10)),
        ("gemma3", decoder("gemma3")),
        ("gemma4", decoder("gemma4")),
        ("gpt2", tiny("gpt2")),
        ("experts", decoder("mixtral")),
        ("lfm2", decoder("lfm2")),
        ("qwen35", decoder("qwen35")),
        ("mamba2", decoder("mamba2")),
        ("falcon-h1", decoder("falcon-h1")),
        ("lfm2moe", decoder("lfm2moe")),
        ("qwen3next", decoder("qwen3next")),
        ("granitehybrid", decoder("granitehybrid")),
        ("nemotron_h_moe", decoder("nemotron_h_moe")),
        ("mamba", decoder("mamba")),
        ("jamba", decoder("jamba")),
        ("rwkv7", decoder("rwkv7")),
        ("rwkv6", decoder("rwkv6")),
        ("plamo2", decoder("plamo2")),
        ("deepseek2", decoder("deepseek2")),
        ("plm", decoder("plm")),
        ("gemma3n", decoder("gemma3n")),
        ("kimi-linear", peer_of("kimi-linear")),
        ("bailingmoe3", peer_of("bailingmoe3")),
        ("rwkv6qwen2", peer_of("rwkv6qwen2")),
        ("arwkv7", peer_of("arwkv7")),
        ("talkie", peer_of("talkie")),
        ("hrm_text", peer_of("hrm_text")),
        ("t5", encoder("t5")),
        ("post", encoder("post")),
    ];
    let ways = [
        Way { contexts: 1, pages: 0, batch: 5, kv: KvType::F16, workers: 1, kernels: 0 },
        Way { contexts: 2, pages: 5, batch: 3, kv: KvType::F32, workers: 2, kernels: 1 },
        Way { contexts: 5, pages: 9, batch: 16, kv: KvType::Q8_0, workers: 3, kernels: 2 },
        Way { contexts: 16, pages: 30, batch: 64, kv: KvType::F16, workers: 1, kernels: 9 },
        Way { contexts: 16, pages: 0, batch: 20, kv: KvType::F16, workers: 1, kernels: 0 },
    ];
    // Emulators run fewer schedules.
    let count = std::env::var("ARENITE_SCHEDULES").map_or(7, |count| count.parse().unwrap());
    for (seed, (name, file)) in (1..).zip(&models) {
        for way in ways {
            schedules(name, file, way, count, seed);
        }
    }
    println!("{} schedules", count * models.len() * ways.len());
}

/// Calls `f` with an engine for a small model.
fn with_engine(options: Options, f: impl FnOnce(&mut Engine<'_, '_>)) {
    let file = tiny("llama").build();
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let plan = Plan::new(&gguf, options).unwrap();
    let mut memory = Memory::new(&plan);
    f(&mut memory.engine(&model, plan));
}

#[test]
fn a_common_beginning_is_stored_once() {
    with_engine(Options::new().context(64).contexts(5).pages(10), |engine| {
        let mut first = engine.open().unwrap();
        engine.run(&mut [Work::prefill(&mut first, &[3; 40])]).unwrap();
        assert_eq!(engine.free_pages(), 7);
        let mut forks: Vec<_> = (0..4).map(|_| engine.fork(&first).unwrap()).collect();
        assert_eq!(engine.free_pages(), 7);
        assert!(forks.iter().all(|fork| engine.logits(fork) == engine.logits(&first)));
        // Each fork writes to the shared page that is not full, so all but the last one copy it.
        let mut works: Vec<_> = forks.iter_mut().zip(4..).map(|(fork, token)| Work::decode(fork, token)).collect();
        works.push(Work::decode(&mut first, 9));
        engine.run(&mut works).unwrap();
        assert_eq!(engine.free_pages(), 3);
        forks.into_iter().for_each(|fork| engine.close(fork));
        assert_eq!(engine.free_pages(), 7);
        // A fork at the end of a page copies nothing.
        let mut fork = engine.fork_at(&first, 32).unwrap();
        engine.run(&mut [Work::decode(&mut fork, 1)]).unwrap();
        assert_eq!(engine.free_pages(), 6);
    });
}

/// `free_pages` does not count pages of windows, of which there are always enough.
#[test]
fn free_pages_are_those_that_were_asked_for() {
    for (file, free) in [(tiny("llama"), 2), (decoder("gemma3"), 2), (windowed(5), 0)] {
        let bytes = file.build();
        let gguf = Gguf::parse(&bytes).unwrap();
        let plan = Plan::new(&gguf, Options::new().context(CONTEXT).pages(2)).unwrap();
        let model = Model::new(&gguf).unwrap();
        assert_eq!(Memory::new(&plan).engine(&model, plan).free_pages(), free);
    }
}

#[test]
fn what_cannot_be_run_is_said_before_anything_is() {
    with_engine(Options::new().context(64).contexts(2).pages(3), |engine| {
        let (mut a, mut b) = (engine.open().unwrap(), engine.open().unwrap());
        assert_eq!(engine.open().unwrap_err(), Error::TooManyContexts { planned: 2 });
        assert!(engine.logits(&a).is_empty());
        engine.run(&mut [Work::prefill(&mut a, &[5; 17])]).unwrap();
        let logits = bits(engine.logits(&a));
        let works = &mut [Work::decode(&mut a, 1), Work::prefill(&mut b, &[6; 17])];
        assert_eq!(engine.run(works).unwrap_err(), Error::OutOfPages { needed: 2, free: 1 });
        let works = &mut [Work::decode(&mut a, 1), Work::decode(&mut b, 1000)];
        assert_eq!(engine.run(works).unwrap_err(), Error::TokenOutOfRange { token: 1000, vocab: 288 });
        let works = &mut [Work::decode(&mut a, 1), Work::prefill(&mut b, &[1, 2]).all_logits()];
        assert_eq!(engine.run(works).unwrap_err(), Error::TooManyLogits { planned: 2, needed: 3 });
        let works = &mut [Work::decode(&mut b, 1), Work::prefill(&mut a, &[1; 48])];
        assert_eq!(engine.run(works).unwrap_err(), Error::ContextFull { context: 64, needed: 65 });
        assert_eq!((a.position(), b.position(), engine.free_pages()), (17, 0, 1));
        assert_eq!(bits(engine.logits(&a)), logits);
        with_engine(Options::new().context(64), |other| {
            assert_eq!(other.run(&mut [Work::decode(&mut a, 1)]).unwrap_err(), Error::ForeignContext);
        });
    });
}

/// A context is refused by an engine made later in the same memory.
#[test]
fn a_context_of_a_dropped_engine_is_foreign() {
    let file = decoder("llama").build();
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let plan = Plan::new(&gguf, Options::new().context(32).contexts(1)).unwrap();
    let [mut workspace, mut kv] = [plan.workspace, plan.kv].map(|bytes| vec![Line::ZERO; bytes.div_ceil(64)]);
    let mut first = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv)).unwrap();
    let mut old = first.open().unwrap();
    first.run(&mut [Work::prefill(&mut old, &[5, 6, 7])]).unwrap();
    assert!(first.logits_at(&old, usize::MAX).is_empty());

    let mut second = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv)).unwrap();
    let mut new = second.open().unwrap();
    second.run(&mut [Work::prefill(&mut new, &[8, 9])]).unwrap();
    assert!(second.logits(&old).is_empty());
    assert_eq!(second.run(&mut [Work::decode(&mut old, 1)]).unwrap_err(), Error::ForeignContext);
    assert_eq!(second.fork(&old).unwrap_err(), Error::ForeignContext);
    second.close(old); // does not close the context that has its slot now
    second.run(&mut [Work::decode(&mut new, 1)]).unwrap();
    assert_eq!(new.position(), 3);
    assert_eq!(model.spec().layer(usize::MAX).window(), None); // no panic
}

/// The engine keeps as many encoder texts as were planned.
#[test]
fn a_text_without_pages_for_it() {
    let file = encoder("t5").build();
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let plan = Plan::new(&gguf, Options::new().context(64).contexts(2).sources(1)).unwrap();
    let (mut memory, mut other) = (Memory::new(&plan), Memory::new(&plan));
    let (mut engine, mut other) = (memory.engine(&model, plan), other.engine(&model, plan));
    let (mut a, mut b) = (engine.open().unwrap(), engine.open().unwrap());
    engine.encode(&mut a, &[5; 30]).unwrap();
    assert_eq!(engine.encode(&mut b, &[6; 40]), Err(Error::OutOfPages { needed: 3, free: 2 }));
    assert_eq!(engine.encode(&mut b, &[6; 65]), Err(Error::ContextFull { context: 64, needed: 65 }));
    assert_eq!((a.source_tokens(), b.source_tokens()), (30, 0));
    assert_eq!(engine.run(&mut [Work::decode(&mut b, 1)]), Err(Error::NoSource));
    // Closing another engine's context frees nothing.
    let mut foreign = other.open().unwrap();
    other.encode(&mut foreign, &[7; 64]).unwrap();
    engine.close(foreign);
    let mut second = other.open().unwrap();
    assert_eq!(other.encode(&mut second, &[7]), Err(Error::OutOfPages { needed: 1, free: 0 }));
    engine.close(a);
    engine.encode(&mut b, &[6; 40]).unwrap();
    assert_eq!(b.source_tokens(), 40);
}

/// An encoder that is abandoned after any step leaves no text, and the next text gets the bits that it gets alone.
#[test]
fn an_abandoned_encoder_leaves_no_text() {
    for kind in ENCODERS {
        let file = encoder(kind).build();
        let gguf = Gguf::parse(&file).unwrap();
        let model = Model::new(&gguf).unwrap();
        let plan = Plan::new(&gguf, Options::new().context(64).batch(2).contexts(2).sources(1)).unwrap();
        let mut memory = Memory::new(&plan);
        let mut engine = memory.engine(&model, plan);
        let (mut context, mut other) = (engine.open().unwrap(), engine.open().unwrap());
        // The states and, with a decoder, the logits of the first token.
        let result = |engine: &mut Engine<'_, '_>, context: &mut Context| {
            if model.spec().has_head() {
                engine.run(&mut [Work::decode(context, 1)]).unwrap();
            }
            (bits(engine.states()), bits(engine.logits(context)))
        };
        engine.encode(&mut context, &[5, 6, 7]).unwrap();
        let want = result(&mut engine, &mut context);
        for steps in 0.. {
            let mut encoding = engine.begin_encode(&mut context, &[8; 9]).unwrap();
            if (0..steps).take_while(|_| encoding.step()).count() < steps {
                assert!(steps > 5 * 2 * LAYERS[0] as usize, "{kind}: {steps} steps");
                break;
            }
            drop(encoding);
            assert!(engine.states().is_empty(), "{kind}, {steps} steps");
            // Its pages are free.
            drop(engine.begin_encode(&mut other, &[7; 64]).unwrap());
            if model.spec().has_head() {
                assert_eq!(
                    engine.run(&mut [Work::decode(&mut context, 1)]),
                    Err(Error::NoSource),
                    "{kind}, {steps} steps"
                );
            }
            engine.begin_encode(&mut context, &[5, 6, 7]).unwrap().finish();
            assert_eq!(result(&mut engine, &mut context), want, "{kind}, {steps} steps");
        }
    }
}

/// An embedding that is given up after any step changes nothing for the next one.
#[test]
fn an_embedding_that_is_given_up_leaves_nothing() {
    let decoder = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/qwen3_embedding/model.gguf"));
    let encoders = ENCODERS.iter().map(|kind| encoder(kind).build());
    for file in encoders.chain([decoder.unwrap()]) {
        let gguf = Gguf::parse(&file).unwrap();
        let model = Model::new(&gguf).unwrap();
        let plan = Plan::new(&gguf, Options::new().context(64).batch(4)).unwrap();
        let mut memory = Memory::new(&plan);
        let mut engine = memory.engine(&model, plan);
        let mut context = engine.open().unwrap();
        let mut buffer = vec![0.0; model.spec().embedding_buffer()];
        let want = bits(engine.embed(&mut context, &[5, 6, 7], &mut buffer).unwrap());
        let mut steps = 0;
        loop {
            let mut left = steps;
            let goes_on = || {
                left -= 1;
                left > 0
            };
            let texts = (&[8; 9][..], usize::MAX);
            steps += 1;
            if steps > 1 && engine.embed_while(&mut context, texts, &mut buffer, goes_on).unwrap().is_some() {
                break;
            }
            assert_eq!(bits(engine.embed(&mut context, &[5, 6, 7], &mut buffer).unwrap()), want, "{steps} steps");
        }
        // Each of three batches takes steps of its own.
        assert!(steps > 3 * model.spec().layers, "{steps} steps");
    }
}

#[test]
fn the_logits_of_every_token() {
    let tokens = [5, 9, 2, 200, 31, 8, 8];
    let mut want = vec![];
    with_engine(Options::new().context(64), |engine| {
        let mut context = engine.open().unwrap();
        engine.prefill_all(&mut context, &tokens, |_, logits| want.push(bits(logits))).unwrap();
        assert_eq!(bits(engine.logits(&context)), *want.last().unwrap());
    });
    // Two contexts whose tokens take several passes.
    with_engine(Options::new().context(64).contexts(2).logits(9).batch(3), |engine| {
        let (mut a, mut b) = (engine.open().unwrap(), engine.open().unwrap());
        let works =
            &mut [Work::prefill(&mut b, &tokens[..2]).all_logits(), Work::prefill(&mut a, &tokens).all_logits()];
        engine.run(works).unwrap();
        for (position, want) in want.iter().enumerate() {
            assert_eq!(bits(engine.logits_at(&a, position)), *want, "{position}");
            let of_b = if position < 2 { &want[..] } else { &[] };
            assert_eq!(bits(engine.logits_at(&b, position)), of_b, "{position}");
        }
        engine.run(&mut [Work::prefill(&mut a, &[1, 2]).no_logits()]).unwrap();
        assert!(engine.logits(&a).is_empty());
    });
}

#[test]
fn a_run_in_steps() {
    with_engine(Options::new().context(64).batch(4), |engine| {
        let mut context = engine.open().unwrap();
        engine.run(&mut [Work::prefill(&mut context, &[1, 2, 3, 4, 5, 6])]).unwrap();
        let want = bits(engine.logits(&context));
        engine.rewind(&mut context, 0).unwrap();
        let works = &mut [Work::prefill(&mut context, &[1, 2, 3, 4, 5, 6])];
        let mut pass = engine.begin(works).unwrap();
        let mut steps = 1;
        while pass.step() {
            steps += 1;
        }
        assert_eq!(steps, 2 * (1 + 2 + 1)); // two passes: each has a layout, two layers, and an end
        assert_eq!(bits(engine.logits(&context)), want);
        // An abandoned pass can be repeated.
        engine.rewind(&mut context, 0).unwrap();
        let works = &mut [Work::prefill(&mut context, &[9, 9, 9, 9, 9, 9])];
        let mut pass = engine.begin(works).unwrap();
        assert!(pass.step() && pass.step());
        let _ = pass; // given up
        assert_eq!(context.position(), 0);
        engine.run(&mut [Work::prefill(&mut context, &[1, 2, 3, 4, 5, 6])]).unwrap();
        assert_eq!(bits(engine.logits(&context)), want);
    });
}

/// Restoring a snapshot that needs more pages than are free is an error and changes nothing. The pages of the context
/// itself count as free.
#[test]
fn a_snapshot_without_pages_for_it() {
    with_engine(Options::new().context(64).contexts(2).pages(4), |engine| {
        let (mut long, mut other) = (engine.open().unwrap(), engine.open().unwrap());
        engine.run(&mut [Work::prefill(&mut long, &[5; 40])]).unwrap();
        let want = bits(engine.logits(&long));
        let mut snapshot = vec![0; engine.snapshot_bytes(&long)];
        engine.save(&long, &mut snapshot).unwrap();
        engine.run(&mut [Work::prefill(&mut other, &[6; 9])]).unwrap();
        let before = bits(engine.logits(&other));
        assert_eq!(engine.restore(&mut other, &snapshot), Err(Error::OutOfPages { needed: 3, free: 1 }));
        assert_eq!((other.position(), engine.free_pages()), (9, 0));
        assert!(bits(engine.logits(&other)) == before);
        engine.restore(&mut long, &snapshot).unwrap();
        assert!(bits(engine.logits(&long)) == want);
        engine.close(long);
        engine.restore(&mut other, &snapshot).unwrap();
        assert_eq!((other.position(), engine.free_pages()), (40, 1));
        assert!(bits(engine.logits(&other)) == want);
    });
}

/// Two checkpoints keep the states of recurrent layers, and a third replaces the oldest one. A context rewinds to a
/// checkpoint, and a fork starts there, with the same bits as a context that has run no further.
#[test]
fn checkpoints_are_where_a_context_goes_back_to() {
    let tokens: Vec<TokenId> = (0..12).map(|i| i * 37 % 280).collect();
    for name in ["mamba2", "lfm2", "mamba", "rwkv7"] {
        let file = decoder(name).build();
        let gguf = Gguf::parse(&file).unwrap();
        let model = Model::new(&gguf).unwrap();
        let plan = Plan::new(&gguf, Options::new().context(64).contexts(3).checkpoints(2)).unwrap();
        let (mut memory, mut other) = (Memory::new(&plan), Memory::new(&plan));
        let (mut engine, mut other) = (memory.engine(&model, plan), other.engine(&model, plan));
        let mut fresh = |count| {
            let mut context = other.open().unwrap();
            other.run(&mut [Work::prefill(&mut context, &tokens[..count])]).unwrap();
            let logits = bits(other.logits(&context));
            assert_eq!(engine.checkpoint(&context), Err(Error::ForeignContext));
            other.close(context);
            logits
        };
        let (seven, ten) = (fresh(7), fresh(10));

        let mut context = engine.open().unwrap();
        engine.checkpoint(&context).unwrap(); // nothing has run, so nothing is kept
        for end in [3, 6] {
            engine.run(&mut [Work::prefill(&mut context, &tokens[end - 3..end])]).unwrap();
            engine.checkpoint(&context).unwrap();
            engine.checkpoint(&context).unwrap(); // this position has a checkpoint already
        }
        engine.run(&mut [Work::decode(&mut context, tokens[6])]).unwrap();
        assert_eq!([0, 2, 3, 5, 6, 7, 99].map(|at| engine.nearest(&context, at)), [0, 0, 3, 3, 6, 7, 7]);
        let error = Error::CannotRewind { position: 5, earliest: 3, latest: 7 };
        assert_eq!(engine.rewind(&mut context, 5), Err(error));
        assert_eq!(engine.fork_at(&context, 5).unwrap_err(), error);

        // The third checkpoint replaces the oldest.
        engine.run(&mut [Work::prefill(&mut context, &tokens[7..9])]).unwrap();
        engine.checkpoint(&context).unwrap();
        engine.run(&mut [Work::decode(&mut context, tokens[9])]).unwrap();
        assert_eq!([5, 8, 9].map(|at| engine.nearest(&context, at)), [0, 6, 9]);
        assert!(bits(engine.logits(&context)) == ten, "{name}");
        let mut fork = engine.fork_at(&context, 6).unwrap();
        engine.run(&mut [Work::decode(&mut fork, tokens[6])]).unwrap();
        assert!(bits(engine.logits(&fork)) == seven, "{name}");
        assert_eq!(engine.nearest(&fork, 6), 0); // the fork has no checkpoints of its own
        engine.rewind(&mut context, 9).unwrap();
        engine.run(&mut [Work::decode(&mut context, tokens[9])]).unwrap();
        assert!(bits(engine.logits(&context)) == ten, "{name}");

        // Rewinding drops the checkpoints after the position.
        engine.rewind(&mut context, 6).unwrap();
        engine.run(&mut [Work::prefill(&mut context, &tokens[6..10])]).unwrap();
        assert!(bits(engine.logits(&context)) == ten, "{name}");
        assert_eq!([9, 10].map(|at| engine.nearest(&context, at)), [6, 10]);
        // Restoring a snapshot replaces all checkpoints.
        let mut snapshot = vec![0; engine.snapshot_bytes(&context)];
        engine.save(&context, &mut snapshot).unwrap();
        engine.restore(&mut context, &snapshot).unwrap();
        assert_eq!([9, 10].map(|at| engine.nearest(&context, at)), [0, 10]);
        engine.rewind(&mut context, 0).unwrap();
        assert_eq!(engine.nearest(&context, 6), 0);
    }
    // Models without recurrent layers need no checkpoints.
    with_engine(Options::new().context(64).checkpoints(2), |engine| {
        let mut context = engine.open().unwrap();
        engine.run(&mut [Work::prefill(&mut context, &tokens[..6])]).unwrap();
        engine.checkpoint(&context).unwrap();
        assert_eq!(engine.nearest(&context, 4), 4);
    });
}

/// A pass that is stopped has changed recurrent states: the context continues from a checkpoint or from the start.
#[test]
fn a_stopped_pass_goes_back_to_a_checkpoint() {
    let file = decoder("mamba2").build();
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let plan = Plan::new(&gguf, Options::new().context(64).checkpoints(1)).unwrap();
    let mut memory = Memory::new(&plan);
    let mut engine = memory.engine(&model, plan);
    let mut context = engine.open().unwrap();
    engine.run(&mut [Work::prefill(&mut context, &[5, 6, 7, 8, 9])]).unwrap();
    let want = bits(engine.logits(&context));
    engine.rewind(&mut context, 0).unwrap();
    engine.run(&mut [Work::prefill(&mut context, &[5, 6])]).unwrap();
    engine.checkpoint(&context).unwrap();
    engine.run(&mut [Work::decode(&mut context, 7)]).unwrap();
    let works = &mut [Work::prefill(&mut context, &[8, 9])];
    let mut pass = engine.begin(works).unwrap();
    assert!(pass.step() && pass.step()); // the inputs, and the first layer
    assert_eq!(context.position(), 3);
    let error = Error::CannotRewind { position: 3, earliest: 2, latest: 3 };
    assert_eq!(engine.run(&mut [Work::decode(&mut context, 8)]).unwrap_err(), error);
    engine.checkpoint(&context).unwrap(); // the states are undefined, so nothing is kept
    assert_eq!(engine.nearest(&context, 3), 2);
    engine.rewind(&mut context, 2).unwrap();
    engine.run(&mut [Work::prefill(&mut context, &[7, 8, 9])]).unwrap();
    assert!(bits(engine.logits(&context)) == want);
}

#[test]
fn engines_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Engine<'_, '_>>();
    is_send::<arenite::Session<'_, '_>>();
    is_send::<Context>();
}
