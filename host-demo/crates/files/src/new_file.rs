//! Writes files atomically: a path has either all of the new contents or all of the old contents.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tempfile::NamedTempFile;

use crate::is_kept;

const BUFFER: usize = 1 << 20;

/// A file that is being written. The bytes go to a temporary file in the same directory, which replaces the old file in
/// [`finish`](Self::finish). Until then, the old file can still be read. Devices and pipes are written directly,
/// because a new file cannot take their place. A symbolic link is kept; the file that it points to is replaced.
pub struct NewFile {
    /// The path as the user gave it, for messages.
    path: PathBuf,
    to: BufWriter<To>,
}

enum To {
    /// The file is written beside its path and then moved there: the temporary file, its entry in [`UNFINISHED`], and
    /// the path.
    Beside(NamedTempFile, Unfinished, PathBuf),
    Through(File),
}

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside(file, ..) => file.as_file().write(bytes),
            Self::Through(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Beside(file, ..) => file.as_file().flush(),
            Self::Through(file) => file.flush(),
        }
    }
}

/// Devices and pipes cannot seek.
impl Seek for To {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Beside(file, ..) => file.as_file().seek(to),
            Self::Through(_) => Err(io::ErrorKind::NotSeekable.into()),
        }
    }
}

impl NewFile {
    /// Starts a file that will appear at `path`, unless this would replace a file that was [read](crate::keep).
    pub fn create(path: &Path) -> Result<Self> {
        ensure!(
            !is_kept(path),
            "{} is the input, which cannot be recovered from the result: give another name",
            path.display()
        );
        Self::replace(path)
    }

    /// Starts a file that will appear at `path`, even if this process has read the file that is there.
    pub fn replace(path: &Path) -> Result<Self> {
        let to = To::open(path).with_context(|| cannot(path))?;
        Ok(Self { path: path.to_owned(), to: BufWriter::with_capacity(BUFFER, to) })
    }

    /// Runs `write`, and adds the file's path to its errors.
    pub fn fill(&mut self, write: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        write(self).with_context(|| cannot(&self.path))
    }

    /// Runs `check` on the temporary file. Devices are not checked.
    fn check(&self, check: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        match self.to.get_ref() {
            To::Beside(file, ..) => check(file.path()),
            To::Through(_) => Ok(()),
        }
    }

    /// Moves the file to its path, after all of its bytes have reached the disk.
    pub fn finish(self) -> Result<()> {
        let Self { path, to } = self;
        let finish = || -> io::Result<()> {
            match to.into_inner().map_err(io::IntoInnerError::into_error)? {
                To::Through(mut file) => file.flush(),
                To::Beside(file, _unfinished, target) => {
                    file.as_file().sync_all()?;
                    file.persist(&target).map_err(|failed| failed.error)?;
                    // Sync the directory, too, so that the name survives a crash; not every file system supports
                    // that.
                    if let Some(directory) = target.parent() {
                        let _ = File::open(directory).and_then(|directory| directory.sync_all());
                    }
                    Ok(())
                }
            }
        };
        finish().with_context(|| cannot(&path))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Seek for NewFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.to.seek(to)
    }
}

/// Writes a whole file. If `write` fails, nothing changes at `path`.
pub fn write_file(path: &Path, write: impl FnOnce(&mut NewFile) -> Result<()>) -> Result<()> {
    write_checked(path, write, |_| Ok(()))
}

/// Writes several files. If `write` fails, none of the paths changes.
pub fn write_files(mut files: Vec<NewFile>, write: impl FnOnce(&mut [NewFile]) -> Result<()>) -> Result<()> {
    match &mut files[..] {
        [file] => file.fill(|file| write(std::slice::from_mut(file)))?,
        files => write(files)?,
    }
    files.into_iter().try_for_each(NewFile::finish)
}

