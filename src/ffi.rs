//! The C interface (feature `capi`); `arenite.h` is made from this file.
//!
//! Nothing is allocated and nothing panics. Whatever lives on (a model, a session, ...) is placed in memory
//! that the caller hands over, and borrows what it is made from. Functions that can fail return a status
//! and, if the caller wants to know more, fill an `arenite_error`.
//!
//! # Safety
//!
//! For all functions: a pointer with a length is to as many elements, or null where the length is 0; a
//! pointer to an object is one that this interface gave, whose memory and whatever it borrows are
//! still there, unmoved and unchanged; nothing is used from two threads at once.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // said once, above
#![allow(clippy::too_many_arguments)] // C has no slices

use core::ffi::{c_char, c_void};
use core::fmt::{self, Write};
use core::mem::{align_of, size_of};
use core::ptr::null_mut;

use crate::memory::ALIGN;
use crate::sampler::{Params, Pcg32, Sampler};
use crate::tokenizer::{Decoder, Encode, Tokenizer};
use crate::{Error, Gguf, KvType, Model, Options, Plan, Session, TokenId};

/// Elements of the KV cache: 4 bytes, exact.
pub const ARENITE_KV_F32: u32 = 0;
/// Elements of the KV cache: 2 bytes, the default.
pub const ARENITE_KV_F16: u32 = 1;
/// Elements of the KV cache: 34 bytes for 32 of them.
pub const ARENITE_KV_Q8_0: u32 = 2;

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum arenite_status {
    /// It did what it should.
    Ok = 0,
    /// An argument is null, or a constant that does not exist.
    Argument = 1,
    /// A buffer or a piece of memory is too small, or not aligned.
    Memory = 2,
    /// The file is damaged, or of a kind that is not run.
    File = 3,
    /// A token, a prompt or a position that cannot be.
    Input = 4,
    /// The context is full.
    ContextFull = 5,
    /// Not a snapshot, a damaged one, or one of another session.
    Snapshot = 6,
}

/// What went wrong, for `arenite_error_message`. Filled by every call that fails and is handed one.
#[repr(C)]
#[derive(Debug)]
pub struct arenite_error {
    /// Whether it was filled: initialize with zeros to be able to tell.
    filled: u32,
    opaque: [u64; 16],
}

/// Marks an error that was filled.
const FILLED: u32 = u32::from_le_bytes(*b"aren");

const _: () = assert!(size_of::<Error>() <= size_of::<[u64; 16]>() && align_of::<Error>() <= align_of::<u64>());

/// What the caller decides about a session's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_options {
    /// Positions in the context; 0 for as many as the model was trained for.
    pub context: usize,
    /// Tokens that prefill takes at once, at least 1. More is faster and needs more workspace.
    pub batch: usize,
    /// One of ARENITE_KV_F32, ARENITE_KV_F16, ARENITE_KV_Q8_0.
    pub kv: u32,
}

/// Exact bytes of memory for a model under some options: the same on every target.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_plan {
    /// Bytes of workspace.
    pub workspace: usize,
    /// Bytes of KV cache.
    pub kv: usize,
    /// Bytes of the tokenizer's index; 0 if it is in the file.
    pub tokenizer: usize,
    /// Positions in the context.
    pub context: usize,
}

/// How to choose a token: llama.cpp's default chain. `arenite_params_default` fills it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_params {
    /// 0 takes the best token.
    pub temperature: f32,
    /// How many of the best tokens are considered; 0 is all.
    pub top_k: u32,
    /// Of these, as many of the best as together have this probability; 1 is all.
    pub top_p: f32,
    /// Of these, the ones that are at least this many times as likely as the best; 0 is all.
    pub min_p: f32,
    /// Divides the logits of recent tokens if they are positive, multiplies them if not; 1 is off.
    pub repeat_penalty: f32,
    /// Taken from the logit of a recent token for every time that it came up; 0 is off.
    pub frequency_penalty: f32,
    /// Taken from the logit of a recent token once; 0 is off.
    pub presence_penalty: f32,
    /// How many tokens are recent; 0 turns the penalties off.
    pub repeat_last_n: u32,
}

