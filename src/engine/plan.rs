//! The plan: how many bytes a model needs, known before it runs, by the compiler if need be.

use super::layout::{Layout, POOLS, SOURCE, STATES, Store, biases, max, product};
use crate::error::Sentence;
use crate::hash::Hash;
use crate::kernel::{Form, MAX_ROWS, panel_bytes};
use crate::memory::{ALIGN, HeadLayout, KvType, MAX_PAGES, TILE};
use crate::model::{Positions, Spec, Weights};
use crate::tokenizer::Tokenizer;
use crate::{Error, Gguf, Name, tri};

/// What the caller decides about an engine's memory.
///
/// # Examples
///
/// ```
/// use arenite::Options;
/// const OPTIONS: Options = Options::new().context(256).batch(8);
/// assert_eq!((OPTIONS.context, OPTIONS.contexts), (256, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Positions in a context, and of an encoder's text; 0 for as many as the model was trained for.
    pub context: usize,
    /// Tokens that a pass takes at once, of all contexts together; at least one for each context. More is
    /// faster and needs more workspace.
    pub batch: usize,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// The most workers that will take part, at least 1: each has scratch of its own.
    pub workers: usize,
    /// Contexts that are open at once, at least 1.
    pub contexts: usize,
    /// Pages of 16 positions that all contexts have together, in layers that see all positions; 0 for enough to
    /// fill every context. (Layers with a sliding window always have enough.)
    pub pages: usize,
    /// Rows of logits that a run can leave: one for each context, if it is 0.
    pub logits: usize,
    /// Texts of an encoder that are remembered at once, at least 1. Forks share one.
    pub sources: usize,
    /// Earlier states that each context can keep to go back to, of models with layers that have a state of fixed
    /// size: see [`Engine::checkpoint`](super::Engine::checkpoint).
    pub checkpoints: usize,
}

impl Options {
    /// One context, as long as the model's own, 16 tokens at once, an f16 cache, one worker.
    pub const DEFAULT: Self = Self {
        context: 0,
        batch: 16,
        kv: KvType::F16,
        workers: 1,
        contexts: 1,
        pages: 0,
        logits: 0,
        sources: 1,
        checkpoints: 0,
    };

    /// [`DEFAULT`](Self::DEFAULT).
    pub const fn new() -> Self {
        Self::DEFAULT
    }

    /// With contexts for a beam search: one for each hypothesis, and the one that holds the encoder's text.
    #[must_use]
    pub const fn beams(self, beams: usize) -> Self {
        self.contexts(max(beams, 1).saturating_add(1))
    }
}

/// Builders of the fields.
macro_rules! builders {
    ($($name:ident: $type:ty,)*) => {
        impl Options {
            $(
                #[doc = concat!("With this `", stringify!($name), "`.")]
                #[must_use]
                pub const fn $name(mut self, $name: $type) -> Self {
                    self.$name = $name;
                    self
                }
            )*
        }
    };
}

builders! {
    context: usize,
    batch: usize,
    kv: KvType,
    workers: usize,
    contexts: usize,
    pages: usize,
    logits: usize,
    sources: usize,
    checkpoints: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Exact bytes of memory for a model under some [`Options`]: the same on every target.
///
/// # Examples
///
/// ```
/// use arenite::{Options, Plan};
/// # macro_rules! include_model { () => { include_bytes!("../../tests/fixtures/stories.gguf") } }
/// static MODEL: &[u8] = include_model!();
/// const PLAN: Plan = Plan::of(MODEL, Options::new().context(64));
/// assert!(PLAN.workspace > 0 && PLAN.kv > 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// Bytes of workspace.
    pub workspace: usize,
    /// Bytes of KV cache.
    pub kv: usize,
    /// Bytes of the tokenizer's index; 0 if the file has no vocabulary that this build reads.
    pub tokenizer: usize,
    /// What was planned for; the context is resolved.
    pub options: Options,
    pub(crate) layout: Layout,
    pub(crate) store: Store,
    /// Of the model and of all the above.
    seal: u64,
}

