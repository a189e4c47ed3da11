//! Repairs headers of WAV files that the decoder cannot read: headers of recorders that did not know the length, and
//! the 64-bit formats RF64, BW64 and W64.

use std::borrow::Cow;

/// The part of a W64 chunk's id that follows its four characters in lower case.
const W64: [u8; 12] = [0xf3, 0xac, 0xd3, 0x11, 0x8c, 0xd1, 0x00, 0xc0, 0x4f, 0x8e, 0xdb, 0x8a];
/// The end of the id of W64's file, after `riff`.
const W64_FILE: [u8; 12] = [0x2e, 0x91, 0xcf, 0x11, 0xa5, 0xd6, 0x28, 0xdb, 0x04, 0xc1, 0x00, 0x00];

/// Returns the file with a plain header; `None` if the decoder can read its header.
pub fn repaired(file: &[u8]) -> Option<Vec<u8>> {
    match file.get(..4)? {
        b"RIFF" => without_length(file).or_else(|| {
            let (format, length, data) = chunks(file)?;
            let is_unusual = matches!(usual(format), Cow::Owned(_));
            is_unusual.then(|| plain(format, data.get(..length as usize).unwrap_or(data)))
        }),
        b"RF64" | b"BW64" => {
            let (format, _, data) = chunks(file)?;
            let at = (12..file.len() - data.len()).find(|at| file[*at..].starts_with(b"ds64"))?;
            let size = u64::from_le_bytes(file.get(at + 16..at + 24)?.try_into().ok()?);
            Some(plain(format, cut(data, size)))
        }
        b"riff" if file.get(4..16) == Some(&W64_FILE) => of_w64(file),
        _ => None,
    }
}

/// Returns a file with correct lengths if the lengths in its header are wrong: a recorder that cannot return to the
/// header writes 0 or the largest number. If a file really has no data, it ends after the header, or other chunks
/// follow.
fn without_length(file: &[u8]) -> Option<Vec<u8>> {
    let (format, length, data) = chunks(file)?;
    let is_empty = {
        let mut rest = data;
        while let Some((_, size)) = chunk(rest) {
            rest = rest.get(8 + size as usize + size as usize % 2..).unwrap_or(b"more");
        }
        rest.is_empty()
    };
    let whole = u32::from_le_bytes(file.get(4..8)?.try_into().ok()?) as usize + 8;
    let (begin, length) = (file.len() - data.len(), length as usize);
    let is_unknown = length == 0 && !is_empty || length > data.len();
    let is_wrong = whole > file.len() || whole < begin + length;
    (is_unknown || is_wrong && length > 0).then(|| plain(format, if is_unknown { data } else { &data[..length] }))
}

/// Returns the id and the length of the chunk at the start of `rest`; `None` if the id is not text.
fn chunk(rest: &[u8]) -> Option<(&[u8], u32)> {
    let (id, rest) = rest.split_at_checked(4)?;
    let size = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?);
    id.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ').then_some((id, size))
}

/// Returns the format, the length of the data that the header states, and all bytes from the data on.
fn chunks(file: &[u8]) -> Option<(&[u8], u32, &[u8])> {
    let mut rest = file.get(12..)?;
    let mut format = None;
    loop {
        let (id, size) = chunk(rest)?;
        let body = rest.get(8..)?;
        match id {
            b"fmt " => format = Some(body.get(..size as usize)?),
            b"data" => return Some((format?, size, body)),
            _ => {}
        }
        rest = body.get(size as usize + size as usize % 2..)?;
    }
}

