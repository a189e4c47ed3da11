//! Downloads a file: resumes an interrupted download, checks the file, and moves it into the cache when it is complete.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ring::digest;

use super::cache::Repository;
use super::client::{Client, Facts, Reply, is_plain};
use crate::Progress;
use arenite_files::Bytes;

/// Maximum number of consecutive attempts without progress.
const MOST_FAILURES: u32 = 5;

/// A file on a server.
pub struct Remote<'r> {
    pub url: &'r str,
    /// The repository on the hub; `None` for a plain address.
    pub repository: Option<&'r str>,
    /// The file's name, for messages.
    pub name: &'r str,
}

/// A file in the cache.
pub struct Fetched {
    pub blob: PathBuf,
    pub commit: Option<String>,
}

/// Fetches a file into the blobs of `cache`, under the hub's name for its contents.
pub fn fetch(client: &Client, remote: &Remote<'_>, cache: &Repository, progress: &dyn Progress) -> Result<Fetched> {
    let reply = client.first(remote.url)?;
    if reply.status != 200 {
        return Err(remote.refused(client, &reply));
    }
    ensure!(!reply.is_page, "{} is a web page, and not a model: give the address of the file", remote.url);
    let facts = reply.facts.clone();
    let (blobs, blob) = (cache.blobs(), blob_name(&facts, remote.url));
    let unfinished = blobs.join(format!("{blob}.incomplete"));
    let cannot = || format!("cannot write {}", blobs.join(&blob).display());
    let fetched =
        || Fetched { blob: blobs.join(&blob), commit: facts.commit.clone().filter(|commit| is_plain(commit)) };
    let is_whole =
        || fs::metadata(blobs.join(&blob)).is_ok_and(|found| facts.size.is_none_or(|size| size == found.len()));
    if is_whole() {
        return Ok(fetched());
    }
    fs::create_dir_all(&blobs).with_context(cannot)?;
    let name = remote.name;
    let lock = cache.lock(&blob, || log::warn!("{name}: another process fetches this file; waiting for it"));
    let _lock = lock.with_context(cannot)?;
    if is_whole() {
        return Ok(fetched());
    }
    let mut part =
        File::options().read(true).write(true).create(true).truncate(false).open(&unfinished).with_context(cannot)?;
    progress.begin(name, facts.size);
    let transferred = Transfer { client, remote, facts: &facts, part: &mut part, progress }.run(reply);
    progress.end();
    transferred?;
    if let Err(error) = check(&mut part, &facts, name) {
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    part.sync_all().with_context(cannot)?;
    fs::rename(&unfinished, blobs.join(&blob)).with_context(cannot)?;
    Ok(fetched())
}

impl Remote<'_> {
    fn refused(&self, client: &Client, reply: &Reply) -> anyhow::Error {
        // The error names the repository, because the hub refuses access to a whole repository. Status 404 is about the
        // file, because the hub has listed the repository.
        client.refused(self.repository.filter(|_| reply.status != 404).unwrap_or(self.name), reply)
    }
}

/// Returns the name of the contents in the cache. If the server is not a hub, the name is a hash of address and ETag,
/// because the ETag then distinguishes only the versions of one address.
fn blob_name(facts: &Facts, url: &str) -> String {
    match &facts.etag {
        Some(etag) if facts.is_hub() && is_plain(etag) && etag.len() <= 128 => etag.clone(),
        etag => sha256(&format!("{url}\n{}", etag.as_deref().unwrap_or_default())),
    }
}

/// The SHA-256 of a text, in hexadecimal digits.
pub fn sha256(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A download in progress.
struct Transfer<'t> {
    client: &'t Client,
    remote: &'t Remote<'t>,
    facts: &'t Facts,
    part: &'t mut File,
    progress: &'t dyn Progress,
}

