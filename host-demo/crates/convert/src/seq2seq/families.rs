//! Reads the fields in the `config.json` of each model family, and maps the names of the family's tensors.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::tensors::Source;
use crate::tensor::Tensor;
use arenite_gguf_writer::Header;

/// A model family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Hugging Face's `MarianMTModel`.
    Marian,
    /// torch's `nn.Transformer` with two embeddings before it and a linear layer after it.
    Torch,
    /// The English-Hindi translator.
    EnglishHindi,
}

/// Properties of a model.
pub struct Model<'s> {
    pub layers: [usize; 2],
    pub dim: usize,
    pub vocab: usize,
    /// Heads of the encoder and of the decoder.
    pub heads: [u32; 2],
    pub ffn: [usize; 2],
    pub context: u32,
    pub norm: &'static str,
    pub placement: &'static str,
    pub final_norm: bool,
    pub eps: f32,
    pub activation: &'static str,
    pub positions: &'static str,
    pub scale: f32,
    /// The decoder's start token, the end token, and a token that must never be generated.
    pub start: u32,
    pub end: u32,
    pub pad: Option<u32>,
    pub tensors: Vec<Tensor<'s>>,
}

impl Model<'_> {
    /// Writes the metadata keys of the architecture.
    pub fn keys(&self, header: &mut Header) {
        let mut set = |name: &str, value: u32| header.set(&format!("seq2seq.{name}"), value);
        set("block_count", self.layers[0] as u32);
        set("decoder_block_count", self.layers[1] as u32);
        set("context_length", self.context);
        set("embedding_length", self.dim as u32);
        set("feed_forward_length", self.ffn[0] as u32);
        set("attention.head_count", self.heads[0]);
        if self.ffn[1] != self.ffn[0] {
            set("decoder_feed_forward_length", self.ffn[1] as u32);
        }
        if self.heads[1] != self.heads[0] {
            set("attention.decoder_head_count", self.heads[1]);
        }
        set("decoder_start_token_id", self.start);
        header.set("seq2seq.attention.layer_norm_epsilon", self.eps);
        header.set("seq2seq.embedding_scale", self.scale);
        header.set("seq2seq.norm.kind", self.norm);
        header.set("seq2seq.norm.placement", self.placement);
        header.set("seq2seq.norm.final", self.final_norm);
        header.set("seq2seq.activation", self.activation);
        header.set("seq2seq.position.kind", self.positions);
        header.set("seq2seq.bias", true);
    }
}

/// Reads fields of `config.json`. Errors name the field.
struct Config<'c>(&'c Value);

impl Config<'_> {
    fn number(&self, name: &str) -> Result<u32> {
        self.optional(name).with_context(|| format!("config.json has no whole number {name}"))
    }

    fn optional(&self, name: &str) -> Option<u32> {
        self.0[name].as_u64().and_then(|n| u32::try_from(n).ok())
    }

    fn either(&self, names: &[&str]) -> Result<u32> {
        let found = names.iter().find_map(|name| self.optional(name));
        found.with_context(|| format!("config.json has no whole number {}", names.join(" or ")))
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match &self.0[name] {
            Value::Null => Ok(default),
            value => value.as_bool().with_context(|| format!("{name} in config.json is neither true nor false")),
        }
    }

    fn activation(&self, name: &str) -> Result<&'static str> {
        Ok(match self.0[name].as_str() {
            Some("relu") => "relu",
            Some("swish" | "silu") => "silu",
            Some("gelu") => "gelu",
            Some("gelu_new" | "gelu_pytorch_tanh") => "gelu_tanh",
            Some(other) => bail!("the activation {other} is not supported"),
            None => bail!("config.json has no {name}"),
        })
    }

    /// The encoder's and the decoder's value of a field.
    fn both(&self, what: &str) -> Result<[u32; 2]> {
        Ok([self.number(&format!("encoder_{what}"))?, self.number(&format!("decoder_{what}"))?])
    }
}

const STACKS: [(&str, &str); 2] = [("encoder", "enc"), ("decoder", "dec")];
const KINDS: [&str; 2] = ["weight", "bias"];

impl Family {
    /// Recognizes the family by the config. If the config does not tell, the names of the tensors decide.
    pub fn of(config: &Value, source: &Source<'_>) -> Option<Self> {
        if config["model_type"] == "marian" {
            Some(Self::Marian)
        } else if source.has("transformer.encoder.layers.0.self_attn.in_proj_weight") {
            Some(Self::Torch)
        } else if source.has("encoder.layers.0.attention.w_q.weight") {
            Some(Self::EnglishHindi)
        } else {
            None
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Marian => "Marian",
            Self::Torch => "torch's nn.Transformer",
            Self::EnglishHindi => "English-Hindi",
        }
    }

    /// Reads a model of this family and takes all its tensors.
    pub fn read<'s>(self, config: &Value, source: &mut Source<'s>) -> Result<Model<'s>> {
        match self {
            Self::Marian => marian(&Config(config), source),
            Self::Torch => torch(&Config(config), source),
            Self::EnglishHindi => english_hindi(&Config(config), source),
        }
    }
}

