//! The products of an adapter: `out += B (factor * A x)`, with few columns in `B`.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::Kernels;
use super::addend::Addend;
use super::fork::fork;
use super::form::Form;
use super::job::{Acts, Job};
use super::linear::{Out, Product, fit, part, rows, share};
use super::matrix::Matrix;
use super::panel::PANEL_ROWS;
use crate::workers::Workers;

/// Cost of a multiplication with an adapter's weight, relative to a multiplication with a quantized weight. The cost is
/// above 1, because an adapter's weight is a float, which takes longer to read.
const COST: usize = 4;

/// The products of adapters' low-rank matrices, added to the outputs of a linear layer: `out[at + t * stride + r] +=
/// row r of b * low[i][t]` for matrix `i` of `b`, which is stored with its offset `at`. Here `low[i] = factor * (a[i] *
/// x)`. All weights are floats, and all matrices of `b` have `rank` columns.
///
/// The workers first divide the rows of `a` among themselves, to compute `low`, and then the outputs. Each output is
/// one chain of fused multiply-adds over the columns of `b`.
pub struct LowRank<'a> {
    a: &'a [Product<'a>],
    b: &'a [Product<'a>],
    x: Acts<'a>,
    factor: f32,
    rank: usize,
    /// True if the last column of `b` is a bias. The last element of each `low[i][t]` is then set to `factor`.
    pub has_bias: bool,
    /// The index in `out` at which the outputs for the first token of `x` begin.
    first: usize,
    /// The products with `a`, `[b][tokens][rank]`.
    low: Out,
    /// Number of panels of all matrices of `a`.
    panels: usize,
    /// `taken` is the number of panels of `a` that workers have begun, `done` is the number that they have finished.
    taken: AtomicUsize,
    done: AtomicUsize,
}

