//! Convolutions, and recurrent states of fixed size.

use arenite::Kernels;
use arenite::kernel::SCALAR;
use arenite::kernel::internals::{CausalConvolution, Functions, Recurrence, Scan, Update, Wkv};

use crate::edge::Edge;
use crate::{Data, Random, same, tables};

/// Compares `run` by every table and for every length of the first pass with the scalar kernels' single pass, and
/// returns the latter's outputs and states.
fn at_once_and_in_two_passes(
    tokens: usize,
    run: impl Fn(&Kernels, usize) -> Vec<f32>,
    shape: impl Fn() -> String,
) -> Vec<f32> {
    let want = run(&SCALAR, tokens);
    for kernels in tables().into_iter().chain([&SCALAR]) {
        for first in 0..=tokens {
            same(&run(kernels, first), &want, || format!("{} {} {first}", kernels.name, shape()));
        }
    }
    want
}

/// Runs the first tokens and then the others from the state `before`, which is in tiles of sixteen columns. `update` gets
/// the first token of a pass. Returns the outputs and the state.
fn two_passes<'u>(
    before: &[f32],
    tokens: usize,
    width: usize,
    update: impl Fn(usize) -> Update<'u>,
) -> impl Fn(&Kernels, usize) -> Vec<f32> {
    move |kernels, first| {
        let (mut state, mut out) = (Edge::of(before), Edge::of(&vec![0.0; tokens * width]));
        let (head, tail) = out.split_at_mut(first * width);
        kernels.recur(&update(0), &mut state, head);
        kernels.recur(&update(first), &mut state, tail);
        [&out[..], &state].concat()
    }
}

/// A convolution of all tokens at once and in two passes, by every table, compared with its definition in f64.
#[test]
fn convolutions() {
    let mut random = Random(31);
    for (channels, taps, tokens, silu) in [(1, 1, 3, false), (17, 3, 5, false), (64, 4, 9, true), (33, 8, 2, true)] {
        // The last row has no elements after its channels.
        let (stride, n) = (channels + 3, channels * (taps - 1));
        let bytes = |x: Vec<f32>| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let (weight, bias) = (random.floats(Data::Plain, channels * taps), random.floats(Data::Plain, channels));
        let (before, x) = (random.floats(Data::Plain, n), random.floats(Data::Plain, tokens * stride));
        let (weights, biases) = (Edge::of(&bytes(weight.clone())), Edge::of(&bytes(bias.clone())));
        let job = CausalConvolution { weight: &weights, bias: &biases, channels, taps, silu };
        let run = |kernels: &Kernels, first: usize| {
            let (mut x, mut state) = (Edge::of(&x), Edge::of(&before));
            let (head, tail) = x.split_at_mut(first * stride);
            kernels.convolve(&job, head, stride, &mut state);
            kernels.convolve(&job, tail, stride, &mut state);
            [&x[..], &state].concat()
        };
        let want = at_once_and_in_two_passes(tokens, run, || format!("{channels} {taps}"));
        for c in 0..channels {
            let input = |t: isize| match usize::try_from(t) {
                Ok(t) => f64::from(x[t * stride + c]),
                Err(_) => f64::from(before[(t + taps as isize - 1) as usize * channels + c]),
            };
            for t in 0..tokens {
                let at = |j: usize| input((t + j + 1) as isize - taps as isize);
                let sum: f64 = (0..taps).map(|j| f64::from(weight[c * taps + j]) * at(j)).sum();
                let sum = sum + f64::from(bias[c]);
                let exact = if silu { sum / (1.0 + (-sum).exp()) } else { sum };
                assert!((f64::from(want[t * stride + c]) - exact).abs() < 1e-5, "{channels} {taps} {t} {c}");
            }
        }
    }
}

