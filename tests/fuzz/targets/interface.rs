//! The C interface under careless use: null, short and misaligned memory, and calls in any order on any objects.
//! Every call must return, write only to the memory it was given, and report the fault.
#![no_main]
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ptr::{null, null_mut};

use arbitrary::Arbitrary;
use arenite::Line;
use arenite::ffi::*;
use fuzz::change::{File, Real, model};
use fuzz::list::{List, Token};
use fuzz::unwritten::{unwritten, written};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    family: u8,
    file: Option<File>,
    context: u8,
    batch: u8,
    kv: u8,
    contexts: u8,
    pages: u8,
    checkpoints: u8,
    threads: u8,
    /// Bytes missing from workspace and cache, mostly none.
    less: [u8; 2],
    steps: List<Step, 24>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Prefill(List<Token, 30>),
    Decode(Token),
    Rewind(u16),
    /// Saves the session and restores it, possibly after changing a byte of the snapshot.
    Save {
        less: u8,
        change: Option<(u16, u8)>,
    },
    Open,
    Fork(u8),
    Close(u8),
    RewindContext(u8, u8),
    /// Makes a checkpoint, then rewinds to the one nearest to a position.
    Checkpoint(u8, u8),
    Run(List<(u8, u8), 5>),
    Encode(List<Token, 30>),
    Embed(List<Token, 30>, u8),
    Search {
        beams: u8,
        length: u8,
        penalty: Real,
        less: u8,
    },
    Translate {
        text: List<u8, 30>,
        capacity: u8,
        less: u8,
    },
    Tokenize {
        text: List<u8, 40>,
        parse: bool,
        capacity: u8,
        less: u8,
    },
    Detokenize {
        tokens: List<Token, 20>,
        capacity: u8,
    },
    Push {
        tokens: List<Token, 20>,
        capacity: u8,
    },
    Sample {
        temperature: Real,
        top_k: u8,
        bias: List<(u16, Real), 3>,
        less: u8,
    },
    Ask(String),
    /// A call without an object.
    Null(u8),
}

/// Memory followed by bytes that must not change.
struct Buffer(Vec<Line>, usize);

impl Buffer {
    fn new(bytes: usize) -> Self {
        let mut buffer = Self::cache(bytes);
        unwritten(&mut Line::bytes_mut(&mut buffer.0)[..bytes]);
        buffer
    }
    /// Memory for a KV cache, which kernels may read before they write it.
    fn cache(bytes: usize) -> Self {
        let mut lines = vec![Line::ZERO; bytes.div_ceil(64) + 1];
        Line::bytes_mut(&mut lines).fill(0xa5);
        Self(lines, bytes)
    }
    fn start(&mut self) -> *mut u8 {
        Line::bytes_mut(&mut self.0).as_mut_ptr()
    }
    /// Checks that the first `len` bytes have been written.
    fn answered(&mut self, len: usize) {
        written(&Line::bytes_mut(&mut self.0)[..self.1][..len]);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        assert!(Line::bytes_mut(&mut self.0)[self.1..].iter().all(|byte| *byte == 0xa5), "written beyond the end");
    }
}

/// Reduces a size by `less - 199` bytes if `less` is at least 200.
fn cut(bytes: usize, less: u8) -> usize {
    if less < 200 { bytes } else { bytes.saturating_sub(usize::from(less - 199)) }
}

/// Returns true if the status is Ok. Otherwise reads the error's message into buffers of several sizes.
fn told(status: arenite_status, error: &arenite_error) -> bool {
    if status == arenite_status::Ok {
        return true;
    }
    for capacity in [0, 1, 5, 400] {
        let mut text = Buffer::new(capacity);
        // SAFETY: the buffer has `capacity` bytes.
        let len = unsafe { arenite_error_message(error, text.start().cast(), capacity) };
        assert!(len > 10 && len < 400, "a message of {len} bytes");
    }
    false
}

/// Creates an object of this interface in memory of its own. Evaluates to the memory and the object.
macro_rules! object {
    ($size:expr, $make:path $(, $argument:expr)*) => {{
        let size = $size;
        let mut memory = Buffer::new(size);
        let mut out = null_mut();
        // SAFETY: all zeros are an error that is not filled.
        let mut error: arenite_error = unsafe { std::mem::zeroed() };
        // SAFETY: the arguments meet the function's requirements.
        let status = unsafe { $make($($argument,)* memory.start().cast(), size, &raw mut out, &raw mut error) };
        let made = told(status, &error);
        assert_eq!(made, !out.is_null());
        (memory, out)
    }};
}

