//! Drafts: the layers that predict further tokens compute what transformers computes, and what they propose is verified
//! without a trace.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::fixtures::{committed, needed, read};
use crate::common::run::argmax;
use crate::common::unwritten::unwritten;
use arenite::{Context, Engine, Gguf, Kernels, KvType, Line, Model, Options, Plan, TokenId, Work};

/// The cases with a model and a reference for each step.
fn cases() -> Vec<PathBuf> {
    let Some(root) = needed("drafts") else { return Vec::new() };
    let entries = std::fs::read_dir(root.join("drafts")).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = entries.filter(|path| path.join("ref.json").exists()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

/// A case: the files, and the prompts with their references.
struct Case {
    model: Vec<u8>,
    drafter: Option<Vec<u8>>,
    prompts: Vec<Value>,
    values: Vec<u8>,
}

impl Case {
    fn open(dir: &Path) -> Self {
        let json = |dir: &Path| serde_json::from_slice::<Value>(&read(&dir.join("ref.json"))).unwrap();
        let file = |name: &str| Some(dir.join(name)).filter(|path| path.exists()).map(|path| read(&path));
        let whole = PathBuf::from(dir.to_str().unwrap().replace("_split", ""));
        Self {
            model: file("model.gguf").or_else(|| file("trunk.gguf")).unwrap(),
            drafter: file("assistant.gguf").or_else(|| file("mtp-head.gguf")),
            prompts: json(&whole)["prompts"].as_array().unwrap().clone(),
            values: read(&whole.join("hf.bin")),
        }
    }

    /// The rows of an array.
    fn rows(&self, array: &Value) -> Option<Vec<Vec<f32>>> {
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let start = number(array.get("offset")?);
        let (rows, width) = (number(&array["shape"][0]), number(&array["shape"][1]));
        let values = self.values[start..start + 4 * rows * width].as_chunks().0;
        let values: Vec<f32> = values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Some(values.chunks(width).map(<[f32]>::to_vec).collect())
    }
}

fn ids(value: &Value) -> Vec<TokenId> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as TokenId).collect()
}

/// Runs `each` with an engine for a case that drafts at most `drafts` tokens.
fn with_engine(case: &Case, kernels: &'static Kernels, options: Options, each: impl FnOnce(&mut Engine<'_, '_>)) {
    let drafter = case.drafter.as_deref().map(|file| Gguf::parse(file).unwrap());
    let gguf = Gguf::parse(&case.model).unwrap();
    let gguf = match &drafter {
        Some(drafter) => gguf.with_drafter(drafter),
        None => gguf,
    };
    let model = Model::new(&gguf).unwrap();
    let options = options.context(128).kv(KvType::F32).own_drafts(true);
    let plan = Plan::new(&gguf, options).unwrap();
    // NaN, so that reads of unwritten memory change the result.
    let lines = |bytes: usize| {
        let mut lines = vec![Line::ZERO; bytes.div_ceil(64)];
        Line::bytes_mut(&mut lines).fill(0xff);
        lines
    };
    let (mut workspace, mut kv) = (lines(plan.workspace), lines(plan.kv));
    let workspace = unwritten(Line::bytes_mut(&mut workspace));
    each(&mut Engine::new(&model, plan, workspace, Line::bytes_mut(&mut kv)).unwrap().with_kernels(kernels));
}

fn same(got: &[f32], want: &[f32], what: &str) {
    let most = want.iter().fold(1.0f32, |most, x| most.max(x.abs()));
    let off = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max);
    assert!(got.len() == want.len() && off <= 1e-5 * most, "{what}: off by {off:e} of {most}");
}

fn kernels() -> [&'static Kernels; 2] {
    [Kernels::detect(), Kernels::by_name("scalar").unwrap()]
}