/// A head's state with some tokens at once and in two passes, by every table, compared with its definition in f64.
#[test]
fn recurrences() {
    let mut random = Random(37);
    for (keys, width, tokens, delta) in [(1, 1, 4, true), (16, 16, 7, true), (8, 37, 5, false), (40, 20, 6, true)] {
        let stride = 2 * keys + width + 1;
        let x = Edge::of(&random.floats(Data::Plain, tokens * stride));
        let gates = Edge::of(&random.floats(Data::Plain, 2 * tokens));
        // Converts the state to tiles of sixteen columns.
        let before = random.floats(Data::Plain, keys * width.next_multiple_of(16));
        let index = |key: usize, column: usize| (column / 16 * keys + key) * 16 + column % 16;
        let job = |from: usize| Recurrence {
            key: &x[from * stride..],
            query: &x[(from * stride + keys).min(x.len())..],
            value: &x[(from * stride + 2 * keys).min(x.len())..],
            stride,
            keys,
            width,
            decay: &gates[2 * from..],
            factor: &gates[(2 * from + 1).min(gates.len())..],
            gate_stride: 2,
            delta,
        };
        let run = two_passes(&before, tokens, width, |from| Update::Matrix(job(from)));
        let want = at_once_and_in_two_passes(tokens, run, || format!("{keys} {width}"));
        let mut state: Vec<f64> = before.iter().map(|x| f64::from(*x)).collect();
        for t in 0..tokens {
            let of = |i: usize| f64::from(x[t * stride + i]);
            let (decay, factor) = (f64::from(gates[2 * t]), f64::from(gates[2 * t + 1]));
            state.iter_mut().for_each(|s| *s *= decay);
            for w in 0..width {
                let held: f64 = (0..keys).map(|i| of(i) * state[index(i, w)]).sum();
                let new = factor * (of(2 * keys + w) - if delta { held } else { 0.0 });
                (0..keys).for_each(|i| state[index(i, w)] += of(i) * new);
                let exact: f64 = (0..keys).map(|i| of(keys + i) * state[index(i, w)]).sum();
                assert!((f64::from(want[t * width + w]) - exact).abs() < 1e-3 * (1.0 + exact.abs()), "{keys} {t} {w}");
            }
        }
    }
}

