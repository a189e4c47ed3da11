//! Compares encoders and encoder-decoders with Hugging Face transformers and torch in fp32.
//!
//! The cases are in `tests/fixtures`; larger ones are in the directory that `ARENITE_FIXTURES` names.

use crate::common::encoders::{ENCODERS, LAYERS, encoder, is_alone, tensors};
use crate::common::fixture::{Case, numbers, relative_error};
use crate::common::run::{Run, argmax};
use crate::common::tiny::{CONTEXT, DIM, HEADS};
use crate::common::unwritten::unwritten;
use crate::common::variants::quantized;
use crate::common::workers::Scoped;
use arenite::beam::{Beams, Search};
use arenite::{Error, Gguf, Kernels, KvType, Line, Model, Name, Options, Plan};
use serde_json::Value;

/// Tolerance for f32 weights and an f32 cache, with which only sums are rounded.
const TOLERANCE: f64 = 2e-5;

fn run(file: &[u8]) -> Run<'_> {
    Run::new(file, |options| (options.kv, options.context, options.batch) = (KvType::F32, 100, 11))
}

fn prompts(case: &Case) -> &[Value] {
    case.json()["prompts"].as_array().unwrap()
}

/// Checks every position of the decoder, the encoder's states, and greedy decoding in which `banned` is never chosen.
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
    for case in ["t5_relu", "t5_gated", "umt5"].iter().flat_map(|name| Case::all(name, "model.gguf")) {
        check(&case, &case.file("model.gguf"), 0, None);
    }
}

#[test]
fn embeddings() {
    for name in [
        "bert",
        "gemma_embedding",
        "modern_bert",
        "qwen3_embedding",
        "nomic_bert",
        "nomic_bert_moe",
        "jina_bert_v2",
        "jina_bert_v3",
        "eurobert",
        "t5encoder",
    ] {
        Case::all(name, "model.gguf").iter().for_each(embeds);
    }
}

fn embeds(case: &Case) {
    let file = case.file("model.gguf");
    let (mut worst, mut worst_pooled) = (0.0f64, 0.0f64);
    for prompt in prompts(case) {
        let mut run = run(&file);
        let mut session = run.session();
        let ids = numbers(&prompt["ids"]);
        let want = case.array(&prompt["pooled"]);
        let mut got = vec![0.0; want.len()];
        worst_pooled = worst_pooled.max(relative_error(session.embed(&ids, &mut got).unwrap(), &want));
        if prompt["pooling"] == "mean" {
            worst = worst.max(relative_error(session.states(), &case.array(&prompt["token_embeddings"])));
            assert!(relative_error(session.pooled(&mut got).unwrap(), &want) <= TOLERANCE);
        } else {
            assert_eq!((prompt["pooling"].as_str(), session.position()), (Some("last"), 0), "a decoder");
        }
    }
    println!("{}: states {worst:.1e}, pooled {worst_pooled:.1e}", case.name);
    assert!(worst <= TOLERANCE && worst_pooled <= TOLERANCE, "{}: {worst:e} {worst_pooled:e}", case.name);
}

/// Scores of pairs: cross-encoders, whose second text has tokens of type 1, and a decoder whose score is the
/// probability of "yes".
#[test]
fn rerankers() {
    for name in ["bert_reranker", "modern_bert_reranker", "qwen3_reranker"] {
        let Some(case) = Case::find(name, "model.gguf") else { continue };
        let file = case.file("model.gguf");
        let mut worst = 0.0f64;
        for prompt in prompts(&case) {
            let mut run = Run::new(&file, |options| (options.kv, options.context) = (KvType::F32, 200));
            let mut session = run.session();
            let (ids, mut buffer) = (numbers(&prompt["ids"]), vec![0.0; 64]);
            let second = prompt["second"].as_u64().map_or(ids.len(), |second| second as usize);
            let score = match *session.embed_pair(&ids, second, &mut buffer).unwrap() {
                [yes, no] => 1.0 / (1.0 + f64::from(no - yes).exp()),
                [score] => f64::from(score),
                _ => panic!("{name}: neither a score nor two classes"),
            };
            worst = worst.max((score - prompt["score"].as_f64().unwrap()).abs());
        }
        println!("{name}: {worst:.1e}");
        assert!(worst <= TOLERANCE, "{name}: {worst:e}");
    }
}

