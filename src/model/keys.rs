//! Reading hyperparameters: typed, ranged, named in every error.

use super::{MAX_LAYERS, Need, Norm, Rope, RopeStyle, Scaling, Spec};
use crate::kernel::Activation;
use crate::{Error, Gguf, Name, tri};

/// A file's metadata under its architecture's prefix.
pub(super) struct Keys<'g, 'a> {
    gguf: &'g Gguf<'a>,
    pub architecture: &'a str,
}

/// Widths beyond this are not models; with it no product of two sizes overflows 64 bits.
const MAX_WIDTH: usize = 1 << 22;

impl<'g, 'a> Keys<'g, 'a> {
    pub const fn new(gguf: &'g Gguf<'a>) -> Result<Self, Error> {
        Ok(Self { gguf, architecture: tri!(gguf.architecture()) })
    }

    /// The size under `name`, from 1 to `max`.
    pub const fn size(&self, name: &str, max: usize) -> Result<usize, Error> {
        match tri!(self.optional_size(name, max)) {
            Some(value) => Ok(value),
            None => Err(Error::MissingKey { key: self.name(name) }),
        }
    }

    /// As [`size`](Self::size), but the key may be absent.
    pub const fn optional_size(&self, name: &str, max: usize) -> Result<Option<usize>, Error> {
        match tri!(self.gguf.u32(self.architecture, name)) {
            Some(0) => Err(self.wrong(name, "is 0, which no model can have")),
            Some(value) if value as u64 > max as u64 => Err(self.wrong(name, "is too large")),
            Some(value) => Ok(Some(value as usize)),
            None => Ok(None),
        }
    }

    /// The positive, finite number under `name`; `None` if the key is absent.
    pub const fn positive(&self, name: &str) -> Result<Option<f32>, Error> {
        match tri!(self.gguf.f32(self.architecture, name)) {
            Some(value) if value > 0.0 && value.is_finite() => Ok(Some(value)),
            Some(_) => Err(self.wrong(name, "must be a positive number")),
            None => Ok(None),
        }
    }

    /// Everything that the families have in common, as llama has it: RMS norm, rotary positions in
    /// `style`, separate q, k and v without biases, a gated feed-forward with SiLU.
    pub const fn decoder(&self, style: RopeStyle) -> Result<Spec, Error> {
        let dim = tri!(self.size("embedding_length", MAX_WIDTH));
        let layers = tri!(self.size("block_count", MAX_LAYERS));
        let heads = tri!(self.size("attention.head_count", MAX_WIDTH));
        let kv_heads = match tri!(self.optional_size("attention.head_count_kv", MAX_WIDTH)) {
            Some(kv_heads) => kv_heads,
            None => heads, // the format's default: multi-head attention
        };
        if !heads.is_multiple_of(kv_heads) {
            return Err(self.wrong("attention.head_count_kv", "does not divide attention.head_count"));
        }
        let head_dim = match tri!(self.optional_size("attention.key_length", MAX_WIDTH)) {
            Some(head_dim) => head_dim,
            None => match dim.checked_div(heads) {
                Some(head_dim) if dim.is_multiple_of(heads) => head_dim,
                _ => return Err(self.wrong("attention.head_count", "does not divide embedding_length")),
            },
        };
        if heads as u64 * head_dim as u64 > MAX_WIDTH as u64 {
            return Err(self.wrong("attention.head_count", "is too large"));
        }
        match tri!(self.optional_size("attention.value_length", MAX_WIDTH)) {
            Some(length) if length != head_dim => {
                return Err(self.wrong("attention.value_length", "differs from attention.key_length: not supported"));
            }
            _ => {}
        }
        Ok(Spec {
            vocab: tri!(self.vocab()),
            dim,
            layers,
            heads,
            kv_heads,
            head_dim,
            ffn: tri!(self.size("feed_forward_length", MAX_WIDTH)),
            context: tri!(self.size("context_length", i32::MAX as usize)),
            norm: Norm::Rms,
            norm_eps: 0.0,
            rope: Some(tri!(self.rope(style, head_dim))),
            fused_qkv: false,
            qkv_bias: Need::Absent,
            linear_bias: Need::Absent,
            qk_norm: Need::Absent,
            attention_scale: None,
            window: tri!(self.optional_size("attention.sliding_window", i32::MAX as usize)),
            activation: Activation::Silu,
            gated: true,
        })
    }

