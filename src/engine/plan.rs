//! The plan: how many bytes of memory a model needs, computed from the model's file in a program or at compile time.

use super::formats::Formats;
#[cfg(feature = "drafts")]
use super::layout::sum;
#[cfg(feature = "lora")]
use super::layout::{EMBEDDINGS, PAIRS};
use super::layout::{Layout, POOLS, SOURCE, STATES, Store, biases, head_layout, max, product};
use crate::error::Sentence;
use crate::hash::Hash;
use crate::kernel::MAX_ROWS;
use crate::memory::{ALIGN, KvType, MAX_PAGES, TILE};
use crate::model::{Spec, Weights};
use crate::tokenizer::Tokenizer;
use crate::{Error, Gguf, Name, tri};

/// Options for the memory of an engine.
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
    /// Length of a context, and of an encoder's text, in positions; 0 for the model's trained context.
    pub context: usize,
    /// Maximum length of a sound in encoder positions (50 per second for Whisper); 0 for the model's maximum.
    #[cfg(feature = "sound")]
    pub sound: usize,
    /// Maximum number of tokens per pass, over all contexts; at least one per context. A larger batch is faster and
    /// needs more workspace.
    pub batch: usize,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Maximum number of workers, at least 1; each worker needs scratch memory.
    pub workers: usize,
    /// Maximum number of open contexts, at least 1.
    pub contexts: usize,
    /// Number of pages (16 positions each) shared by all contexts, in global attention layers; 0 for enough to fill
    /// every context. (Layers with a sliding window always have enough.)
    pub pages: usize,
    /// Maximum number of rows of logits that a run can compute; 0 for one row per context.
    pub logits: usize,
    /// Maximum number of encoder texts or sounds in memory at once, at least 1. A context and its forks share one text
    /// or sound.
    pub sources: usize,
    /// Number of checkpoints per context, for models with recurrent layers: see
    /// [`Engine::checkpoint`](super::Engine::checkpoint).
    pub checkpoints: usize,
    /// Number of adapters that contexts can choose from: see [`Engine::with_adapters`](super::Engine::with_adapters).
    #[cfg(feature = "lora")]
    pub adapters: usize,
    /// Largest rank of the adapters.
    #[cfg(feature = "lora")]
    pub rank: usize,
    /// Maximum number of proposed tokens per context: as many can be [verified](super::Work::tentative) in one run, and
    /// as many can the model itself propose.
    #[cfg(feature = "drafts")]
    pub drafts: usize,
    /// True if the model's own layers propose tokens: see [`Engine::draft`](super::Engine::draft).
    #[cfg(feature = "drafts")]
    pub own_drafts: bool,
    /// Maximum number of pictures that a context can read, in models with rotary positions of several axes (Qwen-VL).
    /// In models whose pictures' tokens attend to each other (Gemma 3), any value but 0 lets texts and a picture share
    /// a pass.
    #[cfg(feature = "vision")]
    pub pictures: usize,
    /// Size in bytes of the window into which matrices in a [`Storage`](crate::Storage) are read. The window holds at
    /// least two rows of any such matrix. A larger window needs fewer and longer reads.
    #[cfg(feature = "storage")]
    pub window: usize,
}

impl Options {
    /// One context of the trained length, 16 tokens per pass, an f16 cache, one worker.
    pub const DEFAULT: Self = Self {
        context: 0,
        #[cfg(feature = "sound")]
        sound: 0,
        batch: 16,
        kv: KvType::F16,
        workers: 1,
        contexts: 1,
        pages: 0,
        logits: 0,
        sources: 1,
        checkpoints: 0,
        #[cfg(feature = "lora")]
        adapters: 0,
        #[cfg(feature = "lora")]
        rank: 0,
        #[cfg(feature = "drafts")]
        drafts: 0,
        #[cfg(feature = "drafts")]
        own_drafts: false,
        #[cfg(feature = "vision")]
        pictures: 0,
        #[cfg(feature = "storage")]
        window: 8192,
    };

    /// Same as [`DEFAULT`](Self::DEFAULT).
    pub const fn new() -> Self {
        Self::DEFAULT
    }

    /// Plans contexts for beam search: one context per beam, and one context that holds the encoder's text.
    #[must_use]
    pub const fn beams(self, beams: usize) -> Self {
        self.contexts(max(beams, 1).saturating_add(1))
    }
}

