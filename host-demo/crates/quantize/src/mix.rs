//! File types such as Q4_K_M, and the type that each tensor gets in such a file.
//!
//! The rules and their order are the same as in llama.cpp (`llama-quant.cpp`): tensors that keep their type, tensors
//! that get more bits in a mix, and substitutes for rows that are not whole blocks.

use anyhow::{Context, Result, bail};
use arenite::gguf::{Gguf, Value};
use arenite::quant::TensorType;
use regex_lite::Regex;

use super::pruned::Pruned;

macro_rules! mixes {
    ($($mix:ident = $number:literal: $kind:ident),* $(,)?) => {
        /// The type of a whole file. It has the name of the type that most of the file's tensors have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types)] // llama.cpp's names
        pub enum Mix { $($mix),* }

        impl Mix {
            const ALL: &[Self] = &[$(Self::$mix),*];

            /// The value of `general.file_type`.
            pub fn number(self) -> u32 {
                match self { $(Self::$mix => $number),* }
            }

            /// The default type of the file's tensors.
            pub fn kind(self) -> TensorType {
                match self { $(Self::$mix => TensorType::$kind),* }
            }
        }
    };
}
mixes! {
    F32 = 0: F32, F16 = 1: F16, BF16 = 32: BF16,
    Q8_0 = 7: Q8_0, Q4_0 = 2: Q4_0, Q4_1 = 3: Q4_1, Q5_0 = 8: Q5_0, Q5_1 = 9: Q5_1,
    Q2_K = 10: Q2_K, Q2_K_S = 21: Q2_K, Q3_K_S = 11: Q3_K, Q3_K_M = 12: Q3_K, Q3_K_L = 13: Q3_K,
    Q4_K_S = 14: Q4_K, Q4_K_M = 15: Q4_K, Q5_K_S = 16: Q5_K, Q5_K_M = 17: Q5_K, Q6_K = 18: Q6_K,
    IQ4_NL = 25: IQ4_NL, IQ4_XS = 30: IQ4_XS,
    IQ3_XXS = 23: IQ3_XXS, IQ3_XS = 22: IQ3_S, IQ3_S = 26: IQ3_S, IQ3_M = 27: IQ3_S,
    IQ2_XXS = 19: IQ2_XXS, IQ2_XS = 20: IQ2_XS, IQ2_S = 28: IQ2_XS, IQ2_M = 29: IQ2_S,
    IQ1_S = 24: IQ1_S, IQ1_M = 31: IQ1_M,
    TQ1_0 = 36: TQ1_0, TQ2_0 = 37: TQ2_0, MXFP4_MOE = 38: MXFP4, Q1_0 = 40: Q1_0, Q2_0 = 41: Q2_0,
}

impl std::str::FromStr for Mix {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        // Like llama-quantize, also accept the number that `general.file_type` has for a file type.
        let by_number = || Self::ALL.iter().copied().find(|mix| name.parse() == Ok(mix.number()));
        let known = match name.to_ascii_uppercase().as_str() {
            "Q3_K" => Some(Self::Q3_K_M),
            "Q4_K" => Some(Self::Q4_K_M),
            "Q5_K" => Some(Self::Q5_K_M),
            "MXFP4" => Some(Self::MXFP4_MOE),
            name => Self::ALL.iter().copied().find(|mix| format!("{mix:?}") == name).or_else(by_number),
        };
        known.ok_or_else(|| format!("unknown type; give one of {}", list(Self::ALL)))
    }
}

fn list(all: &[impl std::fmt::Debug]) -> String {
    all.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ")
}

/// Types that a single tensor can have.
const KINDS: [TensorType; 28] = {
    use TensorType::*;
    [
        F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, IQ3_XXS, IQ3_S,
        IQ2_XXS, IQ2_XS, IQ2_S, IQ1_S, IQ1_M, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0,
    ]
};

/// Types that only suit models that were trained for them. The quantizer never substitutes them for another type.
const TRAINED: [TensorType; 5] = {
    use TensorType::*;
    [TQ1_0, TQ2_0, Q1_0, Q2_0, MXFP4]
};

/// Parses the name of a tensor type, in upper or lower case.
pub fn kind(name: &str) -> Result<TensorType, String> {
    let upper = name.to_ascii_uppercase();
    let found = KINDS.into_iter().find(|kind| format!("{kind:?}") == upper);
    found.ok_or_else(|| format!("`{name}` is not a tensor type; give one of {}", list(&KINDS)))
}

