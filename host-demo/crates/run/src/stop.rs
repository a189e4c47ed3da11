//! Stop strings: the output ends before the first stop string. No part of a stop string is ever shown.

/// Holds back text that may be the start of a stop string.
#[derive(Debug, Default)]
pub struct StopFilter {
    stops: Vec<String>,
    held: String,
    /// The stop string that was found.
    found: Option<String>,
}

impl StopFilter {
    /// Creates a filter. Empty stop strings are ignored because they would end every output at once.
    pub fn new(stops: &[String]) -> Self {
        Self {
            stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
            held: String::new(),
            found: None,
        }
    }

    /// Adds a piece of the answer's text. Returns the text that may be shown, and true if the text contains a stop
    /// string.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let first = self.stops.iter().filter_map(|stop| Some((self.held.find(stop)?, stop))).min();
        if let Some((at, stop)) = first {
            self.found = Some(stop.clone());
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.stops.iter().map(|stop| begun(&self.held, stop)).max().unwrap_or(0);
        let shown = self.held.drain(..self.held.len() - keep).collect();
        (shown, false)
    }

    /// Returns the stop string that was found.
    pub fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Returns the text that was held back and is not a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Length of the longest proper prefix of `stop` at the end of `text`.
fn begun(text: &str, stop: &str) -> usize {
    let beginnings = stop.char_indices().map(|(at, _)| &stop[..at]);
    beginnings.filter(|beginning| text.ends_with(beginning)).map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter on the text in `pieces`, piece by piece. Returns the text that is shown, and true if a stop string
    /// was found.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut filter = StopFilter::new(&stops.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        let mut shown = String::new();
        for piece in pieces {
            let (part, stopped) = filter.push(piece);
            shown += &part;
            if stopped {
                return (shown, true);
            }
        }
        (shown + &filter.finish(), false)
    }

    #[test]
    fn without_stops_everything_is_shown_at_once() {
        assert_eq!(StopFilter::new(&[]).push("abc"), ("abc".into(), false));
        assert_eq!(run(&[""], &["a", "b"]), ("ab".into(), false));
    }

    #[test]
    fn a_stop_across_pieces_is_never_shown() {
        assert_eq!(run(&["END"], &["one E", "N", "D two"]), ("one ".into(), true));
        assert_eq!(run(&["END"], &["one E", "N", "d two"]), ("one ENd two".into(), false));
        assert_eq!(run(&["aab"], &["a", "a", "a", "b"]), ("a".into(), true));
    }

    #[test]
    fn characters_stay_whole() {
        assert_eq!(run(&["\u{e9}\u{e8}"], &["a\u{e9}", "\u{e9}", "\u{e8}"]), ("a\u{e9}".into(), true));
        assert_eq!(StopFilter::new(&["\u{e9}".into()]).push("\u{e8}"), ("\u{e8}".into(), false));
    }

    #[test]
    fn the_first_of_several_counts() {
        assert_eq!(run(&["two", "one"], &["zero one two"]), ("zero ".into(), true));
    }

    #[test]
    fn what_was_held_back_comes_at_the_end() {
        assert_eq!(run(&["\n\n"], &["line\n"]), ("line\n".into(), false));
    }
}
