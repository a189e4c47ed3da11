//! Messages in channels (OpenAI's harmony): `<|channel|>NAME to=RECIPIENT <|message|>TEXT<|end|>`.
//! Muse Glimmer only writes recipients: `to=self` for thoughts, `to=user` for content.

use super::Channels;
use super::marks::unwrapped;
use super::tools::Tools;

/// The position in an answer with channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Before the text of a message.
    Header,
    /// After the text of a message.
    Between,
    Thought,
    Content,
    /// In the arguments of a call of this function.
    Call(String),
}

/// The header of a message.
#[derive(Debug, Default)]
pub struct Header {
    channel: String,
    recipient: Option<String>,
}

impl Header {
    /// Parses the header of a message, such as `assistant<|channel|>commentary to=functions.NAME <|constrain|>json`.
    /// The recipient may also stand before the channel.
    pub fn of(text: &str, channel: &str) -> Self {
        let (role, rest) = text.rsplit_once(channel).unwrap_or(("", text));
        let name = unwrapped(rest).trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().into();
        let recipient = |text: &str| {
            let after = text.split_once("to=")?.1;
            let end = after.find(|c: char| c.is_whitespace() || c == '<' || c == '\u{fdd0}').unwrap_or(after.len());
            Some(after[..end].to_string())
        };
        Self { channel: name, recipient: recipient(rest).or_else(|| recipient(role)) }
    }

    /// Returns the type of the message: a call of a declared function, a thought, or content.
    pub fn channel(&self, tools: &Tools) -> Channel {
        match (&self.recipient, self.channel.as_str()) {
            (Some(name), _) if tools.find(name).is_some() => Channel::Call(name.clone()),
            (_, "analysis") => Channel::Thought,
            (Some(name), _) if name == "self" => Channel::Thought,
            _ => Channel::Content,
        }
    }
}

impl Channels<String> {
    /// Returns the text that ends a thought and begins the next message. `is_final` adds the header of a message with
    /// content.
    pub fn after_thought(&self, has_recipients: bool, is_final: bool) -> String {
        let (end, header) = match has_recipients {
            true => (&self.ends[3], " to=user".to_string()),
            false => (&self.ends[0], format!("{}final", self.channel)),
        };
        let next = format!("{end}{}assistant", self.start);
        if is_final { format!("{next}{header}{}", self.message) } else { next }
    }
}

impl Channel {
    /// Returns the state of the channel at the end of the prompt; `None` if the prompt does not end inside a message or
    /// a header.
    pub fn opened_by(prompt: &str, channels: &Channels<String>) -> Option<Self> {
        let [start, channel, message] =
            [&channels.start, &channels.channel, &channels.message].map(|mark| unwrapped(mark));
        let last = prompt.rfind(&start)?;
        let header = &prompt[last + start.len()..];
        match header.split_once(&message) {
            None if header.contains(&channel) => Some(Self::Header),
            None => None,
            Some((header, "")) => Some(Header::of(header, &channel).channel(&Tools::default())),
            Some(_) => None,
        }
    }

    pub fn is_thought(&self) -> bool {
        *self == Self::Thought
    }
}
