//! Transcription of sounds: the order in which requests take turns, and the loop that answers them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use arenite::Plan;

use crate::http::pool::{Permit, Pool};
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::Memory;
use arenite_run::scheduler::{Counters, STOPPED};
use arenite_speech::{Format, Progress, Request as Wanted, Segment, Sound, SoundFile, Transcriber, Writer};

/// Maximum size in bytes of a request with a sound, as in OpenAI's interface.
pub const MOST_BYTES: usize = 25 << 20;
/// Maximum duration of a sound in seconds: four hours.
const MOST_SECONDS: usize = 4 * 3600;
/// Maximum number of sounds that are received, decoded and transcribed in turns, for all clients and for one client. A
/// further sound waits before its body is read.
const MOST_SOUNDS: usize = 6;
const MOST_OF_CLIENT: usize = 1;
/// Time limit for receiving a sound while other sounds wait for a turn.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Upper bound in bytes for the memory of a sound in addition to its file: the decoder, its thread and the samples.
const SOUND_BYTES: usize = 8 << 20;
/// Upper bound in bytes for all sounds.
pub const SOUNDS: usize = MOST_SOUNDS * (MOST_BYTES + SOUND_BYTES);
/// Time for which the engine waits before it checks again whether samples have been decoded.
const PAUSE: Duration = Duration::from_millis(2);

/// A sound to transcribe.
pub struct Transcription {
    pub sound: SoundFile,
    pub client: u64,
    pub wanted: Wanted,
    pub format: Format,
    pub answer: tokio::sync::oneshot::Sender<std::result::Result<String, String>>,
    pub _turn: Permit,
}

/// Returns the pool of turns for sounds. A request gets a turn before the body with its sound is read, so the number of
/// turns limits the memory for sound files.
pub fn turns() -> Arc<Pool> {
    Pool::new(MOST_SOUNDS * MOST_BYTES, MOST_OF_CLIENT * MOST_BYTES, BODY_TIME)
}

/// A sound that is transcribed.
struct Active {
    sound: Sound,
    client: u64,
    progress: Progress,
    writer: Writer<Vec<u8>>,
    answer: tokio::sync::oneshot::Sender<std::result::Result<String, String>>,
    _turn: Permit,
}

impl Active {
    /// Begins a transcription, or answers with the error.
    fn new(transcriber: &Transcriber<'_, '_, '_, '_>, job: Transcription) -> Option<Self> {
        let Transcription { sound, client, wanted, format, answer, _turn } = job;
        let sound = Sound::from(sound).at_most(MOST_SECONDS);
        let begun = || anyhow::Ok((transcriber.begin(&wanted)?, Writer::new(format, None, Vec::new())?));
        match begun() {
            Ok((progress, writer)) => Some(Self { sound, client, progress, writer, answer, _turn }),
            Err(error) => {
                let _ = answer.send(Err(format!("{error:#}")));
                None
            }
        }
    }

    /// Transcribes the next window. Returns false at the end of the sound.
    fn window(&mut self, transcriber: &mut Transcriber<'_, '_, '_, '_>) -> anyhow::Result<bool> {
        let Self { sound, answer, progress, writer, .. } = self;
        let goes_on = || !answer.is_closed();
        transcriber.window(progress, sound, &goes_on, &mut |segment: &Segment| Ok(writer.segment(segment)?))
    }

    /// Sends the transcript, or the error that ended it.
    fn finish(self, ended: anyhow::Result<()>) {
        let Self { sound, answer, progress, writer, .. } = self;
        let text = ended.and_then(|()| {
            let text = writer.finish(&progress.summary(&sound))?;
            String::from_utf8(text).context("the transcript is not UTF-8")
        });
        let _ = answer.send(text.map_err(|error| format!("{error:#}")));
    }
}

/// Answers requests in this thread until all senders of sounds are dropped. Calls `ready` when the memory is allocated.
/// Sounds take turns, one window at a time. The client that was served the longest ago comes first.
pub fn run(
    open: &OpenModel,
    plan: Plan,
    counters: &Counters,
    sounds: &Receiver<Transcription>,
    ready: impl FnOnce(),
) -> anyhow::Result<()> {
    let mut memory = Memory::new(&plan)?;
    let session = open.session(&mut memory, plan)?;
    let mut transcriber = Transcriber::new(open.gguf(), open.model(), open.vocabulary()?, session)?;
    ready();
    // In the order of their turns.
    let mut active: VecDeque<Active> = VecDeque::new();
    let mut is_open = true;
    while is_open || !active.is_empty() {
        let received = match active.is_empty() {
            true => sounds.recv().map_err(|_| TryRecvError::Disconnected),
            false => sounds.try_recv(),
        };
        match received {
            // A new sound comes before those of its client.
            Ok(job) => {
                let at = active.iter().position(|other| other.client == job.client);
                let at = at.map_or(0, |_| active.len());
                Active::new(&transcriber, job).into_iter().for_each(|new| active.insert(at, new));
                continue;
            }
            Err(TryRecvError::Disconnected) => is_open = false,
            Err(TryRecvError::Empty) => {}
        }
        active.retain(|active| !active.answer.is_closed());
        if counters.ended.load(Ordering::Relaxed) {
            active.drain(..).for_each(|active| active.finish(Err(anyhow!(STOPPED))));
            continue;
        }
        let ready = active.iter_mut().enumerate().find_map(|(at, Active { sound, progress, .. })| {
            let ready = transcriber.is_ready(progress, sound).transpose()?;
            Some((at, ready))
        });
        let Some((at, ready)) = ready else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let Some(mut next) = active.remove(at) else { continue };
        match ready.and_then(|()| next.window(&mut transcriber)) {
            Ok(true) => {
                // The other sounds of the same client move to the end of the queue, behind the sounds of other clients.
                let client = next.client;
                active.push_back(next);
                let (own, others): (VecDeque<_>, VecDeque<_>) =
                    active.into_iter().partition(|active| active.client == client);
                active = others.into_iter().chain(own).collect();
            }
            Ok(false) => next.finish(Ok(())),
            Err(error) => next.finish(Err(error)),
        }
    }
    Ok(())
}
