//! OpenAI's own Whisper checkpoints, and the vocabulary of whisper.cpp's files. The checkpoints do not store the
//! special tokens, but the ids of these tokens follow from the number of rows.
//!
//! Source: `whisper/tokenizer.py` and `whisper/decoding.py` of OpenAI.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::tokenizer_file::ranks::Ranks;

/// Languages in the order of their tokens.
const LANGUAGES: &str = "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur \
    hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka \
    be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue";

/// Texts that are not speech. Models do not generate these texts, whether or not a space precedes them.
const NO_SPEECH: &str = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 << >> <<< >>> -- --- -( -[ (' (\" (( )) \
    ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪";

/// Symbols of music: their first token is not generated.
const MUSIC: &str = "♩ ♪ ♫ ♬ ♭ ♮ ♯";

/// The special tokens of a Whisper model. Their ids follow each other from `first` on; `texts` has their texts in this
/// order.
pub struct Special {
    pub first: u32,
    texts: Vec<String>,
    is_multilingual: bool,
}

impl Special {
    /// Returns the special tokens of a Whisper model with `rows` tokens. In the vocabulary, the tokens of timestamps
    /// follow them.
    pub fn new(rows: u32) -> Self {
        let is_multilingual = rows >= 51865;
        let languages = LANGUAGES.split_whitespace().take(if rows >= 51866 { 100 } else { 99 });
        let before = ["endoftext", "startoftranscript"].into_iter();
        let after = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"];
        let texts = before.chain(languages).chain(after).map(|name| format!("<|{name}|>")).collect();
        Self { first: 50256 + u32::from(is_multilingual), texts, is_multilingual }
    }

    pub fn id(&self, name: &str) -> u32 {
        let at = self.texts.iter().position(|text| text[2..text.len() - 2] == *name);
        self.first + at.unwrap_or(0) as u32
    }

    /// Returns the settings in the form of `generation_config.json`. `ranks` is the vocabulary, if the vocabulary is
    /// known.
    pub fn settings(&self, ranks: Option<&Ranks<'_>>) -> Value {
        let names = ["transcribe", "translate", "startoftranscript", "startofprev", "startoflm", "nospeech"];
        let mut suppressed: BTreeSet<u32> = names.iter().map(|name| self.id(name)).collect();
        let mut at_begin = vec![self.first];
        if let Some(ranks) = ranks {
            suppressed.extend(no_speech(ranks));
            at_begin.splice(0..0, ranks.encode(b" ").first().copied());
        }
        json!({
            "suppress_tokens": suppressed,
            "begin_suppress_tokens": at_begin,
            "no_timestamps_token_id": self.id("notimestamps"),
            "prev_sot_token_id": self.id("startofprev"),
            "max_initial_timestamp_index": 50,
            "is_multilingual": self.is_multilingual,
        })
    }

    /// The vocabulary as a `tokenizer.json`.
    pub fn tokenizer(&self, ranks: &Ranks<'_>) -> Value {
        let vocabulary: Map<String, Value> = ranks.texts().map(|(text, id)| (text, id.into())).collect();
        let added = (self.first..).zip(&self.texts);
        let added: Vec<Value> = added.map(|(id, text)| json!({ "id": id, "content": text, "special": true })).collect();
        json!({
            "added_tokens": added,
            "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "use_regex": true },
            "decoder": { "type": "ByteLevel" },
            "model": { "type": "BPE", "vocab": vocabulary, "merges": ranks.merges() },
        })
    }
}

/// Returns the ids of OpenAI's `non_speech_tokens`.
fn no_speech(ranks: &Ranks<'_>) -> BTreeSet<u32> {
    let first = |text: &str| ranks.encode(text.as_bytes()).first().copied();
    let mut ids: BTreeSet<u32> = [" -", " '"].into_iter().filter_map(first).collect();
    for text in NO_SPEECH.split_whitespace().flat_map(|text| [text.to_owned(), format!(" {text}")]) {
        if let [one] = ranks.encode(text.as_bytes())[..] {
            ids.insert(one);
        }
    }
    let music = MUSIC.split_whitespace().flat_map(|text| [text.to_owned(), format!(" {text}")]);
    ids.extend(music.filter_map(|text| first(&text)));
    ids
}

/// Returns the config of a model with the sizes `dims`, under the names that transformers uses.
pub fn config(dims: &Value, class: &str) -> Value {
    let size = |name: &str| dims[name].as_u64().unwrap_or(0);
    let special = Special::new(size("n_vocab") as u32);
    json!({
        "architectures": [class],
        "vocab_size": dims["n_vocab"],
        "num_mel_bins": dims["n_mels"],
        "d_model": dims["n_audio_state"],
        "max_source_positions": dims["n_audio_ctx"],
        "max_target_positions": dims["n_text_ctx"],
        "encoder_attention_heads": dims["n_audio_head"],
        "decoder_attention_heads": dims["n_text_head"],
        "encoder_layers": dims["n_audio_layer"],
        "decoder_layers": dims["n_text_layer"],
        "encoder_ffn_dim": 4 * size("n_audio_state"),
        "decoder_ffn_dim": 4 * size("n_text_state"),
        "decoder_start_token_id": special.id("startoftranscript"),
        "bos_token_id": special.first,
        "eos_token_id": special.first,
        "pad_token_id": special.first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids of special tokens in tiny.en, tiny and large-v3, from the `generation_config.json` of these models.
    #[test]
    fn ids_follow_from_the_rows() {
        for (rows, ids) in [
            (51864, [50256, 50257, 50357, 50358, 50359, 50360, 50361, 50362]),
            (51865, [50257, 50258, 50358, 50359, 50360, 50361, 50362, 50363]),
            (51866, [50257, 50258, 50359, 50360, 50361, 50362, 50363, 50364]),
        ] {
            let special = Special::new(rows);
            let names = ["endoftext", "startoftranscript", "translate", "transcribe", "startoflm", "startofprev"];
            let names = names.into_iter().chain(["nospeech", "notimestamps"]);
            assert_eq!(names.map(|name| special.id(name)).collect::<Vec<_>>(), ids, "{rows} rows");
            assert_eq!(special.id("de"), ids[1] + 3);
        }
    }
}