/// `NAME=TYPE`: overrides the type of tensors whose name matches the regular expression NAME.
#[derive(Clone, Debug)]
pub struct Override {
    name: Regex,
    kind: TensorType,
}

impl std::str::FromStr for Override {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, type_name) = text.rsplit_once('=').ok_or("give NAME=TYPE, such as ffn_down=q6_k")?;
        if name.is_empty() {
            return Err("the name before `=` is missing".to_owned());
        }
        let name = Regex::new(&name.to_ascii_lowercase()).map_err(|error| error.to_string())?;
        Ok(Self { name, kind: kind(type_name)? })
    }
}

impl Override {
    /// True if the rule is for this tensor.
    pub fn matches(&self, tensor: &str) -> bool {
        self.name.is_match(tensor)
    }

    /// The regular expression.
    pub fn pattern(&self) -> &str {
        self.name.as_str()
    }
}

/// The user's choices for single tensors.
#[derive(Clone, Debug, Default)]
pub struct TypeOptions {
    pub overrides: Vec<Override>,
    pub output: Option<TensorType>,
    pub embedding: Option<TensorType>,
    /// The output matrix keeps its type.
    pub keep_output: bool,
    /// True if every tensor gets the main type of the file. Otherwise some tensors get types with more or fewer bits.
    pub pure: bool,
    /// All tensors keep their types.
    pub copy: bool,
    /// Layers that the new file leaves out.
    pub pruned: Pruned,
    /// The types for which a processor has fast kernels; `None` if all types have them. Any other type is replaced by
    /// one of these types, with at least as many bits if possible.
    pub kernels: Option<Vec<TensorType>>,
    /// True if no file is written because only the sizes are wanted. Then a missing importance matrix is not an error.
    pub is_dry: bool,
}

/// Properties of a tensor that decide its type.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    pub name: &'a str,
    pub dims: [u64; 4],
    pub kind: TensorType,
}

/// The purpose of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Output,
    Embedding,
    /// Values, alone or in one matrix with keys and queries.
    Values,
    Keys,
    Queries,
    AttentionOutput,
    Up,
    Gate,
    Down,
    Other,
}

impl Role {
    fn of(name: &str) -> Self {
        const PARTS: [(&str, Role); 9] = [
            ("attn_qkv.weight", Role::Values),
            ("attn_kv_b.weight", Role::Values),
            ("attn_v.weight", Role::Values),
            ("attn_k.weight", Role::Keys),
            ("attn_q.weight", Role::Queries),
            ("attn_output.weight", Role::AttentionOutput),
            ("ffn_up", Role::Up),
            ("ffn_gate", Role::Gate),
            ("ffn_down", Role::Down),
        ];
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Self::Embedding,
            _ => PARTS.iter().find(|(part, _)| name.contains(part)).map_or(Self::Other, |(_, role)| *role),
        }
    }
}

/// Substrings of the names of tensors that keep their type: norms, routers, positions and other small tensors.
const KEPT: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// True for matrices of weights, whose type may change.
pub fn may_change(tensor: &Shape<'_>) -> bool {
    tensor.dims.iter().skip(1).any(|&n| n > 1)
        && tensor.name.ends_with("weight")
        && !matches!(tensor.name, "position_embd.weight" | "token_types.weight")
        && !KEPT.iter().any(|part| tensor.name.contains(part))
}

/// Metadata that the types depend on.
pub struct Facts<'m> {
    pub architecture: &'m str,
    pub heads: u32,
    pub key_heads: u32,
    pub layers: u32,
    pub experts: u32,
}

/// Chooses types for the tensors of a model, in order. Keeps the properties of the model, and counts of the tensors
/// seen so far.
pub struct Chooser<'a> {
    mix: Mix,
    options: &'a TypeOptions,
    has_importance: bool,
    architecture: String,
    layers: usize,
    experts: u32,
    /// Number of query heads that share a key head.
    sharing: u32,
    is_70b: bool,
    tied: bool,
    values: usize,
    /// The type that was chosen for the last tensor. The tensor may have another type now, because its rows did not
    /// consist of whole blocks of the chosen type.
    pub wanted: TensorType,
    // Tensors of each role seen so far.
    values_seen: usize,
    down_seen: usize,
    gate_seen: usize,
    up_seen: usize,
}

