//! Picture files that other programs wrote are decoded to the same pixels as in transformers. Damaged files give an
//! error.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arenite_pictures::{Error, Limits, Picture, decode};
use serde_json::Value;

/// Counts the bytes in use, and their maximum.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// One test at a time uses the counters.
static TURN: Mutex<()> = Mutex::new(());

fn add(bytes: usize) {
    MOST.fetch_max(USED.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: all calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Decodes a picture. Returns the result, and the largest number of bytes of memory that were in use during this.
fn measured(bytes: &[u8], limits: &Limits) -> (Result<Picture, Error>, u64) {
    let before = USED.load(Relaxed);
    MOST.store(before, Relaxed);
    let decoded = decode(bytes, limits);
    (decoded, (MOST.load(Relaxed) - before) as u64)
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures/eyes/pictures_a")
}

/// The files of the fixture, with their entries.
fn files() -> Vec<(String, Vec<u8>, Value)> {
    let reference = std::fs::read(folder().join("ref.json")).unwrap();
    let reference: Value = serde_json::from_slice(&reference).unwrap();
    let read = |picture: &Value| {
        let name = picture["file"].as_str().unwrap().to_string();
        (name.clone(), std::fs::read(folder().join(name)).unwrap(), picture.clone())
    };
    reference["pictures"].as_array().unwrap().iter().map(read).collect()
}

#[test]
fn pixels_are_those_of_transformers() {
    let _turn = TURN.lock();
    let packed = std::fs::read(folder().join("pixels.bin.gz")).unwrap();
    let mut pixels = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut pixels).unwrap();
    for (name, bytes, entry) in files() {
        let picture = decode(&bytes, &Limits::DEFAULT).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((u64::from(picture.width), u64::from(picture.height)), size(&entry), "{name}");
        let start = entry["rgb"]["offset"].as_u64().unwrap() as usize;
        let wanted = &pixels[start..start + picture.rgb.len()];
        // For grey with 16 bits, the results differ: Pillow limits values to 255, and `decode` takes the upper byte.
        if name == "grey16.png" {
            assert!(picture.rgb.chunks(3).any(|pixel| pixel[0] < 255));
        } else {
            assert!(picture.rgb == wanted, "{name}");
        }
        // A PNG without its last chunk has all pixels.
        if let Some(cut) = bytes.len().checked_sub(12).filter(|at| bytes[*at..].starts_with(b"\0\0\0\0IEND")) {
            assert!(decode(&bytes[..cut], &Limits::DEFAULT).is_ok_and(|same| same == picture), "{name}");
        }
    }
}

fn size(entry: &Value) -> (u64, u64) {
    (entry["width"].as_u64().unwrap(), entry["height"].as_u64().unwrap())
}

/// A small file of each format besides PNG and JPEG.
fn others() -> [(&'static str, Vec<u8>); 3] {
    let gif = b"GIF89a\x02\0\x02\0\x80\0\0\xff\0\0\0\0\xff\x21\xf9\x04\x01\0\0\x01\0\x2c\0\0\0\0\x02\0\x02\0\0\x02\x03\x44\x02\x05\0\x3b";
    let webp = b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0";
    let mut bmp = b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x02\0\0\0\x01\0\x18\0".to_vec();
    bmp.extend([0; 24]);
    bmp.extend([7; 16]);
    [("gif", gif.to_vec()), ("webp", webp.to_vec()), ("bmp", bmp)]
}

#[test]
fn formats_are_told_by_their_content() {
    let _turn = TURN.lock();
    for (name, bytes) in others() {
        let picture = decode(&bytes, &Limits::DEFAULT).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(picture.rgb.len() as u32, picture.width * picture.height * 3, "{name}");
    }
    // The blue pixels are transparent, and keep their color.
    let [(_, gif), ..] = others();
    let colors = decode(&gif, &Limits::DEFAULT).unwrap().rgb;
    assert!(colors.chunks(3).all(|pixel| pixel == [255, 0, 0] || pixel == [0, 0, 255]), "{colors:?}");
    let apple = decode(b"\x89PNG\r\n\x1a\n\0\0\0\x04CgBI\x50\0\x20\x02\x2b\xd5\xb3\x7f", &Limits::DEFAULT)
        .unwrap_err()
        .to_string();
    assert!(apple.contains("save it again") && !apple.contains('{'), "{apple}");
    for bytes in [&b""[..], b"GGUF", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.4", b"II*\0\x08\0\0\0"] {
        assert_eq!(decode(bytes, &Limits::DEFAULT), Err(Error::Format));
    }
}

/// Files whose headers have this size, and no pixels.
fn headers(width: u32, height: u32) -> Vec<(&'static str, Vec<u8>)> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    png.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
    png.extend([8, 2, 0, 0, 0]);
    let mut crc = flate2::Crc::new();
    crc.update(&png[12..]);
    png.extend(crc.sum().to_be_bytes());
    png.extend(b"\0\0\0\x08IDAT\x78\x9c\x63\0\0\0\x01\0\x01");
    let small = [width as u16, height as u16];
    let mut gif = b"GIF89a".to_vec();
    gif.extend(small.map(u16::to_le_bytes).concat());
    gif.extend([0, 0, 0, 0x2c, 0, 0, 0, 0]);
    gif.extend(small.map(u16::to_le_bytes).concat());
    gif.extend(b"\0\x02\x02\x44\x01\0\x3b");
    let mut bmp = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    bmp.extend([width.to_le_bytes(), height.to_le_bytes()].concat());
    bmp.extend(b"\x01\0\x18\0");
    bmp.extend([0; 24]);
    let jpeg = std::fs::read(folder().join("progressive.jpg")).unwrap();
    let at = jpeg.windows(2).position(|pair| pair == b"\xff\xc2").unwrap() + 5;
    let resized = [&jpeg[..at], &[small[1], small[0]].map(u16::to_be_bytes).concat(), &jpeg[at + 4..]].concat();
    vec![("png", png), ("gif", gif), ("bmp", bmp), ("jpeg", resized)]
}

#[test]
fn a_large_picture_is_refused_before_its_memory() {
    let _turn = TURN.lock();
    for (name, bytes) in headers(20_000, 20_000) {
        let (decoded, most) = measured(&bytes, &Limits::DEFAULT);
        assert!(matches!(decoded, Err(Error::Large { width: 20_000, height: 20_000, .. })), "{name}: {decoded:?}");
        assert!(most < 1 << 20, "{name}: {most}");
    }
    let message = decode(&headers(20_000, 20_000)[0].1, &Limits::DEFAULT).unwrap_err().to_string();
    assert!(message.contains("20000 by 20000") && message.contains("make it smaller"), "{message}");
    // A file within the limits takes at most the memory that the limits promise, even if the file ends before its
    // pixels.
    let limits = Limits { side: 2000, pixels: 1_000_000 };
    for (name, bytes) in headers(1000, 1000) {
        let (_, most) = measured(&bytes, &limits);
        assert!(most <= limits.memory(), "{name}: {most}");
    }
}

#[test]
fn damaged_files_are_errors() {
    let _turn = TURN.lock();
    let limits = Limits { side: 4000, pixels: 1_000_000 };
    let mut random = 7_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    std::panic::set_hook(Box::new(|_| {})); // silent: `decode` catches the panics of decoders
    let files: Vec<_> =
        files().into_iter().map(|(_, bytes, _)| bytes).chain(others().map(|(_, bytes)| bytes)).collect();
    let (mut refused, mut failed) = (0, 0);
    for round in 0..6000 {
        let mut bytes = files[round % files.len()].clone();
        match round % 3 {
            0 => bytes.truncate(next(bytes.len())),
            _ => (0..1 + next(4)).for_each(|_| {
                let at = next(bytes.len());
                bytes[at] = next(256) as u8;
            }),
        }
        let (decoded, most) = measured(&bytes, &limits);
        match decoded {
            Ok(picture) => assert_eq!(picture.rgb.len() as u32, picture.width * picture.height * 3),
            Err(error) => {
                refused += 1;
                failed += usize::from(error == Error::Damaged("its decoder failed".into()));
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
        assert!(most <= limits.memory(), "{most}");
    }
    drop(std::panic::take_hook());
    assert!(refused > 1000, "{refused}");
    println!("{refused} refused, {failed} by a panic");
}
