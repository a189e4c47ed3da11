//! The plan: how many bytes a model needs, known before it runs, by the compiler if need be.

use crate::forward::Relative;
use crate::kernel::{Form, MAX_ROWS, panel_bytes};
use crate::memory::{Arena, HeadLayout, KvType, TILE};
use crate::message::Message;
use crate::model::{Entry, Layer, Positions, Spec, Weights};
use crate::tokenizer::Tokenizer;
use crate::{Error, Gguf, Name, tri};

/// What the caller decides about a session's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Positions in the context, and of an encoder's text; 0 for as many as the model was trained for.
    pub context: usize,
    /// Tokens that prefill takes at once, at least 1. More is faster and needs more workspace.
    pub batch: usize,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// The most workers that will take part, at least 1: each has scratch of its own.
    pub workers: usize,
    /// The most hypotheses that beam search follows at once, at least 1. Only models with cross-attention
    /// have a cache for more than one.
    pub beams: usize,
}

impl Options {
    /// The model's own context, 16 tokens at once, an f16 cache, one worker.
    pub const DEFAULT: Self = Self { context: 0, batch: 16, kv: KvType::F16, workers: 1, beams: 1 };
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
/// # macro_rules! include_model { () => { include_bytes!("../host-demo/models/stories.gguf") } }
/// static MODEL: &[u8] = include_model!();
/// const PLAN: Plan = Plan::of(MODEL, Options { context: 64, ..Options::DEFAULT });
/// assert!(PLAN.workspace > 0 && PLAN.kv > 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// Numbers of elements of everything that lies in the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Entries of the table of weights.
    pub weights: usize,
    /// Rotary frequencies of each kind of heads; with a cosine and a sine of each for every token of a
    /// batch.
    pub frequencies: [usize; 2],
    /// The hidden states of a batch, and again as the input or output of a linear layer.
    pub hidden: usize,
    /// What is inside a block: q, k, v and attention's output, or gate and up.
    pub inner: usize,
    /// The layers' own inputs.
    pub inputs: usize,
    /// Quantized activations, their scales and sums.
    pub quants: usize,
    pub scales: usize,
    pub sums: usize,
    /// Attention's sums, for one worker.
    pub attention: usize,
    /// A packed panel of weights in bytes, for one worker.
    pub panel: usize,
    pub logits: usize,
    /// Tiles of a KV head, of each kind.
    pub tiles: [usize; 2],
    /// Bytes of a position in all rings of heads of each kind.
    pub position_bytes: [usize; 2],
    /// What is added to scores by distance.
    pub biases: usize,
    /// The states of an encoder's text.
    pub states: usize,
    /// Entries of the table of weights of the encoder behind a decoder, and its biases.
    pub source_weights: usize,
    pub source_biases: usize,
    /// Tiles of a KV head that holds an encoder's text.
    pub source_tiles: usize,
}

