//! For tests: inputs that are nearly right. Texts, JSON and files with a few changes, from numbers that are the same each
//! time; `ARENITE_CASES` of each, 400 unless it is set.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tries changed copies of the seeds. A panic is told with the case that made it.
#[track_caller]
pub fn all(seeds: &[&[u8]], try_it: impl Fn(&[u8])) {
    let cases = std::env::var("ARENITE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400);
    for case in 0..cases {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (case as u64 + 1) << 20);
        let mut bytes = seeds[case % seeds.len()].to_vec();
        for _ in 0..1 + random.below(4) {
            change(&mut bytes, seeds, &mut random);
        }
        if catch_unwind(AssertUnwindSafe(|| try_it(&bytes))).is_err() {
            let shown = bytes.escape_ascii().to_string();
            panic!("case {case}: {}", shown.get(..4000).unwrap_or(&shown));
        }
    }
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % n.max(1)
    }
}

/// What breaks a reader of text.
const TOKENS: [&[u8]; 26] = [
    b"null",
    b"[]",
    b"{}",
    b"\"\"",
    b"-1",
    b"0",
    b"1e999",
    b"-0.5",
    b"99999999999999999999",
    b"true",
    b"[[[[[[",
    b"}}}}",
    b"\\u0000",
    b"\xff",
    b"\"",
    b"{%",
    b"{{",
    b"%}",
    b"}}",
    b"(",
    b")*",
    b"{1000000}",
    b"|",
    b"\n",
    "\u{202e}é😀".as_bytes(),
    b" ",
];

fn change(bytes: &mut Vec<u8>, seeds: &[&[u8]], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(40)).min(bytes.len());
    match random.below(9) {
        0 => bytes.truncate(at),
        1 => _ = bytes.drain(at..end),
        2 => {
            let piece = bytes[at..end].to_vec();
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
        // Deep nesting, and long lists.
        3 => {
            let piece = bytes[at..end].repeat(1 + random.below(300));
            bytes.splice(at..end, piece);
        }
        4 => {
            let other = seeds[random.below(seeds.len())];
            let from = random.below(other.len() + 1);
            let piece = other[from..(from + random.below(200)).min(other.len())].to_vec();
            bytes.splice(at..end, piece);
        }
        5 | 6 => _ = bytes.splice(at..end, TOKENS[random.below(TOKENS.len())].iter().copied()),
        // A number of a binary file.
        7 => {
            let number = [0u32, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << random.below(32)][random.below(6)];
            let at = at / 4 * 4;
            bytes.splice(at..(at + 4).min(bytes.len()), number.to_le_bytes());
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}
