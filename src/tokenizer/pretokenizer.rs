//! Cutting a text into words before BPE: which scanners a vocabulary wants, and running them.

use super::scan::Scanner;

/// What `tokenizer.ggml.pre` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PreTokenizer {
    /// Each scanner cuts the pieces that the one before it made.
    scanners: &'static [Scanner],
    /// A word that is a token as a whole is that token, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether a text begins with BOS if the file does not say.
    pub add_bos: bool,
}

const LLAMA3: Scanner = Scanner::Cl100k { digits: 3, contractions: true, marks: false };
const QWEN2: Scanner = Scanner::Cl100k { digits: 1, contractions: true, marks: false };

const fn plain(scanners: &'static [Scanner]) -> PreTokenizer {
    PreTokenizer { scanners, ignore_merges: false, add_bos: false }
}

/// The names in the file and what they stand for, as in llama.cpp's `llama_vocab::impl::load`.
const BY_NAME: [(&[&str], PreTokenizer); 11] = [
    // No name at all is the default too.
    (
        &["", "default"],
        plain(&[Scanner::Punctuation(false), Scanner::Gpt2, Scanner::Numbers(u32::MAX), Scanner::ThreeDigits]),
    ),
    (
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        plain(&[Scanner::Gpt2]),
    ),
    (
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        PreTokenizer { scanners: &[LLAMA3], ignore_merges: true, add_bos: true },
    ),
    (&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], plain(&[LLAMA3])),
    (
        &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"],
        plain(&[QWEN2]),
    ),
    (&["qwen35"], plain(&[Scanner::Cl100k { digits: 1, contractions: true, marks: true }])),
    (&["ufakzeka"], plain(&[Scanner::Cl100k { digits: 1, contractions: false, marks: false }])),
    (
        &["minicpm5"],
        PreTokenizer {
            scanners: &[Scanner::Numbers(3), Scanner::Cl100k { digits: u32::MAX, contractions: true, marks: false }],
            ignore_merges: true,
            add_bos: false,
        },
    ),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        plain(&[Scanner::Numbers(1), Scanner::Gpt2]),
    ),
    // Not llama.cpp's: Hugging Face's `Whitespace`, for BPE over characters.
    (&["whitespace"], plain(&[Scanner::Whitespace])),
    (&["falcon"], plain(&[Scanner::Punctuation(true), Scanner::Gpt2, Scanner::ThreeDigits])),
];

const fn equal(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([x, a_rest @ ..], [y, b_rest @ ..]) = (a, b) {
        if *x != *y {
            return false;
        }
        (a, b) = (a_rest, b_rest);
    }
    a.is_empty() && b.is_empty()
}

impl PreTokenizer {
    /// By its name in the file; `None` if it is none of [`BY_NAME`].
    pub const fn by_name(name: &[u8]) -> Option<Self> {
        let mut kinds: &[(&[&str], PreTokenizer)] = &BY_NAME;
        while let [(names, kind), rest @ ..] = kinds {
            let mut names = *names;
            while let [first, rest @ ..] = names {
                if equal(first.as_bytes(), name) {
                    return Some(*kind);
                }
                names = rest;
            }
            kinds = rest;
        }
        None
    }

    /// The words of `text` as byte ranges, in order and without gaps.
    pub fn words<'t>(&self, text: &'t [u8]) -> Words<'t> {
        Words { text, pos: 0, scanners: self.scanners, ends: [0; MOST_SCANNERS] }
    }
}

/// The longest chain of scanners.
const MOST_SCANNERS: usize = 4;

/// See [`PreTokenizer::words`].
pub(super) struct Words<'t> {
    text: &'t [u8],
    pos: usize,
    scanners: &'static [Scanner],
    /// Where the piece of each scanner that `pos` lies in ends.
    ends: [usize; MOST_SCANNERS],
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<&'t [u8]> {
        if self.pos >= self.text.len() {
            return None;
        }
        let mut outer = self.text.len();
        for (scanner, end) in self.scanners.iter().zip(&mut self.ends) {
            if *end <= self.pos {
                *end = scanner.next(self.text, self.pos, outer).min(outer);
            }
            outer = *end;
        }
        let word = self.text.get(self.pos..outer);
        self.pos = outer;
        word
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let pre = PreTokenizer::by_name(name.as_bytes()).unwrap();
        pre.words(text.as_bytes()).map(|word| core::str::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn chains() {
        assert_eq!(words("default", "v1.2345 x==y"), ["v", "1", ".", "234", "5", " x", "==", "y"]);
        assert_eq!(words("smollm", "in 2024!"), ["in", " ", "2", "0", "2", "4", "!"]);
        assert_eq!(words("qwen2", "in 2024!"), ["in", " ", "2", "0", "2", "4", "!"]);
        assert_eq!(words("minicpm5", "12345"), ["123", "45"]);
        assert_eq!(words("gpt-2", ""), [""; 0]);
        assert!(PreTokenizer::by_name(b"no such thing").is_none());
    }
}
