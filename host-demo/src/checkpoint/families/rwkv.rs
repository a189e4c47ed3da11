//! RWKV 6 and 7.

use anyhow::Result;

use super::Family;
use crate::checkpoint::changes::{same, squeezed, transposed};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::{Place, Row};
use crate::checkpoint::view::{Step, View};

fn flat<'f>(_: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let len = view.len();
    Ok(vec![view.reshape(&[len])?])
}

/// Reshapes a vector with one value for each mixed stream to four dimensions.
fn mixed<'f>(_: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let len = view.len();
    Ok(vec![view.reshape(&[1, 1, 1, len])?])
}

fn rwkv7(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let width = c.width()?;
    let rank = |names: &[&str], power: f64, factor: f64| -> Result<u32> {
        let default = ((width as f64).powf(power) * factor / 32.0).round_ties_even().max(1.0) as u32 * 32;
        Ok(c.number(names)?.unwrap_or(default))
    };
    keys.set("context_length", 1_048_576u32);
    keys.set("embedding_length", width as u32);
    keys.block_count()?;
    keys.float("attention.layer_norm_epsilon", &["layer_norm_epsilon", "norm_eps"])?;
    keys.number("wkv.head_size", &["head_size", "head_dim"])?;
    keys.set("attention.decay_lora_rank", rank(&["lora_rank_decay", "decay_low_rank_dim"], 0.5, 1.8)?);
    keys.set("attention.iclr_lora_rank", rank(&["lora_rank_iclr", "a_low_rank_dim"], 0.5, 1.8)?);
    keys.set(
        "attention.value_residual_mix_lora_rank",
        rank(&["lora_rank_value_residual_mix", "v_low_rank_dim"], 0.5, 1.3)?,
    );
    keys.set("attention.gate_lora_rank", rank(&["lora_rank_gate", "gate_low_rank_dim"], 0.8, 0.6)?);
    keys.set("feed_forward_length", c.number(&["intermediate_size"])?.unwrap_or(4 * width as u32));
    keys.set("attention.head_count", 0u32);
    Ok(())
}

#[rustfmt::skip]
const RWKV7: &[Row] = &[
    ("embeddings", "token_embd", same),
    ("norm", "output_norm", same),
    ("pre_norm", "/token_embd_norm", same),
    ("attn_norm", "attn_norm", same),
    ("ffn_norm", "attn_norm_2", same),
    ("attn.x_r", "time_mix_lerp_fused.weight", mixed),
    ("attn.x_w", "time_mix_lerp_fused.weight", mixed),
    ("attn.x_k", "time_mix_lerp_fused.weight", mixed),
    ("attn.x_v", "time_mix_lerp_fused.weight", mixed),
    ("attn.x_a", "time_mix_lerp_fused.weight", mixed),
    ("attn.x_g", "time_mix_lerp_fused.weight", mixed),
    ("attn.k_k", "time_mix_k_k.weight", flat),
    ("attn.k_a", "time_mix_k_a.weight", flat),
    ("attn.r_k", "time_mix_r_k.weight", flat),
    ("attn.w_lora.lora.0", "time_mix_w1", same),
    ("attn.w_lora.lora.2.weight", "time_mix_w2.weight", same),
    ("attn.w_lora.lora.2.bias", "time_mix_w0.weight", same),
    ("attn.a_lora.lora.0", "time_mix_a1", same),
    ("attn.a_lora.lora.2.weight", "time_mix_a2.weight", same),
    ("attn.a_lora.lora.2.bias", "time_mix_a0.weight", same),
    ("attn.v_lora.lora.0", "time_mix_v1", same),
    ("attn.v_lora.lora.2.weight", "time_mix_v2.weight", same),
    ("attn.v_lora.lora.2.bias", "time_mix_v0.weight", same),
    ("attn.g_lora.lora.0", "time_mix_g1", same),
    ("attn.g_lora.lora.2", "time_mix_g2", same),
    ("attn.g_norm", "time_mix_ln", same),
    ("attn.r_proj", "time_mix_receptance", same),
    ("attn.k_proj", "time_mix_key", same),
    ("attn.v_proj", "time_mix_value", same),
    ("attn.o_proj", "time_mix_output", same),
    ("ffn.x_k", "channel_mix_lerp_k.weight", flat),
    ("ffn.key", "channel_mix_key", same),
    ("ffn.value", "channel_mix_value", same),
];