impl<'a> LowRank<'a> {
    /// Creates the products of the matrix pairs `a` and `b` with the tokens `x`; without any pairs if the shapes do not
    /// match. If `a` is empty, `low` already contains the products with `a`.
    pub fn new(
        (a, b): (&'a [Product<'a>], &'a [Product<'a>]),
        x: Acts<'a>,
        (low, rank): (&'a mut [f32], usize),
        factor: f32,
        first: usize,
    ) -> Self {
        let places = b.len().saturating_mul(x.tokens).saturating_mul(rank);
        let is_of_x = |a: Matrix<'_>| a.form() == Form::F32 && a.cols() * x.tokens == x.x.len();
        let is_right = |(i, (a, at)): (usize, &Product<'_>)| {
            a.is_none_or(|a| is_of_x(a) && a.rows() == rank && *at == i * x.tokens * rank)
        };
        let fits = low.len() >= places
            && a.len() <= b.len()
            && a.iter().enumerate().all(is_right)
            && b.iter().all(|(b, _)| b.is_none_or(|b| b.cols() == rank));
        debug_assert!(fits, "LowRank: the shapes do not match");
        let (a, b) = if fits { (a, b) } else { (&[][..], &[][..]) };
        let (low, panels) = (Out(low.as_mut_ptr()), a.len() * rank.div_ceil(PANEL_ROWS));
        let (taken, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { a, b, x, factor, rank, has_bias: false, first, low, panels, taken, done }
    }

    /// Yields `(index, b, at)` of each matrix in `b`.
    fn b(&self) -> impl Iterator<Item = (usize, &Matrix<'a>, usize)> {
        self.b.iter().enumerate().filter_map(|(i, (b, at))| Some((i, b.as_ref()?, *at)))
    }

    /// Finds the matrices of `b` that contribute to the outputs in `range`. For each of them, yields its index, those
    /// of its rows that belong to the range, and the index of the first output of these rows.
    fn parts(&self, range: &Range<usize>) -> impl Iterator<Item = (usize, Matrix<'a>, usize)> {
        self.b().filter_map(|(i, b, at)| {
            let (begin, end) = (range.start.max(at), range.end.min(at + b.rows()));
            Some((i, b.part(begin - at, end.checked_sub(begin)?)?, begin))
        })
    }

    /// Number of floats in `low` per matrix.
    fn len(&self) -> usize {
        self.x.tokens * self.rank
    }

    /// Index of the next panel, if one is left.
    fn take(&self) -> Option<usize> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken >= self.panels {
            return None;
        }
        #[cfg(target_has_atomic = "ptr")]
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        #[cfg(not(target_has_atomic = "ptr"))] // such targets have one thread
        self.taken.store(taken + 1, Ordering::Relaxed);
        (taken < self.panels).then_some(taken)
    }

    /// Counts a panel as done.
    fn finish(&self) {
        #[cfg(target_has_atomic = "ptr")]
        self.done.fetch_add(1, Ordering::Release);
        #[cfg(not(target_has_atomic = "ptr"))] // such targets have one thread
        self.done.store(self.done.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

// SAFETY: `fits` checks that the outputs of all matrices of `b`, for all tokens, are inside `len` floats, and `add` writes
// only these.
unsafe impl Addend for LowRank<'_> {
    fn fits(&self, tokens: usize, len: usize, stride: usize) -> bool {
        let products = self.b().map(|(_, b, at)| (b, at));
        let end = self.x.tokens.saturating_mul(stride).saturating_add(self.first);
        self.first.is_multiple_of(stride)
            && end <= tokens.saturating_mul(stride)
            && len.checked_sub(self.first).is_some_and(|len| fit(products, self.x.tokens, len, stride))
    }

    fn prefetch(&self, kernels: &Kernels, range: Range<usize>) {
        if self.taken.load(Ordering::Relaxed) < self.panels {
            self.a.iter().filter_map(|(a, _)| a.as_ref()).for_each(|a| kernels.prefetch(a.data()));
        }
        self.parts(&range).for_each(|(_, b, _)| kernels.prefetch(b.data()));
    }

    fn prepare(&self, kernels: &Kernels) {
        let each = self.rank.div_ceil(PANEL_ROWS).max(1);
        while let Some(panel) = self.take() {
            let (i, first) = (panel / each, panel % each * PANEL_ROWS);
            let count = PANEL_ROWS.min(self.rank - first);
            if let Some((Some(a), at)) = self.a.get(i)
                && let Some(a) = a.part(first, count)
            {
                // SAFETY: `new` checked that the outputs of all matrices are inside `low`, side by side. `take`
                // returned `panel` to this worker only, and nobody reads the panel's outputs before it is done.
                unsafe {
                    rows(kernels, &a, &self.x, (self.low.at(at + first), self.rank), &mut []);
                    for t in 0..self.x.tokens {
                        let low = core::slice::from_raw_parts_mut(self.low.at(at + t * self.rank + first), count);
                        low.iter_mut().for_each(|x| *x *= self.factor);
                        if self.has_bias
                            && first + count == self.rank
                            && let Some(last) = low.last_mut()
                        {
                            *last = self.factor;
                        }
                    }
                }
            }
            self.finish();
        }
    }

    unsafe fn add(&self, kernels: &Kernels, out: *mut f32, stride: usize, range: Range<usize>) {
        // The wait always ends, because every unfinished panel is being computed by another worker, and that worker
        // does not wait for anybody meanwhile.
        while self.done.load(Ordering::Acquire) < self.panels {
            core::hint::spin_loop();
        }
        for (i, b, at) in self.parts(&range) {
            // SAFETY: `low` has the products of all matrices and tokens, see `new`. All panels are done, so nobody
            // writes `low`.
            let x = unsafe { core::slice::from_raw_parts(self.low.at(i * self.len()), self.len()) };
            let x = Acts { x, q: &[], d: &[], sums: &[], tokens: self.x.tokens };
            // SAFETY: `fits` has checked that these outputs exist, and nobody else accesses them. The caller promises
            // both.
            if let Some(mut job) = unsafe { Job::new(&b, &x, (out.add(self.first + at), stride), &mut []) } {
                kernels.add_product(&mut job);
            }
        }
    }
}

/// Adds the products of an adapter to the outputs of a matrix, if the matrix product was computed before.
pub fn add_low_rank(kernels: &Kernels, workers: &dyn Workers, low_rank: &LowRank<'_>, out: &mut [f32], stride: usize) {
    if !low_rank.fits(usize::MAX, out.len(), stride) {
        debug_assert!(false, "add_low_rank: the shapes do not match");
        return;
    }
    let out = Out(out.as_mut_ptr());
    let panels = low_rank.b().map(|(_, b, _)| b.rows().div_ceil(PANEL_ROWS)).sum();
    let weights = low_rank.a.iter().filter_map(|(a, _)| *a).map(|a| a.rows().saturating_mul(a.cols()));
    let weights = weights.chain(low_rank.b().map(|(_, b, _)| b.rows().saturating_mul(b.cols())));
    let work = weights.fold(0, usize::saturating_add).saturating_mul(COST).saturating_mul(low_rank.x.tokens);
    let items = workers.parts(work).max(1).min(panels);
    fork(workers, items, work, &mut [(); 0], 0, &|item, _| {
        let mut range = share(item, items, panels);
        for (_, b, at) in low_rank.b() {
            if let Some((first, b)) = part(b, &mut range) {
                let range = at + first..at + first + b.rows();
                low_rank.prepare(kernels);
                // SAFETY: `fits` was checked above, and each item has its own rows.
                unsafe { low_rank.add(kernels, out.at(0), stride, range) };
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::TensorType;

    /// An adapter's product with more tokens than the model's product is rejected, because other workers may write the
    /// outputs of the additional tokens.
    #[test]
    fn tokens_of_the_product() {
        let b = [(Matrix::at(TensorType::F32, (4, 1), &[0; 16], 0), 0)];
        let x = Acts { x: &[], q: &[], d: &[], sums: &[], tokens: 2 };
        let mut low = [0.0; 2];
        let pairs = LowRank::new((&[], &b), x, (&mut low, 1), 1.0, 10);
        assert!(pairs.fits(3, 24, 10) && pairs.fits(4, 40, 10));
        assert!(!pairs.fits(2, 40, 10), "the second token is the product's third");
        assert!(!pairs.fits(3, 23, 10) && !pairs.fits(9, 90, 3));
    }
}
