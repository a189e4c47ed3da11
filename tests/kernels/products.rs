//! Matrix products, with every weight type.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arenite::Kernels;
use arenite::kernel::SCALAR;
use arenite::kernel::internals::{Acts, Batch, Form, Functions, Matrix, SUM_SPAN, linear, panel_bytes};
#[cfg(feature = "lora")]
use arenite::kernel::internals::{LowRank, add_low_rank};
use arenite::quant::{TensorType, decode_row};
use arenite::workers::{Serial, Workers};

use crate::edge::Edge;
use crate::{DATA, Data, Random, UNTOUCHED, block_types, same, tables};

/// Activations as floats and in a quantized form.
pub struct Tokens {
    pub x: Vec<f32>,
    pub q: Vec<i8>,
    pub d: Vec<f32>,
    pub sums: Vec<i16>,
    tokens: usize,
}

impl Tokens {
    pub fn quantized(kernels: &Kernels, form: Form, x: Vec<f32>, tokens: usize) -> Self {
        let n = if form == Form::F32 { 0 } else { x.len() };
        let (mut q, mut d, mut sums) =
            (Edge::of(&vec![0; n]), Edge::of(&vec![0.0; n / form.span()]), Edge::of(&vec![0; n / SUM_SPAN]));
        kernels.quantize(form, &Edge::of(&x), &mut q, &mut d, &mut sums);
        Self { x, q: q.to_vec(), d: d.to_vec(), sums: sums.to_vec(), tokens }
    }

    fn random(random: &mut Random, form: Form, data: Data, cols: usize, tokens: usize) -> Self {
        let x = random.floats(data, cols * tokens);
        let mut tokens = Self::quantized(&SCALAR, form, x, tokens);
        if data == Data::Extreme {
            // Quants at the ends of their range, which rounding rarely produces; sometimes all at the same end.
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

/// A matrix product whose operands and outputs end at an inaccessible page.
fn product(kernels: &Kernels, w: Matrix<'_>, x: &Acts<'_>, stride: usize) -> Vec<f32> {
    let mut out = Edge::of(&vec![UNTOUCHED; stride * (x.tokens - 1) + w.rows()]);
    let mut panel = Edge::of(&vec![0xaa; if x.tokens > 1 { panel_bytes(w.kind(), w.cols()) } else { 0 }]);
    let (data, floats, q, d, sums) =
        (Edge::of(w.data()), Edge::of(x.x), Edge::of(x.q), Edge::of(x.d), Edge::of(x.sums));
    let x = Acts { x: &floats, q: &q, d: &d, sums: &sums, tokens: x.tokens };
    let products = &[(Some(Matrix::at(w.kind(), (w.rows(), w.cols()), &data, 0).unwrap()), 0)];
    linear(kernels, &Serial, &mut panel, Batch { products, x, out: &mut out, stride }, &());
    out.to_vec()
}

/// Compares one matrix product of all tables, and of AMX.
pub fn check_product(random: &mut Random, kind: TensorType, data: Data, rows: usize, cols: usize, tokens: usize) {
    let form = Form::of(kind).unwrap();
    let skip = random.below(8);
    let bytes = random.weights(kind, data, rows, cols, skip);
    let w = Matrix::at(kind, (rows, cols), &bytes, skip).unwrap();
    let x = Tokens::random(random, form, data, cols, tokens);
    let stride = rows + random.below(3);
    let want = product(&SCALAR, w, &x.acts(), stride);
    for out in want.chunks(stride).filter(|out| out.len() == stride) {
        assert!(out[rows..].iter().all(|&x| x == UNTOUCHED));
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(memory_sanitizer)))]
    let amx = crate::tiles::table();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(memory_sanitizer))))]
    let amx = None;
    for kernels in tables().into_iter().chain(amx) {
        let got = product(kernels, w, &x.acts(), stride);
        same(&got, &want, || {
            format!("{} {kind:?} {data:?}, {rows} rows, {cols} columns, {tokens} tokens", kernels.name)
        });
    }
}

/// Random products per kind of data. Fewer under qemu, where 40 would take ten minutes.
const CASES: usize = if cfg!(target_arch = "x86_64") { 40 } else { 12 };

