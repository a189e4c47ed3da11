//! Pre-tokenizers: split a text into words before BPE, by the scanners that the vocabulary needs.

use super::scan::*;
use super::unicode::is_word;

/// A chain of scanners. A scanner is a list of alternatives. Each scanner splits the pieces that the previous scanner
/// produces.
type Chain = &'static [&'static [Part]];

/// The pre-tokenizer for a value of `tokenizer.ggml.pre`.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreTokenizer {
    chain: Chain,
    /// True if a word that is a token becomes that token without applying merges. The key `ignore_merges`, which
    /// `arenite convert` writes, replaces the value that the name implies.
    pub ignore_merges: bool,
    /// True if a text begins with BOS by default.
    pub add_bos: bool,
}

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
const CONTRACTION: Part = Part::Contraction { any_case: true };
/// `[^\r\n\p{L}\p{N}]?\p{L}+`
const WORD: Part = some(LETTER).after_any(BEFORE_WORD).part();
/// `[^\s\p{L}\p{N}]`
const SIGN: Class = WHITE.or(LETTER).or(NUMBER).not();
/// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
const SIGNS: Part = some(SIGN).after_any(SPACE).then_all(LINE_END).part();
/// ` ?[^\s\p{L}\p{N}]+[\r\n/]*`
const SIGNS_OR_SLASHES: Part = some(SIGN).after_any(SPACE).then_all(LINE_END_SLASH).part();
/// `[\r\n/]`
const LINE_END_SLASH: Class = Class::Set(|code| matches!(code, 0x0d | 0x0a | 0x2f));
/// `\p{N}`
const ONE_NUMBER: Part = numbers(1);