impl<'a> Chooser<'a> {
    pub fn new(gguf: &Gguf<'_>, mix: Mix, options: &'a TypeOptions, has_importance: bool) -> Result<Self> {
        let architecture = gguf.architecture()?;
        // Returns the value of a key. If the value is a list with one number per layer, returns the first number.
        let number = |key: &str| match gguf.get2(architecture, key) {
            Some(Value::Array(all)) => Ok(all.get_i32(0).and_then(|n| u32::try_from(n).ok())),
            _ => gguf.u32(architecture, key),
        };
        let heads = number("attention.head_count")?.unwrap_or(0);
        let facts = Facts {
            architecture,
            heads,
            key_heads: number("attention.head_count_kv")?.unwrap_or(heads),
            layers: number("block_count")?.unwrap_or(0),
            experts: number("expert_count")?.unwrap_or(0),
        };
        let names: Vec<String> = gguf.tensors().filter_map(|tensor| options.pruned.name(tensor.name)).collect();
        Ok(Self::of(&facts, names.iter().map(String::as_str), mix, options, has_importance))
    }

    /// Creates a chooser for a model with these `facts` and tensor names.
    pub fn of<'n>(
        facts: &Facts<'_>,
        names: impl Iterator<Item = &'n str>,
        mix: Mix,
        options: &'a TypeOptions,
        has_importance: bool,
    ) -> Self {
        let &Facts { architecture, heads, key_heads, layers, experts } = facts;
        let layers = layers as usize;
        let (mut values, mut tied) = (0, true);
        for name in names {
            values += usize::from(Role::of(name) == Role::Values);
            tied &= name != "output.weight";
        }
        Self {
            mix,
            options,
            has_importance,
            layers,
            experts,
            sharing: heads.checked_div(key_heads).unwrap_or(0),
            is_70b: match architecture {
                "llama" => layers == 80 && heads != key_heads,
                "qwen2" | "deci" | "olmo" => layers == 80,
                "jais2" => layers == 68,
                _ => false,
            },
            tied,
            values,
            architecture: architecture.to_owned(),
            wanted: mix.kind(),
            values_seen: 0,
            down_seen: 0,
            gate_seen: 0,
            up_seen: 0,
        }
    }

    /// Chooses the type of the next tensor. Tensors must come in the order of [`order`].
    pub fn choose(&mut self, tensor: &Shape<'_>) -> Result<TensorType> {
        let role = Role::of(tensor.name);
        self.wanted = tensor.kind;
        if self.options.copy || !may_change(tensor) || self.options.keep_output && role == Role::Output {
            return Ok(tensor.kind);
        }
        let override_kind = self.options.overrides.iter().find(|rule| rule.matches(tensor.name)).map(|rule| rule.kind);
        if let Some(kind) = self.options.embedding
            && role == Role::Embedding
            && (tensor.name == "token_embd.weight" || override_kind.is_none())
        {
            self.wanted = kind;
            return Ok(kind);
        }
        if let Some(kind) = self.options.output
            && role == Role::Output
        {
            self.wanted = kind;
            return Ok(kind);
        }
        let kind = self.mix.kind();
        self.wanted = self.with_kernel(kind, tensor);
        if matches!(kind, TensorType::F32 | TensorType::F16 | TensorType::BF16) {
            return Ok(self.wanted);
        }
        let kind = match override_kind {
            Some(kind) => kind,
            None if self.options.pure => self.with_kernel(kind, tensor),
            None => {
                let mixed = self.mixed(kind, tensor, role)?;
                self.with_kernel(mixed, tensor)
            }
        };
        self.wanted = kind;
        fitting(kind, tensor)
    }

    /// Replaces a type that has no kernel by a type that has one and fits rows of this length. This is the smallest
    /// type that is at least as large, or else the largest type that is smaller.
    fn with_kernel(&self, kind: TensorType, tensor: &Shape<'_>) -> TensorType {
        let Some(kernels) = &self.options.kernels else { return kind };
        let divides = |kind: &TensorType| tensor.dims[0].is_multiple_of(kind.block().0 as u64);
        if kernels.contains(&kind) && divides(&kind) {
            return kind;
        }
        let is_written = |kind: &&TensorType| {
            KINDS.contains(kind) && !TRAINED.contains(kind) && !super::encode::needs_importance(**kind) && divides(kind)
        };
        let bits = |kind: &TensorType| kind.block().1 as f64 / kind.block().0 as f64;
        // Of two types with the same number of bits, the one with larger blocks is preferred, because it is more
        // accurate.
        let by_bits =
            |a: &&TensorType, b: &&TensorType| bits(a).total_cmp(&bits(b)).then(b.block().0.cmp(&a.block().0));
        let (larger, smaller): (Vec<_>, Vec<_>) =
            kernels.iter().filter(is_written).partition(|other| bits(other) >= bits(&kind));
        larger.into_iter().min_by(by_bits).or(smaller.into_iter().max_by(by_bits)).copied().unwrap_or(kind)
    }

    /// The type of a tensor according to the mix.
    fn mixed(&mut self, kind: TensorType, tensor: &Shape<'_>, role: Role) -> Result<TensorType> {
        use TensorType as T;
        if role == Role::Output || self.tied && role == Role::Embedding {
            return Ok(self.output(kind, tensor));
        }
        if self.mix == Mix::MXFP4_MOE {
            return Ok(if tensor.dims[2] > 1 { T::MXFP4 } else { T::Q8_0 });
        }
        if role == Role::Embedding {
            return Ok(match self.mix {
                Mix::IQ2_XXS | Mix::IQ2_XS | Mix::IQ1_S | Mix::IQ1_M => T::Q2_K,
                Mix::IQ2_S | Mix::IQ2_M | Mix::IQ3_XXS => T::IQ3_S,
                Mix::TQ1_0 | Mix::TQ2_0 | Mix::Q2_0 => T::Q4_K,
                _ => kind,
            });
        }
        Ok(match (self.is_below_three_bits(), role) {
            (true, _) => self.below_three_bits(kind, role),
            (_, Role::Values) => self.value(kind),
            (_, Role::Keys | Role::Queries) => self.key_or_query(kind, role),
            (_, Role::Down) => self.down(kind, tensor.name)?,
            (_, Role::AttentionOutput) => self.attention_output(kind),
            (_, Role::Gate | Role::Up) => self.inner(kind, role, tensor.name)?,
            _ => kind,
        })
    }

    fn output(&self, kind: TensorType, tensor: &Shape<'_>) -> TensorType {
        use TensorType as T;
        if let Some(kind) = self.options.output {
            return kind;
        }
        let whole = tensor.dims[0].is_multiple_of(kind.block().0 as u64);
        match self.mix {
            Mix::MXFP4_MOE => T::Q8_0,
            _ if self.architecture == "falcon" || !whole => T::Q8_0,
            Mix::IQ3_XXS => T::Q5_K,
            _ if self.is_below_three_bits() => T::Q5_K,
            Mix::Q8_0 => T::Q8_0,
            _ => T::Q6_K,
        }
    }

    fn is_below_three_bits(&self) -> bool {
        matches!(self.mix, Mix::IQ2_XXS | Mix::IQ2_XS | Mix::IQ2_S | Mix::IQ2_M | Mix::IQ1_S | Mix::IQ1_M)
    }

    fn below_three_bits(&mut self, kind: TensorType, role: Role) -> TensorType {
        use TensorType as T;
        let larger = matches!(self.mix, Mix::IQ2_S | Mix::IQ2_M);
        let more = if larger { T::IQ3_S } else { T::Q2_K };
        match role {
            Role::Values if self.sharing >= 4 || self.experts >= 4 => T::Q4_K,
            Role::Values => more,
            Role::Keys if self.experts == 8 => T::Q4_K,
            Role::Down => {
                self.down_seen += 1;
                if self.down_seen <= self.layers / 8 { more } else { kind }
            }
            Role::AttentionOutput => match self.mix {
                _ if self.experts == 8 => T::Q5_K,
                Mix::IQ1_S | Mix::IQ1_M => T::IQ2_XXS,
                _ if larger => T::IQ3_S,
                _ => kind,
            },
            _ => kind,
        }
    }

    fn value(&mut self, kind: TensorType) -> TensorType {
        use TensorType as T;
        let i = self.values_seen;
        self.values_seen += 1;
        let shared = self.sharing >= 4;
        let kind = match self.mix {
            Mix::Q2_K => {
                if shared {
                    T::Q4_K
                } else {
                    T::Q3_K
                }
            }
            Mix::Q2_K_S | Mix::IQ3_XXS | Mix::IQ3_XS | Mix::IQ3_S if shared => T::Q4_K,
            Mix::IQ3_XXS if !self.has_importance => T::IQ3_S,
            Mix::IQ3_M => T::Q4_K,
            Mix::Q3_K_M => {
                if i < 2 {
                    T::Q5_K
                } else {
                    T::Q4_K
                }
            }
            Mix::Q3_K_L => T::Q5_K,
            Mix::IQ4_NL | Mix::IQ4_XS if shared => T::Q5_K,
            Mix::Q4_K_M | Mix::Q5_K_M if more_bits(i, self.values) => T::Q6_K,
            Mix::Q4_K_S if i < 4 => T::Q5_K,
            _ => kind,
        };
        match kind {
            _ if self.experts == 8 => T::Q8_0,
            T::Q3_K | T::Q4_K if self.is_70b => T::Q5_K,
            _ => kind,
        }
    }

    fn key_or_query(&self, kind: TensorType, role: Role) -> TensorType {
        match self.mix {
            _ if role == Role::Keys && self.experts == 8 => TensorType::Q8_0,
            Mix::IQ3_XS => TensorType::IQ3_XXS,
            Mix::IQ3_XXS => TensorType::IQ2_S,
            _ => kind,
        }
    }

    fn down(&mut self, kind: TensorType, name: &str) -> Result<TensorType> {
        use TensorType as T;
        let n = self.layers;
        let i = layer(&mut self.down_seen, n, self.experts, name)?;
        let (first, falcon) = (i < n / 8, self.architecture == "falcon");
        Ok(match self.mix {
            Mix::Q2_K => T::Q3_K,
            Mix::Q2_K_S if first => T::Q4_K,
            Mix::IQ3_XXS if !self.has_importance => {
                if first {
                    T::Q4_K
                } else {
                    T::Q3_K
                }
            }
            Mix::Q3_K_M if i < n / 16 => T::Q5_K,
            Mix::Q3_K_M if !falcon || more_bits(i, n) => T::Q4_K,
            Mix::IQ3_M if first || self.experts == 8 && more_bits(i, n) => T::Q4_K,
            Mix::Q3_K_L => {
                if falcon {
                    T::Q4_K
                } else {
                    T::Q5_K
                }
            }
            Mix::Q4_K_M if falcon && i >= n / 16 => {
                if more_bits(i, n) {
                    T::Q5_K
                } else {
                    T::Q4_K
                }
            }
            Mix::Q4_K_M if falcon || more_bits(i, n) => T::Q6_K,
            Mix::IQ4_NL | Mix::IQ4_XS if first && !self.has_importance => T::Q5_K,
            Mix::Q5_K_M if more_bits(i, n) => T::Q6_K,
            Mix::Q4_K_S if !falcon && first => T::Q5_K,
            Mix::Q4_0 if self.has_importance && first => T::Q4_1,
            Mix::Q5_0 if self.has_importance && first => T::Q5_1,
            _ => kind,
        })
    }

    fn attention_output(&self, kind: TensorType) -> TensorType {
        use TensorType as T;
        match self.mix {
            Mix::Q3_K_L if self.architecture == "falcon" => T::Q4_K,
            _ if self.architecture == "falcon" => kind,
            Mix::Q2_K
            | Mix::IQ3_XS
            | Mix::IQ3_XXS
            | Mix::Q3_K_S
            | Mix::Q3_K_M
            | Mix::IQ4_NL
            | Mix::Q4_K_S
            | Mix::Q4_K_M
            | Mix::IQ3_S
            | Mix::IQ3_M
            | Mix::IQ4_XS
                if self.experts == 8 =>
            {
                T::Q5_K
            }
            _ if self.experts == 8 => kind,
            Mix::Q2_K => T::Q3_K,
            Mix::IQ3_XXS => T::IQ3_S,
            Mix::Q3_K_M | Mix::IQ3_M => T::Q4_K,
            Mix::Q3_K_L => T::Q5_K,
            _ => kind,
        }
    }

    /// The type of a gate or up matrix of a feed-forward layer.
    fn inner(&mut self, kind: TensorType, role: Role, name: &str) -> Result<TensorType> {
        let seen = if role == Role::Gate { &mut self.gate_seen } else { &mut self.up_seen };
        let i = layer(seen, self.layers, self.experts, name)?;
        let is_middle = i >= self.layers / 8 && i < 7 * self.layers / 8;
        Ok(if self.mix == Mix::IQ3_XS && is_middle { TensorType::IQ3_XXS } else { kind })
    }
}

