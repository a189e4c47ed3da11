//! Metadata keys that have no effect at certain values, in every architecture.
//!
//! Converters write keys that a model does not need. A key that the model's family does not request must be in this
//! table, with a value that has no effect. Any other key or value is an error, because it could change the results.

use crate::built;
use crate::gguf::{Value, equal};
use crate::{Error, Gguf, Name, tri};

/// Each line has a key, the values without effect, and the feature that other values request. The values are written
/// as:
///
/// - `*`: any value (tensors or another key decide);
/// - `0`: zero, false, or an array of these;
/// - `1`: zero or one;
/// - `t`: true;
/// - `=KEY`: the value of another key.
///
/// A name that ends in a dot stands for all keys that begin with it. The table is one text, because an array of strings
/// takes more flash.
const KEYS: &str = if built::LENIENT { ALL } else { USUAL };

/// The keys that llama.cpp's converter writes for models that do not need them. None of these keys has an effect at any
/// value.
const USUAL: &str = "\
vocab_size *
tensor_data_layout *
features_length *
rope.dimension_sections *
rope.scaling.finetuned *
";

/// The keys of all converters.
const ALL: &str = "\
vocab_size *
tensor_data_layout *
features_length *
embedding_length_out =embedding_length outputs of another width
rope.scaling.finetuned *
rope.scaling.yarn_ext_factor 1 another ramp of YaRN
rope.scaling.yarn_truncate t a ramp of YaRN with unrounded ends
rope.scaling.alpha 1 a scaled base of the rotary positions
rope.freq_scale 1 scaled rotary positions
rope.freq_base_swa =rope.freq_base another rotary base in local layers
rope.local.freq_base =rope.freq_base another rotary base in local layers
rope.global.freq_base =rope.freq_base another rotary base in global layers
rope.dimension_count_swa =rope.dimension_count local layers with other heads
rope.dimension_sections *
rope.mrope_section *
n_deepstack_layers *
num_deepstack_layers *
classifier.output_labels *
classifier.pooling_type *
decoder_start_token_id *
decoder_block_count *
attention.layer_norm_epsilon *
attention.layer_norm_rms_epsilon *
attention.group_norm_epsilon *
attention.group_norm_groups *
attention.causal t attention to later tokens
attention.sliding_window_pattern *
attention.key_length_swa =attention.key_length local layers with other heads
attention.value_length_swa =attention.value_length local layers with other heads
attention.max_alibi_bias 0 ALiBi
attention.clamp_kqv 0 clamped queries, keys and values
attention.q_lora_rank 0 latent attention
attention.kv_lora_rank 0 latent attention
attention.key_length_mla 0 latent attention
attention.value_length_mla 0 latent attention
attention.relative_buckets_count 0 relative positions
attention.output_scale 1 a factor on the output of attention
attention.value_scale 1 a factor on values
attention.temperature_scale 0 queries that grow with the position
attention.temperature_length *
attention.shared_kv_layers 0 layers that share keys and values
attention.recurrent_layers 0 recurrent layers
full_attention_interval 1 recurrent layers
attn_logit_softcapping 0 soft caps on scores
router_logit_softcapping 0 soft caps on the router
final_logit_softcapping 0 soft caps on logits
logit_scale 1 a factor on logits
embedding_scale 1 a factor on embeddings
residual_scale 1 a factor on residuals
embedding_length_per_layer_input 0 inputs of each layer
activation_sparsity_scale 0 sparse activations
use_parallel_residual 0 attention and feed-forward side by side
expert_count 0 experts
expert_used_count *
expert_feed_forward_length *
expert_chunk_feed_forward_length *
expert_shared_feed_forward_length *
expert_shared_count *
expert_group_count 1 groups of experts
expert_group_used_count *
expert_group_scale 1 groups of experts
experts_per_group 1 groups of experts
expert_weights_scale 1 a factor on experts
expert_weights_norm *
expert_gating_func 1 another router
swiglu_clamp_exp 0 limits of gates
swiglu_clamp_shexp 0 limits of gates
leading_dense_block_count 0 layers without experts before the others
interleave_moe_layer_step 1 layers without experts between the others
moe_every_n_layers 1 layers without experts between the others
moe_latent_size 0 latent experts
nextn_predict_layers 0 layers that guess tokens ahead
dense_2_feat_in 0 linear layers after pooling
dense_2_feat_out 0 linear layers after pooling
dense_3_feat_in 0 linear layers after pooling
dense_3_feat_out 0 linear layers after pooling
swin_norm 0 norms in other places
rescale_every_n_layers 0 states that are rescaled
token_shift_count 0 shifted tokens
shortconv.l_cache *
ssm. *
wkv. *
vision. *
audio. *
mm. *
decision.type *
decision.temperature. *
";

