//! Finds paths of pictures in a line: pictures that were dropped on the terminal.

use std::path::PathBuf;

use crate::cli::pictures::is_picture;

/// Removes the absolute paths of existing pictures from a line, and returns them. Terminals quote a dropped path,
/// escape its spaces with backslashes, or write an address that begins with `file://`.
pub fn dropped(line: &str) -> (Vec<PathBuf>, String) {
    let (mut paths, mut text, mut rest) = (Vec::new(), String::new(), line);
    while !rest.is_empty() {
        let space = rest.len() - rest.trim_start().len();
        text += &rest[..space];
        rest = &rest[space..];
        let (word, len) = word(rest);
        match path(&word).filter(|path| path.is_absolute() && is_picture(path)) {
            Some(path) => paths.push(path),
            None => text += &rest[..len],
        }
        rest = &rest[len..];
    }
    (paths, text.trim().to_string())
}

/// Returns the first word of a line, without quotes and escapes, and its length in the line.
fn word(line: &str) -> (String, usize) {
    let quote = line.chars().next().filter(|first| ['\'', '"'].contains(first));
    if let Some(quote) = quote
        && let Some(end) = line[1..].find(quote)
    {
        return (line[1..=end].to_string(), end + 2);
    }
    let (mut word, mut is_escaped) = (String::new(), false);
    for (at, c) in line.char_indices() {
        match c {
            '\\' if !is_escaped && cfg!(not(windows)) => {
                is_escaped = true;
                continue;
            }
            c if c.is_whitespace() && !is_escaped => return (word, at),
            c => word.push(c),
        }
        is_escaped = false;
    }
    (word, line.len())
}

fn path(word: &str) -> Option<PathBuf> {
    let Some(address) = word.strip_prefix("file://") else { return Some(word.into()) };
    // The address of a file has its bytes in percent notation.
    let (mut bytes, mut rest) = (Vec::new(), address.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    Some(String::from_utf8(bytes).ok()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn paths_are_taken_out_of_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let (plain, spaced) = (folder.path().join("a.png"), folder.path().join("a cat's.JPG"));
        for path in [&plain, &spaced] {
            std::fs::write(path, "").expect("a file");
        }
        let at = folder.path().display();
        for (line, paths, text) in [
            (format!("{at}/a.png"), vec![&plain], ""),
            (format!("'{at}/a.png' What is this?"), vec![&plain], "What is this?"),
            (format!("Compare {at}/a.png and \"{at}/a cat's.JPG\"!"), vec![&plain, &spaced], "Compare  and !"),
            (format!("{at}/a\\ cat\\'s.JPG  "), vec![&spaced], ""),
            (format!("file://{at}/a%20cat%27s.JPG"), vec![&spaced], ""),
            (format!("{at}/none.png, don't say a.png \\o/"), vec![], &*format!("{at}/none.png, don't say a.png \\o/")),
            ("/help".to_string(), vec![], "/help"),
        ] {
            assert_eq!(dropped(&line), (paths.into_iter().cloned().collect(), text.to_string()), "{line}");
        }
    }
}