impl Plan {
    /// The plan for the model in `file`, for a `const`: what is wrong with the file stops the compiler,
    /// which then says what it is.
    ///
    /// # Panics
    ///
    /// Whenever [`Gguf::parse`] or [`try_of`](Self::try_of) would fail.
    pub const fn of(file: &[u8], options: Options) -> Self {
        let plan = match Gguf::parse(file) {
            Ok(gguf) => Self::try_of(&gguf, options),
            Err(error) => Err(error),
        };
        match plan {
            Ok(plan) => plan,
            Err(error) => panic!("{}", Message::of(&error).as_str()),
        }
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
            let message =
                Message::new("the model needs ").number(needed).text(" bytes of RAM, more than the budget of ");
            panic!("{}", message.number(ram as u64).text(": plan a smaller context or batch").as_str());
        }
        self
    }

    /// The plan for a file.
    ///
    /// # Errors
    ///
    /// What [`Spec::read`] says of the metadata, and [`Error::PlanTooLarge`].
    pub const fn try_of(gguf: &Gguf<'_>, options: Options) -> Result<Self, Error> {
        let spec = tri!(Spec::read(gguf));
        let learned = matches!(spec.positions(), Positions::Learned);
        let options = Options {
            context: if options.context == 0 || learned && options.context > spec.context {
                spec.context // learned positions end there
            } else {
                options.context
            },
            batch: at_least_1(options.batch),
            workers: at_least_1(options.workers),
            beams: if spec.has_cross_attention() { at_least_1(options.beams) } else { 1 },
            ..options
        };
        // Hypotheses are run together.
        let batch = max(min(options.batch, options.context), options.beams);
        let options = Options { batch, ..options };
        if options.context as u64 > i32::MAX as u64 || options.workers > 1 << 16 || options.beams > 1 << 12 {
            return Err(Error::PlanTooLarge);
        }
        if !options.kv.is_built() {
            return Err(Error::Unsupported { what: "type of the KV cache", name: Name::new(b"in this build") });
        }
        let encoder = spec.encoder();
        let has_encoder = encoder.is_some() || !spec.has_head();
        let widest = spec.widest_input();
        let formats = Formats::of(gguf, widest);
        let layout = Layout {
            weights: Weights::len(&spec),
            frequencies: [rotary_pairs(&spec, 0), rotary_pairs(&spec, 1)],
            hidden: tri!(product(&[batch, spec.dim])),
            inner: tri!(product(&[batch, spec.inner()])),
            inputs: tri!(product(&[batch, spec.layers, spec.per_layer_input()])),
            quants: if formats.quantized { tri!(product(&[batch, widest])) } else { 0 },
            scales: if formats.quantized { tri!(product(&[batch, widest.div_ceil(32)])) } else { 0 },
            sums: if formats.quantized { tri!(product(&[batch, widest.div_ceil(16)])) } else { 0 },
            attention: attention_sums(&spec, batch),
            panel: if batch > 1 { formats.panel } else { 0 },
            logits: if spec.has_head() { spec.vocab } else { 0 },
            tiles: [tiles(&spec, 0, options), tiles(&spec, 1, options)],
            position_bytes: [position_bytes(&spec, 0, options.kv), position_bytes(&spec, 1, options.kv)],
            biases: tri!(biases(&spec, options)),
            states: if has_encoder { tri!(product(&[options.context, spec.dim])) } else { 0 },
            source_weights: match &encoder {
                Some(encoder) => Weights::len(encoder),
                None => 0,
            },
            source_biases: match &encoder {
                Some(encoder) => tri!(biases(encoder, options)),
                None => 0,
            },
            source_tiles: if has_encoder { options.context.div_ceil(TILE) } else { 0 },
        };
        let workspace = tri!(layout.workspace(batch, options.workers));
        let kv = tri!(layout.kv(&spec, options.kv));
        let tokenizer = match Tokenizer::index_bytes(gguf) {
            Ok(bytes) => bytes,
            Err(_) => 0, // token ids can be run all the same
        };
        Ok(Self { workspace, kv, tokenizer, options, layout })
    }

    /// Bytes of a layer's keys and values, if it has its own. The plan has shown that they can be counted.
    pub(crate) fn ring_bytes(&self, layer: &Layer) -> usize {
        self.layout.ring_bytes(layer, self.options.kv).unwrap_or(0)
    }

    /// Bytes of the keys and values of an encoder's text in a layer.
    pub(crate) fn source_ring_bytes(&self, layer: &Layer) -> usize {
        self.layout.source_ring_bytes(layer, self.options.kv).unwrap_or(0)
    }

    /// Positions that the cache keeps for heads of a kind.
    pub(crate) fn kept(&self, kind: usize) -> usize {
        self.layout.tiles.get(kind).map_or(0, |tiles| tiles * TILE)
    }
}

/// Pairs that rotary positions turn in a head.
const fn rotary_pairs(spec: &Spec<'_>, kind: usize) -> usize {
    match spec.rope(kind) {
        Some(rope) => rope.dim / 2,
        None => 0,
    }
}

/// Tiles of a KV head. A ring holds the window of the first token of a batch and the whole batch.
const fn tiles(spec: &Spec<'_>, kind: usize, options: Options) -> usize {
    let [first, second] = spec.kinds;
    let positions = match if kind == 0 { first.window } else { second.window } {
        Some(window) => min(options.context, window + options.batch - 1),
        None => options.context.saturating_mul(options.beams),
    };
    positions.div_ceil(TILE)
}

/// Bytes of a position in the rings of all layers of a kind.
const fn position_bytes(spec: &Spec<'_>, kind: usize, kv: KvType) -> usize {
    let (mut bytes, mut index) = (0usize, 0);
    while index < spec.layers {
        let layer = spec.layer(index);
        if layer.owns_kv && layer.kind == kind {
            let head = HeadLayout { kind: kv, dim: layer.head.dim };
            bytes = bytes.saturating_add(layer.kv_heads.saturating_mul(head.tile_bytes() / TILE));
        }
        index += 1;
    }
    bytes
}

/// Numbers added to a stack's scores.
const fn biases(spec: &Spec<'_>, options: Options) -> Result<usize, Error> {
    match Relative::len(spec, options.context) {
        Some(len) => Ok(len),
        None => Err(Error::PlanTooLarge),
    }
}