/// A model in a file, checked.
#[derive(Debug)]
pub struct arenite_model(Model<'static>);

/// A vocabulary, ready to encode and decode.
#[derive(Debug)]
pub struct arenite_tokenizer(Tokenizer<'static, 'static>);

/// Characters out of a stream of tokens.
#[derive(Debug)]
pub struct arenite_decoder {
    tokenizer: &'static Tokenizer<'static, 'static>,
    decoder: Decoder,
}

/// A model at work: a KV cache, a position in it, and the last logits.
#[derive(Debug)]
pub struct arenite_session(Session<'static, 'static>);

/// Chooses tokens, and remembers them for the penalties.
#[derive(Debug)]
pub struct arenite_sampler {
    sampler: Sampler<'static>,
    random: Pcg32,
}

// --- errors -----------------------------------------------------------------------------------------

fn status(error: &Error) -> arenite_status {
    use arenite_status as Status;
    match error {
        Error::Argument { .. } => Status::Argument,
        Error::PlanTooLarge
        | Error::PlanMismatch
        | Error::WorkspaceTooSmall { .. }
        | Error::KvTooSmall { .. }
        | Error::Misaligned { .. }
        | Error::WorkspaceTaken
        | Error::BufferTooSmall { .. } => Status::Memory,
        Error::TokenOutOfRange { .. }
        | Error::EmptyPrompt
        | Error::CannotRewind { .. }
        | Error::TextTooLong { .. }
        | Error::LogitsLength { .. } => Status::Input,
        Error::ContextFull { .. } => Status::ContextFull,
        Error::DamagedSnapshot { .. } | Error::ForeignSnapshot { .. } => Status::Snapshot,
        _ => Status::File,
    }
}

/// The status of a result; its error goes to `out`.
fn report(result: Result<(), Error>, out: *mut arenite_error) -> arenite_status {
    let Err(error) = result else { return arenite_status::Ok };
    if !out.is_null() {
        // SAFETY: `out` is null or to an `arenite_error`, whose `opaque` an `Error` fits in (asserted above).
        unsafe {
            (&raw mut (*out).filled).write(FILLED);
            (&raw mut (*out).opaque).cast::<Error>().write(error);
        }
    }
    status(&error)
}

/// Writes what went wrong to `out`, as one sentence that ends with a zero byte, cut to `capacity` bytes. Returns
/// the length of the whole sentence, without the zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_error_message(
    error: *const arenite_error,
    out: *mut c_char,
    capacity: usize,
) -> usize {
    // SAFETY: see the module. Any bit pattern is an `arenite_error`.
    let filled = !error.is_null() && unsafe { (*error).filled } == FILLED;
    // SAFETY: see the module.
    let mut text = Text { out: unsafe { slice_mut(out.cast(), capacity) }.unwrap_or_default(), len: 0 };
    let _ = if filled {
        // SAFETY: it was filled by `report`.
        let error = unsafe { (&raw const (*error).opaque).cast::<Error>().read() };
        write!(text, "{error}")
    } else {
        text.write_str("no error")
    };
    let end = text.len.min(capacity.saturating_sub(1));
    if let Some(zero) = text.out.get_mut(end) {
        *zero = 0;
    }
    text.len
}

/// Text on its way to the caller; what does not fit is counted.
struct Text<'t> {
    out: &'t mut [u8],
    len: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = self.out.get_mut(self.len..).unwrap_or_default();
        for (to, byte) in rest.iter_mut().zip(text.bytes()) {
            *to = byte;
        }
        self.len = self.len.saturating_add(text.len());
        Ok(())
    }
}

// --- the caller's memory -----------------------------------------------------------------------------

const fn null(what: &'static str) -> Error {
    Error::Argument { what }
}