/// Returns the description of a format in a length that the decoder accepts: 16 bytes for PCM and floats, 18 bytes for
/// A-law and mu-law. Some programs leave out the length of the extension, or write more bytes. The decoder does not
/// accept A-law and mu-law in the extensible form, in which the format is at byte 24.
fn usual(format: &[u8]) -> Cow<'_, [u8]> {
    if let Some(bits) = padded_bits(format) {
        let format = [&format[..14], &bits.to_le_bytes(), &format[16..]].concat();
        return usual(&format).into_owned().into();
    }
    match (format, format.get(..16)) {
        ([0xfe, 0xff, ..], Some(start)) if let Some(law @ [6 | 7, 0]) = format.get(24..26) => {
            [law, &start[2..], &[0, 0]].concat().into()
        }
        ([1 | 3, 0, ..], Some(start)) if ![16, 18, 40].contains(&format.len()) => start.to_vec().into(),
        ([6 | 7, 0, ..], Some(start)) if format.len() != 18 => [start, &[0, 0]].concat().into(),
        _ => format.into(),
    }
}

/// Returns the number of bits of a PCM sample including its padding; `None` if samples have no padding. For example, 24
/// bits are stored in 4 bytes, or 20 bits in 3 bytes. The decoder may read sample and padding as one number, because
/// the padding is in the low bits.
fn padded_bits(format: &[u8]) -> Option<u16> {
    let number = |at: usize| Some(u16::from_le_bytes([*format.get(at)?, *format.get(at + 1)?]));
    let kind = if number(0)? == 0xfffe { number(24)? } else { number(0)? };
    let (channels, bytes, bits) = (number(2)?, number(12)?, number(14)?);
    let size = bytes.checked_div(channels).filter(|size| (2..=4).contains(size) && size * channels == bytes)?;
    (kind == 1 && bits > 8 && bits < 8 * size).then_some(8 * size)
}

/// Returns a W64 file in the plain form. The chunks of a W64 file have ids of 16 bytes and 64-bit lengths that include
/// the header. Chunks begin at multiples of 8 bytes.
fn of_w64(file: &[u8]) -> Option<Vec<u8>> {
    let (mut at, mut format) = (40, None);
    loop {
        let id = file.get(at..at + 16)?;
        let size = u64::from_le_bytes(file.get(at + 16..at + 24)?.try_into().ok()?);
        let body = file.get(at + 24..)?;
        if id[4..] == W64 && id.starts_with(b"data") {
            // An unknown length becomes 0, because recorders that do not know the length write 0, too.
            return Some(plain(format?, cut(body, size.saturating_sub(24))));
        }
        let size = usize::try_from(size).ok().filter(|size| *size >= 24)?;
        if id[4..] == W64 && id.starts_with(b"fmt ") {
            format = Some(body.get(..size - 24)?);
        }
        at = at.checked_add(size)?.checked_next_multiple_of(8)?;
    }
}

/// Returns the first `size` bytes of `data`. Returns all of `data` if it is shorter or if the size is unknown.
fn cut(data: &[u8], size: u64) -> &[u8] {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    data.get(..size).filter(|data| !data.is_empty()).unwrap_or(data)
}