/// Checks a key that the family did not request; `name` is the key without the architecture's prefix.
///
/// # Errors
///
/// [`Error::UnexpectedKey`] if the table does not have the key, [`Error::UnsupportedKey`] if the value has an effect.
pub(super) const fn check(gguf: &Gguf<'_>, architecture: &str, name: &[u8], value: Value<'_>) -> Result<(), Error> {
    let mut rest = KEYS.as_bytes();
    while let Some((line, after)) = cut(rest, b'\n') {
        rest = after;
        let Some((known, line)) = cut(line, b' ') else { continue };
        let is_it = match (known, name.split_at_checked(known.len())) {
            ([.., b'.'], Some((start, _))) => equal(start, known),
            _ => equal(name, known),
        };
        if is_it {
            let (values, what) = match cut(line, b' ') {
                Some(parts) => parts,
                None => (line, b"" as &[u8]),
            };
            return match (tri!(is_neutral(gguf, architecture, values, value)), core::str::from_utf8(what)) {
                (false, Ok(what)) => Err(Error::UnsupportedKey { key: full(architecture, name), what }),
                _ => Ok(()),
            };
        }
    }
    Err(Error::UnexpectedKey { key: full(architecture, name) })
}

/// True if `value` has no effect: it is one of `values`, which are written as in [`KEYS`].
const fn is_neutral(gguf: &Gguf<'_>, architecture: &str, values: &[u8], value: Value<'_>) -> Result<bool, Error> {
    if !built::LENIENT {
        return Ok(true); // any value
    }
    Ok(match values {
        b"0" => is_number(value, 0),
        b"1" => is_number(value, 0) || is_number(value, 1),
        b"t" => matches!(value, Value::Bool(true)),
        [b'=', other @ ..] => match core::str::from_utf8(other) {
            Ok(other) => match gguf.get2(architecture, other) {
                Some(other) => same(value, other),
                None => false,
            },
            Err(_) => false,
        },
        _ => true,
    })
}

/// True if a metadata value equals `number`, or is an array whose elements all equal `number`.
const fn is_number(value: Value<'_>, number: i32) -> bool {
    let array = match value {
        Value::Array(array) => array,
        Value::F32(value) => return value == number as f32,
        Value::F64(value) => return value == number as f64,
        Value::Bool(value) => return value as i32 == number,
        _ => return matches!(value.integer(), Some(value) if value == number as i64),
    };
    let mut i = 0;
    while i < array.len() {
        if !matches!(array.get_f32(i), Some(value) if value == number as f32) {
            return false;
        }
        i += 1;
    }
    true
}

/// True if two values are the same number.
const fn same(a: Value<'_>, b: Value<'_>) -> bool {
    match (a, b) {
        (Value::F32(a), Value::F32(b)) => a == b,
        (Value::F32(a), Value::F64(b)) | (Value::F64(b), Value::F32(a)) => a == b as f32,
        (Value::F64(a), Value::F64(b)) => a == b,
        _ => match (a.integer(), b.integer()) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        },
    }
}

const fn full(architecture: &str, name: &[u8]) -> Name {
    Name::joined(architecture.as_bytes(), b".").with(name)
}

/// The parts before and after the first `end`.
const fn cut(bytes: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let (mut i, mut rest) = (0, bytes);
    while let [first, after @ ..] = rest {
        if *first == end {
            return match bytes.split_at_checked(i) {
                Some((before, _)) => Some((before, after)),
                None => None,
            };
        }
        rest = after;
        i += 1;
    }
    None
}
