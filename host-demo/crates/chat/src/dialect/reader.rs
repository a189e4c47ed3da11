//! Splits an answer into its thought, its content and its calls while it is generated.

mod messages;

use std::sync::Arc;

use super::channels::Channel;
use super::marks::{ends_token, has_token, shown, unwrapped};
use super::step::{Step, Unread};
use super::syntax::{self, End};
use super::tools::{Call, Tools};
use super::{Dialect, Syntax};

/// Part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Content(String),
    Thought(String),
    Call(Call),
}

/// Maximum length in bytes of a call that is parsed again with every token.
const SHORT_CALL: usize = 4096;

/// Splits an answer while its text arrives. Holds back only text that may still become a delimiter or a call.
#[derive(Clone, Debug)]
pub struct Reader {
    dialect: Arc<Dialect>,
    tools: Arc<Tools>,
    state: State,
    /// Text that is not yet classified.
    held: String,
    /// Length of `held` from which a long call is parsed again.
    next: usize,
    /// White space at the end of the content so far. If more content or the end of the answer follows, the white space
    /// is returned. If a function call or the wrapper's closing delimiter follows, it is dropped.
    spaces: String,
    /// The delimiter that ends the content. It comes from the wrapper of the answer or from the form of the thought;
    /// empty if there is none.
    wrapper: String,
    /// True once the closing delimiter `wrapper` was read. Spaces after it are dropped.
    has_ended: bool,
    /// True if all text after `wrapper` is dropped.
    drops_rest: bool,
    /// True if the limit of tokens ended the answer.
    is_cut: bool,
    /// True if a call without a delimiter is accepted.
    reads_bare: bool,
    /// True if only the first call counts.
    only_one: bool,
    /// True if thoughts are dropped.
    hides_thoughts: bool,
    calls: usize,
    /// True while only spaces came after a call.
    is_after_call: bool,
    /// Number of bytes at the start of `held` that the model did not generate, because they are the end of the prompt.
    implied: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Only spaces so far.
    Start,
    /// The text read so far ends inside a thought, which the delimiter `close` will end. `has_begun` is true once text
    /// of the thought was returned. `end` is the delimiter after the content that follows the thought.
    Thought {
        close: String,
        has_begun: bool,
        end: String,
    },
    /// After a thought: leading spaces are dropped.
    AfterThought,
    Content,
    /// `held` begins with a call. The numbers are the indices in the dialect's `calls` of the forms that the call may
    /// have.
    Call(Vec<usize>),
    Channel(Channel),
}

impl Reader {
    /// Reads an answer to `prompt`, which may already have opened a thought.
    pub fn new(dialect: Arc<Dialect>, tools: Arc<Tools>, prompt: &str) -> Self {
        let mut reader = Self {
            dialect,
            tools,
            state: State::Start,
            held: String::new(),
            next: 0,
            spaces: String::new(),
            wrapper: String::new(),
            has_ended: false,
            drops_rest: false,
            is_cut: false,
            reads_bare: true,
            only_one: false,
            hides_thoughts: false,
            calls: 0,
            is_after_call: false,
            implied: 0,
        };
        let prompt = prompt.trim_end();
        if let Some(form) = reader.dialect.opened_by(prompt) {
            let (close, end) = (form.close.clone(), form.end.clone());
            reader.state = State::Thought { close, has_begun: false, end };
        } else if let Some(mark) = reader.dialect.call_begun_by(prompt).map(str::to_string) {
            reader.implied = mark.len();
            reader.held = mark;
        } else if let Some(close) = reader.dialect.content_opened_by(prompt).map(str::to_string) {
            (reader.wrapper, reader.state) = (close, State::AfterThought);
        } else {
            let channels = &reader.dialect.channels;
            reader.state = Channel::opened_by(prompt, channels).map_or(State::Start, State::Channel);
        }
        reader
    }

