//! Accepts command lines written for llama.cpp's programs and ollama: translates flags with one dash and several
//! letters, and names of flags and commands that differ. Flags that have no effect here are accepted with a message.
//! Flags that cannot be followed are refused with advice.

use std::ffi::{OsStr, OsString};

use Meaning::{Alias, Ignored, Refused, Unless};
use Value::{Maybe, No, Yes};

/// The value of a flag: none, required or optional.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    No,
    Yes,
    /// Optional: on, off, auto, 0 or 1.
    Maybe,
}

/// How this program treats a flag of llama.cpp.
#[derive(Clone, Copy)]
enum Meaning {
    /// Renamed to this flag.
    Alias(&'static str),
    /// Accepted without an effect, for this reason.
    Ignored(&'static str),
    /// Refused with this advice.
    Refused(&'static str),
    /// If the flag has this value, which turns a step or a limit off, it is accepted and has no effect. Any other value
    /// is refused with this advice.
    Unless(f64, &'static str),
}

/// Advice of `generate` for flags that need a conversation.
const CHAT: Meaning = Refused("use `arenite chat` for a conversation");
const NO_GPU: Meaning = Ignored("the model runs on the CPU");
const MAPPED: Meaning = Ignored("--load map maps the file, --load copy copies it to memory");
const IN_FILE: Meaning = Refused("these values come from the model file: change them with a converter");
const NO_VECTORS: Meaning = Refused("control vectors are not supported: train an adapter, and give it with --lora");
const ALREADY: Meaning = Ignored("this is the default");
const SHARED: Meaning = Ignored("prompts share one cache, and common prefixes are always reused");

/// A flag of llama.cpp: its names, whether a value follows the flag, and its meaning.
type Flag = (&'static [&'static str], Value, Meaning);

/// Flags for the model and the machine, for all commands that run a model.
const MACHINE: &[Flag] = &[
    (&["-ctk", "--cache-type-k"], Yes, Alias("--kv")),
    (&["-ctv", "--cache-type-v"], Yes, Ignored("--kv sets both keys and values")),
    (&["-ngl", "--gpu-layers", "--n-gpu-layers"], Yes, NO_GPU),
    (&["-dev", "--device", "-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu"], Yes, NO_GPU),
    (&["-ot", "--override-tensor", "-ncmoe", "--n-cpu-moe", "-fit", "--fit"], Yes, NO_GPU),
    (&["-nkvo", "--no-kv-offload", "-cmoe", "--cpu-moe"], No, NO_GPU),
    (&["-fa", "--flash-attn"], Maybe, Ignored("attention is always computed in one pass over the cache")),
    (&["-ub", "--ubatch-size"], Yes, Ignored("-b sets the size of a pass")),
    (&["-tb", "--threads-batch"], Yes, Ignored("-t also applies to the prompt")),
    (&["--mlock", "--no-mmap", "--mmap", "--direct-io"], No, MAPPED),
    (&["-mmp"], Yes, MAPPED),
    (
        &["--numa", "--prio", "--poll", "-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict"],
        Yes,
        Ignored("the operating system schedules the threads"),
    ),
    (&["--no-warmup", "--warmup"], No, Ignored("there is no warm-up")),
    (
        &["--no-escape", "--perf", "--no-perf", "--simple-io", "--log-disable", "-v", "--verbose"],
        No,
        Ignored("this is the default or has no counterpart"),
    ),
    (&["-lv", "--verbosity", "--log-verbosity"], Yes, Ignored("there is no log")),
    (&["-mm", "-mmu", "--mmproj-url"], Yes, Alias("--mmproj")),
    (&["--no-mmproj-auto"], No, Alias("--no-mmproj")),
    (&["--mmproj-offload", "--no-mmproj-offload"], No, NO_GPU),
    (&["--offline"], No, Refused("set HF_HUB_OFFLINE=1 in the environment")),
    (
        &[
            "--rope-scaling",
            "--rope-scale",
            "--rope-freq-base",
            "--rope-freq-scale",
            "--yarn-orig-ctx",
            "--yarn-ext-factor",
            "--yarn-attn-factor",
            "--yarn-beta-slow",
            "--yarn-beta-fast",
            "--override-kv",
        ],
        Yes,
        IN_FILE,
    ),
    (&["--lora-scaled"], Yes, Alias("--lora")),
    (&["--control-vector", "--control-vector-scaled"], Yes, NO_VECTORS),
];

/// Flags of llama-server, for `serve`.
const SERVER: &[Flag] = &[
    (&["-np", "--n-parallel"], Yes, Alias("--parallel")),
    (&["-a"], Yes, Alias("--alias")),
    (&["--sleep-idle-seconds"], Yes, Alias("--idle-timeout")),
    (&["--models-dir"], Yes, Alias("--model")),
    (
        &["-cb", "--cont-batching", "--jinja", "--metrics", "--webui", "--no-context-shift", "--mmproj-auto"],
        No,
        ALREADY,
    ),
    (&["-nocb", "--no-cont-batching"], No, Ignored("answers do not depend on other requests")),
    (&["--no-webui"], No, Ignored("the page at / is always served")),
    (&["--slots"], No, ALREADY),
    (&["--no-slots"], No, Ignored("/slots tells a client about its own conversations only")),
    (&["--props"], No, Ignored("/props is read-only")),
    (
        &["--embedding", "--embeddings", "--rerank", "--reranking"],
        No,
        Ignored("the model determines whether the server embeds or ranks texts"),
    ),
    (&["--pooling"], Yes, IN_FILE),
    (
        &["--cache-prompt", "--no-cache-prompt", "-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified", "--swa-full"],
        No,
        SHARED,
    ),
    (&["-sps", "--slot-prompt-similarity", "-cram", "--cache-ram"], Yes, SHARED),
    (&["-to", "--timeout", "--threads-http"], Yes, Ignored("the server has its own limits")),
    (&["--reasoning-format"], Yes, Ignored("thoughts are returned in `reasoning_content`")),
    (&["--keep"], Yes, Ignored("requests have the field n_keep")),
    (&["--api-key-file"], Yes, Refused("give the key with --api-key, or in ARENITE_API_KEY")),
    (&["--ssl-key-file", "--ssl-cert-file"], Yes, Refused("use a proxy for https, such as nginx")),
    (&["--path", "--api-prefix"], Yes, Refused("use a proxy for other paths, such as nginx")),
    (&["--chat-template-file"], Yes, Alias("--chat-template")),
    (&["--chat-template-kwargs"], Yes, Refused("send `chat_template_kwargs` in requests")),
    (&["--reasoning-budget"], Yes, Unless(-1.0, "send `reasoning_budget` in requests")),
    (&["-n", "--predict", "--n-predict"], Yes, Unless(-1.0, "send `max_tokens` in requests")),
    (&["-s", "--seed"], Yes, Unless(-1.0, "send `seed` in requests")),
];

/// Flags of drafts, for the commands that generate texts.
const DRAFTS: &[Flag] = &[
    (&["-md", "--model-draft", "--spec-draft-model"], Yes, Alias("--draft")),
    (&["--draft-n", "--spec-draft-n-max"], Yes, Alias("--draft-max")),
    (&["--spec-type"], Yes, Ignored("--draft and --lookup choose the source of drafts")),
    (
        &["--draft-min", "--draft-p-min", "--spec-draft-n-min", "--spec-draft-p-min"],
        Yes,
        Ignored("the length of drafts follows the acceptance"),
    ),
    (&["-cd", "--ctx-size-draft", "-ctkd", "-ctvd", "--spec-draft-type-k", "--spec-draft-type-v"], Yes, ALREADY),
    (&["-ngld", "--gpu-layers-draft"], Yes, NO_GPU),
];

/// Flags of sampling steps, for `generate`, `chat` and `serve`.
const SAMPLING: &[Flag] = &[(&["--sampler-seq", "--sampling-seq"], Yes, Refused("list the steps with --samplers"))];

/// Flags of llama-cli: their names, whether a value follows, and the meaning for `generate` and for `chat`.
const TEXT: &[(&[&str], Value, Meaning, Meaning)] = &[
    (&["--predict", "--n-predict"], Yes, Alias("--n-tokens"), Alias("--n-tokens")),
    (&["-sys", "--system-prompt"], Yes, CHAT, Alias("--system")),
    (&["-r", "--reverse-prompt"], Yes, Alias("--stop"), Alias("--stop")),
    (&["-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"], No, CHAT, ALREADY),
    (&["-no-cnv", "--no-conversation", "-st", "--single-turn"], No, ALREADY, Refused("use `arenite generate`")),
    (&["-mli", "--multiline-input"], No, CHAT, Ignored("multi-line paste works, and a line that ends in \\ continues")),
    (
        &["--in-prefix", "--in-suffix"],
        Yes,
        CHAT,
        Refused("the chat template sets the text around a turn; see --template"),
    ),
    (&["--in-prefix-bos"], No, CHAT, Refused("the chat template sets the text around a turn; see --template")),
    (&["--jinja"], No, CHAT, ALREADY),
    (&["--chat-template-file"], Yes, CHAT, Alias("--chat-template")),
    (&["-co", "--color"], Maybe, Ignored("output has no colours"), Ignored("colours are used on a terminal only")),
    (&["--no-context-shift"], No, ALREADY, ALREADY),
    (&["--grammar-file"], Yes, Alias("--grammar"), Alias("--grammar")),
    (&["--prompt-cache"], Yes, Alias("--session"), Alias("--session")),
];

/// Commands that run a model and accept the flags in [`MACHINE`].
const COMMANDS: [&str; 17] = [
    "generate",
    "chat",
    "run",
    "serve",
    "batch",
    "bench",
    "embed",
    "rerank",
    "classify",
    "decide",
    "perplexity",
    "logits",
    "probe",
    "score",
    "translate",
    "listen",
    "imatrix",
];
/// Advice for users of other programs: commands of ollama and programs of llama.cpp, and what to use in their place.
const OTHERS: &[(&[&str], &str)] = &[
    (&["push", "cp"], "models are files in the cache of the Hugging Face hub; see `arenite pull`"),
    (&["login"], "set HF_TOKEN to an access token of the Hugging Face hub"),
    (&["show"], "use `arenite inspect FILE`"),
    (&["create"], "use `arenite convert` or `arenite quantize`"),
    (&["ps", "stop"], "nothing runs in the background; `arenite serve` reports its activity at /metrics"),
    (&["cli", "main", "llama-cli"], "use `arenite chat` or `arenite generate`"),
    (&["server", "llama-server"], "use `arenite serve`"),
];
/// Flags of llama.cpp that have the same meaning for every command, and the names that they have in this program.
const SAME: &[(&[&str], &str)] = &[
    (&["-hf", "-hfr", "--hf-repo"], "--hf"),
    (&["-hff"], "--hf-file"),
    (&["-hft"], "--hf-token"),
    (&["-mu", "--model-url"], "--model"),
];
/// Flags with a value that may stand before a command.
const GLOBAL: [&str; 7] = ["-m", "--model", "--mmproj", "--tokenizer", "--hf", "--hf-file", "--hf-token"];

/// The command line, rewritten to the flags of this program.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Typed {
    pub args: Vec<OsString>,
    /// A message for each flag without an effect.
    pub notes: Vec<String>,
}

/// Rewrites all arguments, starting with the program's name. If there is no command, inserts `generate`.
///
/// # Errors
///
/// Advice on what to type instead.
pub fn understand(args: impl IntoIterator<Item = OsString>) -> Result<Typed, String> {
    let mut is_over = false;
    let mut args: Vec<OsString> = args
        .into_iter()
        .map(|arg| {
            is_over |= arg == "--";
            if is_over { arg } else { same(arg) }
        })
        .collect();
    let at = command_at(&args);
    if args.get(at).is_some_and(|command| command == "ls") {
        args[at] = "list".into();
    }
    let is_flag = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let is_own = |arg: &OsString| ["-h", "--help", "-V", "--version"].iter().any(|own| arg == own);
    if args.get(at).is_none_or(|arg| is_flag(arg) && !is_own(arg)) {
        args.insert(at.min(args.len()), "generate".into());
    }
    let command = args.get(at).and_then(|arg| arg.to_str()).unwrap_or_default();
    if let Some((_, instead)) = OTHERS.iter().find(|(names, _)| names.contains(&command)) {
        return Err(format!("unknown command {command}: {instead}"));
    }
    if !COMMANDS.contains(&command) {
        return Ok(Typed { args, notes: Vec::new() });
    }
    let command = command.to_owned();
    let mut typed = Typed::default();
    let mut rest = args.into_iter().peekable();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            typed.args.push(arg);
            typed.args.extend(rest);
            break;
        }
        let Some((name, value, meaning)) = known(&arg, &command) else {
            typed.args.push(arg);
            continue;
        };
        let inline = arg.to_str().and_then(|arg| arg.split_once('=')).map(|(_, value)| OsString::from(value));
        let follows = inline.is_none()
            && match value {
                No => false,
                Yes => true,
                Maybe => {
                    rest.peek().is_some_and(|next| ["on", "off", "auto", "0", "1"].iter().any(|word| next == word))
                }
            };
        let value = if follows { rest.next() } else { inline };
        match meaning {
            Alias(flag) => {
                typed.args.push(flag.into());
                typed.args.extend(value);
            }
            Unless(off, _) if value.as_deref().and_then(|it| it.to_str()?.parse().ok()) == Some(off) => {}
            Refused(what) | Unless(_, what) => return Err(format!("{name}: {what}")),
            Ignored(why) => typed.notes.push(format!("{name} has no effect: {why}")),
        }
    }
    Ok(typed)
}

