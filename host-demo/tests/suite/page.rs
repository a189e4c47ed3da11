//! The page of `arenite serve`. `tests/serving/page.mjs` tests the page in a browser.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::serve::Server;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/serve/src/routes/page")
}

fn file(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

const SCRIPTS: [&str; 13] = [
    "page.mjs",
    "view.mjs",
    "conversation.mjs",
    "store.mjs",
    "chats.mjs",
    "models.mjs",
    "attachments.mjs",
    "pictures.mjs",
    "texts.mjs",
    "microphone.mjs",
    "requests.mjs",
    "settings.mjs",
    "markdown.mjs",
];

#[test]
fn the_page_runs_only_its_own_scripts() {
    let server = Server::start(&["--api-key", "secret"]);
    for (path, kind, name) in [("/", "text/html", "index.html"), ("/page.css", "text/css", "page.css")]
        .map(|(path, kind, name)| (path.to_string(), kind, name))
        .into_iter()
        .chain(SCRIPTS.map(|name| (format!("/{name}"), "text/javascript", name)))
    {
        // The page is served without the key, and asks the user for it.
        let (head, body) = server.ask("GET", &path, "", b"");
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        assert!(head.contains(&format!("content-type: {kind}; charset=utf-8")), "{path}: {head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{path}: {head}");
        let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(policy.contains("require-trusted-types-for 'script'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(body, file(name), "{path}");
    }
    // The page has no inline scripts or styles, because its Content-Security-Policy blocks them.
    let page = file("index.html");
    assert!(!page.contains("style=") && !page.contains("<style"), "{page}");
    assert_eq!(page.matches("<script").count(), 1);
    assert!(!regex_lite::Regex::new(r"\son[a-z]+=").unwrap().is_match(&page), "{page}");
    for name in SCRIPTS {
        let script = file(name);
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
            assert!(!script.contains(way), "{name} has {way}");
        }
    }
}

/// Runs a JavaScript program. `input` is its standard input. Returns the output; `None` if Node.js is missing.
fn node(args: &[&str], input: &str) -> Option<String> {
    let mut command = Command::new("node");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("SKIP: Node.js is not installed, so the scripts of the page are not tested");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Runs a JavaScript module and returns the JSON that it prints. The module may import the page's scripts from `PAGE`.
fn module(source: &str) -> Option<Value> {
    let folder = folder().to_str().unwrap().replace('\\', "/");
    let prefix = if folder.starts_with('/') { "file://" } else { "file:///" };
    let source = source.replace("PAGE", &format!("{prefix}{folder}"));
    Some(serde_json::from_str(&node(&["--input-type=module"], &source)?).unwrap())
}

#[test]
fn the_scripts_parse() {
    for name in SCRIPTS {
        node(&["--check", folder().join(name).to_str().unwrap()], "");
    }
}

/// A module that parses TEXTS as Markdown and prints the resulting HTML of each text as JSON.
const HTML: &str = r##"
import { markdown } from "PAGE/markdown.mjs";
const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const html = (node) => {
  if (typeof node == "string") return escape(node);
  const [tag, attributes, ...children] = node;
  const shown = Object.entries(attributes).filter(([, value]) => value !== "").map(([name, value]) => ` ${name}="${escape(String(value))}"`);
  return `<${tag}${shown.join("")}>` + (tag == "br" || tag == "hr" ? "" : `${children.map(html).join("")}</${tag}>`);
};
console.log(JSON.stringify(TEXTS.map((text) => markdown(text).map(html).join(""))));
"##;

/// Markdown texts, and the HTML that CommonMark with GitHub's tables defines for them. There are two additions: line
/// breaks are kept, and code blocks have the name of their language.
const MARKDOWN: &[(&str, &str)] = &[
    (
        "# A *b*\n\ntext **bold _it_**\nnext",
        "<h1>A <em>b</em></h1><p>text <strong>bold <em>it</em></strong><br>next</p>",
    ),
    (
        "***a*** **a *b*** *a **b***",
        "<p><strong><em>a</em></strong> <strong>a <em>b</em></strong> <em>a <strong>b</strong></em></p>",
    ),
    ("2 * 3 * 4, snake_case_name, \\*x\\*, ~~y~~", "<p>2 * 3 * 4, snake_case_name, *x*, <del>y</del></p>"),
    ("`a*b` ``c`d`` `open", "<p><code>a*b</code> <code>c`d</code> `open</p>"),
    (
        "```rust\nlet a = \"<b>\";\n\n*x*\n```\nafter",
        "<pre language=\"rust\">let a = &quot;&lt;b&gt;&quot;;\n\n*x*</pre><p>after</p>",
    ),
    ("~~~\n```\n~~~", "<pre>```</pre>"),
    ("```\nnot closed", "<pre>not closed</pre>"),
    (
        "- a\n  - b\n- c\n\n1) d\n2) e",
        "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul><ol start=\"1\"><li>d</li><li>e</li></ol>",
    ),
    ("3. a\n\n   b\n4. c", "<ol start=\"3\"><li><p>a</p><p>b</p></li><li><p>c</p></li></ol>"),
    ("1. a\n   ```py\n   x\n   ```\n2. b", "<ol start=\"1\"><li>a<pre language=\"py\">x</pre></li><li>b</li></ol>"),
    ("> a\n> - b\n\nc\n\n---", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote><p>c</p><hr>"),
    (
        "| a | b |\n|:-:|--:|\n| `x` | 1\\|2 |\n\nz",
        concat!(
            "<table><thead><tr><th side=\"center\">a</th><th side=\"right\">b</th></tr></thead>",
            "<tbody><tr><td side=\"center\"><code>x</code></td><td side=\"right\">1|2</td></tr></tbody></table><p>z</p>"
        ),
    ),
    ("a | b is no table", "<p>a | b is no table</p>"),
    (
        "[t](https://a.b/c_(d) \"title\") <https://e.f> (see https://g.h/i_j).",
        concat!(
            "<p><a href=\"https://a.b/c_(d)\">t</a> <a href=\"https://e.f\">https://e.f</a> ",
            "(see <a href=\"https://g.h/i_j\">https://g.h/i_j</a>).</p>"
        ),
    ),
    (
        "[x](javascript:alert(1)) [y](data:text/html,z) ![i](https://a.b)",
        "<p>[x](javascript:alert(1)) [y](data:text/html,z) <a href=\"https://a.b\">i</a></p>",
    ),
    (
        "<script>alert(1)</script><img src=x onerror=alert(1)>",
        "<p>&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;</p>",
    ),
];

#[test]
fn markdown_becomes_elements_and_html_stays_text() {
    let texts: Vec<_> = MARKDOWN.iter().map(|(text, _)| text).collect();
    let Some(shown) = module(&HTML.replace("TEXTS", &json!(texts).to_string())) else { return };
    for ((text, wanted), shown) in MARKDOWN.iter().zip(shown.as_array().unwrap()) {
        assert_eq!(shown, wanted, "{text}");
    }
}

#[test]
fn hostile_markdown_takes_linear_time() {
    let source = r##"
import { markdown } from "PAGE/markdown.mjs";
const pieces = ["*a ", "[", "](", "`", "a`", "> ", "- ", "https://.", "_", "**", "*a", "# ", "| ", "|-", "\\", "](a \"", "](((", "1. ", " ", "- a\n  ", "|a|\n|-|\n", "*_", "`` ` ", "a|", "-:|"];
const slow = [];
// Returns the processor time in microseconds for converting a text of about `length` characters.
function time(begin, piece, length) {
  const text = begin + piece.repeat(length / piece.length) + "a";
  const start = process.cpuUsage();
  JSON.stringify(markdown(text));
  const { user, system } = process.cpuUsage(start);
  return user + system;
}
// The time for a text must not grow quadratically: ten times the length would take a hundred times as long. Up to
// thirty times as long, plus one second, is accepted.
for (const piece of pieces) {
  for (const begin of [piece, "https://" + piece, "| a\n" + piece]) {
    if (time(begin, piece, 100000) > 1e6 + 30 * time(begin, piece, 10000)) slow.push(begin);
  }
}
const deep = Array.from({ length: 1000 }, (_, at) => " ".repeat(2 * at) + "- a").join("\n");
JSON.stringify([markdown(deep), markdown("> ".repeat(100000)), markdown("*a ".repeat(10) + "[".repeat(100000))]);
console.log(JSON.stringify(slow));
"##;
    if let Some(slow) = module(source) {
        assert_eq!(slow, json!([]));
    }
}

#[test]
fn streams_are_read_in_pieces_of_any_size() {
    let source = r##"
import { Refused, add, metric, stream } from "PAGE/requests.mjs";
const event = (value) => `data: ${typeof value == "string" ? value : JSON.stringify(value)}\n\n`;
const delta = (delta) => event({ choices: [{ delta }] });
const call = (index, id, name, text) => ({ index, id, type: "function", function: { name, arguments: text } });
const whole = ": hello\n\n" + delta({ role: "assistant", content: "" }) + delta({ reasoning_content: "Hm. \u{1f914}" }) + delta({ content: "M\u00fcn" }) + delta({ content: "chen\n\ndata: x" })
  + delta({ tool_calls: [call(0, "a", "f", "{\"x\"")] }) + delta({ tool_calls: [{ index: 0, function: { arguments: ": 1}" } }] }) + delta({ tool_calls: [call(1, "b", "g", "{}")] });
async function read(text, size) {
  const bytes = new TextEncoder().encode(text);
  const pieces = [];
  for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.slice(at, at + size));
  globalThis.fetch = async () => new Response(new ReadableStream({ pull: (to) => (pieces.length ? to.enqueue(pieces.shift()) : to.close()) }));
  const message = { role: "assistant", content: "" };
  try {
    for await (const event of stream({}, new AbortController().signal)) add(message, event);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    message.error = error.message;
  }
  return message;
}
const answers = [];
for (const size of [1, 2, 3, 7, 50, 10000]) answers.push(await read(whole + event("[DONE]"), size));
const broken = await read(delta({ content: "a" }), 5);
const failed = await read(delta({ content: "a" }) + event({ error: { message: "no more room" } }), 5);
const size = metric("# HELP arenite_kv_bytes x\narenite_kv_bytes 5\narenite_kv_bytes{model=\"b\"} 7\narenite_kv_pages_free 3\n", "kv_bytes");
console.log(JSON.stringify({ answers, broken, failed, size }));
"##;
    let Some(read) = module(source) else { return };
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let wanted = json!({
        "role": "assistant",
        "content": "M\u{fc}nchen\n\ndata: x",
        "reasoning_content": "Hm. \u{1f914}",
        "tool_calls": [call("a", "f", "{\"x\": 1}"), call("b", "g", "{}")],
    });
    for answer in read["answers"].as_array().unwrap() {
        assert_eq!(*answer, wanted);
    }
    assert_eq!(read["broken"]["content"], "a");
    assert!(read["broken"]["error"].as_str().unwrap().contains("connection was lost"), "{read}");
    assert_eq!(read["failed"]["error"], "no more room");
    assert_eq!(read["size"], 12);
}

#[test]
fn a_branch_has_its_own_messages() {
    let source = r##"
import { append, branch, choose, fresh, fromJson, sent, shown, titleOf, toJson, toMarkdown, versions } from "PAGE/conversation.mjs";
const talk = fresh();
const say = (from, role, content, more = {}) => {
  talk.shown = from;
  append(talk, { role, content, ...more });
  return talk.shown;
};
// The conversation branches: the question a has the answers b and c, and after b follow the question d and its answer
// e. The question f is a second beginning of the conversation.
const a = say(null, "user", "a");
const b = say(a, "assistant", "b", { note: "1 token", tokens: 7 });
const c = say(a, "assistant", "c");
const d = say(b, "user", [{ type: "text", text: "x.txt:\n", file: "x.txt" }, { type: "text", text: "d" }]);
const e = say(d, "assistant", "e", { reasoning_content: "Hm.", tool_calls: [{ id: "1", type: "function", function: { name: "g", arguments: "{\"q\": 1}" } }] });
const f = say(null, "user", "f");
const names = (messages) => messages.map((message) => sent(message).content);
const branches = [b, c, e, f].map((end) => names(branch(talk, end)));
const chosen = [a, b, c, f].map((at) => (choose(talk, at), talk.shown));
const places = Array.from(versions(talk).values());
choose(talk, b);
const request = shown(talk).map(sent);
const copy = fromJson(toJson(talk));
// `long` is a chain of messages that is far longer than any real conversation.
const long = { ...fresh(), messages: Array.from({ length: 50000 }, (_, at) => ({ parent: at ? at - 1 : null, role: "user", content: "x" })) };
choose(long, 0);
console.log(JSON.stringify({ branches, chosen, places, request, talk, copy, title: titleOf(copy), markdown: toMarkdown(talk), long: [long.shown, shown(long).length] }));
"##;
    let Some(found) = module(source) else { return };
    let d = json!([{ "type": "text", "text": "x.txt:\n" }, { "type": "text", "text": "d" }]);
    assert_eq!(found["branches"], json!([["a", "b"], ["a", "c"], ["a", "b", d, "e"], ["f"]]));
    // For each question, the page shows the branch with the newest message: here c, which is newer than b.
    assert_eq!(found["chosen"], json!([2, 4, 2, 5]));
    assert_eq!(found["places"], json!([[0, 5], [1, 2], [1, 2], [3], [4], [0, 5]]));
    let call = json!({ "id": "1", "type": "function", "function": { "name": "g", "arguments": "{\"q\": 1}" } });
    let wanted = json!([
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": "b" },
        { "role": "user", "content": d },
        { "role": "assistant", "content": "e", "reasoning_content": "Hm.", "tool_calls": [call] },
    ]);
    assert_eq!(found["request"], wanted);
    for field in ["messages", "shown"] {
        assert_eq!(found["copy"][field], found["talk"][field]);
    }
    assert_ne!(found["copy"]["id"], found["talk"]["id"]);
    assert_eq!(found["title"], "a");
    let markdown = "# a\n\n## User\n\na\n\n## Assistant\n\nb\n\n## User\n\nx.txt:\n\nd\n\n## Assistant\n\n> Hm.\n\ne\n\n\
                    Call of `g`:\n\n```json\n{\"q\": 1}\n```\n";
    assert_eq!(found["markdown"], markdown);
    assert_eq!(found["long"], json!([49999, 50000]));
}
