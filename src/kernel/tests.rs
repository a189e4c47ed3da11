//! Every table against the scalar one: the same bits, on random and on adversarial data. A NaN
//! equals a NaN.

extern crate std;

use std::{eprintln, format, string::String, vec, vec::Vec};

use super::job::SUM_SPAN;
use super::linear::fit;
use super::{
    Activation, Acts, Attention, Bias, Convolution, Deviation, Form, Kernels, MAX_ROWS, Matrix, Recurrence, SCALAR,
    linear, panel_bytes, store,
};
use crate::memory::{HeadLayout, KvType};
use crate::quant::{Format, TensorType, decode_row, formats, formats_list};
use crate::workers::{Serial, Workers};

/// The tables that this machine can run, besides the reference.
fn tables() -> Vec<&'static Kernels> {
    let tables: Vec<_> = Kernels::available().filter(|kernels| kernels.name != "scalar").collect();
    if tables.is_empty() {
        eprintln!("SKIP: this machine runs the scalar kernels only");
    }
    tables
}

/// What the numbers of a case are like.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Data {
    /// Of ordinary size.
    Plain,
    /// The largest magnitudes that the formats have, and zeros.
    Extreme,
    /// Anything: denormals, infinities and NaN among ordinary numbers.
    Wild,
}

const DATA: [Data; 3] = [Data::Plain, Data::Extreme, Data::Wild];

const WILD: [f32; 16] = [
    0.0,
    -0.0,
    1e-45,
    -1e-40,
    f32::MIN_POSITIVE,
    3e-8,
    -6e-5,
    0.5,
    -2.5,
    65504.0,
    -65520.0,
    1e30,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Xorshift: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.bits() >> 20) as usize % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// From -1 to 1.
    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn float(&mut self, data: Data) -> f32 {
        match data {
            Data::Plain => self.unit(),
            Data::Extreme => self.pick(&[-1.0, 1.0, 0.0, 1.0]) * 60000.0,
            // Mostly ordinary, or every result would be NaN.
            Data::Wild if self.below(40) == 0 => self.pick(&WILD),
            Data::Wild => self.unit() * self.pick(&[1e-38, 1e-20, 1e-4, 1.0, 1.0, 1e4]),
        }
    }

    fn floats(&mut self, data: Data, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float(data)).collect()
    }

    /// A scale as it stands in a block.
    fn half(&mut self, data: Data) -> [u8; 2] {
        let x = match data {
            Data::Plain => self.unit() * 0.01,
            Data::Extreme => self.pick(&[65504.0, -65504.0, 0.0, 6e-8]),
            Data::Wild if self.below(20) == 0 => return (self.bits() as u16).to_le_bytes(),
            Data::Wild => self.unit(),
        };
        half::f16::from_f32(x).to_le_bytes()
    }

    fn byte(&mut self, data: Data) -> u8 {
        if data == Data::Extreme { self.pick(&[0x80, 0x7f, 0x80, 0xff, 0]) } else { self.bits() as u8 }
    }

    /// `rows` rows of weights, after `skip` bytes.
    fn weights(&mut self, kind: TensorType, data: Data, rows: usize, cols: usize, skip: usize) -> Vec<u8> {
        let (elements, bytes) = kind.block();
        let mut out = vec![0x55; skip];
        for _ in 0..rows * cols / elements {
            match kind {
                TensorType::F32 => out.extend(self.float(data).to_le_bytes()),
                TensorType::F16 => out.extend(half::f16::from_f32(self.float(data)).to_le_bytes()),
                TensorType::BF16 => out.extend(half::bf16::from_f32(self.float(data)).to_le_bytes()),
                _ => {
                    let start = out.len();
                    out.extend((0..bytes).map(|_| self.byte(data)));
                    for place in halves(kind) {
                        out[start + place..start + place + 2].copy_from_slice(&self.half(data));
                    }
                }
            }
        }
        out
    }
}

macro_rules! of_formats {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        /// All block formats of this build.
        fn block_types() -> Vec<TensorType> {
            [$(TensorType::$name),*].into_iter().filter(|kind| kind.is_built()).collect()
        }

        /// Where a block has f16.
        fn halves(kind: TensorType) -> impl Iterator<Item = usize> {
            let places = match kind {
                $(TensorType::$name => {
                    type F = formats::$module::$format;
                    [F::D, F::M]
                })*
                _ => panic!("{kind:?} has no blocks"),
            };
            places.into_iter().flatten().map(|(place, _)| place)
        }
    };
}
formats_list!(of_formats);

