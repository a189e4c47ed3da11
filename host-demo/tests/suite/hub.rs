//! `arenite pull`, `list`, `rm` and `-hf` with a small server in place of the hub. The server can break off answers,
//! send wrong hashes and redirect.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::common::committed;

/// Faults and other behaviour of the server.
#[derive(Clone, Copy, Default)]
struct Manners {
    /// Number of answers that break off in the middle.
    broken: usize,
    /// The server gives the hash of another file.
    lies: bool,
    /// Requests for files are redirected to another address.
    redirects: bool,
    /// Status of every answer, with the name of the error.
    refuses: Option<(u16, &'static str)>,
    /// Lists are not refused.
    lists: bool,
    /// Number of requests that get status 503 before any request gets a different answer.
    busy: usize,
    /// The hash is Git's, as the hub gives for small files.
    git: bool,
    /// Bodies of files have no length and do not end.
    endless: bool,
    /// True if the test's server ignores requests for a part of a file and always sends the whole file.
    whole: bool,
}

struct Hub {
    address: String,
    /// The first lines of the requests so far. `token` is added to a line if the request had an access token.
    seen: Arc<Mutex<Vec<String>>>,
    home: tempfile::TempDir,
}

/// The hash of a file, computed by another program.
fn hash(command: &[&str], bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    fs::write(&path, bytes).unwrap();
    let output = Command::new(command[0]).args(&command[1..]).arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

fn sha256(bytes: &[u8]) -> String {
    hash(&["sha256sum"], bytes)
}

type Files = Vec<(&'static str, Vec<u8>)>;

impl Hub {
    fn new(files: Files, manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let hash_of = |bytes: &[u8]| if manners.git { hash(&["git", "hash-object"], bytes) } else { sha256(bytes) };
        let files: HashMap<String, (Vec<u8>, String)> =
            files.into_iter().map(|(name, bytes)| (name.to_owned(), (bytes.clone(), hash_of(&bytes)))).collect();
        let left = [manners.broken, manners.busy].map(AtomicUsize::new);
        let (files, told, left) = (Arc::new(files), seen.clone(), Arc::new(left));
        let own = address.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (files, told, left, own) = (files.clone(), told.clone(), left.clone(), own.clone());
                std::thread::spawn(move || {
                    let _ = serve(socket.unwrap(), &files, manners, &told, &left, &own);
                });
            }
        });
        Self { address, seen, home: tempfile::tempdir().unwrap() }
    }

