//! Finds the name of llama.cpp's pre-tokenizer that corresponds to a `tokenizer.json`.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

const GPT2: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// One digit at a time. [`known`] converts `\d`, `\p{Nd}` and `[0-9]` to this expression.
const DIGITS: &str = r"\p{N}";
/// Expressions for single digits. They match fewer characters than [`DIGITS`], because they do not match characters
/// such as ½ and Ⅷ.
pub const SOME_DIGITS: [&str; 3] = [r"\d", r"\p{Nd}", r"[0-9]"];
const NUMBERS_BY_THREE: &str = r"\p{N}{1,3}";
const CJK: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
/// The words of Qwen 2.
pub const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The words of Llama 3.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Tiktoken's spelling of an expression that splits the same words. In both spellings, white space ends with its last
/// line break.
const CL100K: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
/// The beginning of the expression for DeepSeek LLM's words. These consist of letters of alphabets that distinguish
/// cases, which the whole expression lists. [`known`] replaces the whole expression by this beginning.
const CASED_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ";
const CJK_HANGUL: &str = "[一-龥ࠀ-一가-\u{d7ff}]+";
const PUNCTUATION: &str = "punctuation";
/// The signs that `Punctuation` isolates: the signs of ASCII and the punctuation of Unicode.
const SIGNS: &str = r"[\p{P}!-/:-@\[-`{-~]";
const BLOOM: &str = " ?[^(\\s|[.,!?…。，、।۔،])]+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The words of Kimi K2: like the words of GPT-4o, but Chinese characters form separate words.
pub const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
/// Digits in groups of three, counted from the end. [`known`] converts [`SOME_THREES`] to this expression.
const THREES: &str = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))";
/// Expressions for groups of three digits that match fewer texts than [`THREES`]: some do not match characters such as
/// ½, some do not match a number before a letter.
pub const SOME_THREES: [&str; 3] =
    [r"\d{1,3}(?=(?:\d{3})*\b)", r"\p{N}{1,3}(?=(?:\p{N}{3})*\b)", r"\d{1,3}(?=(?:\d{3})*(?!\d))"];
/// Lines and the line breaks between them.
const LINES: &str = r"[^\n]+|[\n]+";
/// Laguna's line breaks, which begin a line.
pub const LINE_STARTS: &str = r"(?:\r?\n)+(?!\r?\n)";

