//! Speech to text: sound files, windows of long sounds, and subtitles.
//!
//! | file | |
//! |---|---|
//! | `container` | the parts of a sound file that are needed for decoding |
//! | `wave` | headers of WAV files |
//! | `sound` | sounds from files and streams, as samples at 16 kHz |
//! | `microphone` | the default input device, with the feature `microphone` |
//! | `marks` | special tokens |
//! | `language` | names of languages |
//! | `decode` | decoding of one window |
//! | `segments` | division of a window's text by its timestamps |
//! | `transcriber` | a whole sound, window by window |
//! | `voices` | search for voices in a sound |
//! | `subtitles` | output formats |
//!
//! ```no_run
//! use arenite_run::runtime::Memory;
//! use arenite_run::{RunOptions, model_file::ModelFile, open_model::OpenModel};
//! use arenite_speech::{Request, Sound, Transcriber};
//!
//! let open = OpenModel::new(ModelFile::open("whisper-tiny.gguf")?, RunOptions::default())?;
//! let plan = open.plan(open.plan_options(open.context(0)))?;
//! let mut memory = Memory::new(&plan)?;
//! let session = open.session(&mut memory, plan)?;
//! let mut transcriber = Transcriber::new(open.gguf(), open.model(), open.vocabulary()?, session)?;
//! let mut sound = Sound::open("meeting.mp3".as_ref())?;
//! transcriber.transcribe(&mut sound, &Request::default(), &|| true, &mut |segment| {
//!     println!("{:.1} s: {}", segment.start, segment.text);
//!     Ok(())
//! })?;
//! # Ok::<(), anyhow::Error>(())
//! ```

#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

mod container;
mod decode;
mod language;
mod marks;
#[cfg(feature = "microphone")]
mod microphone;
mod segments;
mod sound;
mod subtitles;
mod transcriber;
mod voices;
mod wave;

pub use language::{AUTO, language_code};
#[cfg(feature = "microphone")]
pub use microphone::record;
pub use segments::Segment;
pub use sound::{DECODER, Sound, SoundFile};
pub use subtitles::{Format, Writer};
pub use transcriber::{Progress, Request, Summary, Transcriber};
