//! The plan: how many bytes a model needs, known before it runs, by the compiler if need be.

use crate::kernel::{Form, MAX_ROWS, panel_bytes};
use crate::memory::{Arena, HeadLayout, KvType, TILE};
use crate::message::Message;
use crate::model::{Entry, Spec, Weights};
use crate::tokenizer::Tokenizer;
use crate::{Error, Gguf, Name, tri};

/// What the caller decides about a session's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Positions in the context; 0 for as many as the model was trained for.
    pub context: usize,
    /// Tokens that prefill takes at once, at least 1. More is faster and needs more workspace.
    pub batch: usize,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// The most workers that will take part, at least 1: each has scratch of its own.
    pub workers: usize,
}

impl Options {
    /// The model's own context, 16 tokens at once, an f16 cache, one worker.
    pub const DEFAULT: Self = Self { context: 0, batch: 16, kv: KvType::F16, workers: 1 };
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
    /// Rotary frequencies.
    pub frequencies: usize,
    /// Cosines and sines of a batch.
    pub rotations: usize,
    /// The hidden states of a batch, and again as the input or output of a linear layer.
    pub hidden: usize,
    /// What is inside a block: q, k, v and attention's output, or gate and up.
    pub inner: usize,
    /// Quantized activations, their scales and offsets.
    pub quants: usize,
    pub scales: usize,
    pub offsets: usize,
    /// Attention's sums, for one worker.
    pub attention: usize,
    /// A packed panel of weights in bytes, for one worker.
    pub panel: usize,
    pub logits: usize,
    /// Tiles of a KV head.
    pub tiles: usize,
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
        let options = Options {
            context: if options.context == 0 || spec.rope.is_none() && options.context > spec.context {
                spec.context // learned positions end there
            } else {
                options.context
            },
            batch: at_least_1(options.batch),
            workers: at_least_1(options.workers),
            ..options
        };
        let batch = min(options.batch, options.context);
        let options = Options { batch, ..options };
        if options.context as u64 > i32::MAX as u64 || options.workers > 1 << 16 {
            return Err(Error::PlanTooLarge);
        }
        if !options.kv.is_built() {
            return Err(Error::Unsupported { what: "type of the KV cache", name: Name::new(b"in this build") });
        }
        let head = HeadLayout { kind: options.kv, dim: spec.head_dim };
        let widest = spec.widest_input();
        let formats = Formats::of(gguf, widest);
        let rotary = match spec.rope {
            Some(rope) => rope.dim,
            None => 0,
        };
        // A ring holds the window of the first token of a batch and the whole batch.
        let positions = match spec.window {
            Some(window) => min(options.context, window + batch - 1),
            None => options.context,
        };
        let inner = max(spec.qkv_dim() + spec.q_dim(), spec.ffn_inner());
        let layout = Layout {
            weights: Weights::len(spec.layers),
            frequencies: rotary / 2,
            rotations: tri!(product(&[batch, rotary])),
            hidden: tri!(product(&[batch, spec.dim])),
            inner: tri!(product(&[batch, inner])),
            quants: if formats.q8 || formats.q8k { tri!(product(&[batch, widest])) } else { 0 },
            scales: if formats.q8 || formats.q8k { tri!(product(&[batch, widest.div_ceil(32)])) } else { 0 },
            offsets: if formats.q8k {
                tri!(product(&[batch, widest.div_ceil(16)]))
            } else if formats.q8 {
                tri!(product(&[batch, widest.div_ceil(32)]))
            } else {
                0
            },
            attention: min(MAX_ROWS, batch * spec.group()) * head.padded(),
            panel: if batch > 1 { formats.panel } else { 0 },
            logits: spec.vocab,
            tiles: positions.div_ceil(TILE),
        };
        let workspace = tri!(layout.workspace(options.workers));
        let kv = tri!(product(&[spec.layers, spec.kv_heads, layout.tiles, head.tile_bytes()]));
        let tokenizer = match Tokenizer::index_bytes(gguf) {
            Ok(bytes) => bytes,
            Err(_) => 0, // token ids can be run all the same
        };
        Ok(Self { workspace, kv, tokenizer, options, layout })
    }
}

impl Layout {
    /// Bytes of all pieces, each on its boundary.
    const fn workspace(&self, workers: usize) -> Result<usize, Error> {
        let floats = [
            self.frequencies,
            self.rotations,
            self.hidden,
            self.hidden,
            self.inner,
            self.scales,
            self.offsets, // i32
            tri!(product(&[self.attention, workers])),
            self.logits,
        ];
        let mut total = Arena::padded(self.weights * size_of::<Entry>()) as u64
            + Arena::padded(self.quants) as u64
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
    q8: bool,
    q8k: bool,
    panel: usize,
}

impl Formats {
    /// `widest` is the most inputs that a layer has: a wider tensor is not the model's.
    const fn of(gguf: &Gguf<'_>, widest: usize) -> Self {
        let mut formats = Self { q8: false, q8k: false, panel: 0 };
        let mut tensors = gguf.tensors();
        while let Some(tensor) = tensors.next_tensor() {
            match Form::of(tensor.kind) {
                Some(Form::Q8) => formats.q8 = true,
                Some(Form::Q8K) => formats.q8k = true,
                _ => {}
            }
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

const fn at_least_1(n: usize) -> usize {
    max(n, 1)
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
