//! Byte parts of a model file: `X.gguf.part1of2`, `X.gguf-split-a`. The parts must be joined in order to get the file;
//! a single part is not a model.

use regex_lite::Regex;

/// Returns the name of the whole file, if `file` is the name of a byte part.
#[must_use]
pub fn whole_of(file: &str) -> Option<&str> {
    let pattern = Regex::new(r"(?i)^(.*\.gguf)(\.part\d+of\d+|\.part-?[a-z]{2}|-split-[a-z]{1,2})$").ok()?;
    Some(pattern.captures(file)?.get(1)?.as_str())
}

/// Returns the command that joins the byte parts of `whole` among `files`.
#[must_use]
pub fn joining<'f>(whole: &str, files: impl Iterator<Item = &'f str>) -> String {
    let mut parts: Vec<&str> = files.filter(|file| whole_of(file) == Some(whole)).collect();
    // Sort by length first. In alphabetical order, `part10of12` would come before `part2of12`.
    parts.sort_by_key(|part| (part.len(), *part));
    let quoted = |name: &str| if name.contains([' ', '\'']) { format!("{name:?}") } else { name.to_owned() };
    let parts: Vec<String> = parts.into_iter().map(quoted).collect();
    format!("cat {} > {}", parts.join(" "), quoted(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_in_order() {
        for (part, whole) in [
            ("m.Q8_0.gguf.part2of12", Some("m.Q8_0.gguf")),
            ("m.gguf-split-b", Some("m.gguf")),
            ("m.gguf.partab", Some("m.gguf")),
            ("m.gguf", None),
            ("m.gguf.part", None), // an unfinished download
            ("m-00001-of-00002.gguf", None),
        ] {
            assert_eq!(whole_of(part), whole, "{part}");
        }
        let files = ["m.gguf.part10of10", "m.gguf.part9of10", "n.gguf.part1of2", "m.gguf"];
        assert_eq!(joining("m.gguf", files.into_iter()), "cat m.gguf.part9of10 m.gguf.part10of10 > m.gguf");
    }
}