/// Asserts equal bits, all NaN being one.
fn same(got: &[f32], want: &[f32], what: impl Fn() -> String) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan(), "{}: element {i}: {g:e}, not {w:e}", what());
    }
}

/// Activations with room for both forms.
struct Tokens {
    x: Vec<f32>,
    q: Vec<i8>,
    d: Vec<f32>,
    sums: Vec<i16>,
    tokens: usize,
}

impl Tokens {
    fn quantized(kernels: &Kernels, form: Form, x: Vec<f32>, tokens: usize) -> Self {
        let n = if form == Form::F32 { 0 } else { x.len() };
        let (mut q, mut d, mut sums) = (vec![0; n], vec![0.0; n / form.span()], vec![0; n / SUM_SPAN]);
        kernels.quantize(form, &x, &mut q, &mut d, &mut sums);
        Self { x, q, d, sums, tokens }
    }

    fn random(random: &mut Random, form: Form, data: Data, cols: usize, tokens: usize) -> Self {
        let x = random.floats(data, cols * tokens);
        let mut tokens = Self::quantized(&SCALAR, form, x, tokens);
        if data == Data::Extreme {
            // Every quant at an end, as rounding seldom gives it; now and then all at the same.
            let ends: &[i8] = random.pick(&[&[-127, 127, 127], &[127], &[-127]]);
            tokens.q.fill_with(|| random.pick(ends));
            for (sum, q) in tokens.sums.iter_mut().zip(tokens.q.chunks(SUM_SPAN)) {
                *sum = q.iter().map(|&q| i16::from(q)).sum();
            }
        }
        tokens
    }

    fn acts(&self) -> Acts<'_> {
        Acts { x: &self.x, q: &self.q, d: &self.d, sums: &self.sums, tokens: self.tokens }
    }
}

/// What no kernel writes by chance.
const UNTOUCHED: f32 = 12345.678;

fn product(kernels: &Kernels, w: Matrix<'_>, x: &Acts<'_>, stride: usize) -> Vec<f32> {
    let mut out = vec![UNTOUCHED; stride * x.tokens];
    let mut panel = vec![0xaa; if x.tokens > 1 { panel_bytes(w.kind, w.cols) } else { 0 }];
    linear(kernels, &Serial, &mut panel, &[(Some(w), 0)], x, &mut out, stride);
    out
}

/// One matrix product by all tables.
fn check_product(random: &mut Random, kind: TensorType, data: Data, rows: usize, cols: usize, tokens: usize) {
    let form = Form::of(kind).unwrap();
    let skip = random.below(8);
    let bytes = random.weights(kind, data, rows, cols, skip);
    let w = Matrix { kind, rows, cols, data: &bytes[skip..] };
    let x = Tokens::random(random, form, data, cols, tokens);
    let stride = rows + random.below(3);
    let want = product(&SCALAR, w, &x.acts(), stride);
    for out in want.chunks(stride) {
        assert!(out[rows..].iter().all(|&x| x == UNTOUCHED));
    }
    for kernels in tables() {
        let got = product(kernels, w, &x.acts(), stride);
        same(&got, &want, || {
            format!("{} {kind:?} {data:?}, {rows} rows, {cols} columns, {tokens} tokens", kernels.name)
        });
    }
}

fn check_products(kind: TensorType) {
    let mut random = Random(kind as u64 + 1);
    let (span, _) = kind.block();
    for rows in 1..=40 {
        for tokens in [1, 1 + random.below(20), 1 + random.below(20)] {
            check_product(&mut random, kind, Data::Plain, rows, 2 * span.max(17), tokens);
        }
    }
    for data in DATA {
        for _ in 0..40 {
            let (rows, tokens) = (1 + random.below(70), 1 + random.below(10));
            let cols = span * (1 + random.below(if span < 256 { 20 } else { 3 }));
            check_product(&mut random, kind, data, rows, cols, tokens);
        }
        check_product(&mut random, kind, data, 33, 768, 9);
        // Rows of a length that is prefetched otherwise on x86-64.
        check_product(&mut random, kind, data, 33, 1024, 1);
    }
}

