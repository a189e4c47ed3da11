//! Adapters: adds `factor * B (A x)` to the outputs of linear layers, for rows whose context has chosen the adapter.
//!
//! A weight matrix is identified by its offset in the model's file: the table of pairs is sorted by the offsets of the
//! model's tensors. For a part of a tensor (of a fused projection, or one expert), the offset also gives the rows of
//! `B`. Only [`Compute`] handles adapters. `owners` has the context of each row of a pass, and consecutive rows with
//! the same scale share a product.
//!
//! Each worker adds the products with `B` to the outputs of `W x` that it has computed, see [`LowRank`]. Per output,
//! the sum is one chain of fma over the columns of `B` that starts with the output of `W`; adapters are added in the
//! order of their indices.

use super::compute::Compute;
use super::{rows_mut, scale};
use crate::Error;
use crate::TokenId;
use crate::adapter::Adapter;
use crate::engine::layout::{EMBEDDINGS, PAIRS, Pair};
use crate::gguf::Pieces;
use crate::hash::Hash;
use crate::kernel::{Acts, LowRank, Matrix, Product, add_low_rank};
use crate::model::{Entry, Model};
use crate::quant::decode_row;
use bytemuck::Zeroable;

/// The adapters of an engine, and the context of each row.
pub(crate) struct Lora<'m, 'w> {
    adapters: &'m [Adapter<'m>],
    /// The model's file.
    file: Pieces<'m>,
    /// `[adapters][EMBEDDINGS + matrices]`: pairs of token embeddings, then those of linear layers in the order of
    /// `start`; unused entries have the largest `start`.
    pairs: &'w mut [Pair],
    /// `[contexts][adapters]`: scales, 0 for an adapter that is not used.
    scales: &'w mut [f32],
    contexts: usize,
    /// `[2][batch]`: contexts of the rows of a pass, and of the selected rows.
    owners: &'w mut [u32],
    /// True while products are computed for the selected rows.
    pub is_selected: bool,
    /// `[PAIRS][batch][rank]`
    low: &'w mut [f32],
}

/// The pair for a matrix, or for some of its rows.
struct Found<'m> {
    a: Matrix<'m>,
    b: Matrix<'m>,
    rank: usize,
}