/// `\p{N}{1,most}`
const fn numbers(most: u8) -> Part {
    some_of(NUMBER, 1, most).part()
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
const GPT2: &[Part] = &[
    Part::Contraction { any_case: false },
    some(LETTER).after_any(SPACE).part(),
    some(NUMBER).after_any(SPACE).part(),
    some(SIGN).after_any(SPACE).part(),
    Part::Spaces,
];
const LLAMA3: &[Part] = &[CONTRACTION, WORD, numbers(3), SIGNS, Part::LineEnds, Part::Spaces];
const QWEN2: &[Part] = &[CONTRACTION, WORD, ONE_NUMBER, SIGNS, Part::LineEnds, Part::Spaces];
/// Like [`QWEN2`], but marks belong to words.
const QWEN35: &[Part] = &[
    CONTRACTION,
    some(LETTER_MARK).after_any(BEFORE_WORD).part(),
    ONE_NUMBER,
    some(SIGN_NO_MARK).after_any(SPACE).then_all(LINE_END).part(),
    Part::LineEnds,
    Part::Spaces,
];
/// `[^\s\p{L}\p{M}\p{N}]`
const SIGN_NO_MARK: Class = WHITE.or(LETTER_MARK).or(NUMBER).not();
const UFAKZEKA: &[Part] = &[WORD, ONE_NUMBER, SIGNS, Part::LineEnds, Part::Spaces];
const MINICPM5: &[Part] = &[CONTRACTION, WORD, numbers(ALL), SIGNS, Part::LineEnds, Part::Spaces];
const SEED_CODER: &[Part] =
    &[CONTRACTION, WORD, ONE_NUMBER, some(SIGN).after_any(SPACE).part(), Part::LineEnds, Part::Spaces];
const JAIS2: &[Part] = &[CONTRACTION, WORD, numbers(3), SIGNS, Part::LineEnds, Part::SpacesByPowers];
const EXAONE_MOE: &[Part] = &[
    CONTRACTION,
    Part::Phrase,
    ONE_NUMBER,
    some(SIGN).after_any(SPACE).then_one(LINE_END_SLASH).part(),
    Part::LineEnds,
    Part::Spaces,
];

/// `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` or the same expression with `+` first
/// and `*` second. Words are split before capitals, as in the models' own expressions. llama.cpp only treats ASCII
/// letters as capitals, and excludes marks.
const fn cased(contraction: bool, most_digits: u8) -> [Part; 5] {
    [
        Part::Cased { upper: UPPER, lower: LOWER, contraction },
        numbers(most_digits),
        SIGNS_OR_SLASHES,
        Part::LineEnds,
        Part::Spaces,
    ]
}

/// Like [`cased`], but Chinese characters are separate words.
const KIMI_K2: &[Part] = &[
    some(Class::Set(is_han)).part(),
    Part::Cased { upper: Class::Set(is_upper_not_han), lower: Class::Set(is_lower_not_han), contraction: true },
    numbers(3),
    SIGNS,
    Part::LineEnds,
    Part::Spaces,
];

/// ``[!-/:-@\[-`{-~][A-Za-z]+``
const SIGN_AND_WORD: Part = some(ASCII_LETTER).after(ASCII_PUNCTUATION).part();
/// `[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`
const DEEPSEEK_WORD: Part = some(LETTER_MARK).after_any(LINE_END.or(LETTER).or(PUNCTUATION).or(SYMBOL).not()).part();
/// `[\p{P}\p{S}]+`
const DEEPSEEK_SIGNS: Run = some(PUNCTUATION.or(SYMBOL)).after_any(SPACE);
const DEEPSEEK3: &[Part] =
    &[SIGN_AND_WORD, DEEPSEEK_WORD, DEEPSEEK_SIGNS.then_all(LINE_END).part(), Part::LineEnds, Part::Spaces];
const SPARK: &[Part] = &[SIGN_AND_WORD, DEEPSEEK_WORD, DEEPSEEK_SIGNS.part(), ONE_LINE_END, Part::Spaces];
/// `[\r\n]`
const ONE_LINE_END: Part = some_of(LINE_END, 1, 1).part();
/// `[一-龥぀-ゟ゠-ヿ]+`
const CJK_KANA: Part = some(Class::Set(is_cjk_kana)).part();
/// `[一-龥ࠀ-一가-퟿]+`
const CJK_HANGUL: Part = some(Class::Set(is_cjk_hangul)).part();

const BLOOM: Part = some(Class::Set(is_bloom_word)).after_any(SPACE).part();
/// `[0-9][0-9][0-9]`
const THREE_DIGITS: Part = some_of(DIGIT, 3, 3).part();
/// `[^\n]+|[\n]+`
const LINES: &[Part] = &[some(Class::Set(is_not_newline)).part(), some(Class::Set(is_newline)).part()];
/// `\w+|[^\w\s]+`, and the white space between matches.
const WORDS: &[Part] = &[some(Class::Set(is_word)).part(), some(Class::Set(is_between_words)).part()];

const fn plain(chain: Chain) -> PreTokenizer {
    PreTokenizer { chain, ignore_merges: false, add_bos: false }
}

const fn ignoring_merges(chain: Chain) -> PreTokenizer {
    PreTokenizer { chain, ignore_merges: true, add_bos: false }
}

const fn ignoring_merges_with_bos(chain: Chain) -> PreTokenizer {
    PreTokenizer { chain, ignore_merges: true, add_bos: true }
}

/// The names of pre-tokenizers in files, each with the pre-tokenizer that it stands for, as in llama.cpp's
/// `llama_vocab::impl::load`; each name ends with a space.
const BY_NAME: &[(&str, PreTokenizer)] = &[
    // Also used if the file has no name.
    ("default ", plain(&[&[some(PUNCTUATION_MATHS).part()], GPT2, &[numbers(ALL)], &[THREE_DIGITS]])),
    (
        "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jina-v1-en \
         jina-v2-code roberta-bpe mpt olmo jais trillion granite-docling exaone4 ",
        plain(&[GPT2]),
    ),
    (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
        ignoring_merges_with_bos(&[LLAMA3]),
    ),
    ("dbrx smaug-bpe chatglm-bpe ", plain(&[LLAMA3])),
    ("glm4 glm5 ", ignoring_merges(&[LLAMA3])),
    (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2 bailingmoe bailingmoe2 \
         llada-moe ",
        plain(&[QWEN2]),
    ),
    ("qwen35 ", plain(&[QWEN35])),
    ("laguna ", plain(&[LINES, QWEN2])),
    ("ufakzeka ", plain(&[UFAKZEKA])),
    ("minicpm5 ", ignoring_merges(&[&[numbers(3)], MINICPM5])),
    ("seed-coder ", plain(&[SEED_CODER])),
    ("jais-2 ", plain(&[JAIS2])),
    ("exaone-moe ", plain(&[EXAONE_MOE])),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 ", plain(&[&[ONE_NUMBER], GPT2])),
    ("falcon ", plain(&[&[some(PUNCTUATION_MATHS.or(BACKTICK)).part()], GPT2, &[THREE_DIGITS]])),
    ("tekken ", ignoring_merges_with_bos(&[&cased(false, 1)])),
    ("gpt-4o llama4 kanana2 talkie minimax-m2 ", plain(&[&cased(true, 3)])),
    ("granite-embed-multi-97m ", ignoring_merges(&[&cased(true, 3)])),
    ("tiny_aya cohere2moe ", plain(&[&[Part::Threes], &cased(true, 3)])),
    (
        "youtu ",
        ignoring_merges(&[
            &[
                some(Class::Set(is_hangul)).part(),
                some(Class::Set(is_wide_punctuation)).part(),
                some(Class::Set(is_bopomofo)).part(),
                CJK_KANA,
            ],
            &cased(true, 1),
        ]),
    ),
    ("kimi-k2 ", plain(&[KIMI_K2])),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4 ", plain(&[&[numbers(3)], &[CJK_KANA], DEEPSEEK3])),
    ("spark2_5 ", plain(&[&[numbers(3)], &[CJK_KANA], SPARK, &[ONE_NUMBER]])),
    ("afmoe ", plain(&[&[Part::Threes], &[some(Class::Set(is_asian)).part()], DEEPSEEK3])),
    (
        "deepseek-llm ",
        plain(&[
            &[ONE_LINE_END],
            &[some(Class::Set(is_deepseek_letter)).after_any(WHITE).part()],
            &[some(Class::Set(is_deepseek_punctuation)).after_any(WHITE).part()],
            &[Part::SpacesAtEnd],
            &[CJK_HANGUL],
            &[numbers(ALL)],
        ]),
    ),
    (
        "deepseek-coder ",
        plain(&[
            &[ONE_LINE_END],
            &[some(LETTER).after_any(WHITE).part()],
            &[some(PUNCTUATION).after_any(WHITE).part()],
            &[CJK_HANGUL],
            &[ONE_NUMBER],
        ]),
    ),
    ("poro-chat bloom gpt3-finnish ", plain(&[&[BLOOM]])),
    ("viking ", plain(&[&[BLOOM], &[ONE_NUMBER]])),
    ("superbpe ", plain(&[&[numbers(ALL)], &[Part::ThreesApart]])),
    (
        "chameleon ",
        PreTokenizer {
            add_bos: true,
            ..plain(&[
                &[Part::Sentinel],
                &[Part::Image],
                &[Part::Indent],
                &[ONE_NUMBER],
                &[some_of(PUNCTUATION.or(ASCII_PUNCTUATION), 1, 1).part()],
                GPT2,
            ])
        },
    ),
];

/// True if `name` is one of the names in `list`, each of which ends with a space.
const fn has_name(mut list: &[u8], name: &[u8]) -> bool {
    loop {
        let mut rest = name;
        let mut same = true;
        loop {
            let [first, after @ ..] = list else { return false };
            list = after;
            if *first == b' ' {
                break;
            }
            rest = match rest {
                [byte, rest @ ..] if *byte == *first => rest,
                _ => {
                    same = false;
                    rest
                }
            };
        }
        if same && rest.is_empty() {
            return true;
        }
    }
}

impl PreTokenizer {
    /// Splits into lines and the newlines between them.
    pub const LINES: Self = plain(&[LINES]);
    /// Splits words from signs, like the pre-tokenizer `Whitespace` of Hugging Face. llama.cpp has no such
    /// pre-tokenizer.
    pub const WORDS: Self = plain(&[WORDS]);

    /// Finds a pre-tokenizer by its name in the file; `None` if [`BY_NAME`] does not have the name.
    pub const fn by_name(name: &[u8]) -> Option<Self> {
        let mut kinds = BY_NAME;
        // Old files have no name.
        let name = if name.is_empty() { b"default" } else { name };
        while let [(names, kind), rest @ ..] = kinds {
            if has_name(names.as_bytes(), name) {
                return Some(*kind);
            }
            kinds = rest;
        }
        None
    }

    /// Iterates over the words of `text`, in order and without gaps.
    pub fn words<'t>(&self, text: &'t [u8]) -> Words<'t> {
        Words { text, pos: 0, chain: self.chain, states: [State { end: 0, known: 0 }; MOST_SCANNERS] }
    }
}