/// Three threads.
struct Three;
impl Workers for Three {
    fn count(&self) -> usize {
        3
    }

    fn run(&self, job: &(dyn Fn() + Sync)) {
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(job))));
    }
}

/// Several matrices at once, side by side and one behind the other, are what each is alone.
#[test]
fn several_products() {
    let mut random = Random(7);
    let (rows, cols) = ([33, 16, 70], 512);
    let kinds = [TensorType::Q8_0, TensorType::Q4_0, TensorType::Q8_0];
    let bytes = [0, 1, 2].map(|i| random.weights(kinds[i], Data::Plain, rows[i], cols, 0));
    let w = [0, 1, 2].map(|i| Matrix { kind: kinds[i], rows: rows[i], cols, data: &bytes[i] });
    for tokens in [1, 3] {
        let x = Tokens::random(&mut random, Form::Q8, Data::Plain, cols, tokens);
        for (at, stride) in [([2, 35, 53], 123), ([0, 90 * tokens, 90 * tokens + 20], 90), ([5, 38, 85 * tokens], 80)] {
            for kernels in tables() {
                let mut out = vec![UNTOUCHED; stride * tokens + 300];
                let mut panels = vec![0xaa; 3 * panel_bytes(TensorType::Q8_0, cols)];
                let products = [(Some(w[0]), at[0]), (None, 0), (Some(w[1]), at[1]), (Some(w[2]), at[2])];
                linear(kernels, &Three, &mut panels, &products, &x.acts(), &mut out, stride);
                for (w, at) in w.into_iter().zip(at) {
                    let want = product(&SCALAR, w, &x.acts(), w.rows);
                    for (t, want) in want.chunks(w.rows).enumerate() {
                        let got = &mut out[at + t * stride..][..w.rows];
                        same(got, want, || format!("{}, {tokens} tokens, {} rows at {at}", kernels.name, w.rows));
                        got.fill(UNTOUCHED);
                    }
                }
                assert!(out.iter().all(|&x| x == UNTOUCHED));
            }
        }
    }
}

/// Outputs that would lie over each other or outside are seen.
#[test]
fn places_of_products() {
    let w = Matrix { kind: TensorType::F32, rows: 4, cols: 1, data: &[0; 16] };
    let places = |at: &[usize], tokens| fit(at.iter().map(|&at| (w, at)), tokens, 32, 10);
    assert!(places(&[], 1) && places(&[28], 1) && places(&[0, 4, 8, 12], 1));
    assert!(!places(&[29], 1) && !places(&[usize::MAX], 1) && !places(&[0, 3], 1) && !places(&[4, 0], 1));
    assert!(places(&[8], 3) && places(&[2, 8], 3) && places(&[0, 14, 18], 2) && places(&[0, 4, 18], 2));
    assert!(!places(&[9], 3) && !places(&[0, 7], 3) && !places(&[0, 10], 2) && !places(&[0, 6, 18], 2));
    assert!(!fit([(w, 0)].into_iter(), 2, 32, 3), "its own next token");
    assert!(!fit([(Matrix { rows: 17, ..w }, 0)].into_iter(), 1, 32, 32), "less than a byte a row");
}

#[test]
fn f32_weights() {
    check_products(TensorType::F32);
}

#[test]
fn f16_weights() {
    check_products(TensorType::F16);
}

#[test]
fn bf16_weights() {
    check_products(TensorType::BF16);
}

/// Every block format, in threads: there are many.
#[test]
fn block_weights() {
    std::thread::scope(|scope| {
        for half in [0, 1] {
            scope.spawn(move || block_types().into_iter().skip(half).step_by(2).for_each(check_products));
        }
    });
}

