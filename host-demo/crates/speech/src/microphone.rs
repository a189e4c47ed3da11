//! Records the sound of a microphone.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cpal::traits::{DeviceTrait, HostTrait, StreamTrait};
use cpal::{Device, ErrorKind, FromSample, SampleFormat, SizedSample, Stream, StreamConfig};

use super::sound::{Sound, mono};

/// Time between two calls of `is_over`.
const CHECK: Duration = Duration::from_millis(100);

type Block = Result<Vec<f32>>;

/// A running recording: blocks of mono samples arrive from an input device until `is_over` returns true.
struct Recording {
    blocks: Receiver<Block>,
    /// Returns true when the recording should end.
    is_over: fn() -> bool,
    /// Records until this value is dropped.
    _stream: Stream,
}

impl Iterator for Recording {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        while !(self.is_over)() {
            match self.blocks.recv_timeout(CHECK) {
                Ok(block) => return Some(block),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

/// Starts to record from the default input device, at the device's own rate, until `is_over` returns true.
pub fn record(is_over: fn() -> bool) -> Result<Sound> {
    let device = cpal::default_host().default_input_device().context("there is no microphone: connect one")?;
    let config = device.default_input_config().context("the microphone cannot be used")?;
    let (send, blocks) = channel();
    let stream = match config.sample_format() {
        SampleFormat::F32 => stream::<f32>(&device, config.config(), send),
        SampleFormat::I16 => stream::<i16>(&device, config.config(), send),
        SampleFormat::I32 => stream::<i32>(&device, config.config(), send),
        SampleFormat::U8 => stream::<u8>(&device, config.config(), send),
        SampleFormat::U16 => stream::<u16>(&device, config.config(), send),
        format => bail!("the microphone's samples are {format}, which is not supported"),
    }?;
    stream.play().context("the microphone does not start")?;
    Sound::live(config.sample_rate(), Recording { blocks, is_over, _stream: stream })
}

/// Sends each block of the device as mono samples.
fn stream<S>(device: &Device, config: StreamConfig, send: Sender<Block>) -> Result<Stream>
where
    S: SizedSample,
    f32: FromSample<S>,
{
    let (channels, of_errors) = (usize::from(config.channels).max(1), send.clone());
    let take = move |samples: &[S], _: &_| {
        let samples: Vec<f32> = samples.iter().map(|sample| sample.to_sample()).collect();
        let _ = send.send(Ok(mono(&samples, channels))); // fails only after the end of the recording
    };
    let fail = move |error: cpal::Error| match error.kind() {
        ErrorKind::DeviceChanged | ErrorKind::RealtimeDenied | ErrorKind::Xrun => {} // the recording goes on
        _ => drop(of_errors.send(Err(anyhow::Error::new(error).context("the microphone stopped")))),
    };
    device.build_input_stream(config, take, fail, None).context("the microphone cannot be used")
}
