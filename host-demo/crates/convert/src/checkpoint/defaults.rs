//! Default values of transformers' configuration classes, which a `config.json` need not list.
//!
//! `defaults.py` writes the table from the classes of transformers 5.24. In five classes, transformers 4 has different
//! rotary bases; they apply to folders that transformers 4 wrote.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

/// The default values of each configuration class, by `model_type`. A damaged table counts as empty; a test checks that
/// the table can be read.
static TABLE: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("defaults.json")).unwrap_or_default());

/// Models of type `kind` contain a text model. Returns the type of this text model, for configs that do not name it.
pub fn text_type(kind: &str) -> Option<&'static str> {
    TABLE[kind]["text"].as_str()
}

/// Returns true if the configuration class has this field, with a default other than null.
pub fn has(kind: &str, name: &str) -> bool {
    TABLE[kind]["fields"].get(name).is_some()
}

/// Returns true if global layers and local layers have separate rotary parameters.
pub fn has_local_rope(kind: &str) -> bool {
    TABLE[kind]["rope"]["full_attention"].is_object()
}

/// Adds the fields that are absent. A field whose value is null is not absent. A field that is present under an
/// alternative name is copied to the name that the class uses.
pub fn fill(kind: &str, values: &mut Map<String, Value>) {
    let entry = &TABLE[kind];
    for (other, own) in entry["alias"].as_object().into_iter().flatten() {
        if let (Some(value), Some(own)) = (values.get(other).cloned(), own.as_str())
            && !values.contains_key(own)
        {
            values.insert(own.to_owned(), value);
        }
    }
    for (name, value) in entry["fields"].as_object().into_iter().flatten() {
        // Some classes declare a field under its alternative name.
        let own = entry["alias"][name].as_str().unwrap_or(name);
        values.entry(own).or_insert_with(|| value.clone());
    }
}

/// Completes rotary parameters. `is_stated` is true if the config has an object with these parameters: then only the
/// base and the share of rotated dimensions are completed. `version` is the version of transformers that wrote the
/// folder.
pub fn fill_rope(kind: &str, version: &str, is_stated: bool, rope: &mut Map<String, Value>) {
    let (global, local) = ("full_attention", "sliding_attention");
    let mut defaults = TABLE[kind]["rope"].clone();
    if let (true, Some(base)) = (version.starts_with("4."), TABLE[kind].get("base_before_5")) {
        match defaults[global].is_object() {
            true => [global, local].into_iter().for_each(|part| defaults[part]["rope_theta"] = base.clone()),
            false => defaults["rope_theta"] = base.clone(),
        }
    }
    let defaults = &defaults;
    if let (true, Some(whole)) = (rope.is_empty(), defaults.as_object()) {
        rope.clone_from(whole);
        return;
    }
    let always = ["rope_theta", "partial_rotary_factor"];
    let complete = |part: &mut Map<String, Value>, defaults: &Value| {
        for (name, value) in defaults.as_object().into_iter().flatten() {
            if !is_stated && !value.is_object() || always.contains(&name.as_str()) {
                part.entry(name).or_insert_with(|| value.clone());
            }
        }
    };
    if !defaults[global].is_object() {
        return complete(rope, defaults);
    }
    if rope.contains_key(global) || rope.contains_key(local) {
        for name in [global, local] {
            let part = rope.entry(name).or_insert_with(|| json!({}));
            part.as_object_mut().into_iter().for_each(|part| complete(part, &defaults[name]));
        }
        return;
    }
    complete(rope, &defaults[global]);
    // In families whose global and local layers have the same default base, a base in the config applies to both. In
    // all others, local layers keep their own default.
    let base = &defaults[local]["rope_theta"];
    if *base != defaults[global]["rope_theta"] && !rope.contains_key(local) {
        rope.insert(local.to_owned(), json!({ "rope_theta": base }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_and_other_spellings() {
        let mut values = json!({"num_experts": 6, "rms_norm_eps": null}).as_object().unwrap().clone();
        fill("qwen3_moe", &mut values);
        assert_eq!((&values["num_local_experts"], &values["num_experts_per_tok"]), (&json!(6), &json!(8)));
        assert_eq!((&values["rms_norm_eps"], text_type("internvl")), (&Value::Null, Some("qwen2")));
        let mut values = json!({"num_experts": 6}).as_object().unwrap().clone();
        fill("kimi_linear", &mut values);
        assert_eq!((&values["num_experts"], values.get("num_local_experts")), (&json!(6), None));
    }

    /// The expected defaults come from `Gemma3TextConfig`, `GptOssConfig` and `GlmConfig` in transformers 5.24.
    #[test]
    fn rotary_parameters() {
        for (kind, stated, whole) in [
            (
                "gemma3_text",
                json!({"rope_theta": 5}),
                json!({"rope_theta": 5, "sliding_attention": {"rope_theta": 1e4}}),
            ),
            (
                "gemma3_text",
                json!({"full_attention": {"rope_type": "linear", "factor": 8}}),
                json!({
                    "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
                    "sliding_attention": {"rope_theta": 1e4},
                }),
            ),
            ("gpt_oss", json!({"rope_type": "default"}), json!({"rope_type": "default", "rope_theta": 150_000.0})),
            ("glm", json!({"rope_theta": 5}), json!({"rope_theta": 5, "partial_rotary_factor": 0.5})),
            ("unheard_of", json!({}), json!({})),
        ] {
            let mut rope = stated.as_object().unwrap().clone();
            fill_rope(kind, "5.24.0", !rope.is_empty(), &mut rope);
            assert_eq!(Value::from(rope), whole, "{kind}");
        }
        let mut rope = Map::new();
        fill_rope("gpt_oss", "4.57.6", false, &mut rope);
        assert_eq!((&rope["rope_type"], &rope["factor"]), (&json!("yarn"), &json!(32.0)));
        for (kind, version, base) in [("cohere", "4.49.0", 1e4), ("cohere", "5.24.0", 5e5), ("cohere", "", 5e5)] {
            let mut rope = Map::new();
            fill_rope(kind, version, false, &mut rope);
            assert_eq!(rope["rope_theta"], base, "{kind} {version}");
        }
    }
}
