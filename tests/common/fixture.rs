//! Reads reference cases: `ref.json` and the arrays in the same directory.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::fixtures::skip;
use super::gguf::Builder;

/// A directory with a model and its reference values.
pub struct Case {
    pub name: String,
    dir: PathBuf,
    json: Value,
}

/// Hugging Face's results for one prompt.
pub struct Prompt {
    pub text: String,
    pub ids: Vec<u32>,
    pub greedy: Vec<u32>,
    positions: Vec<usize>,
    logits: Vec<f32>,
}

/// Logits of a prompt's last position, for a quantized file.
pub struct Quant {
    pub llama_cpp: Vec<f32>,
    /// Logits computed with f32 arithmetic from the stored weights.
    pub exact: Vec<f32>,
}

/// The decoder cases.
pub const DECODERS: &[&str] = &[
    "llama_mha",
    "llama_gqa",
    "llama_rope3",
    "llama_linear",
    "llama_yarn",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3moe",
    "gpt2",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma4_dense",
    "gemma4_e2b",
    "phi3",
    "phi3_longrope",
    "stablelm",
    "smollm3",
    "olmo2",
    "granite",
    "ernie4_5",
    "exaone4",
    "hunyuan_dense",
    "mistral3",
    "gpt_oss",
    "lfm2",
    "qwen35",
    "granitehybrid",
    "falcon_h1",
    "mamba2",
    "lfm2moe",
    "qwen35moe",
    "qwen3next",
    "granitemoehybrid",
    "nemotron_h",
    "nemotron_h_dense",
    "phi4_mini",
    "llama_fused_qkv",
    "llama_yarn_factor",
    "qwen2_fused_qkv",
    "qwen3moe_fused_qkv",
    "qwen35moe_fused",
    "gemma4_moe",
    "olmo3",
    "olmo3_yarn",
    "glm4",
    "seed_oss",
    "exaone",
    "arcee",
    "apertus",
    "bitnet",
    "phi2",
    "gptneox",
    "falcon",
    "falcon_40b",
    "starcoder",
    "starcoder2",
    "nemotron",
    "bloom",
    "mpt",
    "olmo",
    "command_r",
    "command_r_qknorm",
    "cohere2",
    "stablelm_parallel",
    "stablelm_qknorm",
    "qwen2vl",
    "qwen3vl",
    "qwen3vlmoe",
    "granite4_dense",
    "granitemoe",
    "granitemoe_shared",
    "granite4_moe",
    "olmoe",
    "qwen2moe",
    "ernie4_5_moe",
    "dots1",
    "glm4_moe",
    "hunyuan_moe",
    "minimax_m2",
    "afmoe",
    "phimoe",
    "smallthinker",
    "llama4",
    "mamba",
    "falcon_mamba",
    "jamba",
    "deepseek2_lite",
    "deepseek2_q",
    "deepseek3",
    "glm4_moe_lite",
    "rwkv7",
    "gemma3n",
    "gpt_oss_yarn",
    "olmo3_small",
    "granite4_small",
];

/// Directories of cases: the repository's small cases, its other cases, and the larger set that `ARENITE_FIXTURES` names.
pub fn roots() -> Vec<PathBuf> {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let more = std::env::var_os("ARENITE_FIXTURES").map(PathBuf::from);
    [committed.join("small"), committed].into_iter().chain(more).collect()
}

impl Case {
    /// Returns the cases of this name that have the model `file`: a small one, and a larger one with `ARENITE_FIXTURES`.
    /// Prints SKIP if there is none, as in the published crate, which does not contain the small cases.
    pub fn all(name: &str, file: &str) -> Vec<Self> {
        let mut cases = vec![];
        for dir in roots().iter().map(|root| root.join(name)) {
            if let (true, Ok(text)) = (dir.join(file).exists(), fs::read_to_string(dir.join("ref.json"))) {
                let json = serde_json::from_str(&text).expect("ref.json");
                cases.push(Self { name: name.into(), dir, json });
            }
        }
        if cases.is_empty() {
            skip(&format!("{name}/{file}"));
        }
        cases
    }

    /// Returns the first case of [`all`](Self::all).
    pub fn find(name: &str, file: &str) -> Option<Self> {
        Self::all(name, file).into_iter().next()
    }

    /// Reads a file of the case. The matrices of a small case's model, which were stored in a smaller type without loss,
    /// are decoded to F32.
    pub fn file(&self, name: &str) -> Vec<u8> {
        let bytes = fs::read(self.dir.join(name)).unwrap_or_else(|e| panic!("{}/{name}: {e}", self.name));
        let is_small = self.dir.parent().is_some_and(|root| root.ends_with("small"));
        if is_small && name == "model.gguf" { Builder::read(&bytes).widen().build() } else { bytes }
    }

    pub fn json(&self) -> &Value {
        &self.json
    }

    pub fn prompts(&self) -> Vec<Prompt> {
        let prompts = self.json["prompts"].as_array().expect("prompts").iter();
        prompts
            .map(|p| Prompt {
                text: p["text"].as_str().unwrap_or_default().into(),
                ids: numbers(&p["ids"]),
                greedy: numbers(&p["greedy"]),
                positions: numbers(&p["logits"]["positions"]).into_iter().map(|p| p as usize).collect(),
                logits: if p["logits"].is_null() { vec![] } else { self.array(&p["logits"]) },
            })
            .collect()
    }

    pub fn quant(&self, kind: &str) -> Vec<Quant> {
        let prompts = self.json["quant"][kind]["prompts"].as_array().expect("quant prompts").iter();
        prompts
            .map(|p| Quant {
                llama_cpp: self.array(&p["lcpp_logits_last"]),
                exact: self.array(&p["dequant_logits_last"]),
            })
            .collect()
    }

    /// Reads the array described by `{file, offset, shape}`.
    pub fn array(&self, at: &Value) -> Vec<f32> {
        let bytes = self.file(at["file"].as_str().expect("file"));
        let offset = at["offset"].as_u64().expect("offset") as usize;
        let len: u64 = at["shape"].as_array().expect("shape").iter().map(|n| n.as_u64().unwrap()).product();
        let bytes = &bytes[offset..offset + len as usize * 4];
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

impl Prompt {
    /// The checked positions and their logits.
    pub fn positions(&self) -> impl Iterator<Item = (usize, Vec<f32>)> + '_ {
        let vocab = self.logits.len() / self.positions.len();
        self.positions.iter().copied().zip(self.logits.chunks(vocab).map(<[f32]>::to_vec))
    }
}

/// Reads a JSON list of whole numbers.
pub fn numbers(list: &Value) -> Vec<u32> {
    list.as_array().map_or(vec![], |list| list.iter().map(|n| n.as_u64().unwrap() as u32).collect())
}

/// `|got - want| / |want|` in the Euclidean norm.
pub fn relative_error(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut got.iter().zip(want).map(|(g, w)| f64::from(*g) - f64::from(*w)));
    difference / norm(&mut want.iter().map(|w| f64::from(*w)))
}
