//! Encoders and encoder-decoders against Hugging Face transformers and torch in fp32.
//!
//! The cases lie in the directory that `ARENITE_FIXTURES` names.

mod common;

use arenite::KvType;
use common::fixture::{Case, numbers, relative_error};
use common::run::{Run, argmax};
use serde_json::Value;

/// f32 weights, f32 cache: nothing is rounded but the sums.
const TOLERANCE: f64 = 2e-5;

fn run(file: &[u8]) -> Run<'_> {
    Run::new(file, |options| (options.kv, options.context, options.batch) = (KvType::F32, 100, 11))
}

fn prompts(case: &Case) -> &[Value] {
    case.json()["prompts"].as_array().unwrap()
}

/// Every position of the decoder, the encoder's states, and greedy decoding in which `banned` is never chosen.
fn check(case: &Case, file: &[u8], start: u32, banned: Option<u32>) {
    let (mut worst, mut worst_states) = (0.0f64, 0.0f64);
    for (i, prompt) in prompts(case).iter().enumerate() {
        let what = format!("{} prompt {i}", case.name);
        let (ids, decoder) = (numbers(&prompt["ids"]), numbers(&prompt["decoder_ids"]));
        let mut run = run(file);
        let mut session = run.session();
        session.encode(&ids).unwrap();
        let states = relative_error(session.states(), &case.array(&prompt["encoder_output"]));
        assert!(states <= TOLERANCE, "{what}: {states:e} in the encoder's states");
        worst_states = worst_states.max(states);
        let want = case.array(&prompt["logits"]);
        let mut rows = want.chunks(want.len() / decoder.len());
        session
            .prefill_all(&decoder, |position, got| {
                let want = rows.next().unwrap();
                let error = relative_error(got, want);
                assert!(error <= TOLERANCE, "{what}, position {position}: {error:e}");
                assert_eq!(argmax(got), argmax(want), "{what}, position {position}");
                worst = worst.max(error);
            })
            .unwrap();
        assert!(rows.next().is_none());

        // The same text again, one token at a time.
        session.encode(&ids).unwrap();
        session.prefill(&[start]).unwrap();
        let greedy = numbers(&prompt["greedy"]);
        let mut got = vec![];
        while got.len() < greedy.len() {
            if let Some(banned) = banned {
                session.logits_mut()[banned as usize] = f32::NEG_INFINITY;
            }
            got.push(argmax(session.logits()));
            session.decode(*got.last().unwrap()).unwrap();
        }
        assert_eq!(got, greedy, "{what}");
    }
    println!("{}: {worst:.1e}, states {worst_states:.1e}", case.name);
}

#[test]
fn t5() {
    for name in ["t5_relu", "t5_gated"] {
        let Some(case) = Case::find(name, "model.gguf") else { continue };
        check(&case, &case.file("model.gguf"), 0, None);
    }
}

#[test]
fn bert() {
    let Some(case) = Case::find("bert", "model.gguf") else { return };
    let file = case.file("model.gguf");
    let (mut worst, mut worst_pooled) = (0.0f64, 0.0f64);
    for prompt in prompts(&case) {
        let mut run = run(&file);
        let mut session = run.session();
        session.encode(&numbers(&prompt["ids"])).unwrap();
        worst = worst.max(relative_error(session.states(), &case.array(&prompt["token_embeddings"])));
        let want = case.array(&prompt["pooled"]);
        let mut got = vec![0.0; want.len()];
        session.pooled(&mut got).unwrap();
        assert_eq!(prompt["pooling"], "mean");
        worst_pooled = worst_pooled.max(relative_error(&got, &want));
    }
    println!("bert: states {worst:.1e}, pooled {worst_pooled:.1e}");
    assert!(worst <= TOLERANCE && worst_pooled <= TOLERANCE, "{worst:e} {worst_pooled:e}");
}
