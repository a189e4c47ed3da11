//! The commands, one per file.

mod batch;
mod bench;
mod chat;
mod classify;
mod completions;
mod convert;
mod convert_tokenizer;
mod corpus;
mod decide;
mod detokenize;
mod each_token;
mod embed;
mod generate;
mod grammar;
#[cfg(feature = "hub")]
mod hub;
mod imatrix;
mod index;
mod inspect;
mod listen;
mod log_probs;
mod logits;
mod man;
mod merge;
mod pack;
mod perplexity;
mod plan;
mod probe;
mod quantize;
mod rerank;
mod run;
mod sample;
mod score;
mod search;
mod serve;
mod tokenize;
mod translate;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::cli::ModelArgs;
use crate::formats;
use crate::{Invocation, foreign, output};

/// Run transformer language models from GGUF files
///
/// Without a command, tells a story with the model that is built into the binary.
#[derive(Debug, Parser)]
#[command(name = "arenite", version, propagate_version = true, max_term_width = 100, args_override_self = true)]
#[command(after_help = "Examples:
  arenite                                              tell a story with the built-in model
  arenite generate -m model.gguf -p \"The sea\" -n 100   continue a text
  arenite plan -m model.gguf                           show its memory needs and the boards it fits

`arenite COMMAND --help` shows the options of a command; `generate` is the default command. \
Exit codes: 0 success, 1 error, 2 wrong usage, 130 stopped with Ctrl-C.")]
pub struct Cli {
    #[command(flatten)]
    model: ModelArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Generate(generate::Args),
    Run(run::Args),
    Chat(chat::Args),
    Translate(translate::Args),
    Listen(listen::Args),
    Embed(embed::Args),
    Rerank(rerank::Args),
    Classify(classify::Args),
    Decide(decide::Args),
    Index(index::Args),
    Search(search::Args),
    Tokenize(tokenize::Args),
    Detokenize(detokenize::Args),
    Inspect(inspect::Args),
    Plan(plan::Args),
    Pack(pack::Args),
    Quantize(quantize::Args),
    Merge(merge::Args),
    Imatrix(imatrix::Args),
    Perplexity(perplexity::Args),
    Logits(logits::Args),
    Probe(probe::Args),
    Score(score::Args),
    Sample(sample::Args),
    Serve(serve::Args),
    Batch(batch::Args),
    Grammar(grammar::Args),
    Bench(bench::Args),
    Convert(convert::Args),
    #[cfg(feature = "hub")]
    Pull(hub::PullArgs),
    #[cfg(feature = "hub")]
    List(hub::ListArgs),
    #[cfg(feature = "hub")]
    Rm(hub::RmArgs),
    Completions(completions::Args),
    Man(man::Args),
}

/// Runs the command of `invocation`. If the command fails because the model file is not a model, the error describes the file.
pub fn run(mut cli: Cli, invocation: Invocation) -> Result<ExitCode> {
    if !matches!(&cli.command, Command::Serve(args) if args.takes_several()) {
        cli.model.model = cli.model.model.pop().into_iter().collect();
    }
    cli.model.fetch()?;
    let path = cli.model.file().map(Path::to_path_buf);
    dispatch(cli, invocation).map_err(|error| foreign::explained(path.as_deref(), error))
}

fn dispatch(cli: Cli, invocation: Invocation) -> Result<ExitCode> {
    let model = &cli.model;
    if model.raw {
        output::raw();
    }
    let done = match cli.command {
        Command::Generate(args) => return generate::run(&args, formats::open(model)?),
        Command::Run(args) => return run::run(&args, model),
        Command::Chat(args) => return chat::run(&args, formats::open(model)?),
        Command::Bench(args) => return bench::run(&args, model),
        Command::Translate(args) => return translate::run(&args, formats::open_translator(model)?),
        Command::Listen(args) => return listen::run(&args, formats::open(model)?),
        Command::Embed(args) => return embed::run(&args, formats::open(model)?),
        Command::Rerank(args) => return rerank::run(&args, formats::open(model)?),
        Command::Classify(args) => return classify::run(&args, formats::open(model)?),
        Command::Decide(args) => return decide::run(&args, formats::open(model)?),
        Command::Index(args) => return index::run(&args, model.file(), formats::open(model)?),
        Command::Search(args) => return search::run(&args, model),
        Command::Logits(args) => return logits::run(&args, formats::open(model)?),
        Command::Probe(args) => return probe::run(&args, formats::open(model)?),
        Command::Serve(args) => serve::run(&args, model, invocation),
        Command::Batch(args) => return batch::run(&args, formats::open(model)?),
        Command::Grammar(args) => return grammar::run(&args, &formats::open(model)?),
        Command::Sample(args) => return sample::run(&args, &formats::open(model)?),
        Command::Score(args) => return score::run(&args, formats::open(model)?),
        Command::Imatrix(args) => return imatrix::run(&args, formats::open(model)?),
        Command::Perplexity(args) => return perplexity::run(&args, formats::open(model)?),
        Command::Quantize(args) => return quantize::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Tokenize(args) => return tokenize::run(&args, &formats::open(model)?),
        Command::Detokenize(args) => return detokenize::run(&args, &formats::open(model)?),
        Command::Inspect(args) => inspect::run(&args, model),
        Command::Plan(args) => plan::run(&args, &formats::open(model)?),
        Command::Convert(args) => convert::run(&args),
        Command::Pack(args) => pack::run(&args),
        #[cfg(feature = "hub")]
        Command::Pull(args) => return hub::pull(&args, model.hf_token.as_deref()),
        #[cfg(feature = "hub")]
        Command::List(args) => hub::list(&args),
        #[cfg(feature = "hub")]
        Command::Rm(args) => return hub::rm(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_flag_of_llama_cpp_hides_an_own_flag() {
        for command in Cli::command().get_subcommands() {
            for own in command.get_arguments().filter_map(clap::Arg::get_long) {
                let typed = ["arenite", command.get_name(), &format!("--{own}=1")].map(std::ffi::OsString::from);
                let kept = crate::cli::llama::understand(typed.clone());
                assert_eq!(kept.map(|typed| typed.args).as_deref(), Ok(&typed[..]), "{} --{own}", command.get_name());
            }
        }
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command, name: &str) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example") && help.contains(name), "{name}");
            // clap wraps paragraphs, but not examples and tables.
            let wide = help.lines().find(|line| line.starts_with("  ") && line.len() > 100);
            assert_eq!(wide, None, "{name}");
            for command in command.get_subcommands() {
                check(command, &format!("{name} {}", command.get_name()));
            }
        }
        check(&Cli::command(), "arenite");
    }
}
