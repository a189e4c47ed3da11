//! Encoders: BERT and its variants, with sentence-transformers' modules.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::{Family, Vocabulary};
use crate::checkpoint::changes::{same, stacked_columns, stacked_rows, third_row_on, used_positions};
use crate::checkpoint::config::{self, Config, SCORING_ENCODER};
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::Row;

#[rustfmt::skip]
const BERT: &[Row] = &[
    ("embeddings.word_embeddings", "token_embd", same),
    ("embeddings.position_embeddings", "position_embd", same),
    ("embeddings.token_type_embeddings", "token_types", same),
    ("embeddings.LayerNorm", "token_embd_norm", same),
    ("embeddings.LayerNorm.gamma", "token_embd_norm.weight", same),
    ("embeddings.LayerNorm.beta", "token_embd_norm.bias", same),
    ("attention.self.query", "attn_q", same),
    ("attention.self.key", "attn_k", same),
    ("attention.self.value", "attn_v", same),
    ("attention.output.dense", "attn_output", same),
    ("attention.output.LayerNorm", "attn_output_norm", same),
    ("attention.output.LayerNorm.gamma", "attn_output_norm.weight", same),
    ("attention.output.LayerNorm.beta", "attn_output_norm.bias", same),
    ("intermediate.dense", "ffn_up", same),
    ("output.dense", "ffn_down", same),
    ("output.LayerNorm", "layer_output_norm", same),
    ("output.LayerNorm.gamma", "layer_output_norm.weight", same),
    ("output.LayerNorm.beta", "layer_output_norm.bias", same),
];

/// Tensor names in DistilBERT's layers.
#[rustfmt::skip]
const DISTILLED: &[Row] = &[
    ("attention.q_lin", "attn_q", same),
    ("attention.k_lin", "attn_k", same),
    ("attention.v_lin", "attn_v", same),
    ("attention.out_lin", "attn_output", same),
    ("sa_layer_norm", "attn_output_norm", same),
    ("ffn.lin1", "ffn_up", same),
    ("ffn.lin2", "ffn_down", same),
    ("output_layer_norm", "layer_output_norm", same),
    ("pre_classifier", "cls", same),
    ("classifier", "cls.output", same),
];

/// Tensor names in MPNet that differ from RoBERTa's.
#[rustfmt::skip]
const MPNET: &[Row] = &[
    ("embeddings.position_embeddings", "position_embd", third_row_on),
    ("attention.attn.q", "attn_q", same),
    ("attention.attn.k", "attn_k", same),
    ("attention.attn.v", "attn_v", same),
    ("attention.attn.o", "attn_output", same),
    ("attention.LayerNorm", "attn_output_norm", same),
    ("attention.LayerNorm.gamma", "attn_output_norm.weight", same),
    ("attention.LayerNorm.beta", "attn_output_norm.bias", same),
    ("encoder.relative_attention_bias", "blk.0.attn_rel_b", same),
];

/// Tensors used only in training.
#[rustfmt::skip]
const TRAINING: &[Row] = &[
    ("cls.predictions.bias", "", same),
    ("cls.predictions.transform.dense", "", same),
    ("cls.predictions.transform.LayerNorm", "", same),
    ("cls.predictions.transform.LayerNorm.gamma", "", same),
    ("cls.predictions.transform.LayerNorm.beta", "", same),
    ("cls.predictions.decoder", "", same),
    ("cls.seq_relationship", "", same),
    ("lm_head.dense", "", same),
    ("lm_head.layer_norm", "", same),
    ("lm_head.decoder", "", same),
    ("lm_head.bias", "", same),
    ("lm_head", "", same),
    ("generator_predictions.dense", "", same),
    ("generator_predictions.LayerNorm", "", same),
    ("generator_lm_head", "", same),
    ("discriminator_predictions.dense", "", same),
    ("discriminator_predictions.dense_prediction", "", same),
    ("vocab_transform", "", same),
    ("vocab_layer_norm", "", same),
    ("vocab_projector", "", same),
    ("head.dense", "", same),
    ("head.norm", "", same),
    ("decoder", "", same),
];

