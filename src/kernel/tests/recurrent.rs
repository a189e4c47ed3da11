//! Convolutions, and recurrent states of fixed size.

extern crate std;

use std::{format, vec, vec::Vec};

use super::edge::Edge;
use super::{Data, Random, same, tables};
use crate::kernel::{Convolution, Kernels, Recurrence, SCALAR};

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
        let job = Convolution { weight: &weights, bias: &biases, channels, taps, silu };
        let run = |kernels: &Kernels, first: usize| {
            let (mut x, mut state) = (Edge::of(&x), Edge::of(&before));
            let (head, tail) = x.split_at_mut(first * stride);
            kernels.convolve(&job, head, stride, &mut state);
            kernels.convolve(&job, tail, stride, &mut state);
            [&x[..], &state].concat()
        };
        let want = run(&SCALAR, tokens);
        for kernels in tables().into_iter().chain([&SCALAR]) {
            for first in 0..=tokens {
                same(&run(kernels, first), &want, || format!("{} {channels} {taps} {first}", kernels.name));
            }
        }
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
        let run = |kernels: &Kernels, first: usize| {
            let (mut state, mut out) = (Edge::of(&before), Edge::of(&vec![0.0; tokens * width]));
            let (head, tail) = out.split_at_mut(first * width);
            kernels.recur(&job(0), &mut state, head);
            kernels.recur(&job(first), &mut state, tail);
            [&out[..], &state].concat()
        };
        let want = run(&SCALAR, tokens);
        for kernels in tables().into_iter().chain([&SCALAR]) {
            for first in 0..=tokens {
                same(&run(kernels, first), &want, || format!("{} {keys} {width} {first}", kernels.name));
            }
        }
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
