//! The program prints exactly the output that the README shows for its examples with the built-in model.

use std::process::Command;

use crate::common::stdout;

const README: &str = include_str!("../../README.md");

/// The blocks of the README that are marked with `mark`.
fn blocks(mark: &str) -> impl Iterator<Item = &'static str> {
    README.split(mark).skip(1).filter_map(|rest| rest.split_once("\n```").map(|(block, _)| block))
}

#[test]
fn the_output_in_the_readme_is_that_of_the_program() {
    let mut count = 0;
    for block in blocks("```console\n") {
        let (command, printed) = block.split_once('\n').unwrap();
        let arguments = command.strip_prefix("$ arenite ").expect("a command");
        if arguments.contains("-m ") {
            continue; // needs a file
        }
        let run = format!("exec {} {arguments}", env!("CARGO_BIN_EXE_arenite"));
        let output = Command::new("sh").arg("-c").arg(run).output().expect("a shell");
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), printed, "{command}");
        count += 1;
    }
    assert!(count > 0);
    let plan = README.split_once("## The output of `arenite plan`").expect("the section").1;
    let plan = plan.split_once("```text\n").and_then(|(_, rest)| rest.split_once("\n```")).expect("a block").0;
    assert_eq!(stdout(&["plan"]).trim_end(), plan);
}
