//! Compares families without a fixture with llama.cpp, whose logits `tests/fixtures/peers.py` wrote to `peers.json`.

use arenite::KvType;
use arenite::model::family_feature;

use crate::common::fixtures::committed;
use crate::common::peers::{PEERS, peer, text};
use crate::common::run::Run;

/// The first 32 logits of a text's last token equal llama.cpp's.
#[test]
fn logits_of_llama_cpp() {
    let file = std::fs::read_to_string(committed().join("peers.json")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&file).unwrap();
    for family in PEERS {
        let want: Vec<f32> =
            all[family.architecture].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
        let bytes = peer(family).build();
        let mut run = Run::new(&bytes, |options| options.kv = KvType::F32);
        let logits = run.all(&text()).pop().unwrap();
        let most = want.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let error = want.iter().zip(&logits).fold(0.0f32, |error, (want, got)| error.max((want - got).abs())) / most;
        let limit = if family.is_rough { 2e-3 } else { 2e-5 };
        assert!(want.len() == 32 && error <= limit, "{}: {error:e}", family.architecture);
    }
}

/// The list of llama.cpp's architectures in the repository, which `architectures.py` writes, agrees with the families.
#[test]
fn list_of_architectures() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/README.md");
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("SKIP: benches/peers/README.md is missing, as in the published crate");
        return;
    };
    let list = text.split("<!-- architectures -->").nth(1).unwrap().split("<!-- end -->").next().unwrap();
    let (runs, others) = list.split_once("| does not run").unwrap();
    let names: Vec<&str> = runs.split('`').skip(1).step_by(2).collect();
    assert!(names.len() > 100);
    for name in names {
        assert!(family_feature(name).is_some(), "{name} does not run");
    }
    for row in others.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, _) = row.split_once('`').unwrap();
        assert!(family_feature(name).is_none(), "{name} runs");
    }
}

/// Writes the models and the ids to the directory `ARENITE_PEERS`, for `peers.py`.
#[test]
#[ignore = "writes files"]
fn files_for_llama_cpp() {
    let Some(directory) = std::env::var_os("ARENITE_PEERS").map(std::path::PathBuf::from) else { return };
    for family in PEERS {
        std::fs::write(directory.join(format!("{}.gguf", family.architecture)), peer(family).build()).unwrap();
    }
    std::fs::write(directory.join("ids.json"), format!("{:?}", text())).unwrap();
}
