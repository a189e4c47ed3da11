//! Quantization of activations, norms, activation functions, and rounding to f16.

use arenite::Kernels;
use arenite::kernel::internals::{Deviation, Form, Functions};
use arenite::kernel::{Activation, SCALAR};
use arenite::quant::TensorType;

use crate::edge::Edge;
use crate::products::Tokens;
use crate::{DATA, Data, Random, WILD, same, tables};

#[test]
fn quantization_of_activations() {
    let mut random = Random(7);
    for form in [Form::Q8, Form::Q8K, Form::Groups32, Form::Groups64] {
        let span = if form == Form::Groups64 { 64 } else { form.span() };
        let mut cases: Vec<Vec<f32>> = vec![];
        for data in DATA {
            cases.extend((0..40).map(|i| random.floats(data, span * (1 + i % 5))));
        }
        for exponent in -150..=127 {
            let size = libm::ldexpf(1.0, exponent);
            cases.push((0..span).map(|_| random.unit() * size).collect());
        }
        // Halves between two quants, in a block with a scale of 1.
        cases.push((0..span).map(|i| if i == 3 { 127.0 } else { i as f32 % 64.0 - 31.5 }).collect());
        for special in WILD {
            for at in 0..span.min(40) {
                let mut x = random.floats(Data::Plain, span);
                x[at] = special;
                cases.push(x);
            }
            cases.push(vec![special; span]);
        }
        for x in cases {
            let want = Tokens::quantized(&SCALAR, form, x.clone(), 1);
            for kernels in tables() {
                let got = Tokens::quantized(kernels, form, x.clone(), 1);
                let name = kernels.name;
                same(&got.d, &want.d, || format!("{name} {form:?} scales of {x:?}"));
                assert_eq!(got.q, want.q, "{name} {form:?} quants of {x:?}");
                assert_eq!(got.sums, want.sums, "{name} {form:?} sums of {x:?}");
            }
        }
    }
}

#[test]
fn norms() {
    let mut random = Random(11);
    for n in (1..=50).chain([288, 320, 1000]) {
        for data in DATA {
            let x = random.floats(data, n + 1);
            let weight = random.weights(TensorType::F32, data, 1, n, 1);
            let bias = random.weights(TensorType::F32, data, 1, n, 3);
            for (weight, bias) in [(&weight[1..], &bias[3..]), (&weight[1..], &[][..]), (&[], &[])] {
                let run = |kernels: &Kernels| {
                    let (mut rms, mut layer, mut unbiased) = (Edge::of(&x), Edge::of(&x), Edge::of(&x));
                    let (weight, bias) = (&Edge::of(weight)[..], &Edge::of(bias)[..]);
                    kernels.rms_norm(&mut rms[1..], weight, 1e-5);
                    kernels.layer_norm(&mut layer[1..], weight, bias, Deviation::Within(1e-5));
                    kernels.layer_norm(&mut unbiased[1..], weight, bias, Deviation::Unbiased(1e-6));
                    (rms.to_vec(), [&layer[..], &unbiased].concat())
                };
                let (rms, layer) = run(&SCALAR);
                for kernels in tables() {
                    let got = run(kernels);
                    same(&got.0, &rms, || format!("{} RMS norm of {n}, {data:?}", kernels.name));
                    same(&got.1, &layer, || format!("{} layer norm of {n}, {data:?}", kernels.name));
                }
            }
        }
    }
}

/// Floats of every sign and exponent, `step` apart in their bits, then [`WILD`].
fn all_floats(step: usize) -> Vec<f32> {
    (0..=u32::MAX).step_by(step).map(f32::from_bits).chain(WILD).collect()
}

#[test]
fn activation_functions() {
    let mut random = Random(13);
    let all = all_floats(8191);
    let up = random.floats(Data::Plain, all.len());
    for f in [
        Activation::Silu,
        Activation::GeluTanh,
        Activation::GeluErf,
        Activation::Relu,
        Activation::ReluSquared,
        Activation::Sigmoid,
        Activation::ClampedSwiglu,
    ] {
        for up in [None, Some(&up[..])] {
            let run = |kernels: &Kernels, x: &[f32]| {
                let mut out = Edge::of(x);
                let up = up.map(|up| Edge::of(&up[..x.len()]));
                kernels.activate(f, &mut out, up.as_deref());
                out.to_vec()
            };
            for n in (0..=40).chain([all.len()]) {
                let x = &all[all.len() - n..];
                let want = run(&SCALAR, x);
                for kernels in tables() {
                    same(&run(kernels, x), &want, || format!("{} {f:?} of {n}", kernels.name));
                }
            }
        }
    }
}

/// Compares GELU with its definition, by an error function in f64.
#[test]
fn gelu_is_near_its_definition() {
    for i in -80000..=80000 {
        let x = i as f32 / 8000.0;
        let mut got = [x];
        SCALAR.activate(Activation::GeluErf, &mut got, None);
        let want = f64::from(x) / 2.0 * (1.0 + libm::erf(f64::from(x) / core::f64::consts::SQRT_2));
        assert!((f64::from(got[0]) - want).abs() <= 3e-7 * f64::from(x.abs()), "{x}: {} {want}", got[0]);
    }
}

#[test]
fn soft_caps() {
    let all = all_floats(8191);
    let run = |kernels: &Kernels, x: &[f32]| {
        let mut x = Edge::of(x);
        kernels.soft_cap(&mut x, 30.0);
        x.to_vec()
    };
    for n in (0..=40).chain([all.len()]) {
        let x = &all[all.len() - n..];
        let want = run(&SCALAR, x);
        for kernels in tables() {
            same(&run(kernels, x), &want, || format!("{} soft cap of {n}", kernels.name));
        }
    }
    // The relative error is at most 4e-7 over the whole range of floats, except for denormals, which have fewer digits.
    for (x, got) in all.iter().zip(run(&SCALAR, &all)) {
        let want = 30.0 * libm::tanh(f64::from(*x) / 30.0);
        let error = (f64::from(got) - want).abs();
        assert!(x.is_nan() && got.is_nan() || error <= 4e-7 * want.abs() + 1e-37, "{x:e}: {got:e}, not {want:e}");
    }
}

#[test]
fn rounding_to_half() {
    let mut all = all_floats(16381);
    // Every f16, the middle between it and the next one, and the neighbours of both.
    for bits in 0..=u16::MAX {
        let (a, b) = (half::f16::from_bits(bits).to_f32(), half::f16::from_bits(bits.wrapping_add(1)).to_f32());
        let middle = a / 2.0 + b / 2.0;
        for x in [a, middle] {
            all.extend([x, f32::from_bits(x.to_bits().wrapping_add(1)), f32::from_bits(x.to_bits().wrapping_sub(1))]);
        }
    }
    let run = |kernels: &Kernels, x: &[f32]| -> Vec<f32> {
        let mut out = Edge::of(&vec![0x55; 2 * x.len() + 1]);
        kernels.to_f16(&Edge::of(x), &mut out[1..]);
        assert_eq!(out[0], 0x55);
        out[1..].chunks_exact(2).take(x.len()).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
    };
    for n in (0..=40).chain([all.len()]) {
        let x = &all[all.len() - n..];
        let want = run(&SCALAR, x);
        for kernels in tables() {
            same(&run(kernels, x), &want, || format!("{} halves of {n}", kernels.name));
        }
    }
}
