//! Sound for speech models: log-mel features, detection of voices, and the token rules of Whisper.
//!
//! A sound is mono at 16 kHz ([`RATE`]), as `i16` or as `f32` from -1 to 1. [`LogMel`] computes Whisper's features in
//! the caller's memory. Samples may arrive in pieces of any length. The result has the same bits as if they arrived in
//! one piece. [`Engine::listen`](crate::Engine::listen) runs a model's encoder on the features, and [`Rules`] masks the
//! logits of tokens that may not follow. [`Voice`] detects where voices begin and end.
//!
//! ```
//! use arenite::Line;
//! use arenite::sound::LogMel;
//!
//! const WINDOW: usize = 48_000; // 3 seconds
//! let mut memory = [Line::ZERO; LogMel::BYTES / 64];
//! let mut features = vec![0.0; LogMel::frames(WINDOW) * 80];
//! let mut mel = LogMel::new(80, WINDOW, Line::bytes_mut(&mut memory))?;
//! for second in [[100i16; 16_000], [-100; 16_000]] {
//!     mel.push(&second, &mut features)?; // a microphone's buffers
//! }
//! mel.finish(&mut features)?;
//! assert!(features.iter().all(|x| x.is_finite()));
//! # Ok::<(), arenite::Error>(())
//! ```

mod fft;
mod mel;
mod rules;
mod voice;

pub use mel::LogMel;
pub(crate) use mel::check_samples;
pub use rules::{Rules, TIMESTAMP};
pub use voice::Voice;

/// Samples per second.
pub const RATE: usize = 16_000;

/// A sample of a sound.
pub trait Sample: Copy + sealed::Sealed {
    /// The sample as a number; full scale is -1 to 1.
    fn value(self) -> f32;
}

impl Sample for f32 {
    fn value(self) -> f32 {
        self
    }
}

impl Sample for i16 {
    fn value(self) -> f32 {
        f32::from(self) / 32768.0
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for i16 {}
}
