//! Computes the flash size of a microcontroller program, without the model.

use std::collections::BTreeSet;

use arenite::{Gguf, KvType, model, tokenizer};

use clap::ValueEnum;

/// Compilation targets of programs, named after Rust's targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// Cortex-M0+
    Thumbv6m,
    /// Cortex-M4 and M7 with a floating-point unit
    Thumbv7em,
    /// Cortex-M33 with DSP and a floating-point unit, M55, M85
    Thumbv8m,
    /// RISC-V with atomics and without a floating-point unit
    #[value(alias = "riscv32")]
    Riscv32imac,
    /// RISC-V without atomics and without a floating-point unit
    Riscv32imc,
    /// RISC-V with atomics and a floating-point unit
    Riscv32imafc,
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
            Self::Riscv32imac | Self::Riscv32imc => "RISC-V without a floating-point unit",
            Self::Riscv32imafc => "RISC-V with a floating-point unit",
            Self::Xtensa => "Xtensa",
        }
    }
}

/// Measured sizes, one per line.
///
/// `program TARGET LEVEL BYTES` is the flash size of `tests/boards/fit`, a program that tells a story, with the
/// features [`INCLUDED`]. `feature NAME BYTES` is the size that a feature adds to this program for `thumbv7em` at level
/// `s`. `speed NAME BYTES` is the size that the feature adds at level `3`, if this was measured. `index BYTES` is the
/// size of the code that builds the tokenizer's index, which a packed model does not need. `.ci/boards sizes` measures
/// these sizes and writes them to the file.
const MEASURED: &str = include_str!("programs.txt");
/// Features of the measured programs.
const INCLUDED: [&str; 3] = ["llama", "q8_0", "kv-f16"];
/// Estimated size in bytes of a feature that was not measured. It is larger than the size of any measured family.
const UNMEASURED: usize = 48 * 1024;
/// Limit for the estimate of a feature's size at level `3`, if this size was not measured. If the feature has at most
/// this many bytes at level `s`, the estimate is its size, scaled by the same factor as the program. A larger feature
/// can grow more than the program (`lfm2` grows 1.5 times as much), so its estimate is twice the scaled size.
const SMALL: usize = 4 * 1024;

/// Returns the number at the end of each line of [`MEASURED`] whose first words are `words`.
fn measured(words: &[&str]) -> impl Iterator<Item = usize> {
    MEASURED.lines().filter_map(move |line| {
        let mut rest = line.split_ascii_whitespace();
        words.iter().all(|word| rest.next() == Some(word)).then(|| rest.last()?.parse().ok())?
    })
}

fn name<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
}

/// Percentage of [`Flash::bytes`] that is added as a reserve, because a feature's size depends on target, level and
/// model. `.ci/boards fit` measures the differences.
pub const MARGIN: usize = 3;

/// Flash size of a program in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    pub bytes: usize,
    /// False if `bytes` is an estimate, because the size was not measured for this target, optimization level or one of
    /// the features.
    pub is_measured: bool,
}

impl Flash {
    /// Returns the flash to reserve: the size plus [`MARGIN`] percent.
    pub const fn reserved(self) -> usize {
        self.bytes + (self.bytes * MARGIN).div_ceil(100)
    }
}

/// Returns the features of `arenite` that a file needs with a KV cache of type `kv`.
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

/// Returns the flash size of a program with these features, for a packed model if `is_packed` is true. The sizes of
/// features and of the index are scaled by the size of the program. For a target or level that was not measured, the
/// size of the largest measured program is used.
pub fn flash(features: &BTreeSet<&'static str>, target: Target, level: Level, is_packed: bool) -> Flash {
    let program = |target, level| measured(&["program", &name(target), &name(level)]).next();
    let own = program(target, level);
    let whole = own.or_else(|| measured(&["program"]).max()).unwrap_or(0);
    let least = program(Target::Thumbv7em, Level::Size).unwrap_or(whole);
    let scaled = |bytes| (bytes as u64 * whole as u64 / least as u64) as usize;
    let index = measured(&["index"]).next().filter(|_| is_packed).map_or(0, scaled);
    let mut flash = Flash { bytes: whole - index, is_measured: own.is_some() };
    for feature in features.iter().filter(|feature| !INCLUDED.contains(feature)) {
        let added = measured(&["feature", feature]).next();
        let fast = measured(&["speed", feature]).next().filter(|_| level == Level::Speed);
        flash.bytes += match (fast, added, program(Target::Thumbv7em, Level::Speed)) {
            (Some(bytes), _, Some(fastest)) => (bytes as u64 * whole as u64 / fastest as u64) as usize,
            (_, Some(bytes), _) if bytes <= SMALL || level == Level::Size => scaled(bytes),
            (_, added, _) => {
                flash.is_measured = false;
                added.map_or(UNMEASURED, |bytes| 2 * scaled(bytes))
            }
        };
    }
    flash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_its_features() {
        let file = include_bytes!("../../models/stories.gguf");
        let features = features(&Gguf::parse(file).expect("a model"), KvType::F16);
        assert_eq!(features.iter().copied().collect::<Vec<_>>(), ["kv-f16", "llama", "q8_0"]);
        let packed = flash(&features, Target::Thumbv7em, Level::Size, true);
        let least = flash(&features, Target::Thumbv7em, Level::Size, false);
        let speed = flash(&features, Target::Thumbv7em, Level::Speed, false);
        let riscv = flash(&features, Target::Riscv32imac, Level::Speed, false);
        let sizes = [packed, least, speed, riscv];
        assert!(sizes.is_sorted_by(|a, b| a.bytes < b.bytes) && sizes.iter().all(|size| size.is_measured), "{sizes:?}");
        assert_eq!(Flash { bytes: 101, is_measured: true }.reserved(), 105);
        let xtensa = flash(&features, Target::Xtensa, Level::Speed, false);
        assert!(!xtensa.is_measured && xtensa.bytes >= riscv.bytes, "{xtensa:?}");

        let file = include_bytes!("../../models/translator.gguf");
        let more = super::features(&Gguf::parse(file).expect("a model"), KvType::F32);
        assert!(["seq2seq", "kv-f32"].iter().all(|feature| more.contains(feature)), "{more:?}");
        let added =
            ["seq2seq", "kv-f32"].map(|feature| measured(&["feature", feature]).next().expect("a measured feature"));
        assert!(flash(&more, Target::Thumbv7em, Level::Size, false).bytes >= least.bytes + added[0] + added[1]);
        // `seq2seq` was not measured at level 3.
        let faster = flash(&more, Target::Thumbv7em, Level::Speed, false);
        assert!(!faster.is_measured && faster.bytes >= speed.bytes + 2 * added[0] + added[1], "{faster:?}");
    }

    #[test]
    fn every_measured_feature_exists() {
        let manifest = include_str!("../../../Cargo.toml");
        for line in MEASURED.lines().filter(|line| line.starts_with("feature")) {
            let name = line.split(' ').nth(1).unwrap_or_default();
            assert!(manifest.contains(&format!("\n{name} = [")), "{line}");
        }
    }
}
