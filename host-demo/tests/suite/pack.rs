//! Tests `arenite pack` by running the binary.

use std::path::{Path, PathBuf};
use std::process::Command;

use arenite::Gguf;
use arenite::tokenizer::Tokenizer;

use serde_json::Value;

use crate::common::{arenite, committed, error, external, fixtures, json, lines, npy, path, stdout, stdout_with};

/// Packs `file`. Returns the new file and the messages.
fn packed(file: &Path, directory: &Path) -> (PathBuf, String) {
    let out = directory.join("packed.gguf");
    let output = arenite(&["pack", path(file), path(&out)]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {stderr}", file.display());
    (out, stderr)
}

/// Texts as JSON strings, one per line, that are difficult for tokenizers.
const TEXTS: &[u8] = br#"""
"Hello, world!  How   are you?"
"  leading and trailing  "
"\n\n\t tabs\r\n"
"1234567 3.14 0x41 <0x41>"
"na\u00efve caf\u00e9 \u2581 \ud83d\ude00 \u4f60\u597d \u0928\u092e"
"<s></s><|im_start|>user<|endoftext|><|end|><|eot_id|>"
"I'll we've can't DON'T"
"for (int i = 0; i < n; ++i) { x[i] += y[i]; }"
"#;

fn assert_same_tokens(one: &Path, other: &Path) {
    for flags in [&[][..], &["--add-special"], &["--parse-special"]] {
        let ids = |file| stdout_with(&[&["tokenize", "-m", path(file), "--jsonl"], flags].concat(), TEXTS);
        assert_eq!(ids(one), ids(other), "{} {flags:?}", one.display());
        assert!(ids(one).lines().count() >= 9);
    }
}

#[test]
fn packed_models_give_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["host-demo/models/stories.gguf", "tests/fixtures/qwen3/model.gguf", "tests/fixtures/gpt2/model.gguf"] {
        let file = committed(name);
        let (out, _) = packed(&file, directory.path());
        assert_same_tokens(&file, &out);
        let bytes = std::fs::read(&out).unwrap();
        assert!(Tokenizer::packed(&Gguf::parse(&bytes).unwrap()).is_ok(), "{name}");
        let ids = |file| {
            let args =
                ["generate", "-p", "One day", "--temp", "0", "-n", "20", "--ignore-eos", "--format", "ids", "-m"];
            stdout(&[&args[..], &[path(file)]].concat())
        };
        assert_eq!(ids(&file), ids(&out), "{name}");

        let plan = |file| json(&["plan", "-c", "64", "--json", "-m", path(file)])["contexts"][0].clone();
        let (before, after) = (plan(&file), plan(&out));
        assert!(before["tokenizer_bytes"].as_u64().unwrap() > 0, "{before}");
        assert_eq!(after["tokenizer_bytes"], 0);
        assert_eq!(after["kv_bytes"], before["kv_bytes"]);

        let inspected = json(&["inspect", "--json", path(&out)]);
        assert_eq!(inspected["alignment"], 64);
        for tensor in inspected["tensors"].as_array().unwrap() {
            assert_eq!(tensor["offset"].as_u64().unwrap() % 64, 0);
        }
    }
}

/// The head and the file of matrices, joined together, are a model that gives the same tokens as the original. The head
/// alone contains no matrix.
#[test]
fn a_model_is_divided_for_a_storage() {
    let directory = tempfile::tempdir().unwrap();
    let [head, matrices, whole] = ["head.gguf", "matrices.bin", "whole.gguf"].map(|name| directory.path().join(name));
    for name in ["host-demo/models/stories.gguf", "host-demo/models/hybrid.gguf", "tests/fixtures/qwen3/model.gguf"] {
        let file = committed(name);
        let output = arenite(&["pack", path(&file), path(&head), "--storage", path(&matrices)]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.contains("head.gguf: "), "{stderr}");
        let [head, matrices] = [&head, &matrices].map(|path| std::fs::read(path).unwrap());
        std::fs::write(&whole, [&head[..], &matrices].concat()).unwrap();
        let source = std::fs::read(&file).unwrap();
        let source = Gguf::parse(&source).unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        let inspected = json(&["inspect", "--json", path(&whole)]);
        for tensor in inspected["tensors"].as_array().unwrap() {
            let offset = tensor["offset"].as_u64().unwrap() as usize;
            let own = source.tensor(tensor["name"].as_str().unwrap()).unwrap();
            assert!(bytes[offset..].starts_with(own.data), "{name}: {tensor}");
            let in_head = offset < head.len();
            assert_eq!(
                in_head,
                tensor["shape"].as_array().unwrap().len() == 1
                    || tensor["name"].as_str().unwrap().contains("conv.conv"),
                "{tensor}"
            );
        }
    }
    assert!(
        error(&["pack", path(&committed("host-demo/models/stories.gguf")), path(&head), "--storage", path(&head)])
            .contains("two files")
    );
}

