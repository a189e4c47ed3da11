//! Tests `arenite plan`, and types that are chosen for a certain processor.

use serde_json::Value;

use crate::common::{arenite, committed, error, json, path, stdout};

const STORIES: &str = "host-demo/models/stories.gguf";

#[test]
fn boards_have_another_flash_chip_and_are_found_without_spaces() {
    let board = |args: &[&str]| json(&[&["plan", "-c", "64", "--json"], args].concat())["boards"][0].clone();
    let (pico, same) = (board(&["--board", "Raspberry Pi Pico 2"]), board(&["--board", "pico2"]));
    assert_eq!((&pico, pico["flash_bytes"].as_u64()), (&same, Some(4 << 20)));
    assert_eq!(board(&["--board", "esp32s3"])["chip"], "ESP32-S3");
    let other = board(&["--board", "pico2", "--flash", "16M"]);
    assert_eq!(other["flash_bytes"].as_u64(), Some(16 << 20));
    let spare = |board: &Value| board["spare_flash_bytes"].as_u64().unwrap();
    assert_eq!(spare(&other), spare(&pico) + (12 << 20));
    assert!(error(&["plan", "--board", "Raspberry Pi 5", "--flash", "16M"]).contains("leave --flash out"));
    assert_eq!(arenite(&["plan", "--board", "pico2", "--target", "riscv32imac"]).status.code(), Some(2));
    // `-c 0` is the model's own context.
    assert_eq!(json(&["plan", "-c", "0", "--json"])["kv_bytes"], json(&["plan", "-c", "512", "--json"])["kv_bytes"]);
}

#[test]
fn plans_are_consistent_in_every_form() {
    let plan = json(&["plan", "-c", "128", "-b", "4", "--kv", "q8_0", "--json"]);
    let number = |key: &str| plan[key].as_u64().unwrap_or_else(|| panic!("{key} in {plan}"));
    assert_eq!(number("ram_bytes"), number("workspace_bytes") + number("kv_bytes") + number("tokenizer_bytes"));
    let rust = stdout(&["plan", "-c", "128", "-b", "4", "--kv", "q8_0", "--rust"]);
    assert!(rust.contains(&format!("pub const WORKSPACE_BYTES: usize = {};", number("workspace_bytes"))), "{rust}");
    assert!(rust.contains(&format!("pub const KV_BYTES: usize = {};", number("kv_bytes"))), "{rust}");
    assert!(stdout(&["plan", "-c", "128", "-b", "4", "--kv", "q8_0"]).contains(&number("kv_bytes").to_string()));

    // A board that the user describes. The size of the program in flash depends on its features, which the output
    // lists.
    let own = |flash: &str| json(&["plan", "-c", "64", "--flash", flash, "--ram", "128K,96K", "--json"]);
    let plan = own("3M");
    assert_eq!(plan["features"], serde_json::json!(["kv-f16", "llama", "q8_0"]));
    assert_eq!(plan["boards"].as_array().map(Vec::len), Some(1));
    assert_eq!((&plan["boards"][0]["fits"], &plan["boards"][0]["ram_bytes"]), (&true.into(), &(224 << 10).into()));
    let needed = plan["flash_bytes"].as_u64().unwrap_or(0) + plan["reserved_flash_bytes"].as_u64().unwrap_or(0);
    assert_eq!(own(&needed.to_string())["boards"][0]["fits"], true);
    assert_eq!(own(&(needed - 1).to_string())["boards"][0]["fits"], false);

    // A smaller type and a shorter context need less memory.
    let kv = |args: &[&str]| json(&[&["plan", "--json"][..], args].concat())["kv_bytes"].as_u64();
    assert!(kv(&["-c", "128", "--kv", "q8_0"]) < kv(&["-c", "128", "--kv", "f16"]));
    assert!(kv(&["-c", "128", "--kv", "f16"]) < kv(&["-c", "128", "--kv", "f32"]));
    assert!(kv(&["-c", "64"]) < kv(&["-c", "128"]));
    // If no drafts are made, the memory that `generate` uses is exactly the memory that `plan` states.
    let args = ["generate", "-n", "1", "-c", "128", "-b", "4", "-t", "1", "--draft", "off", "--format", "json"];
    let stats = &json(&args)["stats"];
    let plan = json(&["plan", "-c", "128", "-b", "4", "--json"]);
    for key in ["workspace_bytes", "kv_bytes"] {
        assert_eq!(stats[key], plan[key], "{key}");
    }
}

#[test]
fn a_recommendation_fits_its_board() {
    let recommended = |more: &[&str]| json(&[&["plan", "--recommend", "--json"][..], more].concat());
    let found = recommended(&["--board", "pico 2", "-c", "256"]);
    assert_eq!((&found["batch"], &found["context"], &found["quantize_to"]), (&1.into(), &256.into(), &Value::Null));
    let kv = found["kv"].as_str().expect("a cache");
    let plan = json(&["plan", "--board", "Raspberry Pi Pico 2", "-c", "256", "--kv", kv, "--json"]);
    for key in ["features", "workspace_bytes", "kv_bytes", "static_bytes", "reserved_flash_bytes"] {
        let planned = if key == "reserved_flash_bytes" { &plan["boards"][0][key] } else { &plan[key] };
        assert_eq!(&found[key], planned, "{key}");
    }
    assert_eq!(plan["boards"][0]["fits"], true);
    let c = stdout(&["plan", "--board", "pico 2", "-c", "256", "--recommend", "--c"]);
    assert!(c.contains(&format!("#define MODEL_KV_BYTES {}u\n", found["kv_bytes"])), "{c}");
    assert!(c.contains(&format!("#define MODEL_KV ARENITE_KV_{}\n", kv.to_uppercase())), "{c}");

    // A model with F32 weights does not fit into the flash of this board. The board's core has no floating-point unit,
    // and so no fast kernel for them.
    let directory = tempfile::tempdir().unwrap();
    let floats = directory.path().join("floats.gguf");
    stdout(&["quantize", path(&committed(STORIES)), path(&floats), "F32", "--allow-requantize"]);
    let own = ["-m", path(&floats), "--flash", "3M", "--ram", "256K", "--target", "thumbv6m"];
    let found = recommended(&own);
    assert_eq!(found["quantize_to"], "Q8_0");
    assert!(found["reasons"][0].as_str().is_some_and(|reason| reason.contains("cortex-m0+")), "{found}");
    let text = error(&["plan", "--recommend", "-m", path(&floats), "--flash", "512K", "--ram", "256K"]);
    assert!(text.contains("larger than the flash"), "{text}");
    assert!(error(&["plan", "--recommend"]).contains("--board"));
    assert!(error(&["plan", "--board", "toaster"]).contains("Teensy 4.1"));
}

#[test]
fn a_file_for_a_core_has_types_with_kernels() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("for.gguf");
    let types = |args: &[&str]| -> Vec<String> {
        let model = committed(STORIES);
        stdout(&[&["quantize", path(&model), path(&output)][..], args, &["--allow-requantize"]].concat());
        let report = json(&["inspect", path(&output), "--json"]);
        report["totals"].as_object().expect("types").keys().cloned().collect()
    };
    assert!(types(&["IQ3_S"]).iter().any(|kind| kind.starts_with("IQ")));
    let without = types(&["IQ3_S", "--for", "cortex-m0+"]);
    assert!(!without.iter().any(|kind| kind.starts_with("IQ")), "{without:?}");
}
