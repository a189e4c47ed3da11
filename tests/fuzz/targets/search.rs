//! Encoders, vectors and beam search give the same results in any memory and when repeated, no page is lost, and
//! hypotheses are valid.
#![no_main]

use std::borrow::Cow;

use arbitrary::Arbitrary;
use arenite::beam::{Beams, Search};
use arenite::{Engine, Error, Gguf, KvType, Line, Model, Options, Plan};
use fuzz::change::{FIRST_ENCODER, File, Real, model};
use fuzz::list::{List, Token};
use fuzz::same::{Memory, bits};
use fuzz::unwritten::unwritten;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    family: u8,
    /// A changed file of any family, which replaces the unchanged file of `family`.
    file: Option<File>,
    kv: u8,
    context: u8,
    batch: u8,
    contexts: u8,
    pages: u8,
    sources: u8,
    text: List<Token, 24>,
    second: u8,
    beams: u8,
    length: u8,
    length_penalty: Real,
    start: Token,
    end: Option<Token>,
    banned: Option<Token>,
}

/// All results for a text: states, vectors, hypotheses with their scores.
type Answer = Vec<Result<Vec<u32>, Error>>;

fuzz_target!(|case: Case| {
    let bytes = match &case.file {
        Some(file) => Cow::from(file.build()),
        None => model(FIRST_ENCODER + usize::from(case.family) % 6).into(),
    };
    let Ok(gguf) = Gguf::parse(&bytes) else { return };
    let Ok(model) = Model::new(&gguf) else { return };
    let kv = KvType::ALL[usize::from(case.kv) % KvType::ALL.len()];
    let (context, batch) = (1 + usize::from(case.context) % 64, 1 + usize::from(case.batch) % 12);
    let options = Options::new().context(context).batch(batch).kv(kv);
    let options = options.contexts(1 + usize::from(case.contexts) % 8).pages(usize::from(case.pages) % 24);
    let mut options = options;
    options.sources = usize::from(case.sources) % 4;
    let Ok(plan) = Plan::new(&gguf, options) else { return };
    if plan.workspace.max(plan.kv) > 32 << 20 {
        return;
    }
    let mut want = None;
    for fill in [0, 0xff] {
        let mut memory = Memory::new(&plan, fill);
        let mut engine = memory.engine(&model, plan);
        for time in ["first", "second"] {
            let got = case.answer(&mut engine, fill);
            assert!(*want.get_or_insert_with(|| got.clone()) == got, "memory of {fill:#x}, the {time} time");
        }
    }
});

impl Case {
    fn answer(&self, engine: &mut Engine<'_, '_>, fill: u8) -> Answer {
        let plan = *engine.plan();
        let vocab = engine.model().spec().vocab;
        let free = engine.free_pages();
        let mut all = vec![];
        let text: Vec<_> = self.text.iter().map(|token| token.id(vocab)).collect();
        let Ok(mut context) = engine.open() else { return all };
        let width = engine.model().spec().embedding_buffer();
        let mut buffer = vec![f32::from_bits(u32::from_le_bytes([fill; 4])); width];
        unwritten(&mut buffer);
        all.push(engine.embed(&mut context, &text, &mut buffer).map(|vector| bits(vector)));
        all.push(engine.embed_pair(&mut context, &text, self.second.into(), &mut buffer).map(|vector| bits(vector)));
        all.push(engine.encode(&mut context, &text).map(|()| bits(engine.states())));
        all.push(engine.pooled(&mut buffer).map(|vector| bits(vector)));

        let search = Search {
            beams: self.beams.into(),
            length: self.length.into(),
            length_penalty: self.length_penalty.get(),
            start: self.start.id(vocab),
            end: self.end.map(|token| token.id(vocab)),
            banned: self.banned.map(|token| token.id(vocab)),
        };
        let mut memory = vec![Line::ZERO; Beams::bytes(&plan).div_ceil(64)];
        let memory = Line::bytes_mut(&mut memory);
        memory.fill(fill);
        let before = engine.free_pages();
        match Beams::search(engine, &context, &search, unwritten(memory)) {
            Err(error) => all.push(Err(error)),
            Ok(mut beams) => {
                assert!((1..=search.beams.max(1)).contains(&beams.count()), "{} hypotheses", beams.count());
                let mut last = f32::INFINITY;
                for rank in 0..beams.count() {
                    let hypothesis = beams.hypothesis(rank).expect("as many as it says");
                    assert!(hypothesis.tokens.len() <= search.length.clamp(1, plan.options.context));
                    assert!(hypothesis.tokens.iter().all(|token| (*token as usize) < vocab));
                    assert!(hypothesis.score.is_nan() || hypothesis.score <= last || last.is_nan());
                    last = hypothesis.score;
                    all.push(Ok([hypothesis.tokens, &bits(&[last])].concat()));
                }
                assert!(beams.hypothesis(beams.count()).is_none());
            }
        }
        assert_eq!(engine.free_pages(), before, "a search keeps pages");
        engine.close(context);
        assert_eq!(engine.free_pages(), free, "pages are lost");
        all
    }
}