/// Pre-tokenizers by their names in `tokenizer.ggml.pre`. Each name has the expressions that a `tokenizer.json` uses
/// for it, in order.
const KNOWN: &[(&str, &[&str])] = &[
    ("gpt-2", &[GPT2]),
    ("smollm", &[DIGITS, GPT2]),
    ("llama-bpe", &[LLAMA3]),
    ("qwen2", &[QWEN2]),
    (
        "qwen35",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "minicpm5",
        &[
            NUMBERS_BY_THREE,
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "bailingmoe",
        &[r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    ),
    (
        "seed-coder",
        &[
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
        ],
    ),
    (
        "exaone-moe",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
    ),
    ("gpt-4o", &[GPT4O]),
    (
        "tekken",
        &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    ("deepseek-v3", &[NUMBERS_BY_THREE, CJK, DEEPSEEK3]),
    ("deepseek-coder", &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_HANGUL, DIGITS]),
    // With the name `deepseek-llm`, readers split numbers into single digits. This gives the same tokens as the
    // expression `\p{N}+`, because these vocabularies have no tokens of several digits.
    ("deepseek-llm", &[r"[\r\n]", CASED_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+", r"\s+$", CJK_HANGUL, DIGITS]),
    (
        "deepseek-llm",
        &[r"[\r\n]", CASED_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+", r"\s+$", CJK_HANGUL, r"\p{N}+"],
    ),
    ("falcon", &[PUNCTUATION, GPT2, "[0-9][0-9][0-9]"]),
    ("superbpe", &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    ("bloom", &[BLOOM]),
    ("viking", &[BLOOM, DIGITS]),
    (
        "jais-2",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        ],
    ),
    (
        "afmoe",
        &[
            THREES,
            "[一-\u{9fff}㐀-\u{4dbf}\u{f900}-\u{faff}\u{3040}-ゟ゠-ヿ･-ﾟ⼀-\u{2fdf}เ-\u{e7f}\u{e80}-\u{eff}ក-\u{17ff}က-\u{109f}ꩠ-ꩿꧠ-\u{a9ff}가-\u{d7af}ᄀ-ᇿ]+",
            DEEPSEEK3,
        ],
    ),
    ("tiny_aya", &[THREES, GPT4O]),
    ("laguna", &[LINES, QWEN2]),
    (
        "youtu",
        &[
            "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-\u{303f}︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u{3040}-ゟ゠-ヿ]+",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "spark2_5",
        &[
            NUMBERS_BY_THREE,
            CJK,
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+",
            DIGITS,
        ],
    ),
    ("kimi-k2", &[KIMI]),
    (
        "chameleon",
        &["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", DIGITS, SIGNS, GPT2],
    ),
];

/// Returns the name of a byte-level pre-tokenizer; `ignore_merges` comes from the model section.
pub fn name(pre_tokenizer: &Value, ignore_merges: bool) -> Result<&'static str> {
    let mut found = Vec::new();
    collect(pre_tokenizer, &mut found)?;
    match KNOWN.iter().find(|(_, expressions)| *expressions == found.as_slice()) {
        Some(("llama-bpe", _)) if !ignore_merges => Ok("dbrx"),
        Some((name, _)) => Ok(name),
        None if found.is_empty() => bail!("its pre-tokenizer does not split texts into words, which is not supported"),
        None => bail!("unknown pre-tokenizer: {}", found.join("  then  ")),
    }
}

/// The value of the key `ignore_merges`, which says that a word that is a token becomes this token without merges.
/// `None` if the name of the pre-tokenizer already implies the value, so that the key is not written.
pub fn ignores_merges(name: &str, ignores: bool) -> Option<bool> {
    (ignores != matches!(name, "llama-bpe" | "tekken" | "minicpm5" | "youtu")).then_some(ignores)
}

/// Collects the expressions of a pre-tokenizer in order.
fn collect<'v>(value: &'v Value, found: &mut Vec<&'v str>) -> Result<()> {
    match value["type"].as_str().unwrap_or("none") {
        "Sequence" => {
            value["pretokenizers"].as_array().into_iter().flatten().try_for_each(|part| collect(part, found))?
        }
        "ByteLevel" if value["use_regex"] != false => found.push(GPT2),
        "ByteLevel" => {}
        "Digits" if value["individual_digits"] == true => found.push(DIGITS),
        "Digits" => {} // `support.rs` refuses it if it has an effect
        "Punctuation" if value["behavior"] == "Contiguous" => found.push(PUNCTUATION),
        "Punctuation" if matches!(value["behavior"].as_str(), None | Some("Isolated")) => found.push(SIGNS),
        "Punctuation" => {
            bail!("the pre-tokenizer type Punctuation is supported with the behaviors Contiguous and Isolated only")
        }
        "Split" => match (&value["pattern"]["Regex"], &value["pattern"]["String"]) {
            (Value::String(expression), _) => {
                let (behavior, is_inverted) = (value["behavior"].as_str(), value["invert"] == true);
                // The behavior `Removed` with `invert` drops the text that the expression does not match. An expression
                // that ends with the alternative `\s+` matches every character, so that nothing is dropped.
                let keeps_all = match behavior {
                    // `LINE_STARTS` splits the text after each line. The other expressions of the chain split there
                    // anyway, so it can be left out.
                    Some("MergedWithNext") => expression == LINE_STARTS && !is_inverted,
                    Some("Isolated") if expression == LINE_STARTS => false,
                    Some("Removed") => is_inverted && expression.ends_with(r"|\s+"),
                    _ => matches!(behavior, None | Some("Isolated")) && !is_inverted,
                };
                let behavior = behavior.unwrap_or_default();
                ensure!(keeps_all, "splitting at {expression} with the behavior {behavior} is not supported");
                found.push(known(expression));
            }
            (_, other) => bail!("splitting at {other} is not supported"),
        },
        other => bail!("the pre-tokenizer type {other} is not supported"),
    }
    Ok(())
}

/// Returns the expression of [`KNOWN`] that splits texts in the same way as `expression`. If there is none, returns
/// `expression` itself.
fn known(expression: &str) -> &str {
    let spelled = usual(expression);
    let same = |text: &str| usual(text) == spelled;
    let gpt2 = [
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    ];
    match expression {
        _ if gpt2.contains(&expression) => GPT2,
        _ if same(CL100K) => LLAMA3,
        _ if SOME_DIGITS.contains(&expression) => DIGITS,
        _ if SOME_THREES.contains(&expression) => THREES,
        LINE_STARTS => LINES,
        _ if expression.starts_with(CASED_LETTERS) => CASED_LETTERS,
        _ => {
            let mut all = KNOWN.iter().flat_map(|(_, expressions)| expressions.iter().copied());
            all.find(|text| same(text)).unwrap_or(expression)
        }
    }
}

/// Replaces alternative spellings of the same expression by one spelling: line breaks may be characters or escapes, and
/// contractions may list their letters in both cases.
fn usual(expression: &str) -> String {
    expression
        .replace('\n', r"\n")
        .replace('\r', r"\r")
        .replace(r"\p{N}{1}", r"\p{N}")
        .replace("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])", "(?i:'s|'t|'re|'ve|'m|'ll|'d)")
}

/// A pre-tokenizer that splits at an expression.
pub fn split(expression: &str) -> Value {
    json!({ "type": "Sequence", "pretokenizers": [
        { "type": "Split", "pattern": { "Regex": expression }, "behavior": "Isolated", "invert": false },
        { "type": "ByteLevel", "add_prefix_space": false, "use_regex": false },
    ] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isolated(expression: &str) -> Value {
        json!({ "type": "Split", "pattern": { "Regex": expression }, "behavior": "Isolated", "invert": false })
    }

    fn chain(mut parts: Vec<Value>) -> Value {
        parts.push(json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": false }));
        json!({ "type": "Sequence", "pretokenizers": parts })
    }

    /// Each name splits texts like the model's own expressions, in the spellings of the models' files.
    /// `tests/fixtures/pretokenizers.py` has the same expressions.
    #[test]
    fn words_of_single_families() {
        let digits = json!({ "type": "Digits", "individual_digits": true });
        let either_case = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
        let any_case = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
        let mut lines = isolated(LINE_STARTS);
        lines["behavior"] = "MergedWithNext".into();
        for (expected, parts) in [
            ("viking", vec![isolated(BLOOM), digits.clone()]),
            ("tiny_aya", vec![isolated(r"\d{1,3}(?=(?:\d{3})*\b)"), isolated(&GPT4O.replace(any_case, either_case))]),
            ("laguna", vec![lines, isolated(QWEN2)]),
            ("laguna", vec![isolated(r"[^\n]+|[\n]+"), isolated(&QWEN2.replace(any_case, either_case))]),
            ("qwen2", vec![isolated(&QWEN2.replace(r"|\p{N}|", r"|\p{N}{1}|"))]),
            ("kimi-k2", vec![isolated(KIMI)]),
            (
                "chameleon",
                vec![
                    isolated("<sentinel:[0-9]+>"),
                    isolated("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
                    isolated(r"([\t\n]|    |  )"),
                    digits,
                    json!({ "type": "Punctuation", "behavior": "Isolated" }),
                    json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": true }),
                ],
            ),
        ] {
            assert_eq!(name(&chain(parts), false).unwrap(), expected);
        }
        assert!(name(&chain(vec![isolated(LINE_STARTS), isolated(QWEN2)]), false).is_err());
        for (expected, expressions) in KNOWN {
            if !expressions.contains(&PUNCTUATION) && *expected != "llama-bpe" {
                let parts = expressions.iter().map(|expression| isolated(expression)).collect();
                assert_eq!(name(&chain(parts), false).unwrap(), *expected);
            }
        }
    }
}
