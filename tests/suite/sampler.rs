//! The sampler chain: values worked out by hand, properties, and a comparison with a naive implementation.

use crate::common::unwritten::unwritten;
use arenite::sampler::{Breaker, Breakers, Link, More, Params, Pcg32, Sampler, Xorshift, argmax};
use arenite::{Error, TokenId};
use rand_core::{Infallible, Rng, SeedableRng, TryRng};

/// All steps disabled: a draw from the softmax.
const PLAIN: Params = Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Params::DEFAULT };

/// Samples once after `history`, with exactly the required memory. Also returns the logits.
fn sample(
    params: Params,
    bias: &[(TokenId, f32)],
    history: &[TokenId],
    logits: &[f32],
    rng: &mut impl Rng,
) -> (TokenId, Vec<f32>) {
    let bytes = Sampler::scratch_bytes(&params, logits.len());
    // Offset by one byte, so that nothing is aligned.
    let mut scratch = vec![0xaa; bytes + 2];
    let mut sampler = Sampler::new(params, bias, logits.len(), unwritten(&mut scratch[1..=bytes])).unwrap();
    for token in history {
        sampler.accept(*token);
    }
    let mut logits = logits.to_vec();
    let token = sampler.sample(&mut logits, rng);
    // Errors become ids that no vocabulary has.
    let token = match token {
        Err(Error::NoTokenAllowed) => NONE,
        Err(Error::NotNumbers) => NO_NUMBERS,
        token => token.unwrap(),
    };
    assert_eq!((scratch[0], scratch[bytes + 1]), (0xaa, 0xaa));
    (token, logits)
}

/// Stand for errors in place of a token: no token is possible, or all logits are NaN.
const NONE: TokenId = TokenId::MAX;
const NO_NUMBERS: TokenId = TokenId::MAX - 1;

/// A generator that always returns this number, from 0 to 1.
struct Fixed(f64);

impl TryRng for Fixed {
    type Error = Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        panic!("one number of 64 bits is taken")
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok((self.0 * (1u64 << 53) as f64) as u64 * (1 << 11))
    }
    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Infallible> {
        panic!("one number of 64 bits is taken")
    }
}

/// A generator that must not be used.
struct Untouched;

impl TryRng for Untouched {
    type Error = Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        panic!()
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        panic!()
    }
    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Infallible> {
        panic!()
    }
}

/// All tokens that can be drawn, found with 20000 evenly spaced numbers.
fn support(params: Params, logits: &[f32]) -> Vec<TokenId> {
    let mut seen: Vec<TokenId> =
        (0..20000).map(|i| sample(params, &[], &[], logits, &mut Fixed(i as f64 / 20000.0)).0).collect();
    seen.sort();
    seen.dedup();
    seen
}

#[test]
fn greedy_takes_the_lowest_of_equals_and_no_number() {
    let params = Params { temperature: 0.0, top_k: 1, top_p: 0.1, ..Params::DEFAULT };
    assert_eq!(Sampler::scratch_bytes(&params, 1000), 0);
    assert_eq!(sample(params, &[], &[], &[1.0, 3.0, 3.0, 2.0], &mut Untouched).0, 1);
    assert_eq!(sample(params, &[], &[], &[f32::NAN, -1.0, f32::NAN, -1.0], &mut Untouched).0, 1);
    assert_eq!(sample(params, &[], &[], &[f32::NAN, f32::NAN], &mut Untouched).0, NO_NUMBERS);
    assert_eq!(sample(params, &[], &[], &[f32::NEG_INFINITY; 2], &mut Untouched).0, NONE);
    assert_eq!(sample(params, &[], &[], &[f32::NEG_INFINITY, f32::INFINITY, f32::INFINITY], &mut Untouched).0, 1);
    assert_eq!(argmax(&[0.0, -0.0, f32::NAN]), Some(0));
    assert_eq!(argmax(&[]), None);
}

