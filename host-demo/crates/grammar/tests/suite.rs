//! Compares the values that grammars allow with the values that JSON-Schema-Test-Suite calls valid: the required cases of
//! draft 2020-12 and the cases of formats. The result is a table by keyword.

use std::fmt::Write as _;
use std::path::Path;

use arenite::grammar::{Grammar, State};
use arenite_grammar::{Budget, from_json_schema};
use serde_json::Value;

#[derive(Default)]
struct Row {
    equal: usize,
    /// Number of test cases whose schema is refused. The error names the keyword that is not supported.
    refused: usize,
    /// Number of invalid values that the grammar allows. Each of them is a difference that the grammar names.
    wider: usize,
    /// Number of valid values that the grammar does not generate. Each of them is a difference that the grammar names.
    narrower: usize,
    /// Number of valid values that the grammar generates only in a different form: with another spelling or order.
    form: usize,
}

fn allows(table: &[u8], text: &str) -> bool {
    let grammar = Grammar::new(table).unwrap();
    let mut state = State::new(&grammar);
    state.accept(&grammar, text.bytes()) && state.is_complete()
}

fn row(groups: &Value) -> Row {
    let mut row = Row::default();
    for group in groups.as_array().unwrap() {
        let cases = group["tests"].as_array().unwrap();
        let Ok(table) = from_json_schema(&group["schema"], &Budget::of_command()) else {
            row.refused += cases.len();
            continue;
        };
        for case in cases {
            let (schema, value) = (&group["schema"], &case["data"]);
            *match (allows(&table, &value.to_string()), case["valid"].as_bool().unwrap()) {
                (true, false) => {
                    let named = table.differences().iter().any(|difference| !difference.contains(" is generated"));
                    assert!(named, "wider without a word: {schema} {value}");
                    &mut row.wider
                }
                (false, true) if table.differences().iter().any(|difference| difference.contains(" is generated")) => {
                    &mut row.narrower
                }
                (false, true) => &mut row.form,
                _ => &mut row.equal,
            } += 1;
        }
    }
    row
}

#[test]
#[ignore = "needs JSON_SCHEMA_SUITE, the suite's folder `tests/draft2020-12`: `.ci/schemas` has it"]
fn grammars_beside_the_suite() {
    let root = std::env::var("JSON_SCHEMA_SUITE").unwrap();
    let mut table =
        format!("{:38}{:>8}{:>8}{:>8}{:>10}{:>6}\n", "keyword", "equal", "refused", "wider", "narrower", "form");
    for folder in ["", "optional/format/"] {
        let mut files: Vec<_> =
            std::fs::read_dir(Path::new(&root).join(folder)).unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        for file in files {
            let name = format!("{folder}{}", file.file_stem().unwrap().to_str().unwrap());
            let row = row(&serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap());
            let Row { equal, refused, wider, narrower, form } = row;
            writeln!(table, "{name:38}{equal:8}{refused:8}{wider:8}{narrower:10}{form:6}").unwrap();
        }
    }
    assert_eq!(table, include_str!("suite.txt"), "{table}");
}
