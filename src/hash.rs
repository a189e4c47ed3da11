//! Checksums and fingerprints: fast, the same on every target, not cryptographic.

/// FNV-1a over little-endian 64-bit words, with a shift that spreads high bits to low bits. Every step is a bijection,
/// so that any change within one word changes the hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash(u64);

impl Hash {
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Hashes `bytes`; the last word is padded with zeros.
    pub const fn bytes(&mut self, mut bytes: &[u8]) {
        while let Some((word, rest)) = bytes.split_first_chunk() {
            self.word(u64::from_le_bytes(*word));
            bytes = rest;
        }
        let (mut last, mut shift) = (0, 0);
        while let Some((byte, rest)) = bytes.split_first() {
            last |= (*byte as u64) << shift;
            shift += 8;
            bytes = rest;
        }
        if shift > 0 {
            self.word(last);
        }
    }

    /// Hashes one word.
    pub const fn word(&mut self, word: u64) {
        let product = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 = product ^ product >> 32;
    }

    /// Hashes each number as a word.
    pub const fn numbers(&mut self, mut numbers: &[usize]) {
        while let Some((number, rest)) = numbers.split_first() {
            self.word(*number as u64);
            numbers = rest;
        }
    }

    pub const fn finish(self) -> u64 {
        self.0
    }
}
