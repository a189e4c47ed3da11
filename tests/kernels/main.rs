//! Compares every table with the scalar one, on random and on adversarial data. The bits must be equal, except that any
//! NaN equals any other.

mod attention;
mod edge;
mod floats;
mod products;
mod recurrent;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(memory_sanitizer)))]
mod tiles;

use arenite::Kernels;
use arenite::kernel::internals::halves;
use arenite::quant::TensorType;

/// The tables that this machine can run, without the scalar one.
fn tables() -> Vec<&'static Kernels> {
    let tables: Vec<_> = Kernels::available().filter(|kernels| kernels.name != "scalar").collect();
    if tables.is_empty() {
        eprintln!("SKIP: this machine runs the scalar kernels only");
    }
    tables
}

/// Prints the tables of this machine, for `.ci/cross`.
#[test]
fn names() {
    let names: Vec<_> = Kernels::available().map(|kernels| kernels.name).collect();
    println!("\ntables {}", names.join(" "));
}

/// The kind of values in a test case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Data {
    /// Ordinary magnitudes.
    Plain,
    /// The largest magnitudes of the formats, and zeros.
    Extreme,
    /// Ordinary values mixed with denormals, infinities and NaN.
    Wild,
}

const DATA: [Data; 3] = [Data::Plain, Data::Extreme, Data::Wild];

const WILD: [f32; 16] = [
    0.0,
    -0.0,
    1e-45,
    -1e-40,
    f32::MIN_POSITIVE,
    3e-8,
    -6e-5,
    0.5,
    -2.5,
    65504.0,
    -65520.0,
    1e30,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// A xorshift generator, with the same values on every machine.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.bits() >> 20) as usize % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A value from -1 to 1.
    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn float(&mut self, data: Data) -> f32 {
        match data {
            Data::Plain => self.unit(),
            Data::Extreme => self.pick(&[-1.0, 1.0, 0.0, 1.0]) * 60000.0,
            // Mostly ordinary values, because otherwise every result would be NaN.
            Data::Wild if self.below(40) == 0 => self.pick(&WILD),
            Data::Wild => self.unit() * self.pick(&[1e-38, 1e-20, 1e-4, 1.0, 1.0, 1e4]),
        }
    }

    fn floats(&mut self, data: Data, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float(data)).collect()
    }

    /// A little-endian f16 scale.
    fn half(&mut self, data: Data) -> [u8; 2] {
        let x = match data {
            Data::Plain => self.unit() * 0.01,
            Data::Extreme => self.pick(&[65504.0, -65504.0, 0.0, 6e-8]),
            Data::Wild if self.below(20) == 0 => return (self.bits() as u16).to_le_bytes(),
            Data::Wild => self.unit(),
        };
        half::f16::from_f32(x).to_le_bytes()
    }

    fn byte(&mut self, data: Data) -> u8 {
        if data == Data::Extreme { self.pick(&[0x80, 0x7f, 0x80, 0xff, 0]) } else { self.bits() as u8 }
    }

    /// `skip` bytes, then `rows` rows of weights.
    fn weights(&mut self, kind: TensorType, data: Data, rows: usize, cols: usize, skip: usize) -> Vec<u8> {
        let (elements, bytes) = kind.block();
        let mut out = vec![0x55; skip];
        for _ in 0..rows * cols / elements {
            match kind {
                TensorType::F32 => out.extend(self.float(data).to_le_bytes()),
                TensorType::F16 => out.extend(half::f16::from_f32(self.float(data)).to_le_bytes()),
                TensorType::BF16 => out.extend(half::bf16::from_f32(self.float(data)).to_le_bytes()),
                _ => {
                    let start = out.len();
                    out.extend((0..bytes).map(|_| self.byte(data)));
                    for offset in halves(kind) {
                        out[start + offset..start + offset + 2].copy_from_slice(&self.half(data));
                    }
                }
            }
        }
        out
    }
}

/// All block formats of this build.
fn block_types() -> Vec<TensorType> {
    let is_block = |kind: &TensorType| kind.is_built() && kind.block().0 > 1;
    (0..256).filter_map(TensorType::from_id).filter(is_block).collect()
}

/// Asserts equal bits, or NaN in both.
fn same(got: &[f32], want: &[f32], what: impl Fn() -> String) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan(), "{}: element {i}: {g:e}, not {w:e}", what());
    }
}

/// A value that no kernel writes by chance.
const UNTOUCHED: f32 = 12345.678;