/// Returns the index of the layer to which a feed-forward tensor belongs. In models with experts, it is the number in
/// the tensor's name; in all others, it is the number of such tensors before this one.
fn layer(seen: &mut usize, layers: usize, experts: u32, name: &str) -> Result<usize> {
    let count = *seen;
    *seen += 1;
    if experts <= 1 {
        return Ok(count);
    }
    let number = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
    let number: usize = number.with_context(|| format!("the name of the tensor {name} has no layer number"))?;
    if number >= layers {
        bail!("the tensor {name} is outside of the model's {layers} layers");
    }
    Ok(number)
}

/// Returns true if a layer gets more bits: the first eighth and the last eighth of the layers, and every third layer
/// between them.
fn more_bits(i: usize, layers: usize) -> bool {
    i < layers / 8 || i >= 7 * layers / 8 || (i - layers / 8) % 3 == 2
}

/// Returns `kind`, or another type in its place if the tensor's rows do not consist of whole blocks of `kind`.
fn fitting(kind: TensorType, tensor: &Shape<'_>) -> Result<TensorType> {
    use TensorType as T;
    let (name, columns) = (tensor.name, tensor.dims[0]);
    let fits = |kind: TensorType| columns.is_multiple_of(kind.block().0 as u64);
    if fits(kind) {
        return Ok(kind);
    }
    let smaller = match kind {
        T::IQ1_S | T::IQ1_M | T::IQ2_XXS | T::IQ2_XS | T::IQ2_S | T::IQ3_XXS | T::IQ3_S | T::IQ4_XS => T::IQ4_NL,
        T::Q2_K | T::Q3_K | T::TQ1_0 | T::TQ2_0 | T::Q2_0 => T::Q4_0,
        T::Q4_K => T::Q5_0,
        T::Q5_K => T::Q5_1,
        T::Q6_K => T::Q8_0,
        T::Q1_0 | T::NVFP4 => bail!(
            "rows of {columns} in {name} are not whole blocks of {kind:?}, which has no substitute: give another type, \
             or one for this tensor by --tensor-type"
        ),
        _ => T::F16,
    };
    Ok(if fits(smaller) { smaller } else { T::F16 })
}