// --- tiny models ---------------------------------------------------------------------------------

const KV_TYPES: [KvType; 5] = KvType::ALL;

fn text() -> Vec<u32> {
    (0..50).map(|i| (i * i * 31 + 17 * i + 1) % 288).collect()
}

/// The bits of a text's states, and of the logits of some tokens after it if the model has a decoder.
fn bits(run: &mut Run<'_>, workers: usize, pieces: usize) -> Vec<u32> {
    let threads = Scoped(workers);
    let mut session = run.session().with_workers(&threads);
    session.encode(&[5, 6, 7]).unwrap(); // must not affect the next text
    session.encode(&text()).unwrap();
    let mut bits: Vec<u32> = session.states().iter().map(|x| x.to_bits()).collect();
    for tokens in text()[..20].chunks(pieces) {
        if let Err(error) = session.prefill_all(tokens, |_, logits| bits.extend(logits.iter().map(|x| x.to_bits()))) {
            assert_eq!(error, Error::NoPart { part: "decoder" });
        }
    }
    assert!(bits.iter().all(|bits| f32::from_bits(*bits).is_finite()));
    bits
}

#[test]
fn batches_of_any_size_and_any_number_of_workers() {
    for kind in ENCODERS {
        for file in [encoder(kind), quantized(encoder(kind), "Q8_0")] {
            let file = file.build();
            for kv in KV_TYPES {
                let run = |batch, workers, kernels| {
                    let mut run = Run::new(&file, |options| {
                        *options = Options::new().context(55).batch(batch).kv(kv).workers(workers);
                    });
                    run.kernels = kernels;
                    bits(&mut run, workers, batch)
                };
                let want = run(1, 1, Kernels::by_name("scalar").unwrap());
                for kernels in Kernels::available() {
                    for (batch, workers) in [(1, 1), (7, 1), (16, 2), (50, 1), (55, 3)] {
                        assert!(
                            run(batch, workers, kernels) == want,
                            "{kind} {kv:?} {batch} {workers} {}",
                            kernels.name
                        );
                    }
                }
            }
        }
    }
}

/// The cache has the expected size, and the planned memory suffices; one byte less is an error.
#[test]
fn the_plan_counts_the_text() {
    for kind in ENCODERS {
        let file = encoder(kind).build();
        let gguf = Gguf::parse(&file).unwrap();
        let model = Model::new(&gguf).unwrap();
        for beams in [1, 3] {
            let options = Options::new().context(40).batch(8).kv(KvType::F32).beams(beams).pages(beams * 3);
            let plan = Plan::new(&gguf, options).unwrap();
            // Keys and values of the heads, in tiles of 16 positions.
            let layer = |positions: usize| positions.div_ceil(16) * 16 * 2 * DIM as usize * 4;
            let want = match kind {
                _ if is_alone(kind) => layer(40), // reused by all layers
                _ => LAYERS[1] as usize * (beams * layer(40) + layer(40)),
            };
            assert_eq!(plan.kv, want, "{kind}");
            let (mut workspace, mut kv) =
                (vec![Line::ZERO; plan.workspace / 64 + 1], vec![Line::ZERO; plan.kv / 64 + 1]);
            let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
            let short = arenite::Session::new(&model, plan, &mut workspace[..plan.workspace - 1], kv).unwrap_err();
            assert_eq!(short, Error::WorkspaceTooSmall { needed: plan.workspace, given: plan.workspace - 1 });
            let short = arenite::Session::new(&model, plan, workspace, &mut kv[..plan.kv - 1]).unwrap_err();
            assert_eq!(short, Error::KvTooSmall { needed: plan.kv, given: plan.kv - 1 });
            // The memory is filled with NaN.
            let mut run = |fill| {
                workspace.fill(fill);
                kv.fill(fill);
                let (workspace, kv) = (unwritten(&mut workspace[..plan.workspace]), &mut kv[..plan.kv]);
                let mut session = arenite::Session::new(&model, plan, workspace, kv).unwrap();
                session.encode(&text()[..40]).unwrap();
                let mut out: Vec<u32> = session.states().iter().map(|x| x.to_bits()).collect();
                if session.prefill(&text()[..9]).is_ok() {
                    out.extend(session.logits().iter().map(|x| x.to_bits()));
                }
                out
            };
            assert!(run(0) == run(0xff), "{kind}");
        }
    }
    assert_eq!(DIM % HEADS, 0);
}