    /// Treats the whole answer as content, for answers that follow a schema.
    pub fn without_thought(mut self) -> Self {
        if matches!(self.state, State::Start) {
            self.state = State::Content;
        }
        self
    }

    /// Treats calls without a delimiter as content.
    pub fn only_marked(mut self) -> Self {
        self.reads_bare = false;
        self
    }

    /// Drops calls after the first.
    pub fn only_one_call(mut self) -> Self {
        self.only_one = true;
        self
    }

    /// Drops the text of thoughts if `is_hidden` is true.
    pub fn hiding_thoughts(mut self, is_hidden: bool) -> Self {
        self.hides_thoughts = is_hidden;
        self
    }

    /// Returns true if a thought is open.
    pub fn is_thinking(&self) -> bool {
        match &self.state {
            State::Thought { .. } => true,
            State::Channel(channel) => channel.is_thought(),
            _ => false,
        }
    }

    /// Returns true if a thought is open or may still follow.
    pub fn may_think(&self) -> bool {
        self.is_harmony() || matches!(self.state, State::Start | State::Thought { .. } | State::Channel(_))
    }

    /// Returns the text that closes the open thought. If the dialect has channels, the text also begins the next
    /// message. If the message can only be content (no functions are declared, or `is_last` is true), the text includes
    /// its header; otherwise the model writes the header.
    pub fn closing(&self, is_last: bool) -> String {
        let Dialect { channels, has_recipients, .. } = &*self.dialect;
        match &self.state {
            State::Thought { close, .. } => format!("\n{}\n\n", unwrapped(close)),
            _ => unwrapped(&channels.after_thought(*has_recipients, is_last || self.tools.is_empty())),
        }
    }

    /// Adds a piece of text, and appends the parts that are complete to `parts`.
    pub fn push(&mut self, piece: &str, parts: &mut Vec<Part>) {
        if piece.is_empty() {
            return;
        }
        self.held += piece;
        if matches!(self.state, State::Call(_)) && self.held.len() > SHORT_CALL && !self.may_end_call(piece) {
            return;
        }
        self.advance(parts, false);
        self.next = self.held.len() + self.held.len() / 8;
    }

    /// Returns true if a long call is parsed again after `piece`, the last text. This is the case if the closing
    /// delimiter is complete, or if the call has grown so much that the total time of all attempts stays proportional
    /// to its length.
    fn may_end_call(&self, piece: &str) -> bool {
        let State::Call(forms) = &self.state else { return true };
        let closes = |form: &usize| {
            let mark = self.dialect.calls[*form].close.as_str();
            let start = self.held.len().saturating_sub(piece.len() + mark.len());
            !mark.is_empty() && self.held.as_bytes()[start..].windows(mark.len()).any(|text| text == mark.as_bytes())
        };
        ends_token(piece)
            || piece.contains(['}', ']', ')', '>', '`']) && (self.held.len() >= self.next || forms.iter().any(closes))
    }

    /// Ends the answer, and appends the text that was held back to `parts`. `is_cut` is true if the limit of tokens
    /// ended the answer: an incomplete call then becomes content.
    pub fn finish(&mut self, parts: &mut Vec<Part>, is_cut: bool) {
        self.is_cut = is_cut;
        self.advance(parts, true);
        if self.calls == 0 && !self.has_ended && !self.spaces.is_empty() {
            let spaces = std::mem::take(&mut self.spaces);
            parts.push(Part::Content(spaces));
        }
    }

    fn advance(&mut self, parts: &mut Vec<Part>, is_end: bool) {
        self.take_turns(parts, is_end);
        if self.hides_thoughts {
            parts.retain(|part| !matches!(part, Part::Thought(_)));
        }
    }