/// # Safety
///
/// `data` is to `len` elements that live as long as `'a`, or null.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> Option<&'a [T]> {
    if len == 0 {
        return Some(&[]);
    }
    if data.is_null() || !data.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return None;
    }
    // SAFETY: as for this function; what can be checked was.
    Some(unsafe { core::slice::from_raw_parts(data, len) })
}

/// # Safety
///
/// As for [`slice`], and nobody else uses them.
unsafe fn slice_mut<'a, T>(data: *mut T, len: usize) -> Option<&'a mut [T]> {
    if len == 0 {
        return Some(&mut []);
    }
    if data.is_null() || !data.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return None;
    }
    // SAFETY: as for this function; what can be checked was.
    Some(unsafe { core::slice::from_raw_parts_mut(data, len) })
}

/// Writes what `make` gives to the caller's memory, and where that is to `out`.
///
/// # Safety
///
/// `memory` is to `capacity` bytes that nobody else uses, `out` to a pointer; or they are null.
unsafe fn place<T>(
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, Error>,
) -> Result<(), Error> {
    if out.is_null() {
        return Err(null("that the result goes to"));
    }
    // SAFETY: as for this function.
    unsafe { out.write(null_mut()) };
    let (memory, needed) = (memory.cast::<T>(), size_of::<T>());
    if memory.is_null() {
        return Err(null("for the memory"));
    }
    if !memory.is_aligned() {
        return Err(Error::Misaligned { align: align_of::<T>() });
    }
    if capacity < needed {
        return Err(Error::BufferTooSmall { what: "memory for the object", needed, given: capacity });
    }
    let value = make()?;
    // SAFETY: as for this function; size and alignment were checked.
    unsafe {
        memory.write(value);
        out.write(memory);
    }
    Ok(())
}

/// # Safety
///
/// `out` is to a `T`, or null: then nothing is written.
unsafe fn give<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as for this function.
        unsafe { out.write(value) };
    }
}

/// Bytes of a model.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_model_size() -> usize {
    size_of::<arenite_model>()
}

/// Bytes of a tokenizer.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_tokenizer_size() -> usize {
    size_of::<arenite_tokenizer>()
}

/// Bytes of a decoder.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_decoder_size() -> usize {
    size_of::<arenite_decoder>()
}

/// Bytes of a session, besides workspace and KV cache.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_session_size() -> usize {
    size_of::<arenite_session>()
}

/// Bytes of a sampler, besides its scratch memory.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_sampler_size() -> usize {
    size_of::<arenite_sampler>()
}

/// The boundary in bytes that fits every object, workspace and KV cache.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_align() -> usize {
    let objects = [
        align_of::<arenite_model>(),
        align_of::<arenite_tokenizer>(),
        align_of::<arenite_decoder>(),
        align_of::<arenite_session>(),
        align_of::<arenite_sampler>(),
    ];
    objects.into_iter().fold(ALIGN, usize::max)
}

// --- the model --------------------------------------------------------------------------------------

/// Reads and checks the GGUF file of `len` bytes at `file`, which stays borrowed and may have any
/// alignment, and places a model in `memory`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_model_new(
    file: *const u8,
    len: usize,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_model,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let file = slice(file, len).ok_or(null("for the file"))?;
            Ok(arenite_model(Model::new(&Gguf::parse(file)?)?))
        })
    };
    report(result, error)
}

/// Words in the vocabulary: how many logits there are. 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_model_vocab(model: *const arenite_model) -> usize {
    // SAFETY: see the module.
    unsafe { model.as_ref() }.map_or(0, |model| model.0.spec().vocab)
}

/// The model's own context, 16 tokens at once, an f16 cache.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_options_default() -> arenite_options {
    let Options { context, batch, .. } = Options::DEFAULT;
    arenite_options { context, batch, kv: ARENITE_KV_F16 }
}