fn marian<'s>(config: &Config<'_>, source: &mut Source<'s>) -> Result<Model<'s>> {
    let layers = STACKS.map(|(stack, _)| source.layers(|i| format!("model.{stack}.layers.{i}.fc1.weight")));
    let shared = "model.shared.weight";
    let embedding = if source.has(shared) { shared } else { "model.decoder.embed_tokens.weight" };
    let (vocab, dim) = source.shape(embedding)?;
    source.take(embedding, "token_embd.weight")?;
    if embedding == shared {
        for (stack, _) in STACKS {
            source.skip_copy(&format!("model.{stack}.embed_tokens.weight"), shared)?;
        }
    } else {
        source.take("model.encoder.embed_tokens.weight", "enc.token_embd.weight")?;
    }
    if config.flag("tie_word_embeddings", true)? {
        source.skip_copy("lm_head.weight", embedding)?;
    } else {
        source.take("lm_head.weight", "output.weight")?;
    }
    source.take("final_logits_bias", "output.bias")?;
    for ((stack, new), layers) in STACKS.into_iter().zip(layers) {
        source.skip(&format!("model.{stack}.embed_positions.weight"));
        for i in 0..layers {
            let (old, new) = (format!("model.{stack}.layers.{i}"), format!("{new}.blk.{i}"));
            for kind in KINDS {
                let attentions: &[_] = match stack {
                    "encoder" => &[("self_attn", "attn")],
                    _ => &[("self_attn", "attn"), ("encoder_attn", "cross_attn")],
                };
                for (attention, to) in attentions {
                    for (from, to) in [
                        ("q_proj", format!("{to}_q")),
                        ("k_proj", format!("{to}_k")),
                        ("v_proj", format!("{to}_v")),
                        ("out_proj", format!("{to}_o")),
                    ] {
                        source.take(&format!("{old}.{attention}.{from}.{kind}"), format!("{new}.{to}.{kind}"))?;
                    }
                    source.take(
                        &format!("{old}.{attention}_layer_norm.{kind}"),
                        format!("{new}.{to}_output_norm.{kind}"),
                    )?;
                }
                for (from, to) in [("fc1", "ffn_up"), ("fc2", "ffn_down"), ("final_layer_norm", "layer_output_norm")] {
                    source.take(&format!("{old}.{from}.{kind}"), format!("{new}.{to}.{kind}"))?;
                }
            }
        }
    }
    Ok(Model {
        layers,
        dim,
        vocab,
        heads: config.both("attention_heads")?,
        ffn: config.both("ffn_dim")?.map(|width| width as usize),
        context: config.number("max_position_embeddings")?,
        norm: "layer",
        placement: "post",
        final_norm: false,
        eps: 1e-5,
        activation: config.activation("activation_function")?,
        positions: "halves",
        scale: if config.flag("scale_embedding", false)? { (dim as f32).sqrt() } else { 1.0 },
        start: config.number("decoder_start_token_id")?,
        end: config.number("eos_token_id")?,
        pad: config.optional("pad_token_id"),
        tensors: source.finish(),
    })
}