    fn take_turns(&mut self, parts: &mut Vec<Part>, is_end: bool) {
        let mut rounds = 0;
        loop {
            let before = (self.state.clone(), self.held.len());
            match self.state.clone() {
                State::Start => self.start(is_end),
                State::AfterThought => self.after_thought(is_end),
                State::Thought { close, has_begun, end } => self.thought(parts, close, has_begun, end, is_end),
                State::Content => self.content(parts, is_end),
                State::Call(forms) => self.call(parts, &forms, is_end),
                State::Channel(channel) => self.channel(parts, channel, is_end),
            }
            // The loop ends with the first round that changes nothing. The limit on rounds is a safeguard against
            // endless loops.
            rounds += 1;
            if before.0 == self.state && before.1 == self.held.len() || rounds > 1 << 20 {
                return;
            }
        }
    }

    /// Classifies the start of the answer: a thought, a channel, a call without a delimiter, or content.
    fn start(&mut self, is_end: bool) {
        let dialect = self.dialect.clone();
        let text = self.held.trim_start();
        let skipped = self.held.len() - text.len();
        if text.is_empty() {
            if is_end {
                self.state = State::Content;
            }
            return;
        }
        if let Some(form) = dialect.thoughts.iter().find(|form| text.starts_with(form.open.as_str())) {
            let next = State::Thought { close: form.close.clone(), has_begun: false, end: form.end.clone() };
            self.held.drain(..skipped + form.open.len());
            self.state = next;
            return;
        }
        // The answer may begin by closing a thought: an empty one, or one that the prompt did not open.
        if let Some(form) = dialect.thoughts.iter().find(|form| text.starts_with(form.close.as_str())) {
            self.wrapper.clone_from(&form.end);
            self.held.drain(..skipped + form.close.len());
            self.state = State::AfterThought;
            return;
        }
        let channels = &dialect.channels;
        let recipient = if self.is_harmony() { "to=" } else { channels.channel.as_str() };
        let headers = [channels.channel.as_str(), channels.start.as_str(), recipient];
        if headers.iter().any(|mark| text.starts_with(mark)) {
            self.held.drain(..skipped);
            self.state = State::Channel(Channel::Header);
            return;
        }
        let thoughts = dialect.thoughts.iter().flat_map(|form| [form.open.as_str(), form.close.as_str()]);
        if is_end && self.is_cut && text.chars().nth(1).is_some() && thoughts.clone().any(|mark| mark.starts_with(text))
        {
            self.held.clear();
            return;
        }
        let mut marks = thoughts.chain(headers);
        if !is_end && marks.any(|mark| mark.starts_with(text)) {
            return;
        }
        if self.begins_wrapper(skipped, is_end) {
            return;
        }
        self.begin_content(is_end);
    }

    /// Removes a wrapper's opening delimiter before the content. Returns true if a delimiter was removed, or if the
    /// text may still become an opening delimiter.
    fn begins_wrapper(&mut self, skipped: usize, is_end: bool) -> bool {
        let text = &self.held[skipped..];
        // At the start of an answer, a delimiter counts only if it is a token or a text that is not used otherwise.
        // After a thought, every delimiter counts.
        let is_after = !matches!(self.state, State::Start);
        let is_mark = |open: &str| open.starts_with("<|") || matches!(open, ">>>all\n" | "<plain>");
        let counts = |open: &str| is_after || has_token(open) || is_mark(open);
        // Some delimiters of a wrapper may also begin a call. Such a delimiter is dropped only if no call follows.
        let is_call = |open: &str| self.triggers().any(|mark| mark == open);
        let wrappers = self.dialect.wrappers.iter().filter(|(open, _)| counts(open) && !is_call(open));
        for (open, close) in wrappers {
            if text.starts_with(open.as_str()) {
                self.wrapper.clone_from(close);
                let len = skipped + open.len();
                self.held.drain(..len);
                self.implied = 0;
                self.state = State::AfterThought;
                return true;
            }
            if !is_end && open.starts_with(text) {
                return true;
            }
        }
        false
    }

