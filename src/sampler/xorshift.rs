//! Xorshift64*, the generator of llama2.c: a seed gives the same numbers as in llama2.c's `run.c`. For all other
//! purposes [`Pcg32`](super::Pcg32) is better.
//!
//! Source: S. Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2014.

use core::convert::Infallible;

use rand_core::TryRng;

/// The Xorshift64* generator. Each 64-bit output stands for one random number of `run.c`: the top 24 bits are random,
/// and all others are zeros.
///
/// `run.c`'s sampling corresponds to [`Params`](super::Params) with only temperature and top-p in `order`:
///
/// ```
/// use arenite::sampler::{Link, Params, Xorshift};
///
/// let order = Link::order(&[Link::Temperature, Link::TopP]);
/// let params = Params { temperature: 1.0, top_p: 0.9, order, ..Params::DEFAULT };
/// let mut rng = Xorshift::new(1234);
/// # let _ = (params, &mut rng);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xorshift {
    state: u64,
}

impl Xorshift {
    /// Creates a generator from a seed. With seed 0 every number is 0.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    const fn next(&mut self) -> u32 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545f4914f6cdd1d) >> 32) as u32
    }
}

impl TryRng for Xorshift {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.next())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from(self.next() >> 8) << 40)
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
