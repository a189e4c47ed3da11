//! T5, mT5 and UMT5, and T5's encoder alone.

use anyhow::Result;

use super::Family;
use crate::checkpoint::changes::same;
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
    // Unused: attention from a decoder to an encoder has no relative positions.
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
    keys.float("attention.layer_norm_rms_epsilon", &["layer_norm_epsilon"])
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
        ..Family::PLAIN
    },
    Family { classes: &["T5EncoderModel"], architecture: "t5encoder", names: &[T5], keys: encoder, ..Family::PLAIN },
];
