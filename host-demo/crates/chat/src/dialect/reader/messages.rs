//! Messages in channels.

use super::{Part, Reader, State, begun};
use crate::dialect::channels::{Channel, Header};
use crate::dialect::loose;
use crate::dialect::marks::unwrapped;
use crate::dialect::syntax::{self, End};
use crate::dialect::tools::Call;

impl Reader {
    /// Reads text of a dialect in which messages are divided into channels. The header of a message says whether the
    /// text after it is a thought, a call or content.
    pub(super) fn channel(&mut self, parts: &mut Vec<Part>, channel: Channel, is_end: bool) {
        let dialect = self.dialect.clone();
        let channels = &dialect.channels;
        match channel {
            Channel::Header => {
                let Some(at) = self.held.find(&channels.message) else {
                    if is_end {
                        self.held.clear();
                    }
                    return;
                };
                let header = Header::of(&self.held[..at], &channels.channel);
                self.held.drain(..at + channels.message.len());
                self.state = State::Channel(header.channel(&self.tools));
            }
            Channel::Between => {
                let marks = [&channels.start, &channels.channel];
                let next = marks.iter().filter_map(|mark| self.held.find(mark.as_str())).min();
                match next {
                    Some(at) => {
                        self.held.drain(..at);
                        self.state = State::Channel(Channel::Header);
                    }
                    None if is_end => self.held.clear(),
                    None => {}
                }
            }
            body => {
                let ends = channels.ends.iter().chain([&channels.start, &channels.channel]);
                let ends: Vec<&str> = ends.map(String::as_str).collect();
                let first = ends.iter().filter_map(|end| self.held.find(end)).min();
                let keep = if is_end { 0 } else { begun(&self.held, ends.iter().copied()) };
                let len = first.unwrap_or(self.held.len() - keep);
                self.body(parts, body, len, first.is_some() || is_end);
            }
        }
    }

    /// Handles the first `len` bytes of `held`, which are text of a message. `is_whole` is true if the message ends
    /// there.
    fn body(&mut self, parts: &mut Vec<Part>, channel: Channel, len: usize, is_whole: bool) {
        match &channel {
            Channel::Call(name) => {
                if !is_whole {
                    return;
                }
                let text: String = self.held.drain(..len).collect();
                // Incomplete arguments are not a call.
                let is_json = serde_json::from_str::<serde_json::Value>(&text).is_ok()
                    || loose::whole(&text).is_some()
                    || text.trim().is_empty();
                let written = if is_json { None } else { self.message_calls(&text) };
                match self.tools.find(name).filter(|_| is_json) {
                    _ if written.is_some() => self.give(written.unwrap_or_default(), parts),
                    // The answer ends within a call.
                    _ if !is_json && self.is_cut => {}
                    Some(tool) => {
                        let call = tool.call_json(&serde_json::Value::String(text.trim().into()));
                        self.give(vec![call], parts);
                    }
                    None => self.say(&text, parts),
                }
            }
            Channel::Thought => {
                let text: String = self.held.drain(..len).collect();
                if !text.is_empty() {
                    parts.push(Part::Thought(unwrapped(&text)));
                }
            }
            _ => {
                let text: String = self.held.drain(..len).collect();
                self.say(&text, parts);
            }
        }
        self.state = State::Channel(if is_whole { Channel::Between } else { channel });
    }

    /// Parses a message that consists of calls with their delimiters.
    fn message_calls(&self, text: &str) -> Option<Vec<Call>> {
        let text = text.trim();
        self.dialect.calls.iter().filter(|form| !form.open.is_empty()).find_map(|form| {
            let (calls, len) = syntax::read(form, &self.tools, text.strip_prefix(&form.open)?, End::Cut).ok()?;
            text[form.open.len() + len..].trim().is_empty().then_some(calls)
        })
    }
}
