//! Correct files of other programs: checkpoints, weights and vocabularies.

use std::iter::once;

use arbitrary::Arbitrary;
use arenite_convert::tokenizer_file::sentencepiece::{Normalizer, Piece, SentencePiece, Trainer};
use fuzz::change::Real;
use fuzz::list::List;
use prost::Message;
use serde_json::{Map, Value, json};

use crate::Edits;

/// Damage to a file: bytes to overwrite (position and new value), and the number of bytes to append, or to cut off if
/// negative.
#[derive(Arbitrary, Clone, Debug)]
pub struct Damage {
    bytes: List<(u16, u8), 4>,
    end: Option<i8>,
}

impl Damage {
    pub fn apply(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        for (at, byte) in self.bytes.iter() {
            // Damage near the start is the most interesting.
            let at = if at % 2 == 0 { usize::from(at / 2 % 300) } else { (usize::from(*at) * bytes.len()) >> 16 };
            if let Some(place) = bytes.get_mut(at) {
                *place = *byte;
            }
        }
        let len = bytes.len().saturating_add_signed(self.end.unwrap_or(0).into());
        bytes.resize(len, 0x3c);
        bytes
    }

    pub fn is_none(&self) -> bool {
        self.bytes.is_empty() && self.end.unwrap_or(0) == 0
    }
}

/// A checkpoint of llama2.c.
#[derive(Arbitrary, Debug)]
pub struct Checkpoint {
    version: u8,
    kv_heads: u8,
    heads: u8,
    head_dim: u8,
    hidden: u8,
    layers: u8,
    vocab: u8,
    context: u8,
    tied: bool,
    group: u8,
    weights: List<Real, 8>,
}

impl Checkpoint {
    fn numbers(&self) -> [usize; 7] {
        let pick = |list: &[usize], number: u8| list[usize::from(number) % list.len()];
        let kv_heads = pick(&[1, 2], self.kv_heads);
        let heads = kv_heads * pick(&[1, 2, 3], self.heads);
        let dim = heads * pick(&[2, 4, 8, 16, 32], self.head_dim);
        let hidden = pick(&[4, 32, 33, 64], self.hidden);
        [dim, hidden, pick(&[1, 2], self.layers), heads, kv_heads, self.vocab(), pick(&[1, 8, 32], self.context)]
    }

    pub fn vocab(&self) -> usize {
        3 + usize::from(self.vocab % 40)
    }

    fn group(&self) -> usize {
        [4, 8, 32, 64, 5, 1][usize::from(self.group) % 6]
    }

    /// Number of weights of each matrix, in the order in which the matrices follow the norms.
    fn matrices(&self) -> Vec<usize> {
        let [dim, hidden, layers, heads, kv_heads, vocab, _] = self.numbers();
        let kv = dim / heads * kv_heads;
        let of_layer = [dim * dim, kv * dim, kv * dim, dim * dim, hidden * dim, hidden * dim, hidden * dim];
        let layers = of_layer.into_iter().flat_map(|count| std::iter::repeat_n(count, layers));
        once(vocab * dim).chain(layers).chain((!self.tied).then_some(vocab * dim)).collect()
    }

    /// True if the checkpoint is valid: its weights are whole groups.
    pub fn is_right(&self) -> bool {
        self.version % 3 < 2 || self.matrices().iter().all(|count| count.is_multiple_of(self.group()))
    }