/// Like [`write_file`], but `path` changes only if `check` succeeds. `check` is called with the path of the temporary
/// file.
pub fn write_checked(
    path: &Path,
    write: impl FnOnce(&mut NewFile) -> Result<()>,
    check: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let mut file = NewFile::create(path)?;
    file.fill(|file| write(file).and_then(|()| Ok(file.flush()?)))?;
    file.check(check)?;
    file.finish()
}

fn cannot(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

impl To {
    fn open(path: &Path) -> Result<Self> {
        let found = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        if found.as_ref().is_some_and(Metadata::is_dir) {
            bail!("this is a directory; give the name of a file in it");
        }
        // Write files in /dev and /proc directly, because they may be regular files (`/dev/stdout`) that another
        // process has open. /dev/shm has ordinary files.
        let system = ["/dev", "/proc"].iter().any(|start| path.starts_with(start)) && !path.starts_with("/dev/shm");
        if system || found.as_ref().is_some_and(|found| !found.is_file()) {
            return Ok(Self::Through(fs::OpenOptions::new().write(true).open(path)?));
        }
        if found.as_ref().is_some_and(|found| found.permissions().readonly()) {
            bail!("the file is read-only; change its permissions or give another name");
        }
        let target = followed(path)?;
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(fs::Permissions::from_mode(0o666)); // the system subtracts the umask
        }
        builder.prefix(PREFIX);
        let (file, unfinished) = Unfinished::create(|| abandoned::create(directory, || builder.tempfile_in(directory)))
            .map_err(|error| match error.kind() {
                // The system's error names the temporary file; name the directory instead.
                io::ErrorKind::NotFound => {
                    anyhow!("the directory {} does not exist; create it first", directory.display())
                }
                kind => io::Error::from(kind).into(),
            })?;
        if let Some(old) = found {
            file.as_file().set_permissions(old.permissions())?;
        }
        Ok(Self::Beside(file, unfinished, target))
    }
}

/// Start of the names of temporary files.
const PREFIX: &str = ".arenite-";

