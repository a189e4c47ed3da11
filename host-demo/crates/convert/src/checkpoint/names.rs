//! Names of tensors in checkpoints and in GGUF.

use anyhow::Result;

use super::changes::{Change, experts_down, halves, same};
use super::config::Config;

/// A name in checkpoints without its common prefix (`model.layers.3.`) and without `.weight` or `.bias`, the names in
/// GGUF separated by spaces, and the change between them. `#` in a name stands for a number, and tensors whose names
/// differ only in this number are stacked. `blk.` at the beginning restricts a row to tensors of layers. Tensors with
/// the same GGUF name are concatenated. If a row has only one GGUF name, all of its views are concatenated, too. An
/// empty GGUF name drops the tensor. A GGUF name that begins with `/` is outside of the layer.
pub type Row = (&'static str, &'static str, Change);

/// Prefixes of names in checkpoints that are dropped.
const PREFIXES: &[&str] = &[
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "text_model.",
    "thinker.model.",
    "base_model.model.",
    "model.",
    "transformer.",
    "gpt_neox.",
    "backbone.",
    "bert.",
    "electra.",
    "roberta.",
    "mpnet.",
    "new.",
    "distilbert.",
    "ernie.",
    "rwkv.",
];

/// Rows for the layers: the prefix that a tensor's name has before the layer's number, the replacement of this prefix,
/// and a prefix for the rest of the name, after the number.
const LAYERS: &[(&str, &str, &str)] = &[
    ("model.encoder.layers.", "enc.blk.", "enc."),
    ("model.decoder.layers.", "dec.blk.", "dec."),
    ("layers.", "blk.", ""),
    ("L_module.layers.", "blk.", ""),
    ("H_module.layers.", SECOND, ""),
    ("head.layers.", SECOND, ""),
    ("mtp.layers.", NEXT, ""),
    ("layers.layers.", "blk.", ""),
    ("h.", "blk.", ""),
    ("blocks.", "blk.", ""),
    ("layer.", "blk.", ""),
    ("transformer_encoder.", "blk.", ""),
    ("encoder.layer.", "blk.", ""),
    ("encoder.layers.", "blk.", ""),
    ("encoder.block.", "enc.blk.", "enc."),
    ("decoder.block.", "dec.blk.", "dec."),
    ("encoder.blocks.", "enc.blk.", "enc."),
    ("decoder.blocks.", "dec.blk.", "dec."),
];

/// Prefix of the layers of a second stack. Their numbers follow the numbers of the first stack.
const SECOND: &str = "second.";

/// Prefix of the layers that predict further tokens. Their numbers follow the numbers of all other layers.
const NEXT: &str = "next.";