    fn after_thought(&mut self, is_end: bool) {
        let skipped = self.held.len() - self.held.trim_start().len();
        self.held.drain(..skipped);
        if self.held.is_empty() {
            return;
        }
        // If the program has closed a thought, because it was too long, the model may begin another thought.
        if let Some(form) = self.dialect.thoughts.iter().find(|form| self.held.starts_with(form.open.as_str())) {
            self.state = State::Thought { close: form.close.clone(), has_begun: false, end: form.end.clone() };
            self.held.drain(..form.open.len());
            return;
        }
        if !is_end && self.dialect.thoughts.iter().any(|form| form.open.starts_with(self.held.as_str())) {
            return;
        }
        let channels = &self.dialect.channels;
        if self.held.starts_with(&channels.start) && !self.begins_known_wrapper() {
            self.state = State::Channel(Channel::Header);
        } else if !self.begins_wrapper(0, is_end) {
            self.begin_content(is_end);
        }
    }

    fn begins_known_wrapper(&self) -> bool {
        self.dialect.wrappers.iter().any(|(open, _)| self.held.starts_with(open.as_str()))
    }

    /// Switches from a thought, or from the start, to the content of the answer. The content may begin with a call,
    /// also with one that has no delimiter.
    fn begin_content(&mut self, is_end: bool) {
        let text = self.held.trim_start();
        let mut marks = self.dialect.calls.iter().map(|form| form.trigger()).filter(|mark| !mark.is_empty());
        if !is_end && !self.tools.is_empty() && marks.any(|mark| mark.len() > text.len() && mark.starts_with(text)) {
            return;
        }
        let is_begun =
            self.is_cut && text.chars().nth(1).is_some() && self.triggers().any(|mark| mark.starts_with(text));
        if is_end && is_begun {
            self.held.clear();
            return;
        }
        let bare = self.dialect.calls.iter().enumerate().filter(|(_, form)| form.trigger().is_empty());
        let forms: Vec<usize> = bare.map(|(at, _)| at).collect();
        let is_bare = self.reads_bare && !self.tools.is_empty() && self.may_be_bare(&forms);
        self.state =
            if is_bare && !forms.is_empty() && !self.begins_with_mark() { State::Call(forms) } else { State::Content };
    }

    /// Returns true if the text that was held back may begin a call without a delimiter: JSON or a list, also in a code
    /// block, or the name of a function.
    fn may_be_bare(&self, forms: &[usize]) -> bool {
        let text = self.held.trim_start();
        let has_name = forms.iter().any(|at| matches!(self.dialect.calls[*at].syntax, Syntax::Named { .. }));
        text.starts_with(['{', '[', '`']) || has_name && self.tools.begins(text.lines().next().unwrap_or_default())
    }

    fn begins_with_mark(&self) -> bool {
        let text = self.held.trim_start();
        self.dialect.calls.iter().map(|form| form.trigger()).any(|mark| !mark.is_empty() && text.starts_with(mark))
    }

    fn thought(&mut self, parts: &mut Vec<Part>, close: String, mut has_begun: bool, end: String, is_end: bool) {
        let at = self.held.find(&close);
        let calls = if at.is_none() { self.calls_in_thought(is_end) } else { None };
        let keep = match &calls {
            Some((start, _)) => self.held.len() - start,
            None if is_end || at.is_some() => 0,
            None => begun(&self.held, self.triggers().chain([close.as_str()])),
        };
        let len = at.unwrap_or(self.held.len() - keep);
        // White space around the thought is dropped. White space at the end of the text is held back until more text
        // follows.
        let text = if at.is_some() || is_end { self.held[..len].trim_end() } else { &self.held[..len] };
        let last = text.trim_end().len();
        let text = if has_begun { &text[..last] } else { text[..last].trim_start() };
        if !text.is_empty() {
            parts.push(Part::Thought(unwrapped(text)));
            has_begun = true;
        }
        match at {
            Some(at) => {
                self.held.drain(..at + close.len());
                self.wrapper = end;
                self.state = State::AfterThought;
            }
            None => {
                self.held.drain(..if is_end { len } else { last });
                self.state = State::Thought { close, has_begun, end };
            }
        }
        if let Some((_, calls)) = calls.filter(|_| is_end) {
            self.held.clear();
            self.give(calls, parts);
        }
    }

