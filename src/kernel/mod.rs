//! The arithmetic: one table of functions ([`Kernels`]) per instruction set.
//!
//! [`Kernels::detect`] picks the fastest table that the running machine supports; [`Kernels::by_name`] selects a table
//! by name. All tables compute the same bits. The operations are defined once: float operations in `lanes`, `float` and
//! `attention`, quantized dot products in `dot`.
//!
//! Block, group, chunk and code are defined in `quant/format.rs`. The other terms of the kernels are:
//!
//! - A **row** is the `cols` weights of one output of a linear layer.
//! - A **panel** is 16 rows of weights, repacked for an instruction set.
//! - A **span** is the consecutive activations that share a scale.
//! - A **lane** is one of the 16 floats of a vector (`lanes::Lanes`).
//! - A **tile** of a product is `R` rows by `T` tokens of outputs, computed together in registers. A tile of the KV
//!   cache is 16 positions of one KV head. A tile of a recurrent state is 16 of its columns.
#![allow(unsafe_code)]
// Types that are not public without this feature.
#![cfg_attr(feature = "internals", allow(missing_docs, rustdoc::private_intra_doc_links))]

#[macro_use]
mod table;

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod aarch64;
mod addend;
#[cfg(any(arm_fpu, cortex_m_dsp))]
mod arm;
mod attention;
mod cache;
mod dot;
mod float;
#[cfg(any(target_arch = "arm", target_arch = "riscv32", target_arch = "xtensa", test))]
#[cfg_attr(any(arm_fpu, riscv_fpu), allow(dead_code))]
mod fma;
mod fork;
mod form;
#[cfg(any(all(target_arch = "riscv64", target_os = "linux"), arm_linux))]
mod fours;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod job;
mod lanes;
mod linear;
#[cfg(feature = "lora")]
mod low_rank;
mod matrix;
mod panel;
mod peak;
// Some targets use only a part of this module.
#[cfg_attr(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), memory_sanitizer), allow(dead_code))]
mod quantized;
mod recurrent;
#[cfg(all(target_arch = "riscv64", target_os = "linux"))]
mod riscv;
mod scalar;
mod selective;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;
mod wkv;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(memory_sanitizer)))]
mod x86;

pub(crate) use addend::Addend;
pub(crate) use attention::{Attention, Bias};
pub(crate) use cache::{load, store};
pub(crate) use float::Deviation;
pub(crate) use fork::{fork_chunks, fork_pairs};
pub(crate) use form::Form;
pub(crate) use job::Acts;
pub(crate) use lanes::TILE;
pub(crate) use linear::{Batch, Product, linear, linear_alone, quantize};
#[cfg(feature = "lora")]
pub(crate) use low_rank::{LowRank, add_low_rank};
pub(crate) use matrix::{Kind, Matrix};
#[cfg(feature = "storage")]
pub(crate) use panel::PANEL_ROWS;
pub(crate) use panel::panel_bytes;
pub(crate) use recurrent::{CausalConvolution, MAX_TAPS, Recurrence, Update};
pub(crate) use selective::Scan;
pub(crate) use wkv::Wkv;

use crate::quant::formats_list;
use job::Job;

/// Maximum number of query rows that attention processes at once, over all tables. The scratch memory has room for this
/// many rows.
pub(crate) const MAX_ROWS: usize = 8;

/// `x = y`, up to the shorter length.
#[inline]
pub(crate) fn copy(x: &mut [f32], y: &[f32]) {
    <scalar::Here as scalar::Unit>::copy(x, y);
}

/// Copies row `from` of `rows`, `[rows][len]`, to row `to`. Does nothing if one of these rows does not exist.
#[cfg(any(feature = "drafts", feature = "vision"))]
pub(crate) fn copy_row<T: Copy>(rows: &mut [T], len: usize, from: usize, to: usize) {
    // Copies through cells, because the compiler cannot rule out a panic in `copy_within`.
    let cells = core::cell::Cell::from_mut(rows).as_slice_of_cells();
    let row = |index: usize| cells.get(index * len..(index + 1) * len).unwrap_or(&[]);
    row(to).iter().zip(row(from)).for_each(|(to, from)| to.set(from.get()));
}

