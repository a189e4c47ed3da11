//! Matrix products of every weight type with every instruction set, beside the limits of the machine.
//!
//! A product with one token is limited by reading the weights: compare its bytes per second with those of `read`, which
//! only reads the same bytes, from the cache (the same matrix again and again) and from memory (many matrices in turn).
//! A product with many tokens is limited by multiplying: compare its items per second, which are multiplications, with
//! those of `limit`.
//!
//!    cargo bench -p kernel-benches --bench kernels -- one_token
//!
//! With `--report`, this program prints a table of speed-ups over scalar code, and writes a chart.

mod report;

use std::cell::Cell;
use std::fmt;

use arenite::kernel::internals::{Acts, Batch, Form, Functions, Matrix, SUM_SPAN, linear, panel_bytes};
use arenite::quant::TensorType;
use arenite::workers::Serial;
use arenite::{Kernels, Line};
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use kernel_benches::{Multiplier, multipliers, read};

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--report");
    if arguments.next().is_none() {
        return divan::main();
    }
    let file = arguments.find(|argument| !argument.starts_with("--")); // cargo adds `--bench`
    report::run(file.as_deref().unwrap_or(concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels.svg")));
}

/// Number of rows, and of columns, of a matrix.
const SIDE: usize = 4096;
/// Tokens in a batch.
const TOKENS: usize = 64;
/// More bytes than any cache holds.
const MEMORY: usize = 512 << 20;

/// Every weight type that this build runs.
fn types() -> impl Iterator<Item = TensorType> {
    (0..256).filter_map(TensorType::from_id).filter(|kind| kind.is_built())
}

/// A weight type with an instruction set.
struct Case {
    kind: TensorType,
    kernels: &'static Kernels,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.kernels.name)
    }
}

fn cases() -> Vec<Case> {
    Kernels::request_amx();
    let all = |kind| Kernels::available().map(move |kernels| Case { kind, kernels });
    types().flat_map(all).collect()
}

/// Bytes of a matrix.
fn size(kind: TensorType) -> usize {
    SIDE * kind.row_bytes(SIDE).unwrap_or(0)
}

/// Makes `count` matrices with arbitrary bytes, except for the scales, which are all small and normal.
fn matrices(kind: TensorType, count: usize) -> Vec<u8> {
    let (_, block) = kind.block();
    let mut bytes = vec![0x21; size(kind) * count];
    for (i, byte) in bytes.iter_mut().enumerate().filter(|(i, _)| i % block > 1 && i % block < block - 2) {
        *byte = (i * 37 % 251) as u8;
    }
    bytes
}

/// Activations of `tokens` tokens, and the other operands of a product.
struct Input {
    x: Vec<f32>,
    q: Vec<i8>,
    d: Vec<f32>,
    sums: Vec<i16>,
    panel: Vec<Line>,
    out: Vec<f32>,
    tokens: usize,
}

impl Input {
    fn new(kind: TensorType, tokens: usize) -> Self {
        let n = SIDE * tokens;
        let form = Form::of(kind).expect("a kernel");
        let quantized = if form == Form::F32 { 0 } else { n };
        Self {
            x: (0..n).map(|i| (i * 29 % 83) as f32 / 41.0 - 1.0).collect(),
            q: vec![0; quantized],
            d: vec![0.0; quantized / form.span()],
            sums: vec![0; quantized / SUM_SPAN],
            panel: vec![Line::ZERO; panel_bytes(kind, SIDE).div_ceil(64)],
            out: vec![0.0; n],
            tokens,
        }
    }

    /// Quantizes, then calls `bench` with a function that multiplies with given weights.
    fn with(&mut self, case: &Case, bench: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let Self { x, q, d, sums, panel, out, tokens } = self;
        case.kernels.quantize(Form::of(case.kind).expect("a kernel"), x, q, d, sums);
        let x = Acts { x, q, d, sums, tokens: *tokens };
        let panel = Line::bytes_mut(panel);
        bench(&mut |weights| {
            let products = &[(Matrix::at(case.kind, (SIDE, SIDE), black_box(weights), 0), 0)];
            linear(case.kernels, &Serial, panel, Batch { products, x, out, stride: SIDE }, &());
        });
    }
}

