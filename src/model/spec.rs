//! Architectures as data: the operations and sizes of a model.

use super::altup::AltUp;
use super::choices::{
    EncoderSizes, Experts, Gate, GroupExperts, HeadGate, Loops, Need, Norm, Placement, PooledHead, Pooling, Positions,
    QkNorm, Residual, Router, Scoring, SharedExperts, SoundSizes, Stack, Temperature, Values,
};
use super::front::Front;
use super::latent::Latent;
use super::layers::{HeadSpec, Layer, Limits, Mixer, Pattern, PerLayer, Xielu};
use super::next::Next;
use super::recurrent::{Recurrent, RecurrentKind};
use super::roles::Role;
#[cfg(feature = "vision")]
use super::rope::Sections;
use super::rope::{Rope, Scaling};
use crate::built;
use crate::kernel::Activation;

/// Maximum number of layers of a model, as in llama.cpp (`LLAMA_MAX_LAYERS`).
pub const MAX_LAYERS: usize = 512;

/// A stack of layers: token embedding, `layers` layers of attention and feed-forward, final norm, head.
///
/// An encoder-decoder has two stacks; the spec that is read from its file describes the decoder.
///
/// Sizes count elements. Sizes that differ between layers stay in the file's arrays; [`Spec::layer`] reads them for one
/// layer.
///
/// # Examples
///
/// Read a file's architecture without checking its tensors:
///
/// ```
/// use arenite::Gguf;
/// use arenite::model::{Positions, Spec, Stack};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let spec = Spec::read(&gguf)?;
/// assert_eq!(spec.stack(), Stack::Alone); // a decoder; an encoder-decoder is `Stack::Target`
/// assert_eq!(spec.positions(), Positions::Rotary);
/// assert!(spec.experts().is_none());
/// println!("{} layers; {} elements of queries in the first", spec.layers, spec.layer(0).q_dim());
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Spec<'a> {
    // Sizes.
    /// Number of tokens in the vocabulary, which is the number of rows of `token_embd.weight`.
    pub vocab: usize,
    /// Width of the hidden state.
    pub dim: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of query heads.
    pub(crate) heads: PerLayer<'a>,
    /// Number of key and value heads; `heads / kv_heads` query heads share each of them.
    pub(crate) kv_heads: PerLayer<'a>,
    /// Heads of global layers. Most models have only these.
    pub(crate) global: HeadSpec,
    /// Heads of local layers, such as the layers with a sliding window in Gemma, and the layers without rotary
    /// positions in SmolLM 3.
    pub(crate) local: HeadSpec,
    /// Width of the feed-forward layer, or of each expert.
    pub(crate) ffn: PerLayer<'a>,
    /// Context length that the model was trained with.
    pub context: usize,
    // Scalars and switches.
    /// Epsilon of the norms on outputs. `None` if it is the same as `norm_eps`.
    pub(crate) post_norm_eps: Option<f32>,
    /// True if the last layer is followed by a norm.
    pub(crate) final_norm: bool,
    /// Epsilon of every norm, added under the root.
    pub(crate) norm_eps: f32,
    /// Requirement for biases of q, k and v.
    pub(crate) qkv_bias: Need,
    /// Whether the attention output and the feed-forward must, may or cannot have biases.
    pub(crate) linear_bias: Need,
    /// Factor on attention scores. `None` means `1 / sqrt(head.dim)`.
    pub(crate) attention_scale: Option<f32>,
    /// Factor on token embeddings.
    pub(crate) embedding_scale: f32,
    /// Factor on the outputs of attention and feed-forward before they are added to the hidden state.
    pub(crate) residual_scale: f32,
    /// Factor on logits.
    pub(crate) logit_scale: f32,
    /// True if layers with attention also have a recurrent mixer, which runs beside the attention.
    pub(crate) side_by_side: bool,
    /// True if layer norms have a bias.
    pub(crate) norm_bias: bool,
    /// Number of layers at the end of the file for multi-token prediction. These layers are not read.
    pub(crate) unused_layers: usize,
    /// Requirement for a bias of the head.
    pub(crate) output_bias: Need,
    /// Pooling of a text's states into one vector.
    #[doc(hidden)] // for tests
    pub pooling: Pooling,
    // Some values of these fields need an ability (see `built.rs`), which this build may lack. A field without a
    // comment is read with the function of the same name in `parts.rs`; `special` has a function for each feature.
    pub(super) stack: Stack,
    pub(super) local_layers: Pattern<'a>,
    pub(super) positions: Positions,
    pub(super) token_types: usize,
    pub(super) embedding_norm: Need,
    pub(super) norm: Norm,
    pub(super) placement: Placement,
    pub(super) fused_qkv: bool,
    pub(super) separate_experts: bool,
    pub(super) fused_experts: bool,
    pub(super) own_biases: bool,
    /// True if the file has factors for the outputs of matrices, in tensors called `.scale`.
    pub(super) scaled: bool,
    /// Upper bound on the elements of vectors in F16 or BF16.
    pub(crate) half_vectors: usize,
    pub(super) qk_norm: QkNorm,
    pub(super) qk_norm_after_rope: bool,
    pub(super) temperature: Option<Temperature>,
    pub(super) attention_sinks: Need,
    /// Tensors that have a different name in this model's family: for each pair of roles, the tensor of the second role
    /// has the name that usually belongs to the first role.
    pub(super) renamed: &'static [(Role, Role)],
    pub(super) recurrent: Option<Recurrent>,
    pub(super) recurrent_layers: Pattern<'a>,
    pub(super) special: Special<'a>,
    pub(super) gated_query: bool,
    pub(super) v_norm: bool,
    pub(super) v_from_k: bool,
    pub(super) kv_shared: usize,
    pub(super) attention_cap: Option<f32>,
    pub(super) logit_cap: Option<f32>,
    pub(super) activation: Activation,
    pub(super) gate: Gate,
    pub(super) experts: Option<Experts>,
    pub(super) router: Router,
    pub(super) shared_experts: Option<SharedExperts>,
    pub(super) expert_layers: Pattern<'a>,
    pub(super) one_part: bool,
    pub(super) residual: Residual,
    pub(super) qkv_clamp: Option<f32>,
    pub(super) bare_norm: bool,
    pub(super) sub_norms: bool,
    pub(super) heads_gated: Option<HeadGate>,
    pub(super) values: Option<Values>,
    pub(super) rotated_first: usize,
    pub(super) loops: Option<Loops>,
    pub(super) experts_beside: bool,
    pub(super) early_router: bool,
    pub(super) weighted_inputs: bool,
    pub(super) chunk: Option<usize>,
    pub(super) per_layer_input: usize,
    pub(super) layer_scale: Need,
    pub(super) pooled_head: Option<PooledHead>,
    #[cfg(feature = "drafts")]
    pub(super) next: Option<Next>,
    #[cfg(feature = "vision")]
    pub(super) sections: Option<Sections>,
    /// Factor on rows of pictures.
    #[cfg(feature = "vision")]
    pub(crate) picture_scale: f32,
}

