//! Estimates tokens per second from instructions that were counted under emulation.

use std::collections::BTreeMap;

use arenite::gguf::Tensor;
use arenite::quant::TensorType;
use arenite::{Gguf, KvType, Model};
use arenite_quantize::mix::{Shape, may_change};
use clap::ValueEnum;

use crate::boards::program::Target;

/// Counted instructions, one number per line.
///
/// `speed CORE TYPE NUMBER`: instructions per weight of a whole token. `attention CORE CACHE NUMBER`: instructions per
/// position, layer and float of a query. `.ci/boards speed` counts them and writes the file.
const COUNTED: &str = include_str!("speeds.txt");

/// A processor core whose instructions were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Core {
    /// Without a floating-point unit
    #[value(name = "cortex-m0+", aliases = ["cortex-m0plus", "cortex-m0"])]
    CortexM0Plus,
    /// Without a floating-point unit
    #[value(name = "cortex-m3")]
    CortexM3,
    /// With DSP and a floating-point unit
    #[value(name = "cortex-m4f", alias = "cortex-m4")]
    CortexM4F,
    /// With DSP and a floating-point unit
    #[value(name = "cortex-m7")]
    CortexM7,
    /// With DSP and a floating-point unit
    #[value(name = "cortex-m33")]
    CortexM33,
    /// With vectors (Helium)
    #[value(name = "cortex-m55")]
    CortexM55,
    /// RISC-V without a floating-point unit and without atomics
    Rv32imc,
    /// RISC-V without a floating-point unit
    Rv32imac,
    /// RISC-V with a floating-point unit
    Rv32imafc,
}

/// A type counts as fast on a core if a weight takes at most this many times the cycles of a Q8_0 weight.
const SLOW: f64 = 2.0;

impl Core {
    /// Returns the core of a target's usual boards; `None` if instructions were not counted on such a core.
    pub const fn of(target: Target) -> Option<Self> {
        match target {
            Target::Thumbv6m => Some(Self::CortexM0Plus),
            Target::Thumbv7em => Some(Self::CortexM4F),
            Target::Thumbv8m => Some(Self::CortexM33),
            Target::Riscv32imac => Some(Self::Rv32imac),
            Target::Riscv32imc => Some(Self::Rv32imc),
            Target::Riscv32imafc => Some(Self::Rv32imafc),
            Target::Xtensa => None,
        }
    }