/// The plan under `options`; null for the default ones.
fn plan(model: &Model<'_>, options: Option<&arenite_options>) -> Result<Plan, Error> {
    let mut planned = Options::DEFAULT;
    if let Some(options) = options {
        let kv = match options.kv {
            ARENITE_KV_F32 => KvType::F32,
            ARENITE_KV_F16 => KvType::F16,
            ARENITE_KV_Q8_0 => KvType::Q8_0,
            _ => return Err(Error::Argument { what: "for the type of KV cache" }),
        };
        planned = Options { context: options.context, batch: options.batch, kv, ..planned };
    }
    Plan::try_of(model.gguf(), planned)
}

/// How many bytes the model needs. `options` may be null, for the default ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_model_plan(
    model: *const arenite_model,
    options: *const arenite_options,
    out: *mut arenite_plan,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe { model.as_ref() }.ok_or(null("for the model")).and_then(|model| {
        // SAFETY: see the module.
        let plan = plan(&model.0, unsafe { options.as_ref() })?;
        let Plan { workspace, kv, tokenizer, .. } = plan;
        // SAFETY: see the module.
        unsafe { give(out, arenite_plan { workspace, kv, tokenizer, context: plan.options.context }) };
        Ok(())
    });
    report(result, error)
}

// --- the session --------------------------------------------------------------------------------------

/// Places a session in `memory`. `workspace` and `kv` have at least the planned bytes and start on a boundary
/// of `arenite_align`; they, and the model, stay borrowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_new(
    model: *const arenite_model,
    options: *const arenite_options,
    workspace: *mut u8,
    workspace_len: usize,
    kv: *mut u8,
    kv_len: usize,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_session,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let model = &model.as_ref().ok_or(null("for the model"))?.0;
            let workspace = slice_mut(workspace, workspace_len).ok_or(null("for the workspace"))?;
            let kv = slice_mut(kv, kv_len).ok_or(null("for the KV cache"))?;
            Ok(arenite_session(Session::new(model, plan(model, options.as_ref())?, workspace, kv)?))
        })
    };
    report(result, error)
}

/// Runs `f` on a session.
///
/// # Safety
///
/// `session` is to a session that nobody else uses, or null.
unsafe fn with_session(
    session: *mut arenite_session,
    error: *mut arenite_error,
    f: impl FnOnce(&mut Session<'static, 'static>) -> Result<(), Error>,
) -> arenite_status {
    // SAFETY: as for this function.
    let session = unsafe { session.as_mut() }.ok_or(null("for the session"));
    report(session.and_then(|session| f(&mut session.0)), error)
}

/// Runs `count` tokens after what is in the context. The logits are then those of the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_prefill(
    session: *mut arenite_session,
    tokens: *const u32,
    count: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| session.prefill(slice(tokens, count).ok_or(null("for the tokens"))?))
    }
}

/// Runs one token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_decode(
    session: *mut arenite_session,
    token: u32,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe { with_session(session, error, |session| session.decode(token)) }
}

/// The logits of the last token, one for each word of the vocabulary, which may be changed. Null for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_logits(session: *mut arenite_session) -> *mut f32 {
    // SAFETY: see the module.
    unsafe { session.as_mut() }.map_or(null_mut(), |session| session.0.logits_mut().as_mut_ptr())
}

/// Tokens in the context. 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_position(session: *const arenite_session) -> usize {
    // SAFETY: see the module.
    unsafe { session.as_ref() }.map_or(0, |session| session.0.position())
}

/// Forgets everything from `position` on; the logits stay as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_rewind(
    session: *mut arenite_session,
    position: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe { with_session(session, error, |session| session.rewind(position)) }
}

/// Bytes that `arenite_session_save` writes now. 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_snapshot_size(session: *const arenite_session) -> usize {
    // SAFETY: see the module.
    unsafe { session.as_ref() }.map_or(0, |session| session.0.snapshot_bytes())
}

/// Writes the context and the logits to `out`, and the number of bytes to `written`, which may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_save(
    session: *mut arenite_session,
    out: *mut u8,
    capacity: usize,
    written: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let out = slice_mut(out, capacity).ok_or(null("for the snapshot"))?;
            give(written, session.save(out)?);
            Ok(())
        })
    }
}

