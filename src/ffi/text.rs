//! Tokenizers, decoders and samplers.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // `ffi.rs` has the requirements of all functions
#![allow(clippy::too_many_arguments)] // C has no slices

use core::ffi::{c_char, c_void};
use core::mem::size_of;
use core::ptr;

use super::{Text, arenite_error, arenite_model, arenite_status, argument, give, place, report, slice, slice_mut};
use crate::sampler::{Params, Pcg32, Sampler};
use crate::tokenizer::{Decoder, Encode, Tokenizer};
use crate::{Error, TokenId};

/// A tokenizer for a file's vocabulary.
#[derive(Debug)]
pub struct arenite_tokenizer(pub(super) Tokenizer<'static, 'static>);

/// Decodes a stream of tokens to text.
#[derive(Debug)]
pub struct arenite_decoder {
    tokenizer: &'static Tokenizer<'static, 'static>,
    decoder: Decoder,
}

/// Sampling parameters. The steps run in llama.cpp's default order. `arenite_params_default` returns the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_params {
    /// Divisor of the logits; 0 selects the best token.
    pub temperature: f32,
    /// Top-k: number of best tokens kept; 0 keeps all.
    pub top_k: u32,
    /// Top-p: keeps the best tokens that together have this probability; 1 keeps all tokens.
    pub top_p: f32,
    /// Min-p: keeps tokens that are at least this many times as probable as the best token; 0 keeps all tokens.
    pub min_p: f32,
    /// Divides the positive logits of recent tokens, and multiplies their negative logits; 1 is off.
    pub repeat_penalty: f32,
    /// Value that is subtracted from a recent token's logit for each occurrence of the token; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once from a recent token's logit; 0 is off.
    pub presence_penalty: f32,
    /// Number of recent tokens to penalize; 0 turns penalties off.
    pub repeat_last_n: u32,
    /// Logit biases, at most one per token; a sampler borrows them. Null for none.
    pub bias: *const arenite_bias,
    /// Number of biases.
    pub bias_count: usize,
    /// Typical sampling, after top-k: keeps the tokens whose log-probability is nearest to the expected
    /// log-probability, until the kept tokens together have this probability; 1 keeps all tokens.
    pub typical_p: f32,
}

/// A bias on the logit of a token; minus infinity forbids the token.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_bias {
    /// The token.
    pub token: u32,
    /// Added to its logit.
    pub bias: f32,
}

/// A sampler, which selects tokens. It also stores the recent tokens, because the penalties depend on them.
#[derive(Debug)]
pub struct arenite_sampler {
    sampler: Sampler<'static>,
    random: Pcg32,
    bias: &'static [arenite_bias],
}

/// Size of a tokenizer in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_tokenizer_size() -> usize {
    size_of::<arenite_tokenizer>()
}

/// Size of a decoder in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_decoder_size() -> usize {
    size_of::<arenite_decoder>()
}

/// Size of a sampler in bytes, without its scratch memory.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_sampler_size() -> usize {
    size_of::<arenite_sampler>()
}

/// Creates a tokenizer in `memory`. `index` has at least the planned size (0 if the file was packed) and stays
/// borrowed, as the model's file does.
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
            let model = &model.as_ref().ok_or(argument("for the model"))?.0;
            let index = slice_mut(index, index_len).ok_or(argument("for the index"))?;
            Ok(arenite_tokenizer(Tokenizer::new(model.gguf(), index)?))
        })
    };
    report(result, error)
}

/// Number of bytes of scratch memory that `arenite_tokenize` needs for any text of `text_len` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_tokenize_scratch_size(text_len: usize) -> usize {
    Tokenizer::scratch_bytes(text_len)
}

/// Writes the tokens of a text to `tokens`, and their number to `count`. `add_special` adds BOS and EOS if the model
/// requires them; `parse_special` parses control tokens in the text.
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
    let result = unsafe { tokenizer.as_ref() }.ok_or(argument("for the tokenizer")).and_then(|tokenizer| {
        // SAFETY: see the module.
        unsafe {
            let text = slice(text.cast(), text_len).ok_or(argument("for the text"))?;
            let scratch = slice_mut(scratch, scratch_len).ok_or(argument("for the scratch memory"))?;
            let tokens: &mut [TokenId] = slice_mut(tokens, capacity).ok_or(argument("for the tokens"))?;
            give(count, tokenizer.0.encode(text, Encode { add_special, parse_special }, scratch, tokens)?);
        }
        Ok(())
    });
    report(result, error)
}

