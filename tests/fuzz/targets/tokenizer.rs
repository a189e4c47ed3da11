//! For any vocabulary and text, the ids are in the vocabulary, do not depend on the contents of memory, and can be
//! decoded.
#![no_main]

use arbitrary::Arbitrary;
use arenite::Gguf;
use arenite::tokenizer::{Encode, Tokenizer};
use fuzz::gguf::{Builder, Meta};
use fuzz::list::List;
use fuzz::unwritten::{unwritten, written};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    model: u8,
    pre: u8,
    /// Pieces, each with a score and a type.
    tokens: List<(List<u8, 6>, i8, u8), 60>,
    /// True if the vocabulary begins with the 256 byte tokens.
    bytes: bool,
    merges: List<(u8, u8), 40>,
    settings: List<(u8, u8), 6>,
    text: List<u8, 200>,
    parse_special: bool,
    ids: List<u16, 20>,
    /// A byte of the index to change, and its new value.
    damage: Option<(u16, u8)>,
}

const MODELS: [&str; 9] = ["llama", "gpt2", "gemma4", "t5", "bert", "bpe", "rwkv", "plamo2", "hybriddna"];
const PRE: [&str; 6] = ["default", "gpt-2", "llama-bpe", "qwen2", "smollm", "tekken"];
const SETTINGS: [&str; 10] = [
    "bos_token_id",
    "eos_token_id",
    "eot_token_id",
    "unknown_token_id",
    "padding_token_id",
    "seperator_token_id",
    "add_bos_token",
    "add_eos_token",
    "add_space_prefix",
    "remove_extra_whitespaces",
];

impl Case {
    fn file(&self) -> Vec<u8> {
        let mut file = Builder::new();
        let (mut tokens, mut scores, mut types) = (vec![], vec![], vec![]);
        if self.bytes {
            for (key, value) in [("bos_token_id", 1u32), ("eos_token_id", 2), ("unknown_token_id", 0)] {
                file.set(&format!("tokenizer.ggml.{key}"), value);
            }
            file.set("tokenizer.ggml.add_bos_token", true).set("tokenizer.ggml.add_eos_token", false);
            for byte in 0..=255u8 {
                tokens.push(format!("<0x{byte:02X}>").into_bytes());
                scores.push(0.0);
                types.push(6i32);
            }
        }
        for (token, score, kind) in self.tokens.iter() {
            tokens.push(token.to_vec());
            scores.push(f32::from(*score));
            types.push(i32::from(*kind % 8));
        }
        let piece = |at: u8| tokens.get(usize::from(at) % tokens.len().max(1)).cloned().unwrap_or_default();
        let merges: Vec<_> = self.merges.iter().map(|(a, b)| [piece(*a), b" ".to_vec(), piece(*b)].concat()).collect();
        file.set("general.architecture", "none");
        file.set("tokenizer.ggml.model", MODELS[usize::from(self.model) % MODELS.len()]);
        file.set("tokenizer.ggml.pre", PRE[usize::from(self.pre) % PRE.len()]);
        file.set("tokenizer.ggml.tokens", Meta::strings(tokens));
        file.set("tokenizer.ggml.scores", Meta::array(scores));
        file.set("tokenizer.ggml.token_type", Meta::array(types));
        file.set("tokenizer.ggml.merges", Meta::strings(merges));
        for (key, value) in self.settings.iter() {
            let name = SETTINGS[usize::from(*key) % SETTINGS.len()];
            let value: Meta = if name.contains("_id") { u32::from(*value).into() } else { (*value > 127).into() };
            file.set(&format!("tokenizer.ggml.{name}"), value);
        }
        file.build()
    }
}

fuzz_target!(|case: Case| {
    let file = case.file();
    let gguf = Gguf::parse(&file).expect("a correct file");
    let Ok(bytes) = Tokenizer::index_bytes(&gguf) else { return };
    assert!(bytes < 1 << 24);
    let text = &*case.text;
    let options = Encode { parse_special: case.parse_special, ..Encode::PROMPT };
    let encode = |fill: u8| {
        let mut index = vec![fill; bytes];
        let tokenizer = Tokenizer::new(&gguf, unwritten(&mut index)).ok()?;
        let mut scratch = vec![fill; Tokenizer::scratch_bytes(text.len())];
        let mut ids = vec![0; 4 * text.len() + 64];
        let count = tokenizer.encode(text, options, unwritten(&mut scratch), unwritten(&mut ids));
        if let Ok(count) = count {
            ids.truncate(count);
            assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_len()));
            let mut out = vec![0; 1 << 16];
            if let Ok(len) = tokenizer.detokenize(&ids, true, unwritten(&mut out)) {
                written(&out[..len]);
            }
        }
        let any: Vec<_> = case.ids.iter().map(|id| u32::from(*id)).collect();
        let mut out = vec![0; 1000];
        let _ = tokenizer.detokenize(&any, false, unwritten(&mut out));
        let mut decoder = tokenizer.decoder();
        for id in any {
            let _ = decoder.push(id, &tokenizer, |text| assert!(text.len() < 1 << 20));
        }
        decoder.finish(|_| ());
        Some(count.map(|_| ids))
    };
    let want = encode(0);
    assert_eq!(encode(0xff), want);

    // A damaged index is refused, or harmless.
    let mut index = vec![0; bytes];
    if Tokenizer::build_index(&gguf, unwritten(&mut index)).is_err() {
        return;
    }
    if let Some((at, byte)) = case.damage
        && !index.is_empty()
    {
        let at = usize::from(at) % index.len();
        index[at] = byte;
    }
    if let Ok(tokenizer) = Tokenizer::with_index(&gguf, &index) {
        let mut scratch = vec![0; Tokenizer::scratch_bytes(text.len())];
        let mut ids = vec![0; 4 * text.len() + 64];
        let _ = tokenizer.encode(text, options, unwritten(&mut scratch), unwritten(&mut ids));
    }
});