/// Calls a function that may fail. Evaluates to true if the call succeeds.
macro_rules! call {
    ($function:path $(, $argument:expr)*) => {{
        // SAFETY: as above.
        let mut error: arenite_error = unsafe { std::mem::zeroed() };
        // SAFETY: the arguments meet the function's requirements.
        let status = unsafe { $function($($argument,)* &raw mut error) };
        told(status, &error)
    }};
}

fuzz_target!(|case: Case| {
    let bytes = case.file.as_ref().map_or_else(|| model(case.family.into()).into(), |file| Cow::from(file.build()));
    let (_model, model) = object!(arenite_model_size(), arenite_model_new, bytes.as_ptr(), bytes.len());
    // SAFETY: the pointer is a valid model or null, as in all calls below.
    let vocab = unsafe { arenite_model_vocab(model) };
    let workers = arenite_workers { count: (case.threads % 4).into(), user: null_mut(), run: None, should_leave: None };
    let options = arenite_options {
        context: usize::from(case.context) % 65,
        batch: usize::from(case.batch) % 17,
        kv: u32::from(case.kv) % 4,
        contexts: usize::from(case.contexts) % 6,
        pages: usize::from(case.pages) % 20,
        workers: if case.threads > 128 { null() } else { &raw const workers },
        isa: null(),
        checkpoints: usize::from(case.checkpoints) % 4,
        drafts: usize::from(case.pages) % 5,
        own_drafts: case.pages > 128,
    };
    let mut plan = arenite_plan { workspace: 0, kv: 0, tokenizer: 0, context: 0 };
    if !call!(arenite_model_plan, model, &raw const options, &raw mut plan) || plan.workspace.max(plan.kv) > 32 << 20 {
        return;
    }
    let sizes = [cut(plan.workspace, case.less[0]), cut(plan.kv, case.less[1])];
    let mut memory = [Buffer::new(sizes[0]), Buffer::cache(sizes[1])];
    let [workspace, kv] = memory.each_mut().map(|memory| memory.start());
    let new = arenite_session_new;
    let (_session, session) =
        object!(arenite_session_size(), new, model, &raw const options, workspace, sizes[0], kv, sizes[1]);
    assert_eq!(session.is_null(), sizes[0] < plan.workspace || sizes[1] < plan.kv);
    let mut index = Buffer::new(plan.tokenizer);
    let (_tokenizer, tokenizer) =
        object!(arenite_tokenizer_size(), arenite_tokenizer_new, model, index.start(), plan.tokenizer);

    let mut contexts: Vec<(Buffer, *mut arenite_context)> = vec![];
    for step in case.steps.iter() {
        take(step, model, session, tokenizer, vocab, &mut contexts);
    }
    for (_, context) in contexts {
        // SAFETY: each context is closed once.
        unsafe { arenite_context_close(session, context) };
    }
});

