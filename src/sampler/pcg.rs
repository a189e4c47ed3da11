//! PCG32, the default generator: 64 bits of state, 32 bits of output. It is small and good enough for sampling, but not
//! for cryptography.
//!
//! Source: M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number
//! Generation", 2014; variant XSH RR 64/32.

use core::convert::Infallible;

use rand_core::{SeedableRng, TryRng};

/// The PCG32 generator. A seed gives the same numbers on every target.
///
/// ```
/// use arenite::sampler::Pcg32;
/// use rand_core::Rng;
///
/// let mut rng = Pcg32::new(42);
/// let first = rng.next_u32();
/// assert_eq!(Pcg32::new(42).next_u32(), first);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcg32 {
    state: u64,
    /// Odd; selects one of 2^63 sequences.
    increment: u64,
}

impl Pcg32 {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Self::with_stream(seed, 0x0a02_bdbf_7bb3_c0a7)
    }

    /// Creates a generator from a seed and a sequence number. There are 2^63 distinct sequences.
    pub const fn with_stream(seed: u64, stream: u64) -> Self {
        let mut rng = Self { state: 0, increment: stream << 1 | 1 };
        rng.step();
        rng.state = rng.state.wrapping_add(seed);
        rng.step();
        rng
    }

    const fn step(&mut self) {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(self.increment);
    }

    const fn next(&mut self) -> u32 {
        let state = self.state;
        self.step();
        let shifted = ((state >> 18 ^ state) >> 27) as u32;
        shifted.rotate_right((state >> 59) as u32)
    }
}

impl TryRng for Pcg32 {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.next())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let low = u64::from(self.next());
        Ok(u64::from(self.next()) << 32 | low)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(4) {
            for (place, byte) in chunk.iter_mut().zip(self.next().to_le_bytes()) {
                *place = byte;
            }
        }
        Ok(())
    }
}

impl SeedableRng for Pcg32 {
    /// Seed and stream.
    type Seed = [u8; 16];

    fn from_seed(seed: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(seed);
        Self::with_stream(number as u64, (number >> 64) as u64)
    }

    fn seed_from_u64(seed: u64) -> Self {
        Self::new(seed)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::Rng;

    use super::*;

    #[test]
    fn numbers_of_the_reference_implementation() {
        // `pcg32-demo` of the C library, seed 42, stream 54.
        let mut rng = Pcg32::with_stream(42, 54);
        for expected in [0xa15c02b7, 0x7b47f409, 0xba1d3330, 0x83d2f293, 0xbfa4784b, 0xcbed606e] {
            assert_eq!(rng.next_u32(), expected);
        }
    }

    #[test]
    fn bytes_are_the_numbers() {
        let mut bytes = [0; 7];
        Pcg32::new(1).fill_bytes(&mut bytes);
        let mut rng = Pcg32::new(1);
        assert_eq!(bytes[..4], rng.next_u32().to_le_bytes());
        assert_eq!(bytes[4..], rng.next_u32().to_le_bytes()[..3]);
        let (low, high) = (Pcg32::new(1).next_u32(), Pcg32::new(1).next_u64());
        assert_eq!(high as u32, low);
    }
}
