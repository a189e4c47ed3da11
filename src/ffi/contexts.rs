//! Several conversations in one session.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // `ffi.rs` has the requirements of all functions
#![allow(clippy::too_many_arguments)] // C has no slices

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr::null_mut;
use core::slice::from_mut;

use heapless::Vec;

use super::session::with_session;
use super::{arenite_error, arenite_session, arenite_status, argument, place, report, slice};
use crate::engine::Pass;
use crate::{Context, Error, Work};

/// Maximum number of works in a run.
const MOST: usize = 64;

/// The state of a conversation. A session has its own context, which is used if a context argument is null.
#[derive(Debug)]
pub struct arenite_context(Context);

/// Tokens to run in a context.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_work {
    /// The context that reads the tokens, or null for the session's own. A context may be given only once.
    pub context: *mut arenite_context,
    /// The tokens; at least one.
    pub tokens: *const u32,
    /// Number of tokens.
    pub count: usize,
}

/// Size of a context in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_context_size() -> usize {
    size_of::<arenite_context>()
}

/// Creates a new, empty context of a session in `memory`. The session's options limit the number of contexts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_new(
    session: *mut arenite_session,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_context,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let session = session.as_mut().ok_or(argument("for the session"))?;
            Ok(arenite_context(session.0.parts().0.open()?))
        })
    };
    report(result, error)
}

/// Creates a copy of `context` in `memory`; the two contexts share cache memory until their tokens differ.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_fork(
    session: *mut arenite_session,
    context: *const arenite_context,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_context,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let (engine, own) = session.as_mut().ok_or(argument("for the session"))?.0.parts();
            Ok(arenite_context(engine.fork(context.as_ref().map_or(&*own, |context| &context.0))?))
        })
    };
    report(result, error)
}

/// Closes a context and frees its cache memory; the object is then invalid. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_close(session: *mut arenite_session, context: *mut arenite_context) {
    // SAFETY: see the module.
    if let Some(session) = unsafe { session.as_mut() }
        && !context.is_null()
    {
        // SAFETY: `context` points to a context, which is not used again.
        session.0.parts().0.close(unsafe { context.read() }.0);
    }
}

/// Number of tokens that a context has read. If `context` is null, this is the session's own context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_position(
    session: *const arenite_session,
    context: *const arenite_context,
) -> usize {
    // SAFETY: see the module.
    match (unsafe { context.as_ref() }, unsafe { session.as_ref() }) {
        (Some(context), _) => context.0.position(),
        (None, Some(session)) => session.0.position(),
        (None, None) => 0,
    }
}

/// Removes all tokens of a context from `position` on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_rewind(
    session: *mut arenite_session,
    context: *mut arenite_context,
    position: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let (engine, own) = session.parts();
            engine.rewind(context.as_mut().map_or(own, |context| &mut context.0), position)
        })
    }
}

/// Saves the recurrent states of a context, so that it can be rewound to its current position. At most
/// `arenite_options.checkpoints` saved states are kept: a further state replaces the oldest. Models without recurrent
/// layers do not need this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_checkpoint(
    session: *mut arenite_session,
    context: *const arenite_context,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let (engine, own) = session.parts();
            engine.checkpoint(context.as_ref().map_or(&*own, |context| &context.0))
        })
    }
}

/// The last position at or before `position` that a context can be rewound to; 0 if `session` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_nearest(
    session: *mut arenite_session,
    context: *const arenite_context,
    position: usize,
) -> usize {
    // SAFETY: see the module.
    let Some(session) = (unsafe { session.as_mut() }) else { return 0 };
    let (engine, own) = session.0.parts();
    // SAFETY: see the module.
    engine.nearest(unsafe { context.as_ref() }.map_or(&*own, |context| &context.0), position)
}

/// Logits of the last token of a context, which may be modified. Returns null if `session` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_logits(
    session: *mut arenite_session,
    context: *const arenite_context,
) -> *mut f32 {
    // SAFETY: see the module.
    let Some(session) = (unsafe { session.as_mut() }) else { return null_mut() };
    let (engine, own) = session.0.parts();
    // SAFETY: see the module.
    let context = unsafe { context.as_ref() }.map_or(&*own, |context| &context.0);
    engine.logits_mut(context).as_mut_ptr()
}

/// Guesses the token after `token` with the model's own layers, planned by `arenite_options.own_drafts`. In the first
/// call, `token` was chosen after the last token of the context; in each further call, `token` is the previous guess.
/// `arenite_context_logits` then returns the logits of the guess. The context does not change: `arenite_context_verify`
/// reads the tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_draft(
    session: *mut arenite_session,
    context: *mut arenite_context,
    token: u32,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let (engine, own) = session.parts();
            let context = context.as_mut().map_or(own, |context| &mut context.0);
            #[cfg(feature = "drafts")]
            return engine.draft(&mut [Work::decode(context, token)]);
            #[cfg(not(feature = "drafts"))]
            {
                let _ = (engine, context, token);
                Err(Error::NoPart { part: "drafts in this library" })
            }
        })
    }
}

