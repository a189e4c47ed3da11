//! A checksum and fingerprint of bytes: quick, the same on every target, no defence against intent.

/// FNV-1a over little-endian words of 64 bits, with a shift so that high bits reach low ones. Every
/// step is a bijection, so a change within one word never goes unnoticed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash(u64);

impl Hash {
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Takes `bytes` in; the last word is filled up with zeros.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            for (to, byte) in word.iter_mut().zip(rest) {
                *to = *byte;
            }
            self.word(u64::from_le_bytes(word));
        }
    }

    /// Takes one word in.
    pub const fn word(&mut self, word: u64) {
        let product = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 = product ^ product >> 32;
    }

    pub const fn finish(self) -> u64 {
        self.0
    }
}