/// Returns the next matrix in `all`, and the first one after the last.
fn next<'a>(all: &'a [u8], size: usize, at: &Cell<usize>) -> &'a [u8] {
    let start = at.get();
    at.set(if start + 2 * size <= all.len() { start + size } else { 0 });
    &all[start..start + size]
}

mod one_token {
    use super::*;

    #[divan::bench(args = cases(), max_time = 1)]
    fn from_cache(bencher: Bencher<'_, '_>, case: &Case) {
        run(bencher, case, 1);
    }

    #[divan::bench(args = cases(), max_time = 1)]
    fn from_memory(bencher: Bencher<'_, '_>, case: &Case) {
        run(bencher, case, MEMORY / size(case.kind));
    }

    fn run(bencher: Bencher<'_, '_>, case: &Case, count: usize) {
        let (all, size, at) = (matrices(case.kind, count), size(case.kind), Cell::new(0));
        let bencher = bencher.counter(BytesCount::new(size));
        Input::new(case.kind, 1).with(case, |multiply| bencher.bench_local(|| multiply(next(&all, size, &at))));
    }
}

/// Products with the tokens of a draft. They read as many weights as one token does.
mod few_tokens {
    use super::*;

    fn few() -> impl Iterator<Item = Few> {
        cases()
            .into_iter()
            .flat_map(|Case { kind, kernels }| (1..=8).map(move |tokens| Few(Case { kind, kernels }, tokens)))
    }

    #[divan::bench(args = few(), max_time = 1)]
    fn from_cache(bencher: Bencher<'_, '_>, few: &Few) {
        run(bencher, few, 1);
    }

    #[divan::bench(args = few(), max_time = 1)]
    fn from_memory(bencher: Bencher<'_, '_>, few: &Few) {
        run(bencher, few, MEMORY / size(few.0.kind));
    }

    fn run(bencher: Bencher<'_, '_>, Few(case, tokens): &Few, count: usize) {
        let (all, size, at) = (matrices(case.kind, count), size(case.kind), Cell::new(0));
        let bencher = bencher.counter(BytesCount::new(size));
        Input::new(case.kind, *tokens).with(case, |multiply| bencher.bench_local(|| multiply(next(&all, size, &at))));
    }

    struct Few(Case, usize);

    impl fmt::Display for Few {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} {}", self.0, self.1)
        }
    }
}

/// The upper limit of `one_token`.
mod read {
    use super::*;

    #[divan::bench(args = types(), max_time = 1)]
    fn from_cache(bencher: Bencher<'_, '_>, kind: TensorType) {
        run(bencher, kind, 1);
    }

    #[divan::bench(args = types(), max_time = 1)]
    fn from_memory(bencher: Bencher<'_, '_>, kind: TensorType) {
        run(bencher, kind, MEMORY / size(kind));
    }

    fn run(bencher: Bencher<'_, '_>, kind: TensorType, count: usize) {
        let (all, size, at) = (matrices(kind, count), size(kind), Cell::new(0));
        bencher.counter(BytesCount::new(size)).bench_local(|| super::read(next(&all, size, &at)));
    }
}

#[divan::bench(args = cases(), max_time = 1)]
fn many_tokens(bencher: Bencher<'_, '_>, case: &Case) {
    let all = matrices(case.kind, 1);
    let bencher = bencher.counter(ItemsCount::new(SIDE * SIDE * TOKENS));
    Input::new(case.kind, TOKENS).with(case, |multiply| bencher.bench_local(|| multiply(&all)));
}

struct Limit(Multiplier);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

/// The upper limit of `many_tokens` with quantized weights.
#[divan::bench(args = multipliers().into_iter().map(Limit), max_time = 1)]
fn limit(bencher: Bencher<'_, '_>, limit: &Limit) {
    bencher.counter(ItemsCount::new(limit.0.count)).bench_local(limit.0.run);
}
