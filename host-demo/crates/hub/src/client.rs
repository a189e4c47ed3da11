//! Requests to the hub. Redirects are followed here and not by the HTTP library, because the access token must reach
//! only the hub, and because the headers of each answer contain facts about the file.

use std::collections::HashSet;
use std::env;
use std::fmt;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use ureq::http::HeaderMap;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::is_repository;

/// Address of the hub; the environment variable `HF_ENDPOINT` replaces it.
const ENDPOINT: &str = "https://huggingface.co";
const MOST_REDIRECTS: usize = 10;
const MOST_FILES: usize = 1 << 17;
const MOST_PAGES: usize = 1 << 8;
/// Maximum time for all pages of a list. Each read has a separate limit, but a server could send an endless number of
/// pages.
const LIST_TIME: Duration = Duration::from_secs(30);

/// Maximum number of repeated attempts if the server is busy or closes the connection early.
const MORE_ATTEMPTS: u32 = 2;

/// The error if the hub cannot be reached.
#[derive(Debug)]
pub struct Unreachable {
    why: String,
    /// True if the connection broke off, so that another attempt may succeed.
    broke_off: bool,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Unreachable {}

/// A client of the hub.
pub struct Client {
    agent: ureq::Agent,
    endpoint: String,
    /// Access token. It is sent only to the hub, because the hosts to which the hub redirects could misuse it.
    token: Option<String>,
}

/// An answer after all redirects.
pub struct Reply {
    pub status: u16,
    /// Scheme, host and port of the first request.
    host: String,
    /// Address of the next page of a list.
    next: Option<String>,
    /// True if the body is a web page.
    pub is_page: bool,
    pub facts: Facts,
    /// Position of the body's first byte in the file.
    pub start: u64,
    pub body: ureq::Body,
}

/// Properties of a file, from the headers of the answer and of the redirects before it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub commit: Option<String>,
    pub size: Option<u64>,
    /// The hub's name for the file's contents: the SHA-256 of a large file, Git's hash of a small file. For other
    /// servers, the ETag, or the time of the last change if there is no ETag.
    pub etag: Option<String>,
    is_linked: bool,
    /// The hub's error code.
    error: Option<String>,
}

impl Facts {
    fn take(&mut self, headers: &HeaderMap, is_last: bool) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let plain = |etag: String| etag.trim_start_matches("W/").trim_matches('"').to_owned();
        // The hub's header takes precedence, because the ETag of a server to which it redirects is not the hash of the
        // contents.
        if let Some(etag) = text("x-linked-etag").filter(|_| !self.is_linked) {
            (self.etag, self.is_linked) = (Some(plain(etag)), true);
        } else if !self.is_linked && is_last {
            self.etag = text("etag").or_else(|| text("last-modified")).map(plain);
        }
        self.commit = self.commit.take().or(text("x-repo-commit"));
        self.error = text("x-error-code").or(self.error.take());
        let whole = text("content-range").and_then(|range| range.rsplit_once('/')?.1.parse().ok());
        let length = || text("content-length").filter(|_| is_last).and_then(|length| length.parse().ok());
        let linked = text("x-linked-size").and_then(|size| size.parse().ok());
        self.size = self.size.or(linked).or(whole).or_else(length);
    }

    /// Returns true if the answer came from a hub. Names of contents are hashes only if they come from a hub.
    pub fn is_hub(&self) -> bool {
        self.is_linked || self.commit.is_some()
    }
}

/// The files of a repository.
pub struct Listing {
    /// The commit that has these files.
    pub commit: Option<String>,
    pub files: Vec<String>,
}