/// Maximum number of scanners in a chain.
const MOST_SCANNERS: usize = 6;

/// Iterator over the words of a text. Created by [`PreTokenizer::words`].
pub(super) struct Words<'t> {
    text: &'t [u8],
    pos: usize,
    chain: Chain,
    states: [State; MOST_SCANNERS],
}

/// State of one scanner.
#[derive(Clone, Copy)]
struct State {
    /// Position where the piece of text that the scanner is processing ends. `pos` is inside this piece.
    end: usize,
    /// A position found in the text that the scanner also needs for later pieces, so that it does not search again: see
    /// [`next`].
    known: usize,
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<&'t [u8]> {
        if self.pos >= self.text.len() {
            return None;
        }
        let mut outer = self.text.len();
        for (parts, state) in self.chain.iter().zip(&mut self.states) {
            if state.end <= self.pos {
                state.end = next(parts, self.text, self.pos, outer, &mut state.known).min(outer);
            }
            outer = state.end;
        }
        let word = self.text.get(self.pos..outer);
        self.pos = outer;
        word
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{string::String, vec::Vec};

    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let pre = PreTokenizer::by_name(name.as_bytes()).unwrap();
        pre.words(text.as_bytes()).map(|word| core::str::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn chains() {
        assert_eq!(words("default", "v1.2345 x==y"), ["v", "1", ".", "234", "5", " x", "==", "y"]);
        assert_eq!(words("", "v1.2345"), words("default", "v1.2345"));
        assert_eq!(words("smollm", "in 2024!"), ["in", " ", "2", "0", "2", "4", "!"]);
        assert_eq!(words("qwen2", "in 2024!"), ["in", " ", "2", "0", "2", "4", "!"]);
        assert_eq!(words("minicpm5", "12345"), ["123", "45"]);
        assert_eq!(words("gpt-2", ""), [""; 0]);
        for name in ["no such thing", "gpt", "gpt-2 ", " ", "2", "llama-bpe llama3"] {
            assert!(PreTokenizer::by_name(name.as_bytes()).is_none(), "{name}");
        }
        assert!(BY_NAME.iter().all(|(_, pre)| pre.chain.len() <= MOST_SCANNERS));
    }

    #[test]
    fn single_expressions() {
        assert_eq!(
            words("gpt-2", "I'll  see\t\tyou'Re  12345 !?\n\n x  "),
            ["I", "'ll", " ", " see", "\t", "\t", "you", "'", "Re", " ", " 12345", " !?", "\n\n", " x", "  "]
        );
        assert_eq!(
            words("llama-bpe", "I'LL\tsee 12345,\n\n  \n  y  "),
            ["I", "'LL", "\tsee", " ", "123", "45", ",\n\n", "  \n", " ", " y", "  "]
        );
        assert_eq!(words("gpt-4o", "HTTPServer aB's"), ["HTTPServer", " a", "B's"]);
        assert_eq!(words("superbpe", "a1234567"), ["a", "1", "234", "567"]);
        assert_eq!(words("afmoe", "12345"), ["12", "345"]);
        let between: Vec<_> = PreTokenizer::WORDS.words("don't  go_2 \u{939}\u{942}...".as_bytes()).collect();
        let expected: [&str; 8] = ["don", "'", "t", "  ", "go_2", " ", "\u{939}\u{942}", "..."];
        assert_eq!(between, expected.map(str::as_bytes));
    }

    #[test]
    fn overlong_forms_give_the_number_they_encode() {
        let first = |name: &str, text: &[u8]| {
            PreTokenizer::by_name(name.as_bytes()).and_then(|pre| pre.words(text).next().map(<[u8]>::len))
        };
        assert_eq!(first("gpt-2", b"\xc0\xa0Z"), Some(3));
        assert_eq!(first("gpt-2", b"\xc0\xa7sZ"), Some(3));
        assert_eq!(first("llama-bpe", b"'\xc1\x93Z"), Some(3));
        assert_eq!(first("superbpe", b"1\xc0\xb2341"), Some(3));
    }

    /// Results for a thousand strings, computed by `tests/fixtures/pretokenizers.py` with the Python package `regex`:
    /// for each string, a checksum of the lengths of its pieces.
    #[test]
    fn random_strings() {
        let vectors = include_str!("../../tests/fixtures/pretokenizers.txt");
        let (texts, expected) = vectors.split_once("\n\n").unwrap();
        let byte = |hex: &[u8]| u8::from_str_radix(core::str::from_utf8(hex).unwrap(), 16).unwrap();
        let texts: Vec<Vec<u8>> = texts.lines().map(|hex| hex.as_bytes().chunks(2).map(byte).collect()).collect();
        let mut count = 0;
        for (name, sums) in expected.lines().map(|line| line.split_once(' ').unwrap()) {
            let pre = PreTokenizer::by_name(name.as_bytes()).unwrap();
            for (text, expected) in texts.iter().zip(sums.as_bytes().chunks(4)) {
                let sum = pre.words(text).fold(0u16, |sum, word| sum.wrapping_mul(31).wrapping_add(word.len() as u16));
                let expected = u16::from_be_bytes([byte(&expected[..2]), byte(&expected[2..])]);
                assert_eq!(sum, expected, "{name}: {:?}", String::from_utf8_lossy(text));
                count += 1;
            }
        }
        assert!(count >= 29_000, "{count}");
    }
}
