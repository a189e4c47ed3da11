//! Adds flags to words without a flag: a model, a prompt, a file. A command can then read all of them as flags.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Arg, Command};

use super::pictures::is_picture;

/// Extensions of model files. A word with such an extension is a model even if the file does not exist.
const MODELS: [&str; 2] = ["gguf", "bin"];

/// Inserts the missing command into a command line that begins with a model or a prompt.
pub fn with_command(mut args: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let first = find(&args, 1, program).next();
    if let Some(at) = first.filter(|at| program.find_subcommand(&args[*at]).is_none()) {
        if is_model(&args[at]) {
            args.insert(at, "run".into());
        } else if args[at].as_encoded_bytes().contains(&b' ') {
            args.splice(at..at, ["generate".into(), "-p".into()]);
        }
    }
    args
}

/// Inserts flags before the words of a command line that have no flag. `program` describes the commands. Words for
/// which no flag fits are not changed, so that they are reported as errors.
pub fn placed(mut args: Vec<OsString>, program: &mut Command) -> Vec<OsString> {
    program.build(); // gives the commands their global flags
    let Some(at) = find(&args, 1, program).next() else { return args };
    let Some(command) = program.find_subcommand(&args[at]) else { return args };
    let own = command.get_positionals().count();
    let takes_all = command.get_positionals().any(|arg| arg.get_num_args().is_some_and(|count| count.max_values() > 1));
    let parses_words = command.get_positionals().any(Arg::is_trailing_var_arg_set);
    if command.has_subcommands() || parses_words || args.iter().any(|arg| arg == "--") {
        return args;
    }
    let words: Vec<usize> = find(&args, at + 1, command).collect();
    let has = |long: &str| command.get_arguments().any(|arg| arg.get_long() == Some(long) && !arg.is_hide_set());
    let given =
        |long: &str| args.iter().any(|arg| names(command, arg).is_some_and(|known| known.get_long() == Some(long)));
    let takes_several = command.get_name() == "serve";
    let mut has_model = given("model") || given("hf") || !has("model");
    let mut has_text = given("prompt") || given("file") || given("ids");
    // A command that takes any number of texts gets all words. Only the first word can be a model, if no option has
    // named a model.
    let spare = match takes_all {
        true => usize::from(!has_model && words.len() > own && is_model(&args[words[0]])),
        false => words.len().saturating_sub(own),
    };
    let mut flags = Vec::new();
    for word in words.into_iter().take(spare) {
        let names_model = is_model(&args[word]) || own == 0 && !has("prompt");
        let flag = if !has_model && names_model {
            has_model = !takes_several;
            "--model"
        } else if has("image") && is_picture(Path::new(&args[word])) {
            "--image"
        } else if !has_text && has("file") && Path::new(&args[word]).is_file() {
            has_text = true;
            "--file"
        } else if !has_text && has("prompt") {
            has_text = true;
            "--prompt"
        } else {
            continue;
        };
        flags.push((word, flag));
    }
    for (word, flag) in flags.into_iter().rev() {
        args.insert(word, flag.into());
    }
    args
}

/// Returns the positions of the words from `start` on that are neither flags nor values of flags.
fn find<'c>(args: &'c [OsString], start: usize, command: &'c Command) -> impl Iterator<Item = usize> + 'c {
    let mut at = start;
    std::iter::from_fn(move || {
        while let Some(arg) = args.get(at) {
            at += 1;
            if !arg.as_encoded_bytes().starts_with(b"-") || arg == "-" {
                return Some(at - 1);
            }
            let takes_value = names(command, arg).is_some_and(|flag| {
                flag.get_action().takes_values() && flag.get_num_args().is_none_or(|count| count.min_values() > 0)
            });
            // The value may be part of the argument: --temp=1, -n5.
            let text = arg.to_string_lossy();
            at += usize::from(takes_value && !text.contains('=') && (text.starts_with("--") || text.len() == 2));
        }
        None
    })
}

/// The flag of `command` that an argument names.
fn names<'c>(command: &'c Command, arg: &OsStr) -> Option<&'c Arg> {
    let text = arg.to_str()?;
    let is = |flag: &&Arg| match text.strip_prefix("--") {
        Some(long) => {
            let long = long.split('=').next();
            long == flag.get_long()
                || flag.get_all_aliases().unwrap_or_default().into_iter().any(|name| Some(name) == long)
        }
        None => text
            .strip_prefix('-')
            .and_then(|short| short.chars().next())
            .is_some_and(|name| flag.get_short() == Some(name)),
    };
    command.get_arguments().find(is)
}

fn is_model(word: &OsStr) -> bool {
    let path = Path::new(word);
    path.extension().is_some_and(|extension| MODELS.iter().any(|model| extension == *model))
        || path.is_dir()
        || word.to_str().is_some_and(|word| word.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Cli;
    use clap::CommandFactory;

    #[test]
    fn words_get_the_flag_that_they_stand_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = file.path().to_str().unwrap();
        for (typed, want) in [
            ("a chat M.gguf", "a chat --model M.gguf"),
            ("a chat M.gguf Hello", "a chat --model M.gguf --prompt Hello"),
            ("a chat -m M.gguf Hello", "a chat -m M.gguf --prompt Hello"),
            ("a chat --temp 0 Hello -n 5", "a chat --temp 0 --prompt Hello -n 5"),
            ("a serve M.gguf N.gguf --port 0", "a serve --model M.gguf --model N.gguf --port 0"),
            ("a bench M.gguf -p 64", "a bench --model M.gguf -p 64"),
            ("a plan M.gguf", "a plan --model M.gguf"),
            ("a listen M.gguf a.wav", "a listen --model M.gguf a.wav"),
            ("a listen -m M.gguf a.wav", "a listen -m M.gguf a.wav"),
            ("a listen -m M.gguf a.wav b.wav", "a listen -m M.gguf a.wav b.wav"),
            ("a listen M.gguf a.wav b.wav c.wav", "a listen --model M.gguf a.wav b.wav c.wav"),
            ("a merge M.gguf L.gguf O.gguf", "a merge M.gguf L.gguf O.gguf"),
            ("a inspect M.gguf", "a inspect M.gguf"),
            ("a quantize a.gguf b.gguf q8_0", "a quantize a.gguf b.gguf q8_0"),
            ("a M.gguf -n 5", "a run M.gguf -n 5"),
            ("a generat x", "a generat x"),
            ("a generate -p x y", "a generate -p x y"),
            ("a generate --temp=1 x", "a generate --temp=1 --prompt x"),
            ("a tokenize -- -x", "a tokenize -- -x"),
            (&format!("a embed E.gguf {text}"), &format!("a embed --model E.gguf --file {text}")),
        ] {
            let typed = typed.split(' ').map(OsString::from).collect();
            let got: Vec<_> = placed(with_command(typed, &Cli::command()), &mut Cli::command())
                .into_iter()
                .map(|arg| arg.into_string().unwrap())
                .collect();
            assert_eq!(got.join(" "), want);
        }
        let story = with_command(["a", "Once upon a time"].map(OsString::from).to_vec(), &Cli::command());
        assert_eq!(story, ["a", "generate", "-p", "Once upon a time"]);
    }
}