impl Plan {
    /// The plan for the model in `file`, for a `const`: what is wrong with the file stops the compiler,
    /// which then says what it is.
    ///
    /// # Panics
    ///
    /// Whenever [`Gguf::parse`] or [`try_of`](Self::try_of) would fail. If the crate's features leave out what the
    /// file needs, the message names the feature.
    pub const fn of(file: &[u8], options: Options) -> Self {
        match Self::try_of(file, options) {
            Ok(plan) => plan,
            Err(error) => {
                let mut message = error.sentence().message();
                if let Some(feature) = error.missing_feature() {
                    message = message.text(b" (arenite's feature `").text(feature.as_bytes()).text(b"` runs it)");
                }
                panic!("{}", message.as_str())
            }
        }
    }

    /// As [`of`](Self::of), with an error instead of a panic.
    ///
    /// # Errors
    ///
    /// As for [`Gguf::parse`] and [`new`](Self::new).
    pub const fn try_of(file: &[u8], options: Options) -> Result<Self, Error> {
        Self::new(&tri!(Gguf::parse(file)), options)
    }

    /// The plan itself, if workspace, KV cache and the tokenizer's index take at most `ram` bytes
    /// together; for a `const`, which does not build otherwise.
    ///
    /// # Panics
    ///
    /// If they take more.
    #[must_use]
    pub const fn within(self, ram: usize) -> Self {
        let needed = self.workspace as u64 + self.kv as u64 + self.tokenizer as u64;
        if needed > ram as u64 {
            const TEXT: &str =
                "the model needs {} bytes of RAM, more than the budget of {}: plan a smaller context or batch";
            panic!("{}", Sentence::of(TEXT, &needed, &(ram as u64)).message().as_str());
        }
        self
    }

    /// The plan for a file that is open.
    ///
    /// # Errors
    ///
    /// What [`Spec::read`] says of the metadata; [`Error::PlanTooLarge`]; [`Error::TensorType`] and
    /// [`Error::Unsupported`] for what [a feature](Error::missing_feature) would run.
    pub const fn new(gguf: &Gguf<'_>, options: Options) -> Result<Self, Error> {
        let spec = tri!(Spec::read(gguf));
        let options = tri!(options.resolved(&spec));
        let store = tri!(Store::of(&spec, options));
        let layout = tri!(Layout::of(gguf, &spec, options, &store));
        let tokenizer = match Tokenizer::index_bytes(gguf) {
            Ok(bytes) => bytes,
            Err(_) => 0, // token ids can be run all the same
        };
        let (workspace, kv) = (tri!(layout.bytes()), tri!(store.bytes(&spec)));
        let mut plan = Self { workspace, kv, tokenizer, options, layout, store, seal: 0 };
        plan.seal = plan.sealed(gguf, &spec);
        Ok(plan)
    }

    /// Whether layers of a kind see a window only, and its table is a ring.
    pub(crate) fn is_ring(&self, spec: &Spec<'_>, kind: usize) -> bool {
        [spec.global, spec.local].get(kind).is_some_and(|heads| heads.window.is_some())
    }

    /// The earliest position that a context that came as far as `reached` can go back to; to 0 it always can.
    pub(crate) fn earliest(&self, spec: &Spec<'_>, reached: usize) -> usize {
        let earliest = (0..).zip([spec.global, spec.local]).filter_map(|(kind, heads)| {
            // A ring still holds the positions from `reached - kept` on; the next token sees `window - 1`
            // before it.
            match (heads.window, self.store.kept(kind), reached.checked_sub(self.store.kept(kind))) {
                (None, ..) | (_, 0, _) | (.., None | Some(0)) => None,
                (Some(window), _, Some(lost)) => Some(lost + window - 1),
            }
        });
        earliest.max().unwrap_or(0)
    }

    /// Whether this is the plan that was made for the model.
    pub(crate) fn is_for(&self, gguf: &Gguf<'_>, spec: &Spec<'_>) -> bool {
        self.sealed(gguf, spec) == self.seal
    }