/// Drops the tensors of the pooler, because only a classifier uses them.
#[rustfmt::skip]
const NO_POOLER: &[Row] = &[("pooler.dense", "", same)];

#[rustfmt::skip]
const CLASSIFIER: &[Row] = &[
    ("pooler.dense", "cls", same),
    ("classifier", "cls.output", same),
    ("classifier.dense", "cls", same),
    ("classifier.out_proj", "cls.output", same),
];

/// The tensors of token classification. The classifier is applied to each token. A pooler, which some checkpoints have,
/// is dropped because it is not used.
#[rustfmt::skip]
const OF_TOKENS: &[Row] = &[("pooler.dense", "", same), ("classifier", "cls.output", same)];

/// Tensor names of Nomic's models.
#[rustfmt::skip]
const NOMIC: &[Row] = &[
    ("emb_ln", "token_embd_norm", same),
    ("attn.Wqkv", "attn_qkv", same),
    ("attn.out_proj", "attn_output", same),
    ("mixer.Wqkv", "attn_qkv", same),
    ("mixer.out_proj", "attn_output", same),
    ("norm1", "attn_output_norm", same),
    ("norm2", "layer_output_norm", same),
    ("mlp.fc11", "ffn_up", same),
    ("mlp.fc12", "ffn_gate", same),
    ("mlp.fc1", "ffn_up", same),
    ("mlp.fc2", "ffn_down", same),
    ("mlp.router.layer", "ffn_gate_inp", same),
    ("mlp.experts.mlp.w1", "ffn_up_exps.weight", stacked_rows),
    ("mlp.experts.mlp.w2", "ffn_down_exps.weight", stacked_columns),
    ("mlp.experts.bias", "", same),
];

fn bert(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    keys.set("attention.causal", false);
    Ok(())
}

/// ELECTRA is BERT without a pooler.
fn electra(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let (embedding, hidden) = (c.number(&["embedding_size"])?, c.number(&["hidden_size"])?);
    ensure!(
        embedding == hidden,
        "embedding_size and hidden_size in config.json differ: a projection between them is not supported"
    );
    if c.classes().contains(&"ElectraForSequenceClassification") {
        keys.set("classifier.activation", "gelu");
    }
    bert(keys)
}

/// RoBERTa's positions begin after the padding index.
fn roberta(keys: &mut Keys<'_>) -> Result<()> {
    bert(keys)?;
    let c = keys.config;
    if let (Some(pad), Some(positions)) = (c.number(&["pad_token_id"])?, c.number(&["max_position_embeddings"])?) {
        keys.set("context_length", positions.saturating_sub(pad + 1));
    }
    Ok(())
}

fn mpnet(keys: &mut Keys<'_>) -> Result<()> {
    // These two numbers are constants in the source of transformers' MPNet. The fields of config.json do not change
    // them.
    const FIRST_POSITION: u32 = 2;
    const BUCKETS: u32 = 32;
    bert(keys)?;
    let c = keys.config;
    c.only("relative_attention_num_buckets", &BUCKETS.into())?;
    if let Some(positions) = c.number(&["max_position_embeddings"])? {
        keys.set("context_length", positions.saturating_sub(FIRST_POSITION));
    }
    keys.set("attention.relative_buckets_count", BUCKETS);
    Ok(())
}