#[test]
fn what_cannot_be_run_is_said() {
    let file = encoder("t5").build();
    let mut run = Run::new(&file, |options| options.context = 8);
    let mut session = run.session();
    assert_eq!(session.prefill(&[1]), Err(Error::NoSource));
    assert_eq!(session.pooled(&mut [0.0; DIM as usize]), Err(Error::NoSource));
    assert_eq!(session.encode(&[]), Err(Error::EmptyPrompt));
    assert_eq!(session.encode(&[1; 9]), Err(Error::ContextFull { context: 8, needed: 9 }));
    assert_eq!(session.encode(&[288]), Err(Error::TokenOutOfRange { token: 288, vocab: 288 }));
    assert_eq!(session.encode(&[1; 8]), Ok(()));
    assert_eq!(session.prefill(&[1; 8]), Ok(()));
    assert!(session.prefill(&[1]).is_err());
    assert_eq!(session.encode(&[2]), Ok(()));
    assert_eq!((session.position(), session.states().len()), (0, DIM as usize));
    assert!(matches!(session.pooled(&mut [0.0; 3]), Err(Error::BufferTooSmall { .. })));
    // An encoder with its own embedding.
    let file = encoder("unbiased").build();
    let mut run = Run::new(&file, |options| options.context = 8);
    let mut session = run.session();
    assert_eq!(session.encode(&[290]), Ok(()));
    assert_eq!(session.prefill(&[290]), Err(Error::TokenOutOfRange { token: 290, vocab: 288 }));
    // A model without a decoder, and one without an encoder.
    let file = encoder("bert").build();
    let mut run = Run::new(&file, |options| options.context = CONTEXT as usize + 9);
    let mut session = run.session();
    assert_eq!(session.context(), CONTEXT as usize); // limited by the learned positions
    assert_eq!(session.encode(&[1, 2]), Ok(()));
    assert_eq!(session.prefill(&[1]), Err(Error::NoPart { part: "decoder" }));
    let file = crate::common::tiny::tiny_llama().build();
    assert_eq!(Run::new(&file, |_| ()).session().encode(&[1]), Err(Error::NoPart { part: "encoder" }));
}

/// A reranker's score: two linear layers on the first state, with tanh in between.
#[test]
fn a_score_of_a_pair() {
    let (dim, mut random) = (DIM as usize, crate::common::tiny::Random(5));
    let mut numbers = |len: usize| (0..len).map(|_| random.value() * 0.3).collect::<Vec<f32>>();
    let (w, b, out, bias) = (numbers(dim * dim), numbers(dim), numbers(dim), numbers(1));
    let mut file = encoder("bert");
    file.set("bert.pooling_type", 4u32);
    file.set_f32("cls.weight", &[DIM, DIM], &w).set_f32("cls.bias", &[DIM], &b);
    file.set_f32("cls.output.weight", &[DIM, 1], &out).set_f32("cls.output.bias", &[1], &bias);
    let file = file.build();
    let mut run = run(&file);
    let mut session = run.session();
    let mut buffer = vec![0.0; dim];
    let score = session.embed(&[1, 7, 42, 5], &mut buffer).unwrap().to_vec();
    let state = &session.states()[..dim];
    let dot = |w: &[f32], x: &[f64]| w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>();
    let state: Vec<f64> = state.iter().map(|x| f64::from(*x)).collect();
    let hidden: Vec<f64> = w.chunks(dim).zip(&b).map(|(w, b)| (dot(w, &state) + f64::from(*b)).tanh()).collect();
    let want = dot(&out, &hidden) + f64::from(bias[0]);
    assert_eq!(score.len(), 1);
    assert!((f64::from(score[0]) - want).abs() < 1e-5, "{} {want}", score[0]);
}

/// A T5 with fewer than four buckets of distances is refused. Half of the encoder's buckets are for later positions,
/// and half of each half are for single distances.
#[test]
fn t5_with_too_few_buckets() {
    for buckets in [1u32, 2, 3] {
        let mut file = encoder("t5");
        file.set("t5.attention.relative_buckets_count", buckets);
        let key = Name::new(b"t5.attention.relative_buckets_count");
        let error = Model::new(&Gguf::parse(&file.build()).unwrap()).unwrap_err();
        assert_eq!(error, Error::KeyValue { key, why: "is less than 4" });
    }
}

