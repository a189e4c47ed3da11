//! Requests to the hub, with redirects and access tokens.

use std::env;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use ureq::http::HeaderMap;

/// Address of the hub; the environment variable `HF_ENDPOINT` replaces it.
const ENDPOINT: &str = "https://huggingface.co";
const MOST_REDIRECTS: usize = 10;

/// The error if the hub cannot be reached.
#[derive(Debug)]
pub struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// A client of the hub.
pub struct Client {
    agent: ureq::Agent,
    endpoint: String,
    /// Access token. Sent only to the hub, not to hosts that the hub redirects to.
    token: Option<String>,
}

/// An answer after all redirects.
pub struct Reply {
    pub status: u16,
    /// Scheme, host and port of the first request.
    host: String,
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
    /// The hub's name for the file's contents: the SHA-256 of large files.
    pub etag: Option<String>,
    is_linked: bool,
    /// The hub's error code.
    error: Option<String>,
}

impl Facts {
    fn take(&mut self, headers: &HeaderMap, is_last: bool) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let plain = |etag: String| etag.trim_start_matches("W/").trim_matches('"').to_owned();
        if let Some(etag) = text("x-linked-etag") {
            (self.etag, self.is_linked) = (Some(plain(etag)), true);
        } else if !self.is_linked && is_last {
            self.etag = text("etag").map(plain);
        }
        self.commit = self.commit.take().or(text("x-repo-commit"));
        self.error = text("x-error-code").or(self.error.take());
        let whole = text("content-range").and_then(|range| range.rsplit_once('/')?.1.parse().ok());
        let length = || text("content-length").filter(|_| is_last).and_then(|length| length.parse().ok());
        let linked = text("x-linked-size").and_then(|size| size.parse().ok());
        self.size = self.size.or(linked).or(whole).or_else(length);
    }

    /// The SHA-256 that the contents must have.
    pub fn sha256(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| etag.len() == 64 && etag.bytes().all(|c| c.is_ascii_hexdigit()))
    }
}

/// The files of a repository.
pub struct Listing {
    pub commit: Option<String>,
    pub files: Vec<String>,
}

impl Client {
    pub fn new(token: Option<&str>) -> Result<Self> {
        let config = ureq::Agent::config_builder()
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
            let path = given("HF_TOKEN_PATH").map(Into::into).or_else(|| Some(super::cache::home()?.join("token")));
            fs::read_to_string::<std::path::PathBuf>(path?).ok()
        };
        let token = token.map(str::to_owned).or_else(|| given("HF_TOKEN")).or_else(saved);
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        Ok(Self { agent: config.into(), endpoint: endpoint.trim_end_matches('/').to_owned(), token })
    }

    /// The address of a file.
    pub fn address(&self, repository: &str, file: &str) -> String {
        format!("{}/{repository}/resolve/main/{}", self.endpoint, encoded(file))
    }

    /// Splits the address of a file on the hub into the repository and the file's path in it.
    pub fn file_of(&self, address: &str) -> Option<(String, String)> {
        let path = address.strip_prefix(&self.endpoint)?.strip_prefix('/')?;
        let path = path.split(['?', '#']).next()?;
        let mut parts = path.splitn(5, '/');
        let (user, repository, how, revision) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let name = format!("{user}/{repository}");
        let is_file = ["resolve", "blob", "raw"].contains(&how) && revision == "main";
        (is_file && crate::foreign::is_repository(&name)).then(|| Some((name, parts.next()?.to_owned())))?
    }

    /// Requests the list of a repository's files.
    pub fn list(&self, repository: &str) -> Result<Listing> {
        let base = format!("{}/api/models/{repository}", self.endpoint);
        let mut last = None;
        for address in [format!("{base}/revision/main"), base.clone(), format!("{base}/tree/main?recursive=true")] {
            let mut reply = self.get(&address, 0)?;
            if reply.status == 404 {
                last = Some(reply);
                continue;
            }
            if reply.status != 200 {
                return Err(self.refused(repository, &reply));
            }
            let text = reply.body.with_config().limit(64 << 20).read_to_string();
            let text = text.with_context(|| format!("cannot read the list of {repository}"))?;
            return listing(&text).with_context(|| format!("{address} is not the list of a repository"));
        }
        match last {
            Some(reply) => Err(self.refused(repository, &reply)),
            None => bail!("there is no repository {repository}"),
        }
    }

    /// Requests a file from byte `start` on.
    pub fn get(&self, address: &str, start: u64) -> Result<Reply> {
        ensure!(
            !matches!(env::var("HF_HUB_OFFLINE").as_deref(), Ok("1" | "true" | "TRUE" | "yes" | "on")),
            Unreachable("HF_HUB_OFFLINE is set, so nothing is fetched".to_owned())
        );
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
            let range = headers.get("content-range").and_then(|range| range.to_str().ok());
            let first = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
            let start = if status == 206 { first.unwrap_or(start) } else { 0 };
            return Ok(Reply { status, host: origin(address).to_owned(), facts, start, body: response.into_body() });
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
            (_, Some("GatedRepo"), true) | (403, ..) => {
                anyhow!("{what} is gated, and your account has no access yet: accept its terms at {endpoint}/{what}")
            }
            (401, Some("RepoNotFound") | None, false) => anyhow!(
                "{endpoint} has no repository {what}, or it is private: check the name, or set HF_TOKEN to a token of \
                 your account"
            ),
            (401, ..) => anyhow!("{endpoint} refuses the token: check HF_TOKEN"),
            (404, ..) => anyhow!("{endpoint} has no {what}: check the name"),
            (429, ..) => anyhow!("{endpoint} has had too many requests: try again later, or set HF_TOKEN"),
            (status, ..) => anyhow!("{endpoint} answers {status} for {what}: try again later"),
        }
    }
}

fn unreachable(url: &str, error: &ureq::Error) -> anyhow::Error {
    let host = origin(url);
    Unreachable(format!(
        "cannot reach {host} ({error}): check the connection; `arenite list` shows the models that are here"
    ))
    .into()
}

/// Scheme, host and port of an address.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    &url[..end]
}

/// The address that a redirect leads to.
fn joined(from: &str, to: &str) -> String {
    if to.contains("://") {
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
    let is_safe =
        |name: &&str| Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let files = names.into_iter().filter(is_safe).map(str::to_owned).collect();
    Ok(Listing { commit: json["sha"].as_str().map(str::to_owned), files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_joined() {
        for (to, want) in [
            ("https://b.example/x", "https://b.example/x"),
            ("/x?y", "https://a.example:8/x?y"),
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
    }
}