#[test]
fn packing_drops_what_a_device_does_not_need() {
    let directory = tempfile::tempdir().unwrap();
    let file = committed("tests/fixtures/small/llama_gqa/model.gguf");
    let keys = |file: &Path| {
        let inspected = json(&["inspect", "--json", path(file)]);
        let keys: Vec<String> = inspected["metadata"].as_object().unwrap().keys().cloned().collect();
        (keys, inspected["tensors"].as_array().unwrap().len())
    };
    let (out, said) = packed(&file, directory.path());
    let ((before, tensors), (after, tensors_after)) = (keys(&file), keys(&out));
    assert_eq!(tensors, tensors_after);
    for key in before.iter().filter(|key| !after.contains(key)) {
        assert!(!key.starts_with("llama.") && said.contains(key.as_str()), "{key}: {said}");
    }
    assert!(after.contains(&"arenite.tokenizer.index".to_string()) && !after.contains(&"general.type".to_string()));

    // A file may be replaced by its own packed form. `--keep` keeps keys that packing would drop.
    let once = std::fs::read(&out).unwrap();
    let status = arenite(&["pack", path(&out), path(&out)]).status;
    assert!(status.success() && std::fs::read(&out).unwrap() == once);
    let kept = directory.path().join("kept.gguf");
    let output = arenite(&["pack", path(&file), path(&kept), "--keep", "general.", "--align", "4096"]);
    assert!(output.status.success());
    assert!(keys(&kept).0.contains(&"general.type".to_string()));
    assert_eq!(json(&["inspect", "--json", path(&kept)])["alignment"], 4096);
}

/// Values of transformers, as for the unpacked files.
#[test]
fn packed_models_compute_the_same_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let reranker = committed("tests/fixtures/qwen3_reranker");
    let (out, _) = packed(&reranker.join("model.gguf"), directory.path());
    let reference: Value = serde_json::from_slice(&std::fs::read(reranker.join("ref.json")).unwrap()).unwrap();
    for pair in reference["prompts"].as_array().unwrap() {
        let (query, document) = (pair["query"].as_str().unwrap(), pair["document"].as_str().unwrap());
        let ranked = stdout_with(&["rerank", "-m", path(&out), "-p", query, "--kv", "f32"], document.as_bytes());
        let score = lines(&ranked)[0]["relevance_score"].as_f64().unwrap();
        assert!((score - pair["score"].as_f64().unwrap()).abs() < 2e-5, "{score}: {pair}");
    }
    // Checks two models with layers that predict further tokens, and a model (Apertus) that stores parameters of its
    // activation function under keys without an architecture prefix.
    for case in ["drafts/mtp_qwen35_a", "drafts/mtp_glm4moe_a", "apertus"] {
        let Some(case) = fixtures(case) else { return };
        let (out, said) = packed(&case.join("model.gguf"), directory.path());
        assert_eq!(said.contains("--prune-layers 4 "), case.ends_with("mtp_qwen35_a"), "{said}");
        let reference: Value = serde_json::from_slice(&std::fs::read(case.join("ref.json")).unwrap()).unwrap();
        let prompt = &reference["prompts"][0];
        let ids: Vec<String> = prompt["ids"].as_array().unwrap().iter().map(Value::to_string).collect();
        let made = directory.path().join("logits.npy");
        stdout(&["logits", "-m", path(&out), "--ids", &ids.join(","), "--all", "--kv", "f32", "-o", path(&made)]);
        let right = std::fs::read(case.join("hf.bin")).unwrap();
        let right = right[prompt["logits"]["offset"].as_u64().unwrap() as usize..].as_chunks::<4>().0;
        let made = npy(&made).1;
        let worst = made.iter().zip(right).map(|(a, b)| (a - f32::from_le_bytes(*b)).abs()).fold(0.0, f32::max);
        assert!(made.len() > 1000 && worst < 1e-4, "{}: {worst}", case.display());
    }
}

#[test]
fn files_without_a_model_are_not_packed() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out.gguf");
    for (file, told) in [
        ("tests/fixtures/eye.gguf", "(mmproj), and not the language model"),
        ("tests/fixtures/lora/first.gguf", "this is a LoRA adapter"),
    ] {
        let error = error(&["pack", path(&committed(file)), path(&out)]);
        assert!(error.contains(told) && !out.exists(), "{error}");
    }
}

