//! Encoders: states, embeddings, beam search, translation.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // `ffi.rs` has the requirements of all functions
#![allow(clippy::too_many_arguments)] // C has no slices

use core::ffi::{c_char, c_void};
use core::mem::size_of;
use core::ptr::null;

use super::session::with_session;
use super::{arenite_error, arenite_session, arenite_status, arenite_tokenizer, give, place, report, slice, slice_mut};
use crate::beam::{Beams, Search};
use crate::memory::Arena;
use crate::model::Stack;
use crate::tokenizer::{Encode, Tokenizer};
use crate::{Answers, Encoding, Error, Session, TokenId};

/// Parameters of a beam search. `arenite_search_default` returns the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_search {
    /// Number of beams; `arenite_options.contexts` must be at least one more.
    pub beams: usize,
    /// Maximum number of tokens in a result.
    pub length: usize,
    /// Exponent of the length penalty: the score of a result is the result's log-probability divided by its length to
    /// this power. With 0 the length has no influence, with 1 the score is the mean per token.
    pub length_penalty: f32,
}

/// Results of a beam search.
#[derive(Debug)]
pub struct arenite_beams(Beams<'static>);

/// Returns the default parameters: four beams, 128 tokens, length penalty 1.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_search_default() -> arenite_search {
    arenite_search { beams: 4, length: 128, length_penalty: 1.0 }
}

/// Size of the results of a beam search in bytes, without scratch memory.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_beams_size() -> usize {
    size_of::<arenite_beams>()
}

/// Runs the encoder on `count` tokens. A decoder restarts and attends to this text from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_encode(
    session: *mut arenite_session,
    tokens: *const u32,
    count: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            session.encode(slice(tokens, count).ok_or(super::argument("for the tokens"))?)
        })
    }
}

/// A run of an encoder in steps. Between two steps the program can feed a watchdog or yield to other tasks.
#[derive(Debug)]
pub struct arenite_encoding(Encoding<'static, 'static, 'static, 'static>);

/// Size of an encoding in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_encoding_size() -> usize {
    size_of::<arenite_encoding>()
}

/// Creates an encoding in `memory`: like `arenite_session_encode`, in steps of one half of a layer for a batch of
/// tokens. The encoding runs until `arenite_encoding_step` returns false; then the caller may reuse `memory`. To stop
/// earlier, call `arenite_encoding_abandon`. Until then, use neither the session nor the tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_encoding_new(
    session: *mut arenite_session,
    tokens: *const u32,
    count: usize,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_encoding,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let session = session.as_mut().ok_or(super::argument("for the session"))?;
            let tokens = slice(tokens, count).ok_or(super::argument("for the tokens"))?;
            session.0.begin_encode(tokens).map(arenite_encoding)
        })
    };
    report(result, error)
}

/// Runs the encoder's next step. Returns true if more steps remain. Returns false if there are none, or if `encoding`
/// is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_encoding_step(encoding: *mut arenite_encoding) -> bool {
    // SAFETY: see the module.
    unsafe { encoding.as_mut() }.is_some_and(|encoding| encoding.0.step())
}

/// Abandons an encoding before its last step. The session then has no text. The encoding must not be used again. Does
/// nothing after the last step, or if `encoding` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_encoding_abandon(encoding: *mut arenite_encoding) {
    if !encoding.is_null() {
        // SAFETY: see the module; the caller does not use the encoding again.
        unsafe { encoding.drop_in_place() };
    }
}

/// Returns the encoder's output for the last text, `[tokens][dim]`, and stores the number of floats in `count`. Returns
/// null if `session` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_states(session: *const arenite_session, count: *mut usize) -> *const f32 {
    // SAFETY: see the module.
    let states = unsafe { session.as_ref() }.map(|session| session.0.states());
    // SAFETY: see the module.
    unsafe { give(count, states.map_or(0, <[f32]>::len)) };
    states.map_or(null(), <[f32]>::as_ptr)
}

/// Computes the embedding of the last text from the states that the encoder has already computed. Stores the embedding
/// in `out` and its length in `len`. `capacity` is at least `arenite_session_vector_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_pooled(
    session: *mut arenite_session,
    out: *mut f32,
    capacity: usize,
    len: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let out = slice_mut(out, capacity).ok_or(super::argument("for the vector"))?;
            give(len, session.pooled(out)?.len());
            Ok(())
        })
    }
}

