//! Compares matrix products of the board's kernels with those of the scalar kernels, bit for bit. Weights and
//! activations are random; some activations are so small or large that their scales round to 0 or overflow.
#![no_std]
#![no_main]

use arenite::Kernels;
use arenite::kernel::SCALAR;
use arenite::kernel::internals::{Acts, Batch, Form, Functions, Matrix, SUM_SPAN, halves, linear};
use arenite::quant::TensorType;
use arenite::workers::Serial;
use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};

const COLS: usize = 1024;
const ROWS: usize = 13;
const TOKENS: usize = 3;

/// A xorshift generator.
struct Random(u32);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

/// Computes a product with one table of kernels.
fn products(
    kernels: &Kernels,
    kind: TensorType,
    (rows, cols, tokens): (usize, usize, usize),
    weights: &[u8],
    x: &[f32],
) -> Option<[f32; ROWS * TOKENS]> {
    let (mut q, mut d, mut sums) = ([0; COLS * TOKENS], [0.0; COLS * TOKENS / 16], [0; COLS * TOKENS / 16]);
    let form = Form::of(kind)?;
    let q = q.get_mut(..x.len())?;
    let d = d.get_mut(..if form == Form::F32 { 0 } else { x.len() / form.span() })?;
    let sums = sums.get_mut(..x.len() / SUM_SPAN)?;
    kernels.quantize(form, x, q, d, sums);
    let (mut panels, mut out) = ([0; 1 << 16], [12345.678; ROWS * TOKENS]);
    let products = &[(Matrix::at(kind, (rows, cols), weights, 0), 0)];
    let x = Acts { x, q, d, sums, tokens };
    linear(kernels, &Serial, &mut panels, Batch { products, x, out: out.get_mut(..rows * tokens)?, stride: rows }, &());
    Some(out)
}

/// Compares products of different shapes. Returns the number of products that differ.
fn compare(kind: TensorType, scale: f32, random: &mut Random) -> Option<usize> {
    let (elements, block_bytes) = kind.block();
    let mut different = 0;
    for case in 0..=4 * ROWS {
        let (rows, tokens) = (1 + case % ROWS, 1 + case % TOKENS);
        let cols = if elements == 1 { 48 } else { elements } * (1 + random.bits() as usize % 3);
        let (mut weights, mut x) = ([0; 2 * COLS * ROWS], [0.0; COLS * TOKENS]);
        let skip = random.bits() as usize % 4;
        let weights = weights.get_mut(skip..skip + rows * cols / elements * block_bytes)?;
        for block in weights.chunks_exact_mut(block_bytes) {
            block.fill_with(|| random.bits() as u8);
            // The scales, and the scales of minimums: any f16 of magnitude less than 2.
            if elements == 1 {
                block.last_mut().into_iter().for_each(|byte| *byte &= 0xbf);
            }
            halves(kind).filter_map(|at| Some(*block.get_mut(at + 1)? &= 0xbf)).for_each(drop);
        }
        let x = x.get_mut(..cols * tokens)?;
        x.fill_with(|| (random.bits() as i32) as f32 * scale);
        // A block of zeros.
        if random.bits() % 4 == 0 {
            x.get_mut(..32)?.fill(0.0);
        }
        let fast = products(Kernels::detect(), kind, (rows, cols, tokens), weights, x)?;
        let reference = products(&SCALAR, kind, (rows, cols, tokens), weights, x)?;
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        different += usize::from(!fast.iter().zip(&reference).all(same));
    }
    Some(different)
}

#[allow(clippy::empty_loop)] // qemu has exited by now
#[entry]
fn main() -> ! {
    let mut random = Random(48);
    let mut status = debug::EXIT_SUCCESS;
    let kinds = (0..=u32::from(u8::MAX)).filter_map(TensorType::from_id);
    for kind in kinds.filter(|kind| kind.is_built() && Form::of(*kind).is_some()) {
        for scale in [1e-9, 1e-20, 1e-32, 1e-45, 1e28] {
            let different = compare(kind, scale, &mut random).unwrap_or(1);
            if different > 0 {
                hprintln!("{:?} times {:e}: {} products differ", kind, scale, different);
                status = debug::EXIT_FAILURE;
            }
        }
        hprintln!("{:?}: compared", kind);
    }
    debug::exit(status);
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    debug::exit(debug::EXIT_FAILURE);
    loop {
        core::hint::spin_loop();
    }
}
