//! Linear layers: activations in the form that the weights ask for, once for each input.

use super::observer::Inputs;
use crate::engine::profile::{Profiler, Section};
use crate::kernel::{Acts, Form, Kernels, Matrix, Product, fork_chunks, linear, linear_alone, quantize};
use crate::workers::Workers;

/// Tokens that are one piece of work where tokens are shared out.
pub(super) const TOKENS: usize = 8;

/// Kernels, workers and the scratch that matrix products need.
pub(crate) struct Compute<'m, 'w> {
    pub kernels: &'static Kernels,
    pub workers: &'m dyn Workers,
    pub profiler: Option<&'m dyn Profiler>,
    /// Workers that the scratch was planned for.
    pub threads: usize,
    pub quants: &'w mut [i8],
    pub scales: &'w mut [f32],
    pub sums: &'w mut [i16],
    /// A panel for each worker.
    pub panels: &'w mut [u8],
    /// Who looks at what is multiplied.
    pub inputs: Option<&'m Inputs<'m>>,
}

impl<'m, 'w> Compute<'m, 'w> {
    /// What was done since the last call was this section of the pass.
    pub fn done(&self, section: Section) {
        if let Some(profiler) = self.profiler {
            profiler.done(section);
        }
    }

    /// Runs `f(start, piece)` over pieces of `x`, some tokens of `width` elements each, on the workers;
    /// `start` is where the piece begins.
    pub fn by_tokens(&self, x: &mut [f32], width: usize, f: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        if self.workers.count() <= 1 {
            return f(0, x); // as one piece
        }
        let chunk = TOKENS * width;
        // An element takes some ten times as long as a multiplication.
        let work = x.len().saturating_mul(10);
        fork_chunks(self.workers, x, chunk, work, &mut [(); 0], 0, |i, piece, _| f(i * chunk, piece));
    }

    /// How many of some heads are one piece of work: one, unless there is nobody to share them with.
    pub fn piece(&self, heads: usize) -> usize {
        if self.workers.count() > 1 { 1 } else { heads }
    }

    /// `x` as the input of one or more linear layers: `[tokens][cols]`.
    pub fn input<'c>(&'c mut self, x: &'c [f32], tokens: usize) -> Input<'c, 'm, 'w> {
        Input { compute: self, x, tokens, form: Form::F32 }
    }
}

/// The input of linear layers, quantized when the first of them needs it.
pub(crate) struct Input<'c, 'm, 'w> {
    compute: &'c mut Compute<'m, 'w>,
    x: &'c [f32],
    tokens: usize,
    /// The form that the quantized activations have now.
    form: Form,
}

impl Input<'_, '_, '_> {
    /// `out[t * stride + r] = row r of w * token t`.
    pub fn times(&mut self, w: Matrix<'_>, out: &mut [f32], stride: usize) {
        self.times_each(&[(Some(w), 0)], out, stride);
    }

    /// `out[at + t * stride + r] = row r of w * token t` for each `(w, at)`, as [`linear`] says: at once
    /// those that want the input in the same form.
    pub fn times_each(&mut self, products: &[Product<'_>], out: &mut [f32], stride: usize) {
        if let Some(see) = self.compute.inputs {
            products.iter().filter_map(|(w, _)| *w).for_each(|w| see(w.data(), self.x));
        }
        let last = self.tokens.saturating_sub(1).saturating_mul(stride);
        let Compute { kernels, workers, quants, scales, sums, panels, .. } = self.compute;
        let alone = workers.count() <= 1;
        let form_of = |(w, _): &Product<'_>| w.as_ref().map(Matrix::form);
        let mut rest = products;
        while let Some(((first, at), others)) = rest.split_first() {
            let Some(w) = first else {
                rest = others;
                continue;
            };
            let (form, mut acts) = (w.form(), Acts { x: self.x, q: &[], d: &[], sums: &[], tokens: self.tokens });
            if form != Form::F32 {
                let len = self.x.len();
                let (Some(q), Some(d), Some(sums)) =
                    (quants.get_mut(..len), scales.get_mut(..len / form.span()), sums.get_mut(..len / 16))
                else {
                    return;
                };
                if form != self.form {
                    quantize(kernels, *workers, form, self.x, q, d, sums);
                    self.form = form;
                }
                (acts.q, acts.d, acts.sums) = (q, d, sums);
            }
            if alone {
                linear_alone(kernels, panels, (w, *at), &acts, out, (stride, last));
                rest = others;
            } else {
                // Those that want the same form, as if they were one.
                let is_like = |product: &&Product<'_>| form_of(product).is_none_or(|other| other == form);
                let Some((alike, after)) = rest.split_at_checked(rest.iter().take_while(is_like).count()) else {
                    return;
                };
                linear(kernels, *workers, panels, alike, &acts, out, stride);
                rest = after;
            }
        }
    }
}