/// What one worker's sums need in the layer that needs most.
const fn attention_sums(spec: &Spec<'_>, batch: usize) -> usize {
    let mut most = 0;
    let mut index = 0;
    while index < spec.layers {
        let layer = spec.layer(index);
        let rows = min(MAX_ROWS, batch * layer.group());
        most = max(most, rows * layer.head.dim.next_multiple_of(16));
        index += 1;
    }
    most
}

impl Layout {
    /// Bytes of a layer's keys and values, if it has its own.
    const fn ring_bytes(&self, layer: &Layer, kind: KvType) -> Result<usize, Error> {
        let [first, second] = self.tiles;
        let tiles = if layer.kind == 0 { first } else { second };
        product(&[layer.kv_heads, tiles, HeadLayout { kind, dim: layer.head.dim }.tile_bytes()])
    }

    /// Bytes of the keys and values of an encoder's text in a layer.
    const fn source_ring_bytes(&self, layer: &Layer, kind: KvType) -> Result<usize, Error> {
        product(&[layer.kv_heads, self.source_tiles, HeadLayout { kind, dim: layer.head.dim }.tile_bytes()])
    }

    /// Bytes of the cache: the layers that have keys and values of their own; of an encoder, one layer,
    /// where a decoder's layers keep theirs later; and for cross-attention, those of the encoder's text.
    const fn kv(&self, spec: &Spec<'_>, kind: KvType) -> Result<usize, Error> {
        let source = tri!(self.source_ring_bytes(&spec.layer(0), kind));
        if !spec.has_head() {
            return Ok(source);
        }
        let own = tri!(self.own_kv(spec, kind));
        if spec.has_cross_attention() { sum(max(own, source), tri!(product(&[spec.layers, source]))) } else { Ok(own) }
    }

    /// Bytes of the layers that have keys and values of their own.
    const fn own_kv(&self, spec: &Spec<'_>, kind: KvType) -> Result<usize, Error> {
        let mut total = 0usize;
        let mut index = 0;
        while index < spec.layers {
            let layer = spec.layer(index);
            if layer.owns_kv {
                total = tri!(sum(total, tri!(self.ring_bytes(&layer, kind))));
            }
            index += 1;
        }
        Ok(total)
    }

    /// Bytes of all pieces, each on its boundary.
    const fn workspace(&self, batch: usize, workers: usize) -> Result<usize, Error> {
        let [first, second] = self.frequencies;
        let floats = [
            first,
            second,
            tri!(product(&[batch, 2 * first])),
            tri!(product(&[batch, 2 * second])),
            self.hidden,
            self.hidden,
            self.inner,
            self.inputs,
            self.scales,
            tri!(product(&[self.attention, workers])),
            self.logits,
            self.biases,
            self.states,
            self.source_biases,
        ];
        let mut total = Arena::padded(self.weights * size_of::<Entry>()) as u64
            + Arena::padded(self.source_weights * size_of::<Entry>()) as u64
            + Arena::padded(self.quants) as u64
            + Arena::padded(tri!(product(&[self.sums, 2]))) as u64
            + Arena::padded(tri!(product(&[self.panel, workers]))) as u64;
        let mut i = 0;
        while i < floats.len() {
            total += Arena::padded(tri!(product(&[floats[i], 4]))) as u64;
            i += 1;
        }
        if total > isize::MAX as u64 { Err(Error::PlanTooLarge) } else { Ok(total as usize) }
    }
}

/// What the weight types in a file ask of the workspace.
struct Formats {
    quantized: bool,
    panel: usize,
}

impl Formats {
    /// `widest` is the most inputs that a layer has: a wider tensor is not the model's.
    const fn of(gguf: &Gguf<'_>, widest: usize) -> Self {
        let mut formats = Self { quantized: false, panel: 0 };
        let mut tensors = gguf.tensors();
        while let Some(tensor) = tensors.next_tensor() {
            formats.quantized |= matches!(Form::of(tensor.kind), Some(Form::Q8 | Form::Q8K));
            let cols = if tensor.dims[0] < widest as u64 { tensor.dims[0] as usize } else { widest };
            formats.panel = max(formats.panel, panel_bytes(tensor.kind, cols));
        }
        formats
    }
}

/// The product, or [`Error::PlanTooLarge`] with room to spare for adding a few of them.
const fn product(factors: &[usize]) -> Result<usize, Error> {
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

/// The sum, likewise.
const fn sum(a: usize, b: usize) -> Result<usize, Error> {
    match a.checked_add(b) {
        Some(sum) if sum <= isize::MAX as usize / 2 => Ok(sum),
        _ => Err(Error::PlanTooLarge),
    }
}

const fn at_least_1(n: usize) -> usize {
    max(n, 1)
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