/// Rare features of architectures. A model has at most one of them, and all share one field, so that a spec takes less
/// stack.
#[derive(Clone, Copy, Debug)]
pub(super) enum Special<'a> {
    None,
    Latent(Latent),
    AltUp(AltUp<'a>),
    Xielu(Xielu<'a>),
    Limits(Limits<'a>),
    GroupExperts(GroupExperts),
    ExpertsOfInput,
    EmbeddingSkip,
    Scoring(Scoring),
    JointHead,
}

impl<'a> Spec<'a> {
    /// Returns a spec of an architecture like Llama's, in which all sizes are still missing. Families change the fields
    /// in which they differ from Llama.
    #[inline(always)] // a constant in flash would be copied
    pub(super) const fn like_llama() -> Self {
        Self {
            vocab: 0,
            dim: 0,
            layers: 0,
            heads: PerLayer::All(0),
            kv_heads: PerLayer::All(0),
            global: HeadSpec { dim: 0, rope: None, window: None, shared: 0 },
            local: HeadSpec { dim: 0, rope: None, window: None, shared: 0 },
            ffn: PerLayer::All(0),
            context: 0,
            attention_scale: None,
            pooling: Pooling::Last,
            values: None,
            stack: Stack::Alone,
            local_layers: Pattern::Never,
            positions: Positions::Rotary,
            token_types: 0,
            embedding_norm: Need::Absent,
            final_norm: true,
            norm: Norm::Rms,
            norm_eps: 0.0,
            post_norm_eps: None,
            placement: Placement::INPUTS,
            fused_qkv: false,
            separate_experts: false,
            fused_experts: false,
            own_biases: false,
            scaled: false,
            half_vectors: 0,
            qkv_bias: Need::Absent,
            linear_bias: Need::Absent,
            qk_norm: QkNorm::None,
            qk_norm_after_rope: false,
            temperature: None,
            attention_sinks: Need::Absent,
            renamed: &[],
            recurrent: None,
            side_by_side: false,
            recurrent_layers: Pattern::Never,
            special: Special::None,
            gated_query: false,
            v_norm: false,
            v_from_k: false,
            kv_shared: 0,
            attention_cap: None,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            output_bias: Need::Absent,
            logit_cap: None,
            activation: Activation::Silu,
            gate: Gate::Separate,
            experts: None,
            router: Router::Softmax,
            shared_experts: None,
            expert_layers: Pattern::Always,
            one_part: false,
            residual: Residual::Serial,
            qkv_clamp: None,
            bare_norm: false,
            sub_norms: false,
            heads_gated: None,
            rotated_first: 0,
            loops: None,
            experts_beside: false,
            early_router: false,
            weighted_inputs: false,
            chunk: None,
            norm_bias: true,
            unused_layers: 0,
            per_layer_input: 0,
            layer_scale: Need::Absent,
            pooled_head: None,
            #[cfg(feature = "drafts")]
            next: None,
            #[cfg(feature = "vision")]
            sections: None,
            #[cfg(feature = "vision")]
            picture_scale: 1.0,
        }
    }

    /// Returns the spec of the encoder, if the model is an encoder-decoder: the decoder's spec with the encoder's
    /// sizes, but without cross-attention and head.
    pub(crate) const fn encoder(&self) -> Option<Self> {
        let Stack::Target { encoder, source_words, .. } = self.stack() else { return None };
        let EncoderSizes { layers, heads, kv_heads, head_dim, ffn, .. } = encoder;
        let (vocab, own_words) = match source_words {
            Some(words) => (words, true),
            None => (self.vocab, false),
        };
        let stack = Stack::Source {
            own_words,
            #[cfg(feature = "sound")]
            front: None,
        };
        let spec = Self {
            stack,
            vocab,
            layers,
            heads: PerLayer::All(heads),
            kv_heads: PerLayer::All(kv_heads),
            global: HeadSpec { dim: head_dim, ..self.global },
            ffn: PerLayer::All(ffn),
            logit_scale: 1.0,
            output_bias: Need::Absent,
            ..*self
        };
        #[cfg(feature = "sound")]
        if let Some(SoundSizes { front, positions, feed_forward: (gate, activation) }) = encoder.sound {
            let stack = Stack::Source { own_words: true, front: Some(front) };
            return Some(Self { stack, context: positions, gate, activation, ..spec });
        }
        Some(spec)
    }

    /// Sizes of the layers that turn a sound into the encoder's input, and the longest input. `None` unless the model
    /// is an encoder-decoder that reads sounds.
    pub const fn sound(&self) -> Option<SoundSizes> {
        match self.stack() {
            #[cfg(feature = "sound")]
            Stack::Target { encoder, .. } => encoder.sound,
            _ => None,
        }
    }

    /// Front end of an encoder that reads sounds.
    pub(crate) const fn front(&self) -> Option<Front> {
        match self.stack() {
            #[cfg(feature = "sound")]
            Stack::Source { front, .. } => front,
            _ => None,
        }
    }

    /// True if the stack computes logits.
    pub const fn has_head(&self) -> bool {
        matches!(self.stack(), Stack::Alone | Stack::Target { .. })
    }

    /// True if a token attends only to itself and to earlier tokens.
    pub(crate) const fn is_causal(&self) -> bool {
        self.has_head()
    }

    /// True if layers also attend to an encoder's states.
    pub const fn has_cross_attention(&self) -> bool {
        matches!(self.stack(), Stack::Target { .. })
    }

    /// Parameters of layer `index`, counted from 0.
    pub const fn layer(&self, index: usize) -> Layer {
        let in_file = self.in_file(index);
        let scores = built::SCORING && self.scores(index);
        let is_local = self.local_layers().has(in_file) && !scores;
        let has_experts = self.experts().is_some() && self.expert_layers().has(in_file);
        let ffn = match (self.experts(), self.ffn.get(in_file)) {
            (_, 0) => 0,
            (Some(Experts { width: Some(width), .. }), _) if has_experts && !self.has_dense_beside() => width,
            (_, ffn) => ffn,
        };
        let expert_width = match self.experts() {
            Some(Experts { width: Some(width), .. }) if has_experts && ffn > 0 => width,
            Some(_) if has_experts => ffn,
            _ => 0,
        };
        let mixer = match self.recurrent() {
            _ if self.one_part() && ffn > 0 => Mixer::None,
            _ if self.next().is_some() => Mixer::Attention,
            None if built::NO_MIXER && self.heads.get(in_file) == 0 => Mixer::None,
            Some(_) if self.recurrent_layers().has(in_file) => Mixer::Recurrent,
            Some(_) if self.side_by_side => Mixer::Both,
            _ => Mixer::Attention,
        };
        let mut head = if is_local { self.local } else { self.global };
        if in_file < self.rotated_first() {
            head.rope = self.local.rope;
        }
        if scores {
            head.rope = None;
        }
        Layer {
            index,
            is_local,
            heads: self.heads.get(in_file),
            kv_heads: self.kv_heads.get(in_file),
            head,
            ffn,
            expert_width,
            has_experts: has_experts && ffn > 0,
            mixer,
            owns_kv: matches!(mixer, Mixer::Attention | Mixer::Both)
                && index.saturating_add(self.kv_shared()) < self.layers,
        }
    }

    /// True if some layers have a recurrent state.
    pub const fn is_recurrent(&self) -> bool {
        self.recurrent().is_some()
    }

    /// For layers that predict further tokens of a model: which layers of the file they are, and which states they
    /// read. `None` for an ordinary model.
    pub(crate) const fn next(&self) -> Option<Next> {
        #[cfg(feature = "drafts")]
        return self.next;
        #[cfg(not(feature = "drafts"))]
        None
    }

    /// How the pairs of a head are divided among the axes of rotary positions. `None` if positions have only one axis.
    /// With pictures, positions have three: time, line and column.
    #[cfg(feature = "vision")]
    pub(crate) const fn sections(&self) -> Option<Sections> {
        self.sections
    }

    /// Index in the file of layer `index`.
    pub(crate) const fn in_file(&self, index: usize) -> usize {
        match self.next() {
            Some(next) => next.first + index,
            None => index,
        }
    }

    /// True if [tentative](crate::Work::tentative) tokens can be undone: the model has no recurrent layers, or only
    /// recurrent layers whose states can leave out the last tokens until these tokens are verified.
    #[cfg(feature = "drafts")]
    pub const fn can_undo(&self) -> bool {
        use RecurrentKind::{DeltaNet, Mamba2, ShortConvolution};
        match self.recurrent() {
            Some(mixer) => matches!(mixer.kind, DeltaNet | Mamba2 | ShortConvolution),
            None => true,
        }
    }

    /// Number of those layers before `layer` that have a recurrent state.
    #[cfg(feature = "drafts")]
    pub(crate) const fn layers_with_state(&self, layer: usize) -> usize {
        let (mut count, mut index) = (0, 0);
        while index < layer {
            count += self.layer(index).has_state() as usize;
            index += 1;
        }
        count
    }

    /// True if layer `index` scores options of a decision.
    pub(crate) const fn scores(&self, index: usize) -> bool {
        match self.scoring() {
            Some(scoring) => index.saturating_add(scoring.layers) >= self.layers,
            None => false,
        }
    }

    /// Gate of a layer's feed-forward.
    pub(crate) const fn gate_in(&self, layer: &Layer) -> Gate {
        if self.scores(layer.index) { Gate::None } else { self.gate() }
    }

    /// Activation function of a layer's feed-forward.
    pub(crate) const fn activation_in(&self, layer: &Layer) -> Activation {
        if self.scores(layer.index) { Activation::Relu } else { self.activation() }
    }

    /// Longest context that counts as short: the trained context length, except with LongRoPE, whose rotary frequencies
    /// change in longer contexts.
    pub const fn short_context(&self) -> usize {
        match self.rope(false) {
            Some(Rope { scaling: Scaling::Long { original, .. }, .. }) if original < self.context => original,
            _ => self.context,
        }
    }

    /// Returns the rotary positions of local or of global layers. `None` if the model has no such layers, or if these
    /// have no rotary positions.
    pub const fn rope(&self, is_local: bool) -> Option<Rope> {
        match (is_local, self.local_layers()) {
            (false, _) => self.global.rope,
            (true, Pattern::Never) => None,
            (true, _) => self.local.rope,
        }
    }

    /// Length of the vector that [`Engine::embed`](crate::Engine::embed) computes for a text.
    pub const fn embedding_len(&self) -> usize {
        match self.pooled_head() {
            Some(head) => head.out,
            None => self.dim,
        }
    }

    /// True if the model is a reranker, which computes scores instead of embeddings.
    pub const fn ranks(&self) -> bool {
        match self.pooled_head() {
            Some(head) => head.scores,
            None => false,
        }
    }

    /// Number of elements of the buffer that the caller passes to [`Engine::embed`](crate::Engine::embed).
    pub const fn embedding_buffer(&self) -> usize {
        max(self.dim, self.embedding_len())
    }

    /// Number of elements that attention's projections compute for a token. The row has queries, keys and values, and
    /// after them the gates of heads or of elements. If the queries' matrix also computes the gates, its output comes
    /// after them instead: another copy of the queries, together with the gates.
    pub(crate) const fn attention_row(&self, layer: &Layer) -> usize {
        let gates = match (self.gated_query(), self.heads_gated()) {
            (true, _) => 2 * layer.q_dim(),
            (_, Some(HeadGate { per_head: true, .. })) => layer.heads,
            (_, Some(_)) => layer.q_dim(),
            _ => 0,
        };
        layer.qkv_dim() + gates
    }

    /// Number of layers that have tensors in the file.
    pub(crate) const fn own_layers(&self) -> usize {
        match self.loops() {
            Some(loops) => loops.layers,
            None => self.layers,
        }
    }

    /// True if two stacks of layers run in turns.
    pub(crate) const fn takes_turns(&self) -> bool {
        matches!(self.loops(), Some(Loops { low_runs: 1.., .. }))
    }

    /// Returns which of the two rotary positions a layer uses: 0 for those of global layers, 1 for those of local
    /// layers.
    pub(crate) const fn rotation(&self, layer: &Layer) -> usize {
        if self.in_file(layer.index) < self.rotated_first() { 1 } else { layer.pool() }
    }

    /// Elements of a head's value, before it is stored.
    pub(crate) const fn value_width(&self, layer: &Layer) -> usize {
        match self.values() {
            Some(values) => values.width,
            None => layer.head.dim,
        }
    }

    /// True if attention and feed-forward read the same hidden state.
    pub(crate) const fn is_parallel(&self) -> bool {
        matches!(self.residual(), Residual::Parallel { .. })
    }

    /// True if the layer's input is kept for the feed-forward.
    pub(crate) const fn keeps_input(&self) -> bool {
        self.is_parallel() || self.early_router() || self.experts_of_input()
    }

    /// True if layers with experts also have a dense feed-forward.
    pub(crate) const fn has_dense_beside(&self) -> bool {
        self.experts_beside() || self.experts_of_input()
    }

    /// Number of elements per token that a layer must keep while its feed-forward runs, after the feed-forward's
    /// intermediate values: the layer's input, or the output of the dense feed-forward in a layer that also has
    /// experts.
    pub(crate) const fn held(&self, layer: &Layer) -> usize {
        if self.keeps_input() || self.experts_beside() && layer.has_experts { self.dim } else { 0 }
    }

    /// Number of floats that a layer's feed-forward needs for the intermediate values of a token.
    const fn ffn_inner(&self, layer: &Layer) -> usize {
        let (width, expert) = match self.gate_in(layer) {
            Gate::None => (layer.ffn, layer.expert_width),
            Gate::Separate | Gate::Fused => (2 * layer.ffn, 2 * layer.expert_width),
        };
        match self.experts() {
            Some(experts) if layer.has_experts => {
                let shared = match self.shared_experts() {
                    Some(shared) => 2 * shared.width,
                    None => 0,
                };
                let (groups, group) = match self.group_experts() {
                    Some(group) => (experts.count / max(group.size, 1), 2 * group.width),
                    None => (0, 0),
                };
                max(width, experts.count + groups + 2 * self.dim + max(max(expert, group), shared))
            }
            _ => width,
        }
    }

    /// The largest number of elements that the intermediate values of a token take in any layer.
    pub(crate) const fn inner(&self) -> usize {
        let mut most = self.layers * self.per_layer_input();
        let mut index = 0;
        while index < self.layers {
            let layer = self.layer(index);
            // Some layers need room for a copy of their input: for the second mixer, if a layer has two, or for the
            // feed-forward.
            let held = if matches!(layer.mixer, Mixer::Both) || self.keeps_input() { self.dim } else { 0 };
            let attention = match self.latent() {
                Some(latent) => {
                    let [qkv, out, made, low, both] = latent.pieces(&layer);
                    qkv + out + made + low + both
                }
                None => self.attention_row(&layer) + layer.q_dim(),
            };
            most = max(most, attention + held);
            if let (true, Some(mixer)) = (layer.has_state(), self.recurrent()) {
                most = max(most, mixer.row_len() + mixer.inner() + held);
            }
            most = max(most, self.ffn_inner(&layer) + self.held(&layer));
            if let Some(Recurrent { kind: RecurrentKind::Rwkv6, .. }) = self.recurrent() {
                most = max(most, 2 * self.dim + layer.ffn); // channel mixing
            }
            index += 1;
        }
        if let Some(altup) = self.altup() {
            most = max(most, altup.streams * (altup.streams + 1) + altup.rank);
        }
        if let Some(head) = self.pooled_head() {
            most = max(most, head.inner + head.out);
        }
        most
    }

    /// Number of elements per token that layers pass to later layers in addition to the residual stream:
    ///
    /// - with alternating updates, the other streams, and two vectors of the current layer
    /// - the token's embedding, if the model adds it after every layer
    /// - the hidden state of the other stack, if two stacks run in turns
    /// - in RWKV-7, the first layer's values
    pub(crate) const fn beside(&self) -> usize {
        match (self.altup(), self.recurrent()) {
            (Some(altup), _) => (altup.streams + 1) * self.dim,
            _ if self.embedding_skip() || self.takes_turns() => self.dim,
            (_, Some(Recurrent { kind: RecurrentKind::Rwkv7, .. })) => self.dim,
            _ => 0,
        }
    }

    /// Largest number of inputs of any linear layer.
    pub(crate) const fn widest_input(&self) -> usize {
        let mut widest = max(self.dim, self.per_layer_input());
        let mut index = 0;
        while index < self.layers {
            let layer = self.layer(index);
            widest = max(widest, max(layer.q_dim(), max(layer.ffn, layer.expert_width)));
            if let Some(mixer) = self.recurrent() {
                widest = max(widest, max(mixer.inner(), mixer.widest_rank()));
            }
            if let Some(latent) = self.latent() {
                widest = max(widest, max(latent.rank, max(latent.q_rank, latent.nope)));
                widest = max(widest, layer.heads * latent.value);
            }
            if let Some(altup) = self.altup() {
                widest = max(widest, max(altup.rank, altup.streams));
            }
            index += 1;
        }
        if let Some(head) = self.pooled_head() {
            widest = max(widest, head.inner);
        }
        if let Some(shared) = self.shared_experts() {
            widest = max(widest, shared.width);
        }
        if let Some(group) = self.group_experts() {
            widest = max(widest, group.width);
        }
        if let Some(front) = self.front() {
            widest = max(widest, front.widest_input(self.dim));
        }
        widest
    }

    /// Returns the layer whose keys and values are read by those layers that do not compute their own: by local layers
    /// if `is_local` is true, otherwise by global ones.
    pub(crate) const fn owner(&self, is_local: bool) -> Option<usize> {
        let mut index = self.layers.saturating_sub(self.kv_shared());
        while index > 0 {
            index -= 1;
            if self.layer(index).is_local == is_local {
                return Some(index);
            }
        }
        None
    }
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}