/// Puts the session where the one was that was saved. If it fails, the session is as it was before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_restore(
    session: *mut arenite_session,
    snapshot: *const u8,
    len: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| session.restore(slice(snapshot, len).ok_or(null("for the snapshot"))?))
    }
}

// --- text -------------------------------------------------------------------------------------------

/// Places a tokenizer in `memory`. `index` has at least the planned bytes (none if the file was packed) and
/// stays borrowed, as the model's file does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_tokenizer_new(
    model: *const arenite_model,
    index: *mut u8,
    index_len: usize,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_tokenizer,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let model = &model.as_ref().ok_or(null("for the model"))?.0;
            let index = slice_mut(index, index_len).ok_or(null("for the index"))?;
            Ok(arenite_tokenizer(Tokenizer::new(model.gguf(), index)?))
        })
    };
    report(result, error)
}

/// Bytes of scratch memory with which `arenite_tokenize` takes any text of `text_len` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_tokenize_scratch_size(text_len: usize) -> usize {
    Tokenizer::scratch_bytes(text_len)
}

/// Writes the tokens of a text to `tokens`, and how many they are to `count`. `add_special` adds what the model
/// wants before and after a text (BOS, EOS); `parse_special` reads control tokens that are spelled out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_tokenize(
    tokenizer: *const arenite_tokenizer,
    text: *const c_char,
    text_len: usize,
    add_special: bool,
    parse_special: bool,
    scratch: *mut u8,
    scratch_len: usize,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe { tokenizer.as_ref() }.ok_or(null("for the tokenizer")).and_then(|tokenizer| {
        // SAFETY: see the module.
        unsafe {
            let text = slice(text.cast(), text_len).ok_or(null("for the text"))?;
            let scratch = slice_mut(scratch, scratch_len).ok_or(null("for the scratch memory"))?;
            let tokens: &mut [TokenId] = slice_mut(tokens, capacity).ok_or(null("for the tokens"))?;
            give(count, tokenizer.0.encode(text, Encode { add_special, parse_special }, scratch, tokens)?);
        }
        Ok(())
    });
    report(result, error)
}

/// Writes the text of `count` tokens to `out`, without a zero byte, and its length to `len`. Control tokens are
/// left out unless `show_special`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_detokenize(
    tokenizer: *const arenite_tokenizer,
    tokens: *const u32,
    count: usize,
    show_special: bool,
    out: *mut c_char,
    capacity: usize,
    len: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe { tokenizer.as_ref() }.ok_or(null("for the tokenizer")).and_then(|tokenizer| {
        // SAFETY: see the module.
        unsafe {
            let tokens = slice(tokens, count).ok_or(null("for the tokens"))?;
            let out = slice_mut(out.cast(), capacity).ok_or(null("for the text"))?;
            give(len, tokenizer.0.detokenize(tokens, show_special, out)?);
        }
        Ok(())
    });
    report(result, error)
}

/// Whether generation ends with this token. No for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_is_end(tokenizer: *const arenite_tokenizer, token: u32) -> bool {
    // SAFETY: see the module.
    unsafe { tokenizer.as_ref() }.is_some_and(|tokenizer| tokenizer.0.is_end(token))
}

/// Places a decoder in `memory`, for text that comes token by token: after a prompt, or from its beginning. The
/// tokenizer stays borrowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_decoder_new(
    tokenizer: *const arenite_tokenizer,
    after_prompt: bool,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_decoder,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let tokenizer = &tokenizer.as_ref().ok_or(null("for the tokenizer"))?.0;
            let decoder = if after_prompt { tokenizer.decoder_after_prompt() } else { tokenizer.decoder() };
            Ok(arenite_decoder { tokenizer, decoder })
        })
    };
    report(result, error)
}

