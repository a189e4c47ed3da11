//! The caller's memory, accessed as little-endian words of any alignment.

/// Four bytes.
pub(super) type Word = [u8; 4];

pub(super) fn get(words: &[Word], at: usize) -> u32 {
    words.get(at).copied().map_or(0, u32::from_le_bytes)
}

pub(super) fn set(words: &mut [Word], at: usize, value: u32) {
    if let Some(word) = words.get_mut(at) {
        *word = value.to_le_bytes();
    }
}