impl Client {
    pub fn new(token: Option<&str>) -> Result<Self> {
        let tls = match authorities()? {
            Some(authorities) => TlsConfig::builder().root_certs(authorities).build(),
            None => TlsConfig::default(),
        };
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .user_agent(concat!("arenite/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(30)))
            .timeout_per_read(Some(Duration::from_secs(30)))
            .build();
        let given = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = given("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        ensure!(
            endpoint.starts_with("http://") || endpoint.starts_with("https://"),
            "HF_ENDPOINT is {endpoint}: give an address that begins with https://"
        );
        let saved = || {
            let path = super::cache::given("HF_TOKEN_PATH").or_else(|| Some(super::cache::home()?.join("token")));
            match fs::read_to_string(path?) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                read => Some(read.context("cannot read the saved access token")),
            }
        };
        let token = token.map(str::to_owned).or_else(|| given("HF_TOKEN")).or_else(|| given("HUGGING_FACE_HUB_TOKEN"));
        let token = match token {
            None => saved().transpose()?,
            token => token,
        };
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        ensure!(
            token.iter().all(|token| token.bytes().all(|byte| byte.is_ascii_graphic())),
            "the access token has a space or a character beyond ASCII: check HF_TOKEN"
        );
        Ok(Self { agent: config.into(), endpoint: endpoint.trim_end_matches('/').to_owned(), token })
    }

    /// The address of a file at a commit.
    pub fn address(&self, repository: &str, commit: &str, file: &str) -> String {
        format!("{}/{repository}/resolve/{commit}/{}", self.endpoint, encoded(file))
    }

    /// Splits an address on the hub into the repository and the file's path in it. The file is `None` for the address
    /// of a repository's page.
    pub fn file_of(&self, address: &str) -> Option<(String, Option<String>)> {
        let path = address.strip_prefix(&self.endpoint)?.strip_prefix('/')?;
        let path = path.split(['?', '#']).next()?.trim_end_matches('/');
        let parts: Vec<&str> = path.splitn(5, '/').collect();
        let (user, repository, file) = match parts[..] {
            [user, repository] if !super::is_gguf(repository) => (user, repository, None),
            [user, repository, "tree", "main"] => (user, repository, None),
            [user, repository, "resolve" | "blob" | "raw", "main", file] => (user, repository, Some(file)),
            _ => return None,
        };
        let name = format!("{user}/{repository}");
        is_repository(&name).then(|| (name, file.map(|file| percent_decode_str(file).decode_utf8_lossy().into_owned())))
    }

    /// Requests the list of a repository's files.
    pub fn list(&self, repository: &str) -> Result<Listing> {
        let base = format!("{}/api/models/{repository}", self.endpoint);
        let mut last = None;
        for address in [format!("{base}/revision/main"), base.clone(), format!("{base}/tree/main?recursive=true")] {
            let mut reply = self.first(&address)?;
            if reply.status == 404 {
                last = Some(reply);
                continue;
            }
            let (mut all, mut addresses) = (Listing { commit: None, files: Vec::new() }, HashSet::new());
            let began = Instant::now();
            for _ in 0..MOST_PAGES {
                ensure!(began.elapsed() < LIST_TIME, "the list of {repository} takes too long: check HF_ENDPOINT");
                if reply.status != 200 {
                    return Err(self.refused(repository, &reply));
                }
                let text = reply.body.with_config().limit(64 << 20).read_to_string();
                let text = text.with_context(|| format!("cannot read the list of {repository}"))?;
                let page = listing(&text).with_context(|| format!("{address} is not the list of a repository"))?;
                let seen = addresses.insert(reply.next.clone());
                ensure!(
                    seen && !page.files.is_empty() || reply.next.is_none(),
                    "the list of {repository} does not end: check HF_ENDPOINT"
                );
                all.commit = all.commit.or(page.commit);
                all.files.extend(page.files);
                ensure!(all.files.len() <= MOST_FILES, "the list of {repository} has more than {MOST_FILES} files");
                match reply.next {
                    Some(next) => reply = self.first(&next)?,
                    None => return Ok(all),
                }
            }
            bail!("the list of {repository} has more than {MOST_PAGES} pages: check HF_ENDPOINT");
        }
        match last {
            Some(reply) => Err(self.refused(repository, &reply)),
            None => bail!("there is no repository {repository}"),
        }
    }

    /// Requests a file or a list. Repeats the request if the server is busy or closes the connection early.
    pub fn first(&self, address: &str) -> Result<Reply> {
        for attempt in 0..MORE_ATTEMPTS {
            let reply = self.get(address, 0);
            let may_succeed = match &reply {
                Ok(reply) => matches!(reply.status, 429 | 500..=599),
                Err(error) => error.downcast_ref::<Unreachable>().is_some_and(|error| error.broke_off),
            };
            if !may_succeed {
                return reply;
            }
            thread::sleep(Duration::from_millis(250 << attempt));
        }
        self.get(address, 0)
    }

    /// Requests a file from byte `start` on.
    pub fn get(&self, address: &str, start: u64) -> Result<Reply> {
        if let Some(name) = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().find(|name| is_set(name)) {
            bail!(Unreachable { why: format!("{name} is set, so nothing is fetched"), broke_off: false });
        }
        let mut facts = Facts::default();
        let mut url = address.to_owned();
        for _ in 0..MOST_REDIRECTS {
            let mut request = self.agent.get(&url);
            if start > 0 {
                request = request.header("Range", format!("bytes={start}-"));
            }
            if let (Some(token), true) = (&self.token, origin(&url) == origin(&self.endpoint)) {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let response = request.call().map_err(|error| unreachable(&url, &error))?;
            let status = response.status().as_u16();
            let headers = response.headers();
            let location = headers.get("location").and_then(|location| location.to_str().ok());
            let next = location.filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308)).map(|to| joined(&url, to));
            facts.take(headers, next.is_none());
            if let Some(next) = next {
                ensure!(
                    next.starts_with("https://") || !url.starts_with("https://"),
                    "{} redirects to an address without encryption: nothing was fetched",
                    origin(&url)
                );
                url = next;
                continue;
            }
            let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            if let Some(packed) = text("content-encoding").filter(|packed| *packed != "identity") {
                bail!("{} sends the file compressed ({packed}), which is not supported", origin(&url));
            }
            let first =
                text("content-range").and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
            let start = if status == 206 { first.unwrap_or(start) } else { 0 };
            let next = text("link").and_then(next_page).map(|next| joined(&url, next));
            let is_page = text("content-type").is_some_and(|kind| kind.starts_with("text/html"));
            let host = origin(address).to_owned();
            return Ok(Reply { status, host, next, is_page, facts, start, body: response.into_body() });
        }
        bail!("{address} redirects more than {MOST_REDIRECTS} times")
    }