fn torch<'s>(config: &Config<'_>, source: &mut Source<'s>) -> Result<Model<'s>> {
    let layers = STACKS.map(|(stack, _)| source.layers(|i| format!("transformer.{stack}.layers.{i}.linear1.weight")));
    let (vocab, dim) = source.shape("tgt_embed.weight")?;
    let pre = config.flag("norm_first", false)?;
    source.take("tgt_embed.weight", "token_embd.weight")?;
    source.take("src_embed.weight", "enc.token_embd.weight")?;
    source.take("out.weight", "output.weight")?;
    source.take("out.bias", "output.bias")?;
    let final_norm = source.has("transformer.encoder.norm.weight");
    for ((stack, new), layers) in STACKS.into_iter().zip(layers) {
        let is_decoder = stack == "decoder";
        for kind in KINDS {
            if final_norm {
                source.take(&format!("transformer.{stack}.norm.{kind}"), format!("{new}.output_norm.{kind}"))?;
            }
            for i in 0..layers {
                let (old, new) = (format!("transformer.{stack}.layers.{i}"), format!("{new}.blk.{i}"));
                let attentions: &[_] = if is_decoder {
                    &[("self_attn", "attn"), ("multihead_attn", "cross_attn")]
                } else {
                    &[("self_attn", "attn")]
                };
                for (attention, to) in attentions {
                    for (part, letter) in ["q", "k", "v"].into_iter().enumerate() {
                        let from = format!("{old}.{attention}.in_proj_{kind}");
                        source.take_part(&from, part, 3, format!("{new}.{to}_{letter}.{kind}"))?;
                    }
                    source.take(&format!("{old}.{attention}.out_proj.{kind}"), format!("{new}.{to}_o.{kind}"))?;
                }
                let norms: &[_] = match (is_decoder, pre) {
                    (false, true) => &["attn_norm", "ffn_norm"],
                    (false, false) => &["attn_output_norm", "layer_output_norm"],
                    (true, true) => &["attn_norm", "cross_attn_norm", "ffn_norm"],
                    (true, false) => &["attn_output_norm", "cross_attn_output_norm", "layer_output_norm"],
                };
                for (n, to) in norms.iter().enumerate() {
                    source.take(&format!("{old}.norm{}.{kind}", n + 1), format!("{new}.{to}.{kind}"))?;
                }
                source.take(&format!("{old}.linear1.{kind}"), format!("{new}.ffn_up.{kind}"))?;
                source.take(&format!("{old}.linear2.{kind}"), format!("{new}.ffn_down.{kind}"))?;
            }
        }
    }
    let positional = config.0["positional"].as_str().unwrap_or_default();
    ensure!(
        positional.starts_with("sinusoidal, interleaved"),
        "the positions {positional:?} are not supported: only \"sinusoidal, interleaved\" ones are"
    );
    Ok(Model {
        layers,
        dim,
        vocab,
        heads: [config.number("nhead")?; 2],
        ffn: [config.number("dim_feedforward")? as usize; 2],
        context: config.optional("max_position_embeddings").unwrap_or(512), // positions are computed, so any length works
        norm: "layer",
        placement: if pre { "pre" } else { "post" },
        final_norm,
        eps: config.0["layer_norm_eps"].as_f64().context("config.json has no number layer_norm_eps")? as f32,
        activation: config.activation("activation")?,
        positions: "interleaved",
        scale: if config.flag("scale_embedding", false)? { (dim as f32).sqrt() } else { 1.0 },
        start: config.number("bos_token_id")?,
        end: config.number("eos_token_id")?,
        pad: config.optional("pad_token_id"),
        tensors: source.finish(),
    })
}

fn english_hindi<'s>(config: &Config<'_>, source: &mut Source<'s>) -> Result<Model<'s>> {
    let layers = STACKS.map(|(stack, _)| source.layers(|i| format!("{stack}.layers.{i}.ffn.layer1.weight")));
    let (vocab, dim) = source.shape("trg_embed.embed.weight")?;
    let (ffn, _) = source.shape("encoder.layers.0.ffn.layer1.weight")?;
    source.take("trg_embed.embed.weight", "token_embd.weight")?;
    source.take("src_embed.embed.weight", "enc.token_embd.weight")?;
    for kind in KINDS {
        source.take(&format!("output_layer.proj.{kind}"), format!("output.{kind}"))?;
    }
    for ((stack, new), layers) in STACKS.into_iter().zip(layers) {
        let (attentions, norms): (&[_], &[_]) = match stack {
            "encoder" => (&[("attention", "attn")], &["attn_norm", "ffn_norm"]),
            _ => (
                &[("self_attention", "attn"), ("cross_attention", "cross_attn")],
                &["attn_norm", "cross_attn_norm", "ffn_norm"],
            ),
        };
        for (kind, norm) in [("weight", "gamma"), ("bias", "beta")] {
            source.take(&format!("{stack}.norm.{norm}"), format!("{new}.output_norm.{kind}"))?;
            for i in 0..layers {
                let (old, new) = (format!("{stack}.layers.{i}"), format!("{new}.blk.{i}"));
                for (attention, to) in attentions {
                    for letter in ["q", "k", "v", "o"] {
                        source.take(
                            &format!("{old}.{attention}.w_{letter}.{kind}"),
                            format!("{new}.{to}_{letter}.{kind}"),
                        )?;
                    }
                }
                for (n, to) in norms.iter().enumerate() {
                    source.take(&format!("{old}.residual.{n}.norm.{norm}"), format!("{new}.{to}.{kind}"))?;
                }
                source.take(&format!("{old}.ffn.layer1.{kind}"), format!("{new}.ffn_up.{kind}"))?;
                source.take(&format!("{old}.ffn.layer2.{kind}"), format!("{new}.ffn_down.{kind}"))?;
            }
        }
    }
    for stack in ["src", "trg"] {
        source.skip(&format!("{stack}_pos.pe")); // tables of sines
        source.skip(&format!("{stack}_embed.pe"));
    }
    Ok(Model {
        layers,
        dim,
        vocab,
        heads: [config.either(&["num_heads", "n_heads", "nhead", "heads", "h"])?; 2],
        ffn: [ffn; 2],
        context: config.either(&["max_len", "max_seq_len", "seq_len", "max_position_embeddings"])?,
        norm: "layer_unbiased",
        placement: "pre",
        final_norm: true,
        eps: 1e-6,
        activation: "relu",
        positions: "interleaved",
        scale: (dim as f32).sqrt(),
        start: 2,
        end: 3,
        pad: Some(1),
        tensors: source.finish(),
    })
}
