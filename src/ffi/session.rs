//! Models and sessions.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // `ffi.rs` has the requirements of all functions
#![allow(clippy::too_many_arguments)] // C has no slices

use core::ffi::{CStr, c_char, c_void};
use core::mem::size_of;
use core::ptr;

use super::workers::kernels;
use super::{arenite_error, arenite_status, arenite_workers, argument, give, place, report, slice, slice_mut};
use crate::gguf::Value;
use crate::workers::Workers;
use crate::{Error, Gguf, KvType, Model, Options, Plan, Session};

/// KV cache type: 4 bytes per element, exact.
pub const ARENITE_KV_F32: u32 = 0;
/// KV cache type: 2 bytes per element; the default.
pub const ARENITE_KV_F16: u32 = 1;
/// KV cache type: 34 bytes per 32 elements.
pub const ARENITE_KV_Q8_0: u32 = 2;
/// KV cache type: 18 bytes per 32 elements.
pub const ARENITE_KV_Q4_0: u32 = 3;
/// KV cache type: keys as with ARENITE_KV_Q8_0, values as with ARENITE_KV_Q4_0.
pub const ARENITE_KV_Q8_0_Q4_0: u32 = 4;

/// Options for the memory of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_options {
    /// Length of the context in positions; 0 for the model's trained context.
    pub context: usize,
    /// Maximum number of tokens per pass, at least 1. A larger batch is faster and needs more workspace.
    pub batch: usize,
    /// Type of the KV cache: a constant from ARENITE_KV_F32 to ARENITE_KV_Q8_0_Q4_0.
    pub kv: u32,
    /// Maximum number of open contexts, including the session's own; 0 means 1. A beam search needs one context more
    /// than it has beams.
    pub contexts: usize,
    /// Number of pages (16 positions each) shared by all contexts; 0 for enough to fill every context.
    pub pages: usize,
    /// Threads that share the work. The session borrows them. Null for the calling thread only.
    pub workers: *const arenite_workers,
    /// Name of an instruction set, terminated by a zero byte; null for the fastest.
    pub isa: *const c_char,
    /// Number of checkpoints per context, for models with recurrent layers: see `arenite_context_checkpoint`.
    pub checkpoints: usize,
    /// Number of proposed tokens that `arenite_context_verify` may verify at once; 0 for none. Needs the crate feature
    /// `drafts`.
    pub drafts: usize,
    /// True if the model's own layers propose tokens: see `arenite_context_draft`.
    pub own_drafts: bool,
}

/// The exact memory that a model needs under given options; the same on every target.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_plan {
    /// Workspace in bytes.
    pub workspace: usize,
    /// KV cache in bytes.
    pub kv: usize,
    /// Tokenizer index in bytes; 0 if it is in the file.
    pub tokenizer: usize,
    /// Length of the context in positions.
    pub context: usize,
}

/// A checked model in a file.
#[derive(Debug)]
pub struct arenite_model(pub(super) Model<'static>);

/// A model that runs one or more contexts, with its KV cache and the last logits.
#[derive(Debug)]
pub struct arenite_session(pub(super) Session<'static, 'static>);

/// Size of a model in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_model_size() -> usize {
    size_of::<arenite_model>()
}

/// Size of a session in bytes, without workspace and KV cache.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_session_size() -> usize {
    size_of::<arenite_session>()
}

/// Parses and checks the GGUF file of `len` bytes at `file`, and creates a model in `memory`. The file stays borrowed
/// and may have any alignment.
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
            let file = slice(file, len).ok_or(argument("for the file"))?;
            Ok(arenite_model(Model::new(&Gguf::parse(file)?)?))
        })
    };
    report(result, error)
}

/// Size of the vocabulary, which is also the number of logits; 0 if `model` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_model_vocab(model: *const arenite_model) -> usize {
    // SAFETY: see the module.
    unsafe { model.as_ref() }.map_or(0, |model| model.0.spec().vocab)
}

/// Compares the data of all tensors with the hashes that `arenite pack` wrote. Calls `pause(user)` after each `step`
/// bytes and at the end of each tensor, unless `pause` is null, so that a program can feed a watchdog. Fails if a
/// tensor is damaged, or if the file has no hashes. A device verifies a model once, before it trusts it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_model_verify(
    model: *const arenite_model,
    step: usize,
    pause: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let model = unsafe { model.as_ref() }.ok_or(argument("for the model"));
    report(
        model.and_then(|model| {
            verify(model.0.gguf(), step, || {
                if let Some(pause) = pause {
                    // SAFETY: the caller passed the function together with its argument.
                    unsafe { pause(user) };
                }
            })
        }),
        error,
    )
}