fn check_products(kind: TensorType) {
    let mut random = Random(kind as u64 + 1);
    let (span, _) = kind.block();
    for rows in 1..=40 {
        for tokens in [1, 2, 1 + random.below(20)] {
            check_product(&mut random, kind, Data::Plain, rows, 2 * span.max(17), tokens);
        }
    }
    for data in DATA {
        for _ in 0..CASES {
            let (rows, tokens) = (1 + random.below(70), 1 + random.below(10));
            let cols = span * (1 + random.below(if span < 256 { 20 } else { 3 }));
            check_product(&mut random, kind, data, rows, cols, tokens);
        }
        check_product(&mut random, kind, data, 33, 768, 9);
        // A row length with a different prefetch on x86-64.
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

/// Multiplying several matrices at once gives the same outputs as multiplying each alone, whether the matrices share
/// the rows of `out` or have rows of their own.
#[test]
fn several_products() {
    let mut random = Random(7);
    let (rows, cols) = ([33, 16, 70], 512);
    let kinds = [TensorType::Q8_0, TensorType::Q4_0, TensorType::Q8_0];
    let bytes = [0, 1, 2].map(|i| random.weights(kinds[i], Data::Plain, rows[i], cols, 0));
    let w = [0, 1, 2].map(|i| Matrix::at(kinds[i], (rows[i], cols), &bytes[i], 0).unwrap());
    for tokens in [1, 3] {
        let x = Tokens::random(&mut random, Form::Q8, Data::Plain, cols, tokens);
        for (at, stride) in [([2, 35, 53], 123), ([0, 90 * tokens, 90 * tokens + 20], 90), ([5, 38, 85 * tokens], 80)] {
            for kernels in tables() {
                let mut out = vec![UNTOUCHED; stride * tokens + 300];
                let mut panels = vec![0xaa; 3 * panel_bytes(TensorType::Q8_0, cols)];
                let products = [(Some(w[0]), at[0]), (None, 0), (Some(w[1]), at[1]), (Some(w[2]), at[2])];
                let batch = Batch { products: &products, x: x.acts(), out: &mut out, stride };
                linear(kernels, &Three, &mut panels, batch, &());
                for (w, at) in w.into_iter().zip(at) {
                    let want = product(&SCALAR, w, &x.acts(), w.rows());
                    for (t, want) in want.chunks(w.rows()).enumerate() {
                        let got = &mut out[at + t * stride..][..w.rows()];
                        same(got, want, || format!("{}, {tokens} tokens, {} rows at {at}", kernels.name, w.rows()));
                        got.fill(UNTOUCHED);
                    }
                }
                assert!(out.iter().all(|&x| x == UNTOUCHED));
            }
        }
    }
}

/// An adapter adds its product to each output as one chain of fma that starts with the output of the model's matrix.
/// This holds if both products are computed in one call, and if the adapter's is added in a second call.
#[cfg(feature = "lora")]
#[test]
fn products_of_adapters() {
    let mut random = Random(19);
    let kinds = [TensorType::F32, TensorType::F16, TensorType::BF16];
    for case in 0..200 {
        let (data, kind) = (DATA[case % 3], random.pick(&kinds));
        let rows = [1 + random.below(70), 1 + random.below(70)];
        let (cols, rank, tokens) = (1 + random.below(40), 1 + random.below(36), 1 + random.below(5));
        let stride = rows[0] + rows[1] + random.below(3);
        // The adapter belongs to the last of the tokens.
        let before = random.below(tokens);
        let (own, first, factor) = (tokens - before, before * stride, 1.5);
        let bytes = |rows: usize, cols: usize, random: &mut Random| random.weights(kind, data, rows, cols, 0);
        let w = rows.map(|rows| bytes(rows, cols, &mut random));
        let (a, b) = (rows.map(|_| bytes(rank, cols, &mut random)), rows.map(|rows| bytes(rows, rank, &mut random)));
        let matrix = |bytes: &[u8], rows, cols| (kind, rows, cols, Edge::of(bytes));
        let x = Tokens::quantized(&SCALAR, Form::F32, random.floats(data, tokens * cols), tokens);
        let own_x = Acts { x: &x.x[before * cols..], tokens: own, ..x.acts() };
        let at = [0, rows[0]];
        let mut base = vec![UNTOUCHED; stride * (tokens - 1) + rows[0] + rows[1]];
        let (mut want, mut low) = (base.clone(), vec![]);
        for i in 0..2 {
            let of = |bytes: &[u8], rows, cols, x: &Acts<'_>| {
                let edge = Edge::of(bytes);
                product(&SCALAR, Matrix::at(kind, (rows, cols), &edge, 0).unwrap(), x, rows)
            };
            for (t, y) in of(&w[i], rows[i], cols, &x.acts()).chunks(rows[i]).enumerate() {
                want[at[i] + t * stride..][..rows[i]].copy_from_slice(y);
            }
            low.extend(of(&a[i], rank, cols, &own_x).into_iter().map(|x| x * factor));
        }
        base.copy_from_slice(&want);
        for i in 0..2 {
            let mut weights = vec![0.0; rows[i] * rank];
            assert!(decode_row(kind, &b[i], &mut weights));
            for (t, x) in low[i * own * rank..][..own * rank].chunks(rank).enumerate() {
                for (w, y) in weights.chunks(rank).zip(&mut want[first + at[i] + t * stride..]) {
                    *y = w.iter().zip(x).fold(*y, |y, (w, x)| libm::fmaf(*w, *x, y));
                }
            }
        }
        let edges =
            [0, 1].map(|i| [matrix(&w[i], rows[i], cols), matrix(&a[i], rank, cols), matrix(&b[i], rows[i], rank)]);
        let of = |k: usize| edges.each_ref().map(|all| Matrix::at(kind, (all[k].1, all[k].2), &all[k].3, 0));
        let (ws, as_, bs) = (of(0), of(1), of(2));
        let a = [(as_[0], 0), (as_[1], own * rank)];
        let (w, b) = ([(ws[0], 0), (None, 0), (ws[1], at[1])], [(bs[0], 0), (bs[1], at[1])]);
        for kernels in tables().into_iter().chain([&SCALAR]) {
            for workers in [&Serial as &dyn Workers, &Three] {
                let named = |how: &str| {
                    format!(
                        "{} {kind:?} {data:?}, {rows:?} rows, rank {rank}, {own} of {tokens} tokens, {how}",
                        kernels.name
                    )
                };
                let mut space = Edge::of(&vec![f32::NAN; low.len()]);
                let (x_edge, mut out) = (Edge::of(&x.x), Edge::of(&vec![UNTOUCHED; base.len()]));
                let acts = Acts { x: &x_edge, ..x.acts() };
                let own_x = Acts { x: &x_edge[before * cols..], ..own_x };
                let pairs = LowRank::new((&a, &b), own_x, (&mut space, rank), factor, first);
                linear(kernels, workers, &mut [], Batch { products: &w, x: acts, out: &mut out, stride }, &pairs);
                same(&out, &want, || named("together"));

                let mut out = Edge::of(&base);
                let pairs = LowRank::new((&a, &b), own_x, (&mut space, rank), factor, first);
                add_low_rank(kernels, workers, &pairs, &mut out, stride);
                same(&out, &want, || named("after the products"));

                let (mut out, mut given) = (Edge::of(&base), Edge::of(&low));
                let pairs = LowRank::new((&[], &b), own_x, (&mut given, rank), 1.0, first);
                add_low_rank(kernels, workers, &pairs, &mut out, stride);
                same(&out, &want, || named("with A x given"));
            }
        }
    }
}

/// Sums of negative products that round to -0. The sum is -0, or +0 if zeros fill up the last sixteen lanes.
#[test]
fn sums_of_what_rounds_to_nothing() {
    for kind in [TensorType::F32, TensorType::F16, TensorType::BF16] {
        for cols in 1..=80 {
            let (bytes, at) =
                if kind == TensorType::F32 { (4, 0) } else { (2, 2 * usize::from(kind == TensorType::BF16)) };
            let small = if kind == TensorType::F16 { [0x01, 0x80, 0, 0] } else { (-6e-8f32).to_le_bytes() };
            let data = small[at..at + bytes].repeat(3 * cols);
            let w = Matrix::at(kind, (3, cols), &data, 0).unwrap();
            let x = Tokens::quantized(&SCALAR, Form::F32, vec![1e-40; cols], 1);
            let want = product(&SCALAR, w, &x.acts(), 3);
            assert_eq!(want[0].to_bits(), if cols % 16 == 0 { 1 << 31 } else { 0 });
            for kernels in tables() {
                same(&product(kernels, w, &x.acts(), 3), &want, || {
                    format!("{} {kind:?}, {cols} columns", kernels.name)
                });
            }
        }
    }
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

/// Every block format, in two threads to save time.
#[test]
fn block_weights() {
    std::thread::scope(|scope| {
        for half in [0, 1] {
            scope.spawn(move || block_types().into_iter().skip(half).step_by(2).for_each(check_products));
        }
    });
}

/// Compares the dot products with sums in f64 over decoded rows, which use no kernel.
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
            let w = Matrix::at(kind, (1, cols), &bytes, 0).unwrap();
            let got = f64::from(product(&SCALAR, w, &x.acts(), 1)[0]);
            // Per block there are two roundings, and one of the minimum. Scales that are not f16 are random, so that
            // some values exceed f32 and are left out.
            if size < 1e38 {
                assert!((got - want).abs() <= 4e-6 * size, "{kind:?}: {got}, not {want}");
                compared += 1;
            }
        }
        assert!(compared >= 5, "{kind:?}");
    }
}