    /// The delimiters at the start of calls of declared functions.
    fn triggers(&self) -> impl Iterator<Item = &str> {
        let forms = self.dialect.calls.iter().filter(|_| !self.tools.is_empty());
        forms.map(|form| form.trigger()).filter(|mark| !mark.is_empty())
    }

    /// Finds the calls at the end of an open thought, because a model may forget to close its thought. Returns the
    /// position of the calls. Before the end of the answer, the position may also be that of text that may still become
    /// such calls.
    fn calls_in_thought(&self, is_end: bool) -> Option<(usize, Vec<Call>)> {
        let mut from = 0;
        loop {
            let first = self.triggers().filter_map(|mark| Some((from + self.held[from..].find(mark)?, mark)));
            let (at, mark) = first.min_by_key(|(at, mark)| (*at, usize::MAX - mark.len()))?;
            match self.calls_to_end(&self.held[at..], is_end) {
                Ok(calls) if !self.is_cut => return Some((at, calls)),
                Err(Unread::More) if !is_end => return Some((at, Vec::new())),
                _ => from = at + mark.len(),
            }
        }
    }

    /// Parses a text that consists of calls with their delimiters.
    fn calls_to_end(&self, mut text: &str, is_end: bool) -> Step<Vec<Call>> {
        let end = if is_end { End::Whole } else { End::Open };
        let mut all = Vec::new();
        while !text.is_empty() {
            let mut step = Err(Unread::No);
            for form in self.dialect.calls.iter().filter(|form| !form.trigger().is_empty()) {
                if form.trigger().len() > text.len() && form.trigger().starts_with(text) && !is_end {
                    return Err(Unread::More);
                }
                let inner = text.strip_prefix(form.open.as_str()).filter(|_| text.starts_with(form.trigger()));
                match inner.map(|inner| syntax::read(form, &self.tools, inner, end)) {
                    Some(Ok(read)) => {
                        step = Ok((read.0, form.open.len() + read.1));
                        break;
                    }
                    Some(Err(Unread::More)) => step = Err(Unread::More),
                    _ => {}
                }
            }
            let (calls, len) = step?;
            all.extend(calls);
            text = text[len..].trim_start();
        }
        if is_end { Ok(all) } else { Err(Unread::More) }
    }

    fn content(&mut self, parts: &mut Vec<Part>, is_end: bool) {
        let mut marks: Vec<&str> = self.triggers().collect();
        marks.sort_unstable();
        marks.dedup();
        let channel = self.dialect.channels.channel.as_str();
        if self.is_harmony() {
            marks.push(channel);
        }
        let wrapper = self.wrapper.as_str();
        if !wrapper.is_empty() {
            marks.push(wrapper);
        }
        let first = marks.iter().filter_map(|mark| Some((self.held.find(mark)?, *mark)));
        // If several delimiters begin at the same position, the longest one counts.
        let first = first.min_by_key(|(at, mark)| (*at, usize::MAX - mark.len()));
        let Some((at, mark)) = first else {
            let marks: Vec<String> = marks.into_iter().map(str::to_string).collect();
            let marks = || marks.iter().map(String::as_str);
            if is_end && self.is_cut && self.is_after_call && self.begins_close() {
                self.held.clear();
            }
            if is_end {
                self.drop_begun(marks());
            }
            let keep = if is_end { 0 } else { begun(&self.held, marks()) };
            let len = self.held.len() - keep;
            let text: String = self.held.drain(..len).collect();
            self.say(&text, parts);
            return;
        };
        if mark == wrapper {
            let len = mark.len();
            self.drops_rest = unwrapped(mark).starts_with("<|");
            let text: String = self.held.drain(..at).collect();
            self.held.drain(..len);
            self.say(&text, parts);
            self.wrapper.clear();
            self.spaces.clear();
            self.has_ended = true;
            return;
        }
        if mark == channel && self.is_harmony() {
            let text: String = self.held.drain(..at).collect();
            self.say(&text, parts);
            self.state = State::Channel(Channel::Header);
            return;
        }
        let forms = self.dialect.calls.iter().enumerate().filter(|(_, form)| form.trigger() == mark);
        let forms = forms.map(|(at, _)| at).collect();
        let text: String = self.held.drain(..at).collect();
        self.implied = self.implied.saturating_sub(at);
        self.say(&text, parts);
        self.state = State::Call(forms);
    }