#[test]
fn packed_vocabularies_of_every_kind() {
    let directory = tempfile::tempdir().unwrap();
    let mut kinds = 0;
    let published = external("tokenizers").into_iter();
    let directories = published.chain([committed("tests/fixtures/tokenizers")]);
    for entry in directories.flat_map(|directory| std::fs::read_dir(directory).unwrap()) {
        let mut file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".gguf.gz") {
            let unpacked = directory.path().join("vocabulary.gguf");
            let output = Command::new("gzip").arg("-dc").arg(&file).output().expect("gzip runs");
            std::fs::write(&unpacked, output.stdout).unwrap();
            file = unpacked;
        } else if !name.ends_with(".gguf") {
            continue;
        }
        if !arenite(&["tokenize", "-m", path(&file), "-p", "x"]).status.success() {
            continue; // a tokenizer that is not supported
        }
        let (out, _) = packed(&file, directory.path());
        assert_same_tokens(&file, &out);
        kinds += 1;
    }
    assert!(kinds >= 5, "{kinds}");
}

#[test]
fn packing_that_cannot_be() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (committed("host-demo/models/stories.gguf"), directory.path().join("out.gguf"));
    let (file, out) = (path(&file), path(&out));
    assert!(error(&["pack", file, out, "--align", "48"]).contains("power of two"));
    assert!(error(&["pack", path(&directory.path().join("none.gguf")), out]).contains("no such file"));
    let nowhere = directory.path().join("none/out.gguf");
    assert!(error(&["pack", file, path(&nowhere)]).contains("cannot write"));
    assert!(!Path::new(out).exists());
    assert_eq!(arenite(&["pack", file]).status.code(), Some(2));
}

/// Writes a copy of `file` with a change from byte `at` on.
fn damaged(file: &Path, at: usize, change: impl Fn(&mut [u8])) -> PathBuf {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes[at..]);
    let out = file.with_file_name("damaged.gguf");
    std::fs::write(&out, bytes).unwrap();
    out
}

#[test]
fn a_wrong_byte_names_its_tensor() {
    let directory = tempfile::tempdir().unwrap();
    let file = committed("tests/fixtures/llama_mha/F16.gguf");
    let quantized = directory.path().join("quantized.gguf");
    stdout(&["quantize", path(&file), path(&quantized), "Q8_0"]);
    for file in [packed(&file, directory.path()).0, quantized] {
        let whole = stdout(&["inspect", path(&file), "--verify"]);
        assert!(whole.contains("all 30 tensors") && whole.ends_with("match their hashes\n"), "{whole}");
        let tensors = json(&["inspect", "--json", path(&file)])["tensors"].clone();
        for tensor in tensors.as_array().unwrap() {
            let (start, bytes) = (tensor["offset"].as_u64().unwrap(), tensor["bytes"].as_u64().unwrap());
            for (at, bit) in [(start, 1), (start + bytes / 2, 8), (start + bytes - 1, 128)] {
                let damaged = damaged(&file, at as usize, |bytes| bytes[0] ^= bit);
                let error = error(&["inspect", path(&damaged), "--verify"]);
                assert!(error.contains(tensor["name"].as_str().unwrap()) && error.contains("is damaged"), "{error}");
            }
        }
        // A device's flash whose end was not written has only bytes 0xff there. With `--check-tensors`, every command
        // finds this damage.
        let len = std::fs::metadata(&file).unwrap().len() as usize;
        let damaged = damaged(&file, len - 5000, |bytes| bytes.fill(0xff));
        assert!(error(&["inspect", path(&damaged), "--verify"]).contains("is damaged"));
        assert!(error(&["generate", "-m", path(&damaged), "-p", "a", "--check-tensors"]).contains("is damaged"));
    }
    // Files of other programs have no hashes. In a packed file whose tensor was renamed by another program, the hashes
    // do not match the tensors any more.
    assert!(error(&["inspect", path(&file), "--verify"]).contains("has no hashes"));
    let packed = packed(&file, directory.path()).0;
    let bytes = std::fs::read(&packed).unwrap();
    let at = bytes.windows(18).position(|name| name == b"output_norm.weight").unwrap();
    let renamed = damaged(&packed, at, |bytes| bytes[..6].copy_from_slice(b"OUTPUT"));
    assert!(error(&["inspect", path(&renamed), "--verify"]).contains("hashes of other tensors"));
}