/// Reads a chosen token and up to `arenite_options.drafts` proposed tokens, and computes the logits after each of them:
/// `arenite_context_logits_at` returns these logits. If a proposed token is not the token chosen from the logits before
/// it, remove it and all later tokens with `arenite_context_rewind`. This also works for models with recurrent layers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_verify(
    session: *mut arenite_session,
    context: *mut arenite_context,
    tokens: *const u32,
    count: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let tokens = slice(tokens, count).ok_or(argument("for the tokens"))?;
            let (engine, own) = session.parts();
            let context = context.as_mut().map_or(own, |context| &mut context.0);
            let work = Work::prefill(context, tokens).all_logits();
            #[cfg(feature = "drafts")]
            let work = work.tentative();
            engine.run(&mut [work])
        })
    }
}

/// Logits of the token at `position` of a context, after `arenite_context_verify`. Returns null if there are no such
/// logits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_context_logits_at(
    session: *mut arenite_session,
    context: *const arenite_context,
    position: usize,
) -> *const f32 {
    // SAFETY: see the module.
    let Some(session) = (unsafe { session.as_mut() }) else { return core::ptr::null() };
    let (engine, own) = session.0.parts();
    // SAFETY: see the module.
    let context = unsafe { context.as_ref() }.map_or(&*own, |context| &context.0);
    match engine.logits_at(context, position) {
        [] => core::ptr::null(),
        logits => logits.as_ptr(),
    }
}

/// Runs tokens of up to 64 contexts and reads every weight once for all of them. On error nothing was run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_session_run(
    session: *mut arenite_session,
    works: *const arenite_work,
    count: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    unsafe {
        with_session(session, error, |session| {
            let given = slice(works, count).ok_or(argument("for the works"))?;
            let (engine, own) = session.parts();
            let mut own = Some(own);
            let mut works: Vec<Work<'_>, MOST> = Vec::new();
            for (i, work) in given.iter().enumerate() {
                let tokens = slice(work.tokens, work.count).ok_or(argument("for the tokens"))?;
                let earlier = given.get(..i).unwrap_or(&[]);
                if earlier.iter().any(|earlier| earlier.context == work.context) {
                    return Err(argument("for the context"));
                }
                // The references do not alias, because no two works have the same context.
                let context = match work.context.as_mut() {
                    Some(context) => &mut context.0,
                    None => own.take().ok_or(argument("for the context"))?,
                };
                let full = Error::BufferTooSmall { what: "works", needed: count, given: MOST };
                works.push(Work::prefill(context, tokens)).map_err(|_| full)?;
            }
            engine.run(&mut works)
        })
    }
}

/// A run of tokens in steps of one layer. Between two steps the program can feed a watchdog or yield to other tasks.
pub struct arenite_pass {
    work: Work<'static>,
    /// The pass borrows `work`, so this is `None` until the struct, with `work`, is at its final address.
    pass: Option<Pass<'static, 'static, 'static, 'static>>,
}

/// Size of a pass in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_pass_size() -> usize {
    size_of::<arenite_pass>()
}

/// Creates a pass in `memory` that runs `count` tokens in a context, or in the session's own if `context` is null. Each
/// call of `arenite_pass_step` runs one step of the pass. Do not use the session, the context or the tokens until the
/// last step, or until you abandon the pass. On error nothing was run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pass_new(
    session: *mut arenite_session,
    context: *mut arenite_context,
    tokens: *const u32,
    count: usize,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_pass,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: see the module.
    let result = unsafe {
        let mut engine = None;
        let placed = place(memory, capacity, out, || {
            let (own_engine, own) = session.as_mut().ok_or(argument("for the session"))?.0.parts();
            let tokens = slice(tokens, count).ok_or(argument("for the tokens"))?;
            engine = Some(own_engine);
            let context = context.as_mut().map_or(own, |context| &mut context.0);
            Ok(arenite_pass { work: Work::prefill(context, tokens), pass: None })
        });
        match (placed, engine) {
            // `begin` is called after `place`, because the pass borrows `work`, and only after `place` is `work` at its
            // final address.
            (Ok(()), Some(engine)) => match engine.begin(from_mut(&mut (**out).work)) {
                Ok(pass) => {
                    (&raw mut (**out).pass).write(Some(pass));
                    Ok(())
                }
                Err(error) => {
                    out.write(null_mut());
                    Err(error)
                }
            },
            (placed, _) => placed,
        }
    };
    report(result, error)
}

/// Runs one step. Returns true if more steps remain; false if `pass` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pass_step(pass: *mut arenite_pass) -> bool {
    if pass.is_null() {
        return false;
    }
    // SAFETY: see the module. Only the field `pass` is borrowed here, because the pass itself borrows the field `work`.
    let pass = unsafe { &mut (*pass).pass };
    pass.as_mut().is_some_and(Pass::step)
}