/// Generates a builder method for each field.
macro_rules! builders {
    ($($name:ident: $type:ty,)*) => {
        impl Options {
            $(
                #[doc = concat!("Sets `", stringify!($name), "`.")]
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

#[cfg(feature = "sound")]
builders! {
    sound: usize,
}

#[cfg(feature = "lora")]
builders! {
    adapters: usize,
    rank: usize,
}

#[cfg(feature = "drafts")]
builders! {
    drafts: usize,
    own_drafts: bool,
}

#[cfg(feature = "vision")]
builders! {
    pictures: usize,
}

#[cfg(feature = "storage")]
builders! {
    window: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The exact memory that a model needs under given [`Options`]. The sizes are the same on every target.
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
    /// Workspace in bytes.
    pub workspace: usize,
    /// KV cache in bytes.
    pub kv: usize,
    /// Size of the tokenizer index in bytes; 0 if the file has no vocabulary that this build supports.
    pub tokenizer: usize,
    /// The options, with defaults resolved.
    pub options: Options,
    pub(crate) layout: Layout,
    pub(crate) store: Store,
    /// Hash over the model and all fields above.
    seal: u64,
}

impl Plan {
    /// Plans for the model in `file`. In a `const`, an error in the file stops compilation, and the compiler prints the
    /// error's message.
    ///
    /// # Panics
    ///
    /// If [`try_of`](Self::try_of) would fail, or if the file's tokenizer needs a disabled feature of the crate. The
    /// message names a disabled feature that would help. (A program that works with token ids alone can use
    /// [`try_of`](Self::try_of).)
    pub const fn of(file: &[u8], options: Options) -> Self {
        match Self::with_tokenizer(file, options) {
            Ok(plan) => plan,
            Err(error) => stop(error),
        }
    }

    /// Plans for the model in `file`, and fails if its tokenizer needs a disabled feature of the crate.
    const fn with_tokenizer(file: &[u8], options: Options) -> Result<Self, Error> {
        let gguf = tri!(Gguf::parse(file));
        let plan = tri!(Self::new(&gguf, options));
        match Tokenizer::check_kind(&gguf) {
            Err(error) if error.missing_feature().is_some() => Err(error),
            _ => Ok(plan),
        }
    }

    /// Like [`of`](Self::of), but returns an error instead of panicking, and accepts tokenizers that this build does
    /// not support.
    ///
    /// # Errors
    ///
    /// Same as [`Gguf::parse`] and [`new`](Self::new).
    pub const fn try_of(file: &[u8], options: Options) -> Result<Self, Error> {
        Self::new(&tri!(Gguf::parse(file)), options)
    }

    /// Returns the plan if workspace, KV cache and tokenizer index together take at most `ram` bytes. Otherwise panics,
    /// so that a `const` does not compile.
    ///
    /// # Panics
    ///
    /// If the three together take more than `ram` bytes.
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

    /// Plans for a parsed file.
    ///
    /// # Errors
    ///
    /// The errors of [`Spec::read`] for the metadata; [`Error::PlanTooLarge`]; [`Error::TensorType`] and
    /// [`Error::Unsupported`] for a tensor type that this build cannot run (see [`Error::missing_feature`]).
    pub const fn new(gguf: &Gguf<'_>, options: Options) -> Result<Self, Error> {
        let spec = tri!(Spec::read(gguf));
        let options = tri!(options.resolved(&spec));
        #[allow(unused_mut)]
        let mut store = tri!(Store::of(&spec, options));
        #[allow(unused_mut)]
        let mut layout = tri!(Layout::of(gguf, &spec, options, &store));
        #[cfg(feature = "drafts")]
        if options.own_drafts {
            let Some((next, file)) = tri!(spec.drafter(gguf)) else {
                return Err(Error::NoPart { part: "layer that predicts further tokens" });
            };
            store = tri!(Store::with_next(&spec, &next, options));
            layout = tri!(layout.with_next(&file, &next, options));
        }
        let tokenizer = match Tokenizer::index_bytes(gguf) {
            Ok(bytes) => bytes,
            Err(_) => 0, // token ids still work
        };
        let (workspace, kv) = (tri!(layout.bytes()), tri!(store.bytes(&spec)));
        let mut plan = Self { workspace, kv, tokenizer, options, layout, store, seal: 0 };
        plan.seal = plan.sealed(gguf, &spec);
        Ok(plan)
    }

    /// True if the page table of a pool is a ring, because its layers have a sliding window.
    pub(crate) fn is_ring(&self, spec: &Spec<'_>, kind: usize) -> bool {
        [spec.global, spec.local].get(kind).is_some_and(|heads| heads.window.is_some())
    }

    /// The earliest position to which a context can still rewind (besides 0, which is always possible), if `reached` is
    /// the largest position that it had.
    pub(crate) fn earliest(&self, spec: &Spec<'_>, reached: usize) -> usize {
        let earliest = (0..).zip([spec.global, spec.local]).filter_map(|(kind, heads)| {
            // A sliding window's ring holds the positions from `reached - kept` on. A token attends to the `window - 1`
            // positions before it, all of which must still be in the ring.
            match (heads.window, self.store.kept(kind), reached.checked_sub(self.store.kept(kind))) {
                (None, ..) | (_, 0, _) | (.., None | Some(0)) => None,
                (Some(window), _, Some(lost)) => Some(lost + window - 1),
            }
        });
        earliest.max().unwrap_or(0)
    }

    /// True if the plan was made for this model.
    pub(crate) fn is_for(&self, gguf: &Gguf<'_>, spec: &Spec<'_>) -> bool {
        self.sealed(gguf, spec) == self.seal
    }

    /// Hash of the model, the options and the sizes. It reveals a plan that was made for a different model or with
    /// different options.
    const fn sealed(&self, gguf: &Gguf<'_>, spec: &Spec<'_>) -> u64 {
        let Options { context, batch, kv, workers, contexts, pages, logits, sources, checkpoints, .. } = self.options;
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
            spec.heads.get(0),
        ];
        let mut hash = Hash::new();
        let mut index = 0;
        while index < spec.layers {
            // Of a layer's parameters, hashes only the pool. The others determine tensor shapes or the size of the
            // cache, which are hashed, too.
            hash.word(spec.layer(index).pool() as u64);
            index += 1;
        }
        gguf.hash_directory(&mut hash);
        #[cfg(feature = "drafts")]
        if let Some(file) = gguf.drafter() {
            file.hash_directory(&mut hash);
        }
        // The plan's numbers are hashed after the model, and all of them twice. If someone has changed a number, a
        // second changed number could undo the effect on the hash in one pass, but not in both.
        let mut pass = 0;
        while pass < 2 {
            hash.numbers(&numbers);
            #[cfg(feature = "lora")]
            {
                hash.word(self.options.adapters as u64);
                hash.word(self.options.rank as u64);
            }
            #[cfg(feature = "sound")]
            hash.word(self.options.sound as u64);
            #[cfg(feature = "vision")]
            hash.word(self.options.pictures as u64);
            #[cfg(feature = "storage")]
            hash.word(self.options.window as u64);
            #[cfg(feature = "drafts")]
            {
                hash.word(self.options.drafts as u64);
                hash.word(self.options.own_drafts as u64);
            }
            pass += 1;
        }
        hash.finish()
    }
}

impl Options {
    /// Longest text or sound of an encoder, in positions.
    pub(crate) const fn source(&self, spec: &Spec<'_>) -> usize {
        #[cfg(feature = "sound")]
        if let Some(sound) = spec.sound() {
            return if self.sound > 0 { min(self.sound, sound.positions) } else { sound.positions };
        }
        let _ = spec;
        self.context
    }

    /// The tokens and states of this number of last positions are kept for each context, because the predicting layer
    /// reads them.
    #[cfg(feature = "drafts")]
    pub(crate) const fn kept(&self) -> usize {
        max(TILE, self.drafts + 2)
    }

    /// Returns the options, with every default replaced by the value that the model implies.
    const fn resolved(self, spec: &Spec<'_>) -> Result<Self, Error> {
        let context = match (self.context, spec.positions()) {
            (0, _) => spec.context,
            (asked, positions) if positions.are_learned() => min(asked, spec.context), // learned positions end there
            (asked, _) => asked,
        };
        let (contexts, workers) = (max(self.contexts, 1), max(self.workers, 1));
        #[cfg(feature = "lora")]
        if self.adapters > 1 << 12 {
            return Err(Error::PlanTooLarge);
        }
        #[cfg(feature = "drafts")]
        if self.drafts > 1 << 12 {
            return Err(Error::PlanTooLarge);
        }
        #[cfg(feature = "vision")]
        if self.pictures > 1 << 16 {
            return Err(Error::PlanTooLarge);
        }
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
        #[cfg(feature = "drafts")]
        let least = contexts.saturating_mul(self.drafts + 1); // all contexts can verify in one pass
        #[cfg(not(feature = "drafts"))]
        let least = contexts;
        Ok(Self {
            context,
            batch: max(min(max(self.batch, 1), context.saturating_mul(contexts)), least),
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
        let mut inner = tri!(product(&[batch, inner]));
        if let Some(sound) = spec.sound() {
            inner = max(inner, sound.front.scratch(spec.dim, batch));
        }
        let formats = tri!(Formats::of(gguf, widest));
        let quantized = if formats.quantized { batch } else { 0 };
        let frequencies = [rotary_pairs(spec, false), rotary_pairs(spec, true)];
        let mut layout = Self {
            weights: Weights::len(spec),
            vectors: tri!(product(&[4, spec.half_vectors])),
            frequencies: frequencies[0],
            local_frequencies: frequencies[1],
            rotations: tri!(product(&[2, batch, frequencies[0]])),
            local_rotations: tri!(product(&[2, batch, frequencies[1]])),
            hidden: tri!(product(&[batch, spec.dim])),
            branch: tri!(product(&[batch, spec.dim])),
            inner,
            inputs: tri!(product(&[batch, spec.layers * spec.per_layer_input() + spec.beside()])),
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
        #[cfg(feature = "lora")]
        if options.adapters > 0 {
            layout.pairs = tri!(product(&[options.adapters, formats.matrices + EMBEDDINGS]));
            layout.adapter_scales = tri!(product(&[options.adapters, options.contexts]));
            layout.owners = tri!(product(&[2, batch]));
            layout.low = tri!(product(&[PAIRS, batch, options.rank]));
        }
        #[cfg(feature = "drafts")]
        if options.drafts > 0 || options.own_drafts {
            layout.ahead = options.contexts;
            if let (true, Some(mixer)) = (spec.can_undo(), spec.recurrent()) {
                let rows = options.drafts + 1;
                let layers = spec.layers_with_state(spec.layers);
                layout.pending = tri!(product(&[options.contexts, layers, rows, mixer.row_len()]));
                layout.tentative = tri!(sum(mixer.state_len(), tri!(product(&[rows, mixer.inner()]))));
            }
        }
        #[cfg(feature = "vision")]
        {
            // A picture whose tokens attend to each other takes two more segments: one for the picture and one for the
            // text after it.
            layout.segments += if options.pictures > 0 { 2 } else { 0 };
            if spec.sections().is_some() {
                layout.turns = tri!(product(&[options.contexts, options.pictures]));
            }
        }
        #[cfg(feature = "storage")]
        if gguf.pieces().is_head() {
            layout.window = match super::window_bytes(options.window, formats.stored_row) {
                Some(bytes) => bytes,
                None => return Err(Error::PlanTooLarge),
            };
        }
        if encoder.is_some() || !spec.has_head() {
            layout.states = tri!(product(&[options.source(spec), spec.dim]));
        }
        if let Some(encoder) = &encoder {
            layout.source_weights = Weights::len(encoder);
            layout.source_vectors = layout.vectors;
            layout.source_biases = tri!(biases(encoder, context));
        }
        Ok(layout)
    }
}

#[cfg(feature = "drafts")]
impl Layout {
    /// Adds the layers that predict further tokens, whose weights are in `file`.
    const fn with_next(self, file: &Gguf<'_>, next: &Spec<'_>, options: Options) -> Result<Self, Error> {
        let Options { batch, workers, contexts, .. } = options;
        let width = match next.next() {
            Some(next) => next.width,
            None => next.dim,
        };
        let widest = max(next.widest_input(), 2 * width);
        let formats = tri!(Formats::of(file, widest));
        let quantized = if formats.quantized { batch } else { 0 };
        let frequencies = [rotary_pairs(next, false), rotary_pairs(next, true)];
        let sums = tri!(product(&[attention_sums(next, batch), workers]));
        let panels = if batch > 1 { tri!(product(&[formats.panel, workers])) } else { 0 };
        let kept = tri!(product(&[contexts, options.kept()]));
        Ok(Self {
            inner: max(self.inner, tri!(product(&[batch, max(next.inner(), 2 * width)]))),
            quants: max(self.quants, tri!(product(&[quantized, widest]))),
            scales: max(self.scales, tri!(product(&[quantized, widest.div_ceil(32)]))),
            quant_sums: max(self.quant_sums, tri!(product(&[quantized, widest.div_ceil(16)]))),
            sums: max(self.sums, sums),
            panels: max(self.panels, panels),
            next_weights: Weights::len(next),
            next_vectors: tri!(product(&[4, next.half_vectors])),
            next_frequencies: frequencies[0],
            next_local_frequencies: frequencies[1],
            next_rotations: tri!(product(&[2, batch, frequencies[0]])),
            next_local_rotations: tri!(product(&[2, batch, frequencies[1]])),
            kept_tokens: kept,
            kept_states: tri!(product(&[kept, width])),
            fresh_states: tri!(product(&[batch, width])),
            ..self
        })
    }
}

impl Store {
    const fn of(spec: &Spec<'_>, options: Options) -> Result<Self, Error> {
        Self::with_positions(spec, position_bytes(spec, options.kv), 0, options)
    }

    /// Like [`of`](Self::of), but with room for the keys and values of the layer that predicts further tokens.
    #[cfg(feature = "drafts")]
    const fn with_next(spec: &Spec<'_>, next: &Spec<'_>, options: Options) -> Result<Self, Error> {
        let (mut bytes, more) = (position_bytes(spec, options.kv), position_bytes(next, options.kv));
        bytes = [bytes[0].saturating_add(more[0]), bytes[1].saturating_add(more[1])];
        // Computed first without the tiles of the predicting layer, because the size of these tiles depends on the
        // number of pages. This number is already right here, because it does not depend on the tiles.
        let store = tri!(Self::with_positions(spec, bytes, 0, options));
        let layer = next.layer(0);
        let tiles = if layer.owns_kv { tri!(store.head_pages(&layer, layer.pool())) } else { 0 };
        Self::with_positions(spec, bytes, tiles, options)
    }

    const fn with_positions(
        spec: &Spec<'_>,
        position_bytes: [usize; 2],
        _next: usize,
        options: Options,
    ) -> Result<Self, Error> {
        let Options { context, batch, kv, contexts, .. } = options;
        let mut store = Self {
            kind: kv,
            contexts,
            tiles: [0; POOLS],
            pages: [0; POOLS],
            position_bytes,
            state_bytes: Self::states_before(spec, spec.layers),
            states_at: 0,
            encoder: 0,
            #[cfg(feature = "drafts")]
            next: _next,
        };
        let windows = [spec.global.window, spec.local.window];
        let mut kind = 0;
        while kind < 2 && spec.has_head() {
            if store.position_bytes[kind] > 0 {
                (store.tiles[kind], store.pages[kind]) = match windows[kind] {
                    // A sliding window's page table covers the window of a batch's first token and the whole batch,
                    // because all keys of the batch are stored before the first token attends.
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
            store.tiles[SOURCE] = options.source(spec).div_ceil(TILE);
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

/// Rotated pairs per head.
const fn rotary_pairs(spec: &Spec<'_>, is_local: bool) -> usize {
    match spec.rope(is_local) {
        Some(rope) => rope.dim / 2,
        None => 0,
    }
}

/// Number of bytes that one position takes in each pool of pages, summed over all layers of the pool that compute keys
/// and values.
const fn position_bytes(spec: &Spec<'_>, kv: KvType) -> [usize; 2] {
    let (mut bytes, mut index) = ([0usize; 2], 0);
    while index < spec.layers {
        let layer = spec.layer(index);
        if layer.owns_kv {
            let head = head_layout(kv, &layer);
            let more = layer.kv_heads.saturating_mul(head.tile_bytes() / TILE);
            let [first, second] = &mut bytes;
            let bytes = if layer.is_local { second } else { first };
            *bytes = bytes.saturating_add(more);
        }
        index += 1;
    }
    bytes
}

/// Largest number of scratch elements that one worker needs for attention in any layer.
const fn attention_sums(spec: &Spec<'_>, batch: usize) -> usize {
    let mut most = 0;
    let mut index = 0;
    while index < spec.layers {
        let layer = spec.layer(index);
        let rows = min(MAX_ROWS, batch.saturating_mul(layer.group()));
        let head = head_layout(KvType::F32, &layer);
        // The room for one tile of values. It is needed if the cache does not store values because they are parts of
        // the keys: attention then first copies the values of a tile into rows.
        let tile = if head.shares() { TILE } else { 0 };
        most = max(most, (rows + tile) * head.padded());
        index += 1;
    }
    most
}

/// Stops compilation with the message of an error. The message also names a disabled feature if that feature would
/// help.
pub(crate) const fn stop(error: Error) -> ! {
    let mut message = error.sentence().message();
    if let Some(feature) = error.missing_feature() {
        message = message.text(b" (arenite's feature `").text(feature.as_bytes()).text(b"` runs it)");
    }
    panic!("{}", message.as_str())
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