impl Transfer<'_> {
    /// Writes the whole file. Resumes the download if the connection is closed early.
    fn run(&mut self, first: Reply) -> Result<()> {
        let mut have = self.part.metadata()?.len();
        let mut reply = Some(first).filter(|_| have == 0);
        let (mut failures, mut most) = (0, have);
        loop {
            let next = match reply.take() {
                Some(reply) => Ok(reply),
                None => self.client.get(self.remote.url, have),
            };
            let broken = match next {
                Ok(reply) => match self.take(reply, &mut have)? {
                    None => return Ok(()),
                    Some(why) => why,
                },
                Err(error) => format!("{error:#}"),
            };
            (failures, most) = if have > most { (1, have) } else { (failures + 1, most) };
            if failures > MOST_FAILURES {
                let whole = self.facts.size.map_or(String::new(), |size| format!(" of {}", Bytes(size as usize)));
                bail!(
                    "{}: the connection broke off ({broken}) with {}{whole} here: the same command continues from there",
                    self.remote.name,
                    Bytes(have as usize)
                );
            }
            thread::sleep(Duration::from_millis(100 << failures));
        }
    }

    /// Writes the body of an answer. If the file is still incomplete, returns the reason for another attempt.
    fn take(&mut self, mut reply: Reply, have: &mut u64) -> Result<Option<String>> {
        match reply.status {
            206 if reply.start == *have => {}
            200 => *have = 0,
            // Status 416 means that the range cannot be satisfied: either the file is already complete, or the
            // downloaded part does not belong to this file.
            416 if self.facts.size == Some(*have) => return Ok(None),
            416 | 206 => {
                *have = 0;
                self.part.set_len(0)?;
                return Ok(Some(format!("answer {}", reply.status)));
            }
            429 | 500..=599 => return Ok(Some(format!("answer {}", reply.status))),
            _ => return Err(self.remote.refused(self.client, &reply)),
        }
        ensure!(reply.facts.etag == self.facts.etag, "{} changed on the server: try again", self.remote.name);
        self.part.set_len(*have)?;
        self.part.seek(SeekFrom::Start(*have))?;
        self.progress.position(*have);
        let mut reader = reply.body.as_reader();
        let mut buffer = vec![0; 1 << 18];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => return Ok(Some(error.to_string())),
            };
            self.part
                .write_all(&buffer[..count])
                .with_context(|| format!("cannot write {} to the cache", self.remote.name))?;
            *have += count as u64;
            self.progress.position(*have);
            // The server sends more bytes than the file has, perhaps without end. Reading stops here, and `check` will
            // report the wrong size.
            if self.facts.size.is_some_and(|size| *have > size) {
                return Ok(None);
            }
        }
        match self.facts.size {
            Some(size) if *have < size => Ok(Some("the answer ended early".to_owned())),
            _ => Ok(None),
        }
    }
}

/// Checks the size and the hash of a file.
fn check(part: &mut File, facts: &Facts, name: &str) -> Result<()> {
    let len = part.metadata()?.len();
    if let Some(size) = facts.size {
        ensure!(len == size, "{name} has {len} bytes and should have {size}: nothing was kept; fetch it again");
    }
    let Some(want) = facts.etag.as_deref().filter(|_| facts.is_hub()) else { return Ok(()) };
    let is_hash = want.bytes().all(|digit| digit.is_ascii_hexdigit());
    let (kind, mut hash) = match want.len() {
        64 if is_hash => ("SHA-256", digest::Context::new(&digest::SHA256)),
        40 if is_hash => ("Git hash", digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
        _ => return Ok(()),
    };
    if want.len() == 40 {
        hash.update(format!("blob {len}\0").as_bytes());
    }
    part.seek(SeekFrom::Start(0))?;
    let mut buffer = vec![0; 1 << 18];
    loop {
        match part.read(&mut buffer)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    let found = hex(hash.finish().as_ref());
    ensure!(
        found.eq_ignore_ascii_case(want),
        "{name} is damaged: its {kind} is {found}, and the hub says {want}; nothing was kept, fetch it again"
    );
    Ok(())
}