    /// A number that tells a plan from those of other models and with other options.
    const fn sealed(&self, gguf: &Gguf<'_>, spec: &Spec<'_>) -> u64 {
        let Options { context, batch, kv, workers, contexts, pages, logits, sources, checkpoints } = self.options;
        let numbers = [
            self.workspace,
            self.kv,
            self.tokenizer,
            context,
            batch,
            kv as usize,
            workers,
            contexts,
            pages,
            logits,
            sources,
            checkpoints,
            spec.vocab,
            spec.heads,
        ];
        let mut hash = Hash::new();
        let mut i = 0;
        while i < numbers.len() {
            hash.word(numbers[i] as u64);
            i += 1;
        }
        let mut index = 0;
        while index < spec.layers {
            // The rest of a layer is in its tensors' shapes, and in the bytes of the cache.
            hash.word(spec.layer(index).pool() as u64);
            index += 1;
        }
        hash.bytes(gguf.directory());
        hash.finish()
    }
}

impl Options {
    /// As they are for a model: every number says what will be.
    const fn resolved(self, spec: &Spec<'_>) -> Result<Self, Error> {
        let context = match (self.context, spec.positions()) {
            (0, _) => spec.context,
            (asked, Positions::Learned) => min(asked, spec.context), // there they end
            (asked, _) => asked,
        };
        let (contexts, workers) = (max(self.contexts, 1), max(self.workers, 1));
        if context as u64 > i32::MAX as u64
            || workers > 1 << 16
            || contexts > 1 << 12
            || self.checkpoints > 1 << 12
            || self.pages > MAX_PAGES
        {
            return Err(Error::PlanTooLarge);
        }
        if !self.kv.is_built() {
            return Err(Error::Unsupported { what: "KV cache", name: Name::new(self.kv.feature().as_bytes()) });
        }
        let all = tri!(product(&[contexts, context.div_ceil(TILE)]));
        if all > MAX_PAGES {
            return Err(Error::PlanTooLarge);
        }
        Ok(Self {
            context,
            batch: max(min(max(self.batch, 1), context.saturating_mul(contexts)), contexts),
            workers,
            contexts,
            pages: if self.pages == 0 { all } else { min(self.pages, all) },
            logits: if self.logits == 0 { contexts } else { self.logits },
            sources: min(max(self.sources, 1), contexts),
            ..self
        })
    }
}

impl Layout {
    const fn of(gguf: &Gguf<'_>, spec: &Spec<'_>, options: Options, store: &Store) -> Result<Self, Error> {
        let Options { context, batch, workers, .. } = options;
        let encoder = spec.encoder();
        let (mut widest, mut inner, mut sums) = (spec.widest_input(), spec.inner(), attention_sums(spec, batch));
        if let Some(encoder) = &encoder {
            widest = max(widest, encoder.widest_input());
            inner = max(inner, encoder.inner());
            sums = max(sums, attention_sums(encoder, batch));
        }
        let formats = tri!(Formats::of(gguf, widest));
        let quantized = if formats.quantized { batch } else { 0 };
        let frequencies = [rotary_pairs(spec, false), rotary_pairs(spec, true)];
        let mut layout = Self {
            weights: Weights::len(spec),
            frequencies: frequencies[0],
            local_frequencies: frequencies[1],
            rotations: tri!(product(&[2, batch, frequencies[0]])),
            local_rotations: tri!(product(&[2, batch, frequencies[1]])),
            hidden: tri!(product(&[batch, spec.dim])),
            branch: tri!(product(&[batch, spec.dim])),
            inner: tri!(product(&[batch, inner])),
            inputs: tri!(product(&[batch, spec.layers, spec.per_layer_input()])),
            quants: tri!(product(&[quantized, widest])),
            scales: tri!(product(&[quantized, widest.div_ceil(32)])),
            quant_sums: tri!(product(&[quantized, widest.div_ceil(16)])),
            sums: tri!(product(&[sums, workers])),
            panels: if batch > 1 { tri!(product(&[formats.panel, workers])) } else { 0 },
            logits: if spec.has_head() { tri!(product(&[options.logits, spec.vocab])) } else { 0 },
            biases: tri!(biases(spec, context)),
            pages: tri!(store.account()),
            segments: options.contexts,
            ..Self::EMPTY
        };
        if encoder.is_some() || !spec.has_head() {
            layout.states = tri!(product(&[context, spec.dim]));
        }
        if let Some(encoder) = &encoder {
            layout.source_weights = Weights::len(encoder);
            layout.source_biases = tri!(biases(encoder, context));
        }
        Ok(layout)
    }
}