/// A missing tensor, a tensor repeated under another stack's name, and a missing or wrong key are clear errors.
#[test]
fn files_with_missing_parts() {
    let refused = |file: &crate::common::gguf::Builder| Model::new(&Gguf::parse(&file.build()).unwrap()).unwrap_err();
    for kind in ENCODERS {
        for (name, _) in tensors(kind) {
            let mut file = encoder(kind);
            file.remove_tensor(&name);
            let error = Model::new(&Gguf::parse(&file.build()).unwrap()).err();
            let missing = Some(Error::MissingTensor { tensor: Name::new(name.as_bytes()) });
            match name.as_str() {
                "output.bias" => assert_eq!(error, None),
                // Without `output` the embedding is the head; without its own embedding the encoder shares the
                // decoder's.
                "output.weight" | "enc.token_embd.weight" => assert_eq!(error, None),
                // The number of token types comes from the tensor's shape; the first layer decides whether there is a
                // gate.
                "token_types.weight" => assert_eq!(error, None),
                "enc.blk.0.ffn_gate.weight" => assert!(matches!(error, Some(Error::UnexpectedTensor { .. }))),
                _ => assert_eq!(error, missing, "{kind}"),
            }
        }
        for name in [
            "enc.blk.0.attn_output.weight",
            "dec.token_embd.weight",
            "blk.7.attn_q.weight",
            "enc.blk.9.attn_q.weight",
            "enc.x",
        ] {
            let mut file = encoder(kind);
            file.set_f32(name, &[DIM, DIM], &[0.0; (DIM * DIM) as usize]);
            assert_eq!(refused(&file), Error::UnexpectedTensor { tensor: Name::new(name.as_bytes()) }, "{kind} {name}");
        }
        let architecture = if is_alone(kind) {
            kind
        } else if kind.starts_with("t5") {
            "t5"
        } else {
            "seq2seq"
        };
        let keys: Vec<String> =
            encoder(kind).keys.iter().map(|key| String::from_utf8(key.name.clone()).unwrap()).collect();
        for key in keys.iter().filter(|key| key.starts_with(architecture)) {
            let mut file = encoder(kind);
            file.remove(key);
            let found = Model::new(&Gguf::parse(&file.build()).unwrap()).err();
            let optional = ["attention.causal", "sliding_window_pattern"].iter().any(|end| key.ends_with(end));
            match (optional, key.ends_with("decoder_block_count")) {
                (true, _) => assert_eq!(found, None),
                _ if key.contains(".dense_") => assert!(matches!(found, Some(Error::KeyValue { .. })), "{key}"),
                (_, true) => assert!(matches!(found, Some(Error::UnexpectedTensor { .. })), "{key}"), // defaults to the encoder's
                _ => assert_eq!(found, Some(Error::MissingKey { key: Name::new(key.as_bytes()) }), "{kind}"),
            }
            let mut file = encoder(kind);
            file.set(key, "nonsense");
            let found = refused(&file);
            assert!(matches!(found, Error::KeyType { .. } | Error::KeyValue { .. }), "{kind} {key}: {found}");
        }
        let mut file = encoder(kind);
        file.set(&format!("{architecture}.something"), 1u32);
        assert!(matches!(refused(&file), Error::UnexpectedKey { .. }));
    }
}

