//! Conversations: templates compared with transformers' prompts, and chats on a pseudo-terminal.

use std::io::Read;
use std::path::Path;
use std::process::Output;

use crate::common::{arenite_with, fixtures};
use crate::terminal::Terminal;
use flate2::read::GzDecoder;
use serde_json::{Value, json};

const STORIES: &[u8] = include_bytes!("../../models/stories.gguf");

fn arenite(args: &[&str], input: &str) -> Output {
    arenite_with(args, input.as_bytes())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a file in a directory of the test.
fn file(directory: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, content).expect("a file");
    path.to_str().expect("a path in UTF-8").to_string()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// The built-in model with a chat template.
fn with_template(template: &str) -> Vec<u8> {
    const KEY: &str = "tokenizer.chat_template";
    let long = |n: usize| (n as u64).to_le_bytes();
    let len = 8 + KEY.len() + 4 + 8 + template.len();
    // A comment of spaces in the template keeps the tensors of the file aligned.
    let template = format!("{{#{}#}}{template}", " ".repeat((32 - (len + 4) % 32) % 32));
    let entry = [&long(KEY.len())[..], KEY.as_bytes(), &8u32.to_le_bytes(), &long(template.len()), template.as_bytes()];
    let (header, rest) = STORIES.split_at(24);
    let count = u64::from_le_bytes(header[16..].try_into().expect("eight bytes"));
    [&header[..16], &long(count as usize + 1), &entry.concat(), rest].concat()
}

const TURNS: &str =
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}{{ '<|assistant|>\\n' }}";

#[test]
fn public_templates_give_the_prompts_that_transformers_gives() {
    let Some(cases) = fixtures("templates/cases.json.gz") else { return };
    let packed = std::fs::read(cases).expect("the cases");
    let mut json = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut json).expect("gzip");
    let cases: Vec<Value> = serde_json::from_str(&json).expect("JSON");
    let directory = directory();
    for case in &cases {
        let template = file(&directory, "t.jinja", case["template"].as_str().expect("a template"));
        // The messages and tools are cut from the file as texts, because `serde_json` would sort the keys if it parsed
        // them.
        let text = |key: &str| raw(&json, case["name"].as_str().expect("a name"), key);
        let messages = file(&directory, "m.json", text("messages"));
        let tools = file(&directory, "tools.json", text("tools"));
        let mut args = vec!["chat", "--messages", &messages, "--chat-template", &template, "--print-prompt"];
        if !case["tools"].is_null() {
            args.extend(["--tools", &tools]);
        }
        let output = arenite(&args, "");
        match case["want"].as_str() {
            Some(want) => {
                assert_eq!(String::from_utf8_lossy(&output.stdout), want, "{}: {}", case["name"], stderr(&output))
            }
            None => {
                assert_eq!(output.status.code(), Some(1), "{}", case["name"]);
                assert_eq!(stderr(&output).lines().count(), 1, "{}", case["name"]);
            }
        }
    }
    assert_eq!(cases.len(), 60);
}

/// Returns the JSON text of the field `key` of the case `name`, exactly as it is written in the file with all cases.
fn raw<'a>(json: &'a str, name: &str, key: &str) -> &'a str {
    #[derive(serde::Deserialize)]
    struct Case<'a> {
        name: String,
        #[serde(borrow)]
        messages: &'a serde_json::value::RawValue,
        #[serde(borrow)]
        tools: Option<&'a serde_json::value::RawValue>,
    }
    let cases: Vec<Case<'a>> = serde_json::from_str(json).expect("JSON");
    let case = cases.iter().find(|case| case.name == name).expect("the case");
    match key {
        "messages" => case.messages.get(),
        _ => case.tools.map_or("null", serde_json::value::RawValue::get),
    }
}