    /// The core's name, as `--for` takes it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns a number of [`COUNTED`].
    fn counted(self, what: &str, name: &str) -> Option<f64> {
        let of = |core: Self| {
            let core = core.name();
            COUNTED.lines().find_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let found = [what, &core, name].iter().all(|word| words.next() == Some(word));
                found.then(|| words.next()?.parse().ok())?
            })
        };
        // If this core was not measured but has the same kernels as the Cortex-M4F, its counts are those of the
        // Cortex-M4F.
        of(self).or_else(|| matches!(self, Self::CortexM7 | Self::CortexM33).then(|| of(Self::CortexM4F))?)
    }

    /// Returns the number of instructions per weight of a whole token; `None` if the type was not counted.
    pub fn instructions(self, kind: TensorType) -> Option<f64> {
        self.counted("speed", &format!("{kind:?}"))
    }

    /// Instructions per position, layer and float of a query.
    pub fn attention(self, kv: KvType) -> Option<f64> {
        self.counted("attention", kv.name())
    }

    /// Returns the smallest and the largest number of cycles per instruction of a type's kernel, without wait states.
    const fn cycles(self, kind: TensorType) -> (f64, f64) {
        match (self, kind) {
            (Self::CortexM7, TensorType::F32) => (0.75, 2.0), // sometimes issues two instructions per cycle
            (Self::CortexM7, _) => (0.75, 1.5),
            // The upper limits come from the slowest instructions of these cores: a VFMA takes three cycles, and a load
            // of several registers takes one cycle more than their number.
            (Self::CortexM4F | Self::CortexM33, TensorType::F32) => (1.0, 4.0),
            (Self::CortexM4F | Self::CortexM33, TensorType::F16 | TensorType::BF16) => (1.0, 2.6),
            // An instruction with vectors takes two cycles, and overlaps with the next. Tables are read byte by byte.
            (Self::CortexM55, TensorType::IQ4_NL | TensorType::IQ4_XS | TensorType::MXFP4) => (1.0, 4.0),
            (Self::CortexM55, _) => (1.0, 2.0),
            _ => (1.0, 1.5),
        }
    }

    /// [`cycles`](Self::cycles) of attention. On a Cortex-M4F and M33, the most is the mean of the counted instructions:
    /// multiply-adds of floats and loads of several registers, as in matrices of F32, and conversions, which are faster.
    const fn attention_cycles(self, kv: KvType) -> (f64, f64) {
        match (self, kv) {
            (Self::CortexM7, _) => self.cycles(TensorType::F32),
            (Self::CortexM4F | Self::CortexM33, KvType::F32) => (1.0, 3.3),
            (Self::CortexM4F | Self::CortexM33, KvType::F16) => (1.0, 2.7),
            (Self::CortexM4F | Self::CortexM33, _) => (1.0, 2.3),
            _ => (1.0, 1.5),
        }
    }

    /// The types with fast kernels.
    pub fn fast_types(self) -> Vec<TensorType> {
        (0..64).filter_map(TensorType::from_id).filter(|kind| self.is_fast(*kind)).collect()
    }

    /// Returns the types of a model's matrices for which this core has no fast kernel.
    pub fn slow_types(self, gguf: &Gguf<'_>) -> Vec<TensorType> {
        let mut kinds = vec![];
        let shape = |tensor: Tensor<'_>| {
            (tensor.kind, may_change(&Shape { name: tensor.name, dims: tensor.dims, kind: tensor.kind }))
        };
        for kind in gguf.tensors().map(shape).filter_map(|(kind, may_change)| may_change.then_some(kind)) {
            if !self.is_fast(kind) && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Returns true if the kernel of a type is about as fast as the kernel of Q8_0.
    pub fn is_fast(self, kind: TensorType) -> bool {
        let Some(q8) = self.cycles_per_weight(TensorType::Q8_0) else { return true }; // a core that was not counted
        self.cycles_per_weight(kind).is_some_and(|own| own <= SLOW * q8)
    }

    /// The most cycles that a weight takes.
    fn cycles_per_weight(self, kind: TensorType) -> Option<f64> {
        Some(self.instructions(kind)? * self.cycles(kind).1)
    }

    /// Says that a type is slow; `None` if it is fast.
    pub fn complaint(self, kind: TensorType) -> Option<String> {
        if self.is_fast(kind) {
            return None;
        }
        let name = self.name();
        let count = |kind| {
            self.cycles_per_weight(kind).map_or_else(|| "not counted".to_owned(), |cycles| format!("{cycles:.1}"))
        };
        let (own, q8) = (count(kind), count(TensorType::Q8_0));
        Some(format!("{kind:?} is slow on {name}: a weight takes up to {own} cycles, in Q8_0 {q8}"))
    }
}

/// Parameters of a speed estimate.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// The core; `None` for a Linux processor, whose speed is limited only by the bandwidth of its memory.
    pub core: Option<Core>,
    /// Clock of one core in MHz.
    pub clock: u32,
    /// Bandwidth, in bytes per microsecond, of the memory that contains the weights. It is clock times bus width, minus
    /// a third because single cache lines are fetched.
    pub memory: u32,
}

/// The weights and the attention of a decoder's token.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Number of weights that are multiplied, by type.
    pub weights: BTreeMap<u32, (TensorType, u64)>,
    /// Size in bytes of all these weights.
    pub bytes: u64,
    /// For each layer with attention, the number of elements of the queries of all heads, and the length of the window
    /// if the layer has one.
    pub attention: Vec<(usize, Option<usize>)>,
}

impl Work {
    /// Counts the weights that each token is multiplied by: all matrices, except tables from which a token reads one
    /// row. Returns `None` for encoders and for models with experts.
    pub fn of(model: &Model<'_>) -> Option<Self> {
        let (gguf, spec) = (model.gguf(), model.spec());
        if !spec.has_head() || spec.has_cross_attention() {
            return None;
        }
        let has_head = gguf.tensor("output.weight").is_some();
        let multiplies = |name| match name {
            "token_embd.weight" => !has_head,
            "per_layer_token_embd.weight" | "position_embd.weight" | "token_types.weight" => false,
            _ => true,
        };
        let mut work = Self::default();
        for tensor in gguf.tensors().filter(|tensor| tensor.dims[1] > 1 && multiplies(tensor.name)) {
            let weights = tensor.dims.iter().product::<u64>();
            let (elements, bytes) = tensor.kind.block();
            work.weights.entry(tensor.kind as u32).or_insert((tensor.kind, 0)).1 += weights;
            work.bytes += weights / elements as u64 * bytes as u64;
        }
        if spec.experts().is_some() {
            return None;
        }
        work.attention = (0..spec.layers)
            .map(|index| spec.layer(index))
            .filter(|layer| layer.has_attention())
            .map(|layer| (layer.q_dim(), layer.window()))
            .collect();
        Some(work)
    }
}

