//! Tests what an observer sees, and the state after a stopped pass.

use std::ops::ControlFlow;

use crate::common::fixture::{Case, relative_error};
use crate::common::fixtures::{committed, read};
use crate::common::run::Run;
use crate::common::tiny::{DIM, LAYERS, VOCAB};
use crate::common::variants::{tiny, windowed};
use arenite::{Error, KvType, Observer, Stage};

const WIDTH: usize = DIM as usize;

/// Records everything; stops at one stage if requested.
#[derive(Default)]
struct Record {
    seen: Vec<(Stage, usize, usize, Vec<f32>)>,
    stop: Option<(Stage, usize, usize)>,
}

impl Observer for Record {
    fn observe(&mut self, stage: Stage, layer: usize, position: usize, states: &[f32]) -> ControlFlow<()> {
        self.seen.push((stage, layer, position, states.to_vec()));
        if self.stop == Some((stage, layer, position)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The stages of one batch, in order.
fn stages() -> Vec<(Stage, usize)> {
    let in_a_layer = [Stage::Before, Stage::Attention, Stage::FeedForward, Stage::After];
    let layers = (0..LAYERS as usize).flat_map(|layer| in_a_layer.map(|stage| (stage, layer)));
    layers.chain([(Stage::Logits, LAYERS as usize)]).collect()
}

#[test]
fn stages_and_shapes() {
    let file = tiny("llama").build();
    let mut run = Run::new(&file, |options| (options.context, options.batch) = (32, 4));
    let mut record = Record::default();
    let flow = run.session().prefill_observed(&[1, 2, 3, 4, 5, 6], &mut record).unwrap();
    assert_eq!(flow, ControlFlow::Continue(()));
    let want: Vec<_> = [(0, 4), (4, 2)]
        .into_iter()
        .flat_map(|(position, tokens)| stages().into_iter().map(move |s| (s.0, s.1, position, tokens * WIDTH)))
        .collect();
    let seen: Vec<_> = record.seen.iter().map(|s| (s.0, s.1, s.2, s.3.len())).collect();
    assert_eq!(seen, want);
}

#[test]
fn the_same_states_however_the_prompt_is_cut() {
    let file = tiny("qwen3").build();
    let states = |batch| {
        let mut run = Run::new(&file, |options| (options.context, options.batch) = (32, batch));
        let mut record = Record::default();
        let _ = run.session().prefill_observed(&[9, 8, 7, 6, 5, 4, 3], &mut record).unwrap();
        let mut all = vec![vec![]; stages().len()];
        for (stage, layer, _, states) in record.seen {
            let i = stages().iter().position(|s| *s == (stage, layer)).unwrap();
            all[i].extend(states.iter().map(|x| x.to_bits()));
        }
        all
    };
    let want = states(1);
    for batch in [2, 3, 7, 16] {
        assert!(states(batch) == want, "{batch}");
    }
}

#[test]
fn observing_changes_nothing() {
    let file = tiny("llama").build();
    let mut run = Run::new(&file, |options| options.context = 32);
    let mut session = run.session();
    session.prefill(&[1, 2, 3]).unwrap();
    let want = session.logits().to_vec();
    session.rewind(0).unwrap();
    let _ = session.prefill_observed(&[1, 2, 3], &mut Record::default()).unwrap();
    assert_eq!(session.logits(), want);
}

#[test]
fn the_first_and_the_last_stage_are_what_they_say() {
    let file = tiny("llama");
    let floats = |name: &str| -> Vec<f64> {
        let tensor = file.tensors.iter().find(|t| t.name == name.as_bytes()).unwrap();
        tensor.data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect()
    };
    let bytes = file.build();
    let mut run = Run::new(&bytes, |options| (options.context, options.kv) = (32, KvType::F32));
    let mut session = run.session();
    let mut record = Record::default();
    let ids = [1, 200, 3];
    let _ = session.prefill_observed(&ids, &mut record).unwrap();

    let embeddings = floats("token_embd.weight");
    let want = ids.iter().flat_map(|&id| embeddings[id as usize * WIDTH..][..WIDTH].iter().map(|&x| x as f32));
    assert_eq!(record.seen[0].3, want.collect::<Vec<_>>());

    // The logits are the product of the head and the last token's final state after the norm.
    let [.., after, before_logits] = &record.seen[..] else { panic!("too few stages") };
    let (stage, layer, _, states) = after;
    assert_eq!((*stage, *layer), (Stage::After, LAYERS as usize - 1));
    let state: Vec<f64> = states[2 * WIDTH..].iter().map(|&x| x.into()).collect();
    let root = (state.iter().map(|x| x * x).sum::<f64>() / WIDTH as f64 + 1e-5).sqrt();
    let (norm, head) = (floats("output_norm.weight"), floats("output.weight"));
    let normed: Vec<f64> = state.iter().zip(norm).map(|(x, w)| x / root * w).collect();
    let want: Vec<f32> = normed.iter().map(|&x| x as f32).collect();
    let error = relative_error(&before_logits.3[2 * WIDTH..], &want);
    assert!(error < 1e-6, "{error:e}");
    let want: Vec<f32> =
        head.chunks_exact(WIDTH).map(|row| row.iter().zip(&normed).map(|(w, x)| w * x).sum::<f64>() as f32).collect();
    assert_eq!(want.len(), VOCAB as usize);
    let error = relative_error(session.logits(), &want);
    assert!(error < 1e-6, "{error:e}");
}

/// The observed states equal those in a fixture's `hidden.bin`, whose contents `tests/fixtures/hidden.py` describes.
#[test]
fn the_states_are_those_of_transformers() {
    for name in ["qwen3", "gpt2"] {
        let directory = committed().join(name);
        let file = read(&directory.join("model.gguf"));
        let ids = Case::find(name, "model.gguf").unwrap().prompts()[0].ids.clone();
        let want: Vec<f32> = read(&directory.join("hidden.bin"))
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        for batch in [5, 64] {
            let mut run = Run::new(&file, |options| (options.batch, options.kv) = (batch, KvType::F32));
            let (dim, layers) = (run.model.spec().dim, run.model.spec().layers);
            let mut record = Record::default();
            let _ = run.session().prefill_observed(&ids, &mut record).unwrap();
            let seen = |stage| {
                let mut seen: Vec<_> = record.seen.iter().filter(|seen| seen.0 == stage).collect();
                seen.sort_by_key(|seen| (seen.1, seen.2));
                seen.into_iter().flat_map(|seen| seen.3.clone()).collect::<Vec<f32>>()
            };
            let stages = [Stage::Before, Stage::Attention, Stage::After, Stage::Logits].map(seen);
            let lengths = [layers, layers, layers, 1].map(|layers| layers * ids.len() * dim);
            let mut rest = &want[..];
            for (stage, (got, length)) in stages.iter().zip(lengths).enumerate() {
                let (want, after) = rest.split_at(length);
                rest = after;
                let error = relative_error(got, want);
                assert!(error < 2e-6, "{name}, stage {stage}, batches of {batch}: {error:e}");
            }
            assert!(rest.is_empty());
            assert_eq!(seen(Stage::FeedForward), seen(Stage::After));
        }
    }
}

#[test]
fn stopping_leaves_the_session_where_it_was() {
    let file = tiny("llama").build();
    let ids = [5, 6, 7, 8, 9, 10, 11];
    let mut run = Run::new(&file, |options| (options.context, options.batch) = (32, 3));
    let mut session = run.session();
    session.prefill(&ids).unwrap();
    let want = session.logits().to_vec();
    for (stage, layer) in stages() {
        for (position, before) in [(0, 0), (3, 3), (6, 6)] {
            let mut session = run.session();
            let mut record = Record { stop: Some((stage, layer, position)), ..Record::default() };
            assert_eq!(session.prefill_observed(&ids, &mut record), Ok(ControlFlow::Break(())));
            let last = record.seen.last().unwrap();
            assert_eq!((last.0, last.1, last.2), (stage, layer, position), "nothing is seen after the break");
            // The batches before the stopped one are in the context.
            assert_eq!(session.position(), before);
            session.prefill(&ids[before..]).unwrap();
            assert_eq!(session.logits(), want);
        }
    }
}

#[test]
fn stopping_keeps_the_logits() {
    let file = tiny("llama").build();
    let mut run = Run::new(&file, |options| options.context = 32);
    let mut session = run.session();
    session.prefill(&[1, 2, 3]).unwrap();
    let want = session.logits().to_vec();
    let mut record = Record { stop: Some((Stage::After, 1, 3)), ..Record::default() };
    assert_eq!(session.prefill_observed(&[4, 5], &mut record), Ok(ControlFlow::Break(())));
    assert_eq!((session.position(), session.logits()), (3, &want[..]));
}

#[test]
fn a_stopped_batch_has_overwritten_the_ring() {
    // A window of 4 with batches of 13 keeps 16 positions. A batch stopped at position 16 has already overwritten
    // positions 0 to 12.
    let file = windowed(4).build();
    let mut run = Run::new(&file, |options| (options.context, options.batch) = (64, 13));
    let ids: Vec<u32> = (1..=29).collect();
    let mut session = run.session();
    session.prefill(&ids[..13]).unwrap();
    session.prefill(&ids[13..16]).unwrap();
    let mut record = Record { stop: Some((Stage::After, 1, 16)), ..Record::default() };
    assert_eq!(session.prefill_observed(&ids[16..], &mut record), Ok(ControlFlow::Break(())));
    let error = Error::CannotRewind { position: 15, earliest: 16, latest: 16 };
    assert_eq!(session.rewind(15).unwrap_err(), error);
    session.prefill(&ids[16..]).unwrap();
    let got = session.logits().to_vec();
    let mut fresh = run.session();
    fresh.prefill(&ids).unwrap();
    assert_eq!(fresh.logits(), got);
}