/// Arguments that are texts, as in OpenAI's notation, are read in the same way as in the server.
#[test]
fn arguments_that_are_texts_are_read() {
    let directory = directory();
    let prompt = |arguments: Value, template: &str| {
        let call = json!({ "type": "function", "function": { "name": "f", "arguments": arguments } });
        let messages =
            json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "", "tool_calls": [call] }]);
        let messages = file(&directory, "m.json", messages.to_string());
        let template = format!(
            "{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}{template}{{% endfor %}}{{% endfor %}}"
        );
        let template = file(&directory, "t.jinja", template);
        let output = arenite(&["chat", "--messages", &messages, "--chat-template", &template, "--print-prompt"], "");
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let (value, text) = (json!({ "days": 2, "city": "Oslo" }), json!("{\"days\": 2, \"city\": \"Oslo\"}"));
    for (template, wanted) in [
        ("{{ c.function.name }}{{ c.function.arguments | tojson }}", "f{\"days\": 2, \"city\": \"Oslo\"}"),
        (
            "{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}",
            "f days=2 city=Oslo",
        ),
    ] {
        for arguments in [&value, &text] {
            assert_eq!(prompt(arguments.clone(), template), wanted);
        }
    }
    assert_eq!(prompt(json!("no JSON"), "{{ c.function.name }}{{ c.function.arguments | tojson }}"), "f\"no JSON\"");
}

#[test]
fn a_template_that_refuses_says_why_on_one_line() {
    let directory = directory();
    let messages = file(&directory, "m.json", json!([{"role": "user", "content": "Hello"}]).to_string());
    let refused = |template: &str| {
        let template = file(&directory, "t.jinja", template);
        let output = arenite(&["chat", "--messages", &messages, "--chat-template", &template, "--print-prompt"], "");
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(1), 1), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
        stderr(&output)
    };
    assert!(refused("{{ raise_exception('Only\\npoems') }}").contains("Only poems"));
    assert!(refused("{% for x in none %}{% endfor %}").contains("not iterable"));
    assert!(refused("{% if %}").contains("does not work"));
    assert!(
        refused("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}").contains("steps")
    );
    assert!(refused("{{ messages[0].content.x.y }}").contains("undefined"));
}