    fn run_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_arenite"));
        for name in [
            "HF_TOKEN",
            "HUGGING_FACE_HUB_TOKEN",
            "LLAMA_CACHE",
            "HF_HUB_CACHE",
            "HUGGINGFACE_HUB_CACHE",
            "HF_HUB_OFFLINE",
            "TRANSFORMERS_OFFLINE",
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
        ] {
            command.env_remove(name);
        }
        command.args(args).env("HF_ENDPOINT", &self.address).env("HF_HOME", self.home.path());
        command.envs(environment.iter().copied()).stdin(std::process::Stdio::null()).output().unwrap()
    }

    fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, &[])
    }

    /// Pulls a model and returns the printed path. The command must succeed.
    fn pull(&self, name: &str) -> PathBuf {
        let output = self.run(&["pull", name]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    }

    /// The only line of a command that fails.
    #[track_caller]
    fn error(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let lines: Vec<_> = stderr.lines().filter(|line| !line.starts_with("fetching ")).collect();
        assert_eq!(lines.len(), 1, "{stderr}");
        lines[0].to_owned()
    }

    fn repository(&self) -> PathBuf {
        self.home.path().join("hub/models--me--small")
    }

    fn blobs(&self) -> Vec<String> {
        let all = fs::read_dir(self.repository().join("blobs")).into_iter().flatten();
        let mut names: Vec<String> = all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn seen(&self, words: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|line| line.contains(words)).count()
    }
}

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Answers one request.
fn serve(
    mut socket: TcpStream,
    files: &HashMap<String, (Vec<u8>, String)>,
    manners: Manners,
    told: &Mutex<Vec<String>>,
    [broken, busy]: &[AtomicUsize; 2],
    own: &str,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    let (mut request, mut range, mut token) = (String::new(), None, "");
    reader.read_line(&mut request)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(from) = line.strip_prefix("range: bytes=") {
            range = from.trim().trim_end_matches('-').parse::<usize>().ok().filter(|_| !manners.whole);
        }
        if line.starts_with("authorization: bearer secret") {
            token = " token";
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    told.lock().unwrap().push(format!("{path}{token} {}", range.map_or(String::new(), |from| format!("from {from}"))));
    let mut answer = |status: &str, headers: &str, body: &[u8], cut: bool| -> std::io::Result<()> {
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        socket.write_all(head.as_bytes())?;
        socket.write_all(if cut { &body[..body.len() / 2] } else { body })
    };
    let one_of =
        |left: &AtomicUsize| left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if one_of(busy).is_ok() {
        return answer("503 Busy", "", b"", false);
    }
    if let Some((status, error)) = manners.refuses.filter(|_| !(manners.lists && path.starts_with("/api/"))) {
        return answer(&format!("{status} No"), &format!("X-Error-Code: {error}\r\n"), b"{}", false);
    }
    if path.starts_with("/api/models/me/small") {
        let mut names: Vec<_> = files.keys().collect();
        names.sort();
        let names: Vec<Value> = names.iter().map(|name| json!({ "rfilename": name })).collect();
        return answer("200 OK", "", json!({ "sha": COMMIT, "siblings": names }).to_string().as_bytes(), false);
    }
    if path == "/page.gguf" {
        return answer("200 OK", "Content-Type: text/html; charset=utf-8\r\n", b"<html>", false);
    }
    let files_at =
        [&format!("/me/small/resolve/{COMMIT}/"), "/elsewhere/", "/else/where/", "/else-where/", "/get?file="];
    let file = files_at.iter().find_map(|start| path.strip_prefix(*start));
    let Some((bytes, hash)) = file.and_then(|file| files.get(file)) else {
        return answer("404 Not Found", "X-Error-Code: RepoNotFound\r\n", b"Repository not found", false);
    };
    let hash = if manners.lies { &hash.chars().rev().collect() } else { hash };
    let linked = match manners.git {
        true => format!("X-Repo-Commit: {COMMIT}\r\nETag: W/\"{hash}\"\r\n"),
        false => {
            format!("X-Repo-Commit: {COMMIT}\r\nX-Linked-Etag: \"{hash}\"\r\nX-Linked-Size: {}\r\n", bytes.len())
        }
    };
    if manners.redirects && path.starts_with("/me/") {
        // Another name for the same machine is another host.
        let host = own.replace("127.0.0.1", "localhost");
        let location = format!("{linked}Location: {host}/elsewhere/{}\r\n", file.unwrap_or_default());
        return answer("302 Found", &location, b"", false);
    }
    // Only the hub's own header is the hash of the contents. Other servers may send an ETag that looks like a hash, or
    // even `X-Linked-Etag`, which must be ignored.
    let other = ["ETag", "X-Linked-Etag"][usize::from(manners.redirects)];
    let other = format!("{other}: \"{}\"\r\n", "ab".repeat(32));
    let linked = if path.starts_with("/me/") { &linked } else { &other };
    let bytes = if path.starts_with("/else-where/") { &files["README.md"].0 } else { bytes };
    if manners.endless {
        socket.write_all(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{linked}\r\n").as_bytes())?;
        loop {
            socket.write_all(&[0; 1 << 16])?;
        }
    }
    let cut = one_of(broken).is_ok();
    match range {
        Some(from) if from >= bytes.len() => answer("416 Range Not Satisfiable", linked, b"", false),
        Some(from) => {
            let range = format!("{linked}Content-Range: bytes {from}-{}/{}\r\n", bytes.len() - 1, bytes.len());
            answer("206 Partial Content", &range, &bytes[from..], cut)
        }
        None => answer("200 OK", linked, bytes, cut),
    }
}

/// A small file that is a model.
fn model() -> Vec<u8> {
    fs::read(committed("tests/fixtures/stories.gguf")).unwrap()
}

fn some() -> Files {
    vec![
        ("README.md", b"# small".to_vec()),
        ("mmproj-small-Q4_K_M.gguf", vec![1; 10]),
        ("small-Q4_K_M.gguf", model()),
        ("small-Q8_0.gguf", (0..200_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect()),
        ("two/small-F16-00001-of-00002.gguf", vec![3; 5000]),
        ("two/small-F16-00002-of-00002.gguf", vec![4; 5000]),
    ]
}

#[test]
fn a_model_is_fetched_into_the_shared_cache() {
    let hub = Hub::new(some(), Manners::default());
    let path = hub.pull("me/small");
    let snapshot = hub.repository().join("snapshots").join(COMMIT);
    assert_eq!(path, snapshot.join("small-Q4_K_M.gguf"));
    assert_eq!(fs::read(&path).unwrap(), model());
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("../../blobs").join(sha256(&model())));
    assert_eq!(fs::read_to_string(hub.repository().join("refs/main")).unwrap(), COMMIT);
    // The file that lets the model see comes with it.
    assert_eq!(fs::read(snapshot.join("mmproj-small-Q4_K_M.gguf")).unwrap(), vec![1; 10]);
    let mut both = [sha256(&model()), sha256(&[1; 10])];
    both.sort();
    assert_eq!(hub.blobs(), both);
    // If the name matches a model that is split into pieces, all of its pieces are fetched, and no other files.
    let first = hub.pull("me/small:f16");
    assert_eq!(first, snapshot.join("two/small-F16-00001-of-00002.gguf"));
    assert_eq!(fs::read(snapshot.join("two/small-F16-00002-of-00002.gguf")).unwrap(), vec![4; 5000]);
    assert_eq!(hub.blobs().len(), 4);

    let listed = String::from_utf8(hub.run(&["list"]).stdout).unwrap();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.contains("me/small:Q4_K_M ") && listed.contains("me/small:F16 "), "{listed}");
    assert!(hub.run(&["rm", "me/small:F16"]).status.success());
    assert_eq!(hub.blobs(), both);
    assert!(hub.error(&["rm", "me/small:F16"]).contains("not in the cache"));
    assert!(hub.run(&["rm", "me/small"]).status.success());
    assert!(!hub.repository().exists());
}

#[test]
fn a_model_of_the_hub_runs() {
    let hub = Hub::new(some(), Manners { redirects: true, ..Manners::default() });
    let args = ["generate", "-hf", "me/small", "-p", "Once", "-n", "5", "--temp", "0"];
    let output = hub.run_with(&args, &[("HF_TOKEN", "secret")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let by_path = committed("tests/fixtures/stories.gguf");
    let want = hub.run(&["generate", "-m", by_path.to_str().unwrap(), "-p", "Once", "-n", "5", "--temp", "0"]);
    assert_eq!(output.stdout, want.stdout);
    // The access token is sent to the hub only.
    assert!(
        hub.seen(&format!("/me/small/resolve/{COMMIT}/small-Q4_K_M.gguf token")) == 1
            && hub.seen("/elsewhere/small-Q4_K_M.gguf token") == 0
    );
    assert!(hub.seen("/elsewhere/small-Q4_K_M.gguf") == 1);
    // If the model is in the cache, the command sends no requests, and therefore works without a network.
    let asked = hub.seen("");
    for environment in [&[][..], &[("HF_HUB_OFFLINE", "1")], &[("HF_ENDPOINT", "http://127.0.0.1:9")]] {
        let again = hub.run_with(&args, environment);
        assert_eq!(again.stdout, want.stdout, "{}", String::from_utf8_lossy(&again.stderr));
    }
    assert_eq!(hub.seen(""), asked);
    let address = format!("{}/me/small/resolve/main/small%2DQ4_K_M.gguf?download=true", hub.address);
    let output = hub.run(&["inspect", "-m", &address]);
    assert!(output.status.success() && hub.seen("") == asked, "{}", String::from_utf8_lossy(&output.stderr));
    for page in ["/me/small", "/me/small/", "/me/small/tree/main"] {
        assert!(hub.pull(&format!("{}{page}", hub.address)).ends_with("small-Q4_K_M.gguf"));
    }
}

#[test]
fn a_download_that_breaks_off_continues() {
    let hub = Hub::new(some(), Manners { broken: 3, ..Manners::default() });
    let path = hub.pull("me/small:Q8_0");
    assert_eq!(fs::read(path).unwrap(), some()[3].1);
    assert_eq!((hub.seen("from 100000"), hub.seen("from 150000"), hub.seen("from 175000")), (1, 1, 1));
    // The beginning of a file, downloaded by another process.
    let hub = Hub::new(some(), Manners { redirects: true, ..Manners::default() });
    let blobs = hub.repository().join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(format!("{}.incomplete", sha256(&some()[3].1))), &some()[3].1[..70_000]).unwrap();
    assert_eq!(fs::read(hub.pull("me/small:Q8_0")).unwrap(), some()[3].1);
    assert_eq!(hub.seen("from 70000"), 2);
    assert_eq!(hub.blobs().len(), 2);
    // A server that ignores ranges sends the whole file again.
    let hub = Hub::new(some(), Manners { broken: 1, whole: true, ..Manners::default() });
    assert_eq!(fs::read(hub.pull("me/small:Q8_0")).unwrap(), some()[3].1);
    // If the server breaks off every answer, the received part is kept, and the next command resumes the download.
    let hub = Hub::new(some(), Manners { broken: 1000, ..Manners::default() });
    let error = hub.error(&["pull", "me/small:Q4_K_M"]);
    assert!(error.contains("broke off") && error.contains("continues from there"), "{error}");
    assert!(hub.blobs()[0].ends_with(".incomplete"));
    assert!(!hub.repository().join("snapshots").exists());
}

#[test]
fn a_wrong_hash_leaves_nothing() {
    let hub = Hub::new(some(), Manners { lies: true, ..Manners::default() });
    let error = hub.error(&["pull", "me/small"]);
    assert!(
        error.contains("SHA-256") && error.contains(&sha256(&model())) && error.contains("nothing was kept"),
        "{error}"
    );
    assert!(hub.blobs().is_empty() && !hub.repository().join("snapshots").exists());
    let hub = Hub::new(some(), Manners { lies: true, git: true, ..Manners::default() });
    assert!(hub.error(&["pull", "me/small"]).contains("Git hash") && hub.blobs().is_empty());
    let hub = Hub::new(some(), Manners { git: true, ..Manners::default() });
    assert_eq!(fs::read(hub.pull("me/small")).unwrap(), model());
    let hub = Hub::new(some(), Manners { endless: true, ..Manners::default() });
    assert!(hub.error(&["pull", "me/small"]).contains(&format!("should have {}", model().len())));
    assert!(hub.blobs().is_empty());
}

#[test]
fn a_busy_server_is_asked_again() {
    let hub = Hub::new(some(), Manners { busy: 2, ..Manners::default() });
    assert_eq!(fs::read(hub.pull("me/small")).unwrap(), model());
}

/// When a model is removed, files of earlier commits, files of other programs and files with similar names stay.
#[test]
fn other_files_stay() {
    let mut files = some();
    files.extend([("small-BF16.gguf", vec![5; 500]), ("small-UD-Q8_0.gguf", vec![6; 600])]);
    let hub = Hub::new(files, Manners::default());
    hub.pull("me/small:Q8_0");
    let snapshots = hub.repository().join("snapshots");
    fs::rename(snapshots.join(COMMIT), snapshots.join("0".repeat(40))).unwrap();
    for name in ["me/small", "me/small:bf16", "me/small:f16", "me/small:UD-Q8_0"] {
        hub.pull(name);
    }
    let listed = || String::from_utf8(hub.run(&["list"]).stdout).unwrap();
    assert!(listed().contains("me/small:Q8_0 ") && listed().lines().count() == 6, "{}", listed());
    // The hub is not asked (`HF_HUB_OFFLINE`), so the file of the earlier commit is used.
    let output = hub.run_with(&["inspect", "-hf", "me/small:Q8_0"], &[("HF_HUB_OFFLINE", "True")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(&"0".repeat(40)), "{output:?}");
    let weights = snapshots.join(COMMIT).join("model.safetensors");
    fs::write(hub.repository().join("blobs/other"), "x").unwrap();
    fs::write(hub.repository().join("blobs/hash.incomplete"), "x").unwrap();
    std::os::unix::fs::symlink("../../blobs/other", &weights).unwrap();
    for (name, left) in [("f16", 4), ("Q4_K_M", 3), ("Q8_0", 2), ("UD-Q8_0", 1), ("BF16", 0)] {
        assert!(hub.run(&["rm", &format!("me/small:{name}")]).status.success(), "{name}");
        assert_eq!(listed().lines().count(), left, "{name}: {}", listed());
    }
    assert_eq!(fs::read(&weights).unwrap(), b"x");
    // The projector belongs to no quantization.
    assert_eq!(hub.blobs(), [&sha256(&[1; 10]), "hash.incomplete", "other"]);
    assert!(hub.run(&["rm", "me/small"]).status.success() && !hub.repository().exists());
}

#[test]
fn the_cache_is_where_others_have_it() {
    let hub = Hub::new(some(), Manners::default());
    let at = |name: &str| hub.home.path().join(name).to_str().unwrap().to_owned();
    let (a, b) = (at("a"), at("b"));
    for (environment, place) in [
        (&[("LLAMA_CACHE", &*a), ("HF_HUB_CACHE", &b)][..], "a"),
        (&[("HF_HUB_CACHE", &b), ("HUGGINGFACE_HUB_CACHE", &a)], "b"),
        (&[("HF_HUB_CACHE", "~/c")], "c"),
        (&[("HF_HOME", "~/d")], "d/hub"),
    ] {
        let environment = [environment, &[("HOME", hub.home.path().to_str().unwrap())]].concat();
        let output = hub.run_with(&["pull", "me/small"], &environment);
        let path = String::from_utf8(output.stdout).unwrap();
        assert!(path.starts_with(&at(place)), "{environment:?}: {path}");
    }
    // The hub cannot be reached here, so another file of the repository is taken from the cache.
    hub.pull("me/small:Q8_0");
    let output = hub.run_with(&["inspect", "-hf", "me/small"], &[("HF_ENDPOINT", "http://127.0.0.1:9")]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("small-Q8_0.gguf is taken from the cache"), "{stderr}");
}

#[test]
fn refusals_are_one_line() {
    for (status, code, words) in [
        (401, "RepoNotFound", &["no repository me/small", "HF_TOKEN"][..]),
        (401, "GatedRepo", &["gated", "accept its terms", "HF_TOKEN"]),
        (403, "GatedRepo", &["gated", "accept its terms"]),
        (404, "RepoNotFound", &["has no me/small", "check the name"]),
        (429, "", &["too many requests"]),
        (500, "", &["answers 500"]),
    ] {
        if code == "GatedRepo" {
            // The list of a gated repository is public.
            let manners = Manners { refuses: Some((status, code)), lists: true, ..Manners::default() };
            assert!(Hub::new(some(), manners).error(&["pull", "me/small"]).contains("/me/small"));
        }
        let hub = Hub::new(vec![], Manners { refuses: Some((status, code)), ..Manners::default() });
        for args in [&["pull", "me/small"][..], &["generate", "-hf", "me/small", "-p", "a"]] {
            let error = hub.error(args);
            assert!(words.iter().all(|word| error.contains(word)), "{status} {code}: {error}");
        }
    }
    let hub = Hub::new(some(), Manners::default());
    assert!(hub.error(&["pull", "me/small:Q2_K"]).contains("it has no Q2_K: give one of Q4_K_M, Q8_0, F16"));
    assert!(hub.error(&["pull", "me/other"]).contains("has no me/other"));
    assert!(hub.error(&["pull", "other"]).contains("give USER/REPO"));
    assert!(hub.error(&["generate", "-hf", "me/small", "-hff", "x.gguf", "-p", "a"]).contains("has no file x.gguf"));
    let bare = Hub::new(vec![("config.json", b"{}".to_vec()), ("model.safetensors", vec![0])], Manners::default());
    assert!(bare.error(&["pull", "me/small"]).contains("`arenite convert hf DIR OUT.gguf`"));
    // Without a network, the error comes at once.
    let began = std::time::Instant::now();
    for environment in [("HF_ENDPOINT", "http://127.0.0.1:9"), ("HF_HUB_OFFLINE", "On"), ("TRANSFORMERS_OFFLINE", "1")]
    {
        let output = hub.run_with(&["pull", "me/small"], &[environment]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && stderr.lines().count() == 1, "{stderr}");
        assert!(stderr.contains("cannot reach http://127.0.0.1:9") || stderr.contains("_OFFLINE is set"), "{stderr}");
    }
    assert!(began.elapsed().as_secs() < 20);
}

#[test]
fn ten_names_in_a_row() {
    let hub = Hub::new(some(), Manners { broken: 2, redirects: true, ..Manners::default() });
    let names = ["me/small", "me/small:Q8_0", "me/none", "me/small:F16", "me/small:q4_k_m", "me/small:Q9_9"];
    let names = [&names[..], &["hf.co/me/small", "me/small:latest", "me/small:Q8_0", "me/none"]].concat();
    let output = hub.run(&[&["pull"], &names[..]].concat());
    let (paths, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), paths.lines().count()), (Some(1), 7), "{paths}{told}");
    assert_eq!(told.lines().filter(|line| line.starts_with("error: ")).count(), 3, "{told}");
    assert_eq!(hub.blobs().len(), 5);
    assert!(paths.lines().all(|path| Path::new(path).exists()), "{paths}");
}

#[test]
fn any_address_is_fetched() {
    let hub = Hub::new(some(), Manners { broken: 1, ..Manners::default() });
    let address = format!("{}/elsewhere/small-Q4_K_M.gguf", hub.address);
    let output = hub.run(&["generate", "-m", &address, "-p", "Once", "-n", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let asked = hub.seen("");
    assert!(hub.run(&["inspect", "-m", &address]).status.success());
    assert_eq!(hub.seen(""), asked);
    // `pull` looks for a newer file.
    assert_eq!(fs::read(hub.pull(&address)).unwrap(), model());
    assert_eq!(hub.seen(""), asked + 1);
    let listed = String::from_utf8(hub.run(&["list", "--json"]).stdout).unwrap();
    assert!(listed.contains("elsewhere:Q4_K_M"), "{listed}");
    assert!(hub.error(&["pull", &format!("{}/elsewhere/none.gguf", hub.address)]).contains("has no none.gguf"));
    // Files of similar addresses are different files.
    for (at, want) in [
        ("elsewhere/small-Q8_0.gguf", &some()[3].1),
        ("else/where/small-Q8_0.gguf", &some()[3].1),
        ("else-where/small-Q8_0.gguf", &some()[0].1),
        ("get?file=small-Q4_K_M.gguf", &model()),
        ("get?file=small-Q8_0.gguf", &some()[3].1),
        ("else/where/small-Q4_K_M.gguf", &model()),
    ] {
        assert_eq!(&fs::read(hub.pull(&format!("{}/{at}", hub.address))).unwrap(), want, "{at}");
    }
    let error = hub.error(&["pull", &format!("{}/page.gguf", hub.address)]);
    assert!(error.contains("is a web page"), "{error}");
}

/// A hub whose certificate comes from its own authority. OpenSSL issues the certificate, and Python runs the server.
#[test]
#[allow(clippy::print_stderr)] // for a test that cannot run
fn a_hub_with_its_own_authority() {
    let hub = Hub::new(vec![], Manners::default());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "own.pem", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(hub.home.path())
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("SKIP: there is no openssl here");
        return;
    }
    let program = "import http.server, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(404)
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('own.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()";
    let mut server = Command::new("python3")
        .args(["-c", program])
        .current_dir(hub.home.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let endpoint = format!("https://localhost:{}", port.trim());
    let own = hub.home.path().join("own.pem");
    let told = ["/nowhere.pem", own.to_str().unwrap()].map(|file| {
        let output = hub.run_with(&["pull", "me/small"], &[("HF_ENDPOINT", &endpoint), ("SSL_CERT_FILE", file)]);
        String::from_utf8(output.stderr).unwrap()
    });
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(told[0].contains("which SSL_CERT_FILE names") && told[1].contains("has no me/small"), "{told:?}");
}