#[test]
fn guesses_are_those_of_transformers() {
    for (dir, kernels) in cases().iter().flat_map(|dir| kernels().map(|kernels| (dir, kernels))) {
        let case = Case::open(dir);
        for prompt in &case.prompts {
            let (tokens, name) = (ids(&prompt["ids"]), format!("{} {}", dir.display(), prompt["text"]));
            if let Some(want) = case.rows(&prompt["mtp_logits"]) {
                // Read the prompt in different ways; guess after each of its tokens.
                for batch in [1, 3, 64] {
                    with_engine(&case, kernels, Options::new().drafts(1).batch(batch), |engine| {
                        for (i, want) in want.iter().enumerate() {
                            let mut context = engine.open().unwrap();
                            for part in tokens[..i].chunks(if batch == 3 { 2 } else { 99 }) {
                                engine.run(&mut [Work::prefill(&mut context, part)]).unwrap();
                            }
                            engine.draft(&mut [Work::decode(&mut context, tokens[i])]).unwrap();
                            same(engine.logits(&context), want, &format!("{name}, {i}"));
                            engine.close(context);
                        }
                    });
                }
            }
            if let Some(want) = case.rows(&prompt["draft_logits"]) {
                with_engine(&case, kernels, Options::new().drafts(3), |engine| {
                    let mut context = engine.open().unwrap();
                    engine.run(&mut [Work::prefill(&mut context, &tokens)]).unwrap();
                    let mut token = argmax(engine.logits(&context));
                    for (i, want) in want.iter().enumerate() {
                        engine.draft(&mut [Work::decode(&mut context, token)]).unwrap();
                        same(engine.logits(&context), want, &format!("{name}, {i}"));
                        token = argmax(engine.logits(&context));
                        assert_eq!(token, ids(&prompt["draft_after_prompt"])[i]);
                    }
                });
            }
        }
    }
}

/// Continues a text greedily with drafts of at most `most` tokens. Returns the answer, and each round's draft and
/// number of accepted tokens.
fn drafted(
    engine: &mut Engine<'_, '_>,
    context: &mut Context,
    prompt: &[TokenId],
    count: usize,
    most: usize,
) -> (Vec<TokenId>, Vec<(Vec<TokenId>, usize)>) {
    engine.run(&mut [Work::prefill(context, prompt)]).unwrap();
    let mut answer = vec![argmax(engine.logits(context))];
    let mut rounds = vec![];
    while answer.len() < count {
        let position = context.position();
        let mut tokens = vec![*answer.last().unwrap()];
        for _ in 0..most.min(count - answer.len() - 1) {
            engine.draft(&mut [Work::decode(context, *tokens.last().unwrap())]).unwrap();
            tokens.push(argmax(engine.logits(context)));
        }
        engine.run(&mut [Work::prefill(context, &tokens).all_logits().tentative()]).unwrap();
        let mut right = 0;
        loop {
            let token = argmax(engine.logits_at(context, position + right));
            answer.push(token);
            if tokens.get(right + 1) != Some(&token) {
                break;
            }
            right += 1;
        }
        engine.rewind(context, position + 1 + right).unwrap();
        rounds.push((tokens.split_off(1), right));
    }
    (answer, rounds)
}

#[test]
fn rounds_are_those_of_transformers() {
    for dir in cases() {
        let case = Case::open(&dir);
        for prompt in &case.prompts {
            with_engine(&case, Kernels::detect(), Options::new().drafts(3).logits(4), |engine| {
                let mut context = engine.open().unwrap();
                let (answer, rounds) = drafted(engine, &mut context, &ids(&prompt["ids"]), 48, 3);
                let name = format!("{} {}", dir.display(), prompt["text"]);
                assert_eq!(answer, ids(&prompt["greedy"]), "{name}");
                let want = prompt["python_rounds"].as_array().unwrap().iter();
                let want = want.map(|round| (ids(&round["draft"]), round["accepted"].as_u64().unwrap() as usize));
                let [rounds, want] = [rounds, want.collect()]
                    .map(|rounds| rounds.into_iter().filter(|(draft, _)| !draft.is_empty()).collect::<Vec<_>>());
                assert_eq!(rounds, want, "{name}");
            });
        }
    }
}