impl Speed {
    /// Estimates the fewest and the most tokens per second at a position. For the fewest, each instruction takes its
    /// longest time, and the time for reading the weights is added. For the most, the weights are read while
    /// instructions run.
    pub fn estimate(self, work: &Work, kv: KvType, position: usize) -> Option<(f64, f64)> {
        let reading = work.bytes as f64 / f64::from(self.memory);
        let Some(core) = self.core else { return Some((1e6 / reading, 1e6 / reading)) };
        let products = work.attention.iter().map(|&(heads, window)| heads * position.min(window.unwrap_or(position)));
        let attention = core.attention(kv)? * products.sum::<usize>() as f64;
        let (fewest, cycles) = core.attention_cycles(kv);
        let (mut least, mut most) = (fewest * attention, cycles * attention);
        for &(kind, weights) in work.weights.values() {
            let instructions = core.instructions(kind)? * weights as f64;
            let (fewest, cycles) = core.cycles(kind);
            least += fewest * instructions;
            most += cycles * instructions;
        }
        let clock = f64::from(self.clock);
        Some((1e6 / (most / clock + reading), 1e6 / (least / clock).max(reading)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counted_line_is_read() {
        for line in COUNTED.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [what, core, name, number] = words[..] else { panic!("{line}") };
            let core = Core::from_str(core, false).expect(line);
            assert_eq!(core.counted(what, name), number.parse().ok(), "{line}");
        }
        for core in Core::value_variants() {
            assert!(core.is_fast(TensorType::Q8_0), "{core:?}");
        }
    }

    /// Limits of instructions per weight. F16 and BF16 are not among them: a conversion and a multiply-add of every
    /// weight already take 2 of 2.2, or 0.5 of 0.75.
    #[test]
    fn types_take_few_instructions() {
        use TensorType::*;
        let most = |core: Core, most, kinds: &[TensorType]| {
            for kind in kinds {
                let counted = core.instructions(*kind).expect("a count");
                assert!(counted <= most, "{core:?} {kind:?}: {counted}");
            }
        };
        let kinds = [F32, Q8_0, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, MXFP4, Q1_0, Q2_0];
        for core in [Core::CortexM4F, Core::CortexM33] {
            most(core, 2.2, &kinds);
            most(core, 1.6, &[TQ2_0]);
        }
        most(Core::CortexM55, 0.75, &kinds);
        most(Core::CortexM55, 0.31, &[Q8_0]);
        for core in [Core::CortexM0Plus, Core::CortexM3, Core::Rv32imc, Core::Rv32imac] {
            most(core, 18.0, &[Q8_0]);
        }
    }

    #[test]
    fn an_estimate_lies_between_its_bounds() {
        let work = Work { weights: [(8, (TensorType::Q8_0, 1_000_000))].into(), bytes: 1_000_000, attention: vec![] };
        let speed = |core| Speed { core, clock: 100, memory: 50 };
        let instructions = Core::CortexM4F.instructions(TensorType::Q8_0).expect("a count");
        let (least, most) = speed(Some(Core::CortexM4F)).estimate(&work, KvType::F16, 0).expect("an estimate");
        // Reading a megabyte takes 20 ms.
        assert!((least - 1.0 / (0.02 + 0.015 * instructions)).abs() < 1e-9);
        assert!((most - 1.0 / (0.01 * instructions).max(0.02)).abs() < 1e-9);
        assert_eq!(speed(None).estimate(&work, KvType::F16, 0), Some((50.0, 50.0)));
        // 100 positions of 1000 floats: a multiply-add takes three cycles.
        let work = Work { attention: vec![(1000, None)], ..Work::default() };
        let attention = Core::CortexM4F.attention(KvType::F32).expect("a count");
        let (least, most) = speed(Some(Core::CortexM4F)).estimate(&work, KvType::F32, 100).expect("an estimate");
        assert!((least - 1000.0 / (3.3 * attention)).abs() < 1e-9, "{least}");
        assert!((most - 1000.0 / attention).abs() < 1e-9, "{most}");
    }
}
