//! Prompts from conversations, and output constrained by a grammar.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // `ffi.rs` has the requirements of all functions
#![allow(clippy::too_many_arguments)] // C has no slices

use core::ffi::{c_char, c_void};
use core::mem::size_of;

use heapless::Vec;

use super::text::choose;
use super::{arenite_error, arenite_sampler, arenite_status, arenite_tokenizer, argument, place, report, slice};
use crate::Error;
use crate::chat::{Format, Message, Piece, Role};
use crate::grammar::{Constraint, Grammar};

/// A grammar, and the state of an answer in this grammar.
#[derive(Debug)]
pub struct arenite_constraint(Constraint<'static>);

/// Size of a constraint in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_constraint_size() -> usize {
    size_of::<arenite_constraint>()
}

/// Creates a constraint in `memory`, for an answer that has no tokens yet. `table` is the output of `arenite grammar`
/// for a grammar or a JSON schema. The function checks the table, which stays borrowed.
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

/// True if the answer is complete and may end here; false if `constraint` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_constraint_is_complete(constraint: *const arenite_constraint) -> bool {
    // SAFETY: see the module.
    unsafe { constraint.as_ref() }.is_some_and(|constraint| constraint.0.is_complete())
}

/// Like `arenite_sampler_sample`, but only chooses tokens that the constraint allows. Then advances the constraint by
/// the chosen token.
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

/// Role of a message: instructions for the whole conversation.
pub const ARENITE_ROLE_SYSTEM: u32 = 0;
/// Role of a message: the user.
pub const ARENITE_ROLE_USER: u32 = 1;
/// Role of a message: the model.
pub const ARENITE_ROLE_ASSISTANT: u32 = 2;
/// Role of a message: the result of a function call.
pub const ARENITE_ROLE_TOOL: u32 = 3;

/// A message of a conversation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_message {
    /// Author: ARENITE_ROLE_SYSTEM, ARENITE_ROLE_USER, ARENITE_ROLE_ASSISTANT or ARENITE_ROLE_TOOL.
    pub role: u32,
    /// Text in UTF-8.
    pub content: *const c_char,
    /// Length of the text in bytes.
    pub len: usize,
}

/// Maximum number of messages in a conversation.
const MOST: usize = 64;

/// Renders a conversation of at most 64 messages and the request for an answer, and passes the prompt to `piece` in
/// parts. Tokenize each part separately. Parse control tokens only if the part comes from the format (`is_template`),
/// so that a message cannot contain control tokens.
///
/// `format` is one of llama.cpp's names (such as "chatml"), or a template from a model's metadata
/// (`tokenizer.chat_template`), if it is well-known.
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
/// Same as for the functions of the interface.
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
    let piece = piece.ok_or(argument("for the callback"))?;
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
        let full = Error::BufferTooSmall { what: "messages", needed: count, given: MOST };
        messages.push(Message { role, content }).map_err(|_| full)?;
    }
    format.pieces(&messages, |part| {
        let (text, is_template) = match part {
            Piece::Template(text) => (text, true),
            Piece::Content(text) => (text, false),
        };
        // SAFETY: the caller's function, called as documented.
        unsafe { piece(user, text.as_ptr().cast(), text.len(), is_template) };
        Ok(())
    })
}