/// Removes temporary files of processes that were killed. A process keeps its temporary file locked as long as it
/// lives, so the owner of a file that can be locked is dead.
#[cfg(unix)]
mod abandoned {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    /// Creates a file with `create`, locks it, and removes abandoned files in the same directory. The directory is
    /// locked during the call, because otherwise another process could take the new file for an abandoned file before
    /// the new file is locked.
    pub fn create(directory: &Path, create: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<NamedTempFile> {
        let opened = File::open(directory);
        let has_lock = opened.as_ref().is_ok_and(|directory| {
            (0..100).any(|_| {
                let is_ours = directory.try_lock().is_ok();
                if !is_ours {
                    sleep(Duration::from_millis(10));
                }
                is_ours
            })
        });
        let file = create()?;
        // Without support for locks, abandoned files stay.
        if file.as_file().try_lock().is_ok() && has_lock {
            remove(directory);
        }
        Ok(file)
    }

    fn remove(directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let ours = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let is_ours =
                ours.is_some_and(|end| end.len() == 6 && end.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            if File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(not(unix))]
mod abandoned {
    use super::*;

    pub fn create(_: &Path, create: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<NamedTempFile> {
        create()
    }
}

/// Follows symbolic links at the end of a path, even if the last one points to nothing (`canonicalize` refuses that).
/// The number of links is limited because links may form a circle.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(link) => path = path.parent().unwrap_or(Path::new("")).join(link),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// A function that takes a clean-up function and registers it. Signals then call the clean-up function before they end
/// the process.
static REGISTER: OnceLock<Register> = OnceLock::new();

/// Makes the program's signal handlers call a function.
type Register = fn(fn());

/// Sets the function that is called before a file is created. The function's argument removes all unfinished files; the
/// program's signal handlers should call this argument before they end the process. Otherwise, a killed process leaves
/// temporary files.
pub fn clean_up_on_signals(register: fn(fn())) {
    let _ = REGISTER.set(register);
}

/// Temporary files to be removed if the process ends early.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// An entry of [`UNFINISHED`].
struct Unfinished(PathBuf);

impl Unfinished {
    /// Creates a temporary file and its entry in the list. The list is locked during the call, because otherwise a
    /// signal between the creation of the file and of the entry would leave the file behind.
    fn create(create: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<(NamedTempFile, Self)> {
        if let Some(register) = REGISTER.get() {
            register(abandon_all);
        }
        let mut files = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        let file = create()?;
        files.push(file.path().to_owned());
        let entry = Self(file.path().to_owned());
        Ok((file, entry))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Ok(mut files) = UNFINISHED.lock() {
            files.retain(|file| *file != self.0);
        }
    }
}

/// Removes all temporary files, because the process is about to end. The list stays locked, so that no further file is
/// created.
fn abandon_all() {
    let files = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    for file in files.iter() {
        let _ = fs::remove_file(file);
    }
    std::mem::forget(files);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn files_of_killed_processes_are_removed_and_those_of_running_ones_stay() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        // `killed` has a name as temporary files have it. The names of the two other files are only similar, so that
        // these files must stay.
        let [killed, other, long] = [".arenite-aB3dE9", ".arenite-x", ".arenite-backup1"].map(at);
        for path in [&killed, &other, &long] {
            fs::write(path, "half").unwrap();
        }
        let mut first = NewFile::create(&at("a")).unwrap();
        assert!(!killed.exists() && other.exists() && long.exists());
        // A file that is still being written is not abandoned.
        let second = NewFile::create(&at("b")).unwrap();
        first.write_all(b"whole").unwrap();
        first.finish().unwrap();
        second.finish().unwrap();
        assert_eq!(
            (fs::read(at("a")).unwrap(), fs::read_dir(directory.path()).unwrap().count()),
            (b"whole".to_vec(), 4)
        );
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    #[allow(clippy::print_stderr)] // for a test that cannot run
    fn in_shared_memory_are_files_as_elsewhere() {
        let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("SKIP: there is no /dev/shm here");
            return;
        };
        let path = directory.path().join("file");
        for text in [b"one", b"two"] {
            write_file(&path, |out| Ok(out.write_all(text)?)).unwrap();
            assert!(write_file(&path, |_| bail!("no")).is_err());
            assert_eq!(fs::read(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write_file(&path, |out| Ok(out.write_all(b"one")?)).unwrap();
        assert!(write_file(&path, |out| out.write_all(b"tw").map_err(Into::into).and_then(|()| bail!("no"))).is_err());
        let mut dropped = NewFile::create(&path).unwrap();
        dropped.write_all(&[0; 2 * BUFFER]).unwrap();
        assert_eq!(UNFINISHED.lock().unwrap().iter().filter(|file| file.starts_with(directory.path())).count(), 1);
        drop(dropped);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(names(directory.path()), ["file"]);
        assert!(!UNFINISHED.lock().unwrap().iter().any(|file| file.starts_with(directory.path())));
        assert!(NewFile::create(directory.path()).is_err());
        assert!(NewFile::create(&directory.path().join("no/file")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("other")).unwrap();
        fs::write(at("other/file"), "old").unwrap();
        fs::set_permissions(at("other/file"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("other/file", at("link")).unwrap();
        symlink("link", at("second")).unwrap();
        symlink("other/new", at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        for link in ["second", "dangling"] {
            write_file(&at(link), |out| Ok(out.write_all(b"new")?)).unwrap();
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink());
            assert_eq!(fs::read(at(link)).unwrap(), b"new");
        }
        assert_eq!(fs::metadata(at("other/file")).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(&at("other")), ["file", "new"]);
        assert!(NewFile::create(&at("circle")).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn devices_are_written_to() {
        use std::os::unix::fs::FileTypeExt;

        write_file(Path::new("/dev/null"), |out| Ok(out.write_all(b"gone")?)).unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let full = write_file(Path::new("/dev/full"), |out| Ok(out.write_all(b"lost")?));
        assert!(format!("{:#}", full.unwrap_err()).starts_with("cannot write /dev/full: No space left"));
    }
}
