//! Prints a value that conforms to a JSON schema: `cargo run --release -p host-demo --example json` in `host-demo`.
use arenite_run::{Loaded, RunOptions, Value};

fn main() -> arenite_run::Result<()> {
    let model = Loaded::open("models/stories.gguf", RunOptions::default())?;
    let schema = r#"{"properties": {"name": {"enum": ["Tom", "Lily"]}, "age": {"type": "integer", "maximum": 9}}}"#;
    let child: Value = model.json("There was a child:", schema)?;
    println!("{child}");
    Ok(())
}
