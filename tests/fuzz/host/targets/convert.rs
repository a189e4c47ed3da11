//! Any files of other programs are refused or give a GGUF file that opens. Correct files are not refused.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use arenite::{Gguf, Model};
use arenite_convert::llama2c::{Converted, Int8};
use arenite_convert::seq2seq::convert;
use arenite_convert::tokenizer_file::with_tokenizer;
use arenite_text::tokenizer;
use fuzz::change::model;
use fuzz_host::Edits;
use fuzz_host::files::{self, Damage, Families};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Case {
    Llama2c { model: files::Checkpoint, tokens: files::Tokens, kept: bool, damage: [Damage; 2] },
    Seq2seq { family: Families, config: Edits, tensors: Edits, vocabulary: Edits, damage: [Damage; 2], q8_0: bool },
    Tokenizer { kind: u8, model: u8, file: Edits, config: Option<Edits>, tokens: files::Tokens, damage: Damage },
}

/// Directory of the files, in memory if possible.
static DIRECTORY: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory"));

fn path(name: &str) -> PathBuf {
    DIRECTORY.path().join(name)
}

fn put(name: &str, bytes: &[u8]) -> PathBuf {
    std::fs::write(path(name), bytes).expect("a file");
    path(name)
}

fn opens(file: &[u8]) -> bool {
    let gguf = Gguf::parse(file).expect("a correct file");
    Model::new(&gguf).is_ok() && tokenizer(&gguf, &mut vec![]).is_ok()
}

fn llama2c(checkpoint: &files::Checkpoint, tokens: &files::Tokens, kept: bool, damage: &[Damage; 2]) {
    let model = damage[0].apply(checkpoint.bytes());
    let vocabulary = damage[1].apply(tokens.llama2c(checkpoint.vocab()));
    let int8 = if kept { Int8::Kept } else { Int8::Q8_0 };
    let is_right = damage.iter().all(Damage::is_none) && checkpoint.is_right();
    match Converted::new("a", &model, &vocabulary, int8) {
        Ok(converted) => {
            let mut file = std::io::Cursor::new(vec![]);
            converted.write(&mut file).expect("all bytes of all tensors");
            assert!(opens(file.get_ref()) || !is_right, "a right checkpoint does not open");
        }
        Err(error) => assert!(!is_right, "a right checkpoint: {error:#}"),
    }
}

fn seq2seq(family: Families, documents: [&Edits; 3], damage: &[Damage; 2], q8_0: bool) {
    let [config, tensors, vocabulary] = documents;
    put("config.json", &config.bytes(family.config()));
    put("model.safetensors", &damage[0].apply(family.safetensors(tensors)));
    put("source.spm", &damage[1].apply(files::Tokens::few().sentencepiece(1)));
    put("vocab.json", &vocabulary.bytes(files::ids(&files::TOKENS)));
    put("tokenizer.json", &vocabulary.bytes(files::english_hindi()));
    let is_right = documents.iter().all(|edits| edits.is_none()) && damage.iter().all(Damage::is_none);
    let out = path("out.gguf");
    let _ = std::fs::remove_file(&out);
    match convert(DIRECTORY.path(), &out, q8_0) {
        Ok(_) => assert!(opens(&std::fs::read(&out).expect("it was written")), "what was written does not open"),
        Err(error) => assert!(!is_right && !Path::new(&out).exists(), "{family:?}: {error:#}"),
    }
}

fuzz_target!(|case: Case| match &case {
    Case::Llama2c { model, tokens, kept, damage } => llama2c(model, tokens, *kept, damage),
    Case::Seq2seq { family, config, tensors, vocabulary, damage, q8_0 } => {
        seq2seq(*family, [config, tensors, vocabulary], damage, *q8_0);
    }
    Case::Tokenizer { kind, model: number, file, config, tokens, damage } => {
        let gguf = Gguf::parse(model(usize::from(*number))).expect("a correct file");
        let _ = std::fs::remove_file(path("tokenizer_config.json"));
        if let Some(config) = config {
            put("tokenizer_config.json", &config.bytes(files::tokenizer_config()));
        }
        let bytes = match kind % 7 {
            0 => tokens.llama2c(288),
            1 | 2 => tokens.sentencepiece(i32::from(kind % 7)),
            kind => file.bytes(files::tokenizer(kind - 3)),
        };
        if let Ok(file) = with_tokenizer(&gguf, &put("tokenizer.json", &damage.apply(bytes))) {
            opens(&file);
        }
    }
});
