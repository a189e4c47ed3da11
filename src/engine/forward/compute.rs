//! Linear layers: quantizes activations to the format that the weights need, once per input.

#[cfg(feature = "lora")]
use super::lora::{Found, Lora, Pairs};
use super::observer::Inputs;
use super::scale;
#[cfg(feature = "storage")]
use super::window::Window;
#[cfg(feature = "lora")]
use crate::TokenId;
use crate::built;
use crate::engine::profile::{Profiler, Section};
use crate::kernel::{Acts, Addend, Batch, Form, Kernels, Matrix, Product, fork_chunks, linear, linear_alone, quantize};
#[cfg(feature = "lora")]
use crate::kernel::{LowRank, add_low_rank};
use crate::quant::decode_row;
use crate::workers::Workers;

/// Tokens per chunk when workers share tokens.
pub(super) const TOKENS: usize = 8;

/// Kernels, workers and scratch for matrix products.
pub(crate) struct Compute<'m, 'w> {
    pub kernels: &'static Kernels,
    pub workers: &'m dyn Workers,
    pub profiler: Option<&'m dyn Profiler>,
    /// Number of workers that scratch was planned for.
    pub threads: usize,
    pub quants: &'w mut [i8],
    pub scales: &'w mut [f32],
    pub sums: &'w mut [i16],
    /// A packed panel per worker.
    pub panels: &'w mut [u8],
    /// Callback that receives the inputs of linear layers.
    pub inputs: Option<&'m Inputs<'m>>,
    /// Reads the matrices that are in a storage.
    #[cfg(feature = "storage")]
    pub window: Window<'m, 'w>,
    #[cfg(feature = "lora")]
    pub lora: Lora<'m, 'w>,
}

impl<'m, 'w> Compute<'m, 'w> {
    /// Creates a `Compute` without a profiler, an observer and adapters. `scratch` has memory for the quantized
    /// activations, their scales and their sums, and for the panels of `threads` workers.
    #[cfg(feature = "vision")]
    pub fn plain(
        kernels: &'static Kernels,
        _file: crate::gguf::Pieces<'m>,
        threads: usize,
        (quants, scales, sums, panels): (&'w mut [i8], &'w mut [f32], &'w mut [i16], &'w mut [u8]),
    ) -> Self {
        Self {
            kernels,
            workers: &crate::workers::Serial,
            profiler: None,
            threads,
            quants,
            scales,
            sums,
            panels,
            inputs: None,
            #[cfg(feature = "storage")]
            window: Window::new(&mut []),
            #[cfg(feature = "lora")]
            lora: Lora::new((_file, 0), (&mut [], &mut [], &mut []), &mut []),
        }
    }

    /// True if reading from the storage has failed in this run. Then all results of the run are invalid.
    #[inline(always)]
    pub fn has_failed(&self) -> bool {
        #[cfg(feature = "storage")]
        return self.window.has_failed();
        #[cfg(not(feature = "storage"))]
        false
    }

    /// Decodes row `r` of a table.
    #[inline(always)]
    pub fn look_up(&mut self, table: &Matrix<'_>, r: usize, out: &mut [f32]) {
        #[cfg(feature = "storage")]
        if table.is_stored() {
            decode_row(table.kind(), self.window.row(table, r), out);
            return;
        }
        decode_row(table.kind(), table.row(r), out);
    }

    /// Reports to the profiler that `section` has finished.
    pub fn done(&self, section: Section) {
        if let Some(profiler) = self.profiler {
            profiler.done(section);
        }
    }

    /// Runs `f(start, chunk)` on the workers, over chunks of `x` of several tokens with `width` elements each; `start`
    /// is the index of the chunk's first element.
    pub fn by_tokens(&self, x: &mut [f32], width: usize, f: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        if self.workers.count() <= 1 {
            return f(0, x); // as one chunk
        }
        let chunk = TOKENS * width;
        // The work is counted in multiplications. An element takes about as long as ten of them.
        let work = x.len().saturating_mul(10);
        fork_chunks(self.workers, x, chunk, work, &mut [(); 0], 0, &|i, piece, _| f(i * chunk, piece));
    }

    /// Number of heads per chunk of work: one, or all heads if there is only one worker.
    pub fn piece(&self, heads: usize) -> usize {
        if self.workers.count() > 1 { 1 } else { heads }
    }

