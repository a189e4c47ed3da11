//! Checks the settings of `config.json` that no part of the conversion has read.
//!
//! Some settings change the results of a model. If a family does not read such a setting, the conversion continues only
//! if the setting has the value that the architecture implies.

use anyhow::{Result, bail};
use serde_json::Value;

use super::config::{Config, is_same};
use super::output::Output;

/// Settings of a config that change results. If a family does not read such a setting, its models behave as if it had
/// the second value (in JSON), so that any other value must be refused.
const IMPLIED: &[(&str, &str)] = &[
    ("alibi", "false"),
    ("altup_correct_scale", "true"),
    ("apply_residual_connection_post_layernorm", "false"),
    ("attention_multiplier", "null"),
    ("clip_qkv", "null"),
    ("embedding_multiplier", "1"),
    ("is_decoder", "false"),
    ("layer_rope_theta", "null"),
    ("logit_scale", "1"),
    ("logits_scaling", "1"),
    ("mamba_hidden_act", "\"silu\""),
    ("moe_apply_router_weight_on_input", "false"),
    ("moe_norm_min", "1e-12"),
    ("moe_router_logit_softcapping", "0"),
    ("post_norm_eps", "1e-8"),
    ("prefix_lm", "false"),
    ("relative_attention_max_distance", "128"),
    ("residual_multiplier", "1"),
    ("routed_scaling_factor", "1"),
    ("scale_attn_by_inverse_layer_idx", "false"),
    ("scale_attn_weights", "true"),
    ("softmax_scale", "null"),
    ("swiglu_alpha", "null"),
    ("swiglu_limit", "null"),
];

/// The flags of configs that say whether a model has biases. Each flag is listed with the tensors of the new model
/// whose biases it controls.
const BIASES: &[(&str, &[&str])] = &[
    ("attention_bias", QKV),
    ("attention_out_bias", &["attn_output"]),
    ("mamba_conv_bias", &["ssm_conv1d"]),
    ("mlp_bias", &["ffn_gate", "ffn_up", "ffn_down"]),
    ("qkv_bias", QKV),
    (
        "use_bias",
        &[
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_qkv",
            "attn_output",
            "ffn_gate",
            "ffn_up",
            "ffn_down",
            "ssm_in",
            "ssm_out",
        ],
    ),
    ("use_conv_bias", &["ssm_conv1d"]),
    ("use_expert_bias", &["exp_probs_b"]),
];
const QKV: &[&str] = &["attn_q", "attn_k", "attn_v", "attn_qkv"];

/// Checks that transformers uses all tensors of the checkpoint. transformers leaves out tensors if a flag says that the
/// model does not have them.
///
/// # Errors
///
/// A flag contradicts a tensor of the checkpoint.
pub fn check_tensors(config: &Config, architecture: &str, outputs: &[Output<'_>]) -> Result<()> {
    let is_parallel = architecture == "stablelm" && config.flag("use_parallel_residual") == Some(true);
    if is_parallel && outputs.iter().any(|output| output.name == "blk.0.ffn_norm.weight") {
        bail!(
            "use_parallel_residual in config.json is true, but the checkpoint has norms of the feed-forward: correct it"
        );
    }
    let types = config.texts("layer_types").unwrap_or_default();
    let mut global = (0..).zip(types).filter(|(_, kind)| *kind == "full_attention").map(|(layer, _): (usize, _)| layer);
    let has_values = |layer| outputs.iter().any(|output| output.name == format!("blk.{layer}.attn_v.weight"));
    if config.flag("attention_k_eq_v") == Some(true) && global.any(has_values) {
        bail!(
            "attention_k_eq_v in config.json is true, but the checkpoint has weights for values of global layers: correct it"
        );
    }
    for (flag, tensors) in BIASES.iter().filter(|(flag, _)| config.is_own(flag) && config.flag(flag) == Some(false)) {
        let is_denied = |name: &str| {
            let name = name.strip_suffix(".bias").and_then(|name| name.rsplit('.').next());
            name.is_some_and(|name| tensors.contains(&name))
        };
        if let Some(bias) = outputs.iter().find(|output| is_denied(&output.name)) {
            bail!(
                "{flag} in config.json is false or missing, but the checkpoint has the bias {}, which transformers would leave out: \
                 correct {flag}, or remove the biases",
                bias.name
            );
        }
    }
    Ok(())
}

/// Checks those settings of a config that no part of the conversion has read.
///
/// # Errors
///
/// A setting of [`IMPLIED`] has a different value, or the steps of a recurrent mixer have limits.
pub fn check(config: &Config, architecture: &str) -> Result<()> {
    for (name, value) in config.unread() {
        let implied = IMPLIED.iter().find(|(known, _)| *known == name).map(|(_, implied)| *implied);
        let is_neutral = match (name, implied) {
            ("time_step_limit", _) => is_unlimited(value),
            (_, Some(implied)) => is_same(value, &serde_json::from_str(implied)?),
            (_, None) => true,
        };
        if !is_neutral {
            bail!("{name} in config.json is {value}: not supported for the architecture {architecture}");
        }
    }
    Ok(())
}

/// Returns true if the limits are 0 and infinity. JSON cannot express infinity. So any object, string or null counts as
/// infinity.
fn is_unlimited(limits: &Value) -> bool {
    limits[0].as_f64() == Some(0.0) && limits[1].as_f64().is_none_or(f64::is_infinite)
}
