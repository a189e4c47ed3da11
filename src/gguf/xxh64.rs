//! XXH64, the hash of tensor data.

const P1: u64 = 0x9e37_79b1_85eb_ca87;
const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P3: u64 = 0x1656_67b1_9e37_79f9;
const P4: u64 = 0x85eb_ca77_c2b2_ae63;
const P5: u64 = 0x27d4_eb2f_1656_67c5;

/// [XXH64](https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) with seed 0 over bytes given in chunks of
/// any length. The hash finds damage, but is not cryptographic.
///
/// # Examples
///
/// ```
/// use arenite::gguf::Xxh64;
///
/// let mut hash = Xxh64::new();
/// hash.update(b"a");
/// hash.update(b"bc");
/// assert_eq!(hash.finish(), 0x44bc_2cf5_ad77_0999); // as `xxhsum -H64` prints it for a file with "abc"
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Xxh64 {
    lanes: [u64; 4],
    /// The bytes after the last whole stripe of 32 bytes.
    rest: [u8; 32],
    /// Number of bytes so far.
    len: u64,
}

impl Xxh64 {
    /// The hash of no bytes.
    pub const fn new() -> Self {
        Self { lanes: [P1.wrapping_add(P2), P2, 0, P1.wrapping_neg()], rest: [0; 32], len: 0 }
    }

    /// Appends `bytes`.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let used = (self.len % 32) as usize;
        self.len = self.len.wrapping_add(bytes.len() as u64);
        if used > 0 {
            let (now, later) = bytes.split_at_checked(32 - used).unwrap_or((bytes, &[]));
            self.rest.iter_mut().skip(used).zip(now).for_each(|(to, byte)| *to = *byte);
            if now.len() < 32 - used {
                return;
            }
            self.stripes(&[self.rest]);
            bytes = later;
        }
        let (stripes, last) = bytes.as_chunks();
        self.stripes(stripes);
        self.rest.iter_mut().zip(last).for_each(|(to, byte)| *to = *byte);
    }

    fn stripes(&mut self, stripes: &[[u8; 32]]) {
        let mut lanes = self.lanes;
        for stripe in stripes {
            let words = stripe.as_chunks().0;
            lanes.iter_mut().zip(words).for_each(|(lane, word)| *lane = round(*lane, u64::from_le_bytes(*word)));
        }
        self.lanes = lanes;
    }

    /// The hash of all bytes so far.
    pub fn finish(&self) -> u64 {
        let [a, b, c, d] = self.lanes;
        let mut hash = P5;
        if self.len >= 32 {
            hash = a.rotate_left(1).wrapping_add(b.rotate_left(7)).wrapping_add(c.rotate_left(12));
            hash = hash.wrapping_add(d.rotate_left(18));
            for lane in self.lanes {
                hash = (hash ^ round(0, lane)).wrapping_mul(P1).wrapping_add(P4);
            }
        }
        hash = hash.wrapping_add(self.len);
        let rest = self.rest.get(..(self.len % 32) as usize).unwrap_or(&[]);
        let (words, rest) = rest.as_chunks();
        for word in words {
            hash ^= round(0, u64::from_le_bytes(*word));
            hash = hash.rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
        }
        let (halves, rest) = rest.as_chunks();
        for half in halves {
            hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(P1);
            hash = hash.rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
        }
        for byte in rest {
            hash ^= u64::from(*byte).wrapping_mul(P5);
            hash = hash.rotate_left(11).wrapping_mul(P1);
        }
        hash = (hash ^ hash >> 33).wrapping_mul(P2);
        hash = (hash ^ hash >> 29).wrapping_mul(P3);
        hash ^ hash >> 32
    }
}

impl Default for Xxh64 {
    fn default() -> Self {
        Self::new()
    }
}

const fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(i: u64) -> u8 {
        (i.wrapping_mul(2_654_435_761) >> 7) as u8
    }

    /// The expected hashes are of beginnings of a sequence of bytes, and were computed by xxHash's reference library,
    /// version 0.8.4.
    #[test]
    fn hashes_are_those_of_the_reference() {
        let bytes: [u8; 1000] = core::array::from_fn(|i| byte(i as u64));
        for (len, expected) in [
            (0, 0xef46_db37_51d8_e999),
            (1, 0xe934_a84a_db05_2768),
            (3, 0xc997_034c_0bb9_22ee),
            (4, 0x6ac7_f151_7bab_3f55),
            (7, 0xafb3_53a6_7897_bc23),
            (8, 0x9cd6_12a9_0db7_09f0),
            (12, 0x341c_1da0_121e_8793),
            (15, 0xb653_2882_3885_4dc0),
            (31, 0x148b_b496_4351_5e7c),
            (32, 0xc1a8_a55a_98de_cdea),
            (33, 0xa079_0c1b_7973_d776),
            (39, 0x2f21_16f7_cad9_9a66),
            (44, 0x10b2_f207_db2e_96ba),
            (63, 0xf81d_45fd_ae1b_75f4),
            (64, 0x2217_54ff_c769_7251),
            (65, 0xd3c4_5d2b_b4f5_61d5),
            (100, 0x1443_4a6e_c2e3_6aa0),
            (255, 0x00b3_01a1_dd92_5439),
            (256, 0xa9dc_3f3d_1c1f_dad5),
            (999, 0x2dea_81d7_ed57_0ccb),
            (1000, 0x2f70_d41c_b0be_df78),
        ] {
            for chunk in [1, 3, 7, 31, 32, 33, 64, 1000] {
                let mut hash = Xxh64::new();
                bytes[..len].chunks(chunk).for_each(|chunk| hash.update(chunk));
                assert_eq!(hash.finish(), expected, "{len} bytes in chunks of {chunk}");
            }
        }
    }
}