/// An f16 or bf16 weight is read exactly, for each of the 65536 values.
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
        let w = Matrix::at(kind, (65536, span), &bytes, 0).unwrap();
        let want = product(&SCALAR, w, &x.acts(), 65536);
        for kernels in tables() {
            same(&product(kernels, w, &x.acts(), 65536), &want, || format!("{} {kind:?}", kernels.name));
        }
    }
}

/// Activations without tokens, or with slices of another length than the shape, are refused before a kernel reads them.
#[test]
fn activations_of_another_shape_leave_the_outputs_unchanged() {
    let mut random = Random(3);
    for kind in [TensorType::F32, TensorType::Q8_0, TensorType::Q4_K, TensorType::TQ2_0] {
        let (rows, cols, form) = (16, 256, Form::of(kind).unwrap());
        let bytes = random.weights(kind, Data::Plain, rows, cols, 0);
        let w = Matrix::at(kind, (rows, cols), &bytes, 0).unwrap();
        for tokens in [1, 3] {
            let x = Tokens::random(&mut random, form, Data::Plain, cols, tokens);
            let longer = |n: usize| vec![1.0; n + 1];
            let (x1, d1, q1) = (longer(x.x.len()), longer(x.d.len()), vec![1; x.q.len() + 1]);
            let sums1 = vec![1; x.sums.len() + 1];
            let mut wrong =
                vec![Acts { tokens: 0, ..x.acts() }, Acts { x: &x1, ..x.acts() }, Acts { x: &x.x[1..], ..x.acts() }];
            if form != Form::F32 {
                let shorter = Acts { d: &x.d[1..], ..x.acts() };
                wrong.extend([
                    Acts { d: &d1, ..x.acts() },
                    Acts { q: &q1, ..x.acts() },
                    Acts { sums: &sums1, ..x.acts() },
                    shorter,
                ]);
            }
            for kernels in tables().into_iter().chain([&SCALAR]) {
                for x in &wrong {
                    let mut out = vec![UNTOUCHED; rows * tokens];
                    let mut panel = vec![0; panel_bytes(kind, cols)];
                    let products = &[(Some(w), 0)];
                    // With debug assertions, the refusal is a panic.
                    let _ = catch_unwind(AssertUnwindSafe(|| {
                        let batch = Batch { products, x: *x, out: &mut out, stride: rows };
                        linear(kernels, &Serial, &mut panel, batch, &());
                    }));
                    assert!(out.iter().all(|out| *out == UNTOUCHED), "{} {kind:?}, {} tokens", kernels.name, x.tokens);
                }
            }
        }
    }
}
