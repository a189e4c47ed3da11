//! Finds the name of llama.cpp's pre-tokenizer that corresponds to a `tokenizer.json`.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

const GPT2: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// One digit at a time. [`known`] converts `\d`, `\p{Nd}` and `[0-9]` to this expression.
const DIGITS: &str = r"\p{N}";
/// Expressions that match fewer characters than [`DIGITS`]: they leave out characters such as ½ and Ⅷ.
pub const SOME_DIGITS: [&str; 3] = [r"\d", r"\p{Nd}", r"[0-9]"];
const NUMBERS_BY_THREE: &str = r"\p{N}{1,3}";
const CJK: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
/// The words of Qwen 2.
pub const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The words of Llama 3.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same words: tiktoken's spelling. White space ends with its last line break in both.
const CL100K: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
/// The words of DeepSeek LLM: letters of alphabets with cases. [`known`] shortens the expression to its beginning.
const CASED_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ";
const CJK_HANGUL: &str = "[一-龥ࠀ-一가-\u{d7ff}]+";
const PUNCTUATION: &str = "punctuation";

/// Values of `tokenizer.ggml.pre`, each with the expressions of a `tokenizer.json` in order.
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
    (
        "gpt-4o",
        &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "tekken",
        &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "deepseek-v3",
        &[
            NUMBERS_BY_THREE,
            CJK,
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
        ],
    ),
    ("deepseek-coder", &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_HANGUL, DIGITS]),
    // Vocabularies whose numbers are split into digits have no longer tokens of digits.
    ("deepseek-llm", &[r"[\r\n]", CASED_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+", r"\s+$", CJK_HANGUL, DIGITS]),
    (
        "deepseek-llm",
        &[r"[\r\n]", CASED_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+", r"\s+$", CJK_HANGUL, r"\p{N}+"],
    ),
    ("falcon", &[PUNCTUATION, GPT2, "[0-9][0-9][0-9]"]),
    ("superbpe", &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    ("bloom", &[" ?[^(\\s|[.,!?…。，、।۔،])]+"]),
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

/// Returns whether a word that is a token becomes that token without merges, if the name of the pre-tokenizer does not
/// imply it.
pub fn ignores_merges(name: &str, ignores: bool) -> Option<bool> {
    (ignores != matches!(name, "llama-bpe" | "tekken" | "minicpm5")).then_some(ignores)
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
        "Punctuation" => bail!("the pre-tokenizer type Punctuation is supported with the behavior Contiguous only"),
        "Split" => match (&value["pattern"]["Regex"], &value["pattern"]["String"]) {
            (Value::String(expression), _) => {
                let (behavior, is_inverted) = (value["behavior"].as_str(), value["invert"] == true);
                // An expression that ends with white space matches every character, so no text is removed.
                let keeps_all = match behavior {
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

/// Returns the equivalent expression in [`KNOWN`], if there is one, otherwise the expression itself. Line breaks may
/// be characters or escapes.
fn known(expression: &str) -> &str {
    let same = |text: &str| {
        text.replace('\n', r"\n").replace('\r', r"\r") == expression.replace('\n', r"\n").replace('\r', r"\r")
    };
    let gpt2 = [
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    ];
    if gpt2.contains(&expression) {
        return GPT2;
    }
    if same(CL100K) {
        return LLAMA3;
    }
    if SOME_DIGITS.contains(&expression) {
        return DIGITS;
    }
    if expression.starts_with(CASED_LETTERS) {
        return CASED_LETTERS;
    }
    KNOWN.iter().flat_map(|(_, expressions)| expressions.iter().copied()).find(|text| same(text)).unwrap_or(expression)
}

/// A pre-tokenizer that splits at an expression.
pub fn split(expression: &str) -> Value {
    json!({ "type": "Sequence", "pretokenizers": [
        { "type": "Split", "pattern": { "Regex": expression }, "behavior": "Isolated", "invert": false },
        { "type": "ByteLevel", "add_prefix_space": false, "use_regex": false },
    ] })
}
