//! Identifiers of clients, which are computed from their addresses and a key. If files on disk belong to clients, the
//! key is stored beside the files, so that a client finds its own files after a restart.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use arenite_run::service::by_chance;

/// Name of the file with the key.
pub const KEY_FILE: &str = "client.key";

/// Computes identifiers of clients.
pub struct ClientKey([u8; 16]);

impl ClientKey {
    /// Makes a key for this process.
    pub fn random() -> Self {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&by_chance().to_le_bytes());
        key[8..].copy_from_slice(&by_chance().to_le_bytes());
        Self(key)
    }

    /// Returns the key in the file `client.key` of a folder. The first call creates the file.
    pub fn kept_in(folder: &Path) -> Result<Self> {
        let path = folder.join(KEY_FILE);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let key = <[u8; 16]>::try_from(&bytes[..]);
                ensure!(key.is_ok(), "{} is not a key of arenite: remove it", path.display());
                Ok(Self(key?))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = Self::random();
                arenite_files::write_file(&path, |file| Ok(std::io::Write::write_all(file, &key.0)?))?;
                arenite_files::keep_private(&path, 0o600)?;
                Ok(key)
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Returns the identifier of a client.
    pub fn id(&self, client: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0, client).hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::ClientKey;

    #[test]
    fn a_kept_key_gives_the_same_identifiers() {
        let folder = tempfile::tempdir().unwrap();
        let key = ClientKey::kept_in(folder.path()).unwrap();
        assert_eq!(key.id("a"), ClientKey::kept_in(folder.path()).unwrap().id("a"));
        assert_ne!(key.id("a"), key.id("b"));
        assert_ne!(key.id("a"), ClientKey::random().id("a"));
        std::fs::write(folder.path().join("client.key"), "short").unwrap();
        assert!(ClientKey::kept_in(folder.path()).is_err());
    }
}