/// Pairs of the same rank, for matrices with the same input.
struct Pairs<'m> {
    a: [Product<'m>; PAIRS],
    b: [Product<'m>; PAIRS],
    count: usize,
    rank: usize,
}

impl<'m, 'w> Lora<'m, 'w> {
    /// Creates the state in its pieces of the workspace.
    pub fn new(
        (file, contexts): (Pieces<'m>, usize),
        (pairs, scales, owners): (&'w mut [Pair], &'w mut [f32], &'w mut [u32]),
        low: &'w mut [f32],
    ) -> Self {
        owners.fill(0);
        scales.fill(0.0);
        Self { adapters: &[], file, pairs, scales, contexts, owners, is_selected: false, low }
    }

    /// True if contexts may choose adapters.
    pub fn has_adapters(&self) -> bool {
        !self.adapters.is_empty()
    }

    /// Number of planned adapters.
    fn planned(&self) -> usize {
        self.scales.len().checked_div(self.contexts).unwrap_or(0)
    }

    /// Number of rows of a pass.
    fn batch(&self) -> usize {
        self.owners.len() / 2
    }

    /// Largest planned rank.
    fn rank(&self) -> usize {
        self.low.len().checked_div(PAIRS * self.batch()).unwrap_or(0)
    }

    /// Fills the table of pairs.
    pub fn set(&mut self, adapters: &'m [Adapter<'m>], model: &Model<'_>) -> Result<(), Error> {
        let (planned, rank) = (self.planned(), self.rank());
        if adapters.len() > planned {
            let what = "planned adapters (Options::adapters)";
            return Err(Error::BufferTooSmall { what, needed: adapters.len(), given: planned });
        }
        self.adapters = &[];
        let stride = self.pairs.len().checked_div(planned).unwrap_or(0);
        for (adapter, table) in adapters.iter().zip(rows_mut(self.pairs, stride)) {
            if adapter.rank() > rank {
                let what = "planned rows per adapter (Options::rank)";
                return Err(Error::BufferTooSmall { what, needed: adapter.rank(), given: rank });
            }
            table.fill(Pair { start: u64::MAX, ..Pair::zeroed() });
            let Some((embeddings, table)) = table.split_at_mut_checked(EMBEDDINGS) else { continue };
            let (mut embeddings, mut places, mut fits) = (embeddings.iter_mut(), table.iter_mut(), true);
            adapter.each_pair(model, &mut |pair| {
                let place = if pair.is_lookup { embeddings.next() } else { places.next() };
                match (place, Entry::of(&pair.a), Entry::of(&pair.b)) {
                    (Some(place), Some(a), Some(b)) => {
                        let start = pair.tensor.offset;
                        *place = Pair { start, end: start + pair.tensor.data.len() as u64, a, b };
                    }
                    _ => fits = false,
                }
            })?;
            if !fits {
                return Err(Error::PlanTooLarge);
            }
        }
        self.adapters = adapters;
        Ok(())
    }

    /// Scales of a context.
    fn scales_mut(&mut self, context: usize) -> &mut [f32] {
        let planned = self.planned();
        self.scales.get_mut(context * planned..(context + 1) * planned).unwrap_or_default()
    }

    /// Replaces the scales of a context.
    pub fn choose(&mut self, context: usize, chosen: &[(usize, f32)]) -> Result<(), Error> {
        let given = self.adapters.len();
        if let Some((most, _)) = chosen.iter().max_by_key(|(adapter, _)| *adapter).filter(|(most, _)| *most >= given) {
            return Err(Error::BufferTooSmall { what: "adapters in the list", needed: most.saturating_add(1), given });
        }
        let scales = self.scales_mut(context);
        scales.fill(0.0);
        for (adapter, scale) in chosen {
            if let Some(place) = scales.get_mut(*adapter) {
                *place += scale;
            }
        }
        Ok(())
    }

    /// Copies the scales of a context to another one.
    pub fn copy(&mut self, from: usize, to: usize) {
        let planned = self.planned();
        for adapter in 0..planned {
            let scale = self.scales.get(from * planned + adapter).copied().unwrap_or(0.0);
            if let Some(place) = self.scales.get_mut(to * planned + adapter) {
                *place = scale;
            }
        }
    }

    /// Hash of the adapters of a context and of their scales; 0 for none.
    pub fn fingerprint(&self, context: usize) -> u64 {
        let (mut hash, mut is_used, planned) = (Hash::new(), false, self.planned());
        let scales = self.scales.get(context * planned..(context + 1) * planned).unwrap_or(&[]);
        for (adapter, scale) in self.adapters.iter().zip(scales).filter(|(_, scale)| **scale != 0.0) {
            hash.word(adapter.gguf().fingerprint());
            hash.word(u64::from(scale.to_bits()));
            is_used = true;
        }
        if is_used { hash.finish() } else { 0 }
    }

    /// Sets the context of `rows` rows of the pass, from row `first` on.
    pub fn own(&mut self, first: usize, rows: usize, context: u32) {
        let batch = self.batch();
        for owner in self.owners.iter_mut().take(batch).skip(first).take(rows) {
            *owner = context;
        }
    }

    /// Selects row `row` of the pass: it becomes selected row `to`.
    pub fn select(&mut self, to: usize, row: usize) {
        let batch = self.batch();
        let owner = self.owners.get(..batch).and_then(|owners| owners.get(row)).copied();
        if let (Some(place), Some(owner)) = (self.owners.get_mut(batch..).and_then(|all| all.get_mut(to)), owner) {
            *place = owner;
        }
    }

    /// Scale of an adapter in a row, without `alpha / rank`; 0 if the row's context does not use it.
    fn scale(&self, row: usize, adapter: usize) -> f32 {
        let row = if self.is_selected { self.batch() + row } else { row };
        let context = self.owners.get(row).map_or(usize::MAX, |context| *context as usize);
        let place = context.checked_mul(self.planned()).and_then(|first| first.checked_add(adapter));
        place.and_then(|place| self.scales.get(place)).copied().unwrap_or(0.0)
    }

    /// Pairs of an adapter.
    fn pairs(&self, adapter: usize) -> &[Pair] {
        let stride = self.pairs.len().checked_div(self.planned()).unwrap_or(0);
        self.pairs.get(adapter * stride..(adapter + 1) * stride).unwrap_or(&[])
    }

    /// Finds the pair for a matrix of the model, or for some of its rows.
    fn find(&self, adapter: usize, w: &Matrix<'_>) -> Option<Found<'m>> {
        let file = self.adapters.get(adapter)?.gguf().pieces();
        let start = self.offset(w)?;
        let pairs = self.pairs(adapter).get(EMBEDDINGS..)?;
        let pair = pairs.get(pairs.partition_point(|pair| pair.start <= start).checked_sub(1)?)?;
        if start >= pair.end {
            return None;
        }
        let (a, b, rank) = (pair.a.matrix(file)?, pair.b.matrix(file)?, pair.rank());
        let (mut slab, mut row) = (0, 0);
        // Most matrices are whole tensors and need no divisions.
        if start > pair.start {
            let row_bytes = w.data().len().checked_div(w.rows())?;
            row = usize::try_from(start - pair.start).ok()?.checked_div(row_bytes)?;
            slab = row.checked_div(b.rows().checked_div(a.rows().checked_div(rank)?)?)?;
        }
        Some(Found { a: a.part(slab * rank, rank)?, b: b.part(row, w.rows())?, rank })
    }

    /// Returns the next pairs for `products`, whose inputs are `tokens` rows, and removes the products that were
    /// examined. Returns `None` at the end.
    fn next_pairs(&self, adapter: usize, products: &mut &[Product<'_>], tokens: usize) -> Option<Pairs<'m>> {
        let mut pairs = Pairs { a: [(None, 0); PAIRS], b: [(None, 0); PAIRS], count: 0, rank: 0 };
        while let Some(((w, of_w), others)) = products.split_first() {
            if let Some(Found { a, b, rank }) = w.as_ref().and_then(|w| self.find(adapter, w)) {
                if pairs.count > 0 && pairs.rank != rank {
                    break;
                }
                let count = pairs.count;
                let (Some(to_a), Some(to_b)) = (pairs.a.get_mut(count), pairs.b.get_mut(count)) else { break };
                (*to_a, *to_b) = ((Some(a), count * tokens * rank), (Some(b), *of_w));
                (pairs.count, pairs.rank) = (count + 1, rank);
            }
            *products = others;
        }
        (pairs.count > 0).then_some(pairs)
    }

    /// Offset of a matrix in the model's file.
    fn offset(&self, w: &Matrix<'_>) -> Option<u64> {
        self.file.offset(w.data())
    }

    /// The pair for a token embedding.
    fn embedding(&self, adapter: usize, words: &Matrix<'_>) -> Option<Found<'m>> {
        let (file, start) = (self.adapters.get(adapter)?.gguf().pieces(), self.offset(words)?);
        let pair = self.pairs(adapter).iter().take(EMBEDDINGS).find(|pair| pair.start == start)?;
        Some(Found { a: pair.a.matrix(file)?, b: pair.b.matrix(file)?, rank: pair.rank() })
    }
}

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
        // The products are computed together with the first pairs, unless a matrix has a factor: the factor must not
        // scale the products of adapters.
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