fn verify(gguf: &Gguf<'_>, step: usize, mut pause: impl FnMut()) -> Result<(), Error> {
    #[cfg(feature = "verify")]
    return match gguf.verify()? {
        Some(mut verify) => {
            while verify.step(step)? {
                pause();
            }
            Ok(())
        }
        None => Err(Error::NoPart { part: "hashes (`arenite pack` writes them)" }),
    };
    #[cfg(not(feature = "verify"))]
    {
        let _ = (gguf, step, &mut pause);
        Err(argument("for the hashes: this library was built without the feature `verify`"))
    }
}

/// Returns the string under a metadata key, without a terminating zero, and stores the string's length in `len`.
/// Returns null if the key is missing or its value is not a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_model_text(
    model: *const arenite_model,
    key: *const c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: see the module.
    let text = match unsafe { value(model, key) } {
        Some(Value::Str(text)) => Some(text),
        _ => None,
    };
    // SAFETY: see the module.
    unsafe { give(len, text.map_or(0, <[u8]>::len)) };
    text.map_or(ptr::null(), |text| text.as_ptr().cast())
}

/// Writes the number under a metadata key to `out`; for a boolean, writes 1 or 0. Returns false if the key is missing,
/// or if its value is neither a number nor a boolean.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_model_number(model: *const arenite_model, key: *const c_char, out: *mut f64) -> bool {
    // SAFETY: see the module.
    let number = match unsafe { value(model, key) } {
        Some(Value::U8(x)) => x.into(),
        Some(Value::I8(x)) => x.into(),
        Some(Value::U16(x)) => x.into(),
        Some(Value::I16(x)) => x.into(),
        Some(Value::U32(x)) => x.into(),
        Some(Value::I32(x)) => x.into(),
        Some(Value::U64(x)) => x as f64,
        Some(Value::I64(x)) => x as f64,
        Some(Value::F32(x)) => x.into(),
        Some(Value::F64(x)) => x,
        Some(Value::Bool(x)) => u8::from(x).into(),
        Some(Value::Str(_) | Value::Array(_)) | None => return false,
    };
    // SAFETY: see the module.
    unsafe { give(out, number) };
    true
}

/// # Safety
///
/// `model` points to a model, or is null. `key` points to a zero-terminated string, or is null.
unsafe fn value(model: *const arenite_model, key: *const c_char) -> Option<Value<'static>> {
    // SAFETY: as for this function.
    let model: &'static arenite_model = unsafe { model.as_ref() }?;
    if key.is_null() {
        return None;
    }
    // SAFETY: as for this function.
    let key = unsafe { CStr::from_ptr(key) }.to_str().ok()?;
    model.0.gguf().get(key)
}

/// Returns the default options: the model's trained context, 16 tokens per pass, an f16 cache, one context, one thread.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_options_default() -> arenite_options {
    let Options { context, batch, .. } = Options::DEFAULT;
    let (workers, isa) = (ptr::null(), ptr::null());
    arenite_options {
        context,
        batch,
        kv: ARENITE_KV_F16,
        contexts: 1,
        pages: 0,
        workers,
        isa,
        checkpoints: 0,
        drafts: 0,
        own_drafts: false,
    }
}

/// Computes the plan for `options`, or for the default options if `options` is `None`.
///
/// # Safety
///
/// `options.workers` is null or points to valid workers.
unsafe fn plan(model: &Model<'_>, options: Option<&arenite_options>) -> Result<Plan, Error> {
    let mut planned = Options::DEFAULT;
    if let Some(options) = options {
        let kv = match options.kv {
            ARENITE_KV_F32 => KvType::F32,
            ARENITE_KV_F16 => KvType::F16,
            ARENITE_KV_Q8_0 => KvType::Q8_0,
            ARENITE_KV_Q4_0 => KvType::Q4_0,
            ARENITE_KV_Q8_0_Q4_0 => KvType::Q8_0Q4_0,
            _ => return Err(Error::Argument { what: "for the type of KV cache" }),
        };
        planned = planned.context(options.context).batch(options.batch).kv(kv);
        // SAFETY: as for this function.
        let workers = unsafe { options.workers.as_ref() }.map_or(1, |workers| workers.count());
        planned = planned.contexts(options.contexts).pages(options.pages).workers(workers);
        planned = planned.checkpoints(options.checkpoints);
        if options.drafts > 0 {
            #[cfg(not(feature = "drafts"))]
            return Err(Error::Argument { what: "for drafts: this library was built without them" });
            #[cfg(feature = "drafts")]
            {
                let rows = options.drafts.saturating_add(1).saturating_mul(options.contexts.max(1));
                planned = planned.drafts(options.drafts).own_drafts(options.own_drafts).logits(rows);
            }
        }
    }
    Plan::new(model.gguf(), planned)
}