/// `x += y`, up to the shorter length.
#[inline]
pub(crate) fn add(x: &mut [f32], y: &[f32]) {
    <scalar::Here as scalar::Unit>::add(x, y);
}

/// The square root.
#[inline]
pub(crate) fn sqrt(x: f32) -> f32 {
    <scalar::Here as scalar::Unit>::sqrt(x)
}

/// Rotates pairs. In every `dim` elements of `x`, each pair is multiplied by a complex number, whose real part is in
/// `cos` and whose imaginary part is in `sin`. Stops at the end of the shortest slice.
#[inline]
pub(crate) fn rotate_pairs(x: &mut [f32], dim: usize, cos: &[f32], sin: &[f32]) {
    <scalar::Here as scalar::Unit>::rotate_pairs(x, dim, cos, sin);
}

/// The activation function of a feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU in the tanh approximation.
    GeluTanh,
    /// Exact GELU, by the error function.
    GeluErf,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    ReluSquared,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The SwiGLU variant of [gpt-oss](https://arxiv.org/abs/2508.10925): `min(x, 7) * sigmoid(1.702 min(x, 7))`,
    /// multiplied by `up + 1`, where `up` is the other input of the gated layer, clamped to -7..7.
    ClampedSwiglu,
    /// `exp(-exp(-1/2) / (1 + exp(-x)))`: the decay of [RWKV-7](https://arxiv.org/abs/2503.14456).
    Decay,
    /// `exp(-exp(x))`: the decay of [RWKV-6](https://arxiv.org/abs/2404.05892).
    DoubleExponential,
}

/// The functions of one instruction set. All tables compute the same bits.
///
/// # Examples
///
/// ```
/// use arenite::{Gguf, Kernels, Line, Model, Options, Plan, Session};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let model = Model::new(&gguf)?;
/// # let plan = Plan::new(&gguf, Options::new().context(64))?;
/// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
/// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
/// let mut before: Option<Vec<f32>> = None;
/// for kernels in Kernels::available() {
///     let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
///     let mut session = Session::new(&model, plan, workspace, kv)?.with_kernels(kernels);
///     session.prefill(&[1, 300, 301])?;
///     let logits = session.logits().to_vec();
///     assert!(before.is_none_or(|before| before == logits)); // the same bits
///     before = Some(logits);
/// }
/// # Ok::<(), arenite::Error>(())
/// ```
pub struct Kernels {
    /// Name of the instruction set: the value of the command-line option `--isa`.
    pub name: &'static str,
    matmul: unsafe fn(&mut Job<'_>),
    #[allow(clippy::type_complexity)] // the arguments are described at `Kernels::quantize`
    quantize: unsafe fn(Form, &[f32], &mut [i8], &mut [f32], &mut [i16]),
    rms_norm: unsafe fn(&mut [f32], &[u8], f32),
    layer_norm: unsafe fn(&mut [f32], &[u8], &[u8], Deviation),
    activate: unsafe fn(Activation, &mut [f32], Option<&[f32]>),
    soft_cap: unsafe fn(&mut [f32], f32),
    to_f16: unsafe fn(&[f32], &mut [u8]),
    store_floats: unsafe fn(&cache::Place, &mut [u8], &[f32], &[f32]),
    #[cfg(feature = "lora")]
    add_product: unsafe fn(&mut Job<'_>),
    #[cfg(feature = "lora")]
    prefetch: unsafe fn(&[u8]),
    convolve: unsafe fn(&CausalConvolution<'_>, &mut [f32], usize, &mut [f32]),
    recur: unsafe fn(&Update<'_>, &mut [f32], &mut [f32]),
    attend: unsafe fn(&Attention<'_>, &mut [f32], usize, &mut [f32]),
}

/// Plain Rust, for every target: the reference for all other tables.
pub static SCALAR: Kernels = table!("scalar", scalar::Scalar, scalar_matmul);

formats_list!(choose scalar_matmul scalar_floats scalar_blocks);

fn scalar_floats<W: float::Weight>(job: &mut Job<'_>) {
    float::matmul::<_, W, 1, 1>(scalar::Scalar::<scalar::Portable>::HERE, job);
}
use dot::matmul as scalar_blocks;

impl Kernels {
    /// All tables that this machine can run, the fastest first. If [`request_amx`](Self::request_amx) has returned
    /// true, `amx` comes first.
    pub fn available() -> impl Iterator<Item = &'static Kernels> {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(memory_sanitizer)))]
        let simd = x86::available();
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        let simd = aarch64::available();
        #[cfg(any(arm_fpu, cortex_m_dsp))]
        let simd = arm::available();
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        let simd = core::iter::once(&wasm::SIMD128);
        #[cfg(all(target_arch = "riscv64", target_os = "linux"))]
        let simd = riscv::available();
        #[cfg(not(any(
            all(target_arch = "x86_64", target_feature = "sse2", not(memory_sanitizer)),
            all(target_arch = "aarch64", target_feature = "neon"),
            all(target_arch = "wasm32", target_feature = "simd128"),
            all(target_arch = "riscv64", target_os = "linux"),
            arm_fpu,
            cortex_m_dsp
        )))]
        let simd = core::iter::empty();
        simd.chain([&SCALAR])
    }