/// The dot products against something that no kernel has a part in: sums in f64 over decoded rows.
#[test]
fn block_weights_by_decoded_rows() {
    let mut random = Random(23);
    for kind in block_types() {
        let (cols, form) = (512, Form::of(kind).unwrap());
        let mut compared = 0;
        for _ in 0..20 {
            let bytes = random.weights(kind, Data::Plain, 1, cols, 0);
            let x = Tokens::random(&mut random, form, Data::Plain, cols, 1);
            let mut row = vec![0.0; cols];
            assert!(decode_row(kind, &bytes, &mut row));
            let terms = || {
                row.iter()
                    .zip(&x.q)
                    .enumerate()
                    .map(|(i, (&w, &q))| f64::from(w) * f64::from(q) * f64::from(x.d[i / form.span()]))
            };
            let (want, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
            let w = Matrix { kind, rows: 1, cols, data: &bytes };
            let got = f64::from(product(&SCALAR, w, &x.acts(), 1)[0]);
            // Two roundings and one of the minimum for each block; minimums may be larger than what is left.
            // Scales that are not f16 are random: some numbers are beyond f32.
            if size < 1e38 {
                assert!((got - want).abs() <= 4e-6 * size, "{kind:?}: {got}, not {want}");
                compared += 1;
            }
        }
        assert!(compared >= 5, "{kind:?}");
    }
}

/// A half read as a weight is exact, whichever of the 65536 it is.
#[test]
fn every_half() {
    for (kind, shift) in [(TensorType::F16, 0), (TensorType::BF16, 0), (TensorType::Q8_0, 1)] {
        let (span, _) = kind.block();
        let x = Tokens::quantized(&SCALAR, Form::of(kind).unwrap(), vec![1.0; span], 1);
        let mut bytes = vec![];
        for bits in 0..=u16::MAX {
            bytes.extend(bits.to_le_bytes());
            bytes.extend([1u8; 64].iter().take(32 * shift));
        }
        let w = Matrix { kind, rows: 65536, cols: span, data: &bytes };
        let want = product(&SCALAR, w, &x.acts(), 65536);
        for kernels in tables() {
            same(&product(kernels, w, &x.acts(), 65536), &want, || format!("{} {kind:?}", kernels.name));
        }
    }
}

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
        // Halves between two quants, in a block whose scale is 1.
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
                    let (mut rms, mut layer) = (x.clone(), x.clone());
                    kernels.rms_norm(&mut rms[1..], weight, 1e-5);
                    let mut unbiased = x.clone();
                    kernels.layer_norm(&mut layer[1..], weight, bias, Deviation::Within(1e-5));
                    kernels.layer_norm(&mut unbiased[1..], weight, bias, Deviation::Unbiased(1e-6));
                    layer.extend(unbiased);
                    (rms, layer)
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

/// Floats of every sign and exponent, `step` apart in their bits; then the wild ones.
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
        Activation::Sigmoid,
        Activation::ClampedSwiglu,
    ] {
        for up in [None, Some(&up[..])] {
            let run = |kernels: &Kernels, x: &[f32]| {
                let mut x = x.to_vec();
                let up = up.map(|up| &up[..x.len()]);
                kernels.activate(f, &mut x, up);
                x
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

/// GELU's deviation from its definition, by an error function in f64.
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
        let mut x = x.to_vec();
        kernels.soft_cap(&mut x, 30.0);
        x
    };
    for n in (0..=40).chain([all.len()]) {
        let x = &all[all.len() - n..];
        let want = run(&SCALAR, x);
        for kernels in tables() {
            same(&run(kernels, x), &want, || format!("{} soft cap of {n}", kernels.name));
        }
    }
    // 4e-7 of the value, over the whole range of floats (but for the smallest, which have fewer digits).
    for (x, got) in all.iter().zip(run(&SCALAR, &all)) {
        let want = 30.0 * libm::tanh(f64::from(*x) / 30.0);
        let error = (f64::from(got) - want).abs();
        assert!(x.is_nan() && got.is_nan() || error <= 4e-7 * want.abs() + 1e-37, "{x:e}: {got:e}, not {want:e}");
    }
}

#[test]
fn rounding_to_half() {
    let mut all = all_floats(16381);
    // Every half, the middle between it and the next, and what is just beside them.
    for bits in 0..=u16::MAX {
        let (a, b) = (half::f16::from_bits(bits).to_f32(), half::f16::from_bits(bits.wrapping_add(1)).to_f32());
        let middle = a / 2.0 + b / 2.0;
        for x in [a, middle] {
            all.extend([x, f32::from_bits(x.to_bits().wrapping_add(1)), f32::from_bits(x.to_bits().wrapping_sub(1))]);
        }
    }
    let run = |kernels: &Kernels, x: &[f32]| -> Vec<f32> {
        let mut out = vec![0x55; 2 * x.len() + 3];
        kernels.to_f16(x, &mut out[1..2 * x.len() + 1]);
        assert_eq!((out[0], &out[2 * x.len() + 1..]), (0x55, &[0x55, 0x55][..]));
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

/// A run of tokens on one KV head.
#[derive(Clone, Copy, Debug)]
struct AttentionCase {
    kind: KvType,
    dim: usize,
    group: usize,
    tokens: usize,
    position: usize,
    window: usize,
    /// Every token sees all, with a bias.
    across: bool,
    cap: Option<f32>,
    data: Data,
}

impl AttentionCase {
    /// The cache's bytes and the output, both by `kernels`.
    fn run(&self, kernels: &Kernels, keys: &[f32], values: &[f32], queries: &[f32]) -> (Vec<u8>, Vec<f32>) {
        let Self { kind, dim, group, tokens, position, window, across, cap, .. } = *self;
        let layout = HeadLayout { kind, dim };
        let tiles = window.min(position + tokens).saturating_add(tokens - 1).div_ceil(16);
        // Whatever lay in the cache before, here NaN, has no influence; nor has which page a tile is in.
        let mut cache = vec![0xff; (tiles + 2) * layout.tile_bytes()];
        let pages: Vec<u32> = (1..=tiles as u32).rev().collect();
        for (p, (key, value)) in keys.chunks(dim).zip(values.chunks(dim)).enumerate() {
            store(kernels, layout, &mut cache, &pages, p, key, value);
        }
        let (q_stride, out_stride) = (group * dim + 5, group * dim + 3);
        let reach = position + tokens;
        let biases: Vec<f32> = (0..group * 3 + reach).map(|i| (i * 37 % 19) as f32 / 7.0).collect();
        let job = Attention {
            tiles: &cache,
            pages: &pages,
            layout,
            q: &queries[1..],
            q_stride,
            group,
            tokens,
            position,
            window,
            reach: across.then_some(reach),
            scale: 0.3,
            cap,
            bias: if across { Bias { table: &biases, stride: 3, start: tokens } } else { Bias::NONE },
            sinks: &[],
        };
        let mut out = vec![UNTOUCHED; tokens * out_stride];
        let mut scratch = vec![f32::NAN; MAX_ROWS.min(tokens * group) * layout.padded()];
        kernels.attend(&job, &mut out, out_stride, &mut scratch);
        for out in out.chunks(out_stride) {
            assert!(out[group * dim..].iter().all(|&x| x == UNTOUCHED));
        }
        (cache, out)
    }

    fn check(&self, random: &mut Random) {
        let positions = self.position + self.tokens;
        let keys = random.floats(self.data, positions * self.dim);
        let values = random.floats(self.data, positions * self.dim);
        let mut queries = random.floats(self.data, self.tokens * (self.group * self.dim + 5) + 1);
        queries.iter_mut().for_each(|q| *q *= 8.0);
        let (ring, want) = self.run(&SCALAR, &keys, &values, &queries);
        assert!(self.data != Data::Plain || want.iter().all(|x| x.is_finite()));
        for kernels in tables() {
            let (got_ring, got) = self.run(kernels, &keys, &values, &queries);
            // Of a NaN, the cache may keep other bits.
            assert!(self.data == Data::Wild || got_ring == ring, "{} cache of {self:?}", kernels.name);
            same(&got, &want, || format!("{} attention {self:?}", kernels.name));
        }
    }
}

/// Bias and a reach, against the sums written out.
#[test]
fn attention_across() {
    let (dim, tokens, reach) = (8, 3, 21);
    let layout = HeadLayout { kind: KvType::F32, dim };
    let mut tiles = vec![0xff; 2 * layout.tile_bytes()];
    let mut random = Random(19);
    let (keys, values) = (random.floats(Data::Plain, reach * dim), random.floats(Data::Plain, reach * dim));
    for (p, (key, value)) in keys.chunks(dim).zip(values.chunks(dim)).enumerate() {
        store(&SCALAR, layout, &mut tiles, &[1, 0], p, key, value);
    }
    let q = random.floats(Data::Plain, tokens * dim);
    let table: Vec<f32> = (0..reach + tokens).map(|i| i as f32 / 10.0).collect();
    let job = Attention {
        tiles: &tiles,
        pages: &[1, 0],
        layout,
        q: &q,
        q_stride: dim,
        group: 1,
        tokens,
        position: 0,
        window: usize::MAX,
        reach: Some(reach),
        scale: 0.5,
        cap: None,
        bias: Bias { table: &table, stride: 0, start: tokens },
        sinks: &[],
    };
    let (mut out, mut scratch) = (vec![0.0; tokens * dim], vec![0.0; MAX_ROWS * layout.padded()]);
    SCALAR.attend(&job, &mut out, dim, &mut scratch);
    for t in 0..tokens {
        let weight = |p: usize| {
            let dot: f64 = (0..dim).map(|i| f64::from(q[t * dim + i]) * f64::from(keys[p * dim + i])).sum();
            (dot * 0.5 + f64::from(table[tokens - t + p])).exp()
        };
        let total: f64 = (0..reach).map(weight).sum();
        for i in 0..dim {
            let want = (0..reach).map(|p| weight(p) * f64::from(values[p * dim + i])).sum::<f64>() / total;
            assert!((f64::from(out[t * dim + i]) - want).abs() < 1e-5, "{t} {i}");
        }
    }
}

#[test]
fn attention() {
    let mut random = Random(17);
    for kind in [KvType::F32, KvType::F16, KvType::Q8_0] {
        for dim in [8, 12, 48, 64, 128] {
            for group in 1..=8 {
                for data in [Data::Plain, Data::Plain, Data::Extreme, Data::Wild] {
                    let (tokens, position) = (random.pick(&[1, 1, 2, 3, 5, 8, 9]), random.below(80));
                    let window = random.pick(&[usize::MAX, usize::MAX, 1, 5, 16, 37]);
                    let across = window == usize::MAX && random.below(2) == 0;
                    let cap = random.pick(&[None, None, Some(5.0)]);
                    AttentionCase { kind, dim, group, tokens, position, window, across, cap, data }.check(&mut random);
                }
            }
        }
    }
}

/// A convolution, all tokens at once and in two passes, in every table; and its definition in f64.
#[test]
fn convolutions() {
    let mut random = Random(31);
    for (channels, taps, tokens, silu) in [(1, 1, 3, false), (17, 3, 5, false), (64, 4, 9, true), (33, 8, 2, true)] {
        // The last row ends with its channels.
        let (stride, n) = (channels + 3, channels * (taps - 1));
        let bytes = |x: Vec<f32>| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let (weight, bias) = (random.floats(Data::Plain, channels * taps), random.floats(Data::Plain, channels));
        let (before, x) = (random.floats(Data::Plain, n), random.floats(Data::Plain, tokens * stride));
        let (weights, biases) = (bytes(weight.clone()), bytes(bias.clone()));
        let job = Convolution { weight: &weights, bias: &biases, channels, taps, silu };
        let run = |kernels: &Kernels, first: usize| {
            let (mut x, mut state) = (x.clone(), before.clone());
            let (head, tail) = x.split_at_mut(first * stride);
            kernels.convolve(&job, head, stride, &mut state);
            kernels.convolve(&job, tail, stride, &mut state);
            [x, state].concat()
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

/// A head's state through some tokens, at once and in two passes, in every table; and its definition in f64.
#[test]
fn recurrences() {
    let mut random = Random(37);
    for (keys, width, tokens, delta) in [(1, 1, 4, true), (16, 16, 7, true), (8, 37, 5, false), (40, 20, 6, true)] {
        let stride = 2 * keys + width + 1;
        let (x, gates) = (random.floats(Data::Plain, tokens * stride), random.floats(Data::Plain, 2 * tokens));
        let before = random.floats(Data::Plain, keys * width);
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
            let (mut state, mut out) = (before.clone(), vec![0.0; tokens * width]);
            let (head, tail) = out.split_at_mut(first * width);
            kernels.recur(&job(0), &mut state, head);
            kernels.recur(&job(first), &mut state, tail);
            [out, state].concat()
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
                let held: f64 = (0..keys).map(|i| of(i) * state[i * width + w]).sum();
                let new = factor * (of(2 * keys + w) - if delta { held } else { 0.0 });
                (0..keys).for_each(|i| state[i * width + w] += of(i) * new);
                let exact: f64 = (0..keys).map(|i| of(keys + i) * state[i * width + w]).sum();
                assert!((f64::from(want[t * width + w]) - exact).abs() < 1e-3 * (1.0 + exact.abs()), "{keys} {t} {w}");
            }
        }
    }
}
