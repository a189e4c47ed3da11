//! Stores sessions on disk (`--session FILE`): the tokens of a context, its snapshot, and the messages of a chat.
//!
//! A file is the line `MAGIC`, the length of a JSON object (u64, little-endian), the object's CRC-32 (u32), the object,
//! and the snapshot of [`Engine::save`]. The snapshot identifies the model, the adapters and the type of the KV cache,
//! and has a separate checksum.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use arenite::{Context as Conversation, Engine, Session, TokenId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::runtime::RunOptions;
use arenite_files::{NewFile, write_file};

const NO_SESSION: &str = "this is not a session of arenite";
const MAGIC: &[u8] = b"arenite session 2\n";

/// A session on disk.
pub struct SessionFile {
    path: PathBuf,
    /// The file's contents; `None` if it does not exist yet.
    loaded: Option<(Head, Vec<u8>)>,
}

/// The JSON object in a session file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Head {
    /// Size of the context in positions.
    pub context: usize,
    pub tokens: Vec<TokenId>,
    /// Number of tokens of the prompt, in a file of a slot.
    #[serde(default)]
    pub prompt: usize,
    /// The adapters and their scales, in a file of a slot.
    #[serde(default)]
    pub lora: Vec<(usize, f32)>,
    /// The client, in a file of the cache on disk.
    #[serde(default)]
    pub scope: Option<u64>,
    /// The messages of a chat.
    #[serde(default)]
    pub messages: Vec<Value>,
    /// The text of `tokens`. It is only known if they end with a complete answer.
    #[serde(default)]
    pub text: Option<String>,
}

impl SessionFile {
    /// Reads the file, if it exists and is not empty. Returns an error if the file cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = match fs::read(path) {
            Ok(bytes) => Some(bytes).filter(|bytes| !bytes.is_empty()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let wrong = |error| anyhow!("{}: {error}: give another file, or remove it", path.display());
        let loaded = bytes.map(|bytes| parsed(&bytes).map_err(wrong)).transpose()?;
        // Create the file now, so that an error in writing it is found before the computation.
        NewFile::create(path)?;
        Ok(Self { path: path.to_owned(), loaded })
    }

    /// If the user has not chosen a context size, takes the size that the session file has.
    pub fn sized(this: Option<&Self>, options: RunOptions) -> RunOptions {
        let own = this.and_then(|file| file.loaded.as_ref()).map(|(head, _)| head.context);
        RunOptions { context: options.context.or(own), ..options }
    }

    /// Restores a context from the snapshot. Returns the JSON object.
    pub fn restore(&mut self, engine: &mut Engine<'_, '_>, context: &mut Conversation) -> Result<Head> {
        let Some((head, snapshot)) = self.loaded.take() else { return Ok(Head::default()) };
        engine.restore(context, &snapshot).with_context(|| self.path.display().to_string())?;
        if context.position() != head.tokens.len() {
            return Err(anyhow!("the tokens in {} do not match its snapshot: remove the file", self.path.display()));
        }
        Ok(head)
    }

    /// Restores the context of `session` from the snapshot. Returns the JSON object.
    pub fn restore_session(this: Option<&mut Self>, session: &mut Session<'_, '_>) -> Result<Head> {
        let (engine, context) = session.parts();
        this.map_or_else(|| Ok(Head::default()), |file| file.restore(engine, context))
    }

    /// Writes a snapshot of a context, and `head`. The tokens of `head` must start with the tokens of the context; any
    /// further tokens are dropped.
    pub fn write(&self, engine: &mut Engine<'_, '_>, context: &Conversation, mut head: Head) -> Result<()> {
        head.context = engine.plan().options.context;
        head.tokens.truncate(context.position());
        let mut snapshot = vec![0; engine.snapshot_bytes(context)];
        engine.save(context, &mut snapshot)?;
        store(&self.path, &head, &snapshot)
    }
}

/// Writes a session file.
pub fn store(path: &Path, head: &Head, snapshot: &[u8]) -> Result<()> {
    let json = serde_json::to_vec(head)?;
    write_file(path, |file| {
        file.write_all(MAGIC)?;
        file.write_all(&(json.len() as u64).to_le_bytes())?;
        file.write_all(&rawzip::crc32(&json).to_le_bytes())?;
        file.write_all(&json)?;
        Ok(file.write_all(snapshot)?)
    })
}

/// Reads the JSON object of a session file without its snapshot.
pub fn head_of(path: &Path) -> Result<Head> {
    /// Maximum size of the object.
    const MOST: u64 = 64 << 20;
    let mut file = fs::File::open(path)?;
    let mut start = vec![0; MAGIC.len() + 12];
    file.read_exact(&mut start)?;
    let len = start[MAGIC.len()..].first_chunk().map_or(u64::MAX, |len| u64::from_le_bytes(*len));
    ensure!(len < MOST, "the session is damaged");
    file.take(len).read_to_end(&mut start)?;
    Ok(parsed(&start)?.0)
}

/// Parses the bytes of a session file.
pub fn parsed(bytes: &[u8]) -> Result<(Head, Vec<u8>)> {
    let (version, rest) = bytes.split_at_checked(MAGIC.len()).context(NO_SESSION)?;
    ensure!(version.starts_with(b"arenite session "), NO_SESSION);
    ensure!(version == MAGIC, "this is a session of another version of arenite");
    let head = || {
        let (len, rest) = rest.split_first_chunk()?;
        let (sum, rest) = rest.split_first_chunk()?;
        let (json, snapshot) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        let head = serde_json::from_slice(json).ok().filter(|_| rawzip::crc32(json) == u32::from_le_bytes(*sum))?;
        Some((head, snapshot.to_vec()))
    };
    head().context("the session is damaged")
}
