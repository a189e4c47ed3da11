//! Tests models in several files by running the binary.

use std::path::Path;

use crate::common::{arenite, committed, error, json, npy, path, stdout};

/// The logits of a few tokens.
fn logits(model: &Path) -> Vec<f32> {
    let out = model.with_extension("npy");
    stdout(&["logits", "-m", path(model), "--ids", "1,5,9,20,33", "--all", "-o", path(&out)]);
    npy(&out).1
}

#[test]
fn pieces_run_and_are_quantized_and_joined() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let whole = at("whole.gguf");
    std::fs::copy(committed("tests/fixtures/llama_mha/F16.gguf"), &whole).unwrap();
    let output = arenite(&["pack", path(&whole), path(&at("m.gguf")), "--split-max-size", "150K"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pieces: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let pieces: Vec<_> = pieces.iter().filter(|path| path != &&whole).collect();
    let count = pieces.len();
    assert!((3..9).contains(&count) && pieces.iter().all(|piece| piece.metadata().unwrap().len() <= 150_000));
    let first = at(&format!("m-00001-of-{count:05}.gguf"));

    // However the model is loaded, the logits are the same, and all tensors are listed and verified.
    let expected = logits(&whole);
    assert!(logits(&first) == expected);
    for load in ["map", "copy"] {
        if load == "map" || cfg!(target_os = "linux") {
            let args =
                ["generate", "--ids", "1", "-n", "9", "--temp", "0", "--format", "ids", "--ignore-eos", "--load", load];
            let ids = |model: &Path| stdout(&[&args[..], &["-m", path(model)]].concat());
            assert_eq!(ids(&first), ids(&whole));
        }
    }
    let names = |model: &Path| -> Vec<String> {
        let tensors = json(&["inspect", "--json", path(model)])["tensors"].clone();
        tensors.as_array().unwrap().iter().map(|tensor| tensor["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&first), names(&whole));
    assert!(stdout(&["inspect", path(&first)]).contains(&format!("in {count} pieces")));
    assert!(stdout(&["inspect", path(&first), "--verify"]).contains("all 30 tensors"));

    // A split model is quantized to one file, and to as many files as before. The logits are those of the quantized
    // whole model, and the hashes are correct.
    let quantized = |model: &Path, name: &str, more: &[&str]| {
        let out = at(name);
        stdout(&[&["quantize", path(model), path(&out), "Q8_0"], more].concat());
        out
    };
    let expected = logits(&quantized(&whole, "q.gguf", &[]));
    let joined = quantized(&first, "joined.gguf", &[]);
    assert!(logits(&joined) == expected && names(&joined).len() == 30);
    quantized(&first, "kept.gguf", &["--keep-split"]);
    let kept = at(&format!("kept-00001-of-{count:05}.gguf"));
    assert!(logits(&kept) == expected && names(&kept).len() == 30);
    for model in [&joined, &kept] {
        assert!(stdout(&["inspect", path(model), "--verify"]).contains("all 30 tensors"));
    }

    // `pack` joins the pieces and drops their keys.
    let packed = at("packed.gguf");
    stdout(&["pack", path(&first), path(&packed)]);
    assert!(logits(&packed) == logits(&whole));
    let keys = json(&["inspect", "--json", path(&packed)])["metadata"].clone();
    assert!(keys.as_object().unwrap().keys().all(|key| !key.starts_with("split.")));

    // Each of these is an error: a wrong byte in one of the files of a split model, a missing file, a command that
    // names a file other than the first, and a maximum size that is too small.
    let last = at(&format!("m-{count:05}-of-{count:05}.gguf"));
    let bytes = std::fs::read(&last).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() - 500] ^= 1;
    std::fs::write(&last, damaged).unwrap();
    assert!(error(&["inspect", path(&first), "--verify"]).contains("is damaged"));
    std::fs::remove_file(&last).unwrap();
    let message = error(&["inspect", path(&first)]);
    assert!(message.contains(path(&last)) && message.contains(&format!("piece {count} of {count}")), "{message}");
    std::fs::write(&last, bytes).unwrap();
    assert!(error(&["inspect", path(&last)]).contains(&format!("give {}", path(&first))));
    for size in ["100", "20K"] {
        let message = error(&["pack", path(&whole), path(&at("small.gguf")), "--split-max-size", size]);
        assert!(message.contains("more than a piece") || message.contains("does not fit"), "{message}");
    }
}