    pub fn bytes(&self) -> Vec<u8> {
        let version = self.version % 3;
        let [dim, _, layers, heads, .., context] = self.numbers();
        let mut numbers = self.numbers().map(|number| number as i32);
        let mut file = vec![];
        if version == 0 {
            numbers[5] *= if self.tied { 1 } else { -1 };
        } else {
            file.extend(0x616b_3432u32.to_le_bytes());
            file.extend(u32::from(version).to_le_bytes());
        }
        file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        if version > 0 {
            file.push(self.tied.into());
            file.extend((self.group() as u32).to_le_bytes());
            file.resize(256, 0);
        }
        let weights: Vec<f32> = self.weights.iter().map(|real| real.get()).chain([0.5]).collect();
        let floats = |count: usize| weights.iter().cycle().take(count).flat_map(|weight| weight.to_le_bytes());
        file.extend(floats((2 * layers + 1) * dim));
        if version == 0 {
            file.extend(floats(context * (dim / heads)));
        }
        for count in self.matrices() {
            match version {
                2 => {
                    file.extend((0..count).map(|n| n as u8));
                    file.extend(floats(count / self.group()));
                }
                _ => file.extend(floats(count)),
            }
        }
        file
    }
}

/// Tokens with scores, which several file formats store.
#[derive(Arbitrary, Clone, Debug)]
pub struct Tokens(List<(String, Real, u8), 20>);

pub const TOKENS: [&str; 12] = ["<unk>", "<s>", "</s>", "<pad>", "▁", "▁he", "l", "lo", "▁hello", "w", "or", "ld"];

impl Tokens {
    /// Returns [`TOKENS`] with valid scores.
    pub fn few() -> Self {
        Self(List(TOKENS.map(|token| (token.to_string(), Real::Whole(-2), 0)).to_vec()))
    }

    /// The bytes of a `tokenizer.bin` for llama2.c.
    pub fn llama2c(&self, count: usize) -> Vec<u8> {
        let mut file = 40u32.to_le_bytes().to_vec();
        let others = (0..).map(|number| (format!("<0x{number:02X}>"), Real::Whole(0), 0));
        for (token, score, _) in self.0.iter().cloned().chain(others).take(count) {
            file.extend(score.get().to_le_bytes());
            file.extend((token.len() as u32).to_le_bytes());
            file.extend(token.as_bytes());
        }
        file
    }

    /// The bytes of a SentencePiece file. The model type is 1 for unigram and 2 for BPE.
    pub fn sentencepiece(&self, model_type: i32) -> Vec<u8> {
        let kind = |number: usize, kind: u8| match number {
            0 => Some(2),
            1..=3 => Some(3),
            _ => (kind > 100).then_some(i32::from(kind % 8)),
        };
        let piece = |(number, (piece, score, of)): (usize, &(String, Real, u8))| Piece {
            piece: piece.clone(),
            score: score.get(),
            kind: kind(number, *of),
        };
        SentencePiece {
            pieces: self.0.iter().enumerate().map(piece).collect(),
            trainer: Some(Trainer { model_type: Some(model_type), ..Trainer::default() }),
            normalizer: Some(Normalizer {
                charsmap: vec![],
                add_dummy_prefix: Some(true),
                remove_extra_whitespaces: None,
                ..Normalizer::default()
            }),
        }
        .encode_to_vec()
    }
}

/// A JSON object that maps each token to its position in the list.
pub fn ids<S: AsRef<str>>(tokens: &[S]) -> Value {
    tokens
        .iter()
        .zip(0..)
        .map(|(token, id)| (token.as_ref().to_string(), Value::from(id)))
        .collect::<Map<_, _>>()
        .into()
}

fn added(tokens: &[(u32, &str, bool)]) -> Value {
    tokens.iter().map(|(id, content, special)| json!({ "id": id, "content": content, "special": special })).collect()
}