/// Computes the embedding of `count` tokens with the model's pooling (by default the mean). Stores the embedding in
/// `out` and its length in `len`. `capacity` is at least `arenite_session_vector_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_embed(
    session: *mut arenite_session,
    tokens: *const u32,
    count: usize,
    out: *mut f32,
    capacity: usize,
    len: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module. No token has index `usize::MAX`, so there is no second text.
    unsafe { arenite_session_embed_pair(session, tokens, count, usize::MAX, out, capacity, len, error) }
}

/// Like `arenite_session_embed`, for a pair of texts; the second text starts at token `second`. A reranker computes the
/// score of a query and a document.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_embed_pair(
    session: *mut arenite_session,
    tokens: *const u32,
    count: usize,
    second: usize,
    out: *mut f32,
    capacity: usize,
    len: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let tokens = slice(tokens, count).ok_or(super::argument("for the tokens"))?;
            let out = slice_mut(out, capacity).ok_or(super::argument("for the vector"))?;
            give(len, session.embed_pair(tokens, second, out)?.len());
            Ok(())
        })
    }
}

/// Reads a prompt of `count` tokens, and writes the probability of each of `answer_count` answers to `out`. An answer
/// is a token that may follow the prompt. The probabilities are the softmax of the answers' logits divided by
/// `temperature`. Stores the index of the most probable answer in `best`. The session restarts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_decide(
    session: *mut arenite_session,
    prompt: *const u32,
    count: usize,
    answers: *const u32,
    answer_count: usize,
    temperature: f32,
    out: *mut f32,
    capacity: usize,
    best: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let prompt = slice(prompt, count).ok_or(super::argument("for the prompt"))?;
            let answers = slice(answers, answer_count).ok_or(super::argument("for the answers"))?;
            let out = slice_mut(out, capacity).ok_or(super::argument("for the probabilities"))?;
            give(best, session.decide(prompt, Answers::Tokens(answers), temperature, out, &mut [])?);
            Ok(())
        })
    }
}

/// Number of floats that `arenite_session_embed` needs in `out`; 0 if `session` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_vector_size(session: *mut arenite_session) -> usize {
    // SAFETY: see the module.
    unsafe { session.as_mut() }.map_or(0, |session| session.0.parts().0.model().spec().embedding_buffer())
}

/// Number of bytes of scratch memory for a beam search; 0 if `session` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_beams_scratch_size(session: *mut arenite_session) -> usize {
    // SAFETY: see the module.
    unsafe { session.as_mut() }.map_or(0, |session| Beams::bytes(session.0.parts().0.plan()))
}

/// Searches for outputs for the text of the last `arenite_session_encode`, and creates an object with the results in
/// `memory`. `search` may be null for the defaults. `scratch` is aligned to `arenite_align` and stays borrowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_beams_new(
    session: *mut arenite_session,
    tokenizer: *const arenite_tokenizer,
    search: *const arenite_search,
    scratch: *mut u8,
    scratch_len: usize,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_beams,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let session = &mut session.as_mut().ok_or(super::argument("for the session"))?.0;
            let tokenizer = &tokenizer.as_ref().ok_or(super::argument("for the tokenizer"))?.0;
            let scratch = slice_mut(scratch, scratch_len).ok_or(super::argument("for the scratch memory"))?;
            Ok(arenite_beams(find(session, tokenizer, search.as_ref(), scratch)?))
        })
    };
    report(result, error)
}

/// Number of results; 0 if `beams` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_beams_count(beams: *const arenite_beams) -> usize {
    // SAFETY: see the module.
    unsafe { beams.as_ref() }.map_or(0, |beams| beams.0.count())
}