/// Beam search by definition: every hypothesis is run again from its start at every step.
fn plain_beams(run: &mut Run<'_>, search: &Search) -> Vec<(Vec<u32>, f64)> {
    let mut session = run.session();
    let norm = |score: f64, len: usize| score / (len as f64).powf(f64::from(search.length_penalty));
    let (mut live, mut found) = (vec![(vec![], 0.0)], vec![]);
    let by_score = |list: &mut Vec<(Vec<u32>, f64)>, n| {
        list.sort_by(|a, b| b.1.total_cmp(&a.1));
        list.truncate(n);
    };
    for step in 1..=search.length {
        let mut next = vec![];
        for (tokens, score) in &live {
            session.encode(&text()).unwrap();
            session.prefill(&[&[search.start][..], tokens].concat()).unwrap();
            let logits: Vec<f64> = session.logits().iter().map(|x| f64::from(*x)).collect();
            let total = logits.iter().map(|x| x.exp()).sum::<f64>().ln();
            for (id, logit) in (0..).zip(&logits).filter(|(id, _)| Some(*id) != search.banned) {
                next.push(([&tokens[..], &[id]].concat(), score + logit - total));
            }
        }
        by_score(&mut next, 2 * search.beams);
        let mut ranks = 0..;
        live = vec![];
        for (mut tokens, score) in next {
            let rank = ranks.next().unwrap();
            if tokens.last().copied() == search.end {
                tokens.pop();
                if rank < search.beams {
                    found.push((tokens, norm(score, step)));
                }
            } else if live.len() < search.beams {
                live.push((tokens, score));
            }
        }
        by_score(&mut found, search.beams);
        let best = norm(live[0].1, step);
        if search.beams == 1 && !found.is_empty() || found.len() == search.beams && found.last().unwrap().1 >= best {
            return found;
        }
    }
    found.extend(live.into_iter().map(|(tokens, score)| (tokens, norm(score, search.length))));
    by_score(&mut found, search.beams);
    found
}

#[test]
fn beams_are_what_their_definition_gives() {
    for kind in ["t5", "t5_gated", "unbiased", "post"] {
        let file = encoder(kind).build();
        for (beams, length, length_penalty) in [(1, 12, 1.0), (2, 20, 0.0), (4, 20, 1.0), (5, 7, 0.6)] {
            let mut run = Run::new(&file, |options| {
                *options = Options::new().context(50).batch(9).kv(KvType::F32).beams(beams + 1);
            });
            for end in [None, Some(17), Some(42), Some(73)] {
                let search = Search { beams, length, length_penalty, start: 1, end, banned: Some(3) };
                let want = plain_beams(&mut run, &search);
                let mut memory = vec![Line::ZERO; Beams::bytes(&run.plan).div_ceil(64)];
                let mut session = run.session();
                session.encode(&text()).unwrap();
                let (engine, context) = session.parts();
                let mut found =
                    Beams::search(engine, context, &search, unwritten(Line::bytes_mut(&mut memory))).unwrap();
                assert_eq!(found.count(), want.len(), "{kind} {search:?}");
                for (rank, (tokens, score)) in want.iter().enumerate() {
                    let got = found.hypothesis(rank).unwrap();
                    assert_eq!(got.tokens, tokens, "{kind} {search:?} {rank}");
                    assert!((f64::from(got.score) - score).abs() < 1e-4, "{kind} {search:?} {rank}: {got:?} {score}");
                }
                assert_eq!(found.hypothesis(want.len()), None);
                // The session still works after the search.
                session.prefill(&[1]).unwrap();
            }
            let (mut memory, mut session) = (vec![Line::ZERO; 4], run.session());
            session.encode(&[1]).unwrap();
            let search = Search { beams: beams + 2, length, length_penalty, start: 1, end: None, banned: None };
            let (engine, context) = session.parts();
            let error = Beams::search(engine, context, &search, Line::bytes_mut(&mut memory)).unwrap_err();
            assert_eq!(error, Error::TooManyBeams { planned: beams + 1, given: beams + 2 });
            let error =
                Beams::search(engine, context, &Search { beams, ..search }, Line::bytes_mut(&mut memory)).unwrap_err();
            assert!(matches!(error, Error::BufferTooSmall { .. }));
        }
    }
}

/// A search without finite logits is an error, and keeps no pages.
#[test]
fn a_search_without_numbers_is_an_error() {
    let mut file = encoder("t5");
    let norm = file.tensors.iter_mut().find(|tensor| tensor.name == b"dec.output_norm.weight").unwrap();
    norm.data[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let file = file.build();
    for beams in [1, 4] {
        let mut run = Run::new(&file, |options| *options = Options::new().context(50).batch(9).beams(beams));
        let mut memory = vec![Line::ZERO; Beams::bytes(&run.plan).div_ceil(64)];
        let mut session = run.session();
        session.encode(&text()).unwrap();
        let (engine, context) = session.parts();
        let free = engine.free_pages();
        let search = Search { beams, length: 12, length_penalty: 1.0, start: 1, end: Some(2), banned: None };
        let error = Beams::search(engine, context, &search, Line::bytes_mut(&mut memory)).unwrap_err();
        assert_eq!(error, Error::NoTokenAllowed);
        assert_eq!(engine.free_pages(), free);
    }
}