    /// The error for a request that the server refused.
    pub fn refused(&self, what: &str, reply: &Reply) -> anyhow::Error {
        let (endpoint, has_token) = (&reply.host, self.token.is_some());
        match (reply.status, reply.facts.error.as_deref(), has_token) {
            (_, Some("GatedRepo"), false) => anyhow!(
                "{what} is gated: accept its terms at {endpoint}/{what}, then set HF_TOKEN to a token of your account"
            ),
            (_, Some("GatedRepo"), true) => {
                anyhow!("{what} is gated, and your account has no access yet: accept its terms at {endpoint}/{what}")
            }
            (401, Some("RepoNotFound") | None, false) if *endpoint == origin(&self.endpoint) => anyhow!(
                "{endpoint} has no repository {what}, or it is private: check the name, or set HF_TOKEN to a token of \
                 your account"
            ),
            (401, ..) if *endpoint == origin(&self.endpoint) => anyhow!("{endpoint} refuses the token: check HF_TOKEN"),
            (status @ (401 | 403), ..) => anyhow!("{endpoint} answers {status} for {what}: you have no access to it"),
            (404, ..) => anyhow!("{endpoint} has no {what}: check the name"),
            (status, ..) => {
                let why = match status {
                    429 => format!("{endpoint} has had too many requests: try again later, or set HF_TOKEN"),
                    _ => format!("{endpoint} answers {status} for {what}: try again later"),
                };
                Unreachable { why, broke_off: false }.into()
            }
        }
    }
}

/// Reads the certificates in `SSL_CERT_FILE`. They replace Mozilla's certificates, as in OpenSSL and Python. Returns
/// `None` if the variable is not set.
///
/// # Errors
///
/// The file cannot be read, or has no certificates.
fn authorities() -> Result<Option<RootCerts>> {
    let Some(path) = super::cache::given("SSL_CERT_FILE") else { return Ok(None) };
    let pem = fs::read(&path).with_context(|| format!("cannot read {}, which SSL_CERT_FILE names", path.display()))?;
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    let all: Vec<_> = parse_pem(&pem).filter_map(certificate).collect();
    ensure!(!all.is_empty(), "{}, which SSL_CERT_FILE names, has no certificates", path.display());
    Ok(Some(all.into()))
}

fn unreachable(url: &str, error: &ureq::Error) -> anyhow::Error {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};

    let host = origin(url);
    let broken = [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof];
    let broke_off = matches!(error, ureq::Error::Io(error) if broken.contains(&error.kind()));
    let error = error.to_string();
    let advice = match error.contains("UnknownIssuer") {
        true => "set SSL_CERT_FILE to a file with the certificate of the server's authority",
        false => "check the connection; `arenite list` shows the models that are here",
    };
    let why = format!("cannot reach {host} ({error}): {advice}");
    Unreachable { why, broke_off }.into()
}

