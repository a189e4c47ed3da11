//! The same arithmetic, fast: one table of functions for each instruction set.
//!
//! [`Kernels`] is that table. [`Kernels::detect`] picks the best one for the running machine;
//! [`Kernels::by_name`] forces one. All tables compute the same bits: see `lanes`, `float` and
//! `attention` for the float operations, each stated once, and `scalar` for the quantized dot
//! products, each stated as a reference that the others equal.
#![allow(unsafe_code)]

#[macro_use]
mod table;

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod aarch64;
#[cfg(any(cortex_m_fpu, cortex_m_dsp))]
mod arm;
mod attention;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod cache;
mod float;
mod fork;
mod lanes;
mod linear;
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))] // some use a part of it
mod quantized;
mod recurrent;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86;

pub(crate) use attention::{Attention, Bias};
pub(crate) use cache::store;
pub(crate) use fork::{fork_chunks, fork_pairs, quantize};
pub(crate) use linear::{Matrix, Product, linear, panel_bytes};
pub(crate) use recurrent::{Convolution, MAX_TAPS, Recurrence};

use crate::quant::TensorType;

/// The most query rows that any table's attention takes at once: what its scratch has room for.
pub(crate) const MAX_ROWS: usize = 8;

/// The activation function of a feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU in its tanh form.
    GeluTanh,
    /// GELU as it is defined, by the error function.
    GeluErf,
    /// The positive part.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `x * sigmoid(1.702 x)`, of `x` up to 7; what it is multiplied with is cut to -7..7, plus 1. The
    /// [gpt-oss](https://arxiv.org/abs/2508.10925) form of SwiGLU.
    ClampedSwiglu,
}

/// What a layer norm divides by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Deviation {
    /// `sqrt(mean of squares + eps)`: the usual one.
    Within(f32),
    /// `sqrt(sum of squares / (n - 1)) + eps`.
    Unbiased(f32),
}

/// The form of the activations that a weight type is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    F32,
    /// Bytes with a scale and an offset for every 32.
    Q8,
    /// Bytes with a scale for every 256 and an offset for every 16.
    Q8K,
}

impl Form {
    /// `None` for weight types that this build does not run.
    pub const fn of(kind: TensorType) -> Option<Self> {
        match kind {
            _ if !kind.is_built() => None,
            TensorType::F32 | TensorType::F16 | TensorType::BF16 => Some(Self::F32),
            TensorType::Q8_0 | TensorType::Q4_0 => Some(Self::Q8),
            TensorType::Q6_K => Some(Self::Q8K),
            _ => None,
        }
    }

    /// Elements for each scale and for each offset.
    pub const fn spans(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 1),
            Self::Q8 => (32, 32),
            Self::Q8K => (256, 16),
        }
    }
}

/// The activations of some tokens, as floats and in one quantized form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acts<'a> {
    /// `[tokens][cols]`.
    pub x: &'a [f32],
    /// `[tokens][cols]`, empty where the form is F32; likewise the next two.
    pub q: &'a [i8],
    /// Scales, `[tokens][cols / span]`.
    pub d: &'a [f32],
    /// What a sum of products begins with where the weights are made unsigned by adding 128 (Q8) or
    /// 32 (Q8K): minus that many times the sum of `q`, `[tokens][cols / span]`.
    pub offsets: &'a [i32],
    pub tokens: usize,
}

/// One token of [`Acts`].
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub q: &'a [i8],
    pub d: &'a [f32],
    #[allow(dead_code)] // the scalar kernels have signed weights
    pub offsets: &'a [i32],
}

impl<'a> Acts<'a> {
    /// Token `t`.
    fn row(&self, t: usize) -> Row<'a> {
        Row { q: self.part(self.q, t), d: self.part(self.d, t), offsets: self.part(self.offsets, t) }
    }

    /// Token `t` of one of the slices.
    fn part<T>(&self, all: &'a [T], t: usize) -> &'a [T] {
        let n = all.len() / self.tokens.max(1);
        all.get(t * n..(t + 1) * n).unwrap_or(&[])
    }
}

/// One worker's piece of a matrix product: `rows` rows that lie in `w` times all tokens of `x`.
///
/// `w` holds exactly `rows` rows of `cols` weights, `x` has `cols` elements a token in the form of
/// the weight type, `out + t * stride + r` may be written for every row and token, and `panel` has
/// [`panel_bytes`] if there are several tokens.
pub(crate) struct Job<'a> {
    w: &'a [u8],
    rows: usize,
    cols: usize,
    x: Acts<'a>,
    out: *mut f32,
    stride: usize,
    #[allow(dead_code)] // the scalar kernels pack nothing
    panel: &'a mut [u8],
}

