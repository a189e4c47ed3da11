//! Additions to the outputs of a matrix product. The worker that has computed an output also adds to it.

use core::ops::Range;

use super::Kernels;

/// Additions to the outputs of a matrix product. `()` adds nothing.
///
/// # Safety
///
/// If [`fits`](Self::fits) returns true, [`linear`](super::linear) calls [`add`](Self::add) without further checks.
/// `add` must therefore write only outputs that `fits` has checked to be inside `out`.
pub unsafe trait Addend: Sync {
    /// True if `add` writes only outputs of `tokens` tokens inside `len` floats, with `stride` floats per token.
    fn fits(&self, tokens: usize, len: usize, stride: usize) -> bool;
    /// Prefetches the weights that [`prepare`](Self::prepare) and [`add`](Self::add) need for the outputs in `range`.
    fn prefetch(&self, kernels: &Kernels, range: Range<usize>);
    /// Computes in advance what the additions need and what does not depend on the outputs of the matrix product. Skips
    /// those pieces of this work that other workers have already begun.
    fn prepare(&self, kernels: &Kernels);
    /// Adds to the outputs in `range` of each token, after waiting until the other workers have finished the work that
    /// they began in [`prepare`](Self::prepare). The outputs of token `t` begin at `out + t * stride`.
    ///
    /// # Safety
    ///
    /// [`fits`](Self::fits) is true for a number of tokens, the length of `out` and `stride`, nobody else accesses the
    /// outputs in `range` of any of these tokens, and [`prepare`](Self::prepare) has returned.
    unsafe fn add(&self, kernels: &Kernels, out: *mut f32, stride: usize, range: Range<usize>);
}

// SAFETY: `add` writes nothing.
unsafe impl Addend for () {
    #[inline(always)]
    fn fits(&self, _: usize, _: usize, _: usize) -> bool {
        true
    }
    #[inline(always)]
    fn prefetch(&self, _: &Kernels, _: Range<usize>) {}
    #[inline(always)]
    fn prepare(&self, _: &Kernels) {}
    #[inline(always)]
    unsafe fn add(&self, _: &Kernels, _: *mut f32, _: usize, _: Range<usize>) {}
}