fn nomic(keys: &mut Keys<'_>) -> Result<()> {
    bert(keys)?;
    let c = keys.config;
    let experts = c.number(&["moe_every_n_layers"])?.is_some_and(|every| every > 0);
    let trained = c.number(&["max_trained_positions"])?.unwrap_or(2048);
    match (c.number(&["n_positions"])?, trained) {
        _ if c.number(&["max_position_embeddings"])?.is_some() => {}
        (Some(8192), 2048) => keys.set("context_length", 2048u32),
        (Some(2048), 2048) => keys.set("context_length", 512u32),
        // The config extends the context by scaling positions beyond `trained`. GGUF cannot express this scaling, so
        // the context ends at `trained`.
        (Some(positions), trained) if positions > trained && c.float(&["rotary_scaling_factor"])?.is_some() => {
            keys.set("context_length", trained);
        }
        _ => {}
    }
    for name in ["prenorm", "rotary_emb_interleaved", "causal", "parallel_block", "use_rms_norm"] {
        c.only(name, &Value::Bool(false))?;
    }
    c.only("rotary_emb_fraction", &Value::from(1.0))?;
    c.only("rotary_emb_scale_base", &Value::Null)?;
    ensure!(
        c.text("activation_function").is_none_or(|name| name == if experts { "gelu" } else { "swiglu" }),
        "activation_function in config.json is not that of Nomic's models: not supported"
    );
    if let Some(base) = c.float(&["rotary_emb_base"])? {
        keys.set("rope.freq_base", base);
    }
    if experts {
        keys.number("moe_every_n_layers", &["moe_every_n_layers"])?;
        keys.number("expert_used_count", &["moe_top_k"])?;
    }
    Ok(())
}

fn with_experts(config: &Config) -> Option<&'static str> {
    config.number(&["moe_every_n_layers"]).ok()??.gt(&0).then_some("nomic-bert-moe")
}