/// The `tokenizer.json` of one of four kinds.
pub fn tokenizer(kind: u8) -> Value {
    let special = json!([{ "SpecialToken": { "id": "<s>" } }, { "Sequence": { "id": "A" } }]);
    let template = json!({ "type": "TemplateProcessing", "single": special, "special_tokens": { "<s>": { "id": "<s>", "ids": [1] } } });
    let usual = added(&[(0, "<unk>", true), (1, "<s>", true), (2, "</s>", true), (3, "<pad>", false)]);
    match kind {
        0 => {
            let prints = |b: &u32| (0x21..=0x7e).contains(b) || (0xa1..=0xac).contains(b) || (0xae..=0xff).contains(b);
            let alphabet = (0..256).filter(prints).chain(256..256 + 68).filter_map(char::from_u32).map(String::from);
            let merges = ["h e", "l l", "he ll", "hell o", "Ġ w"];
            let tokens: Vec<_> =
                once("<s>".to_string()).chain(alphabet).chain(merges.map(|merge| merge.replace(' ', ""))).collect();
            let expression = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s";
            json!({
                "added_tokens": added(&[(0, "<s>", true), (270, "<tool>", false)]), "normalizer": null,
                "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
                    { "type": "Split", "pattern": { "Regex": expression }, "behavior": "Isolated", "invert": false },
                    { "type": "ByteLevel", "add_prefix_space": false, "use_regex": false } ] },
                "post_processor": template, "decoder": { "type": "ByteLevel" },
                "model": { "type": "BPE", "ignore_merges": true, "vocab": ids(&tokens), "merges": merges },
            })
        }
        1 => json!({
            "added_tokens": usual, "normalizer": { "type": "Prepend", "prepend": "▁" }, "pre_tokenizer": null, "post_processor": template,
            "model": { "type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "vocab": ids(&TOKENS), "merges": [["l", "o"], "w or"] },
        }),
        2 => json!({
            "added_tokens": usual, "normalizer": { "type": "Replace", "pattern": { "Regex": " {2,}" }, "content": " " },
            "pre_tokenizer": { "type": "Metaspace", "prepend_scheme": "always" }, "post_processor": template,
            "model": { "type": "Unigram", "unk_id": 0, "vocab": TOKENS.map(|token| json!([token, -2.5])) },
        }),
        _ => json!({
            "added_tokens": usual, "normalizer": { "type": "BertNormalizer", "lowercase": true },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "post_processor": { "type": "BertProcessing", "cls": ["<s>", 1], "sep": ["</s>", 2] },
            "model": { "type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "vocab": ids(&["a", "##b", "[UNK]"]) },
        }),
    }
}

pub fn tokenizer_config() -> Value {
    json!({ "bos_token": "<s>", "eos_token": { "content": "</s>" }, "add_bos_token": true, "chat_template": "{{ messages }}" })
}

/// The vocabulary of the English-Hindi model.
pub fn english_hindi() -> Value {
    json!({
        "added_tokens": added(&[(0, "<unk>", true), (1, "<s>", true), (2, "</s>", true), (3, "<pad>", true)]),
        "normalizer": null, "pre_tokenizer": { "type": "Whitespace" },
        "model": { "type": "BPE", "unk_token": "<unk>", "continuing_subword_prefix": "##", "vocab": ids(&TOKENS), "merges": [] },
    })
}

/// Families of encoder-decoders.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Families {
    Marian,
    Torch { pre: bool },
    EnglishHindi,
}

const DIM: usize = 4;
const HIDDEN: usize = 6;

impl Families {
    /// A `config.json` with the fields of all families.
    pub fn config(self) -> Value {
        json!({
            "model_type": if matches!(self, Self::Marian) { "marian" } else { "other" },
            "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": HIDDEN, "decoder_ffn_dim": HIDDEN,
            "max_position_embeddings": 16, "activation_function": "swish", "scale_embedding": true, "decoder_start_token_id": 3,
            "eos_token_id": 2, "pad_token_id": 3, "bos_token_id": 1, "tie_word_embeddings": true,
            "norm_first": matches!(self, Self::Torch { pre: true }), "positional": "sinusoidal, interleaved", "nhead": 2,
            "dim_feedforward": HIDDEN, "layer_norm_eps": 1e-5, "activation": "relu", "num_heads": 2, "max_len": 16,
            "general": { "license": "none" },
        })
    }

