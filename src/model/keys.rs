//! Reads hyperparameters from a file's metadata, with checks of type and range. Errors name the key.

mod experts;
mod layout;
mod mixers;
mod pooled;
mod rope;

use super::layers::{HeadSpec, Numbers, Pattern, PerLayer};
use super::neutral;
use super::rope::RopeStyle;
use super::spec::Special;
use super::{EncoderSizes, MAX_LAYERS, Need, Norm, Pooling, Spec, Stack, Values};
use crate::gguf::{Array, Value, ValueType, equal, optional};
use crate::kernel::Activation;
use crate::{Error, Gguf, Name, built, tri};

/// A file's metadata under its architecture's prefix, with a set of the keys requested so far.
pub(super) struct Keys<'g, 'a> {
    gguf: &'g Gguf<'a>,
    pub architecture: &'a str,
    /// A bit for each of the file's keys, which is set if the family has requested the key.
    requested: [u32; MAX_KEYS / 32],
    /// Number of layers; 0 until it was read.
    layers: usize,
    /// True if layers may lack attention or a feed-forward; a size of 0 is then allowed.
    pub partial_layers: bool,
    /// True if a window applies to all layers unless the file has a pattern of local layers.
    window_everywhere: bool,
    /// True for attention to latent vectors. The file's lengths of keys and values may then differ from the lengths in
    /// the cache.
    is_latent: bool,
}

/// Number of keys in a file for which it is recorded whether the family has requested them. These are the first keys of
/// the file, and all keys of the architecture must be among them.
const MAX_KEYS: usize = 512;
/// Largest width accepted. With this limit, no product of two sizes overflows 64 bits.
const MAX_WIDTH: usize = 1 << 22;
/// Key of the token that starts the decoder.
const START: &str = "decoder_start_token_id";
/// The most experts, as in llama.cpp (`LLAMA_MAX_EXPERTS`).
const MAX_EXPERTS: usize = 512;

impl<'g, 'a> Keys<'g, 'a> {
    pub const MAX_WIDTH: usize = MAX_WIDTH;

    pub const fn new(gguf: &'g Gguf<'a>) -> Result<Self, Error> {
        Ok(Self {
            gguf,
            architecture: tri!(gguf.architecture()),
            requested: [0; MAX_KEYS / 32],
            layers: 0,
            partial_layers: false,
            window_everywhere: false,
            is_latent: false,
        })
    }