/// Renames an argument that is a flag in [`SAME`]; a value after `=` is kept. Returns any other argument unchanged.
fn same(arg: OsString) -> OsString {
    let Some(text) = arg.to_str() else { return arg };
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let Some((_, flag)) = SAME.iter().find(|(names, _)| names.contains(&name)) else { return arg };
    value.map_or((*flag).into(), |value| format!("{flag}={value}").into())
}

/// Returns the index of the command in the arguments. If there is no command, returns the index at which it is
/// inserted.
fn command_at(args: &[OsString]) -> usize {
    let mut at = 1;
    while let Some(arg) = args.get(at) {
        let is_global = |name: &&str| arg == name;
        let with_value = |name: &&str| arg.to_str().is_some_and(|arg| arg.starts_with(&format!("{name}=")));
        if GLOBAL.iter().any(is_global) {
            at += 2;
        } else if arg == "--raw" || arg == "--check-tensors" || GLOBAL.iter().any(with_value) {
            at += 1;
        } else {
            break;
        }
    }
    at
}

/// Returns the name of a flag of llama.cpp, whether a value follows the flag, and the meaning of the flag for a
/// command.
fn known(arg: &OsStr, command: &str) -> Option<(&'static str, Value, Meaning)> {
    let name = arg.to_str()?.split('=').next()?;
    let find = |names: &'static [&'static str]| names.iter().find(|known| **known == name).copied();
    let find_in =
        |flags: &[Flag]| flags.iter().find_map(|(names, value, meaning)| Some((find(names)?, *value, *meaning)));
    let own = match command {
        "generate" | "chat" | "run" => TEXT.iter().find_map(|(names, value, generate, chat)| {
            Some((find(names)?, *value, if command == "generate" { *generate } else { *chat }))
        }),
        "serve" => find_in(SERVER),
        _ => None,
    };
    let sampling = || if matches!(command, "generate" | "chat" | "run" | "serve") { find_in(SAMPLING) } else { None };
    let drafts =
        || matches!(command, "generate" | "chat" | "run" | "serve" | "batch").then(|| find_in(DRAFTS)).flatten();
    own.or_else(sampling).or_else(drafts).or_else(|| find_in(MACHINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<(String, usize), String> {
        let typed = understand(line.split(' ').map(OsString::from))?;
        let args: Vec<_> = typed.args.iter().map(|arg| arg.to_string_lossy()).collect();
        Ok((args.join(" "), typed.notes.len()))
    }

    #[test]
    fn llama_cli_flags_are_translated() {
        let same =
            |line: &str, want: &str, notes: usize| assert_eq!(typed(line), Ok((want.to_string(), notes)), "{line}");
        same("a generate -ngl 99 -fa -p x --mlock", "a generate -p x", 3);
        same("a generate -fa on -ub 512 -co", "a generate", 3);
        same("a -m f.gguf -p x -n -1 -no-cnv", "a -m f.gguf generate -p x -n -1", 1);
        same("a --model=f.gguf --n-predict 5", "a --model=f.gguf generate --n-tokens 5", 0);
        same("a chat -sys hello -cnv -r User:", "a chat --system hello --stop User:", 1);
        same("a generate -ctk q8_0 -ctv q8_0 --mirostat 0", "a generate --kv q8_0 --mirostat 0", 1);
        same("a generate --predict=5 --numa=distribute", "a generate --n-tokens 5", 1);
        same("a -hf u/r:Q8_0 -p x", "a --hf u/r:Q8_0 generate -p x", 0);
        same("a serve -hfr=u/r -hff f.gguf", "a serve --hf=u/r --hf-file f.gguf", 0);
        same("a serve -mm p.gguf --no-mmproj-offload", "a serve --mmproj p.gguf", 1);
        same("a ls", "a list", 0);
        same("a serve -m f -ngl 99 -np 4 -fa on --jinja -ctk q8_0", "a serve -m f --parallel 4 --kv q8_0", 3);
        same("a serve -m f -n -1 -s -1 --reasoning-budget -1 --dry-base 1.75", "a serve -m f --dry-base 1.75", 0);
        same("a bench -ngl 99 -fa 1 -r 5", "a bench -r 5", 2);
        same("a -mu https://a/b.gguf inspect", "a --model https://a/b.gguf inspect", 0);
        same("a generate -p x -- -ngl 4", "a generate -p x -- -ngl 4", 0);
    }

    #[test]
    fn other_commands_have_their_own_flags() {
        assert_eq!(typed("a"), Ok(("a generate".to_string(), 0)));
        for line in [
            "a --help",
            "a -m f inspect",
            "a bench -r 5 -t 1,2",
            "a batch -i in -o out",
            "a -V",
            "a --raw inspect",
            "a no-such",
        ] {
            assert_eq!(typed(line), Ok((line.to_string(), 0)));
        }
    }

    #[test]
    fn what_is_refused_says_what_to_do() {
        for (line, word) in [
            ("a -i", "arenite chat"),
            ("a generate --control-vector x", "--lora"),
            ("a chat -no-cnv", "generate"),
            ("a serve --seed 7", "requests"),
            ("a serve -n 5", "max_tokens"),
            ("a embed --rope-freq-base 1", "file"),
            ("a login", "HF_TOKEN"),
            ("a cp a b", "arenite pull"),
            ("a show", "inspect"),
        ] {
            assert!(typed(line).unwrap_err().contains(word), "{line}");
        }
    }

    #[test]
    fn no_flag_is_there_twice() {
        let shared = || MACHINE.iter().chain(SAMPLING).chain(DRAFTS).flat_map(|(names, ..)| *names);
        let text = shared().chain(TEXT.iter().flat_map(|(names, ..)| *names));
        let server = shared().chain(SERVER.iter().flat_map(|(names, ..)| *names));
        for names in [text.collect::<Vec<_>>(), server.collect()] {
            let mut once = names.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), names.len());
        }
    }
}