const TYPED: Vocabulary = Vocabulary { token_types: true, ..Vocabulary::PLAIN };

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["BertModel", "BertForMaskedLM", "BertForPreTraining"],
        architecture: "bert",
        names: &[BERT, NO_POOLER, TRAINING],
        keys: bert,
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["BertForSequenceClassification"],
        architecture: "bert",
        names: &[BERT, CLASSIFIER],
        keys: bert,
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["BertForTokenClassification"],
        architecture: "bert",
        names: &[BERT, OF_TOKENS],
        keys: bert,
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["ElectraModel", "ElectraForMaskedLM", "ElectraForPreTraining"],
        architecture: "bert",
        names: &[BERT, TRAINING],
        keys: electra,
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["ElectraForSequenceClassification", "ElectraForTokenClassification"],
        architecture: "bert",
        names: &[BERT, CLASSIFIER],
        keys: electra,
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification", "DistilBertForTokenClassification"],
        architecture: "bert",
        names: &[DISTILLED, BERT, TRAINING],
        keys: |k| {
            k.block_count()?;
            k.number("context_length", &["max_position_embeddings"])?;
            k.number("embedding_length", &["dim"])?;
            k.number("feed_forward_length", &["hidden_dim"])?;
            k.number("attention.head_count", &["n_heads"])?;
            k.set("attention.layer_norm_epsilon", 1e-12f32);
            k.set("attention.causal", false);
            if k.config.classes().contains(&"DistilBertForSequenceClassification") {
                k.set("classifier.activation", "relu");
            }
            Ok(())
        },
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["RobertaModel", "XLMRobertaModel", "CamembertModel", "RobertaForMaskedLM", "XLMRobertaForMaskedLM", "CamembertForMaskedLM"],
        architecture: "bert",
        names: &[&[("embeddings.position_embeddings", "position_embd", used_positions)], BERT, NO_POOLER, TRAINING],
        keys: roberta,
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["RobertaForSequenceClassification", "XLMRobertaForSequenceClassification", "CamembertForSequenceClassification"],
        architecture: "bert",
        names: &[&[("embeddings.position_embeddings", "position_embd", used_positions)], BERT, CLASSIFIER],
        keys: roberta,
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["RobertaForTokenClassification", "XLMRobertaForTokenClassification", "CamembertForTokenClassification"],
        architecture: "bert",
        names: &[&[("embeddings.position_embeddings", "position_embd", used_positions)], BERT, OF_TOKENS],
        keys: roberta,
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["MPNetModel", "MPNetForMaskedLM"],
        architecture: "mpnet",
        names: &[MPNET, BERT, NO_POOLER, TRAINING],
        keys: mpnet,
        ..Family::PLAIN
    },
    Family {
        classes: &["MPNetForSequenceClassification"],
        architecture: "mpnet",
        names: &[MPNET, BERT, CLASSIFIER],
        keys: mpnet,
        ..Family::PLAIN
    },
    Family {
        classes: &["MPNetForTokenClassification"],
        architecture: "mpnet",
        names: &[MPNET, BERT, OF_TOKENS],
        keys: mpnet,
        ..Family::PLAIN
    },
    Family {
        classes: &["NomicBertModel"],
        architecture: "nomic-bert",
        variant: with_experts,
        names: &[NOMIC, BERT, TRAINING, NO_POOLER],
        keys: nomic,
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["JinaBertModel", "JinaBertForMaskedLM"],
        architecture: "jina-bert-v2",
        names: &[&[
            ("attention.self.layer_norm_q", "attn_q_norm", same),
            ("attention.self.layer_norm_k", "attn_k_norm", same),
            ("mlp.up_gated_layer", "ffn_up", same),
            ("mlp.gated_layers", "ffn_up", same),
            ("mlp.down_layer", "ffn_down", same),
            ("mlp.wo", "ffn_down", same),
            ("mlp.layernorm", "layer_output_norm", same),
            ("layer_norm_1", "attn_norm_2", same),
            ("layer_norm_2", "layer_output_norm", same),
        ], BERT, NO_POOLER, TRAINING],
        keys: |k| {
            k.config.only("position_embedding_type", &"alibi".into())?;
            if k.config.text("feed_forward_type") != Some("original") {
                k.config.only("feed_forward_type", &"geglu".into())?;
            }
            bert(k)
        },
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["ModernBertModel", "ModernBertForMaskedLM"],
        architecture: "modern-bert",
        names: &[MODERN, TRAINING],
        keys: modern,
        vocabulary: MODERN_VOCABULARY,
        ..Family::PLAIN
    },
    Family {
        classes: &["ModernBertForSequenceClassification", "ModernBertForTokenClassification"],
        architecture: "modern-bert",
        names: &[MODERN, &[
            ("head.dense", "cls", same),
            ("head.norm", "cls.norm", same),
            ("classifier", "cls.output", same),
        ]],
        keys: modern,
        vocabulary: MODERN_VOCABULARY,
        ..Family::PLAIN
    },
    // A class for laya's encoder and scoring layers, because laya's checkpoints do not name a class.
    Family {
        classes: &[SCORING_ENCODER],
        architecture: "modern-bert",
        names: &[SCORING, MODERN],
        keys: modern,
        vocabulary: MODERN_VOCABULARY,
        ..Family::PLAIN
    },
    Family {
        classes: &["JinaEmbeddingsV3Model"],
        architecture: "jina-bert-v3",
        names: &[NOMIC, BERT, NO_POOLER, TRAINING],
        keys: |k| {
            bert(k)?;
            let base = k.config.rope_float("rope_theta").unwrap_or(20000.0);
            k.set("rope.freq_base", base as f32);
            Ok(())
        },
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["NeoBERT", "NeoBERTLMHead", "NeoBERTForSequenceClassification"],
        architecture: "neo-bert",
        names: &[&[
            ("encoder", "token_embd", same),
            ("layer_norm", "enc.output_norm", same),
            ("qkv", "attn_qkv", same),
            ("wo", "attn_output", same),
            ("attention_norm", "attn_norm", same),
            ("ffn_norm", "ffn_norm", same),
            ("ffn.w12", "ffn_up", same),
            ("ffn.w3", "ffn_down", same),
            ("decoder", "", same),
            ("dense", "cls", same),
            ("classifier", "cls.output", same),
        ]],
        keys: |k| {
            bert(k)?;
            let c = k.config;
            k.set("feed_forward_length", 2 * c.need(&["intermediate_size"])? / 3);
            k.set("rope.freq_base", 10000.0f32);
            k.set("rope.scaling.type", "none");
            k.set("attention.layer_norm_rms_epsilon", c.float(&["norm_eps"])?.unwrap_or(1e-6));
            k.maybe("context_length", &["max_length", "max_position_embeddings"])?;
            for (name, only) in [("rope", true), ("rms_norm", true), ("ngpt", false)] {
                c.only(name, &Value::Bool(only))?;
            }
            k.set("pooling_type", 2u32);
            Ok(())
        },
        vocabulary: TYPED,
        ..Family::PLAIN
    },
    Family {
        classes: &["EuroBertModel", "JinaEmbeddingsV5Model"],
        architecture: "eurobert",
        keys: |k| {
            k.common()?;
            k.set("attention.causal", false);
            k.unscaled();
            Ok(())
        },
        ..Family::PLAIN
    },
];