#[test]
fn well_known_formats_are_named_and_found() {
    let directory = directory();
    let messages = file(
        &directory,
        "m.json",
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
            .to_string(),
    );
    let prompt_by = |flag: &str, template: &str| {
        let output = arenite(&["chat", "--messages", &messages, flag, template, "--print-prompt"], "");
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let prompt = |template: &str| prompt_by("--template", template);
    assert_eq!(
        prompt("chatml"),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(prompt("gemma"), "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n");
    // As in llama.cpp, the value of `--chat-template` may also be the name of a format, or the template itself.
    assert_eq!(prompt_by("--chat-template", "gemma"), prompt("gemma"));
    assert_eq!(prompt_by("--chat-template", "{{ messages[0].content }}"), "Be brief.");
    let missing = arenite(&["chat", "--chat-template", "morse"], "");
    assert_eq!((missing.status.code(), stderr(&missing).lines().count()), (Some(1), 1), "{}", stderr(&missing));
    assert!(stderr(&missing).contains("cannot read morse"), "{}", stderr(&missing));
    let unknown = arenite(&["chat", "--template", "morse"], "");
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("chatml"), "{}", stderr(&unknown));
}

#[test]
fn from_a_pipe_a_line_is_a_turn() {
    let output = arenite(&["chat", "--temp", "0", "-n", "8"], "Once upon a time\n\nThe dog\n");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    assert_eq!(text.lines().count(), 2, "{text:?}");
    assert_eq!(stderr(&output), "the answer was cut off: raise -n\n".repeat(2));
    let silent = arenite(&["chat", "--temp", "0", "--logit-bias", "2=1000"], "Once a\nOne day\n");
    assert!(silent.status.success() && silent.stdout.is_empty(), "an answer may be empty");
    let none = arenite(&["chat"], "");
    assert!(none.status.success() && none.stdout.is_empty() && none.stderr.is_empty());
}

#[test]
fn from_a_pipe_a_line_may_be_a_command() {
    let cold = arenite(&["chat", "--temp", "0", "-n", "8"], "Once upon a time\n");
    let lines = "/set temperature 0\n/set parameter num_predict 8\nOnce upon a time\n/stat\n/quit\nOne day\n";
    let output = arenite(&["chat", "-n", "3"], lines);
    assert!(output.status.success(), "{}", stderr(&output));
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    let stats = told.strip_prefix(std::str::from_utf8(&cold.stdout).expect("UTF-8")).expect("the same answer");
    assert_eq!((number(stats, "decoded"), number(stats, "turns")), (8, 1));
    // A seed begins the numbers again, and a stop string replaces the one before.
    let again = "/set seed 7\nOne day\n/reset\n/set seed 7\nOne day\n";
    let told = String::from_utf8(arenite(&["chat", "-n", "12"], again).stdout).expect("UTF-8");
    assert!(matches!(told.lines().collect::<Vec<_>>()[..], [a, b] if a == b), "{told}");
    // Paths, and lines that begin with a space, are messages.
    let messages = arenite(&["chat", "--temp", "0", "-n", "3"], "/usr/bin is a folder\n /reset\n/stats\n");
    assert_eq!(number(std::str::from_utf8(&messages.stdout).expect("UTF-8"), "turns"), 2);
    for (line, words) in [
        ("/set", "/set temperature 0"),
        ("/set temperature hot", "--temp"),
        ("/set tempera 0", "similar argument exists: '--temperature'"),
        ("/set rng llama2c\n/set top_k 4", "--rng llama2c"),
        ("/nonsense", "unknown command /nonsense"),
        ("/s", "/stats or /set or /save or /system"),
        ("/save talk.json", "only on a terminal"),
        ("/loa /etc/passwd", "only on a terminal"),
        ("/model m.gguf", "only on a terminal"),
        ("/image a.png", "only on a terminal"),
    ] {
        let output = arenite(&["chat"], &format!("{line}\nOnce\n"));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{line}");
        assert!(stderr(&output).contains(words), "{line}: {}", stderr(&output));
    }
}

#[test]
fn a_template_that_fails_is_replaced_with_one_warning() {
    let directory = directory();
    let model = file(&directory, "m.gguf", with_template("{{ raise_exception('no') }}<|im_start|>"));
    let output = arenite(&["chat", "-m", &model, "--temp", "0", "-n", "4"], "One\nTwo\n");
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    let warnings: Vec<_> = said.lines().filter(|line| line.starts_with("warning")).collect();
    assert!(matches!(warnings[..], [warning] if warning.contains("chatml")), "{said}");
}

/// The number before `word` in the output of `/stats`.
fn number(stats: &str, word: &str) -> usize {
    let line =
        stats.lines().find(|line| line.trim_start().starts_with(word)).unwrap_or_else(|| panic!("{word}: {stats}"));
    let number = line.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    number.unwrap_or_else(|| panic!("{word}: {stats}"))
}

#[test]
fn five_turns_with_the_built_in_model() {
    let mut terminal = Terminal::start(&["chat", "--temp", "0", "-n", "12"]);
    let lines = ["One day, a cat", "tell about a fox", "Hello!", "A story of a bear and a duck", "One day, a cat"];
    let shown = ["", "there was a little fox named", "there was a little", "there was a little bear named", ""];
    for (turn, (line, shown)) in lines.into_iter().zip(shown).enumerate() {
        terminal.says(line);
        terminal.wait_for(shown);
        terminal.says("/stats");
        let stats = terminal.wait_for("turns ") + &terminal.rest_of_line();
        assert_eq!(number(&stats, "turns"), turn + 1);
        // The built-in model tells a new story for each line, so only BOS and tokens with which the lines begin alike
        // are reused.
        assert!(number(&stats, "kept") >= usize::from(turn > 0), "{stats}");
        assert!(number(&stats, "prefilled") < 20, "{stats}");
    }
    terminal.says("/quit");
    assert!(terminal.ends());
}

#[test]
fn five_turns_with_a_template_prefill_only_themselves() {
    let directory = directory();
    let model = file(&directory, "m.gguf", with_template(TURNS));
    let mut terminal = Terminal::start(&["chat", "-m", &model, "--system", "A story.", "--temp", "0", "-n", "12"]);
    let mut before = 0;
    for turn in 1..=5 {
        terminal.says(&format!("Line {turn}"));
        terminal.says("/stats");
        let stats = terminal.wait_for("turns ") + &terminal.rest_of_line();
        assert_eq!(number(&stats, "turns"), turn, "{stats}");
        if turn > 1 {
            assert_eq!(number(&stats, "kept"), before, "all that was in the context stays: {stats}");
        }
        before = number(&stats, "context");
    }
    terminal.says("/reset");
    terminal.says("/stats");
    let stats = terminal.wait_for("turns ") + &terminal.rest_of_line();
    assert_eq!((number(&stats, "context"), number(&stats, "turns")), (0, 0));
    terminal.says("/regen");
    terminal.wait_for("no answer");
    terminal.is_asked();
    terminal.types("\x04");
    assert!(terminal.ends());
}

/// When the oldest turns are forgotten, the tokens of the remaining turns get other positions.
#[test]
fn turns_after_forgotten_ones_are_reused() {
    let directory = directory();
    let model = file(&directory, "m.gguf", with_template(TURNS));
    let reuses = |more: &[&str]| {
        let args = ["chat", "-m", &model, "--system", "A story.", "--temp", "0", "-n", "8", "-c", "128", "--shift"];
        let mut terminal = Terminal::start(&[&args[..], more].concat());
        let mut reused = false;
        for turn in 1..=8 {
            terminal.says(&format!("Tell me about the little dog and the cat, part {turn}"));
            terminal.says("/stats");
            let stats = terminal.wait_for("turns ") + &terminal.rest_of_line();
            reused |= stats.contains("at other positions");
        }
        reused
    };
    assert!(reuses(&["--cache-reuse", "4"]) && !reuses(&[]));
}

#[test]
fn ctrl_c_stops_the_answer_and_not_the_program() {
    // The end token is banned and the context is large, so that the answer would take minutes.
    let mut terminal = Terminal::start(&["chat", "--temp", "0", "-c", "60000", "--logit-bias", "2=-inf"]);
    terminal.says("Once upon a time");
    terminal.wait_for("there");
    terminal.types("\x03");
    terminal.wait_for("(stopped)");
    terminal.says("/stats");
    let stats = terminal.wait_for("turns ");
    assert!(stats.contains("interrupted"), "{stats}");
    // At the prompt, the first Ctrl-C only prints advice.
    terminal.is_asked();
    terminal.types("\x03");
    terminal.wait_for("Ctrl-D or /quit");
    terminal.says("/quit");
    assert!(terminal.ends());
}

#[test]
fn a_pasted_text_is_one_turn_and_conversations_are_kept() {
    let directory = directory();
    let saved = directory.path().join("talk.json");
    let saved = saved.to_str().expect("UTF-8");
    let messages = |path: &str| -> Vec<Value> {
        serde_json::from_str(&std::fs::read_to_string(path).expect("the file")).expect("JSON")
    };
    let mut terminal = Terminal::start(&["chat", "--template", "chatml", "--temp", "0", "-n", "6"]);
    terminal.is_asked();
    terminal.types("\x1b[200~line one\nline two\x1b[201~\r");
    terminal.says("/stats");
    terminal.wait_for("turns ");
    terminal.says("it goes \\\ron");
    terminal.says(&format!("/save {saved}"));
    terminal.wait_for("messages in");
    let first = messages(saved);
    assert_eq!(first.len(), 4, "{first:?}");
    assert_eq!(first[0], json!({"role": "user", "content": "line one\nline two"}));
    assert_eq!(first[2]["content"], "it goes \non");
    terminal.says("/quit");
    assert!(terminal.ends());

    let mut terminal = Terminal::start(&["chat", "--template", "chatml", "--temp", "0", "-n", "6"]);
    // A byte that is not UTF-8, such as a key in another character set, does not end the conversation.
    terminal.is_asked();
    terminal.types_bytes(b"\xff");
    terminal.wait_for("not text in UTF-8");
    terminal.says(&format!("/load {saved}"));
    terminal.wait_for("4 messages from");
    terminal.says("/system Be kind.");
    terminal.says("More");
    terminal.says(&format!("/save {saved}"));
    terminal.wait_for("7 messages in");
    let second = messages(saved);
    assert_eq!(second[0], json!({"role": "system", "content": "Be kind."}));
    assert_eq!(second[1..5], first[..]);
    terminal.says("/load /no/such/file");
    terminal.wait_for("cannot read");
    terminal.says("/quit");
    assert!(terminal.ends());
}

#[test]
fn a_full_context_is_said_or_shifted() {
    let full = &["chat", "--template", "chatml", "--temp", "0", "-c", "90", "-n", "20", "--logit-bias", "2=-inf"];
    let mut terminal = Terminal::start(full);
    terminal.says("Once upon a time there was a cat.");
    terminal.says("And what did the cat do then?");
    terminal.wait_for("--shift");
    terminal.says("/quit");
    assert!(terminal.ends());

    let mut terminal = Terminal::start(&[&full[..], &["--shift"]].concat());
    for turn in 1..=4 {
        terminal.says(&format!("And cat number {turn}?"));
        terminal.says("/stats");
        let stats = terminal.wait_for("turns ");
        assert!(stats.contains("ended by length"), "{stats}");
    }
    terminal.says("/quit");
    assert!(terminal.ends());
}

#[test]
fn thoughts_are_shown_dimmed_or_hidden() {
    let directory = directory();
    let template = file(&directory, "t.jinja", "{{ messages[-1].content }}<think>\n");
    let args = |how| ["chat", "--chat-template", &template, "--temp", "0", "-n", "6", "--reasoning", how];
    let said = |how| {
        let output = arenite(&args(how), "Once\n");
        (String::from_utf8(output.stdout.clone()).expect("UTF-8"), stderr(&output))
    };
    let (thought, note) = said("show");
    assert!(thought.len() > 6 && !note.contains(&thought), "{thought}{note}");
    assert_eq!(said("hide"), (String::new(), note.clone()));
    // A pipe has no colors, so its reader could not distinguish a thought from the answer.
    let (answer, notes) = said("dim");
    assert!(
        answer.is_empty() && notes.contains(&thought) && notes.len() == thought.len() + note.len(),
        "{answer}{notes}"
    );
    let mut terminal = Terminal::start(&args("dim"));
    terminal.says("Once");
    terminal.wait_for("\x1b[2m");
    terminal.wait_for("\x1b[0m");
    terminal.says("/quit");
    assert!(terminal.ends());
}

#[test]
fn run_answers_a_prompt_and_ends_and_converses_without_one() {
    let directory = directory();
    let base = file(&directory, "m.gguf", STORIES);
    let talks = file(&directory, "talks.gguf", with_template(TURNS));
    let mut terminal = Terminal::start(&["run", &base, "-n", "5"]);
    terminal.wait_for("/help");
    terminal.says("/quit");
    assert!(terminal.ends());
    let options = ["--temp", "0", "-n", "5"];
    for (model, is_continued) in [(&base, true), (&talks, false)] {
        let by_name = arenite(&[&["run", model, "Once upon a time"], &options[..]].concat(), "");
        let by_pipe = arenite(&[&["run", model], &options[..]].concat(), "Once upon a time\n");
        let without_command = arenite(&[&[model, "Once upon a time"], &options[..]].concat(), "");
        let by_flag = arenite(&[&[model, "-p", "Once upon a time"], &options[..]].concat(), "");
        assert!(by_name.status.success(), "{}", stderr(&by_name));
        let said = String::from_utf8_lossy(&by_name.stdout).into_owned();
        assert!(said.starts_with("Once upon a time") == is_continued && said.trim().len() > 6, "{said}");
        assert_eq!((&by_pipe.stdout, &without_command.stdout), (&by_name.stdout, &by_name.stdout));
        assert_eq!(by_flag.stdout, by_name.stdout, "{}", stderr(&by_flag));
        assert!(Terminal::start(&[&["run", model, "Once upon a time"], &options[..]].concat()).ends());
    }
    // The text of a pipe comes before the prompt.
    let both = arenite(&[&["run", &base, "there was"], &options[..]].concat(), "Once upon a time");
    assert!(String::from_utf8_lossy(&both.stdout).starts_with("Once upon a time\n\nthere was"));
    let nothing = arenite(&["run", &talks], "");
    assert!(!nothing.status.success() && stderr(&nothing).contains("no text was given"));
}

#[test]
fn a_conversation_continues_with_another_model() {
    let directory = directory();
    let other = file(&directory, "other.gguf", with_template(TURNS));
    let mut terminal = Terminal::start(&["chat", "--template", "chatml", "--temp", "0", "-n", "6"]);
    terminal.says("One day");
    terminal.says("/model /no/such/file");
    terminal.wait_for("/no/such/file");
    terminal.says("/model");
    terminal.wait_for("built-in");
    terminal.says(&format!("/model {other}"));
    terminal.wait_for("other.gguf");
    terminal.wait_for("/help for help");
    terminal.says("And then?");
    terminal.says("/stats");
    let stats = terminal.wait_for("turns ") + &terminal.rest_of_line();
    assert_eq!(number(&stats, "turns"), 2);
    terminal.says("/quit");
    assert!(terminal.ends());
}

#[test]
fn words_are_wrapped_and_code_is_not() {
    let directory = directory();
    let text = "The quick brown fox jumps over the lazy dog and runs away.\n```\nlet code = \"longer than the terminal, and unchanged\";\n```\nThe end of this story.";
    let grammar = file(&directory, "g.gbnf", format!("root ::= {}", json!(text)));
    let args = ["chat", "--template", "chatml", "--grammar", &grammar, "--temp", "0", "-c", "2000"];
    let mut terminal = Terminal::start_with(&args, 30, &[]);
    terminal.says("Tell it.");
    terminal.wait_for(
        "The quick brown fox jumps over\nthe lazy dog and runs away.\n```\nlet code = \"longer than the terminal, and unchanged\";\n```\nThe end of this story.\n",
    );
    terminal.says("/quit");
    assert!(terminal.ends());
    assert_eq!(String::from_utf8_lossy(&arenite(&args, "Tell it.\n").stdout).trim_end(), text);
}

#[test]
fn lines_are_kept_completed_and_coloured() {
    let directory = directory();
    let history = directory.path().join("state/history");
    let kept = [("ARENITE_HISTORY", history.to_str().expect("UTF-8"))];
    let args = ["chat", "--temp", "0", "-n", "3"];
    let mut terminal = Terminal::start_with(&args, 200, &kept);
    terminal.wait_for("\x1b[1;32m> \x1b[0m");
    terminal.types("Hello\\\rfox\r");
    terminal.is_asked();
    terminal.types("/st\t\r");
    terminal.wait_for("turns ");
    terminal.says("/quit");
    assert!(terminal.ends());

    let mut terminal = Terminal::start_with(&args, 200, &kept);
    terminal.is_asked();
    terminal.types("\x1b[A\x1b[A\x1b[A");
    terminal.wait_for("Hello\\");
    terminal.types("\r");
    terminal.says("/stats");
    let stats = terminal.wait_for("turns ") + &terminal.rest_of_line();
    assert_eq!(number(&stats, "turns"), 1);
    terminal.is_asked();
    terminal.types("/re\t\t");
    terminal.wait_for("/regen");
    terminal.types("\x15/quit\r");
    assert!(terminal.ends());

    // This conversation has neither a history nor colours.
    let mut terminal = Terminal::start_with(&args, 200, &[("NO_COLOR", "1")]);
    terminal.is_asked();
    terminal.types("\x1b[A\x15/quit\r");
    let shown = terminal.remainder();
    assert!(!shown.contains("Hello") && !shown.contains("\x1b[1;32m"), "{shown:?}");
    assert!(std::fs::read_to_string(&history).expect("the history").contains("Hello"));
}

/// The token of the byte ESC in the built-in model.
const ESC: &str = "30=1000";

#[test]
fn what_a_model_says_cannot_steer_the_terminal() {
    let args = ["generate", "-p", "Once", "-n", "2", "--temp", "0", "--logit-bias", ESC];
    let mut terminal = Terminal::start(&args);
    let shown = terminal.remainder();
    assert!(shown.contains("Once\\x1b\\x1b") && !shown.contains('\x1b'), "{shown:?}");
    let mut terminal = Terminal::start(&[&args[..], &["--raw"]].concat());
    assert!(terminal.remainder().contains("Once\x1b\x1b"));
    assert!(String::from_utf8_lossy(&arenite(&args, "").stdout).contains("Once\x1b\x1b"));

    let mut terminal = Terminal::start(&["chat", "-n", "2", "--temp", "0", "--logit-bias", ESC]);
    terminal.says("Once");
    terminal.wait_for("\\x1b\\x1b");
    terminal.says("/quit");
    assert!(terminal.ends());
}

#[test]
fn names_out_of_a_file_cannot_steer_the_terminal() {
    let name = b"output_norm.weight";
    let evil = b"\x1b[2Jut_norm\x7fweight";
    let at = STORIES.windows(name.len()).position(|window| window == name).expect("the tensor");
    let mut bytes = STORIES.to_vec();
    bytes[at..at + name.len()].copy_from_slice(evil);
    let directory = directory();
    let model = file(&directory, "m.gguf", bytes);
    for args in [&["inspect", &model][..], &["generate", "-m", &model], &["inspect", &model, "--json"]] {
        let mut terminal = Terminal::start(args);
        let shown = terminal.remainder();
        assert!(!shown.contains(['\x1b', '\x7f']), "{args:?}: {shown:?}");
        assert!(shown.contains("ut_norm") || shown.contains("output_norm"), "{args:?}: {shown:?}");
    }
    let name = Path::new(&model).with_file_name("\x1b]0;x\x07.gguf");
    let mut terminal = Terminal::start(&["inspect", name.to_str().expect("UTF-8")]);
    let shown = terminal.remainder();
    assert!(shown.contains("no such file") && !shown.contains('\x1b'), "{shown:?}");
}
