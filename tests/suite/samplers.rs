//! The sampling steps against llama.cpp's: `about` in `tests/fixtures/samplers/ref.json` explains the cases. The larger set
//! has more cases of the same kinds.

use std::collections::BTreeMap;

use arenite::TokenId;
use arenite::sampler::{Breaker, Breakers, Mirostat, More, Params, Sampler};
use rand_core::{Infallible, TryRng};
use serde_json::Value;

use crate::common::fixtures::{committed, external, read};
use crate::common::unwritten::unwritten;

/// All steps disabled.
const PLAIN: Params = Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Params::DEFAULT };

/// A generator that always returns this number, from 0 to 1.
struct Fixed(f64);

impl TryRng for Fixed {
    type Error = Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        panic!("numbers of 64 bits are taken")
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok((self.0 * (1u64 << 53) as f64) as u64 * (1 << 11))
    }
    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Infallible> {
        panic!("numbers of 64 bits are taken")
    }
}

/// A set of cases.
struct Set {
    json: Value,
    logits: Vec<f32>,
}

impl Set {
    fn all() -> Vec<Self> {
        let more = external().into_iter().flat_map(|root| std::fs::read_dir(root).unwrap()).map(|dir| dir.unwrap());
        let more = more.filter(|dir| dir.file_name().to_string_lossy().starts_with("samplers_")).map(|dir| dir.path());
        let load = |dir: std::path::PathBuf| Self {
            json: serde_json::from_slice(&read(&dir.join("ref.json"))).unwrap(),
            logits: read(&dir.join("logits.bin"))
                .as_chunks()
                .0
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect(),
        };
        more.chain([committed().join("samplers")]).map(load).collect()
    }

    fn row(&self, case: &Value) -> Vec<f32> {
        let vocab = self.json["n_vocab"].as_u64().unwrap() as usize;
        let start = vocab * case["logits_row"].as_u64().unwrap() as usize;
        self.logits[start..start + vocab].to_vec()
    }
}

/// Calls `check` with every case of a sampler.
fn each(sampler: &str, mut check: impl FnMut(&Set, &Value)) {
    let mut count = 0;
    for set in Set::all() {
        for case in set.json["cases"].as_array().unwrap().iter().filter(|case| case["sampler"] == sampler) {
            check(&set, case);
            count += 1;
        }
    }
    assert!(count > 0, "{sampler}");
}

fn number(value: &Value) -> f32 {
    value.as_f64().unwrap_or_else(|| panic!("{value}")) as f32
}

fn ids(list: &Value) -> Vec<TokenId> {
    list.as_array().map_or(vec![], |list| list.iter().map(|id| id.as_u64().unwrap() as TokenId).collect())
}

/// The probabilities of a case by token.
fn wanted(case: &Value) -> BTreeMap<TokenId, f64> {
    let probs = case["probs"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap());
    match case["ids"].as_array() {
        Some(_) => ids(&case["ids"]).into_iter().zip(probs).collect(),
        None => (0..).zip(probs).collect(),
    }
}

/// A sampler after the case's history, and its candidates.
struct Run<'s> {
    sampler: Sampler<'s>,
    logits: Vec<f32>,
}

impl Run<'_> {
    fn candidates(&mut self, random: f64) -> BTreeMap<TokenId, f64> {
        let mut found = BTreeMap::new();
        let mut logits = self.logits.clone();
        self.sampler.candidates(&mut logits, &mut Fixed(random), |id, _, prob| _ = found.insert(id, prob)).unwrap();
        found
    }
}