    fn is_harmony(&self) -> bool {
        self.dialect.has_channels
    }

    /// Parses the calls at the start of `held`. If this fails, the opening delimiter is content. If the end of the
    /// answer cuts off a call after complete ones, the incomplete call is dropped.
    fn call(&mut self, parts: &mut Vec<Part>, forms: &[usize], is_end: bool) {
        let dialect = self.dialect.clone();
        let (mut is_open, mut is_cut) = (false, false);
        let end = match (is_end, self.is_cut) {
            (false, _) => End::Open,
            (true, false) => End::Whole,
            (true, true) => End::Cut,
        };
        for form in forms.iter().map(|at| &dialect.calls[*at]) {
            let text = &self.held[form.open.len()..];
            match syntax::read(form, &self.tools, text, end) {
                Ok((calls, len)) => {
                    let is_bare = form.trigger().is_empty();
                    let rest = text[len..].trim_start();
                    let closed = self.closed(rest).filter(|_| is_bare);
                    if is_bare && closed.is_none() && (!rest.is_empty() || !is_end) {
                        // Without a delimiter, calls must be the whole answer.
                        is_open |= self.may_close(rest);
                        continue;
                    }
                    let len = form.open.len() + closed.map_or(len, |rest| text.len() - rest.len());
                    self.held.drain(..len);
                    self.implied = 0;
                    self.give(calls, parts);
                    self.state = State::Content;
                    return;
                }
                Err(Unread::More) if is_end => is_cut = true,
                Err(Unread::More) => is_open = true,
                Err(Unread::No) => {}
            }
        }
        if is_open {
            return;
        }
        let is_bare = forms.iter().all(|at| dialect.calls[*at].trigger().is_empty());
        if is_cut && (self.calls > 0 || self.is_cut && (!is_bare || self.names_function())) {
            // The answer ends within a call.
            self.held.clear();
            self.implied = 0;
            self.state = State::Content;
            return;
        }
        let mark = forms.first().map_or(0, |at| dialect.calls[*at].trigger().len());
        // At least one character becomes text, so that the same text is not parsed as a call again.
        let len = mark.max(self.held.chars().next().map_or(0, char::len_utf8));
        let mut text: String = self.held.drain(..len).collect();
        text.drain(..if dialect.wrappers.iter().any(|(open, _)| *open == text) { len } else { self.implied.min(len) });
        self.implied = 0;
        self.state = State::Content;
        self.say(&text, parts);
    }

