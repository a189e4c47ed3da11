//! LoRA adapters ([Hu et al. 2021](https://arxiv.org/abs/2106.09685)), in llama.cpp's GGUF form.
//!
//! For some weight matrices `W` of a model, an adapter has two low-rank matrices `A` and `B`, and changes `y = W x` to
//! `y = W x + scale * alpha / rank * B (A x)`. `W` itself does not change, so every [`Context`](crate::Context) can use
//! its own adapters, each with a scale, and contexts with different adapters share a pass.
//!
//! ```text
//! general.type = adapter | adapter.type = lora | general.architecture: the model's
//! adapter.lora.alpha f32   if 0, the products are added without `alpha / rank`
//! adapter.lora.bias bool   if true, the last row of every `A x` is 1, so that the last column of `B` is a bias
//! NAME.lora_a              [columns of NAME, rank]; for token_embd.weight [rank, rows of NAME]
//! NAME.lora_b              [rank, rows of NAME]; for token_embd.weight [rank, columns of NAME]
//! ```
//!
//! If a model's token embedding is also its head, `token_embd.weight` changes only the embedding, and `output.weight` only
//! the head.
//!
//! For a tensor with one matrix per expert, the third dimension counts the experts. `A` and `B` are F32, F16 or BF16.

use crate::gguf::{Tensor, Value};
use crate::kernel::Form;
use crate::model::{Model, TensorUse};
use crate::{Error, Gguf, Name};

/// A LoRA adapter in a file. [`new`](Self::new) has checked that the adapter's matrices fit the tensors of a model.
///
/// # Examples
///
/// ```
/// use arenite::{Adapter, Engine, Gguf, Line, Model, Options, Plan, Work};
///
/// # let file = std::fs::read("tests/fixtures/qwen3/model.gguf").unwrap();
/// # let [first, second] = ["first", "second"].map(|name| std::fs::read(format!("tests/fixtures/lora/{name}.gguf")).unwrap());
/// let gguf = Gguf::parse(&file)?;
/// let model = Model::new(&gguf)?;
/// let adapters = [Adapter::new(&Gguf::parse(&first)?, &model)?, Adapter::new(&Gguf::parse(&second)?, &model)?];
/// let plan = Plan::new(&gguf, Options::new().context(64).contexts(2).adapters(2).rank(4))?;
/// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
/// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
/// let engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
/// let mut engine = engine.with_adapters(&adapters)?;
///
/// let (mut a, mut b) = (engine.open()?, engine.open()?);
/// engine.adapt(&mut a, &[(0, 1.0)])?; // the first adapter
/// engine.adapt(&mut b, &[(0, 0.5), (1, 0.5)])?; // both
/// engine.run(&mut [Work::prefill(&mut a, &[1, 2, 3]), Work::prefill(&mut b, &[1, 2, 3])])?; // one pass
/// assert_ne!(engine.logits(&a), engine.logits(&b));
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Adapter<'a> {
    gguf: Gguf<'a>,
    alpha: f32,
    rank: usize,
    /// True if the last column of each `B` is a bias.
    pub(crate) has_bias: bool,
}

/// An adapter's two matrices for one tensor of the model.
pub(crate) struct Pair<'t> {
    /// The model's tensor.
    pub tensor: Tensor<'t>,
    /// True if the pair changes the embedding of tokens. The rows of an embedding are looked up and not multiplied.
    pub is_lookup: bool,
    pub a: Tensor<'t>,
    pub b: Tensor<'t>,
    pub rank: usize,
}