/// Runs `check` with a sampler in exactly the required memory.
fn with<T>(params: Params, case: &Value, logits: Vec<f32>, check: impl FnOnce(Run<'_>) -> T) -> T {
    let (mut heads, mut tails) = (Vec::new(), Vec::new());
    for (head, lists) in case["breakers"].as_object().into_iter().flatten() {
        for tail in lists.as_array().unwrap() {
            let tail = ids(tail);
            heads.push(Breaker { head: head.parse().unwrap(), start: tails.len() as u32, len: tail.len() as u32 });
            tails.extend(tail);
        }
    }
    heads.sort();
    let mut scratch = vec![0xaa; Sampler::scratch_bytes(&params, logits.len())];
    let sampler = Sampler::new(params, &[], logits.len(), unwritten(&mut scratch)).unwrap();
    let mut sampler = sampler.with_breakers(Breakers::new(&heads, &tails).unwrap());
    ids(&case["history"]).into_iter().for_each(|id| sampler.accept(id));
    check(Run { sampler, logits })
}

fn same(got: &BTreeMap<TokenId, f64>, case: &Value, limit: f64, name: &Value) {
    let want = wanted(case);
    assert!(got.keys().eq(want.keys()), "{name}: {:?} instead of {:?}", got.keys(), want.keys());
    for (id, prob) in &want {
        assert!((got[id] - prob).abs() <= limit, "{name}: token {id} has {} instead of {prob}", got[id]);
    }
}

/// Checks what a sampler with these parameters leaves in each case.
fn leaves(sampler: &str, params: impl Fn(&dyn Fn(&str) -> f32) -> Params) {
    each(sampler, |set, case| {
        let given = |key: &str| number(&case["params"][key]);
        // XTC's draw succeeds.
        let got = with(params(&given), case, set.row(case), |mut run| run.candidates(0.0));
        same(&got, case, 1e-6, &case["name"]);
    });
}

fn more(more: More) -> Params {
    Params { more, ..PLAIN }
}

#[test]
fn penalties() {
    leaves("penalties", |given| Params {
        repeat_last_n: given("last_n") as u32,
        repeat_penalty: given("repeat"),
        frequency_penalty: given("frequency"),
        presence_penalty: given("presence"),
        ..PLAIN
    });
}

#[test]
fn dry() {
    leaves("dry", |given| {
        more(More {
            dry_multiplier: given("multiplier"),
            dry_base: given("base"),
            dry_allowed_length: given("allowed_length") as u32,
            dry_last_n: given("penalty_last_n") as u32,
            ..More::OFF
        })
    });
}

#[test]
fn min_p() {
    leaves("min_p", |given| Params {
        min_p: given("p"),
        ..more(More { min_keep: given("min_keep") as u32, ..More::OFF })
    });
}

#[test]
fn typical() {
    leaves("typical", |given| Params {
        typical_p: given("p"),
        ..more(More { min_keep: given("min_keep") as u32, ..More::OFF })
    });
}

#[test]
fn top_n_sigma() {
    leaves("top_n_sigma", |given| more(More { top_n_sigma: given("n"), ..More::OFF }));
}

#[test]
fn dynamic_temperature() {
    leaves("dynatemp", |given| Params {
        temperature: given("temp"),
        ..more(More { dynatemp_range: given("range"), dynatemp_exponent: given("exponent"), ..More::OFF })
    });
}

fn xtc_params(given: &dyn Fn(&str) -> f32) -> Params {
    more(More {
        xtc_probability: given("probability"),
        xtc_threshold: given("threshold"),
        min_keep: given("min_keep") as u32,
        ..More::OFF
    })
}

#[test]
fn xtc() {
    leaves("xtc", xtc_params);
    let mut draws = 0;
    each("xtc", |set, case| {
        let given = |key: &str| number(&case["params"][key]);
        for (fired, draw) in case["fired"].as_array().into_iter().flatten().zip(ids_of(&case["draws"])) {
            let got = with(xtc_params(&given), case, set.row(case), |mut run| run.candidates(draw));
            assert_eq!(got.len() < set.row(case).len(), fired.as_bool().unwrap(), "{}: {draw}", case["name"]);
            draws += 1;
        }
    });
    assert!(draws > 0);
}

fn ids_of(list: &Value) -> Vec<f64> {
    list.as_array().map_or(vec![], |list| list.iter().map(|number| number.as_f64().unwrap()).collect())
}

/// The number for which a draw from these probabilities, in the order of the candidates, selects a token.
fn number_for(token: TokenId, probs: &BTreeMap<TokenId, f64>, logits: &[f32]) -> f64 {
    let mut order: Vec<_> = probs.keys().copied().collect();
    order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
    let before: f64 = order.iter().take_while(|id| **id != token).map(|id| probs[id]).sum();
    before + probs[&token] / 2.0
}

#[test]
fn mirostat() {
    for (sampler, version) in [("mirostat_v1", Mirostat::V1), ("mirostat_v2", Mirostat::V2)] {
        each(sampler, |set, case| {
            let (given, name) = (|key: &str| number(&case["params"][key]), &case["name"]);
            let params =
                more(More { mirostat: version, mirostat_tau: given("tau"), mirostat_eta: given("eta"), ..More::OFF });
            for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
                with(params, case, set.row(step), |mut run| {
                    let mut state = run.sampler.state();
                    let mu = step["mu"].as_f64().unwrap() as f32;
                    assert!(number > 0 || state.mirostat_mu == mu, "{name}");
                    state.mirostat_mu = mu;
                    run.sampler.set_state(state);
                    let got = run.candidates(0.0);
                    same(&got, step, 1e-6, name);
                    let selected = step["selected"].as_u64().unwrap() as TokenId;
                    let random = number_for(selected, &got, &run.logits);
                    let token = run.sampler.sample(&mut run.logits, &mut Fixed(random)).unwrap();
                    assert_eq!(token, selected, "{name}");
                    let (got, want) = (run.sampler.state().mirostat_mu, step["mu_next"].as_f64().unwrap());
                    assert!((f64::from(got) - want).abs() < 1e-5, "{name}: {got} instead of {want}");
                });
            }
        });
    }
}