/// Computes the memory that the model needs. `options` may be null for the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_model_plan(
    model: *const arenite_model,
    options: *const arenite_options,
    out: *mut arenite_plan,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe { model.as_ref() }.ok_or(argument("for the model")).and_then(|model| {
        // SAFETY: see the module.
        let plan = unsafe { plan(&model.0, options.as_ref()) }?;
        let Plan { workspace, kv, tokenizer, .. } = plan;
        // SAFETY: see the module.
        unsafe { give(out, arenite_plan { workspace, kv, tokenizer, context: plan.options.context }) };
        Ok(())
    });
    report(result, error)
}

/// Creates a session in `memory`. `workspace` and `kv` have at least the planned sizes and are aligned to
/// `arenite_align`; both stay borrowed, as does the model.
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
            let model = &model.as_ref().ok_or(argument("for the model"))?.0;
            let workspace = slice_mut(workspace, workspace_len).ok_or(argument("for the workspace"))?;
            let kv = slice_mut(kv, kv_len).ok_or(argument("for the KV cache"))?;
            let mut session = Session::new(model, plan(model, options.as_ref())?, workspace, kv)?;
            if let Some(options) = options.as_ref() {
                session = session.with_kernels(kernels(options.isa)?);
                if let Some(workers) = options.workers.as_ref() {
                    session = session.with_workers(workers);
                }
            }
            Ok(arenite_session(session))
        })
    };
    report(result, error)
}

/// Runs `f` on a session.
///
/// # Safety
///
/// `session` points to a session with exclusive access, or is null.
pub(super) unsafe fn with_session(
    session: *mut arenite_session,
    error: *mut arenite_error,
    f: impl FnOnce(&mut Session<'static, 'static>) -> Result<(), Error>,
) -> arenite_status {
    // SAFETY: as for this function.
    let session = unsafe { session.as_mut() }.ok_or(argument("for the session"));
    report(session.and_then(|session| f(&mut session.0)), error)
}

/// Appends `count` tokens to the context, runs them, and computes the logits of the last token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_prefill(
    session: *mut arenite_session,
    tokens: *const u32,
    count: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| session.prefill(slice(tokens, count).ok_or(argument("for the tokens"))?))
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

/// Logits of the last token, one per token of the vocabulary, which may be modified. Returns null if `session` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_logits(session: *mut arenite_session) -> *mut f32 {
    // SAFETY: see the module.
    unsafe { session.as_mut() }.map_or(ptr::null_mut(), |session| session.0.logits_mut().as_mut_ptr())
}

/// Number of tokens in the context; 0 if `session` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_position(session: *const arenite_session) -> usize {
    // SAFETY: see the module.
    unsafe { session.as_ref() }.map_or(0, |session| session.0.position())
}

/// Removes all tokens from `position` on from the session's context. The logits do not change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_rewind(
    session: *mut arenite_session,
    position: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe { with_session(session, error, |session| session.rewind(position)) }
}

/// Number of bytes that `arenite_session_save` would write now; 0 if `session` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_snapshot_size(session: *const arenite_session) -> usize {
    // SAFETY: see the module.
    unsafe { session.as_ref() }.map_or(0, |session| session.0.snapshot_bytes())
}

/// Writes a snapshot of the context and the logits to `out`. Stores the size of the snapshot in `written`, unless
/// `written` is null.
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
            let out = slice_mut(out, capacity).ok_or(argument("for the snapshot"))?;
            give(written, session.save(out)?);
            Ok(())
        })
    }
}

/// Restores the context and the logits from a snapshot. On error the session is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_restore(
    session: *mut arenite_session,
    snapshot: *const u8,
    len: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            session.restore(slice(snapshot, len).ok_or(argument("for the snapshot"))?)
        })
    }
}