/// Writes the text of `count` tokens to `out`, without a zero byte, and the text's length to `len`. Control tokens are
/// omitted unless `show_special`.
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
    let result = unsafe { tokenizer.as_ref() }.ok_or(argument("for the tokenizer")).and_then(|tokenizer| {
        // SAFETY: see the module.
        unsafe {
            let tokens = slice(tokens, count).ok_or(argument("for the tokens"))?;
            let out = slice_mut(out.cast(), capacity).ok_or(argument("for the text"))?;
            give(len, tokenizer.0.detokenize(tokens, show_special, out)?);
        }
        Ok(())
    });
    report(result, error)
}

/// True if generation ends with this token; false if `tokenizer` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_is_end(tokenizer: *const arenite_tokenizer, token: u32) -> bool {
    // SAFETY: see the module.
    unsafe { tokenizer.as_ref() }.is_some_and(|tokenizer| tokenizer.0.is_end(token))
}

/// Creates a decoder in `memory`: for the continuation of a prompt if `after_prompt` is true, else for a complete text.
/// The tokenizer stays borrowed.
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
            let tokenizer = &tokenizer.as_ref().ok_or(argument("for the tokenizer"))?.0;
            let decoder = if after_prompt { tokenizer.decoder_after_prompt() } else { tokenizer.decoder() };
            Ok(arenite_decoder { tokenizer, decoder })
        })
    };
    report(result, error)
}

/// Decodes the next token: writes completed text to `out`, without a zero byte, and the text's length to `len`. A
/// character that is split between tokens is held back. If `out` is too small, the decoder is unchanged.
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
    unsafe {
        decode(decoder, out, capacity, len, error, |tokenizer, decoder, text| decoder.write(token, tokenizer, text))
    }
}

/// Runs `step` on a decoder and writes the text of the step to `out`. The decoder only changes if there is room for the
/// text.
///
/// # Safety
///
/// Same as for the functions of the interface.
unsafe fn decode(
    decoder: *mut arenite_decoder,
    out: *mut c_char,
    capacity: usize,
    len: *mut usize,
    error: *mut arenite_error,
    step: impl FnOnce(&Tokenizer<'_, '_>, &mut Decoder, &mut Text<'_>) -> Result<(), Error>,
) -> arenite_status {
    // SAFETY: as for this function.
    let result = unsafe { decoder.as_mut() }.ok_or(argument("for the decoder")).and_then(|state| {
        // SAFETY: as for this function.
        let out = unsafe { slice_mut(out.cast(), capacity) }.ok_or(argument("for the text"))?;
        let mut text = Text { out, len: 0 };
        let mut next = state.decoder.clone();
        step(state.tokenizer, &mut next, &mut text)?;
        if text.len > capacity {
            return Err(Error::BufferTooSmall { what: "bytes of text", needed: text.len, given: capacity });
        }
        state.decoder = next;
        // SAFETY: as for this function.
        unsafe { give(len, text.len) };
        Ok(())
    });
    report(result, error)
}

/// Ends a text: writes all bytes that the decoder still holds back to `out`, and their number to `len`. If `out` is too
/// small, the decoder is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_decoder_finish(
    decoder: *mut arenite_decoder,
    out: *mut c_char,
    capacity: usize,
    len: *mut usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe { decode(decoder, out, capacity, len, error, |_, decoder, text| decoder.write_rest(text)) }
}

impl From<Params> for arenite_params {
    fn from(params: Params) -> Self {
        let Params { temperature, top_k, top_p, min_p, typical_p, .. } = params;
        let Params { repeat_penalty, frequency_penalty, presence_penalty, repeat_last_n, .. } = params;
        let (bias, bias_count) = (ptr::null(), 0);
        Self {
            temperature,
            top_k,
            top_p,
            min_p,
            repeat_penalty,
            frequency_penalty,
            presence_penalty,
            repeat_last_n,
            bias,
            bias_count,
            typical_p,
        }
    }
}

