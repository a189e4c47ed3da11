//! The cache on disk (`--cache-disk`): conversations that the cache in memory evicts, or that nobody continued for a
//! while. They survive a restart. Like a context in memory, a file belongs to the client of its conversation.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use arenite::TokenId;
use arenite_files::keep_private;

use super::Scheduler;
use crate::session_file::{Head, head_of, parsed, store};
use arenite_text::shared;

/// Conversations with fewer tokens than this are not stored. A stored conversation is read only if it has at least this
/// many more tokens of a prompt than the cache in memory.
const LEAST: usize = 64;
/// Time without requests after which conversations are stored.
pub const QUIET: Duration = Duration::from_secs(1);
/// The ending of the files' names.
const ENDING: &str = "conversation";

/// The files in a folder, with a limit for their bytes.
pub struct DiskCache {
    folder: PathBuf,
    limit: u64,
    entries: Vec<Entry>,
    /// Writes files in another thread, so that answers do not wait for the disk. While one file is written and a second
    /// one waits, further files are dropped.
    writer: SyncSender<(PathBuf, Head, Vec<u8>)>,
    thread: JoinHandle<()>,
    /// Number of the next file.
    next: u64,
}

/// A file.
struct Entry {
    path: PathBuf,
    head: Head,
    bytes: u64,
}

impl DiskCache {
    /// Opens the cache in a folder; creates the folder if it does not exist. Files that cannot be read are removed.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read.
    pub fn open(folder: &Path, limit: u64) -> Result<Self> {
        let failed = || format!("cannot use {} as a cache", folder.display());
        std::fs::create_dir_all(folder).and_then(|()| keep_private(folder, 0o700)).with_context(failed)?;
        let mut entries = Vec::new();
        for file in std::fs::read_dir(folder).with_context(failed)? {
            let path = file.with_context(failed)?.path();
            if path.extension().is_none_or(|ending| ending != ENDING) {
                continue;
            }
            match (head_of(&path), std::fs::metadata(&path)) {
                (Ok(head), Ok(file)) => entries.push((file.modified().ok(), Entry { path, head, bytes: file.len() })),
                _ => _ = std::fs::remove_file(&path),
            }
        }
        entries.sort_by_key(|(modified, _)| *modified);
        let (writer, files) = sync_channel::<(PathBuf, Head, Vec<u8>)>(1);
        let write = move || {
            // Errors are ignored, because a file that was not written is found missing when it is to be read, and is
            // then forgotten.
            files.into_iter().for_each(|(path, head, snapshot)| _ = store(&path, &head, &snapshot));
        };
        let thread = std::thread::Builder::new().name("cache on disk".into()).spawn(write)?;
        let entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
        let mut cache =
            Self { folder: folder.to_owned(), limit, entries, writer, thread, next: crate::service::by_chance() };
        cache.shrink(0);
        Ok(cache)
    }

    /// Finds the file whose conversation shares the longest prefix with `ids`. Returns its index and the length of the
    /// prefix.
    fn best(&self, ids: &[TokenId], lora: &[(usize, f32)], scope: Option<u64>) -> Option<(usize, usize)> {
        let alike = self.entries.iter().enumerate().filter(|(_, entry)| entry.head.is_of(lora, scope));
        alike.map(|(at, entry)| (at, shared(&entry.head.tokens, ids))).max_by_key(|(_, shared)| *shared)
    }

    /// Removes the oldest files until there is room for `more` bytes.
    fn shrink(&mut self, more: u64) {
        let mut sum: u64 = self.entries.iter().map(|entry| entry.bytes).sum();
        while sum.saturating_add(more) > self.limit && !self.entries.is_empty() {
            let oldest = self.entries.remove(0);
            sum -= oldest.bytes;
            let _ = std::fs::remove_file(oldest.path);
        }
    }

    /// Stores a conversation. It replaces the stored conversations that it continues.
    fn add(&mut self, head: Head, snapshot: Vec<u8>) {
        let bytes = snapshot.len() as u64;
        let is_contained =
            |entry: &Entry| entry.head.is_of(&head.lora, head.scope) && head.tokens.starts_with(&entry.head.tokens);
        for entry in self.entries.extract_if(.., |entry| is_contained(entry)) {
            let _ = std::fs::remove_file(entry.path);
        }
        if bytes > self.limit {
            return;
        }
        self.shrink(bytes);
        self.next = self.next.wrapping_add(1);
        let path = self.folder.join(format!("{:016x}.{ENDING}", self.next));
        let kept = Head { tokens: head.tokens.clone(), lora: head.lora.clone(), scope: head.scope, ..Head::default() };
        if self.writer.try_send((path.clone(), head, snapshot)).is_ok() {
            self.entries.push(Entry { path, head: kept, bytes });
        }
    }

    /// Waits until all files are written.
    fn close(self) {
        drop(self.writer);
        let _ = self.thread.join();
    }
}

impl Head {
    /// Returns true if a request with these adapters, from the client `scope`, may continue the conversation in this
    /// file.
    fn is_of(&self, lora: &[(usize, f32)], scope: Option<u64>) -> bool {
        self.lora == lora && self.scope == scope
    }
}

impl Scheduler<'_, '_, '_> {
    /// Reads a conversation from disk into the cache in memory, if it has more tokens of a prompt than all
    /// conversations in memory.
    pub(super) fn fetch(&mut self, ids: &[TokenId], lora: &[(usize, f32)], scope: Option<u64>) {
        let known = self.cache.best(ids, lora, scope).map_or(0, |(_, shared)| shared);
        let Some(disk) = &mut self.disk else { return };
        let Some((at, _)) = disk.best(ids, lora, scope).filter(|(_, shared)| *shared >= known + LEAST) else { return };
        let entry = disk.entries.remove(at);
        let mut read = || {
            let (head, snapshot) = parsed(&std::fs::read(&entry.path)?)?;
            let context = self.restored(&head.lora, &snapshot)?;
            anyhow::Ok((head, context))
        };
        match read() {
            Ok((head, context)) => {
                let tokens = head.tokens[..context.position().min(head.tokens.len())].to_vec();
                self.clock += 1;
                if let Some(context) = self.cache.keep(context, scope, tokens, head.lora, self.clock) {
                    self.engine.close(context);
                }
                // Move the file to the end of the list, because it is now the file that was used last.
                if let Some(disk) = &mut self.disk {
                    disk.entries.push(entry);
                }
            }
            Err(_) => _ = std::fs::remove_file(&entry.path),
        }
    }

    /// Stores the contexts in memory that are not on disk.
    pub(super) fn store_kept(&mut self) {
        while self.disk.is_some() {
            let Some((context, head)) = self.cache.unstored(LEAST) else { return };
            let mut snapshot = vec![0; self.engine.snapshot_bytes(context)];
            if self.engine.save(context, &mut snapshot).is_ok()
                && let Some(disk) = &mut self.disk
                && disk.best(&head.tokens, &head.lora, head.scope).is_none_or(|(_, shared)| shared < head.tokens.len())
            {
                let context = self.engine.plan().options.context;
                disk.add(Head { context, ..head }, snapshot);
            }
        }
    }

    /// Uses a cache on disk.
    pub fn use_disk(&mut self, disk: DiskCache) {
        self.disk = Some(disk);
    }

    /// Stores all conversations that are not on disk yet, and waits until they are written.
    pub fn close_disk(&mut self) {
        self.store_kept();
        self.disk.take().into_iter().for_each(DiskCache::close);
    }
}