    /// Names and shapes of the family's tensors.
    fn tensors(self) -> Vec<(String, Vec<usize>)> {
        let mut all = vec![];
        let mut put = |name: String, shape: &[usize]| all.push((name, shape.to_vec()));
        let (embeddings, bias): (&[&str], _) = match self {
            Self::Marian => (&["model.shared"], "final_logits_bias"),
            Self::Torch { .. } => (&["tgt_embed", "src_embed", "out"], "out.bias"),
            Self::EnglishHindi => {
                (&["trg_embed.embed", "src_embed.embed", "output_layer.proj"], "output_layer.proj.bias")
            }
        };
        embeddings.iter().for_each(|name| put(format!("{name}.weight"), &[TOKENS.len(), DIM]));
        put(bias.into(), &[TOKENS.len()]);
        for (stack, attentions) in [("encoder", 1), ("decoder", 2)] {
            let (layer, norm, [weight, shift], names, [up, down]) = match self {
                Self::Marian => (
                    format!("model.{stack}.layers.0"),
                    None,
                    ["weight", "bias"],
                    ["self_attn", "encoder_attn"],
                    ["fc1", "fc2"],
                ),
                Self::Torch { .. } => (
                    format!("transformer.{stack}.layers.0"),
                    Some(format!("transformer.{stack}.norm")),
                    ["weight", "bias"],
                    ["self_attn", "multihead_attn"],
                    ["linear1", "linear2"],
                ),
                Self::EnglishHindi => (
                    format!("{stack}.layers.0"),
                    Some(format!("{stack}.norm")),
                    ["gamma", "beta"],
                    [if attentions == 1 { "attention" } else { "self_attention" }, "cross_attention"],
                    ["ffn.layer1", "ffn.layer2"],
                ),
            };
            let mut linears = vec![(up.to_string(), HIDDEN, DIM), (down.to_string(), DIM, HIDDEN)];
            let mut norms: Vec<String> = norm.into_iter().collect();
            for (number, name) in names.iter().take(attentions).enumerate() {
                let parts: &[&str] = match self {
                    Self::Marian => &["q_proj", "k_proj", "v_proj", "out_proj"],
                    Self::Torch { .. } => &["out_proj"],
                    Self::EnglishHindi => &["w_q", "w_k", "w_v", "w_o"],
                };
                linears.extend(parts.iter().map(|part| (format!("{name}.{part}"), DIM, DIM)));
                match self {
                    Self::Marian => norms.push(format!("{layer}.{name}_layer_norm")),
                    Self::Torch { .. } => {
                        put(format!("{layer}.{name}.in_proj_weight"), &[3 * DIM, DIM]);
                        put(format!("{layer}.{name}.in_proj_bias"), &[3 * DIM]);
                        norms.push(format!("{layer}.norm{}", number + 1));
                    }
                    Self::EnglishHindi => norms.push(format!("{layer}.residual.{number}.norm")),
                }
            }
            norms.push(match self {
                Self::Marian => format!("{layer}.final_layer_norm"),
                Self::Torch { .. } => format!("{layer}.norm{}", attentions + 1),
                Self::EnglishHindi => format!("{layer}.residual.{attentions}.norm"),
            });
            for (name, rows, columns) in linears {
                put(format!("{layer}.{name}.weight"), &[rows, columns]);
                put(format!("{layer}.{name}.bias"), &[rows]);
            }
            for name in norms {
                put(format!("{name}.{weight}"), &[DIM]);
                put(format!("{name}.{shift}"), &[DIM]);
            }
        }
        all
    }

    /// `model.safetensors`, with changes to its header.
    pub fn safetensors(self, edits: &Edits) -> Vec<u8> {
        let (mut header, mut data) = (Map::new(), vec![]);
        for (name, shape) in self.tensors() {
            let start = data.len();
            let count: usize = shape.iter().product();
            data.extend((0..count).flat_map(|n| (n as f32 / 8.0).to_le_bytes()));
            header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] }));
        }
        let header = edits.bytes(header.into());
        [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
    }
}