    /// Records that the selected row with index `_to` is row `_row` of the pass; see
    /// [`by_selected`](Self::by_selected).
    pub fn select(&mut self, _to: usize, _row: usize) {
        #[cfg(feature = "lora")]
        self.lora.select(_to, _row);
    }

    /// Chooses which rows later products get as inputs, so that the right adapters are added: all rows of the pass, or
    /// only the selected rows.
    pub fn by_selected(&mut self, _selected: bool) {
        #[cfg(feature = "lora")]
        {
            self.lora.is_selected = _selected;
        }
    }

    /// Multiplies each token of `x`, which is `[tokens][cols]`, with the matrix: `out[t * stride + r] = dot(row r of w,
    /// token t)`.
    pub fn times(&mut self, x: (&[f32], usize), w: Matrix<'_>, out: &mut [f32], stride: usize) {
        self.times_each(x, &[(Some(w), 0)], out, stride);
    }

    /// Multiplies several matrices with the same input: `out[at + t * stride + r] = dot(row r of w, token t)` for each
    /// `(w, at)`, as in [`linear`]. Consecutive matrices that need the same form of activations are multiplied
    /// together.
    pub fn times_each(
        &mut self,
        (x, tokens): (&[f32], usize),
        products: &[Product<'_>],
        out: &mut [f32],
        stride: usize,
    ) {
        if let Some(see) = self.inputs {
            products.iter().filter_map(|(w, _)| *w).for_each(|w| see(w.data(), x));
        }
        #[cfg(feature = "lora")]
        if self.lora.has_adapters() {
            return self.adapted((x, tokens), products, out, stride);
        }
        self.products((x, tokens), products, (out, stride), &());
    }

    /// Multiplies the rows `x` by several matrices, as [`times_each`](Self::times_each) does. Ignores the context's
    /// adapters; instead, adds `addend` to the outputs.
    #[inline(always)] // a call costs small models 0.2 %
    pub(super) fn products(
        &mut self,
        (x, tokens): (&[f32], usize),
        products: &[Product<'_>],
        (out, stride): (&mut [f32], usize),
        addend: &impl Addend,
    ) {
        let Self { kernels, workers, quants, scales, sums, panels, .. } = self;
        #[cfg(feature = "storage")]
        let window = &mut self.window;
        let alone = workers.parts(usize::MAX) <= 1; // not even the largest product is divided
        let (mut form, mut acts) = (Form::F32, Acts { x, q: &[], d: &[], sums: &[], tokens });
        let mut rest = products;
        while let Some(((first, at), others)) = rest.split_first() {
            let Some(w) = first else {
                rest = others;
                continue;
            };
            // F32 weights use `x` itself, whatever format `acts` has.
            if w.form() != Form::F32 && w.form() != form {
                form = w.form();
                let Some(quantized) = quantized((kernels, *workers), form, (x, tokens), (quants, scales, sums)) else {
                    return;
                };
                acts = quantized;
            }
            #[cfg(feature = "storage")]
            if w.is_stored() {
                window.bands(w, &mut |first, band| {
                    let at = at + first;
                    if alone {
                        linear_alone(kernels, panels, (&band, at), &acts, (&mut *out, stride), addend);
                    } else {
                        let batch = Batch { products: &[(Some(band), at)], x: acts, out: &mut *out, stride };
                        linear(kernels, *workers, panels, batch, addend);
                    }
                });
                rest = others;
                continue;
            }
            if alone {
                linear_alone(kernels, panels, (w, *at), &acts, (&mut *out, stride), addend);
                rest = others;
                continue;
            }
            // Matrices that need the same format are multiplied as if they were one, so that the workers fork and join
            // once.
            let is_like = |(other, _): &&Product<'_>| {
                other.as_ref().is_none_or(|other| other.form() == w.form() && !other.is_stored())
            };
            let Some((alike, after)) = rest.split_at_checked(rest.iter().take_while(is_like).count()) else { return };
            let batch = Batch { products: alike, x: acts, out, stride };
            linear(kernels, *workers, panels, batch, addend);
            rest = after;
        }
        if built::SCALES {
            scale_products(products, tokens, out, stride);
        }
    }
}

#[cfg(feature = "lora")]
impl Compute<'_, '_> {
    /// Like [`times_each`](Self::times_each), and adds the products of adapters.
    #[inline(never)] // keeps its temporaries off the stack of passes without adapters
    pub(super) fn adapted(
        &mut self,
        (x, tokens): (&[f32], usize),
        products: &[Product<'_>],
        out: &mut [f32],
        stride: usize,
    ) {
        let cols = x.len().checked_div(tokens).unwrap_or(0);
        // Usually, the products of the matrices are computed together with those of the first adapter pairs. They are
        // computed here if a matrix has a factor, because this factor must not scale the products of adapters.
        let mut is_base_left = products.iter().filter_map(|(w, _)| *w).all(|w| w.scale() == 1.0);
        if !is_base_left {
            self.products((x, tokens), products, (out, stride), &());
        }
        for (adapter, of) in self.lora.adapters.iter().enumerate() {
            let mut first = 0;
            while first < tokens {
                let (start, scale) = (first, self.lora.scale(first, adapter));
                let rows = 1 + (start + 1..tokens).take_while(|row| self.lora.scale(*row, adapter) == scale).count();
                first += rows;
                let mut left = products;
                while scale != 0.0
                    && let Some(pairs) = self.lora.next_pairs(adapter, &mut left, rows)
                {
                    let Pairs { a, b, count, rank } = &pairs;
                    let all = core::mem::take(&mut self.lora.low);
                    let input = x.get(start * cols..(start + rows) * cols);
                    if let (Some(low), Some(x_rows), Some(a), Some(b)) =
                        (all.get_mut(..count * rows * rank), input, a.get(..*count), b.get(..*count))
                    {
                        let input = Acts { x: x_rows, q: &[], d: &[], sums: &[], tokens: rows };
                        let factor = of.factor(scale, *rank);
                        let mut pairs = LowRank::new((a, b), input, (low, *rank), factor, start * stride);
                        pairs.has_bias = of.has_bias;
                        if is_base_left {
                            self.products((x, tokens), products, (out, stride), &pairs);
                            is_base_left = false;
                        } else {
                            add_low_rank(self.kernels, self.workers, &pairs, out, stride);
                        }
                    }
                    self.lora.low = all;
                }
            }
        }
        if is_base_left {
            self.products((x, tokens), products, (out, stride), &());
        }
    }

    /// Adds the products of adapters to the embedding of a token, in a row of the pass.
    pub(super) fn adapt_embedding(&mut self, row: usize, token: TokenId, words: &Matrix<'_>, x: &mut [f32]) {
        for (adapter, of) in self.lora.adapters.iter().enumerate() {
            let by = self.lora.scale(row, adapter);
            let Some(Found { a, b, rank }) = self.lora.embedding(adapter, words).filter(|_| by != 0.0) else {
                continue;
            };
            let Some(low) = self.lora.low.get_mut(..rank) else { return };
            decode_row(a.kind(), a.row(token as usize), low);
            scale(low, of.factor(by, rank));
            let input = Acts { x: &[], q: &[], d: &[], sums: &[], tokens: 1 };
            let b = [(Some(b), 0)];
            add_low_rank(self.kernels, self.workers, &LowRank::new((&[], &b), input, (low, rank), 1.0, 0), x, x.len());
        }
    }
}

/// Multiplies the outputs of each matrix by the matrix's factor, its tensor `.scale`.
fn scale_products(products: &[Product<'_>], tokens: usize, out: &mut [f32], stride: usize) {
    for (w, at) in products.iter().filter_map(|(w, at)| Some((w.as_ref()?, *at))).filter(|(w, _)| w.scale() != 1.0) {
        for t in 0..tokens {
            let start = at + t * stride;
            scale(out.get_mut(start..start + w.rows()).unwrap_or_default(), w.scale());
        }
    }
}

/// Quantizes `x`, `[tokens][cols]`, to `form`.
#[inline(never)]
fn quantized<'a>(
    (kernels, workers): (&Kernels, &dyn Workers),
    form: Form,
    (x, tokens): (&'a [f32], usize),
    (q, d, sums): (&'a mut [i8], &'a mut [f32], &'a mut [i16]),
) -> Option<Acts<'a>> {
    let (q, sums) = (q.get_mut(..x.len())?, sums.get_mut(..x.len() / 16)?);
    let d = d.get_mut(..x.len().checked_div(form.span())?)?;
    quantize(kernels, workers, form, x, q, d, sums);
    Some(Acts { x, q, d, sums, tokens })
}