/// The functions of one instruction set. All tables compute the same bits.
pub struct Kernels {
    /// Name of the instruction set, as `--isa` takes it.
    pub name: &'static str,
    matmul: unsafe fn(TensorType, &mut Job<'_>),
    #[allow(clippy::type_complexity)] // five slices, named at `Kernels::quantize`
    quantize: unsafe fn(Form, &[f32], &mut [i8], &mut [f32], &mut [i32]),
    rms_norm: unsafe fn(&mut [f32], &[u8], f32),
    layer_norm: unsafe fn(&mut [f32], &[u8], &[u8], Deviation),
    activate: unsafe fn(Activation, &mut [f32], Option<&[f32]>),
    soft_cap: unsafe fn(&mut [f32], f32),
    to_f16: unsafe fn(&[f32], &mut [u8]),
    convolve: unsafe fn(&Convolution<'_>, &mut [f32], usize, &mut [f32]),
    recur: unsafe fn(&Recurrence<'_>, &mut [f32], &mut [f32]),
    attend: unsafe fn(&Attention<'_>, &mut [f32], usize, &mut [f32]),
}

/// Plain Rust, on every target: the reference.
pub static SCALAR: Kernels = table!("scalar", scalar::Array, scalar_matmul);

#[inline(always)]
unsafe fn scalar_matmul(kind: TensorType, job: &mut Job<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match kind {
            TensorType::F32 => float::matmul::<scalar::Array, float::F32, 1, 1>(job),
            TensorType::F16 if const { TensorType::F16.is_built() } => {
                float::matmul::<scalar::Array, float::F16, 1, 1>(job)
            }
            TensorType::BF16 if const { TensorType::BF16.is_built() } => {
                float::matmul::<scalar::Array, float::Bf16, 1, 1>(job)
            }
            TensorType::Q8_0 if const { TensorType::Q8_0.is_built() } => scalar::matmul(job, scalar::dot_q8_0),
            TensorType::Q4_0 if const { TensorType::Q4_0.is_built() } => scalar::matmul(job, scalar::dot_q4_0),
            TensorType::Q6_K if const { TensorType::Q6_K.is_built() } => scalar::matmul(job, scalar::dot_q6_k),
            _ => {}
        }
    }
}

impl Kernels {
    /// The tables that this machine can run, the fastest first.
    pub fn available() -> impl Iterator<Item = &'static Kernels> {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        let simd = x86::available();
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        let simd = aarch64::available();
        #[cfg(any(cortex_m_fpu, cortex_m_dsp))]
        let simd = core::iter::once(&arm::CORTEX_M);
        #[cfg(not(any(
            all(target_arch = "x86_64", target_feature = "sse2"),
            all(target_arch = "aarch64", target_feature = "neon"),
            cortex_m_fpu,
            cortex_m_dsp
        )))]
        let simd = core::iter::empty();
        simd.chain([&SCALAR])
    }

    /// The fastest table that this machine can run.
    pub fn detect() -> &'static Kernels {
        Self::available().next().unwrap_or(&SCALAR)
    }

    /// The table of this name, if this machine can run it.
    pub fn by_name(name: &str) -> Option<&'static Kernels> {
        Self::available().find(|kernels| kernels.name == name)
    }

    /// # Safety
    ///
    /// As [`Job`] says.
    #[inline]
    unsafe fn matmul(&self, kind: TensorType, job: &mut Job<'_>) {
        // SAFETY: a table is only reachable where its instruction set is there.
        unsafe { (self.matmul)(kind, job) }
    }

    /// Quantizes one or more tokens: `q` as long as `x`, `d` and `offsets` one for each span of the form.
    #[inline]
    pub(crate) fn quantize(&self, form: Form, x: &[f32], q: &mut [i8], d: &mut [f32], offsets: &mut [i32]) {
        // SAFETY: as in `matmul`; the kernel stays within the shortest slice.
        unsafe { (self.quantize)(form, x, q, d, offsets) }
    }

    /// RMS norm in place: `x / sqrt(mean(x^2) + eps) * weight`. An empty weight is 1.
    #[inline]
    pub(crate) fn rms_norm(&self, x: &mut [f32], weight: &[u8], eps: f32) {
        // SAFETY: as in `matmul`; slices are checked where they are read.
        unsafe { (self.rms_norm)(x, weight, eps) }
    }

    /// Layer norm in place: `(x - mean) / deviation * weight + bias`.
    #[inline]
    pub(crate) fn layer_norm(&self, x: &mut [f32], weight: &[u8], bias: &[u8], deviation: Deviation) {
        // SAFETY: as in `matmul`; slices are checked where they are read.
        unsafe { (self.layer_norm)(x, weight, bias, deviation) }
    }

    /// `x = f(x)`, times `up` where there is one.
    #[inline]
    pub(crate) fn activate(&self, f: Activation, x: &mut [f32], up: Option<&[f32]>) {
        // SAFETY: as in `matmul`; slices are checked where they are read.
        unsafe { (self.activate)(f, x, up) }
    }

    /// `x = cap * tanh(x / cap)`.
    #[inline]
    pub(crate) fn soft_cap(&self, x: &mut [f32], cap: f32) {
        // SAFETY: as in `matmul`; slices are checked where they are read.
        unsafe { (self.soft_cap)(x, cap) }
    }

    /// Rounds `x` to little-endian f16, two bytes each.
    #[inline]
    pub(crate) fn to_f16(&self, x: &[f32], out: &mut [u8]) {
        // SAFETY: as in `matmul`; slices are checked where they are read.
        unsafe { (self.to_f16)(x, out) }
    }

    /// A causal convolution of some tokens' channels; see [`Convolution`] for the shapes.
    #[inline]
    pub(crate) fn convolve(&self, job: &Convolution<'_>, x: &mut [f32], stride: usize, state: &mut [f32]) {
        // SAFETY: as in `matmul`; slices are checked where they are read.
        unsafe { (self.convolve)(job, x, stride, state) }
    }

    /// A head's state through some tokens; see [`Recurrence`] for the shapes.
    #[inline]
    pub(crate) fn recur(&self, job: &Recurrence<'_>, state: &mut [f32], out: &mut [f32]) {
        // SAFETY: as in `matmul`; slices are checked where they are read.
        unsafe { (self.recur)(job, state, out) }
    }

    /// Attention of all rows of `job`; see [`Attention`] for the shapes.
    #[inline]
    pub(crate) fn attend(&self, job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
        // SAFETY: as in `matmul`; the job's ranges are checked row by row.
        unsafe { (self.attend)(job, out, out_stride, scratch) }
    }
}

impl core::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Kernels({})", self.name)
    }
}
