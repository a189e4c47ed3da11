//! Any sound file is refused, or decoded to at most as many samples as its length allows. A panic of a decoder is an
//! error of its file.
#![no_main]

use std::sync::Once;

use arbitrary::Arbitrary;
use arenite_speech::{DECODER, Sound};
use fuzz_host::files::Damage;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    kind: Kind,
    damage: Damage,
}

#[derive(Arbitrary, Debug)]
enum Kind {
    Wav { parts: [Part; 4], rate: u32, channels: u16, bits: u16, coding: u16, id: u8, size: u32 },
    Flac { blocks: [(u8, u32, u8); 3], info: [u8; 18], frames: [u8; 32] },
    Mpeg { tag: Option<u32>, frames: [[u8; 4]; 3] },
    Bytes(Vec<u8>),
}

/// A chunk of a WAV file: a choice of its name, the length that it states, and its true length.
#[derive(Arbitrary, Debug)]
struct Part {
    name: u8,
    stated: Option<u32>,
    len: u8,
}

impl Kind {
    fn file(&self) -> Vec<u8> {
        match self {
            Self::Wav { parts, rate, channels, bits, coding, id, size } => {
                let mut file = [b"RIFF", b"RF64", b"BW64", b"RIFX"][usize::from(id % 4)].to_vec();
                file.extend(size.to_le_bytes());
                file.extend(b"WAVE");
                for part in parts {
                    let name = [b"data", b"fmt ", b"LIST", b"ds64", b"id3 "][usize::from(part.name % 5)];
                    let mut body = vec![0x11; part.len.into()];
                    if name == b"fmt " {
                        let width = channels.wrapping_mul(bits / 8);
                        body = [[coding % 8, *channels].map(u16::to_le_bytes).concat(), rate.to_le_bytes().to_vec()]
                            .concat();
                        body.extend(rate.wrapping_mul(width.into()).to_le_bytes());
                        body.extend([width, *bits].map(u16::to_le_bytes).concat());
                    }
                    file.extend(name);
                    file.extend(part.stated.unwrap_or(body.len() as u32).to_le_bytes());
                    file.extend(body);
                }
                file
            }
            Self::Flac { blocks, info, frames } => {
                let mut file = b"fLaC\0\0\0\x22".to_vec();
                file.extend(info.iter().chain(&[0; 16]));
                for (kind, len, body) in blocks {
                    file.push(*kind);
                    file.extend(&len.to_be_bytes()[1..]);
                    file.resize(file.len() + usize::from(*body), 7);
                }
                file.extend(frames);
                file
            }
            Self::Mpeg { tag, frames } => {
                let mut file = tag.map_or(vec![], |len| [b"ID3\x04\0\0", &len.to_be_bytes()[..]].concat());
                for frame in frames {
                    file.extend([0xff, 0xe0 | frame[1], frame[2], frame[3]]);
                    file.resize(file.len() + 100, frame[0]);
                }
                file
            }
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// Panics of a thread that decodes are part of the test. The fuzzer would end with them.
static HOOK: Once = Once::new();

fn keep_decoders() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some(DECODER) {
            report(panic);
        }
    }));
}

fuzz_target!(|case: Case| {
    HOOK.call_once(keep_decoders);
    let file = case.damage.apply(case.kind.file());
    let most = 400_000_000; // 7 hours: FLAC writes a block of silence in a few bytes
    let Ok(mut sound) = Sound::read(file) else { return };
    let mut start = 0;
    while let Ok(samples) = sound.samples(start, 16 << 10)
        && !samples.is_empty()
        && start < 1 << 20
    {
        assert!(samples.iter().all(|sample| sample.is_finite()), "a sample is not a number");
        start += samples.len();
    }
    assert!(sound.len() < most);
});