    /// Asks the operating system for permission to use the tile registers of Intel AMX. Returns true if the processor
    /// has AMX-INT8 and AVX-512 with VNNI, and if the process now has the permission. Then `amx` is the first of the
    /// [available](Self::available) tables. This table uses tiles for passes of 16 or more tokens with weights in block
    /// formats, and AVX-512 for all other passes and weights.
    ///
    /// Without this call the crate neither asks for permission nor uses tiles. Call this function once, at the start of
    /// the program. Linux requires the permission because tiles add 8 KB to the state of a thread, which signal frames
    /// also contain. Linux refuses if an alternate signal stack is too small for such a frame
    /// ([documentation](https://docs.kernel.org/arch/x86/xstate.html)). On other systems the result is false.
    ///
    /// `amx` computes the same bits as all other tables. This was tested by emulation, not yet on a processor with AMX,
    /// and the speed of `amx` has not been measured. `by_name("avx512")` selects AVX-512 without tiles.
    pub fn request_amx() -> bool {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(memory_sanitizer)))]
        return x86::request_amx();
        #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(memory_sanitizer))))]
        false
    }

    /// The first of the [available](Self::available) tables.
    pub fn detect() -> &'static Kernels {
        Self::available().next().unwrap_or(&SCALAR)
    }

    /// The table of this name, if this machine can run it.
    pub fn by_name(name: &str) -> Option<&'static Kernels> {
        Self::available().find(|kernels| kernels.name == name)
    }

    #[inline]
    fn matmul(&self, job: &mut Job<'_>) {
        // SAFETY: `available` returns a table only if the processor has the table's instruction set, and callers of
        // `internals::amx_table` promise that the processor has it. `Job::new` checked the shapes, and its caller
        // promised that the outputs may be written.
        unsafe { (self.matmul)(job) }
    }

    /// `out[t * stride + r] += row r of w * token t`, for float weights.
    #[cfg(feature = "lora")]
    #[inline]
    fn add_product(&self, job: &mut Job<'_>) {
        // SAFETY: see `matmul`.
        unsafe { (self.add_product)(job) }
    }

    /// Prefetches `bytes` into the second-level cache, if the table has an instruction for prefetching.
    #[cfg(feature = "lora")]
    #[inline]
    fn prefetch(&self, bytes: &[u8]) {
        // SAFETY: see `matmul`.
        unsafe { (self.prefetch)(bytes) }
    }

    /// Quantizes the activations of one or more tokens. `q` is as long as `x`, `d` has a scale per span of `form`, and
    /// `sums` has a sum per 16 elements.
    #[inline]
    pub(crate) fn quantize(&self, form: Form, x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
        // SAFETY: the instruction set is available, as explained in `matmul`. The kernel stops at the end of the
        // shortest slice.
        unsafe { (self.quantize)(form, x, q, d, sums) }
    }

    /// RMS norm in place: `x / sqrt(mean(x^2) + eps) * weight`. An empty `weight` means 1.
    #[inline]
    pub(crate) fn rms_norm(&self, x: &mut [f32], weight: &[u8], eps: f32) {
        // SAFETY: the instruction set is available, see `matmul`; the kernel checks the length of its slices.
        unsafe { (self.rms_norm)(x, weight, eps) }
    }

    /// Layer norm in place: `(x - mean) / deviation * weight + bias`.
    #[inline]
    pub(crate) fn layer_norm(&self, x: &mut [f32], weight: &[u8], bias: &[u8], deviation: Deviation) {
        // SAFETY: the instruction set is available, see `matmul`; the kernel checks the length of its slices.
        unsafe { (self.layer_norm)(x, weight, bias, deviation) }
    }

    /// `x = f(x)`, or `x = f(x) * up` if there is an `up`.
    #[inline]
    pub(crate) fn activate(&self, f: Activation, x: &mut [f32], up: Option<&[f32]>) {
        // SAFETY: the instruction set is available, see `matmul`; the kernel checks the length of its slices.
        unsafe { (self.activate)(f, x, up) }
    }

    /// `x = cap * tanh(x / cap)`.
    #[inline]
    pub(crate) fn soft_cap(&self, x: &mut [f32], cap: f32) {
        // SAFETY: the instruction set is available, see `matmul`; the kernel checks the length of its slices.
        unsafe { (self.soft_cap)(x, cap) }
    }

    /// Rounds `x` to little-endian f16, two bytes per element.
    #[inline]
    pub(crate) fn to_f16(&self, x: &[f32], out: &mut [u8]) {
        // SAFETY: the instruction set is available, see `matmul`; the kernel checks the length of its slices.
        unsafe { (self.to_f16)(x, out) }
    }

    /// Stores f32 keys and values of one or more heads at `at` in the KV cache.
    #[inline]
    fn store_floats(&self, at: &cache::Place, tiles: &mut [u8], keys: &[f32], values: &[f32]) {
        // SAFETY: the instruction set is available, see `matmul`; the kernel checks the length of its slices.
        unsafe { (self.store_floats)(at, tiles, keys, values) }
    }

    /// Causal convolution of consecutive tokens; see [`CausalConvolution`] for the shapes.
    #[inline]
    pub(crate) fn convolve(&self, job: &CausalConvolution<'_>, x: &mut [f32], stride: usize, state: &mut [f32]) {
        // SAFETY: the instruction set is available, see `matmul`; the kernel checks the length of its slices.
        unsafe { (self.convolve)(job, x, stride, state) }
    }

    /// Updates a recurrent state with consecutive tokens; see the variants of [`Update`] for the shapes.
    #[inline]
    pub(crate) fn recur(&self, job: &Update<'_>, state: &mut [f32], out: &mut [f32]) {
        // SAFETY: the instruction set is available, see `matmul`; the kernel checks the length of its slices.
        unsafe { (self.recur)(job, state, out) }
    }

    /// Attention for all query rows of `job`; see [`Attention`] for the shapes.
    #[inline]
    pub(crate) fn attend(&self, job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
        // SAFETY: the instruction set is available, see `matmul`; the kernel checks queries, tiles and outputs row by
        // row.
        unsafe { (self.attend)(job, out, out_stride, scratch) }
    }
}

impl core::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Kernels({})", self.name)
    }
}
