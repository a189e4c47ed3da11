//! Estimates the flash size of a microcontroller program, without the model.

use std::collections::BTreeSet;

use arenite::{Gguf, KvType, model, tokenizer};

use clap::ValueEnum;

/// Targets of programs that were measured, and others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// Cortex-M0+ (not measured)
    Thumbv6m,
    /// Cortex-M4 and M7 with a floating-point unit
    Thumbv7em,
    /// Cortex-M33 with DSP and a floating-point unit, M55, M85
    Thumbv8m,
    /// RISC-V of 32 bits without a floating-point unit
    Riscv32,
    /// ESP32, S2 and S3 (not measured)
    Xtensa,
}

/// Optimization levels of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// For speed
    #[value(name = "3")]
    Speed,
    /// For size
    #[value(name = "s")]
    Size,
}

impl Target {
    /// A processor of this target, for messages.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Thumbv6m => "a Cortex-M0+",
            Self::Thumbv7em => "a Cortex-M4F or M7",
            Self::Thumbv8m => "a Cortex-M33",
            Self::Riscv32 => "RISC-V",
            Self::Xtensa => "Xtensa",
        }
    }

    /// Flash size in bytes of the smallest program that tells a story, including printing and vector table, with LTO and
    /// the features `llama`, `q8_0` and `kv-f16`. `.ci/firmware` and `.ci/boards` measure Cortex-M4F and M7, and M33 and
    /// RISC-V for speed, of projects with a HAL. The others were not measured: for size, M33 and RISC-V are taken to shrink
    /// as the M4F does, less 3 %; other targets are taken to need as much as RISC-V.
    const fn least(self, level: Level) -> usize {
        match (self, level) {
            (Self::Thumbv7em, Level::Size) => LEAST,
            (Self::Thumbv7em, Level::Speed) => 165_796,
            (Self::Thumbv8m, Level::Size) => 108_900,
            (Self::Thumbv8m, Level::Speed) => 171_184,
            (_, Level::Size) => 160_700,
            (_, Level::Speed) => 252_618,
        }
    }
}

/// The smallest program for a Cortex-M4F, built for size: the one whose features were measured.
const LEAST: usize = 102_372;

/// Bytes that each feature adds to it, from `.ci/firmware sizes`; 0 for those of the smallest program.
const ADDED: &[(&str, usize)] = &[
    ("llama", 0),
    ("q8_0", 0),
    ("kv-f16", 0),
    ("qwen", 2968),
    ("gpt2", 19192),
    ("gemma", 14248),
    ("phi3", 1240),
    ("stablelm", 2408),
    ("smollm3", 1272),
    ("granite", 440),
    ("olmo2", 552),
    ("bert", 17144),
    ("t5", 16848),
    ("seq2seq", 21832),
    ("experts", 2304),
    ("half-floats", 2076),
    ("q4_0", 1372),
    ("q4_1", 1012),
    ("q5_0", 1108),
    ("q5_1", 1332),
    ("q2_k", 2240),
    ("q3_k", 2232),
    ("q4_k", 2368),
    ("q5_k", 2136),
    ("q6_k", 2088),
    ("iq1_s", 18176),
    ("iq1_m", 18336),
    ("iq2_xxs", 4072),
    ("iq2_xs", 6464),
    ("iq2_s", 10400),
    ("iq3_xxs", 3184),
    ("iq3_s", 4064),
    ("iq4_nl", 996),
    ("iq4_xs", 1600),
    ("tq1_0", 2040),
    ("tq2_0", 1400),
    ("mxfp4", 924),
    ("nvfp4", 1284),
    ("q1_0", 1092),
    ("q2_0", 1108),
    ("kv-f32", 3608),
    ("kv-q8_0", 3872),
    ("bpe", 31368),
    ("unigram", 4168),
    ("wordpiece", 27176),
];
/// Estimate for a feature that was not measured; the largest families need more.
const UNMEASURED: usize = 8 * 1024;

/// The features of the crate that a file needs, with a cache of this type.
pub fn features(gguf: &Gguf<'_>, kv: KvType) -> BTreeSet<&'static str> {
    let architecture = gguf.architecture().unwrap_or_default();
    let mut features: BTreeSet<_> = gguf.tensors().filter_map(|tensor| tensor.kind.feature()).collect();
    features.extend(model::family_feature(architecture));
    features.insert(kv.feature());
    if gguf.u32(architecture, "expert_count").is_ok_and(|count| count.is_some_and(|count| count > 0)) {
        features.insert("experts");
    }
    if let Ok(Some(name)) = gguf.str("tokenizer.ggml", "model") {
        features.extend(tokenizer::tokenizer_feature(name));
    }
    features
}

/// Estimates the flash size of a program with these features. Features grow with the rest of the program.
pub fn flash(features: &BTreeSet<&'static str>, target: Target, level: Level) -> usize {
    let added = |feature| ADDED.iter().find(|(name, _)| *name == feature).map_or(UNMEASURED, |(_, bytes)| *bytes);
    let bytes = LEAST + features.iter().copied().map(added).sum::<usize>();
    (bytes as u64 * target.least(level) as u64 / LEAST as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_its_features() {
        let file = include_bytes!("../models/stories.gguf");
        let features = features(&Gguf::parse(file).expect("a model"), KvType::F16);
        assert_eq!(features.iter().copied().collect::<Vec<_>>(), ["kv-f16", "llama", "q8_0"]);
        assert_eq!(flash(&features, Target::Thumbv7em, Level::Size), LEAST);
        let speed = flash(&features, Target::Thumbv7em, Level::Speed);
        assert!(LEAST < speed && speed < flash(&features, Target::Riscv32, Level::Speed));
        assert_eq!(flash(&features, Target::Xtensa, Level::Speed), flash(&features, Target::Riscv32, Level::Speed));
        let file = include_bytes!("../models/translator.gguf");
        let features = super::features(&Gguf::parse(file).expect("a model"), KvType::F32);
        assert!(["seq2seq", "kv-f32"].iter().all(|feature| features.contains(feature)), "{features:?}");
        assert!(flash(&features, Target::Thumbv7em, Level::Size) >= LEAST + 21832 + 3608);
    }
}