/// Returns the tokens of result `rank` (0 is the best), and stores their number in `count` and the result's score in
/// `score`. The tokens are valid until the next call with `beams`. Returns null if there is no such result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_beams_tokens(
    beams: *mut arenite_beams,
    rank: usize,
    count: *mut usize,
    score: *mut f32,
) -> *const u32 {
    // SAFETY: see the module.
    let found = unsafe { beams.as_mut() }.and_then(|beams| beams.0.hypothesis(rank));
    // SAFETY: see the module.
    unsafe {
        give(count, found.as_ref().map_or(0, |found| found.tokens.len()));
        give(score, found.as_ref().map_or(0.0, |found| found.score));
    }
    found.map_or(null(), |found| found.tokens.as_ptr())
}

/// Number of bytes of scratch memory that the translation of a text of `text_len` bytes needs. 0 if `session` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_translate_scratch_size(session: *mut arenite_session, text_len: usize) -> usize {
    // SAFETY: see the module.
    let Some(session) = (unsafe { session.as_mut() }) else { return 0 };
    let plan = session.0.parts().0.plan();
    Arena::padded(plan.options.context.saturating_mul(4))
        .saturating_add(Arena::padded(Tokenizer::scratch_bytes(text_len)))
        .saturating_add(Beams::bytes(plan))
}

/// Translates a text (for most models one sentence): writes the best translation to `out`, without a zero byte, and the
/// translation's length to `len`. `search` may be null for the defaults. `scratch` is aligned to `arenite_align`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_translate(
    session: *mut arenite_session,
    tokenizer: *const arenite_tokenizer,
    search: *const arenite_search,
    text: *const c_char,
    text_len: usize,
    scratch: *mut u8,
    scratch_len: usize,
    out: *mut c_char,
    capacity: usize,
    len: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let tokenizer = &tokenizer.as_ref().ok_or(super::argument("for the tokenizer"))?.0;
            let text: &[u8] = slice(text.cast(), text_len).ok_or(super::argument("for the text"))?;
            let scratch: &mut [u8] =
                slice_mut(scratch, scratch_len).ok_or(super::argument("for the scratch memory"))?;
            let out: &mut [u8] = slice_mut(out.cast(), capacity).ok_or(super::argument("for the translation"))?;
            give(len, translate(session, tokenizer, search.as_ref(), text, scratch, out)?);
            Ok(())
        })
    }
}

fn translate(
    session: &mut Session<'_, '_>,
    tokenizer: &Tokenizer<'_, '_>,
    search: Option<&arenite_search>,
    text: &[u8],
    scratch: &mut [u8],
    out: &mut [u8],
) -> Result<usize, Error> {
    let (given, bytes) = (scratch.len(), Tokenizer::scratch_bytes(text.len()));
    let short = Error::BufferTooSmall { what: "bytes of scratch memory", needed: bytes, given };
    let mut arena = Arena::new(scratch)?;
    let tokens: &mut [TokenId] = arena.take(session.context()).ok_or(short)?;
    let words: &mut [u8] = arena.take(bytes).ok_or(short)?;
    let count = tokenizer.encode(text, Encode { add_special: true, parse_special: false }, words, tokens)?;
    session.encode(tokens.get(..count).unwrap_or(&[]))?;
    let mut found = find(session, tokenizer, search, arena.rest())?;
    found.hypothesis(0).map_or(Ok(0), |best| tokenizer.detokenize(best.tokens, false, out))
}

/// Runs a beam search with the model's start and end tokens. Models of the architecture `seq2seq` must never choose the
/// padding token.
fn find<'w>(
    session: &mut Session<'_, '_>,
    tokenizer: &Tokenizer<'_, '_>,
    search: Option<&arenite_search>,
    scratch: &'w mut [u8],
) -> Result<Beams<'w>, Error> {
    let (engine, context) = session.parts();
    let model = engine.model();
    let Stack::Target { start, .. } = model.spec().stack() else {
        return Err(Error::NoPart { part: "decoder that attends to a text" });
    };
    // The only other architecture, T5, starts with its padding token.
    let banned = match model.gguf().architecture()? {
        "seq2seq" => model.gguf().u32("tokenizer.ggml", "padding_token_id")?,
        _ => None,
    };
    let arenite_search { beams, length, length_penalty } = search.copied().unwrap_or_else(|| arenite_search_default());
    let search = Search { beams, length, length_penalty, start, end: tokenizer.eos(), banned };
    Beams::search(engine, context, &search, scratch)
}