#[test]
fn adaptive_p() {
    each("adaptive_p", |set, case| {
        let (given, name) = (|key: &str| number(&case["params"][key]), &case["name"]);
        let params = more(More { adaptive_target: given("target"), adaptive_decay: given("decay"), ..More::OFF });
        for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let close = |got: f32, key: &str| {
                let want = step[key].as_f64().unwrap();
                assert!((f64::from(got) - want).abs() <= 2e-6 * want.abs().max(1.0), "{name}: {got}, {key} {want}");
            };
            with(params, case, set.row(step), |mut run| {
                let mut state = run.sampler.state();
                if number == 0 {
                    close(state.adaptive_sum, "weighted_sum");
                    close(state.adaptive_weight, "total_weight");
                }
                state.adaptive_sum = step["weighted_sum"].as_f64().unwrap() as f32;
                state.adaptive_weight = step["total_weight"].as_f64().unwrap() as f32;
                run.sampler.set_state(state);
                let got = run.candidates(0.0);
                same(&got, step, 5e-6, name);
                // The last step accepts another token than the selected one, which teaches nothing.
                let selected = step["selected"].as_u64().unwrap() as TokenId;
                if given("target") >= 0.0 && step["accepted"].as_u64() == Some(selected.into()) {
                    let random = number_for(selected, &got, &run.logits);
                    let token = run.sampler.sample(&mut run.logits, &mut Fixed(random)).unwrap();
                    assert_eq!(token, selected, "{name}");
                } else {
                    run.sampler.accept(step["accepted"].as_u64().unwrap() as TokenId);
                }
                close(run.sampler.state().adaptive_sum, "weighted_sum_next");
                close(run.sampler.state().adaptive_weight, "total_weight_next");
            });
        }
    });
}

#[test]
fn the_chain_in_its_usual_order() {
    leaves("chain", |given| Params {
        temperature: given("temp"),
        top_k: given("top_k") as u32,
        top_p: given("top_p"),
        min_p: given("min_p"),
        typical_p: given("typ_p"),
        repeat_penalty: given("penalty_repeat"),
        frequency_penalty: given("penalty_freq"),
        presence_penalty: given("penalty_present"),
        repeat_last_n: given("penalty_last_n") as u32,
        more: More {
            min_keep: given("min_keep") as u32,
            dry_multiplier: given("dry_multiplier"),
            dry_base: given("dry_base"),
            dry_allowed_length: given("dry_allowed_length") as u32,
            dry_last_n: given("dry_penalty_last_n") as u32,
            top_n_sigma: given("top_n_sigma"),
            xtc_probability: given("xtc_probability"),
            xtc_threshold: given("xtc_threshold"),
            dynatemp_range: given("dynatemp_range"),
            dynatemp_exponent: given("dynatemp_exponent"),
            ..More::OFF
        },
        ..PLAIN
    });
}