/// A random number below `n`.
fn below(seed: &mut u64, n: usize) -> usize {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*seed >> 33) as usize % n
}

/// Tentative passes, of which random ends are undone, drafts between them, forks, checkpoints and snapshots: the logits
/// have the bits of the same tokens read at once. The models have delta nets, Mamba-2, gated convolutions, or windows.
#[test]
fn tokens_are_undone_without_a_trace() {
    let files = ["mtp_qwen35.gguf", "qwen3next/model.gguf", "nemotron_h/model.gguf", "lfm2moe/model.gguf"];
    for (name, seed) in files.into_iter().flat_map(|name| [1, 2].map(|seed| (name, seed))) {
        let file = read(&committed().join(name));
        let gguf = Gguf::parse(&file).unwrap();
        let (model, mut seed) = (Model::new(&gguf).unwrap(), seed);
        let drafts = 3;
        let options = Options::new().context(96).contexts(3).drafts(drafts).logits(drafts + 1).checkpoints(1);
        let plan = Plan::new(&gguf, options.batch(8).own_drafts(model.can_draft())).unwrap();
        let lines = |bytes: usize| {
            let mut lines = vec![Line::ZERO; bytes.div_ceil(64)];
            Line::bytes_mut(&mut lines).fill(0xff);
            lines
        };
        let (mut workspace, mut kv) = (lines(plan.workspace), lines(plan.kv));
        let workspace = unwritten(Line::bytes_mut(&mut workspace));
        let mut engine = Engine::new(&model, plan, workspace, Line::bytes_mut(&mut kv)).unwrap();
        let vocab = model.spec().vocab;
        let mut text: Vec<TokenId> = (0..5).map(|_| below(&mut seed, vocab) as TokenId).collect();
        let mut context = engine.open().unwrap();
        engine.run(&mut [Work::prefill(&mut context, &text)]).unwrap();
        while text.len() < 80 {
            let mut run = vec![below(&mut seed, vocab) as TokenId];
            for _ in 0..below(&mut seed, drafts + 1) {
                if model.can_draft() {
                    engine.draft(&mut [Work::decode(&mut context, run[run.len() - 1])]).unwrap();
                    run.push(argmax(engine.logits(&context)));
                } else {
                    run.push(below(&mut seed, vocab) as TokenId);
                }
            }
            engine.run(&mut [Work::prefill(&mut context, &run).all_logits().tentative()]).unwrap();
            let kept = below(&mut seed, run.len() + 1);
            engine.rewind(&mut context, text.len() + kept).unwrap();
            text.extend(&run[..kept]);
            match below(&mut seed, 6) {
                0 => {
                    let fork = engine.fork(&context).unwrap();
                    engine.close(std::mem::replace(&mut context, fork));
                }
                1 => engine.checkpoint(&context).unwrap(),
                2 => {
                    let mut saved = vec![0; engine.snapshot_bytes(&context)];
                    engine.save(&context, &mut saved).unwrap();
                    engine.restore(&mut context, &saved).unwrap();
                }
                3 => {
                    let more: Vec<_> =
                        (0..below(&mut seed, 12) + 1).map(|_| below(&mut seed, vocab) as TokenId).collect();
                    engine.run(&mut [Work::prefill(&mut context, &more)]).unwrap();
                    text.extend(more);
                }
                _ => {}
            }
            let token = below(&mut seed, vocab) as TokenId;
            let mut after = engine.fork(&context).unwrap();
            engine.run(&mut [Work::decode(&mut after, token)]).unwrap();
            let got: Vec<u32> = engine.logits(&after).iter().map(|x| x.to_bits()).collect();
            engine.close(after);
            let mut alone = engine.open().unwrap();
            engine.run(&mut [Work::prefill(&mut alone, &[&text[..], &[token]].concat())]).unwrap();
            let want: Vec<u32> = engine.logits(&alone).iter().map(|x| x.to_bits()).collect();
            engine.close(alone);
            assert!(got == want, "{name}, {} tokens", text.len());
        }
    }
}