impl Store {
    const fn of(spec: &Spec<'_>, options: Options) -> Result<Self, Error> {
        let Options { context, batch, kv, contexts, .. } = options;
        let mut store = Self {
            kind: kv,
            contexts,
            tiles: [0; POOLS],
            pages: [0; POOLS],
            position_bytes: position_bytes(spec, kv),
            state_bytes: Self::states_before(spec, spec.layers),
            states_at: 0,
            encoder: 0,
        };
        let windows = [spec.global.window, spec.local.window];
        let mut kind = 0;
        while kind < 2 && spec.has_head() {
            if store.position_bytes[kind] > 0 {
                (store.tiles[kind], store.pages[kind]) = match windows[kind] {
                    // A window's table holds what the first token of a batch sees, and the whole batch.
                    Some(window) => {
                        let tiles = min(context, window.saturating_add(batch - 1)).div_ceil(TILE);
                        (tiles, tri!(product(&[tiles, contexts])))
                    }
                    None => (context.div_ceil(TILE), options.pages),
                };
            }
            kind += 1;
        }
        if spec.has_cross_attention() || !spec.has_head() {
            store.tiles[SOURCE] = context.div_ceil(TILE);
            store.pages[SOURCE] = tri!(product(&[store.tiles[SOURCE], options.sources]));
        }
        if let Some(encoder) = spec.encoder() {
            let (own, layer) = (encoder.layer(0), spec.layer(0));
            if own.kv_heads != layer.kv_heads || own.head.dim != layer.head.dim {
                store.encoder = tri!(store.head_pages(&own, SOURCE));
            }
        }
        if store.state_bytes > 0 {
            store.tiles[STATES] = options.checkpoints + 1;
            store.pages[STATES] = tri!(product(&[store.tiles[STATES], contexts]));
            store.states_at = tri!(store.tiles_bytes(spec)).next_multiple_of(ALIGN);
        }
        Ok(store)
    }
}

/// Pairs that rotary positions turn in a head.
const fn rotary_pairs(spec: &Spec<'_>, is_local: bool) -> usize {
    match spec.rope(is_local) {
        Some(rope) => rope.dim / 2,
        None => 0,
    }
}

/// Bytes of a position in all layers of each kind that have keys and values of their own.
const fn position_bytes(spec: &Spec<'_>, kv: KvType) -> [usize; 2] {
    let (mut bytes, mut index) = ([0usize; 2], 0);
    while index < spec.layers {
        let layer = spec.layer(index);
        if layer.owns_kv {
            let head = HeadLayout { kind: kv, dim: layer.head.dim };
            let more = layer.kv_heads.saturating_mul(head.tile_bytes() / TILE);
            let [first, second] = &mut bytes;
            let bytes = if layer.is_local { second } else { first };
            *bytes = bytes.saturating_add(more);
        }
        index += 1;
    }
    bytes
}

/// What one worker's sums need in the layer that needs most.
const fn attention_sums(spec: &Spec<'_>, batch: usize) -> usize {
    let mut most = 0;
    let mut index = 0;
    while index < spec.layers {
        let layer = spec.layer(index);
        let rows = min(MAX_ROWS, batch.saturating_mul(layer.group()));
        most = max(most, rows * layer.head.dim.next_multiple_of(16));
        index += 1;
    }
    most
}

/// What the weight types in a file ask of the workspace.
struct Formats {
    quantized: bool,
    panel: usize,
}

impl Formats {
    /// `widest` is the most inputs that a layer has: a wider tensor is multiplied by none.
    const fn of(gguf: &Gguf<'_>, widest: usize) -> Result<Self, Error> {
        let mut formats = Self { quantized: false, panel: 0 };
        let mut tensors = gguf.tensors();
        while let Some(tensor) = tensors.next_tensor() {
            if tensor.kind.feature().is_some() && !tensor.kind.is_built() {
                return Err(Error::TensorType { tensor: Name::new(tensor.name.as_bytes()), kind: tensor.kind });
            }
            formats.quantized |= !matches!(Form::of(tensor.kind), None | Some(Form::F32));
            if tensor.dims[0] <= widest as u64 {
                formats.panel = max(formats.panel, panel_bytes(tensor.kind, tensor.dims[0] as usize));
            }
        }
        Ok(formats)
    }
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
