//! What goes in and what may come out: chats as prompts, constrained answers.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // said once, in the module above
#![allow(clippy::too_many_arguments)] // C has no slices

use core::ffi::{c_char, c_void};
use core::mem::size_of;

use heapless::Vec;

use super::text::choose;
use super::{arenite_error, arenite_sampler, arenite_status, arenite_tokenizer, argument, place, report, slice};
use crate::Error;
use crate::chat::{Format, Message, Piece, Role};
use crate::grammar::{Constraint, Grammar};

/// What an answer may be, and how far it is.
#[derive(Debug)]
pub struct arenite_constraint(Constraint<'static>);

/// Bytes of a constraint.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_constraint_size() -> usize {
    size_of::<arenite_constraint>()
}

/// Places a constraint in `memory`, before the first token of an answer. `table` is what `arenite grammar` made of a grammar
/// or a JSON schema; it is checked here, and stays borrowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_constraint_new(
    table: *const u8,
    len: usize,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_constraint,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let table = slice(table, len).ok_or(argument("for the grammar"))?;
            Ok(arenite_constraint(Constraint::new(Grammar::new(table)?)))
        })
    };
    report(result, error)
}

/// Whether the answer is whole: it may end here. No for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_constraint_is_complete(constraint: *const arenite_constraint) -> bool {
    // SAFETY: see the module.
    unsafe { constraint.as_ref() }.is_some_and(|constraint| constraint.0.is_complete())
}

/// As `arenite_sampler_sample`, among the tokens that may come next; the constraint goes on by the one that is chosen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_sampler_sample_where(
    sampler: *mut arenite_sampler,
    logits: *mut f32,
    count: usize,
    constraint: *mut arenite_constraint,
    tokenizer: *const arenite_tokenizer,
    token: *mut u32,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        choose(sampler, logits, count, token, error, |sampler, logits, random| {
            let constraint = &mut constraint.as_mut().ok_or(argument("for the constraint"))?.0;
            let tokenizer = &tokenizer.as_ref().ok_or(argument("for the tokenizer"))?.0;
            let chosen = sampler.sample_where(logits, random, |token| constraint.allows(tokenizer, token))?;
            constraint.accept(tokenizer, chosen)?;
            Ok(chosen)
        })
    }
}

/// Who wrote a message: what says how to answer.
pub const ARENITE_ROLE_SYSTEM: u32 = 0;
/// Who wrote a message: who asks.
pub const ARENITE_ROLE_USER: u32 = 1;
/// Who wrote a message: the model.
pub const ARENITE_ROLE_ASSISTANT: u32 = 2;
/// Who wrote a message: a function that was called.
pub const ARENITE_ROLE_TOOL: u32 = 3;

/// One message of a conversation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_message {
    /// One of ARENITE_ROLE_SYSTEM, ARENITE_ROLE_USER, ARENITE_ROLE_ASSISTANT, ARENITE_ROLE_TOOL.
    pub role: u32,
    /// What it says, in UTF-8.
    pub content: *const c_char,
    /// Bytes of it.
    pub len: usize,
}

/// The most messages of a conversation.
const MOST: usize = 64;

/// Gives a conversation of at most 64 messages, and what asks the model for an answer, to `piece`, part by part, each to be
/// tokenized by itself: one of the format's own (`is_template`) with its control tokens, one of a message without, so that
/// nobody who writes one can make them.
///
/// `format` is one of llama.cpp's names (such as "chatml"), or the model's own template, which is in its metadata as
/// `tokenizer.chat_template` and is recognised if it is a well-known one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_chat(
    format: *const c_char,
    format_len: usize,
    messages: *const arenite_message,
    count: usize,
    piece: Option<unsafe extern "C" fn(user: *mut c_void, text: *const c_char, len: usize, is_template: bool)>,
    user: *mut c_void,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    report(unsafe { chat((format, format_len), (messages, count), piece, user) }, error)
}

/// # Safety
///
/// As for the functions of the interface.
unsafe fn chat(
    (format, format_len): (*const c_char, usize),
    (messages, count): (*const arenite_message, usize),
    piece: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, bool)>,
    user: *mut c_void,
) -> Result<(), Error> {
    // SAFETY: as for this function.
    let text = |data: *const c_char, len: usize| unsafe { slice::<u8>(data.cast(), len) };
    let text = |data, len| text(data, len).and_then(|bytes| core::str::from_utf8(bytes).ok());
    let format = text(format, format_len).and_then(Format::detect).ok_or(argument("for the chat format"))?;
    let piece = piece.ok_or(argument("for what takes the pieces"))?;
    // SAFETY: as for this function.
    let given = unsafe { slice(messages, count) }.ok_or(argument("for the messages"))?;
    let mut messages: Vec<Message<'_>, MOST> = Vec::new();
    for message in given {
        let role = match message.role {
            ARENITE_ROLE_SYSTEM => Role::System,
            ARENITE_ROLE_USER => Role::User,
            ARENITE_ROLE_ASSISTANT => Role::Assistant,
            ARENITE_ROLE_TOOL => Role::Tool,
            _ => return Err(argument("for a message's role")),
        };
        let content = text(message.content, message.len).ok_or(argument("for a message's text"))?;
        let full = Error::BufferTooSmall { what: "list of messages", needed: count, given: MOST };
        messages.push(Message { role, content }).map_err(|_| full)?;
    }
    format.pieces(&messages, |part| {
        let (text, is_template) = match part {
            Piece::Template(text) => (text, true),
            Piece::Content(text) => (text, false),
        };
        // SAFETY: the caller's function, as described.
        unsafe { piece(user, text.as_ptr().cast(), text.len(), is_template) };
        Ok(())
    })
}
