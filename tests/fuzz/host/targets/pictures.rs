//! Any picture file is refused, or decoded to as many pixels as it states, within the limits. A panic of a decoder is an
//! error of its file.
#![no_main]

use std::sync::Once;

use arbitrary::Arbitrary;
use arenite_pictures::{DECODER, Limits, decode};
use fuzz_host::files::Damage;
use libfuzzer_sys::fuzz_target;

/// Files of all kinds, to be damaged.
const FILES: [&[u8]; 8] = [
    include_bytes!("../../../fixtures/eyes/pictures_a/rgba.png"),
    include_bytes!("../../../fixtures/eyes/pictures_a/palette_transparent.png"),
    include_bytes!("../../../fixtures/eyes/pictures_a/progressive.jpg"),
    include_bytes!("../../../fixtures/eyes/pictures_a/cmyk.jpg"),
    include_bytes!("../../../fixtures/eyes/pictures_a/rotated.jpg"),
    b"GIF89a\x02\0\x02\0\x80\0\0\xff\0\0\0\0\xff\x21\xf9\x04\x01\0\0\x01\0\x2c\0\0\0\0\x02\0\x02\0\0\x02\x03\x44\x02\x05\0\x3b",
    b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0",
    b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\x02\x01\0",
];

#[derive(Arbitrary, Debug)]
enum Case {
    File { number: u8, damage: Damage },
    Bytes(Vec<u8>),
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
    let limits = Limits { side: 3000, pixels: 1 << 20 };
    let file = match case {
        Case::File { number, damage } => damage.apply(FILES[usize::from(number) % FILES.len()].to_vec()),
        Case::Bytes(bytes) => bytes,
    };
    let Ok(picture) = decode(&file, &limits) else { return };
    assert!(picture.width.max(picture.height) <= limits.side);
    assert_eq!(picture.rgb.len(), picture.width as usize * picture.height as usize * 3);
});
