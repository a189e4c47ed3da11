//! `generate` under grammars and schemas at a high temperature: every complete answer must satisfy the schema.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

fn arenite() -> Command {
    Command::new(env!("CARGO_BIN_EXE_arenite"))
}

/// The answers to some prompts.
fn answers(args: &[&str], prompts: usize) -> Vec<Value> {
    let mut child = arenite()
        .args(["generate", "--jsonl", "--temp", "1.5", "--seed", "3"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines: String = (0..prompts).map(|i| format!("\"Number {i} is\"\n")).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const SCHEMAS: [&str; 10] = [
    r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["name", "age"]}"#,
    r#"{"type": "array", "items": {"type": "number", "minimum": -1.5, "maximum": 2.25}, "minItems": 1, "maxItems": 3}"#,
    r#"{"enum": ["red", "green", 3, null, {"a": [1]}]}"#,
    r#"{"type": "string", "pattern": "^[A-Z][a-z]{1,5}( [0-9]{2})?$"}"#,
    r#"{"type": "string", "format": "date-time"}"#,
    r#"{"oneOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["kind", "r"]}, {"type": "object", "properties": {"kind": {"const": "box"}, "sides": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 99}, "minItems": 2, "maxItems": 2}}, "required": ["kind", "sides"]}]}"#,
    r#"{"allOf": [{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}, {"properties": {"b": {"type": "string", "minLength": 2, "maxLength": 4}}, "required": ["b"]}]}"#,
    r##"{"$defs": {"t": {"type": "object", "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 9}, "next": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}}, "required": ["v"]}}, "$ref": "#/$defs/t"}"##,
    r#"{"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 2, "propertyNames": {"pattern": "^[a-z]{1,3}$"}}"#,
    r#"{"prefixItems": [{"type": "string", "maxLength": 3}, {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100}], "items": false, "minItems": 2}"#,
];

#[test]
fn answers_are_what_schemas_ask_for() {
    for schema in SCHEMAS {
        let validator = serde_json::from_str(schema)
            .map(|schema: Value| jsonschema::options().should_validate_formats(true).build(&schema).unwrap());
        let validator = validator.unwrap();
        let mut whole = 0;
        for answer in answers(&["--json-schema", schema], 20) {
            let text = answer["text"].as_str().unwrap();
            if matches!(answer["end"].as_str(), Some("length" | "context")) {
                continue; // reported as incomplete
            }
            let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{schema}: {text:?}: {error}"));
            assert!(validator.is_valid(&value), "{schema}: {text}");
            whole += 1;
        }
        assert!(whole >= 18, "{schema}: only {whole} of 20 came to an end");
    }
}

#[test]
fn a_grammar_is_followed_and_an_answer_that_is_cut_off_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("list.gbnf");
    std::fs::write(&file, "root ::= (\"- \" [a-z]{2,6} \"\\n\"){3}").unwrap();
    for answer in answers(&["--grammar", file.to_str().unwrap()], 10) {
        let lines: Vec<&str> = answer["text"].as_str().unwrap().lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| {
            let word = line.strip_prefix("- ").unwrap();
            (2..=6).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase())
        }));
    }
    let output = arenite()
        .args(["generate", "-p", "x", "-n", "2", "--seed", "1", "--json-schema", SCHEMAS[0]])
        .output()
        .unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("cut off (length)"));
    for (args, says) in [
        (["--json-schema", r#"{"properties": {"when": {"pattern": "("}}}"#], "$.properties.when.pattern: "),
        (["--grammar", "root ::= other"], "1:10: the rule `other` is not defined"),
    ] {
        let output = arenite().args(["generate", "-p", "x"]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        assert!(String::from_utf8(output.stderr).unwrap().contains(says), "{args:?}");
    }
}

#[test]
fn guesses_change_nothing() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories.gguf");
    let words = ["cat", "dog", "little girl", "red ball", "tree"];
    let prompts: String = (0..50)
        .map(|i| {
            let (a, b) = (words[i % 5], words[i / 5 % 5]);
            // Some prompts contain a sentence several times.
            let again = format!("The {a} and the {b}. ").repeat(i % 4);
            format!("\"{again}The {a} and\"\n")
        })
        .collect();
    let run = |more: &[&str]| {
        let mut child = arenite()
            .args(["generate", "--jsonl", "-n", "30", "-c", "256", "--seed", "5"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(prompts.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let schema = r#"{"type": "array", "items": {"enum": ["a cat", "a dog"]}, "minItems": 3, "maxItems": 6}"#;
    let hot = ["--temp", "1", "--repeat-penalty", "1.1"];
    let constrained = ["--temp", "1", "--json-schema", schema];
    for (sampling, guesses) in [
        (&["--temp", "0"][..], &[&["--lookup", "1"][..], &["--lookup", "7"], &["--draft", model]][..]),
        (&hot, &[&["--lookup", "7"], &["--draft", model, "--draft-max", "3"]]),
        (&constrained, &[&["--lookup", "5"]]),
    ] {
        let alone = run(sampling);
        assert_eq!(alone.lines().count(), 50);
        for guess in guesses {
            assert_eq!(run(&[sampling, guess].concat()), alone, "{sampling:?} {guess:?}");
        }
    }
}

#[test]
fn a_compiled_grammar_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (source, table) = (dir.path().join("list.gbnf"), dir.path().join("list.table"));
    std::fs::write(&source, "root ::= [a-z]+ (\", \" [a-z]+)*").unwrap();
    let mut child = arenite()
        .args(["grammar", "--try"])
        .args([&source, &table])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\"a, bc\"\n\"a,\"\n\"a,b\"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "{\"text\":\"whole\"}\n{\"text\":\"beginning\"}\n{\"text\":\"neither\"}\n");
    let table = std::fs::read(table).unwrap();
    let grammar = arenite::grammar::Grammar::new(&table).unwrap();
    let mut state = arenite::grammar::State::new(&grammar);
    assert!(state.accept(&grammar, b"ab".iter().copied()) && state.is_complete());
    // A schema with a syntax error is not taken for a grammar.
    let broken = dir.path().join("broken.json");
    std::fs::write(&broken, "\"type\": \"string\"}").unwrap();
    let output = arenite().args(["grammar", "--try"]).arg(&broken).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("broken.json is not JSON"), "{said}");
}