    /// The required positive number under `name`.
    pub const fn eps(&self, name: &str) -> Result<f32, Error> {
        match tri!(self.positive(name)) {
            Some(eps) => Ok(eps),
            None => Err(Error::MissingKey { key: self.name(name) }),
        }
    }

    /// The rows of the token embedding: what the vocabulary is, whatever the metadata says.
    const fn vocab(&self) -> Result<usize, Error> {
        const EMBEDDING: &str = "token_embd.weight";
        match self.gguf.tensor(EMBEDDING) {
            Some(tensor) if tensor.dims[1] <= i32::MAX as u64 => Ok(tensor.dims[1] as usize),
            Some(tensor) => Err(Error::TensorShape {
                tensor: Name::new(EMBEDDING.as_bytes()),
                found: tensor.dims,
                expected: [tensor.dims[0], i32::MAX as u64, 1, 1],
            }),
            None => Err(Error::MissingTensor { tensor: Name::new(EMBEDDING.as_bytes()) }),
        }
    }

    const fn rope(&self, style: RopeStyle, head_dim: usize) -> Result<Rope, Error> {
        let dim = match tri!(self.optional_size("rope.dimension_count", MAX_WIDTH)) {
            Some(dim) => dim,
            None => head_dim,
        };
        if dim % 2 != 0 {
            return Err(self.wrong("rope.dimension_count", "is odd: rotary positions turn pairs"));
        }
        if dim > head_dim {
            return Err(self.wrong("rope.dimension_count", "is larger than a head"));
        }
        let base = match tri!(self.positive("rope.freq_base")) {
            Some(base) => base,
            None => 10000.0, // the format's default
        };
        Ok(Rope { style, dim, base, scaling: tri!(self.scaling()) })
    }

    const fn scaling(&self) -> Result<Scaling, Error> {
        const TYPE: &str = "rope.scaling.type";
        let kind = match tri!(self.gguf.str(self.architecture, TYPE)) {
            Some(kind) => kind,
            // Files from before the key: a factor alone means linear.
            None if self.gguf.get2(self.architecture, "rope.scaling.factor").is_some() => b"linear",
            None => b"none",
        };
        let factor = match tri!(self.positive("rope.scaling.factor")) {
            Some(factor) => factor,
            None => 1.0,
        };
        match kind {
            b"none" => Ok(Scaling::None),
            b"linear" => Ok(Scaling::Linear { factor }),
            b"yarn" => {
                let original = match tri!(self.optional_size("rope.scaling.original_context_length", i32::MAX as usize))
                {
                    Some(original) => original,
                    None => tri!(self.size("context_length", i32::MAX as usize)),
                };
                Ok(Scaling::Yarn {
                    factor,
                    original: original as f32,
                    beta_fast: tri!(self.or("rope.scaling.yarn_beta_fast", 32.0)),
                    beta_slow: tri!(self.or("rope.scaling.yarn_beta_slow", 1.0)),
                    attn_factor: tri!(self.or("rope.scaling.attn_factor", 1.0)),
                })
            }
            name => Err(Error::Unsupported { what: "rope scaling", name: Name::new(name) }),
        }
    }

    /// The positive number under `name`, or `default` where there is none.
    const fn or(&self, name: &str, default: f32) -> Result<f32, Error> {
        match tri!(self.positive(name)) {
            Some(value) => Ok(value),
            None => Ok(default),
        }
    }

    pub const fn wrong(&self, name: &str, why: &'static str) -> Error {
        Error::KeyValue { key: self.name(name), why }
    }

    const fn name(&self, name: &str) -> Name {
        Name::key(self.architecture, name)
    }
}
