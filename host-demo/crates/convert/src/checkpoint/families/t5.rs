//! T5, mT5 and UMT5, and T5's encoder alone.

use anyhow::{Result, ensure};

use super::Family;
use crate::checkpoint::changes::same;
use crate::checkpoint::config::{self, Config};
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::Row;

#[rustfmt::skip]
const T5: &[Row] = &[
    ("shared", "token_embd", same),
    ("encoder.embed_tokens", "", same),
    ("decoder.embed_tokens", "", same),
    ("encoder.final_layer_norm", "enc.output_norm", same),
    ("decoder.final_layer_norm", "dec.output_norm", same),
    ("enc.layer.0.SelfAttention.q", "attn_q", same),
    ("enc.layer.0.SelfAttention.k", "attn_k", same),
    ("enc.layer.0.SelfAttention.v", "attn_v", same),
    ("enc.layer.0.SelfAttention.o", "attn_o", same),
    ("enc.layer.0.SelfAttention.relative_attention_bias", "attn_rel_b", same),
    ("enc.layer.0.layer_norm", "attn_norm", same),
    ("enc.layer.1.DenseReluDense.wi", "ffn_up", same),
    ("enc.layer.1.DenseReluDense.wi_0", "ffn_gate", same),
    ("enc.layer.1.DenseReluDense.wi_1", "ffn_up", same),
    ("enc.layer.1.DenseReluDense.wo", "ffn_down", same),
    ("enc.layer.1.layer_norm", "ffn_norm", same),
    ("dec.layer.0.SelfAttention.q", "attn_q", same),
    ("dec.layer.0.SelfAttention.k", "attn_k", same),
    ("dec.layer.0.SelfAttention.v", "attn_v", same),
    ("dec.layer.0.SelfAttention.o", "attn_o", same),
    ("dec.layer.0.SelfAttention.relative_attention_bias", "attn_rel_b", same),
    ("dec.layer.0.layer_norm", "attn_norm", same),
    ("dec.layer.1.EncDecAttention.q", "cross_attn_q", same),
    ("dec.layer.1.EncDecAttention.k", "cross_attn_k", same),
    ("dec.layer.1.EncDecAttention.v", "cross_attn_v", same),
    ("dec.layer.1.EncDecAttention.o", "cross_attn_o", same),
    // transformers also stores this table for attention from the decoder to the encoder, but never reads it, because
    // this attention has no relative positions.
    ("dec.layer.1.EncDecAttention.relative_attention_bias", "", same),
    ("dec.layer.1.layer_norm", "cross_attn_norm", same),
    ("dec.layer.2.DenseReluDense.wi", "ffn_up", same),
    ("dec.layer.2.DenseReluDense.wi_0", "ffn_gate", same),
    ("dec.layer.2.DenseReluDense.wi_1", "ffn_up", same),
    ("dec.layer.2.DenseReluDense.wo", "ffn_down", same),
    ("dec.layer.2.layer_norm", "ffn_norm", same),
];

fn encoder(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    keys.set("context_length", c.number(&["n_positions"])?.unwrap_or(512));
    keys.number("embedding_length", &["d_model"])?;
    keys.number("feed_forward_length", &["d_ff"])?;
    keys.block_count()?;
    keys.number("attention.head_count", &["num_heads"])?;
    let width = c.need(&["d_kv"])?;
    keys.key_length(width);
    keys.float("attention.layer_norm_epsilon", &["layer_norm_epsilon"])?;
    keys.number("attention.relative_buckets_count", &["relative_attention_num_buckets"])?;
    keys.float("attention.layer_norm_rms_epsilon", &["layer_norm_epsilon"])?;
    activation(keys)
}

/// Writes the activation function of the feed-forward, if it differs from the usual function. The usual function is the
/// approximate GELU if the feed-forward has a gate, and ReLU otherwise.
fn activation(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let stated = c.text("feed_forward_proj").unwrap_or("relu");
    let (is_gated, name) = stated.strip_prefix("gated-").map_or((false, stated), |name| (true, name));
    let name = match c.text("dense_act_fn").unwrap_or(name) {
        "gelu" if is_gated && c.get("dense_act_fn").is_none() => "gelu_pytorch_tanh",
        name => config::activation(name),
    };
    ensure!(
        matches!(name, "gelu" | "gelu_pytorch_tanh" | "silu" | "relu"),
        "feed_forward_proj in config.json is {stated}: not supported for the architecture {}",
        keys.architecture
    );
    if name != if is_gated { "gelu_pytorch_tanh" } else { "relu" } {
        keys.set("hidden_activation", name);
    }
    Ok(())
}

/// Returns true if the decoder's states are not scaled before the head. Readers of GGUF scale the states if the file
/// has no head, so the head of such a model is stored even if it equals the embedding.
fn is_unscaled(config: &Config) -> bool {
    let scales = config.flag("scale_decoder_outputs").or(config.flag("tie_word_embeddings"));
    scales == Some(false) || config.classes().contains(&"MT5ForConditionalGeneration")
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["T5ForConditionalGeneration", "T5WithLMHeadModel", "MT5ForConditionalGeneration", "UMT5ForConditionalGeneration", "UMT5Model"],
        architecture: "t5",
        names: &[T5],
        keys: |k| {
            encoder(k)?;
            k.maybe("decoder_block_count", &["num_decoder_layers"])?;
            k.number("decoder_start_token_id", &["decoder_start_token_id", "pad_token_id"])
        },
        own_head: is_unscaled,
        ..Family::PLAIN
    },
    Family { classes: &["T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel"], architecture: "t5encoder", names: &[T5], keys: encoder, ..Family::PLAIN },
];