#[rustfmt::skip]
const RWKV6: &[Row] = &[
    ("embeddings", "token_embd", same),
    ("ln_out", "output_norm", same),
    ("head", "output", same),
    ("pre_ln", "/token_embd_norm", same),
    ("ln1", "attn_norm", same),
    ("ln2", "attn_norm_2", same),
    ("attention.time_maa_x", "time_mix_lerp_x.weight", squeezed),
    ("attention.time_maa_w", "time_mix_lerp_fused.weight", mixed),
    ("attention.time_maa_k", "time_mix_lerp_fused.weight", mixed),
    ("attention.time_maa_v", "time_mix_lerp_fused.weight", mixed),
    ("attention.time_maa_r", "time_mix_lerp_fused.weight", mixed),
    ("attention.time_maa_g", "time_mix_lerp_fused.weight", mixed),
    ("attention.time_maa_w1", "time_mix_w1.weight", transposed),
    ("attention.time_maa_w2", "time_mix_w2.weight", transposed),
    ("attention.time_faaaa", "time_mix_first.weight", same),
    ("attention.time_decay", "time_mix_decay.weight", squeezed),
    ("attention.time_decay_w1", "time_mix_decay_w1.weight", transposed),
    ("attention.time_decay_w2", "time_mix_decay_w2.weight", transposed),
    ("attention.receptance", "time_mix_receptance", same),
    ("attention.key", "time_mix_key", same),
    ("attention.value", "time_mix_value", same),
    ("attention.gate", "time_mix_gate", same),
    ("attention.output", "time_mix_output", halved),
    ("attention.ln_x", "time_mix_ln", same),
    ("feed_forward.time_maa_k", "channel_mix_lerp_k.weight", squeezed),
    ("feed_forward.time_maa_r", "channel_mix_lerp_r.weight", squeezed),
    ("feed_forward.key", "channel_mix_key", same),
    ("feed_forward.receptance", "channel_mix_receptance", same),
    ("feed_forward.value", "channel_mix_value", halved),
];

/// Halves output matrices once per `rescale_every` preceding layers; the forward pass halves the hidden state to match.
fn halved<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let layer = Place::of(view.name()).number.unwrap_or(0) as i32;
    let every = config.number(&["rescale_every"])?.unwrap_or(0) as i32;
    let halvings = layer.checked_div(every).unwrap_or(0);
    Ok(vec![view.then(Step::Times(0.5f32.powi(halvings)))])
}

fn rwkv6(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let width = c.width()? as u32;
    let large = width == 4096;
    keys.set("context_length", 1_048_576u32);
    keys.set("embedding_length", width);
    keys.block_count()?;
    keys.float("attention.layer_norm_epsilon", &["layer_norm_epsilon"])?;
    keys.set("rescale_every_n_layers", c.number(&["rescale_every"])?.unwrap_or(0));
    keys.number("wkv.head_size", &["head_size"])?;
    keys.set("time_mix_extra_dim", if large { 64u32 } else { 32 });
    keys.set("time_decay_extra_dim", if large { 128u32 } else { 64 });
    keys.set("feed_forward_length", c.number(&["intermediate_size"])?.unwrap_or(7 * width / 2 / 32 * 32));
    keys.set("attention.head_count", 0u32);
    Ok(())
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["Rwkv6ForCausalLM"],
        architecture: "rwkv6",
        names: &[RWKV6],
        keys: rwkv6,
        ..Family::PLAIN
    },
    Family {
        classes: &["RWKV7ForCausalLM", "Rwkv7ForCausalLM"],
        architecture: "rwkv7",
        names: &[RWKV7],
        keys: rwkv7,
        ..Family::PLAIN
    },
];
