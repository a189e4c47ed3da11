//! Formats prompts for the built-in model, which tells stories. The user's line is the beginning of a story, or a
//! request for a story.

/// Beginnings of texts that are already stories.
const BEGINNINGS: [&str; 14] = [
    "once ", "one ", "there ", "early ", "late ", "a long ", "long ago", "in a ", "in the ", "on a ", "on the ",
    "at the ", "high up", "it was ",
];
/// Heroes that occur in the training data.
const HEROES: [&str; 15] = [
    "rabbit", "fox", "mouse", "bear", "squirrel", "hedgehog", "duck", "frog", "turtle", "beaver", "badger", "otter",
    "mole", "girl", "boy",
];

/// Returns the beginning of the story requested by `line`; `None` if `line` is itself the beginning of a story.
pub fn opening(line: &str) -> Option<String> {
    let line = line.trim().to_lowercase();
    if BEGINNINGS.iter().any(|beginning| line.starts_with(beginning)) {
        return None;
    }
    let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '-').filter(|w| !w.is_empty()).collect();
    let known = words.iter().find(|word| HEROES.contains(word)).copied();
    Some(match known.or_else(|| subject(&words)) {
        Some(hero) => format!("Once upon a time, there was a little {hero} named"),
        None => "Once upon a time, there was a little".to_string(),
    })
}

/// Returns the last word of the subject after `about a`.
fn subject<'l>(words: &[&'l str]) -> Option<&'l str> {
    let at = words.windows(2).position(|pair| pair[0] == "about" && ["a", "an", "my", "some"].contains(&pair[1]))?;
    let ends = |word: &&&str| !["and", "or", "who", "that", "which", "with", "in", "on", "at", "of"].contains(*word);
    words.get(at + 2..)?.iter().take_while(ends).last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_whom_the_story_is_about() {
        let about = |line: &str| {
            opening(line).and_then(|text| Some(text.strip_suffix(" named")?.rsplit(' ').next()?.to_string()))
        };
        assert_eq!(about("tell about a fox").as_deref(), Some("fox"));
        assert_eq!(about("Tell me of the Bear and his friends!").as_deref(), Some("bear"));
        assert_eq!(about("Can you tell a story about a big red dragon who sings?").as_deref(), Some("dragon"));
        assert_eq!(about("Hello"), None);
        assert!(opening("Hello").is_some_and(|text| text.starts_with("Once upon a time")));
        assert_eq!(opening("One day, a fox"), None);
        assert_eq!(opening(" Once upon a time"), None);
    }
}