#[test]
fn bias_comes_before_everything() {
    let greedy = Params::GREEDY;
    let (token, logits) = sample(greedy, &[(2, 10.0), (0, f32::NEG_INFINITY)], &[], &[5.0, 4.0, 3.0], &mut Untouched);
    assert_eq!((token, &logits[..]), (2, &[f32::NEG_INFINITY, 4.0, 13.0][..]));
    // A banned token is never drawn, even if top-k has no better ones.
    let params = Params { top_k: 3, ..PLAIN };
    for i in 0..1000 {
        let random = &mut Fixed(i as f64 / 1000.0);
        assert_eq!(
            sample(params, &[(0, f32::NEG_INFINITY), (1, f32::NEG_INFINITY)], &[], &[9.0, 9.0, 1.0], random).0,
            2
        );
    }
}

#[test]
fn penalties_by_hand() {
    let params = Params {
        repeat_penalty: 2.0,
        frequency_penalty: 0.5,
        presence_penalty: 0.25,
        repeat_last_n: 4,
        ..Params::GREEDY
    };
    // Among the last four tokens, 1 occurs twice, 2 and 0 once. Token 9 occurs only earlier.
    let history = [9, 9, 1, 2, 1, 0];
    let logits = [0.0, 4.0, -3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    let (_, found) = sample(params, &[], &history, &logits, &mut Untouched);
    let expected = [
        0.0 * 2.0 - (0.5 + 0.25),
        4.0 / 2.0 - (2.0 * 0.5 + 0.25),
        -3.0 * 2.0 - (0.5 + 0.25),
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
    ];
    assert_eq!(found, expected);
    // Tokens outside the vocabulary are ignored, and no history needs no memory.
    sample(params, &[], &[100, u32::MAX], &logits, &mut Untouched);
    assert_eq!(Sampler::scratch_bytes(&params, 10), 4 * 8);
    assert_eq!(Sampler::scratch_bytes(&Params { repeat_last_n: 0, ..params }, 10), 0);
}

#[test]
fn reset_forgets() {
    let params = Params { presence_penalty: 1.0, ..Params::GREEDY };
    let mut scratch = vec![0; Sampler::scratch_bytes(&params, 2)];
    let mut sampler = Sampler::new(params, &[], 2, &mut scratch).unwrap();
    sampler.accept(0);
    assert_eq!(sampler.sample(&mut [1.0, 0.5], &mut Untouched), Ok(1));
    sampler.reset();
    assert_eq!(sampler.sample(&mut [1.0, 0.5], &mut Untouched), Ok(0));
}

#[test]
fn top_k_keeps_exactly_k_and_breaks_ties_by_id() {
    let logits = [1.0, 2.0, 2.0, 2.0, 0.0, 2.0];
    for k in 1..=6 {
        let best = [1, 2, 3, 5, 0, 4];
        let mut expected = best[..k].to_vec();
        expected.sort();
        assert_eq!(support(Params { top_k: k as u32, ..PLAIN }, &logits), expected, "{k}");
    }
    assert_eq!(support(Params { top_k: 100, ..PLAIN }, &logits).len(), 6);
}

#[test]
fn top_p_and_min_p_by_hand() {
    // Probabilities 1/2, 1/4, 1/8, 1/16, 1/16.
    let logits: Vec<f32> = [8.0f32, 4.0, 2.0, 1.0, 1.0].map(f32::ln).to_vec();
    let top_p = |p| support(Params { top_p: p, ..PLAIN }, &logits).len();
    assert_eq!([top_p(0.0), top_p(0.49), top_p(0.51), top_p(0.74), top_p(0.76), top_p(0.9)], [1, 1, 2, 2, 3, 4]);
    // Among the three most probable tokens, the first one has probability 4/7.
    let top_k_p = |p| support(Params { top_k: 3, top_p: p, ..PLAIN }, &logits).len();
    assert_eq!([top_k_p(0.5), top_k_p(0.58), top_k_p(0.9)], [1, 2, 3]);
    for top_k in [0, 5, 4] {
        let min_p = |p| support(Params { top_k, min_p: p, ..PLAIN }, &logits).len();
        assert_eq!([min_p(0.51), min_p(0.49), min_p(0.24), min_p(1.0), min_p(2.0)], [1, 2, 3, 1, 1], "{top_k}");
    }
}

#[test]
fn strange_parameters_and_logits_choose_something() {
    let values = [0.0, -1.0, 1.0, 1e-30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let logits = [[1.0, f32::NAN, 2.0], [f32::INFINITY, f32::INFINITY, 0.0], [f32::NEG_INFINITY; 3], [f32::NAN; 3]];
    let mut rng = Pcg32::new(3);
    for &temperature in &values {
        for &top_p in &values {
            for &min_p in &values {
                for &penalty in &values {
                    for top_k in [0, 2, u32::MAX] {
                        for logits in &logits {
                            let params =
                                Params { temperature, top_k, top_p, min_p, repeat_penalty: penalty, ..Params::DEFAULT };
                            let (token, _) = sample(params, &[(1, penalty)], &[0, 1], logits, &mut rng);
                            assert!(!(3..NO_NUMBERS).contains(&token));
                        }
                    }
                }
            }
        }
    }
    // If all tokens are impossible, none is chosen.
    for params in [PLAIN, Params::DEFAULT, Params { top_k: 0, ..Params::DEFAULT }] {
        assert_eq!(sample(params, &[], &[], &[f32::NEG_INFINITY, f32::NAN], &mut rng).0, NO_NUMBERS);
    }
}

/// Sequences that the sampler would not find, or would cut, are refused.
#[test]
fn breakers_are_sorted_and_whole() {
    let breaker = |head, start, len| Breaker { head, start, len };
    let is_taken = |heads: &[Breaker]| Breakers::new(heads, &[1, 2, 3]).is_some();
    assert!(is_taken(&[]) && is_taken(&[breaker(4, 0, 3), breaker(4, 3, 0), breaker(5, 1, 1)]));
    assert!(!is_taken(&[breaker(5, 0, 1), breaker(4, 0, 1)]));
    assert!(!is_taken(&[breaker(4, 2, 2)]) && !is_taken(&[breaker(4, u32::MAX, u32::MAX)]));
}

#[test]
fn errors() {
    let params = Params::DEFAULT;
    let needed = Sampler::scratch_bytes(&params, 100);
    assert_eq!(needed, 40 * 8);
    let mut scratch = vec![0; needed];
    let error = Sampler::new(params, &[], 100, &mut scratch[1..]).err();
    assert!(
        matches!(error, Some(Error::BufferTooSmall { needed: n, given, .. }) if n == needed && given == needed - 1)
    );
    let error = Sampler::new(params, &[(100, 0.0)], 100, &mut scratch).err();
    assert_eq!(error, Some(Error::TokenOutOfRange { token: 100, vocab: 100 }));
    let mut sampler = Sampler::new(params, &[], 100, &mut scratch).unwrap();
    let error = sampler.sample(&mut [0.0; 99], &mut Pcg32::new(0));
    assert_eq!(error, Err(Error::LogitsLength { vocab: 100, given: 99 }));
    assert!(Sampler::new(params, &[], 0, &mut []).unwrap().sample(&mut [], &mut Pcg32::new(0)).is_err());
}

/// A naive implementation of the chain, which sorts everything. Returns the candidates and their probabilities.
fn naive(params: &Params, history: &[TokenId], logits: &[f32]) -> Vec<(TokenId, f64)> {
    let recent = &history[history.len().saturating_sub(params.repeat_last_n as usize)..];
    let mut all: Vec<(TokenId, f64)> = (0..).zip(logits.iter().map(|l| f64::from(*l))).collect();
    for (token, logit) in &mut all {
        let count = recent.iter().filter(|t| *t == token).count() as f64;
        if count > 0.0 {
            let penalty = f64::from(params.repeat_penalty);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            *logit -= count * f64::from(params.frequency_penalty) + f64::from(params.presence_penalty);
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let share = |all: &[(TokenId, f64)], temperature: f64| -> Vec<f64> {
        let weights: Vec<f64> = all.iter().map(|(_, l)| ((l - all[0].1) / temperature).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|w| w / sum).collect()
    };
    let mut temperature = 1.0;
    let more = &params.more;
    let least = (more.min_keep as usize).max(1);
    for link in params.order.into_iter().flatten() {
        let shares = share(&all, temperature);
        match link {
            Link::Temperature if more.dynatemp_range > 0.0 && all.len() > 1 => {
                let entropy: f64 = -shares.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum::<f64>();
                let normal = (entropy / (all.len() as f64).ln()).powf(more.dynatemp_exponent.into());
                let (middle, range) = (f64::from(params.temperature), f64::from(more.dynatemp_range));
                let lowest = (middle - range).max(0.0);
                temperature = lowest + (middle + range - lowest) * normal;
                if temperature <= 0.0 {
                    all.truncate(1);
                    temperature = 1.0;
                }
            }
            Link::Temperature if more.dynatemp_range > 0.0 => temperature = 1.0,
            Link::Temperature => temperature = f64::from(params.temperature),
            Link::Dry if more.dry_multiplier > 0.0 => {
                for (token, logit) in &mut all {
                    if let Some(longest) = longest_repetition(history, *token, more) {
                        let penalty = f64::from(more.dry_base).powi(longest as i32 - more.dry_allowed_length as i32);
                        *logit -= f64::from(more.dry_multiplier) * penalty * temperature;
                    }
                }
                all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            }
            Link::TopNSigma if more.top_n_sigma > 0.0 => {
                let logits: Vec<f64> = all.iter().map(|(_, l)| *l).filter(|l| *l > f64::NEG_INFINITY).collect();
                let mean = logits.iter().sum::<f64>() / logits.len() as f64;
                let variance = logits.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / logits.len() as f64;
                let limit = logits[0] - f64::from(more.top_n_sigma) * variance.sqrt();
                all.iter_mut().filter(|(_, l)| *l < limit).for_each(|(_, l)| *l = f64::NEG_INFINITY);
                all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            }
            Link::Xtc if more.xtc_probability > 0.0 => {
                let top = shares.iter().take_while(|p| **p >= f64::from(more.xtc_threshold)).count();
                let removed = top.saturating_sub(1);
                if all.len() - removed >= least {
                    all.drain(..removed);
                }
            }
            Link::TopK if params.top_k > 0 => all.truncate(params.top_k as usize),
            Link::TopP if params.top_p < 1.0 => {
                let mut sum = 0.0;
                let kept = shares.iter().take_while(|p| (sum += **p, sum - **p < f64::from(params.top_p)).1).count();
                all.truncate(kept.max(least));
            }
            Link::MinP if params.min_p > 0.0 => {
                let lowest = shares[0] * f64::from(params.min_p);
                let kept = shares.iter().take_while(|p| **p >= lowest).count();
                all.truncate(kept.max(least));
            }
            Link::Typical if params.typical_p < 1.0 => {
                // Like llama.cpp: all tokens sorted by their distance from the entropy.
                let entropy: f64 = shares.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
                let mut order: Vec<usize> = (0..all.len()).collect();
                order.sort_by(|a, b| {
                    let distance = |i: usize| (-shares[i].ln() - entropy).abs();
                    distance(*a).total_cmp(&distance(*b))
                });
                let (mut sum, mut count) = (0.0, 0);
                let mut kept: Vec<usize> = Vec::new();
                for i in order {
                    if count < least || sum <= f64::from(params.typical_p) {
                        kept.push(i);
                    }
                    (sum, count) = (sum + shares[i], count + 1);
                }
                kept.sort();
                all = kept.into_iter().map(|i| all[i]).collect();
            }
            _ => {}
        }
    }
    let shares = share(&all, temperature);
    all.iter().zip(shares).map(|((token, _), p)| (*token, p)).collect()
}

/// The length of the longest suffix of the history that `token` followed earlier, if it is long enough.
fn longest_repetition(history: &[TokenId], token: TokenId, more: &More) -> Option<usize> {
    let recent = &history[history.len().saturating_sub(more.dry_last_n as usize)..];
    let ends = (0..recent.len()).filter(|at| recent[*at] == token).map(|at| &recent[..at]);
    let matched = |before: &[TokenId]| before.iter().rev().zip(recent.iter().rev()).take_while(|(a, b)| a == b).count();
    let long = |len: &usize| *len >= more.dry_allowed_length as usize;
    Some(ends.map(matched).max()?).filter(long).filter(|_| recent.len() > more.dry_allowed_length as usize)
}

#[test]
fn agrees_with_the_naive_chain() {
    let mut rng = Pcg32::new(11);
    let mut uniform = move || f64::from(rng.next_u32()) / 2f64.powi(32);
    for round in 0..600usize {
        let vocab = 2 + (uniform() * 60.0) as usize;
        let logits: Vec<f32> = (0..vocab).map(|_| (uniform() * 12.0 - 6.0) as f32).collect();
        let history: Vec<TokenId> = (0..20).map(|_| (uniform() * vocab as f64) as TokenId).collect();
        let params = Params {
            temperature: 0.2 + uniform() as f32 * 2.0,
            top_k: if round.is_multiple_of(3) { 0 } else { 1 + (uniform() * 40.0) as u32 },
            top_p: if round % 5 == 0 { 1.0 } else { 0.3 + uniform() as f32 * 0.7 },
            min_p: if round % 4 == 0 { 0.0 } else { uniform() as f32 * 0.2 },
            repeat_penalty: if round % 2 == 0 { 1.0 } else { 1.3 },
            frequency_penalty: if round % 7 == 0 { 0.1 } else { 0.0 },
            presence_penalty: 0.0,
            repeat_last_n: (uniform() * 30.0) as u32,
            // Top-n-sigma before typical has its own order, as in llama.cpp: see `samplers`.
            typical_p: if round % 3 == 1 && round % 5 != 2 { 0.2 + uniform() as f32 * 0.7 } else { 1.0 },
            order: shuffled(round, &mut uniform),
            more: More {
                min_keep: if round % 6 == 5 { 4 } else { 0 },
                top_n_sigma: if round % 5 == 2 { 0.3 + uniform() as f32 } else { 0.0 },
                xtc_probability: if round % 7 == 3 { 1.0 } else { 0.0 },
                dynatemp_range: if round % 8 == 1 { 0.5 } else { 0.0 },
                dynatemp_exponent: 1.3,
                dry_multiplier: if round % 3 == 2 { 0.6 } else { 0.0 },
                dry_base: 1.2,
                dry_allowed_length: 1,
                dry_last_n: 18,
                ..More::OFF
            },
        };
        let expected = naive(&params, &history, &logits);
        // Evenly spaced numbers draw every token in proportion to its probability.
        const DRAWS: usize = 4000;
        let mut counts = vec![0; vocab];
        for i in 0..DRAWS {
            let random = &mut Fixed((i as f64 + 0.5) / DRAWS as f64);
            counts[sample(params, &[], &history, &logits, random).0 as usize] += 1;
        }
        for (token, share) in &expected {
            let off = counts[*token as usize] as f64 - share * DRAWS as f64;
            assert!(
                off.abs() <= 1.5,
                "round {round}: token {token} came {} times, share {share}",
                counts[*token as usize]
            );
            counts[*token as usize] = 0;
        }
        assert!(counts.iter().all(|count| *count == 0), "round {round}: {params:?} let others through");
    }
}

/// Returns the usual order in half of the rounds, otherwise a random order, sometimes without one of the steps.
fn shuffled(round: usize, uniform: &mut impl FnMut() -> f64) -> [Option<Link>; Link::ALL.len()] {
    let mut order = Params::DEFAULT.order;
    if round % 2 == 1 {
        for i in (1..order.len()).rev() {
            order.swap(i, (uniform() * (i + 1) as f64) as usize);
        }
        if round.is_multiple_of(3) {
            order[(uniform() * order.len() as f64) as usize] = None;
        }
    }
    order
}

/// Samples once among the tokens that are not `forbidden`. Also returns the number of checks.
fn sample_where(
    params: Params,
    forbidden: &[TokenId],
    logits: &[f32],
    rng: &mut impl Rng,
) -> (Result<TokenId, Error>, usize) {
    let mut scratch = vec![0; Sampler::scratch_bytes(&params, logits.len())];
    let mut sampler = Sampler::new(params, &[], logits.len(), &mut scratch).unwrap();
    let mut asked = 0;
    let allowed = |token: TokenId| {
        asked += 1;
        !forbidden.contains(&token)
    };
    (sampler.sample_where(&mut logits.to_vec(), rng, allowed), asked)
}

#[test]
fn only_what_is_allowed_counts() {
    // Weights 8, 4, 2, 1, 1 of 16. Without the first token: 4, 2, 1, 1 of 8. Without the first two: 2, 1, 1 of 4.
    let logits: Vec<f32> = [8.0f32, 4.0, 2.0, 1.0, 1.0].map(f32::ln).to_vec();
    let counts = |params, forbidden: &[TokenId]| {
        let mut counts = [0; 5];
        for i in 0..8 {
            let token = sample_where(params, forbidden, &logits, &mut Fixed((f64::from(i) + 0.5) / 8.0)).0.unwrap();
            counts[token as usize] += 1;
        }
        counts
    };
    assert_eq!(counts(PLAIN, &[0]), [0, 4, 2, 1, 1]);
    assert_eq!(counts(PLAIN, &[0, 1]), [0, 0, 4, 2, 2]);
    // The two best allowed tokens have the weights 4 and 2 of 6, so 5 of 8 evenly spaced numbers draw the better one.
    assert_eq!(counts(Params { top_k: 2, ..PLAIN }, &[0]), [0, 5, 3, 0, 0]);
    // Fewer than k tokens are allowed: one of them is drawn.
    assert_eq!(counts(Params { top_k: 3, ..PLAIN }, &[0, 1, 2]), [0, 0, 0, 4, 4]);
    // Without token 0, token 1 has probability 1/2 and token 2 has 1/4, half as much.
    assert_eq!(counts(Params { top_p: 0.49, ..PLAIN }, &[0]), [0, 8, 0, 0, 0]);
    assert_eq!(counts(Params { top_p: 0.51, ..PLAIN }, &[0]), [0, 5, 3, 0, 0]);
    assert_eq!(counts(Params { min_p: 0.4, ..PLAIN }, &[0]), [0, 5, 3, 0, 0]);
    assert_eq!(counts(Params { temperature: 0.0, ..PLAIN }, &[0, 1]), [0, 0, 8, 0, 0]);
    for params in [PLAIN, Params::GREEDY, Params::default(), Params { top_p: 0.5, ..PLAIN }] {
        let all = [0, 1, 2, 3, 4];
        assert_eq!(sample_where(params, &all, &logits, &mut Fixed(0.5)).0, Err(Error::NoTokenAllowed));
        // The allowed tokens have the logits negative infinity and NaN, so none of them can be drawn.
        let impossible = [1.0, f32::NEG_INFINITY, f32::NAN, 1.0, 1.0];
        assert_eq!(sample_where(params, &[0, 3, 4], &impossible, &mut Fixed(0.5)).0, Err(Error::NoTokenAllowed));
    }
}

#[test]
fn few_are_asked_about_and_the_choice_is_remembered() {
    let logits: Vec<f32> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_769) >> 8) as f32).collect();
    let (token, asked) = sample_where(Params { top_k: 40, ..PLAIN }, &[], &logits, &mut Fixed(0.0));
    assert_eq!(token, Ok(argmax(&logits).unwrap()));
    assert!(asked < 1000, "{asked}");
    let params = Params { presence_penalty: 1.0, ..Params::GREEDY };
    let mut scratch = vec![0; Sampler::scratch_bytes(&params, 3)];
    let mut sampler = Sampler::new(params, &[], 3, &mut scratch).unwrap();
    let mut next = || sampler.sample_where(&mut [9.0, 1.0, 0.5], &mut Untouched, |token| token > 0);
    assert_eq!([next(), next(), next()], [Ok(1), Ok(2), Ok(1)]);
}

#[test]
fn typical_by_hand() {
    // Probabilities 1/2, 1/4, 1/8, 1/16, 1/16: information content 1, 2, 3, 4, 4 bits, 1.875 expected.
    let logits: Vec<f32> = [8.0f32, 4.0, 2.0, 1.0, 1.0].map(f32::ln).to_vec();
    let typical = |p| support(Params { typical_p: p, ..PLAIN }, &logits);
    assert_eq!(typical(0.0), [1]);
    assert_eq!(typical(0.2), [1]);
    assert_eq!(typical(0.3), [0, 1]);
    assert_eq!(typical(0.8), [0, 1, 2]);
    assert_eq!(typical(0.9), [0, 1, 2, 3]);
    assert_eq!(typical(-1.0), [1]);
}

#[test]
fn the_order_counts() {
    // At temperature 2 the best token has at most 8^.5 / (8^.5 + 4^.5 + 2^.5 + 2) = 0.34.
    let logits: Vec<f32> = [8.0f32, 4.0, 2.0, 1.0, 1.0].map(f32::ln).to_vec();
    let hot = Params { temperature: 2.0, top_p: 0.45, ..PLAIN };
    assert_eq!(support(hot, &logits), [0]);
    let order = Link::order(&[Link::Temperature, Link::TopP]);
    assert_eq!(support(Params { order, ..hot }, &logits), [0, 1]);
    // A parameter whose step is missing has no effect, including temperature 0.
    let order = Link::order(&[Link::MinP]);
    assert_eq!(
        support(Params { order, top_p: 0.1, top_k: 1, temperature: 0.0, min_p: 0.2, ..PLAIN }, &logits),
        [0, 1, 2]
    );
}

#[test]
fn xorshift_draws_what_run_c_draws() {
    // llama2.c's run.c prints these numbers with `random_u32` for this seed.
    let mut rng = Xorshift::new(1234);
    assert_eq!([rng.next_u32(), rng.next_u32(), rng.next_u32()], [3159758022, 1306163061, 1764681998]);
    let mut rng = Xorshift::new(1234);
    assert_eq!(rng.next_u64() >> 40, u64::from(3159758022_u32 >> 8));
}

#[test]
fn a_seed_gives_its_tokens() {
    let logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 101) as f32 / 10.0).collect();
    let mut scratch = vec![0; Sampler::scratch_bytes(&Params::DEFAULT, 1000)];
    let mut run = |seed| -> Vec<TokenId> {
        let mut sampler = Sampler::new(Params::DEFAULT, &[], 1000, &mut scratch).unwrap();
        let mut rng = Pcg32::new(seed);
        (0..20).map(|_| sampler.sample(&mut logits.clone(), &mut rng).unwrap()).collect()
    };
    let first = run(7);
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
}

#[test]
fn seeds_and_bytes() {
    let next = |mut rng: Pcg32| [rng.next_u32(), rng.next_u32()];
    let mut seed = [0; 16];
    (seed[0], seed[8]) = (7, 9);
    assert_eq!(next(Pcg32::from_seed(seed)), next(Pcg32::with_stream(7, 9)));
    assert_eq!(next(Pcg32::seed_from_u64(7)), next(Pcg32::new(7)));
    assert_ne!(next(Pcg32::with_stream(7, 9)), next(Pcg32::new(7)));
    let (mut bytes, mut rng, mut same) = ([0; 6], Xorshift::new(5), Xorshift::new(5));
    rng.fill_bytes(&mut bytes);
    let words = [same.next_u32(), same.next_u32()].map(u32::to_le_bytes).concat();
    assert_eq!(bytes, words[..6]);
}
