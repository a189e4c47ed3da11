//! 64-bit Arm: NEON, which every such core has; dot products (`sdot`); matrix products (`smmla`).

mod blocks;
mod detect;
mod dotprod;
mod i8mm;
mod neon;
mod q6k;

use super::quantized::{self, Blocks, Panel};
use super::{Job, Kernels, float};
use crate::quant::TensorType;
use blocks::{Q4_0, Q8_0, Rows};
use dotprod::Sdot;
use i8mm::Smmla;
use neon::{Neon, Widening};
use q6k::Q6K;

static NEON: Kernels = table!("neon", Neon, products::<Rows<Q8_0, Widening>, Rows<Q4_0, Widening>, Q6K<Widening>>);
static DOTPROD: Kernels = table!("dotprod", Neon, products::<Rows<Q8_0, Sdot>, Rows<Q4_0, Sdot>, Q6K<Sdot>>, "dotprod");
static I8MM: Kernels = table!("i8mm", Neon, products::<Smmla<Q8_0>, Smmla<Q4_0>, Q6K<Sdot>>, "dotprod,i8mm");

/// The tables that this machine can run, the fastest first.
pub(super) fn available() -> impl Iterator<Item = &'static Kernels> {
    let dotprod = detect::dotprod();
    let tables = [(dotprod && detect::i8mm(), &I8MM), (dotprod, &DOTPROD), (true, &NEON)];
    tables.into_iter().filter_map(|(there, table)| there.then_some(table))
}

/// Rows times tokens for every type of weights; the quantized ones as the instruction set has them.
#[inline(always)]
unsafe fn products<Q8: Panel, Q4: Panel, Q6: Blocks>(kind: TensorType, job: &mut Job<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match kind {
            TensorType::F32 => floats::<float::F32>(job),
            TensorType::F16 => floats::<float::F16>(job),
            TensorType::BF16 => floats::<float::Bf16>(job),
            TensorType::Q8_0 => quantized::matmul::<Q8, 4>(job),
            TensorType::Q4_0 => quantized::matmul::<Q4, 4>(job),
            TensorType::Q6_K => quantized::decode::<Q6>(job),
            _ => {}
        }
    }
}

/// A sum takes four registers, so four of them are at work at once, and their inputs have room beside them.
#[inline(always)]
unsafe fn floats<W: float::Weight>(job: &mut Job<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        if job.x.tokens == 1 {
            float::matmul::<Neon, W, 4, 1>(job);
        } else {
            float::matmul::<Neon, W, 2, 2>(job);
        }
    }
}
