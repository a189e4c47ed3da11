//! Any checkpoint and any adapter in safetensors or torch's format is refused, or gives a GGUF file that parses.
//! Unchanged files are converted, and the model opens.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use arenite::{Gguf, Model};
use arenite_convert::checkpoint::lora::convert as convert_lora;
use arenite_convert::checkpoint::{Request as CheckpointRequest, convert as convert_checkpoint};
use fuzz_host::Edits;
use fuzz_host::files::Damage;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

#[derive(Arbitrary, Debug)]
enum Case {
    Model { from: u8, config: Edits, header: Edits, tokenizer: Option<Edits>, damage: [Damage; 2] },
    Torch { damage: Damage },
    Lora { config: Edits, header: Edits, damage: Damage },
}

/// Directory of the files, in memory if possible.
static DIRECTORY: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory"));

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/convert").join(name);
    std::fs::read(path).expect("a committed file")
}

/// The files of a checkpoint or adapter.
struct Files {
    config: Value,
    header: Value,
    data: Vec<u8>,
    tokenizer: Option<Value>,
}

impl Files {
    fn new(folder: &str, config: &str, weights: &str) -> Self {
        let json = |bytes: &[u8]| serde_json::from_slice(bytes).expect("JSON");
        let weights = fixture(&format!("{folder}/{weights}"));
        let (len, rest) = weights.split_first_chunk().expect("a length");
        let (header, data) = rest.split_at(u64::from_le_bytes(*len) as usize);
        let tokenizer = (folder != "lora").then(|| json(&fixture(&format!("{folder}/tokenizer.json"))));
        Self {
            config: json(&fixture(&format!("{folder}/{config}"))),
            header: json(header),
            data: data.to_vec(),
            tokenizer,
        }
    }

    fn safetensors(&self, edits: &Edits) -> Vec<u8> {
        let header = edits.bytes(self.header.clone());
        [&(header.len() as u64).to_le_bytes()[..], &header, &self.data].concat()
    }
}

static MODELS: LazyLock<[Files; 3]> = LazyLock::new(|| {
    ["own_commands", "qwen3_yarn", "starcoder2"].map(|folder| Files::new(folder, "config.json", "model.safetensors"))
});
static LORA: LazyLock<Files> = LazyLock::new(|| Files::new("lora", "adapter_config.json", "adapter_model.safetensors"));
static TORCH: LazyLock<Vec<u8>> = LazyLock::new(|| fixture("nanogpt.pt"));

fn path(name: &str) -> PathBuf {
    DIRECTORY.path().join(name)
}

fn put(name: &str, bytes: &[u8]) -> PathBuf {
    std::fs::write(path(name), bytes).expect("a file");
    path(name)
}

fn remove(names: &[&str]) {
    names.iter().for_each(|name| _ = std::fs::remove_file(path(name)));
}

/// Checks the result of a conversion.
fn check(is_unchanged: bool, result: anyhow::Result<()>, out: &Path) {
    match result {
        Ok(()) => {
            let bytes = std::fs::read(out).expect("it was written");
            let gguf = Gguf::parse(&bytes).expect("a correct file");
            let opens = gguf.get("adapter.type").is_some() || Model::new(&gguf).is_ok();
            assert!(opens || !is_unchanged, "the file does not open");
        }
        Err(error) => assert!(!is_unchanged && !out.exists(), "{error:#}"),
    }
}

fn convert(from: &Path, out: &Path) -> anyhow::Result<()> {
    convert_checkpoint(&CheckpointRequest { from, to: out, mix: None, tokenizer: None }, &mut |_| true).map(|_| ())
}

fuzz_target!(|case: Case| {
    let out = path("out.gguf");
    remove(&[
        "out.gguf",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "adapter_config.json",
        "adapter_model.safetensors",
        "a.pt",
    ]);
    match &case {
        Case::Model { from, config, header, tokenizer, damage } => {
            let files = &MODELS[usize::from(*from) % MODELS.len()];
            put("config.json", &damage[0].apply(config.bytes(files.config.clone())));
            put("model.safetensors", &damage[1].apply(files.safetensors(header)));
            let document = files.tokenizer.clone().expect("a model has one");
            put(
                "tokenizer.json",
                &tokenizer.as_ref().map_or(document.to_string().into_bytes(), |edits| edits.bytes(document)),
            );
            let is_unchanged = config.is_none()
                && header.is_none()
                && tokenizer.as_ref().is_none_or(Edits::is_none)
                && damage.iter().all(Damage::is_none);
            check(is_unchanged, convert(DIRECTORY.path(), &out), &out);
        }
        Case::Torch { damage } => {
            let from = put("a.pt", &damage.apply(TORCH.clone()));
            check(damage.is_none(), convert(&from, &out), &out);
        }
        Case::Lora { config, header, damage } => {
            put("config.json", MODELS[0].config.to_string().as_bytes());
            put("adapter_config.json", &config.bytes(LORA.config.clone()));
            put("adapter_model.safetensors", &damage.apply(LORA.safetensors(header)));
            let is_unchanged = config.is_none() && header.is_none() && damage.is_none();
            check(is_unchanged, convert_lora(DIRECTORY.path(), None, &out).map(|_| ()), &out);
        }
    }
});