/// Names in most families.
#[rustfmt::skip]
pub const COMMON: &[Row] = &[
    ("embed_tokens", "token_embd", same),
    ("norm", "output_norm", same),
    ("lm_head", "output", same),
    ("score", "cls.output", same),
    ("input_layernorm", "attn_norm", same),
    ("post_attention_layernorm", "ffn_norm", same),
    ("self_attn.q_proj", "attn_q", same),
    ("self_attn.k_proj", "attn_k", same),
    ("self_attn.v_proj", "attn_v", same),
    ("self_attn.o_proj", "attn_output", same),
    ("self_attn.qkv_proj", "attn_qkv", same),
    ("self_attn.q_norm", "attn_q_norm", same),
    ("self_attn.k_norm", "attn_k_norm", same),
    ("mlp.gate_proj", "ffn_gate", same),
    ("mlp.up_proj", "ffn_up", same),
    ("mlp.down_proj", "ffn_down", same),
    ("mlp.gate", "ffn_gate_inp", same),
    ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias", same),
    ("mlp.gate.e_score_correction.bias", "exp_probs_b.bias", same),
    ("mlp.experts.#.gate_proj", "ffn_gate_exps", same),
    ("mlp.experts.#.up_proj", "ffn_up_exps", same),
    ("mlp.experts.#.down_proj", "ffn_down_exps", same),
    ("mlp.experts.gate_up_proj", "ffn_gate_exps.weight ffn_up_exps.weight", halves),
    ("mlp.experts.down_proj", "ffn_down_exps.weight", same),
    // MLX stacks the experts.
    ("mlp.switch_mlp.gate_proj", "ffn_gate_exps", same),
    ("mlp.switch_mlp.up_proj", "ffn_up_exps", same),
    ("mlp.switch_mlp.down_proj", "ffn_down_exps", same),
    ("block_sparse_moe.switch_mlp.gate_proj", "ffn_gate_exps", same),
    ("block_sparse_moe.switch_mlp.up_proj", "ffn_up_exps", same),
    ("block_sparse_moe.switch_mlp.down_proj", "ffn_down_exps", same),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp", same),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp", same),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp", same),
    ("mlp.shared_experts.gate_proj", "ffn_gate_shexp", same),
    ("mlp.shared_experts.up_proj", "ffn_up_shexp", same),
    ("mlp.shared_experts.down_proj", "ffn_down_shexp", same),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp", same),
    ("block_sparse_moe.gate", "ffn_gate_inp", same),
    ("block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias", same),
    ("block_sparse_moe.experts.#.w1", "ffn_gate_exps", same),
    ("block_sparse_moe.experts.#.w2", "ffn_down_exps", same),
    ("block_sparse_moe.experts.#.w3", "ffn_up_exps", same),
    // Layers that predict further tokens.
    ("eh_proj", "nextn.eh_proj", same),
    ("enorm", "nextn.enorm", same),
    ("hnorm", "nextn.hnorm", same),
    ("shared_head.norm", "nextn.shared_head_norm", same),
    ("shared_head.head", "nextn.shared_head_head", same),
    ("blk.embed_tokens", "nextn.embed_tokens", same),
    // The following tensors are dropped. They are tables of rotary frequencies and attention masks, which programs
    // compute themselves, and the value head of TRL's training.
    ("v_head.summary", "", same),
    ("self_attn.rotary_emb.inv_freq", "", same),
    ("attn.bias", "", same),
    ("attn.masked_bias", "", same),
    ("attention.bias", "", same),
    ("attention.masked_bias", "", same),
    ("attention.rotary_emb.inv_freq", "", same),
    ("rotary_emb.inv_freq", "", same),
    ("rotary_emb.original_inv_freq", "", same),
    ("self_attn.rotary_emb.cos_cached", "", same),
    ("self_attn.rotary_emb.sin_cached", "", same),
    ("embeddings.position_ids", "", same),
];

/// Experts stored in one tensor, in either orientation.
#[rustfmt::skip]
pub const EXPERTS_EITHER_WAY: &[Row] = &[
    ("mlp.experts.gate_up_proj", "ffn_gate_exps.weight ffn_up_exps.weight", super::changes::experts_gate_up),
    ("mlp.experts.down_proj", "ffn_down_exps.weight", experts_down),
];

/// A tensor's name without its common prefix.
pub struct Place {
    /// `blk.3.`, or empty.
    pub layer: String,
    pub number: Option<usize>,
    /// The remaining name.
    pub rest: String,
}