impl<'a> Adapter<'a> {
    /// Checks an adapter's metadata and the shape of every tensor. Does not read the weights.
    ///
    /// # Errors
    ///
    /// [`Error::MissingKey`], [`Error::KeyType`], [`Error::KeyValue`] and [`Error::UnexpectedKey`] for the metadata;
    /// [`Error::UnexpectedTensor`] for a tensor that fits no linear layer of the model, [`Error::MissingTensor`] for a
    /// missing half of a pair, [`Error::TensorShape`] and [`Error::TensorType`].
    pub fn new(gguf: &Gguf<'a>, model: &Model<'_>) -> Result<Self, Error> {
        let text = |prefix: &str, name: &str, wanted: &str, why: &'static str| match gguf.str(prefix, name)? {
            Some(found) if found == wanted.as_bytes() => Ok(()),
            _ => Err(Error::KeyValue { key: Name::key(prefix, name), why }),
        };
        text("general", "type", "adapter", "is not adapter: this file is a model")?;
        text("adapter", "type", "lora", "is not lora, the only supported type of adapters")?;
        let architecture = model.gguf().architecture()?;
        text("general", "architecture", architecture, "is not the architecture of the model")?;
        let names = [
            "adapter.type",
            "adapter.lora.alpha",
            "adapter.lora.bias",
            "adapter.lora.task_name",
            "adapter.lora.prompt_prefix",
        ];
        for (key, _) in gguf.keys().filter(|(key, _)| key.starts_with("adapter.")) {
            if !names.contains(&key) {
                return Err(Error::UnexpectedKey { key: Name::new(key.as_bytes()) });
            }
        }
        let key = Name::key("adapter.lora", "alpha");
        let alpha = gguf.f32("adapter.lora", "alpha")?.ok_or(Error::MissingKey { key })?;
        if !alpha.is_finite() {
            return Err(Error::KeyValue { key, why: "is not a finite number" });
        }
        let has_bias = gguf.bool("adapter.lora", "bias")?.unwrap_or(false);
        let mut adapter = Self { gguf: *gguf, alpha, rank: 0, has_bias };
        let mut rank = 0;
        adapter.each_pair(model, &mut |pair| rank = pair.rank.max(rank))?;
        adapter.rank = rank;
        Ok(adapter)
    }

    /// Largest rank of the adapter's pairs: [`Options::rank`](crate::Options::rank) must be at least as large.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The adapter's file.
    pub fn gguf(&self) -> &Gguf<'a> {
        &self.gguf
    }

    /// Name of the adapter's task, if the metadata has one.
    pub fn task_name(&self) -> Option<&'a [u8]> {
        match self.gguf.get("adapter.lora.task_name") {
            Some(Value::Str(name)) => Some(name),
            _ => None,
        }
    }

    /// Factor on `B (A x)` of a pair.
    pub(crate) fn factor(&self, scale: f32, rank: usize) -> f32 {
        if self.alpha == 0.0 { scale } else { scale * self.alpha / rank as f32 }
    }

    /// Calls `each` with every pair of matrices of the adapter, in the order of the model's tensors. Returns an error
    /// if the adapter has a tensor that belongs to no pair.
    pub(crate) fn each_pair(&self, model: &Model<'_>, each: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        let mut count = 0;
        for tensor in model.gguf().tensors() {
            let is_head = tensor.name == EMBEDDING && is_tied(model);
            for name in [Some(tensor.name), is_head.then_some(HEAD)].into_iter().flatten() {
                count += self.pair(model, name, &tensor, each)?;
            }
        }
        if count == self.gguf.tensor_count() { Ok(()) } else { self.blame(model) }
    }

    /// Calls `each` with the adapter's pair of matrices for `tensor`, which has the name `name` in the adapter. Returns
    /// the number of the adapter's tensors that belong to it: 2, or 0 if the adapter has no such pair.
    fn pair(
        &self,
        model: &Model<'_>,
        name: &str,
        tensor: &Tensor<'_>,
        each: &mut dyn FnMut(Pair<'_>),
    ) -> Result<u64, Error> {
        let (a, b) = match (self.half(name, A), self.half(name, B)) {
            (None, None) => return Ok(0),
            (Some(a), Some(b)) => (a, b),
            (None, _) => return Err(missing(name, A)),
            (_, None) => return Err(missing(name, B)),
        };
        let is_lookup = match model.use_of(tensor.name) {
            TensorUse::Product => false,
            TensorUse::Embedding => name == tensor.name,
            TensorUse::Other => return Err(unexpected(&a)),
        };
        let [cols, rows, slabs, more] = tensor.dims;
        let rank = if is_lookup { a.dims[0] } else { a.dims[1] };
        let shapes = if is_lookup { ([rank, rows], [rank, cols]) } else { ([cols, rank], [rank, rows]) };
        for (half, [x, y]) in [(&a, shapes.0), (&b, shapes.1)] {
            let expected = [x, y, slabs, more];
            if half.dims != expected {
                let tensor = Name::new(half.name.as_bytes());
                return Err(Error::TensorShape { tensor, found: half.dims, expected });
            }
            if Form::of(half.kind) != Some(Form::F32) {
                return Err(Error::TensorType { tensor: Name::new(half.name.as_bytes()), kind: half.kind });
            }
        }
        let rank = usize::try_from(rank).map_err(|_| Error::PlanTooLarge)?;
        each(Pair { tensor: *tensor, is_lookup, a, b, rank });
        Ok(2)
    }

    /// Returns an error for the first tensor of the adapter that belongs to no tensor of the model.
    #[cold]
    fn blame(&self, model: &Model<'_>) -> Result<(), Error> {
        for tensor in self.gguf.tensors() {
            let base = tensor.name.strip_suffix(A).or_else(|| tensor.name.strip_suffix(B));
            let is_known = |base| model.gguf().tensor(base).is_some() || base == HEAD && is_tied(model);
            if !base.is_some_and(is_known) {
                return Err(unexpected(&tensor));
            }
        }
        Ok(())
    }

    /// The tensor called `name` followed by `end`.
    fn half(&self, name: &str, end: &str) -> Option<Tensor<'a>> {
        let mut bytes = [0; 64]; // names of tensors have at most 63 bytes
        let whole = bytes.get_mut(..name.len() + end.len())?;
        whole.iter_mut().zip(name.bytes().chain(end.bytes())).for_each(|(to, from)| *to = from);
        self.gguf.tensor(core::str::from_utf8(whole).ok()?).filter(|tensor| !tensor.in_storage())
    }
}

/// Suffixes of the names of a pair's tensors.
const A: &str = ".lora_a";
const B: &str = ".lora_b";

/// Names of the token embedding and of the head.
const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

/// True if the model's embedding of tokens is also its head. For such a model, an adapter can have two pairs: one under
/// the name of the embedding, and one under the name of the head.
fn is_tied(model: &Model<'_>) -> bool {
    model.spec().has_head() && model.gguf().tensor(HEAD).is_none()
}

fn missing(name: &str, end: &str) -> Error {
    Error::MissingTensor { tensor: Name::joined(name.as_bytes(), end.as_bytes()) }
}

fn unexpected(tensor: &Tensor<'_>) -> Error {
    Error::UnexpectedTensor { tensor: Name::new(tensor.name.as_bytes()) }
}