impl From<arenite_params> for Params {
    fn from(params: arenite_params) -> Self {
        let arenite_params { temperature, top_k, top_p, min_p, typical_p, .. } = params;
        let arenite_params { repeat_penalty, frequency_penalty, presence_penalty, repeat_last_n, .. } = params;
        Self {
            temperature,
            top_k,
            top_p,
            min_p,
            typical_p,
            repeat_penalty,
            frequency_penalty,
            presence_penalty,
            repeat_last_n,
            ..Params::DEFAULT
        }
    }
}

/// Returns llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_params_default() -> arenite_params {
    Params::DEFAULT.into()
}

/// The parameters at `params`, or the defaults if `params` is null.
///
/// # Safety
///
/// `params` is null or valid for reads.
unsafe fn params_of(params: *const arenite_params) -> Params {
    // SAFETY: as for this function.
    unsafe { params.as_ref() }.map_or(Params::DEFAULT, |params| (*params).into())
}

/// Number of bytes of scratch memory that a sampler needs for a vocabulary. `params` may be null for the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_sampler_scratch_size(params: *const arenite_params, vocab: usize) -> usize {
    // SAFETY: see the module.
    Sampler::scratch_bytes(&unsafe { params_of(params) }, vocab)
}

/// Creates a sampler in `memory`. `params` may be null for the defaults. A seed gives the same tokens on every target.
/// `scratch` stays borrowed.
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
            let scratch = slice_mut(scratch, scratch_len).ok_or(argument("for the scratch memory"))?;
            let bias = match params.as_ref() {
                Some(params) => slice(params.bias, params.bias_count).ok_or(argument("for the bias"))?,
                None => &[],
            };
            if let Some(arenite_bias { token, .. }) = bias.iter().find(|bias| bias.token as usize >= vocab) {
                let vocab = u32::try_from(vocab).unwrap_or(u32::MAX);
                return Err(Error::TokenOutOfRange { token: *token, vocab });
            }
            let sampler = Sampler::new(params_of(params), &[], vocab, scratch)?;
            Ok(arenite_sampler { sampler, random: Pcg32::new(seed), bias })
        })
    };
    report(result, error)
}

/// Selects a token from `count` logits, after applying bias and penalties to these logits. Stores the selected token
/// for the penalties.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_sampler_sample(
    sampler: *mut arenite_sampler,
    logits: *mut f32,
    count: usize,
    token: *mut u32,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe { choose(sampler, logits, count, token, error, |sampler, logits, random| sampler.sample(logits, random)) }
}

/// Adds the sampler's bias to the logits. Then selects a token with the function `sample`.
///
/// # Safety
///
/// Same as for the functions of the interface.
pub(super) unsafe fn choose(
    sampler: *mut arenite_sampler,
    logits: *mut f32,
    count: usize,
    token: *mut u32,
    error: *mut arenite_error,
    sample: impl FnOnce(&mut Sampler<'static>, &mut [f32], &mut Pcg32) -> Result<TokenId, Error>,
) -> arenite_status {
    // SAFETY: as for this function.
    let result = unsafe { sampler.as_mut() }.ok_or(argument("for the sampler")).and_then(|state| {
        // SAFETY: as for this function.
        let logits = unsafe { slice_mut(logits, count) }.ok_or(argument("for the logits"))?;
        // The bias is added here because `Sampler` takes a list of tuples, which C does not have. `Sampler`, too, would
        // apply the bias first.
        for arenite_bias { token, bias } in state.bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        let chosen = sample(&mut state.sampler, logits, &mut state.random)?;
        // SAFETY: as for this function.
        unsafe { give(token, chosen) };
        Ok(())
    });
    report(result, error)
}

/// Clears the stored tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_sampler_reset(sampler: *mut arenite_sampler) {
    // SAFETY: see the module.
    if let Some(state) = unsafe { sampler.as_mut() } {
        state.sampler.reset();
    }
}

/// Stores a token for the penalties, for example a token of the prompt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_sampler_accept(sampler: *mut arenite_sampler, token: u32) {
    // SAFETY: see the module.
    if let Some(state) = unsafe { sampler.as_mut() } {
        state.sampler.accept(token);
    }
}
