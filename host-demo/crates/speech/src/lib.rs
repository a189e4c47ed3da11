//! Speech to text: sound files, windows of long sounds, and subtitles.
//!
//! | file | |
//! |---|---|
//! | `container` | the parts of a sound file that decoding needs |
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

pub use language::language_code;
#[cfg(feature = "microphone")]
pub use microphone::record;
pub use segments::Segment;
pub use sound::{DECODER, Sound, SoundFile};
pub use subtitles::{Format, Writer};
pub use transcriber::{Progress, Request, Summary, Transcriber};