impl Place {
    pub fn of(name: &str) -> Self {
        if let Some(place) = Self::in_layer(name) {
            return place;
        }
        // Qwen has one layer that predicts further tokens. Its checkpoints store the parts around this layer beside the
        // list of layers.
        if let Some(rest) = name.strip_prefix("mtp.") {
            return Self { layer: format!("{NEXT}0."), number: Some(0), rest: rest.to_owned() };
        }
        let mut rest = name;
        while let Some(shorter) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
            rest = shorter;
        }
        let whole = || Self { layer: String::new(), number: None, rest: rest.to_owned() };
        Self::in_layer(rest).unwrap_or_else(whole)
    }

    /// Changes the layer number of a tensor. Layers of a second stack are numbered after those of the first stack, and
    /// layers that predict further tokens after all others.
    pub fn behind(self, config: &Config) -> Result<Self> {
        let Some(number) = self.number else { return Ok(self) };
        let number = match () {
            () if self.layer.starts_with(SECOND) => {
                number + config.size(&["num_layers_per_stack", "num_hidden_layers"])?
            }
            () if self.layer.starts_with(NEXT) => number + config.layers()?,
            () => return Ok(self),
        };
        Ok(Self { layer: format!("blk.{number}."), number: Some(number), rest: self.rest })
    }

    /// Splits the name of a layer's tensor; `None` for other tensors.
    fn in_layer(name: &str) -> Option<Self> {
        LAYERS.iter().find_map(|(prefix, new, stack)| {
            let (number, rest) = name.strip_prefix(prefix)?.split_once('.')?;
            let number: usize = number.parse().ok()?;
            Some(Self { layer: format!("{new}{number}."), number: Some(number), rest: format!("{stack}{rest}") })
        })
    }
}

/// The row that matches a tensor.
pub struct Found {
    pub row: Row,
    /// Index in a stack, if the row has `#`.
    pub part: Option<usize>,
    /// Suffix of the new names.
    pub suffix: &'static str,
    /// Index of the row in the tables.
    pub index: usize,
}

/// Searches `tables` for the row that describes the tensor with the name `rest` in the layer `layer`. `layer` is empty
/// for tensors outside of layers.
pub fn find(tables: &[&[Row]], layer: &str, rest: &str) -> Option<Found> {
    let of_layer = if layer.is_empty() { None } else { matching(tables, &format!("blk.{rest}")) };
    of_layer.or_else(|| matching(tables, rest))
}

fn matching(tables: &[&[Row]], rest: &str) -> Option<Found> {
    let look = |rest: &str, suffix: &'static str| {
        tables.iter().copied().flatten().enumerate().find_map(|(index, row)| {
            let part = matched(row.0, rest)?;
            Some(Found { row: *row, part, suffix, index })
        })
    };
    look(rest, "")
        .or_else(|| [".weight", ".bias"].into_iter().find_map(|suffix| look(rest.strip_suffix(suffix)?, suffix)))
}

/// Compares a name with a pattern, in which `#` stands for a number. Returns `None` if the name does not match,
/// otherwise the number if the pattern has a `#`.
fn matched(pattern: &str, name: &str) -> Option<Option<usize>> {
    let Some((before, after)) = pattern.split_once('#') else {
        return (pattern == name).then_some(None);
    };
    let number = name.strip_prefix(before)?.strip_suffix(after)?;
    Some(Some(number.parse().ok()?))
}

/// Returns true for tensors of images and sound, which are dropped.
pub fn of_another_modality(name: &str) -> bool {
    const PARTS: &[&str] = &[
        "visual.",
        "vision.",
        "audio.",
        "vision_",
        "audio_",
        "talker.",
        "token2wav.",
        "code2wav.",
        "projector.",
        "connector.",
        "image_newline",
        "patch_embed",
        "mlp_AR.",
    ];
    PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_rows() {
        let place = Place::of("model.language_model.layers.12.mlp.experts.3.up_proj.weight");
        assert_eq!((place.layer.as_str(), place.number), ("blk.12.", Some(12)));
        let found = find(&[COMMON], &place.layer, &place.rest).unwrap();
        assert_eq!((found.row.1, found.part, found.suffix), ("ffn_up_exps", Some(3), ".weight"));
        let place = Place::of("decoder.block.0.layer.1.layer_norm.weight");
        assert_eq!((place.layer.as_str(), place.rest.as_str()), ("dec.blk.0.", "dec.layer.1.layer_norm.weight"));
        assert!(find(&[COMMON], "blk.0.", "mlp.experts.x.up_proj").is_none());
        assert!(Place::of("lm_head.weight").layer.is_empty());
    }
}