/// Mamba-1's states with some tokens at once and in two passes, by every table, compared with their definition in f64.
#[test]
fn scans() {
    let mut random = Random(41);
    for (channels, states, tokens, shared) in
        [(1, 1, 4, 1), (16, 16, 5, 1), (37, 18, 6, 1), (20, 40, 3, 1), (36, 18, 5, 6)]
    {
        let groups = channels / shared;
        let rate = |c: usize, i: usize| if shared > 1 { c / shared } else { c * states + i };
        let bytes = |x: Vec<f32>| Edge::of(&x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        let (rates, bias, skip) = (
            random
                .floats(Data::Plain, if shared > 1 { groups } else { channels * states })
                .into_iter()
                .map(|x| -x.abs())
                .collect::<Vec<_>>(),
            random.floats(Data::Plain, groups),
            random.floats(Data::Plain, groups),
        );
        let (rate_bytes, bias_bytes, skip_bytes) = (bytes(rates.clone()), bytes(bias.clone()), bytes(skip.clone()));
        let (mut steps, input) =
            (random.floats(Data::Plain, tokens * groups), Edge::of(&random.floats(Data::Plain, tokens * channels)));
        // Steps far on both sides of the bend of softplus.
        steps.iter_mut().for_each(|step| *step *= 20.0);
        let steps = Edge::of(&steps);
        let stride = 2 * states + 1;
        let gates = Edge::of(&random.floats(Data::Plain, tokens * stride));
        let tiles = channels.div_ceil(16);
        let before: Vec<f32> = random.floats(Data::Plain, tiles * states * 16);
        let job = |from: usize| Scan {
            shared,
            rates: &rate_bytes,
            bias: &bias_bytes,
            skip: &skip_bytes,
            first: 0,
            channels,
            states,
            steps: &steps[from * groups..],
            input: &input[from * channels..],
            write: &gates[from * stride..],
            read: &gates[(from * stride + states).min(gates.len())..],
            stride,
        };
        let run = |kernels: &Kernels, first: usize| {
            let mut state = Edge::of(&before);
            let (mut head, mut tail) =
                (Edge::of(&vec![0.0; tiles * first * 16]), Edge::of(&vec![0.0; tiles * (tokens - first) * 16]));
            kernels.recur(&Update::Scan(job(0)), &mut state, &mut head);
            kernels.recur(&Update::Scan(job(first)), &mut state, &mut tail);
            // By tokens, without the lanes past the last channel.
            let mut all = vec![];
            for (out, tokens) in [(&head, first), (&tail, tokens - first)] {
                for t in 0..tokens {
                    all.extend((0..channels).map(|c| out[(c / 16 * tokens + t) * 16 + c % 16]));
                }
            }
            all.extend_from_slice(&state);
            all
        };
        let want = at_once_and_in_two_passes(tokens, run, || format!("{channels} {states}"));
        for c in 0..channels {
            let place = |i: usize| (c / 16 * states + i) * 16 + c % 16;
            let mut state: Vec<f64> = (0..states).map(|i| f64::from(before[place(i)])).collect();
            for t in 0..tokens {
                let step = f64::from(steps[t * groups + c / shared]) + f64::from(bias[c / shared]);
                let (step, x) = (step.exp().ln_1p(), f64::from(input[t * channels + c]));
                let mut exact = f64::from(skip[c / shared]) * x;
                for (i, h) in state.iter_mut().enumerate() {
                    let gate = |i: usize| f64::from(gates[t * stride + i]);
                    *h = (step * f64::from(rates[rate(c, i)])).exp() * *h + step * x * gate(i);
                    exact += gate(states + i) * *h;
                }
                let got = f64::from(want[t * channels + c]);
                assert!((got - exact).abs() < 1e-4 * (1.0 + exact.abs()), "{channels} {t} {c}: {got}, not {exact}");
            }
        }
    }
}

/// RWKV-7's state with some tokens at once and in two passes, by every table, compared with its definition in f64.
#[test]
fn states_with_a_decay_for_each_row() {
    let mut random = Random(43);
    for (keys, width, tokens) in [(1, 1, 4), (16, 16, 7), (8, 37, 5), (40, 20, 6)] {
        let stride = 5 * keys + width;
        let mut x = random.floats(Data::Plain, tokens * stride);
        // The removal keys are short, so that the state does not grow.
        x.iter_mut().enumerate().filter(|(i, _)| i % stride < 2 * keys).for_each(|(_, x)| *x /= keys as f32);
        let x = Edge::of(&x);
        let before = random.floats(Data::Plain, keys * width.next_multiple_of(16));
        let part = |from: usize, at: usize| &x[(from * stride + at).min(x.len())..];
        let job = |from: usize| Wkv {
            removal: part(from, 0),
            replace: part(from, keys),
            decay: part(from, 2 * keys),
            key: part(from, 3 * keys),
            query: part(from, 4 * keys),
            value: part(from, 5 * keys),
            bonus: &[],
            stride,
            keys,
            width,
        };
        let run = two_passes(&before, tokens, width, |from| Update::Wkv(job(from)));
        let want = at_once_and_in_two_passes(tokens, run, || format!("{keys} {width}"));
        for w in 0..width {
            let place = |key: usize| (w / 16 * keys + key) * 16 + w % 16;
            let mut state: Vec<f64> = (0..keys).map(|i| f64::from(before[place(i)])).collect();
            for t in 0..tokens {
                let of = |at: usize| f64::from(x[t * stride + at]);
                let held: f64 = state.iter().enumerate().map(|(i, s)| of(i) * s).sum();
                for (i, s) in state.iter_mut().enumerate() {
                    *s = *s * of(2 * keys + i) + of(3 * keys + i) * of(5 * keys + w) - of(keys + i) * held;
                }
                let exact: f64 = state.iter().enumerate().map(|(i, s)| of(4 * keys + i) * s).sum();
                let got = f64::from(want[t * width + w]);
                assert!((got - exact).abs() < 1e-3 * (1.0 + exact.abs()), "{keys} {t} {w}: {got}, not {exact}");
            }
        }
    }
}

/// RWKV-6's state through some tokens, at once and in two passes, in every table; and its definition in f64.
#[test]
fn states_with_a_bonus_for_new_keys() {
    let mut random = Random(53);
    for (keys, width, tokens) in [(1, 1, 4), (16, 16, 7), (8, 37, 5), (40, 20, 6)] {
        let stride = 3 * keys + width;
        let x = Edge::of(&random.floats(Data::Plain, tokens * stride));
        let before = random.floats(Data::Plain, keys * width.next_multiple_of(16));
        let bonus = random.floats(Data::Plain, keys);
        let bonus_bytes = Edge::of(&bonus.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        let part = |from: usize, at: usize| &x[(from * stride + at).min(x.len())..];
        let job = |from: usize| Wkv {
            removal: &[],
            replace: &[],
            bonus: &bonus_bytes,
            decay: part(from, 0),
            key: part(from, keys),
            query: part(from, 2 * keys),
            value: part(from, 3 * keys),
            stride,
            keys,
            width,
        };
        let run = two_passes(&before, tokens, width, |from| Update::Wkv(job(from)));
        let want = at_once_and_in_two_passes(tokens, run, || format!("{keys} {width}"));
        for w in 0..width {
            let place = |key: usize| (w / 16 * keys + key) * 16 + w % 16;
            let mut state: Vec<f64> = (0..keys).map(|i| f64::from(before[place(i)])).collect();
            for t in 0..tokens {
                let of = |at: usize| f64::from(x[t * stride + at]);
                let mut exact = 0.0;
                for (i, s) in state.iter_mut().enumerate() {
                    let new = of(keys + i) * of(3 * keys + w);
                    exact += of(2 * keys + i) * (*s + f64::from(bonus[i]) * new);
                    *s = *s * of(i) + new;
                }
                let got = f64::from(want[t * width + w]);
                assert!((got - exact).abs() < 1e-3 * (1.0 + exact.abs()), "{keys} {t} {w}: {got}, not {exact}");
            }
        }
    }
}