/// Takes the next token, writes the text that is complete to `out`, without a zero byte, and its length to
/// `len`. A character that is cut between tokens is held back. If `out` is too small, nothing was taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_decoder_push(
    decoder: *mut arenite_decoder,
    token: u32,
    out: *mut c_char,
    capacity: usize,
    len: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe { decoder.as_mut() }.ok_or(null("for the decoder")).and_then(|state| {
        // SAFETY: see the module.
        let out = unsafe { slice_mut(out.cast(), capacity) }.ok_or(null("for the text"))?;
        let mut text = Text { out, len: 0 };
        let mut next = state.decoder.clone();
        next.push(token, state.tokenizer, |part| {
            let _ = text.write_str(part);
        })?;
        if text.len > capacity {
            return Err(Error::BufferTooSmall { what: "buffer for the text", needed: text.len, given: capacity });
        }
        state.decoder = next;
        // SAFETY: see the module.
        unsafe { give(len, text.len) };
        Ok(())
    });
    report(result, error)
}

// --- sampling ---------------------------------------------------------------------------------------

impl From<Params> for arenite_params {
    fn from(params: Params) -> Self {
        let Params { temperature, top_k, top_p, min_p, .. } = params;
        let Params { repeat_penalty, frequency_penalty, presence_penalty, repeat_last_n, .. } = params;
        Self { temperature, top_k, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty, repeat_last_n }
    }
}

impl From<arenite_params> for Params {
    fn from(params: arenite_params) -> Self {
        let arenite_params { temperature, top_k, top_p, min_p, .. } = params;
        let arenite_params { repeat_penalty, frequency_penalty, presence_penalty, repeat_last_n, .. } = params;
        Self { temperature, top_k, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty, repeat_last_n }
    }
}

/// llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_params_default() -> arenite_params {
    Params::DEFAULT.into()
}

/// `params`, or the default ones for null.
///
/// # Safety
///
/// As for [`core::ptr::read`], or null.
unsafe fn params_of(params: *const arenite_params) -> Params {
    // SAFETY: as for this function.
    unsafe { params.as_ref() }.map_or(Params::DEFAULT, |params| (*params).into())
}

/// Bytes of scratch memory that a sampler needs for a vocabulary. `params` may be null, for the default ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_sampler_scratch_size(params: *const arenite_params, vocab: usize) -> usize {
    // SAFETY: see the module.
    Sampler::scratch_bytes(&unsafe { params_of(params) }, vocab)
}

/// Places a sampler in `memory`. `params` may be null, for the default ones; a seed gives the same tokens
/// everywhere. `scratch` stays borrowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_sampler_new(
    params: *const arenite_params,
    vocab: usize,
    seed: u64,
    scratch: *mut u8,
    scratch_len: usize,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_sampler,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let scratch = slice_mut(scratch, scratch_len).ok_or(null("for the scratch memory"))?;
            let sampler = Sampler::new(params_of(params), &[], vocab, scratch)?;
            Ok(arenite_sampler { sampler, random: Pcg32::new(seed) })
        })
    };
    report(result, error)
}

/// Chooses a token by `count` logits, into which penalties are worked, and remembers it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_sampler_sample(
    sampler: *mut arenite_sampler,
    logits: *mut f32,
    count: usize,
    token: *mut u32,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe { sampler.as_mut() }.ok_or(null("for the sampler")).and_then(|state| {
        // SAFETY: see the module.
        let logits = unsafe { slice_mut(logits, count) }.ok_or(null("for the logits"))?;
        let chosen = state.sampler.sample(logits, &mut state.random)?;
        state.sampler.accept(chosen);
        // SAFETY: see the module.
        unsafe { give(token, chosen) };
        Ok(())
    });
    report(result, error)
}

/// Remembers a token for the penalties, such as one of the prompt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_sampler_accept(sampler: *mut arenite_sampler, token: u32) {
    // SAFETY: see the module.
    if let Some(state) = unsafe { sampler.as_mut() } {
        state.sampler.accept(token);
    }
}
