//! Random number generators that are selected at run time: PCG, or llama2.c's generator, which gives the same texts for
//! a seed as llama2.c's `run.c`.

use std::convert::Infallible;

use arenite::sampler::{Pcg32, Xorshift};
use rand_core::{Rng, TryRng};

/// The selected random number generator.
#[derive(Clone, Debug)]
pub enum AnyRng {
    Pcg(Pcg32),
    Xorshift(Xorshift),
}

impl TryRng for AnyRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(match self {
            Self::Pcg(rng) => rng.next_u32(),
            Self::Xorshift(rng) => rng.next_u32(),
        })
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(match self {
            Self::Pcg(rng) => rng.next_u64(),
            Self::Xorshift(rng) => rng.next_u64(),
        })
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        match self {
            Self::Pcg(rng) => rng.fill_bytes(bytes),
            Self::Xorshift(rng) => rng.fill_bytes(bytes),
        }
        Ok(())
    }
}
