//! Layout of the workspace and of the KV cache.

use core::ops::Range;

use bytemuck::{Pod, Zeroable};

#[cfg(feature = "vision")]
use super::picture_turns::Turn;
use crate::memory::{Arena, HeadLayout, KvType, TILE};
use crate::model::{Entry, Layer, Positions, Spec};
use crate::{Error, tri};

/// Declares the parts of the workspace once and generates their element counts, the total size, and the split.
macro_rules! pieces {
    ($($(#[doc = $doc:literal])* $(#[cfg($cfg:meta)])? $name:ident: $type:ty,)*) => {
        /// Number of elements of each part of the workspace.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct Layout {
            $($(#[doc = $doc])* $(#[cfg($cfg)])? pub $name: usize,)*
        }

        impl Layout {
            /// No elements.
            pub const EMPTY: Self = Self { $($(#[cfg($cfg)])? $name: 0,)* };

            /// Size in bytes of all parts, each aligned.
            pub const fn bytes(&self) -> Result<usize, Error> {
                let mut total = 0;
                $(
                    $(#[cfg($cfg)])?
                    {
                    let bytes = tri!(product(&[self.$name, size_of::<$type>()]));
                    total = tri!(sum(total, Arena::padded(bytes)));
                    }
                )*
                Ok(total)
            }
        }

        /// The parts of the workspace as slices.
        pub(crate) struct Pieces<'w> {
            $($(#[doc = $doc])* $(#[cfg($cfg)])? pub $name: &'w mut [$type],)*
        }

        impl<'w> Pieces<'w> {
            /// Splits `arena` into parts; `None` if it is too short.
            pub fn cut(layout: &Layout, mut arena: Arena<'w>) -> Option<Self> {
                Some(Self { $($(#[cfg($cfg)])? $name: arena.take(layout.$name)?,)* })
            }
        }
    };
}

#[cfg(feature = "vision")]
pub(crate) use pieces;

pieces! {
    weights: Entry,
    /// Table of weights of an encoder that precedes a decoder.
    source_weights: Entry,
    /// Vectors converted to little-endian f32.
    vectors: u8,
    source_vectors: u8,
    /// Rotary frequencies of global heads, then of local heads.
    frequencies: f32,
    local_frequencies: f32,
    /// Cosine and sine of each frequency for every row of a pass.
    rotations: f32,
    local_rotations: f32,
    /// `[batch][dim]`: the residual stream.
    hidden: f32,
    /// `[batch][dim]`: the input or output of a linear layer.
    branch: f32,
    /// The intermediate values of attention (queries, keys, values and the output of the heads) or of a feed-forward
    /// (gate and up).
    inner: f32,
    /// The additional input that each layer has per token, `[batch][layers][per_layer_input]`. After it come the
    /// vectors that [`Spec::beside`] counts.
    inputs: f32,
    /// The input of a matrix product, quantized: the activations, their scales, and their sums per 16 elements.
    quants: i8,
    scales: f32,
    quant_sums: i16,
    /// Scratch of attention, per worker.
    sums: f32,
    /// A packed panel of weights per worker.
    panels: u8,
    /// `[rows of logits][vocab]`.
    logits: f32,
    /// Biases on attention scores, by the distance of two positions.
    biases: f32,
    source_biases: f32,
    /// `[context][dim]`: the states of the encoder's text.
    states: f32,
    /// The account of the pages: flags of open contexts, positions of checkpoints, lists of free pages, and page tables
    /// of all contexts.
    pages: u32,
    segments: Segment,
    /// Rows of matrices that are in a storage.
    #[cfg(feature = "storage")]
    window: u8,
    /// The adapters' pairs of matrices, `[adapters][EMBEDDINGS + matrices]`: for each adapter, the pairs for token
    /// embeddings, then the pairs for linear layers.
    #[cfg(feature = "lora")]
    pairs: Pair,
    /// `[contexts][adapters]`: the scale of each adapter.
    #[cfg(feature = "lora")]
    adapter_scales: f32,
    /// `[2][batch]`: the context to which each row of a pass belongs, then the context of each selected row.
    #[cfg(feature = "lora")]
    owners: u32,
    /// Products of the input rows with the first (down-projecting) matrices of the adapters, `[PAIRS][batch][rank]`.
    #[cfg(feature = "lora")]
    low: f32,
    /// Weights, vectors and rotary tables of the layers that predict further tokens.
    #[cfg(feature = "drafts")]
    next_weights: Entry,
    #[cfg(feature = "drafts")]
    next_vectors: u8,
    #[cfg(feature = "drafts")]
    next_frequencies: f32,
    #[cfg(feature = "drafts")]
    next_local_frequencies: f32,
    #[cfg(feature = "drafts")]
    next_rotations: f32,
    #[cfg(feature = "drafts")]
    next_local_rotations: f32,
    /// What the predicting layers may still need of each context: its last tokens, `[contexts][kept]`, and the final
    /// states of these tokens, `[contexts][kept][dim]`.
    #[cfg(feature = "drafts")]
    kept_tokens: u32,
    #[cfg(feature = "drafts")]
    kept_states: f32,
    /// `[batch][dim]`: final states of a pass.
    #[cfg(feature = "drafts")]
    fresh_states: f32,
    /// Progress of each context's drafts.
    #[cfg(feature = "drafts")]
    ahead: Ahead,
    /// The rows that recurrent layers have computed for proposed tokens, until these tokens are accepted or removed:
    /// `[contexts][layers with a state][drafts + 1]`.
    #[cfg(feature = "drafts")]
    pending: f32,
    /// `[contexts][pictures]`: the pictures that each context has read, because they change the rotary positions after
    /// them.
    #[cfg(feature = "vision")]
    turns: Turn,
    /// Copy of one layer's state, then outputs of pending rows.
    #[cfg(feature = "drafts")]
    tentative: f32,
}

/// Consecutive rows of a pass that belong to one context.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Segment {
    /// Slot number of the context.
    pub context: u32,
    /// Position of the first row.
    pub position: u32,
    /// Number of rows.
    pub tokens: u32,
    /// For models with an encoder: the number of tokens of the text that the context's encoder has read. For other
    /// models: 1 for those rows of a picture that attend to all rows of the picture, including later ones, and 0 for
    /// all other rows.
    pub source: u32,
}

impl Segment {
    /// Rows of a context in a pass.
    pub fn new([context, position, tokens, source]: [usize; 4]) -> Self {
        let [context, position, tokens, source] = [context, position, tokens, source].map(|number| number as u32);
        Self { context, position, tokens, source }
    }
}

/// Progress of a context's drafts.
#[cfg(feature = "drafts")]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Ahead {
    /// First position whose state is kept.
    pub from: u32,
    /// Number of positions that the predicting layer has read.
    pub filled: u32,
    /// Number of tokens read after those of the context.
    pub drafted: u32,
    /// Number of the context's last tokens that are not contained in the recurrent states yet.
    pub pending: u32,
    /// 1 if the running pass must not change the recurrent states, because its tokens may be removed again; otherwise
    /// 0.
    pub tentative: u32,
}

/// At most this many pairs of an adapter's matrices are multiplied together. They belong to matrices of the model that
/// have the same input.
#[cfg(feature = "lora")]
pub(crate) const PAIRS: usize = 4;

/// Maximum number of token embeddings: an encoder and a decoder can each have an embedding.
#[cfg(feature = "lora")]
pub(crate) const EMBEDDINGS: usize = 2;

/// The pair of matrices by which an adapter changes a tensor of the model. All zeros if the adapter does not change the
/// tensor.
#[cfg(feature = "lora")]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Pair {
    /// Byte range of the tensor in the model's file.
    pub start: u64,
    pub end: u64,
    /// Location in the adapter's file of the first matrix, `[slabs][rank][columns]`. `slabs` is the third dimension of
    /// the tensor, such as the number of experts.
    pub a: Entry,
    /// `[slabs][rows][rank]`
    pub b: Entry,
}

#[cfg(feature = "lora")]
impl Pair {
    pub fn rank(&self) -> usize {
        self.b.cols()
    }
}

/// Number of page pools: one pool each for global attention layers, local attention layers, the encoder's text, and
/// recurrent states.
pub(crate) const POOLS: usize = 4;
pub(crate) const SOURCE: usize = 2;
/// Pool of recurrent states. Each context has one page for the current state and one page for each checkpoint.
pub(crate) const STATES: usize = 3;

/// Layout of the KV cache. For every layer that computes keys and values, the cache stores `[kv_heads][pages]` tiles of
/// one head. The same follows for every layer with cross-attention. The pages with the recurrent states of all layers
/// come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    pub kind: KvType,
    pub contexts: usize,
    /// Tiles per context in each pool.
    pub tiles: [usize; POOLS],
    /// Pages in each pool.
    pub pages: [usize; POOLS],
    /// Number of bytes that one position takes in each pool of pages, summed over all layers of the pool that compute
    /// keys and values.
    pub position_bytes: [usize; 2],
    /// Size in bytes of an encoder layer's tiles, which are at the end of the cache, if the encoder's heads differ from
    /// the decoder's heads. Otherwise 0, because the encoder then uses the tiles of the decoder's first cross-attention
    /// layer.
    pub encoder: usize,
    /// Size in bytes of a page of recurrent states. The first page begins at `states_at`.
    pub state_bytes: usize,
    pub states_at: usize,
    /// Size in bytes of the predicting layer's tiles, which follow the tiles of the model's layers.
    #[cfg(feature = "drafts")]
    pub next: usize,
}

impl Store {
    /// Returns the size in bytes of the tiles that a layer has in a pool. The computation cannot overflow, because the
    /// plan has checked the sizes.
    pub fn layer_bytes(&self, layer: &Layer, pool: usize) -> usize {
        self.head_pages(layer, pool).unwrap_or(0)
    }

    pub const fn head_pages(&self, layer: &Layer, pool: usize) -> Result<usize, Error> {
        let [first, second, source, _] = self.pages;
        let pages = match pool {
            0 => first,
            1 => second,
            _ => source,
        };
        product(&[layer.kv_heads, pages, head_layout(self.kind, layer).tile_bytes()])
    }

    /// Bytes of a layer's recurrent state.
    const fn layer_state_bytes(spec: &Spec<'_>, layer: &Layer) -> usize {
        match spec.recurrent() {
            Some(mixer) if layer.has_state() => Arena::padded(mixer.state_len().saturating_mul(4)),
            _ => 0,
        }
    }

    /// Number of bytes in a page of states that the layers before `layer` take. The state of `layer` begins after them.
    pub const fn states_before(spec: &Spec<'_>, layer: usize) -> usize {
        let (mut total, mut index) = (0usize, 0);
        while index < layer {
            total = total.saturating_add(Self::layer_state_bytes(spec, &spec.layer(index)));
            index += 1;
        }
        total
    }

    /// Byte range of the cache that holds a layer's recurrent state, within the page of states `page`.
    pub fn state_range(&self, spec: &Spec<'_>, layer: usize, page: usize) -> Option<Range<usize>> {
        let start = self.state_page(page)?.start + Self::states_before(spec, layer);
        Some(start..start + Self::layer_state_bytes(spec, &spec.layer(layer)))
    }

    /// Returns the range of bytes of a page of recurrent states. `None` if the store has no page with this number.
    pub fn state_page(&self, page: usize) -> Option<Range<usize>> {
        let [.., pages] = self.pages;
        let start = self.states_at + page.checked_mul(self.state_bytes)?;
        (page < pages).then_some(start..start + self.state_bytes)
    }

    /// Total bytes of the cache.
    pub const fn bytes(&self, spec: &Spec<'_>) -> Result<usize, Error> {
        match self.state_bytes {
            0 => self.tiles_bytes(spec),
            bytes => sum(self.states_at, tri!(product(&[self.pages[STATES], bytes]))),
        }
    }

    /// Bytes of keys and values.
    pub const fn tiles_bytes(&self, spec: &Spec<'_>) -> Result<usize, Error> {
        let source = tri!(self.head_pages(&spec.layer(0), SOURCE));
        if !spec.has_head() {
            return Ok(source); // all layers of an encoder use the same tiles
        }
        let mut total = self.encoder;
        if spec.has_cross_attention() {
            total = tri!(sum(total, tri!(product(&[spec.layers, source]))));
        }
        let mut index = 0;
        while index < spec.layers {
            let layer = spec.layer(index);
            if layer.owns_kv {
                total = tri!(sum(total, tri!(self.head_pages(&layer, layer.pool()))));
            }
            index += 1;
        }
        #[cfg(feature = "drafts")]
        {
            total = tri!(sum(total, self.next));
        }
        Ok(total)
    }

    /// Number of positions that each context can hold in pool `kind`. In a pool with a sliding window, this is the
    /// length of the ring.
    pub fn kept(&self, kind: usize) -> usize {
        self.tiles.get(kind).map_or(0, |tiles| tiles * TILE)
    }

    /// Number of `u32` values in the workspace that manage pages.
    pub const fn account(&self) -> Result<usize, Error> {
        // Counts the flags of open contexts, and the positions of the contexts' saved states.
        let mut total = tri!(product(&[self.contexts, max(self.tiles[STATES], 1)]));
        let mut pool = 0;
        while pool < POOLS {
            total = tri!(sum(total, tri!(sum(self.pages[pool], tri!(product(&[self.tiles[pool], self.contexts]))))));
            pool += 1;
        }
        Ok(total)
    }
}

/// Layout of a tile of one of a layer's KV heads.
pub(crate) const fn head_layout(kind: KvType, layer: &Layer) -> HeadLayout {
    HeadLayout { kind, dim: layer.head.dim, shared: layer.head.shared }
}

/// Number of different distances that two of `context` positions can have, at least 1. A causal attention has only
/// distances to earlier positions.
pub(crate) const fn distances(is_causal: bool, context: usize) -> usize {
    if is_causal { context } else { context.saturating_mul(2) - 1 }
}

/// Number of floats in an encoder's or decoder's table of biases on attention scores; such biases depend on the
/// distance between two positions.
pub(crate) const fn biases(spec: &Spec<'_>, context: usize) -> Result<usize, Error> {
    match spec.positions() {
        Positions::Relative { .. } | Positions::Alibi { .. } => product(&[
            distances(spec.is_causal(), context),
            spec.heads.get(0),
            if spec.own_biases() { spec.layers } else { 1 },
        ]),
        _ => Ok(0),
    }
}

/// Product of `factors`. Fails with [`Error::PlanTooLarge`] if the product exceeds a quarter of the address space, so
/// that a few products can be added without overflow.
pub(crate) const fn product(factors: &[usize]) -> Result<usize, Error> {
    let mut product = 1usize;
    let mut i = 0;
    while i < factors.len() {
        product = match product.checked_mul(factors[i]) {
            Some(product) if product <= isize::MAX as usize / 2 => product,
            _ => return Err(Error::PlanTooLarge),
        };
        i += 1;
    }
    Ok(product)
}

/// The sum, or [`Error::PlanTooLarge`].
pub(crate) const fn sum(a: usize, b: usize) -> Result<usize, Error> {
    match a.checked_add(b) {
        Some(sum) if sum <= isize::MAX as usize / 2 => Ok(sum),
        _ => Err(Error::PlanTooLarge),
    }
}

pub(crate) const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit on products of sizes: a few products below it can be added without overflow.
    const MOST: usize = isize::MAX as usize / 2;

    #[test]
    fn sums_and_products_end_at_half_of_all_addresses() {
        let large = Err(Error::PlanTooLarge);
        assert_eq!([product(&[]), product(&[7]), product(&[3, 4, 5]), product(&[9, 0])], [1, 7, 60, 0].map(Ok));
        assert_eq!([product(&[MOST]), product(&[MOST, 0, 2])], [MOST, 0].map(Ok));
        assert_eq!([product(&[MOST + 1]), product(&[MOST / 2 + 1, 2]), product(&[usize::MAX, 2])], [large; 3]);
        assert_eq!([sum(2, 3), sum(MOST, 0), sum(1, MOST - 1)], [5, MOST, MOST].map(Ok));
        assert_eq!([sum(MOST, 1), sum(MOST + 1, 0), sum(usize::MAX, 1)], [large; 3]);
    }

    #[test]
    fn distances_before_and_after() {
        assert_eq!([1, 2, 9].map(|context| distances(true, context)), [1, 2, 9]);
        assert_eq!([1, 2, 9].map(|context| distances(false, context)), [1, 3, 17]);
    }

    #[test]
    fn states_are_consecutive() {
        let store = Store {
            kind: KvType::F16,
            contexts: 2,
            tiles: [3, 0, 0, 2],
            pages: [6, 0, 0, 4],
            position_bytes: [64, 0],
            encoder: 0,
            state_bytes: 192,
            states_at: 640,
            #[cfg(feature = "drafts")]
            next: 0,
        };
        let pages = [640..832, 832..1024, 1024..1216, 1216..1408];
        for (page, range) in pages.into_iter().enumerate() {
            assert_eq!(store.state_page(page), Some(range));
        }
        assert_eq!([4, 5, usize::MAX].map(|page| store.state_page(page)), [None, None, None]);
        assert_eq!([0, 1, 3, 4].map(|pool| store.kept(pool)), [48, 0, 32, 0]);
        // The words for two contexts, each with a flag and one saved position, for ten pages, and for the contexts'
        // page tables of three and of two entries.
        assert_eq!(store.account(), Ok(2 * 2 + 10 + 2 * 5));
    }
}
