//! Added tokens that Hugging Face's tokenizers find in the normalized text, after all others (`normalized`).

use serde_json::Value;

use super::parts::{list, part};
use arenite_text::normalizer::{Step, apply};

/// For WordPiece with a `BertNormalizer`, the core applies this normalizer to a text before it looks for normalized
/// tokens. Returns the normalizer; `None` for other tokenizers.
fn bert(json: &Value) -> Option<&Value> {
    part(&json["normalizer"], "BertNormalizer").filter(|_| json["model"]["type"] == "WordPiece")
}

/// Returns the text of an added token in the form that it has in a normalized text.
pub fn text(json: &Value, token: &Value) -> String {
    let text = token["content"].as_str().unwrap_or_default();
    let Some(bert) = bert(json).filter(|_| token["normalized"] == true) else { return text.to_owned() };
    let lowercase = bert["lowercase"] != false;
    let strips = bert["strip_accents"].as_bool().unwrap_or(lowercase);
    let accents = [Step::Nfd, Step::StripAccents].into_iter().filter(|_| strips);
    let steps: Vec<Step> = accents.chain(lowercase.then_some(Step::Lowercase)).collect();
    let cleaned = |c: char| match c {
        _ if bert["clean_text"] == false => Some(c),
        _ if c.is_whitespace() => Some(' '),
        _ => Some(c).filter(|c| !c.is_control()),
    };
    apply(&steps, &text.chars().filter_map(cleaned).collect::<String>())
}

/// Returns true if these tokens must be searched after all others. This is the case if the core normalizes the text for
/// them, or if a token that is found before normalization overlaps with one of them or absorbs its white space.
pub fn are_last(json: &Value) -> bool {
    let (early, late): (Vec<&Value>, Vec<&Value>) =
        list(&json["added_tokens"]).partition(|token| token["normalized"] != true);
    let absorbs = |other: &&Value| other["lstrip"] == true || other["rstrip"] == true;
    let is_white = |token: &&Value| {
        let text = token["content"].as_str().unwrap_or_default();
        text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace)
    };
    let meet = early.iter().any(absorbs) && late.iter().any(is_white);
    bert(json).is_some() && !late.is_empty()
        || meet
        || late.iter().any(|token| early.iter().any(|other| overlap(token, other)))
}

/// Returns true if there is a text in which the two tokens overlap.
pub fn overlap(one: &Value, other: &Value) -> bool {
    let texts = [one, other].map(|token| token["content"].as_str().unwrap_or_default());
    let joins = |one: &str, other: &str| other.char_indices().skip(1).any(|(at, _)| one.ends_with(&other[..at]));
    let [one, other] = texts;
    one.contains(other) || other.contains(one) || joins(one, other) || joins(other, one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn overlapping_texts() {
        let overlap = |one: &str, other: &str| super::overlap(&json!({"content": one}), &json!({"content": other}));
        assert!(overlap("fox", "foxes") && overlap("foxes", "oxe") && overlap("<a>", ">b") && overlap(">b", "<a>"));
        assert!(!overlap("fox", "hen") && !overlap("ab", "ca".trim_end_matches('a')) && !overlap("<a>", "<b>"));
    }

    /// The expected texts are those of BertNormalizer in tokenizers 0.23.3, except that BertNormalizer also adds spaces
    /// around ideographs.
    #[test]
    fn texts_of_tokens_are_normalized() {
        let text = |settings: Value, text: &str| {
            let mut bert = settings;
            bert["type"] = "BertNormalizer".into();
            let json = json!({"normalizer": bert, "model": {"type": "WordPiece"}});
            super::text(&json, &json!({"content": text, "normalized": true}))
        };
        assert_eq!(text(json!({}), "ÉTÉ\n\n"), "ete  ");
        assert_eq!(text(json!({"lowercase": false}), "ÉTÉ"), "ÉTÉ");
        assert_eq!(text(json!({"lowercase": false, "strip_accents": true}), "ÉTÉ"), "ETE");
        assert_eq!(text(json!({"strip_accents": false, "clean_text": false}), "ÉTÉ\t"), "été\t");
    }
}