    /// Returns the value under `name` and records that the key was requested.
    const fn get(&mut self, name: &str) -> Option<Value<'a>> {
        let Some((index, value)) = self.gguf.find(self.architecture, name) else { return None };
        if index < MAX_KEYS {
            self.requested[index / 32] |= 1 << (index % 32);
        }
        Some(value)
    }

    /// Reads the float under `name`.
    const fn float(&mut self, name: &str) -> Result<Option<f32>, Error> {
        optional!(self.get(name), f32(self.architecture, name))
    }

    /// Checks that every key of the architecture was requested or has a [neutral](super::neutral) value.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedKey`] and [`Error::UnsupportedKey`].
    pub const fn all_known(&self) -> Result<(), Error> {
        let (mut keys, mut index) = (self.gguf.keys(), 0);
        while let Some((key, value)) = keys.next_key() {
            let is_requested = index < MAX_KEYS && self.requested[index / 32] >> (index % 32) & 1 != 0;
            index += 1;
            if let (false, Some(name)) = (is_requested, after(key.as_bytes(), self.architecture.as_bytes())) {
                tri!(neutral::check(self.gguf, self.architecture, name, value));
            }
        }
        Ok(())
    }

    /// Reads the size under `name`, from 1 to `max`.
    pub const fn size(&mut self, name: &'static str, max: usize) -> Result<usize, Error> {
        match tri!(self.optional_size(name, max)) {
            Some(value) => Ok(value),
            None => Err(self.missing(name)),
        }
    }

    /// Like [`size`](Self::size), but the key may be absent.
    pub const fn optional_size(&mut self, name: &'static str, max: usize) -> Result<Option<usize>, Error> {
        match tri!(self.integer(name)) {
            Some(0) => Err(self.wrong(name, "is 0, which no model can have")),
            Some(value) if value as u64 > max as u64 => Err(self.wrong(name, "is too large")),
            Some(value) => Ok(Some(value as usize)),
            None => Ok(None),
        }
    }

    /// Reads the number of query heads.
    const fn heads(&mut self) -> Result<PerLayer<'a>, Error> {
        const NAME: &str = "attention.head_count";
        match tri!(self.per_layer(NAME, MAX_WIDTH, self.layers)) {
            Some(heads) => Ok(heads),
            None => Err(self.missing(NAME)),
        }
    }

    /// Reads a size like [`optional_size`](Self::optional_size). Accepts 0 for models whose layers may lack attention
    /// or a feed-forward.
    const fn partial_size(&mut self, name: &'static str, max: usize) -> Result<Option<usize>, Error> {
        match tri!(self.integer(name)) {
            Some(0) if self.partial_layers => Ok(Some(0)),
            _ => self.optional_size(name, max),
        }
    }

    /// Reads the integer under `name`. Once the number of layers is known, an array of equal integers, one for each
    /// layer, counts as that integer.
    const fn integer(&mut self, name: &'static str) -> Result<Option<u32>, Error> {
        let value = match self.get(name) {
            Some(Value::Array(array)) if built::LENIENT && self.layers > 0 && array.len() == self.layers => {
                match array.same() {
                    Some(value) => value,
                    None => return Err(self.wrong(name, "must be the same for all layers")),
                }
            }
            Some(value) => value,
            None => return Ok(None),
        };
        match value.u32(self.architecture, name) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(error),
        }
    }

    /// Like [`positive`](Self::positive), but treats a value of 0 like a missing key.
    pub const fn unless_zero(&mut self, name: &'static str) -> Result<Option<f32>, Error> {
        match tri!(self.float(name)) {
            Some(0.0) | None => Ok(None),
            _ => self.positive(name),
        }
    }

    /// Reads the required negative, finite number under `name`.
    pub const fn negative(&mut self, name: &'static str) -> Result<f32, Error> {
        match tri!(self.float(name)) {
            Some(value) if value < 0.0 && value.is_finite() => Ok(value),
            Some(_) => Err(self.wrong(name, "must be a negative number")),
            None => Err(self.missing(name)),
        }
    }

    /// Reads the positive, finite number under `name`; `None` if the key is missing.
    pub const fn positive(&mut self, name: &'static str) -> Result<Option<f32>, Error> {
        match tri!(self.float(name)) {
            Some(value) if value > 0.0 && value.is_finite() => Ok(Some(value)),
            Some(_) => Err(self.wrong(name, "must be a positive number")),
            None => Ok(None),
        }
    }

    /// Reads the sizes of layers under `name`: one number for all layers, or an array with a number per layer. Sizes
    /// are from 1 to `max`.
    pub const fn per_layer(
        &mut self,
        name: &'static str,
        max: usize,
        layers: usize,
    ) -> Result<Option<PerLayer<'a>>, Error> {
        let Some(Value::Array(sizes)) = self.get(name) else {
            return match tri!(self.partial_size(name, max)) {
                Some(size) => Ok(Some(PerLayer::All(size))),
                None => Ok(None),
            };
        };
        tri!(self.one_each(name, &sizes, layers));
        let mut index = 0;
        while index < layers {
            match sizes.get_i32(index) {
                Some(size) if size as usize <= max && (size > 0 || size == 0 && self.partial_layers) => {}
                _ => return Err(self.wrong(name, "has an element that is 0, too large or not an integer")),
            }
            index += 1;
        }
        Ok(Some(match (sizes.same(), sizes.get_i32(0)) {
            (Some(_), Some(size)) => PerLayer::All(size as usize),
            _ => PerLayer::Each(sizes),
        }))
    }

    /// Reads the pattern of local layers from `attention.sliding_window_pattern`: an array of booleans, or the period
    /// of global layers. `None` if the key is missing.
    pub const fn local_layers(&mut self, layers: usize) -> Result<Option<Pattern<'a>>, Error> {
        const NAME: &str = "attention.sliding_window_pattern";
        if let Some(pattern) = tri!(self.layers_where(NAME, layers)) {
            return Ok(Some(pattern));
        }
        match tri!(self.optional_size(NAME, MAX_LAYERS)) {
            Some(period) => Ok(Some(Pattern::AllBut(period))),
            None => Ok(None),
        }
    }

    /// Checks that `array` has `layers` elements, or as many elements as the file has layers.
    const fn one_each(&self, name: &str, array: &Array<'_>, layers: usize) -> Result<(), Error> {
        if array.len() == layers || array.len() == self.layers {
            Ok(())
        } else {
            Err(self.wrong(name, "must have one element per layer"))
        }
    }

    /// Reads the boolean under `name`.
    pub const fn switch(&mut self, name: &'static str) -> Result<Option<bool>, Error> {
        optional!(self.get(name), bool(self.architecture, name))
    }

    /// Reads the string under `name`.
    pub const fn text(&mut self, name: &'static str) -> Result<Option<&'a [u8]>, Error> {
        optional!(self.get(name), str(self.architecture, name))
    }

    /// Derives the spec of an encoder-decoder's decoder: changes the encoder's spec as the file's keys for the decoder
    /// say.
    pub const fn target(&mut self, spec: Spec<'a>) -> Result<Spec<'a>, Error> {
        let start = match tri!(self.integer(START)) {
            Some(start) if (start as usize) < spec.vocab => start,
            Some(_) => return Err(self.wrong(START, "is not the id of a token")),
            None => return Err(self.missing(START)),
        };
        let (PerLayer::All(ffn), PerLayer::All(heads), PerLayer::All(kv_heads)) = (spec.ffn, spec.heads, spec.kv_heads)
        else {
            return Err(self.wrong("feed_forward_length", "and head counts must be the same for all layers"));
        };
        let Spec { layers, global, dim, .. } = spec;
        if !heads.is_multiple_of(kv_heads) {
            return Err(self.wrong("attention.head_count_kv", "does not divide attention.head_count"));
        }
        let encoder = EncoderSizes {
            layers,
            heads,
            kv_heads,
            head_dim: global.dim,
            ffn,
            #[cfg(feature = "sound")]
            sound: None,
        };
        let layers = tri!(self.size_or("decoder_block_count", MAX_LAYERS, layers));
        let ffn = tri!(self.size_or("decoder_feed_forward_length", MAX_WIDTH, ffn));
        const HEADS: &str = "attention.decoder_head_count";
        let (heads, kv_heads, head_dim) = match tri!(self.optional_size(HEADS, MAX_WIDTH)) {
            Some(heads) => match dim.checked_div(heads) {
                Some(head_dim) if dim.is_multiple_of(heads) => {
                    let kv_heads = tri!(self.size_or("attention.decoder_head_count_kv", MAX_WIDTH, heads));
                    (heads, kv_heads, head_dim)
                }
                _ => return Err(self.wrong(HEADS, "does not divide embedding_length")),
            },
            None => (heads, kv_heads, global.dim),
        };
        let source_words = match self.rows("enc.token_embd.weight") {
            0 => None,
            words => Some(words),
        };
        Ok(Spec {
            stack: Stack::Target { encoder, start, source_words },
            layers,
            heads: PerLayer::All(heads),
            kv_heads: PerLayer::All(kv_heads),
            global: HeadSpec { dim: head_dim, ..global },
            ffn: PerLayer::All(ffn),
            ..spec
        })
    }

    /// Like [`optional_size`](Self::optional_size), with a default.
    pub const fn size_or(&mut self, name: &'static str, max: usize, default: usize) -> Result<usize, Error> {
        match tri!(self.optional_size(name, max)) {
            Some(size) => Ok(size),
            None => Ok(default),
        }
    }

    /// Reads a size that a model may lack: the result is `None` if the size is 0 or if the file has no such key.
    pub const fn nonzero(&mut self, name: &'static str, max: usize) -> Result<Option<usize>, Error> {
        match tri!(self.integer(name)) {
            Some(0) => Ok(None),
            _ => self.optional_size(name, max),
        }
    }

    /// Reads a number that a model may lack, like [`nonzero`](Self::nonzero), but returns 0 instead of `None`.
    pub const fn count(&mut self, name: &'static str, max: usize) -> Result<usize, Error> {
        match tri!(self.nonzero(name, max)) {
            Some(count) => Ok(count),
            None => Ok(0),
        }
    }

    /// True if the file has the key `name`.
    pub const fn has_key(&self, name: &str) -> bool {
        self.gguf.get2(self.architecture, name).is_some()
    }

    /// Returns the array under `name`, which has one number per layer; `None` if the value is not an array or the key
    /// is missing.
    pub const fn floats(&mut self, name: &'static str, layers: usize) -> Result<Option<Array<'a>>, Error> {
        let Some(Value::Array(numbers)) = self.get(name) else { return Ok(None) };
        tri!(self.one_each(name, &numbers, layers));
        if !matches!(numbers.element(), ValueType::F32) {
            return Err(Error::KeyType { key: self.name(name), expected: "an array of f32" });
        }
        Ok(Some(numbers))
    }

    /// Accepts the key `name`, although nothing reads its value.
    pub const fn known(&mut self, name: &'static str) {
        _ = self.get(name);
    }

    /// Reads the layers for which the array of booleans under `name` is true; `None` if the value is not an array or
    /// the key is missing.
    pub const fn layers_where(&mut self, name: &'static str, layers: usize) -> Result<Option<Pattern<'a>>, Error> {
        let Some(Value::Array(pattern)) = self.get(name) else { return Ok(None) };
        tri!(self.one_each(name, &pattern, layers));
        if !matches!(pattern.element(), ValueType::Bool) && pattern.get_i32(0).is_none() {
            return Err(Error::KeyType { key: self.name(name), expected: "an array of booleans" });
        }
        Ok(Some(Pattern::Where(pattern)))
    }

    /// Lets `attention.sliding_window` apply to all layers. If a family does not call this function, the key has no
    /// effect without a pattern of local layers.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedKey`] if the file has a pattern that says which layers have the window.
    pub const fn window_everywhere(&mut self, spec: &Spec<'a>) -> Result<(), Error> {
        const PATTERN: &str = "attention.sliding_window_pattern";
        self.window_everywhere = true;
        if spec.global.window.is_some() && self.get(PATTERN).is_some() {
            return Err(Error::UnsupportedKey { key: self.name(PATTERN), what: "a window in some layers only" });
        }
        Ok(())
    }

    /// Reads the keys common to all families and returns a spec like Llama's: RMS norms before attention and
    /// feed-forward, rotary positions in `style`, separate q, k and v without biases, and a feed-forward gated by SiLU.
    #[inline(never)] // makes the binary smaller
    pub const fn decoder(&mut self, style: RopeStyle) -> Result<Spec<'a>, Error> {
        let dim = tri!(self.size("embedding_length", MAX_WIDTH));
        let layers = tri!(self.size("block_count", MAX_LAYERS));
        self.layers = layers;
        let heads = tri!(self.heads());
        let kv_heads = match tri!(self.per_layer("attention.head_count_kv", MAX_WIDTH, layers)) {
            Some(kv_heads) => kv_heads,
            None => heads, // the format's default: multi-head attention
        };
        let most = heads.most(layers);
        let head = match tri!(self.optional_size("attention.key_length", MAX_WIDTH)) {
            Some(head) => head,
            None if most == 0 => 0,
            None => match dim.checked_div(most) {
                Some(head) if dim.is_multiple_of(most) => head,
                _ => return Err(self.wrong("attention.head_count", "does not divide embedding_length")),
            },
        };
        let values = if self.is_latent { None } else { tri!(self.values(head)) };
        let window = tri!(self.nonzero("attention.sliding_window", i32::MAX as usize));
        let rope = Some(tri!(self.rope(style, head)));
        let head = HeadSpec { dim: head, rope, window, shared: 0 };
        Ok(Spec {
            vocab: tri!(self.vocab()),
            dim,
            layers,
            heads,
            kv_heads,
            global: head,
            local: head,
            ffn: match tri!(self.per_layer("feed_forward_length", MAX_WIDTH, layers)) {
                Some(ffn) => ffn,
                // Some writers omit this key if every layer has experts.
                None => match tri!(self.per_layer("expert_feed_forward_length", MAX_WIDTH, layers)) {
                    Some(ffn) => ffn,
                    None => return Err(self.missing("feed_forward_length")),
                },
            },
            context: tri!(self.size("context_length", i32::MAX as usize)),
            attention_scale: tri!(self.unless_zero("attention.scale")),
            pooling: tri!(self.pooling("pooling_type", Pooling::Last, Pooling::Last)),
            values,
            ..Spec::like_llama()
        })
    }

    /// Like [`decoder`](Self::decoder), with the file's epsilon of RMS norms, and with biases if the file has them.
    pub const fn rms_decoder(&mut self, style: RopeStyle) -> Result<Spec<'a>, Error> {
        let norm_eps = tri!(self.required("attention.layer_norm_rms_epsilon"));
        Ok(Spec { norm_eps, ..tri!(self.decoder_with_biases(style)) })
    }

    /// Like [`decoder`](Self::decoder), but with layer norms, and with biases if the file has them.
    pub const fn layer_norm_decoder(&mut self, style: RopeStyle) -> Result<Spec<'a>, Error> {
        let norm_eps = tri!(self.norm_eps());
        Ok(Spec { norm: Norm::Layer, norm_eps, ..tri!(self.decoder_with_biases(style)) })
    }

    const fn decoder_with_biases(&mut self, style: RopeStyle) -> Result<Spec<'a>, Error> {
        let (qkv_bias, linear_bias, output_bias) = (Need::Optional, Need::Optional, Need::Optional);
        Ok(Spec { qkv_bias, linear_bias, output_bias, ..tri!(self.decoder(style)) })
    }

    /// Reads the required key `key`. Unlike other keys, it has no architecture prefix. Its value is one number for all
    /// layers, or an array with one number for each layer.
    pub const fn numbers(&self, key: &'static str, layers: usize) -> Result<Numbers<'a>, Error> {
        match self.gguf.get(key) {
            Some(Value::Array(numbers)) if numbers.len() >= layers && numbers.get_f32(0).is_some() => {
                Ok(Numbers::Each(numbers))
            }
            Some(Value::F32(number)) => Ok(Numbers::All(number)),
            Some(_) => Err(Error::KeyType { key: Name::new(key.as_bytes()), expected: "a number for each layer" }),
            None => Err(Error::MissingKey { key: Name::new(key.as_bytes()) }),
        }
    }

    /// Reads keys that a file of any family may have.
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub const fn of_any_family(&mut self, spec: &mut Spec<'a>) -> Result<(), Error> {
        match self.modules(spec) {
            Ok(()) => self.activation(spec),
            error => error,
        }
    }

    /// Reads the length of the attention values, and the factor by which they are multiplied. `head` is the length of a
    /// key. Returns `None` if values have the same length as keys and no factor.
    const fn values(&mut self, head: usize) -> Result<Option<Values>, Error> {
        if !built::NARROW_VALUES {
            tri!(self.value_length("attention.value_length", head));
            return Ok(None);
        }
        let scale = tri!(self.or("attention.value_scale", 1.0));
        match tri!(self.optional_size("attention.value_length", MAX_WIDTH)) {
            Some(width) if width > head => Err(self.wrong("attention.value_length", "is more than the length of keys")),
            Some(width) if width < head || scale != 1.0 => Ok(Some(Values { width, scale })),
            None if scale != 1.0 => Ok(Some(Values { width: head, scale })),
            _ => Ok(None),
        }
    }

    /// Checks that values have the same length as keys. If the file states no length of values, there is nothing to
    /// check.
    pub const fn value_length(&mut self, name: &'static str, key_length: usize) -> Result<(), Error> {
        match tri!(self.optional_size(name, MAX_WIDTH)) {
            Some(length) if length != key_length => {
                Err(self.wrong(name, "differs from the length of keys: not supported"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the number of layers for multi-token prediction (`nextn_predict_layers`), and excludes these layers from
    /// `spec.layers`. They are the last layers of the file.
    pub const fn without_next(&mut self, spec: Spec<'a>) -> Result<Spec<'a>, Error> {
        let unused_layers = match tri!(self.nonzero("nextn_predict_layers", MAX_LAYERS)) {
            Some(layers) if layers < spec.layers => {
                // The number of prediction layers that some files state is wrong, because the files do not contain
                // these layers.
                let first = spec.layers - layers;
                let (ahead, ordinary) =
                    (self.has_in_layer(first, "nextn.eh_proj.weight"), self.has_in_layer(first, "attn_norm.weight"));
                if ahead || !ordinary { layers } else { 0 }
            }
            Some(_) => return Err(self.wrong("nextn_predict_layers", "is not less than block_count")),
            None => 0,
        };
        Ok(Spec { layers: spec.layers - unused_layers, unused_layers, ..spec })
    }

    /// Reads the activation function of the feed-forward, if the file names an activation function.
    #[inline(never)] // keeps its temporaries off the stack while the family reads its keys
    pub const fn activation(&mut self, spec: &mut Spec<'a>) -> Result<(), Error> {
        const NAME: &str = "hidden_activation";
        let Some(name) = tri!(self.text(NAME)) else { return Ok(()) };
        if matches!(spec.activation, Activation::ClampedSwiglu) || matches!(spec.special, Special::Xielu(_)) {
            return Err(self.wrong(NAME, "is not supported for this architecture"));
        }
        spec.activation = match name {
            b"silu" => Activation::Silu,
            b"gelu" => Activation::GeluErf,
            b"gelu_pytorch_tanh" => Activation::GeluTanh,
            b"relu" => Activation::Relu,
            b"relu2" => Activation::ReluSquared,
            _ => return Err(self.wrong(NAME, "is not silu, gelu, gelu_pytorch_tanh, relu or relu2")),
        };
        Ok(())
    }

    /// Reads the epsilon of the norms. Some files store it under the key for RMS norms, some under the key for layer
    /// norms.
    pub const fn norm_eps(&mut self) -> Result<f32, Error> {
        match tri!(self.unless_zero("attention.layer_norm_rms_epsilon")) {
            Some(eps) => Ok(eps),
            None => self.required("attention.layer_norm_epsilon"),
        }
    }

    /// Reads the required positive number under `name`.
    pub const fn required(&mut self, name: &'static str) -> Result<f32, Error> {
        match tri!(self.positive(name)) {
            Some(eps) => Ok(eps),
            None => Err(self.missing(name)),
        }
    }

    /// Returns the vocabulary size: the number of rows of the token embedding, whatever number the metadata has.
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

    /// Reads the positive number under `name`, or returns `default`.
    pub const fn or(&mut self, name: &'static str, default: f32) -> Result<f32, Error> {
        match tri!(self.positive(name)) {
            Some(value) => Ok(value),
            None => Ok(default),
        }
    }

    #[cold]
    #[inline(never)] // once instead of for every key
    pub const fn wrong(&self, name: &str, why: &'static str) -> Error {
        Error::KeyValue { key: self.name(name), why }
    }

    #[cold]
    #[inline(never)]
    pub const fn missing(&self, name: &str) -> Error {
        Error::MissingKey { key: self.name(name) }
    }

    const fn name(&self, name: &str) -> Name {
        Name::key(self.architecture, name)
    }
}

/// Strips `prefix` and a dot from the front of `key`.
const fn after<'k>(key: &'k [u8], prefix: &[u8]) -> Option<&'k [u8]> {
    match key.split_at_checked(prefix.len()) {
        Some((start, [b'.', name @ ..])) if equal(start, prefix) => Some(name),
        _ => None,
    }
}
