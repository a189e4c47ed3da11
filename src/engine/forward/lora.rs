//! Adapters: adds `factor * B (A x)` to the outputs of linear layers, for rows whose context has chosen the adapter.
//!
//! A weight matrix is identified by its offset in the model's file, and the table of pairs is sorted by these offsets.
//! If a matrix is only a part of a tensor (of a fused projection, or one expert), its offset also tells which rows of
//! `B` to use. Only [`Compute`] handles adapters. `owners` has the context of each row of a pass, and consecutive rows
//! with the same scale share a product.
//!
//! Each worker adds the products with `B` to its own outputs of `W x`, see [`LowRank`]. For each output, the sum is one
//! chain of fma over the columns of `B`, which starts with the output of `W`; adapters are added in the order of their
//! indices.

use super::rows_mut;
use crate::Error;
use crate::adapter::Adapter;
use crate::engine::layout::{EMBEDDINGS, PAIRS, Pair};
use crate::gguf::Pieces;
use crate::hash::Hash;
use crate::kernel::{Matrix, Product};
use crate::model::{Entry, Model};
use bytemuck::Zeroable;

/// The adapters of an engine, and the context of each row.
pub(crate) struct Lora<'m, 'w> {
    pub adapters: &'m [Adapter<'m>],
    /// The model's file.
    file: Pieces<'m>,
    /// `[adapters][EMBEDDINGS + matrices]`: of each adapter, first the pairs of matrices for token embeddings, then the
    /// pairs for linear layers in ascending order of `start`. Unused entries are at the end, because their `start` is
    /// the largest number.
    pairs: &'w mut [Pair],
    /// `[contexts][adapters]`: the scale with which each context uses each adapter, or 0 if it does not use it.
    scales: &'w mut [f32],
    contexts: usize,
    /// `[2][batch]`: the context to which each row of a pass belongs, and the context of each selected row.
    owners: &'w mut [u32],
    /// True while products are computed for the selected rows.
    pub is_selected: bool,
    /// `[PAIRS][batch][rank]`
    pub low: &'w mut [f32],
}

/// The pair for a matrix, or for some of its rows.
pub(super) struct Found<'m> {
    pub a: Matrix<'m>,
    pub b: Matrix<'m>,
    pub rank: usize,
}

/// An adapter's next pairs to multiply. They have the same rank, and their matrices have the same input.
pub(super) struct Pairs<'m> {
    pub a: [Product<'m>; PAIRS],
    pub b: [Product<'m>; PAIRS],
    pub count: usize,
    pub rank: usize,
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
                        *place = Pair { start, end: start + pair.tensor.bytes(), a, b };
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

    /// Returns a hash of the adapters that a context uses and of their scales. 0 if the context uses none.
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

    /// Notes that `rows` rows of the pass, from row `first` on, belong to the context with number `context`.
    pub fn own(&mut self, first: usize, rows: usize, context: u32) {
        let batch = self.batch();
        for owner in self.owners.iter_mut().take(batch).skip(first).take(rows) {
            *owner = context;
        }
    }

    /// Makes row `row` of the pass selected row `to`.
    pub fn select(&mut self, to: usize, row: usize) {
        let batch = self.batch();
        let owner = self.owners.get(..batch).and_then(|owners| owners.get(row)).copied();
        if let (Some(place), Some(owner)) = (self.owners.get_mut(batch..).and_then(|all| all.get_mut(to)), owner) {
            *place = owner;
        }
    }

    /// Returns the scale with which a row uses an adapter, without the factor `alpha / rank`. 0 if the row's context
    /// does not use the adapter.
    pub fn scale(&self, row: usize, adapter: usize) -> f32 {
        let row = if self.is_selected { self.batch() + row } else { row };
        let context = self.owners.get(row).map_or(usize::MAX, |context| *context as usize);
        let place = context.checked_mul(self.planned()).and_then(|first| first.checked_add(adapter));
        place.and_then(|place| self.scales.get(place)).copied().unwrap_or(0.0)
    }

    fn pairs(&self, adapter: usize) -> &[Pair] {
        let stride = self.pairs.len().checked_div(self.planned()).unwrap_or(0);
        self.pairs.get(adapter * stride..(adapter + 1) * stride).unwrap_or(&[])
    }

    /// Finds the adapter's pair of matrices for the matrix `w` of the model. `w` may be only some rows of the tensor
    /// that the adapter changes.
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
            row = usize::try_from(start - pair.start).ok()?.checked_div(w.row_bytes())?;
            slab = row.checked_div(b.rows().checked_div(a.rows().checked_div(rank)?)?)?;
        }
        Some(Found { a: a.part(slab * rank, rank)?, b: b.part(row, w.rows())?, rank })
    }

    /// Finds the adapter's pairs (of matrices `a` and `b`) that can be multiplied together next. They belong to the
    /// first of `products`, which are removed from the list. The input has `tokens` rows. Returns `None` if no pair is
    /// left.
    pub(super) fn next_pairs(&self, adapter: usize, products: &mut &[Product<'_>], tokens: usize) -> Option<Pairs<'m>> {
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
        #[cfg(feature = "storage")]
        if let Some(at) = w.stored() {
            return Some(self.file.first.len() as u64 + at);
        }
        self.file.offset(w.data())
    }

    /// The pair for a token embedding.
    pub(super) fn embedding(&self, adapter: usize, words: &Matrix<'_>) -> Option<Found<'m>> {
        let (file, start) = (self.adapters.get(adapter)?.gguf().pieces(), self.offset(words)?);
        let pair = self.pairs(adapter).iter().take(EMBEDDINGS).find(|pair| pair.start == start)?;
        Some(Found { a: pair.a.matrix(file)?, b: pair.b.matrix(file)?, rank: pair.rank() })
    }
}