/// Returns a plain WAV file. If the data is larger than 4 GB, its length is the value that means "to the end".
fn plain(format: &[u8], data: &[u8]) -> Vec<u8> {
    let format = &*usual(format);
    let length = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    let mut file = Vec::with_capacity(28 + format.len() + data.len());
    file.extend(b"RIFF");
    file.extend(length(20 + format.len() + data.len()));
    file.extend(b"WAVEfmt ");
    file.extend(length(format.len()));
    file.extend(format);
    file.extend(b"data");
    file.extend(length(data.len()));
    file.extend(data);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: [u8; 16] = [1, 0, 1, 0, 0x80, 0x3e, 0, 0, 0, 0x7d, 0, 0, 2, 0, 16, 0];
    const DATA: [u8; 6] = [1, 2, 3, 4, 5, 6];

    fn with_length(length: u32, after: &[u8]) -> Vec<u8> {
        let mut file = plain(&FORMAT, &[]);
        file[40..].copy_from_slice(&length.to_le_bytes());
        [&file, after].concat()
    }

    #[test]
    fn unknown_lengths_reach_to_the_end() {
        assert_eq!(repaired(&with_length(0, &DATA)), Some(plain(&FORMAT, &DATA)));
        for length in [u32::MAX, 7] {
            assert_eq!(repaired(&with_length(length, &DATA)), Some(plain(&FORMAT, &DATA)));
        }
        assert_eq!(repaired(&with_length(6, &[&DATA[..], b"LIST"].concat())), Some(plain(&FORMAT, &DATA)));
        for file in
            [plain(&FORMAT, &DATA), with_length(0, b""), with_length(0, b"LIST\x04\0\0\0INFO"), b"RIFF".to_vec()]
        {
            assert_eq!(repaired(&file), None);
        }
    }

    #[test]
    fn descriptions_of_formats_get_their_usual_length() {
        let file = |format: &[u8]| {
            let len = |len: usize| u32::try_from(len).unwrap().to_le_bytes();
            let (of_format, of_data) = (len(format.len()), len(DATA.len()));
            [b"RIFF", &len(42)[..], b"WAVEfmt ", &of_format, format, b"data", &of_data, &DATA].concat()
        };
        let long = [&FORMAT[..], &[2, 0, 7, 7]].concat();
        assert_eq!(repaired(&file(&long)), Some(plain(&FORMAT, &DATA)));
        let law = [&[7], &FORMAT[1..]].concat();
        let described = [&law[..], &[0, 0]].concat();
        assert_eq!(repaired(&file(&law)), Some(plain(&described, &DATA)));
        let guid = [&law[..2], &[0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71]].concat();
        let extensible = [&[0xfe, 0xff], &FORMAT[2..], &[22, 0, 8, 0, 4, 0, 0, 0], &guid].concat();
        assert_eq!(repaired(&file(&extensible)), Some(plain(&described, &DATA)));
        let mut right = file(&described);
        right[4..8].copy_from_slice(&44u32.to_le_bytes());
        assert_eq!(repaired(&right), None);
    }

    #[test]
    fn padding_belongs_to_the_samples() {
        let with = |bytes: u8, bits: u8| [&FORMAT[..12], &[bytes, 0, bits, 0]].concat();
        for (bytes, bits, size) in [(4, 24, 32), (3, 20, 24), (2, 12, 16)] {
            let found = repaired(&plain(&with(bytes, size), &DATA)).is_none();
            let mut file = plain(&with(bytes, size), &DATA);
            file[34] = bits;
            assert_eq!(repaired(&file), Some(plain(&with(bytes, size), &DATA)), "{bits}");
            assert!(found);
        }
    }

    #[test]
    fn forms_of_64_bits() {
        let sizes = [&[0; 8][..], &6u64.to_le_bytes(), &3u64.to_le_bytes(), &[0; 4]].concat();
        for name in [b"RF64", b"BW64"] {
            let head = [&name[..], &[0xff; 4], b"WAVEds64", &28u32.to_le_bytes(), &sizes].concat();
            let file = [&head[..], &with_length(u32::MAX, &DATA)[12..], b"LIST"].concat();
            assert_eq!(repaired(&file), Some(plain(&FORMAT, &DATA)));
            assert!((0..60).all(|end| repaired(&file[..end]).is_none()));
        }
        let id = |name: &[u8; 4], end: &[u8]| [name, end].concat();
        let chunk = |name, body: &[u8]| [&id(name, &W64)[..], &(24 + body.len() as u64).to_le_bytes(), body].concat();
        let file =
            [id(b"riff", &W64_FILE), vec![0; 8], id(b"wave", &W64), chunk(b"fmt ", &FORMAT), chunk(b"data", &DATA)];
        assert_eq!(repaired(&file.concat()), Some(plain(&FORMAT, &DATA)));
        // A recorder that does not know the length.
        let mut unknown = file.concat();
        let at = unknown.len() - DATA.len();
        unknown[at - 8..at].fill(0);
        assert_eq!(repaired(&unknown), Some(plain(&FORMAT, &DATA)));
    }
}
