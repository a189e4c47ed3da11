//! Makes text from outside safe for terminals and logs, for example names in files and requests.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Makes one line of a log from text that may come from outside. The line cannot control a terminal on which the log is
/// shown, and it cannot begin a second line.
pub fn log_line(text: &str) -> String {
    let text = text.trim_end_matches('\n').replace(['\n', '\r', '\t'], " ");
    String::from_utf8_lossy(&escaped(text.as_bytes())).into_owned() + "\n"
}

/// Like [`log_line`], but for JSON text: characters are escaped as in JSON.
pub fn log_json(json: &str) -> String {
    let mut line = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // These characters can only be inside strings, where JSON allows escapes. Four digits are enough for them,
        // because none is above U+FFFF.
        if c.is_control() || steers(c) { _ = write!(line, "\\u{:04x}", u32::from(c)) } else { line.push(c) }
    }
    line + "\n"
}

/// Escapes characters that control a terminal.
pub fn escaped(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' | '\t' => shown.push(c),
                '\0'..' ' | '\x7f' => _ = write!(shown, "\\x{:02x}", u32::from(c)),
                _ if steers(c) => _ = write!(shown, "\\u{{{:x}}}", u32::from(c)),
                _ => shown.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| _ = write!(shown, "\\x{byte:02x}"));
    }
    Cow::Owned(shown.into_bytes())
}

/// Returns true if a character is a C1 control, separates lines, or changes the writing direction.
fn steers(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

/// Replaces each run of line breaks and other control characters, and the spaces around it, by one space.
pub fn one_line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.split(breaks).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_steered() {
        let shown = |bytes: &[u8]| String::from_utf8(escaped(bytes).into_owned()).unwrap();
        assert_eq!(shown("a\tb\n\u{e9} \u{928}\u{1f600}".as_bytes()), "a\tb\n\u{e9} \u{928}\u{1f600}");
        assert_eq!(shown("a\u{2028}b".as_bytes()), "a\\u{2028}b");
        assert_eq!(shown(b"\x1b[2J\r\x7f\0"), "\\x1b[2J\\x0d\\x7f\\x00");
        assert_eq!(shown("\u{9b}2J\u{202e}abc\u{2066}".as_bytes()), "\\u{9b}2J\\u{202e}abc\\u{2066}");
        assert_eq!(shown(b"\x9b2J"), "\\x9b2J");
    }

    #[test]
    fn a_log_line_is_one_line_that_steers_nothing() {
        assert_eq!(log_line("a\u{9b}2J\x1b[31m\nb\n"), "a\\u{9b}2J\\x1b[31m b\n");
        let json = serde_json::to_string("\u{9b}2J\u{202e}\x1b\x7f\u{e9}").unwrap();
        assert_eq!(log_json(&json), "\"\\u009b2J\\u202e\\u001b\\u007f\u{e9}\"\n");
        assert_eq!(serde_json::from_str::<String>(&log_json(&json)).unwrap(), "\u{9b}2J\u{202e}\x1b\x7f\u{e9}");
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(one_line("a\n  b\r\n\nc"), "a b c");
        assert_eq!(one_line("a\rb\u{85}c\u{2028}d\u{2029}e\x0bf\x0cg\th\x1bi\0j\x7fk"), "a b c d e f g h i j k");
        assert_eq!(one_line("\u{938}\u{94d}\u{200d}\u{e9} \u{a0}x"), "\u{938}\u{94d}\u{200d}\u{e9} \u{a0}x");
    }
}