    /// If `text` starts with a closing delimiter, returns the text after it. A model may have forgotten only the
    /// opening delimiter.
    fn closed<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.closing_marks().find_map(|mark| text.strip_prefix(mark))
    }

    /// Returns true if `text` may become a closing delimiter.
    fn may_close(&self, text: &str) -> bool {
        text.is_empty() || self.closing_marks().any(|mark| mark.starts_with(text))
    }

    /// The delimiters after calls in JSON.
    fn closing_marks(&self) -> impl Iterator<Item = &str> {
        let forms = self.dialect.calls.iter().filter(|form| matches!(form.syntax, Syntax::Json { .. }));
        forms.map(|form| form.close.as_str()).filter(|mark| !mark.is_empty())
    }

    /// Calls in some forms have no delimiter. Returns true if the text held back so far contains the name of a declared
    /// function in quotes, as such calls do.
    fn names_function(&self) -> bool {
        self.tools.0.iter().any(|tool| self.held.contains(&format!("\"{}\"", tool.name)))
    }

    /// Returns true if the text that was held back is the beginning of the closing delimiter of a call.
    fn begins_close(&self) -> bool {
        let text = self.held.trim_start();
        !text.is_empty() && self.dialect.calls.iter().any(|form| form.close.starts_with(text))
    }

    /// If the limit of tokens has ended the answer within a delimiter, drops the beginning of the delimiter. A single
    /// character is kept, because it may be ordinary text.
    fn drop_begun<'m>(&mut self, marks: impl IntoIterator<Item = &'m str>) {
        let len = begun(&self.held, marks);
        if self.is_cut && self.held[self.held.len() - len..].chars().nth(1).is_some() {
            self.held.truncate(self.held.len() - len);
        }
    }

    fn give(&mut self, calls: Vec<Call>, parts: &mut Vec<Part>) {
        self.spaces.clear();
        self.is_after_call = true;
        for call in calls {
            self.calls += 1;
            if self.calls == 1 || !self.only_one {
                parts.push(Part::Call(call));
            }
        }
    }

    /// Adds `text` to the content of the answer. If a call or the closing delimiter of a wrapper may follow, spaces at
    /// the end of the text are held back in `spaces` until more content follows.
    fn say(&mut self, text: &str, parts: &mut Vec<Part>) {
        let text = shown(text);
        if text.is_empty() || self.has_ended && self.drops_rest {
            return;
        }
        let mut all = std::mem::take(&mut self.spaces) + &text;
        self.is_after_call &= all.trim().is_empty();
        if !self.tools.is_empty() || !self.wrapper.is_empty() || self.has_ended {
            let len = all.trim_end().len();
            self.spaces = all.split_off(len);
        }
        if !all.is_empty() {
            match parts.last_mut() {
                Some(Part::Content(text)) => *text += &all,
                _ => parts.push(Part::Content(all)),
            }
        }
    }
}

/// Length of the longest suffix of `text` that is a proper prefix of one of `marks`.
fn begun<'m>(text: &str, marks: impl IntoIterator<Item = &'m str>) -> usize {
    let of = |mark: &str| {
        let beginnings = mark.char_indices().rev().map(|(at, _)| at).filter(|at| *at > 0);
        beginnings.into_iter().find(|len| text.ends_with(&mark[..*len])).unwrap_or(0)
    };
    marks.into_iter().map(of).max().unwrap_or(0)
}

impl Dialect {
    /// Returns the form of the thought that the end of the prompt opens.
    pub fn opened_by(&self, prompt: &str) -> Option<&super::ThoughtForm<String>> {
        let spelled = |mark: &str| prompt.ends_with(unwrapped(mark).trim_end());
        self.thoughts.iter().find(|form| spelled(&form.open))
    }

    /// Returns the delimiter that closes the content, if the prompt ends with the delimiter that opens the content (as
    /// for Command A).
    fn content_opened_by(&self, prompt: &str) -> Option<&str> {
        let opens = |open: &str, close: &str| !close.is_empty() && prompt.ends_with(&unwrapped(open));
        self.wrappers.iter().find(|(open, close)| opens(open, close)).map(|(_, close)| close.as_str())
    }

    /// Returns the delimiter of a call if the prompt ends with the beginning of this call. Functionary's templates end
    /// so: the model then writes the name of a function, or `all` for an answer.
    fn call_begun_by(&self, prompt: &str) -> Option<&str> {
        let mut marks = self.calls.iter().map(|form| form.trigger());
        marks.find(|mark| !mark.is_empty() && prompt.ends_with(&unwrapped(mark)) && self.has_wrapper_after(mark))
    }

    /// Returns true if a wrapper's opening delimiter begins with `mark` and is longer than `mark`.
    fn has_wrapper_after(&self, mark: &str) -> bool {
        self.wrappers.iter().any(|(open, _)| open.len() > mark.len() && open.starts_with(mark))
    }
}
