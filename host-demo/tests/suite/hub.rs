//! `arenite pull`, `list`, `rm` and `-hf` with a small server in place of the hub. It can break off answers, send wrong
//! hashes and redirect.

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
    /// The server ignores ranges in requests and sends whole files.
    whole: bool,
}

struct Hub {
    address: String,
    /// Request lines, followed by `token` if the request had one.
    seen: Arc<Mutex<Vec<String>>>,
    home: tempfile::TempDir,
}

/// The SHA-256 of a file, computed by the program `sha256sum`.
fn sha256(bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    fs::write(&path, bytes).unwrap();
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

type Files = Vec<(&'static str, Vec<u8>)>;

impl Hub {
    fn new(files: Files, manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let files: HashMap<String, (Vec<u8>, String)> =
            files.into_iter().map(|(name, bytes)| (name.to_owned(), (bytes.clone(), sha256(&bytes)))).collect();
        let (files, told, broken) = (Arc::new(files), seen.clone(), Arc::new(AtomicUsize::new(manners.broken)));
        let own = address.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (files, told, broken, own) = (files.clone(), told.clone(), broken.clone(), own.clone());
                std::thread::spawn(move || {
                    let _ = serve(socket.unwrap(), &files, manners, &told, &broken, &own);
                });
            }
        });
        Self { address, seen, home: tempfile::tempdir().unwrap() }
    }

    fn run_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_arenite"));
        for name in [
            "HF_TOKEN",
            "HF_HUB_CACHE",
            "HF_HUB_OFFLINE",
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

    /// Pulls a model, which must succeed, and returns the path that is printed.
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
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
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
    broken: &AtomicUsize,
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
    if let Some((status, error)) = manners.refuses {
        return answer(&format!("{status} No"), &format!("X-Error-Code: {error}\r\n"), b"{}", false);
    }
    if path.starts_with("/api/models/me/small") {
        let mut names: Vec<_> = files.keys().collect();
        names.sort();
        let names: Vec<Value> = names.iter().map(|name| json!({ "rfilename": name })).collect();
        return answer("200 OK", "", json!({ "sha": COMMIT, "siblings": names }).to_string().as_bytes(), false);
    }
    let file = ["/me/small/resolve/main/", "/elsewhere/"].iter().find_map(|start| path.strip_prefix(start));
    let Some((bytes, hash)) = file.and_then(|file| files.get(file)) else {
        return answer("404 Not Found", "X-Error-Code: RepoNotFound\r\n", b"Repository not found", false);
    };
    let hash = if manners.lies { &hash.chars().rev().collect() } else { hash };
    let linked = format!("X-Repo-Commit: {COMMIT}\r\nX-Linked-Etag: \"{hash}\"\r\nX-Linked-Size: {}\r\n", bytes.len());
    if manners.redirects && path.starts_with("/me/") {
        // Another name for the same machine is another host.
        let host = own.replace("127.0.0.1", "localhost");
        let location = format!("{linked}Location: {host}/elsewhere/{}\r\n", file.unwrap_or_default());
        return answer("302 Found", &location, b"", false);
    }
    let linked = if path.starts_with("/elsewhere/") { "ETag: \"other\"\r\n" } else { &linked };
    let cut = broken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
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
    assert_eq!(hub.blobs(), [sha256(&model())]);
    // The pieces of a split model are fetched together, and other files are left alone.
    let first = hub.pull("me/small:f16");
    assert_eq!(first, snapshot.join("two/small-F16-00001-of-00002.gguf"));
    assert_eq!(fs::read(snapshot.join("two/small-F16-00002-of-00002.gguf")).unwrap(), vec![4; 5000]);
    assert_eq!(hub.blobs().len(), 3);

    let listed = String::from_utf8(hub.run(&["list"]).stdout).unwrap();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.contains("me/small:Q4_K_M ") && listed.contains("me/small:F16 "), "{listed}");
    assert!(hub.run(&["rm", "me/small:F16"]).status.success());
    assert_eq!(hub.blobs(), [sha256(&model())]);
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
        hub.seen("/me/small/resolve/main/small-Q4_K_M.gguf token") == 1
            && hub.seen("/elsewhere/small-Q4_K_M.gguf token") == 0
    );
    assert!(hub.seen("/elsewhere/small-Q4_K_M.gguf") == 1);
    // The second time there are no requests, so the network may be gone.
    let asked = hub.seen("");
    for environment in [&[][..], &[("HF_HUB_OFFLINE", "1")], &[("HF_ENDPOINT", "http://127.0.0.1:9")]] {
        let again = hub.run_with(&args, environment);
        assert_eq!(again.stdout, want.stdout, "{}", String::from_utf8_lossy(&again.stderr));
    }
    assert_eq!(hub.seen(""), asked);
    let address = format!("{}/me/small/resolve/main/small-Q4_K_M.gguf", hub.address);
    let output = hub.run(&["inspect", "-m", &address]);
    assert!(output.status.success() && hub.seen("") == asked, "{}", String::from_utf8_lossy(&output.stderr));
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
    assert_eq!(hub.blobs().len(), 1);
    // A server that ignores ranges sends the whole file again.
    let hub = Hub::new(some(), Manners { broken: 1, whole: true, ..Manners::default() });
    assert_eq!(fs::read(hub.pull("me/small:Q8_0")).unwrap(), some()[3].1);
    // A server that never sends the end: the received part stays, and the next command resumes.
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
    for environment in [("HF_ENDPOINT", "http://127.0.0.1:9"), ("HF_HUB_OFFLINE", "1")] {
        let output = hub.run_with(&["pull", "me/small"], &[environment]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && stderr.lines().count() == 1, "{stderr}");
        assert!(stderr.contains("cannot reach http://127.0.0.1:9") || stderr.contains("HF_HUB_OFFLINE"), "{stderr}");
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
    assert_eq!(hub.blobs().len(), 4);
    assert!(paths.lines().all(|path| Path::new(path).exists()), "{paths}");
}

#[test]
fn any_address_is_fetched() {
    let hub = Hub::new(some(), Manners { broken: 1, ..Manners::default() });
    let address = format!("{}/elsewhere/small-Q4_K_M.gguf", hub.address);
    let output = hub.run(&["generate", "-m", &address, "-p", "Once", "-n", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let asked = hub.seen("");
    assert_eq!(fs::read(hub.pull(&address)).unwrap(), model());
    assert_eq!(hub.seen(""), asked);
    let listed = String::from_utf8(hub.run(&["list", "--json"]).stdout).unwrap();
    assert!(listed.contains("elsewhere:Q4_K_M"), "{listed}");
    assert!(hub.error(&["pull", &format!("{}/elsewhere/none.gguf", hub.address)]).contains("has no none.gguf"));
}