/// Returns the smallest type with small blocks that has at least as many bits as `kind` and whose blocks divide rows of
/// `columns` elements. Returns F16 if there is no such type.
pub fn alternative(kind: TensorType, columns: u64) -> TensorType {
    use TensorType as T;
    let bits = |kind: TensorType| kind.block().1 as f64 / kind.block().0 as f64;
    let fits = |other: &T| columns.is_multiple_of(other.block().0 as u64) && bits(*other) >= bits(kind);
    [T::IQ4_NL, T::Q5_0, T::Q8_0].into_iter().find(fits).unwrap_or(T::F16)
}

impl Mix {
    /// The file type whose tensors have mostly this type.
    pub fn of(kind: TensorType) -> Self {
        Self::ALL.iter().copied().find(|mix| mix.kind() == kind).unwrap_or(Self::F32)
    }

    /// Returns true if this mix needs an importance matrix, as in llama-quantize.
    pub fn wants_importance(self) -> bool {
        matches!(self, Self::IQ1_S | Self::IQ1_M | Self::IQ2_XXS | Self::IQ2_XS | Self::IQ2_S | Self::Q2_K_S)
    }
}

/// Returns true if a tensor of this name and type requires an importance matrix.
pub fn needs_importance(name: &str, kind: TensorType, mix: Mix) -> bool {
    use TensorType as T;
    if matches!(Role::of(name), Role::Embedding | Role::Output) {
        return super::encode::needs_importance(kind);
    }
    match kind {
        T::IQ3_XXS | T::IQ2_XXS | T::IQ2_XS | T::IQ2_S | T::IQ1_M | T::IQ1_S => true,
        T::Q2_K => mix == Mix::Q2_K_S,
        _ => false,
    }
}

/// Returns the key by which tensors are sorted: first those outside of layers, by name, then those of layers, by the
/// layer's number and the name.
pub fn order(name: &str) -> (i64, &str) {
    let number = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')?.0.parse().ok());
    (number.unwrap_or(-1), name)
}
