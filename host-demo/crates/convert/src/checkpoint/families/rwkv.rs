//! RWKV 6 and 7: models of their own, and models of the form of Qwen 2 in which RWKV replaces the attention.

use anyhow::{Result, ensure};

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

/// Reshapes the mixing factors of one projection's input to `[1, 1, 1, len]`: one row of the fused tensor.
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

/// Halves output matrices once for every `rescale_every` preceding layers, because the forward pass halves the hidden
/// state equally often.
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
const ARWKV7: &[Row] = &[
    ("self_attn.time_mixer.x_r", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_mixer.x_w", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_mixer.x_k", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_mixer.x_v", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_mixer.x_a", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_mixer.x_g", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_mixer.w0", "time_mix_w0.weight", flat),
    ("self_attn.time_mixer.w1", "time_mix_w1.weight", transposed),
    ("self_attn.time_mixer.w2", "time_mix_w2.weight", transposed),
    ("self_attn.time_mixer.a0", "time_mix_a0.weight time_mix_v0.weight", twice_in_first),
    ("self_attn.time_mixer.a1", "time_mix_a1.weight time_mix_v1.weight", twice_in_first),
    ("self_attn.time_mixer.a2", "time_mix_a2.weight time_mix_v2.weight", twice_in_first),
    ("self_attn.time_mixer.v0", "time_mix_v0.weight", but_first),
    ("self_attn.time_mixer.v1", "time_mix_v1.weight", but_first),
    ("self_attn.time_mixer.v2", "time_mix_v2.weight", but_first),
    ("self_attn.time_mixer.g1", "time_mix_g1.weight", transposed),
    ("self_attn.time_mixer.g2", "time_mix_g2.weight", transposed),
    ("self_attn.time_mixer.k_k", "time_mix_k_k.weight", flat),
    ("self_attn.time_mixer.k_a", "time_mix_k_a.weight", flat),
    ("self_attn.time_mixer.r_k", "time_mix_r_k.weight", flat),
    ("self_attn.time_mixer.ln_x", "time_mix_ln", same),
    ("self_attn.time_mixer.receptance", "time_mix_receptance", same),
    ("self_attn.time_mixer.key", "time_mix_key", same),
    ("self_attn.time_mixer.value", "time_mix_value", same),
    ("self_attn.time_mixer.output", "time_mix_output", same),
];

/// Removes dimensions of size 1, and transposes a matrix.
fn turned<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let view = view.squeeze();
    if view.shape().len() > 1 { transposed(config, view) } else { Ok(vec![view]) }
}

/// In the first layer, writes the tensor twice: the second copy has the name of the tensor that mixes values. The first
/// layer does not use this copy, but llama.cpp requires it, and llama.cpp's converter writes it, too.
fn twice_in_first<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let is_first = Place::of(view.name()).number == Some(0);
    let mut views = turned(config, view)?;
    let copies = views.iter().map(|view| if is_first { view.clone() } else { view.clone().nothing() });
    let copies: Vec<_> = copies.collect();
    views.extend(copies);
    Ok(views)
}

fn but_first<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let is_first = Place::of(view.name()).number == Some(0);
    let views = turned(config, view)?;
    Ok(if is_first { views.into_iter().map(View::nothing).collect() } else { views })
}

fn arwkv7(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    ensure!(c.number(&["wkv_version"])? == Some(7), "wkv_version in config.json is not 7: not supported");
    hybrid(keys)?;
    keys.number("wkv.head_size", &["head_size"])?;
    for (key, rank) in [("decay", 64u32), ("iclr", 64), ("value_residual_mix", 32)] {
        keys.set(&format!("attention.{key}_lora_rank"), rank);
    }
    keys.set("attention.gate_lora_rank", if c.flag("wkv_has_gate") == Some(true) { 128u32 } else { 0 });
    Ok(())
}

/// Writes the keys of Qwen 2 models in which RWKV replaces attention.
fn hybrid(keys: &mut Keys<'_>) -> Result<()> {
    keys.set("context_length", 1_048_576u32);
    keys.number("embedding_length", &["hidden_size"])?;
    keys.block_count()?;
    keys.float("attention.layer_norm_rms_epsilon", &["rms_norm_eps"])?;
    keys.number("feed_forward_length", &["intermediate_size"])?;
    keys.set("token_shift_count", 1u32);
    keys.set("attention.head_count", 0u32);
    Ok(())
}

#[rustfmt::skip]
const QRWKV6: &[Row] = &[
    ("self_attn.time_maa_x", "time_mix_lerp_x.weight", squeezed),
    ("self_attn.time_maa_w", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_maa_k", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_maa_v", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_maa_r", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_maa_g", "time_mix_lerp_fused.weight", mixed),
    ("self_attn.time_maa_w1", "time_mix_w1.weight", decay_first),
    ("self_attn.time_maa_w2", "time_mix_w2.weight", decay_first),
    ("self_attn.time_decay", "time_mix_decay.weight", squeezed),
    ("self_attn.time_decay_w1", "time_mix_decay_w1.weight", transposed),
    ("self_attn.time_decay_w2", "time_mix_decay_w2.weight", transposed),
    ("self_attn.q_proj", "time_mix_receptance", same),
    ("self_attn.k_proj", "time_mix_key", same),
    ("self_attn.v_proj", "time_mix_value", same),
    ("self_attn.gate", "time_mix_gate", same),
    ("self_attn.o_proj", "time_mix_output", same),
];

/// Transposes the tensor and changes the order of its five parts. The checkpoint has the part for receptance first and
/// the part for decay fourth. The new file has decay, key, value, receptance, gate.
fn decay_first<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let mut parts = Vec::new();
    for view in transposed(config, view)? {
        parts.extend(view.parts(0, 5)?);
    }
    parts.swap(0, 3);
    Ok(parts)
}

fn qrwkv6(keys: &mut Keys<'_>) -> Result<()> {
    hybrid(keys)?;
    let c = keys.config;
    let (width, heads) = (c.width()? as u32, c.heads()? as u32);
    let large = width >= 4096;
    keys.set("wkv.head_size", width / heads.max(1));
    keys.set("time_mix_extra_dim", c.number(&["lora_rank_tokenshift"])?.unwrap_or(if large { 64 } else { 32 }));
    keys.set("time_decay_extra_dim", c.number(&["lora_rank_decay"])?.unwrap_or(if large { 128 } else { 64 }));
    keys.number("attention.head_count_kv", &["num_key_value_heads"])
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["RwkvHybridForCausalLM"],
        architecture: "arwkv7",
        names: &[ARWKV7],
        keys: arwkv7,
        ..Family::PLAIN
    },
    Family {
        classes: &["RWKV6Qwen2ForCausalLM"],
        architecture: "rwkv6qwen2",
        names: &[QRWKV6],
        keys: qrwkv6,
        ..Family::PLAIN
    },
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