/// Returns true if an environment variable has one of the values that `huggingface_hub` takes for true.
fn is_set(name: &str) -> bool {
    env::var(name).is_ok_and(|value| ["1", "on", "yes", "true"].contains(&&*value.to_ascii_lowercase()))
}

/// The address of the next page in the header `Link`.
fn next_page(link: &str) -> Option<&str> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0)
}

/// Scheme, host and port of an address.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    &url[..end]
}

/// The address that a redirect leads to.
fn joined(from: &str, to: &str) -> String {
    // Check the characters of the scheme, because a relative address may have `://` in its query.
    let has_scheme = |(scheme, _): (&str, &str)| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if to.split_once("://").is_some_and(has_scheme) {
        to.to_owned()
    } else if let Some(rest) = to.strip_prefix("//") {
        format!("{}://{rest}", from.split("://").next().unwrap_or("https"))
    } else if to.starts_with('/') {
        format!("{}{to}", origin(from))
    } else {
        let path = from.split(['?', '#']).next().unwrap_or(from);
        format!("{}/{to}", path.rsplit_once('/').map_or(path, |(folder, _)| folder))
    }
}

/// Returns true if `text` is safe as a file name. The server chooses the text, so it must not name a parent directory.
pub fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// Percent-encodes the characters of a path that an address cannot contain.
fn encoded(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' => out.push(byte.into()),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

fn listing(text: &str) -> Result<Listing> {
    let json: Value = serde_json::from_str(text)?;
    let names: Option<Vec<&str>> = match (&json["siblings"], &json) {
        (Value::Array(all), _) => all.iter().map(|file| file["rfilename"].as_str()).collect(),
        (_, Value::Array(all)) => {
            all.iter().filter(|file| file["type"] != "directory").map(|file| file["path"].as_str()).collect()
        }
        _ => None,
    };
    let names = names.context("it names no files")?;
    // The path must have no empty, `.` or `..` parts, because a server could otherwise write outside of the cache. The
    // second check covers other systems, which have drive letters.
    let is_safe = |name: &&str| {
        name.split('/').all(|part| !matches!(part, "" | "." | ".."))
            && Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)))
            && !name.contains(|c: char| c.is_control() || c == '\\')
    };
    let files = names.into_iter().filter(is_safe).map(str::to_owned).collect();
    Ok(Listing { commit: json["sha"].as_str().filter(|commit| is_plain(commit)).map(str::to_owned), files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_joined() {
        for (to, want) in [
            ("https://b.example/x", "https://b.example/x"),
            ("/x?y", "https://a.example:8/x?y"),
            ("/x?y=https://z", "https://a.example:8/x?y=https://z"),
            ("x", "https://a.example:8/p/x"),
            ("//c.example/x", "https://c.example/x"),
        ] {
            assert_eq!(joined("https://a.example:8/p/q?r=/s", to), want);
        }
        assert_eq!(origin("http://a.example?x"), "http://a.example");
        assert_eq!(encoded("a b/\u{e9}+.gguf"), "a%20b/%C3%A9%2B.gguf");
    }

    #[test]
    fn lists_have_two_forms() {
        let model = listing(r#"{"sha": "1f", "siblings": [{"rfilename": "a.gguf"}, {"rfilename": "../b"}]}"#).unwrap();
        assert_eq!((model.commit.as_deref(), model.files), (Some("1f"), vec!["a.gguf".to_owned()]));
        let tree = listing(r#"[{"type": "directory", "path": "x"}, {"type": "file", "path": "x/a.gguf"}]"#).unwrap();
        assert_eq!(tree.files, ["x/a.gguf"]);
        assert!(listing("{}").is_err() && listing("<html>").is_err());
        let evil = listing(
            r#"{"sha": "../../x", "siblings": [{"rfilename": "a\u001b[31m.gguf"},
            {"rfilename": "a//b/m.gguf"}, {"rfilename": "a/./m.gguf"}, {"rfilename": "/m.gguf"}, {"rfilename": "m.gguf/"}]}"#,
        );
        let evil = evil.unwrap();
        assert!(evil.commit.is_none() && evil.files.is_empty());
        let link = r#"</a>; rel="first", <https://h.example/x?cursor=2>; rel="next""#;
        assert_eq!(
            (next_page(link), next_page("</a>; rel=\"xet-auth\"")),
            (Some("https://h.example/x?cursor=2"), None)
        );
    }
}