#[rustfmt::skip]
const MODERN: &[Row] = &[
    ("embeddings.tok_embeddings", "token_embd", same),
    ("embeddings.norm", "token_embd_norm", same),
    ("final_norm", "output_norm", same),
    ("attn_norm", "attn_norm", same),
    ("attn.Wqkv", "attn_qkv", same),
    ("attn.Wo", "attn_output", same),
    ("mlp_norm", "ffn_norm", same),
    ("mlp.Wi", "ffn_up", same),
    ("mlp.Wo", "ffn_down", same),
];

/// Laya's scoring layers, under torch's names, and the scorer. These layers count as the last layers of the encoder.
#[rustfmt::skip]
const SCORING: &[Row] = &[
    ("encoder.embeddings.tok_embeddings", "token_embd", same),
    ("encoder.embeddings.norm", "token_embd_norm", same),
    ("encoder.final_norm", "output_norm", same),
    ("norm1", "attn_norm", same),
    ("self_attn.in_proj_weight", "attn_qkv.weight", same),
    ("self_attn.in_proj_bias", "attn_qkv.bias", same),
    ("self_attn.out_proj", "attn_output", same),
    ("norm2", "ffn_norm", same),
    ("linear1", "ffn_up", same),
    ("linear2", "ffn_down", same),
    ("type_emb", "token_types", same),
    ("scorer.0", "cls.norm", same),
    ("scorer.1", "cls", same),
    ("scorer.3", "cls.output", same),
    // These tensors are dropped: the head `act_head` is for a different task, and the temperatures are read from the
    // config.
    ("act_head.#", "", same),
    ("temperature", "", same),
];

const MODERN_VOCABULARY: Vocabulary = Vocabulary {
    defaults: &[("add_bos_token", true), ("add_eos_token", true), ("add_sep_token", true)],
    ..Vocabulary::PLAIN
};

fn modern(keys: &mut Keys<'_>) -> Result<()> {
    bert(keys)?;
    let c = keys.config;
    keys.number("attention.sliding_window", &["local_attention"])?;
    keys.maybe("attention.sliding_window_pattern", &["global_attn_every_n_layers"])?;
    let period = c.number(&["global_attn_every_n_layers"])?.unwrap_or(3).max(1) as usize;
    let types = c.texts("layer_types").unwrap_or_default();
    if !types.iter().enumerate().all(|(layer, kind)| (*kind == "sliding_attention") == (layer % period != 0)) {
        keys.window_pattern();
    }
    keys.unscaled();
    keys.vocab_size()?;
    if let Some(name) = c.text("hidden_activation") {
        keys.set("hidden_activation", config::activation(name));
    }
    match c.text("classifier_activation") {
        None | Some("gelu") => {}
        _ if !c.classes().iter().any(|class| class.ends_with("Classification")) => {}
        Some("swish") => keys.set("classifier.activation", "silu"),
        Some(name @ ("relu" | "silu" | "tanh")) => keys.set("classifier.activation", name),
        Some(name) => bail!("classifier_activation in config.json is {name}: not supported"),
    }
    Ok(())
}