fn take(
    step: &Step,
    model: *const arenite_model,
    session: *mut arenite_session,
    tokenizer: *const arenite_tokenizer,
    vocab: usize,
    contexts: &mut Vec<(Buffer, *mut arenite_context)>,
) {
    let ids = |tokens: &[Token]| tokens.iter().map(|token| token.id(vocab)).collect::<Vec<_>>();
    let some = |contexts: &[(Buffer, *mut arenite_context)], number: u8| match contexts.len() {
        0 => null_mut(),
        // Null, the session's own context, is chosen from time to time.
        len => contexts.get(usize::from(number) % (len + 1)).map_or(null_mut(), |(_, context)| *context),
    };
    match step {
        Step::Prefill(tokens) => {
            let tokens = ids(tokens);
            if call!(arenite_session_prefill, session, tokens.as_ptr(), tokens.len()) {
                // SAFETY: after a pass there are `vocab` logits.
                let logits = unsafe { std::slice::from_raw_parts(arenite_session_logits(session), vocab) };
                written(logits);
            }
        }
        Step::Decode(token) => _ = call!(arenite_session_decode, session, token.id(vocab)),
        Step::Rewind(position) => _ = call!(arenite_session_rewind, session, (*position).into()),
        Step::Save { less, change } => {
            // SAFETY: the pointer is a valid session or null.
            let size = unsafe { arenite_session_snapshot_size(session) };
            let (mut snapshot, given) = (Buffer::new(size), cut(size, *less));
            let mut written = 0;
            if call!(arenite_session_save, session, snapshot.start(), given, &raw mut written) {
                if let Some((at, byte)) = change {
                    Line::bytes_mut(&mut snapshot.0)[usize::from(*at) % written.max(1)] = *byte;
                }
                call!(arenite_session_restore, session, snapshot.start(), written);
            }
        }
        Step::Open => {
            let (memory, context) = object!(arenite_context_size(), arenite_context_new, session);
            contexts.extend((!context.is_null()).then_some((memory, context)));
        }
        Step::Fork(number) => {
            let from = some(contexts, *number);
            let (memory, context) = object!(arenite_context_size(), arenite_context_fork, session, from);
            contexts.extend((!context.is_null()).then_some((memory, context)));
        }
        Step::Close(number) => {
            if !contexts.is_empty() {
                let (_memory, context) = contexts.swap_remove(usize::from(*number) % contexts.len());
                // SAFETY: the context is not used again.
                unsafe { arenite_context_close(session, context) };
            }
        }
        Step::RewindContext(number, position) => {
            call!(arenite_context_rewind, session, some(contexts, *number), (*position).into());
        }
        Step::Checkpoint(number, position) => {
            let context = some(contexts, *number);
            call!(arenite_context_checkpoint, session, context);
            // SAFETY: both are valid or null.
            let nearest = unsafe { arenite_context_nearest(session, context, (*position).into()) };
            assert!(nearest <= (*position).into());
            assert!(session.is_null() || call!(arenite_context_rewind, session, context, nearest));
        }
        Step::Run(parts) => {
            let tokens = [1u32, 40, 7, 30, 9, 77, 3, 259];
            let work = |(number, count): &(u8, u8)| arenite_work {
                context: some(contexts, *number),
                tokens: tokens.as_ptr(),
                count: usize::from(*count) % 9,
            };
            let works: Vec<_> = parts.iter().map(work).collect();
            if call!(arenite_session_run, session, works.as_ptr(), works.len()) {
                for work in &works {
                    // SAFETY: `work.context` is a context of this session, or null for the session's own.
                    unsafe {
                        assert!(arenite_context_position(session, work.context) >= work.count);
                        assert!(!arenite_context_logits(session, work.context).is_null());
                    }
                }
            }
        }
        Step::Encode(tokens) => {
            let tokens = ids(tokens);
            call!(arenite_session_encode, session, tokens.as_ptr(), tokens.len());
            let mut count = 0;
            // SAFETY: the pointer is a valid session or null.
            let states = unsafe { arenite_session_states(session, &raw mut count) };
            if count > 0 {
                // SAFETY: there are `count` states.
                written(unsafe { std::slice::from_raw_parts(states, count) });
            }
        }
        Step::Embed(tokens, less) => {
            let tokens = ids(tokens);
            // SAFETY: the pointer is a valid session or null.
            let size = unsafe { arenite_session_vector_size(session) };
            let (mut vector, given, mut len) = (Buffer::new(size * 4), cut(size, *less), 0);
            let start = vector.start().cast();
            if call!(arenite_session_embed, session, tokens.as_ptr(), tokens.len(), start, given, &raw mut len) {
                assert!(len <= given);
                vector.answered(4 * len);
            }
        }
        Step::Search { beams, length, penalty, less } => {
            let search = arenite_search {
                beams: usize::from(*beams) % 10,
                length: (*length).into(),
                length_penalty: penalty.get(),
            };
            // SAFETY: the pointer is a valid session or null.
            let size = unsafe { arenite_beams_scratch_size(session) };
            let (mut scratch, given) = (Buffer::new(size), cut(size, *less));
            let new = arenite_beams_new;
            let (_memory, beams) =
                object!(arenite_beams_size(), new, session, tokenizer, &raw const search, scratch.start(), given);
            let (mut count, mut score) = (0, 0.0);
            // SAFETY: the pointer is a valid search or null. The ranks are those that exist, and one more.
            unsafe {
                for rank in 0..=arenite_beams_count(beams) {
                    let tokens = arenite_beams_tokens(beams, rank, &raw mut count, &raw mut score);
                    if count > 0 {
                        assert!(
                            std::slice::from_raw_parts(tokens, count).iter().all(|token| (*token as usize) < vocab)
                        );
                    }
                }
            }
        }
        Step::Translate { text, capacity, less } => {
            // SAFETY: the pointer is a valid session or null.
            let size = unsafe { arenite_translate_scratch_size(session, text.len()) };
            let (mut scratch, given) = (Buffer::new(size), cut(size, *less));
            let (mut out, capacity, mut len) = (Buffer::new((*capacity).into()), (*capacity).into(), 0);
            let (at, to) = (text.as_ptr().cast(), out.start().cast());
            let (scratch, from, size) = (scratch.start(), text.len(), &raw mut len);
            if call!(arenite_translate, session, tokenizer, null(), at, from, scratch, given, to, capacity, size) {
                out.answered(len);
            }
        }
        Step::Tokenize { text, parse, capacity, less } => {
            let size = arenite_tokenize_scratch_size(text.len());
            let (mut scratch, given) = (Buffer::new(size), cut(size, *less));
            let (mut out, capacity, mut count) = (Buffer::new(4 * usize::from(*capacity)), (*capacity).into(), 0);
            let (at, from, to) = (text.as_ptr().cast(), text.len(), out.start().cast());
            let (scratch, size) = (scratch.start(), &raw mut count);
            if call!(arenite_tokenize, tokenizer, at, from, true, *parse, scratch, given, to, capacity, size) {
                out.answered(4 * count);
            }
        }
        Step::Detokenize { tokens, capacity } => {
            let tokens = ids(tokens);
            let (mut out, capacity, mut len) = (Buffer::new((*capacity).into()), (*capacity).into(), 0);
            let (at, count, to) = (tokens.as_ptr(), tokens.len(), out.start().cast());
            if call!(arenite_detokenize, tokenizer, at, count, true, to, capacity, &raw mut len) {
                out.answered(len);
            }
        }
        Step::Push { tokens, capacity } => {
            let (_memory, decoder) =
                object!(arenite_decoder_size(), arenite_decoder_new, tokenizer, tokens.len() % 2 == 0);
            for token in ids(tokens) {
                let (mut out, capacity, mut len) = (Buffer::new((*capacity).into()), (*capacity).into(), 0);
                if call!(arenite_decoder_push, decoder, token, out.start().cast(), capacity, &raw mut len) {
                    out.answered(len);
                }
                // SAFETY: the pointer is a valid tokenizer or null.
                let _ = unsafe { arenite_is_end(tokenizer, token) };
            }
        }
        Step::Sample { temperature, top_k, bias, less } => {
            let bias: Vec<_> =
                bias.iter().map(|(token, bias)| arenite_bias { token: (*token).into(), bias: bias.get() }).collect();
            let mut params = arenite_params_default();
            (params.temperature, params.top_k) = (temperature.get(), (*top_k).into());
            (params.repeat_penalty, params.bias, params.bias_count) = (1.1, bias.as_ptr(), bias.len());
            // SAFETY: the parameters are valid.
            let size = unsafe { arenite_sampler_scratch_size(&raw const params, vocab) };
            let (mut scratch, given) = (Buffer::new(size), cut(size, *less));
            let new = arenite_sampler_new;
            let (_memory, sampler) =
                object!(arenite_sampler_size(), new, &raw const params, vocab, 7, scratch.start(), given);
            let (mut logits, mut token) = (vec![0.5f32; vocab], 0);
            for count in [vocab, vocab / 2, vocab] {
                if call!(arenite_sampler_sample, sampler, logits.as_mut_ptr(), count, &raw mut token) {
                    assert!((token as usize) < vocab);
                }
                // SAFETY: the pointer is a valid sampler or null.
                unsafe { arenite_sampler_accept(sampler, token) };
            }
        }
        Step::Ask(key) => {
            let Ok(key) = std::ffi::CString::new(key.as_str()) else { return };
            let (mut len, mut number) = (0, 0.0);
            for key in [key.as_c_str(), c"tokenizer.ggml.model", c"general.architecture"] {
                // SAFETY: the first pointer is a valid model or null, the second a C string.
                unsafe {
                    let text = arenite_model_text(model, key.as_ptr(), &raw mut len);
                    assert!(text.is_null() || len < 1 << 24);
                    let _ = arenite_model_number(model, key.as_ptr(), &raw mut number);
                }
            }
        }
        Step::Null(which) => match which % 8 {
            0 => _ = call!(arenite_session_prefill, null_mut(), null(), 1),
            1 => _ = call!(arenite_session_prefill, session, null(), 1),
            2 => _ = call!(arenite_session_save, session, null_mut(), 100, null_mut()),
            3 => _ = call!(arenite_session_restore, session, null(), 100),
            4 => _ = call!(arenite_session_run, session, null(), 2),
            5 => _ = call!(arenite_sampler_sample, null_mut(), null_mut(), 0, null_mut()),
            6 => _ = call!(arenite_model_plan, model, null(), null_mut()),
            _ => _ = call!(arenite_detokenize, tokenizer, null(), 3, false, null_mut(), 0, null_mut()),
        },
    }
}
