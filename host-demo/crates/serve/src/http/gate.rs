//! Refuses requests that a browser sends for a web page of another site.
//!
//! A server on loopback needs no key, because only programs on this machine can reach it. But a browser on this machine
//! also runs web pages of other sites. Such a page can send a request without reading the answer. The page can even
//! read the answer if the page's own host name resolves to this machine (DNS rebinding).

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::error::{ApiError, Result};

/// The hosts and origins that requests may name.
pub struct Gate {
    /// True if only this machine reaches the server.
    is_local: bool,
    /// The host name that the server was started with.
    host: String,
    /// The name of this machine.
    machine: Option<String>,
    origins: Vec<HeaderValue>,
}

/// Schemes of pages that belong to programs of this machine. They are trusted because no web site has an origin with
/// such a scheme.
const PROGRAMS: [&str; 6] = ["app", "capacitor", "file", "tauri", "vscode-file", "vscode-webview"];

impl Gate {
    pub fn new(address: IpAddr, host: &str, origins: Vec<HeaderValue>) -> Self {
        Self { is_local: address.is_loopback(), host: host.to_ascii_lowercase(), machine: machine(), origins }
    }

    fn check(&self, method: &Method, headers: &HeaderMap) -> Result<()> {
        let refused = |why: String| Err(ApiError::new(StatusCode::FORBIDDEN, why));
        if headers.get_all(header::HOST).iter().count() > 1 {
            return Err(ApiError::invalid("the request has several Host headers"));
        }
        let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
        if let Some(host) = text(header::HOST).filter(|host| self.is_local && !self.is_own(host) && !self.is_near(host))
        {
            return refused(format!(
                "the Host `{host}` is not this server's: use localhost, make your proxy send `Host: localhost`, or start the \
                 server with --host"
            ));
        }
        let foreign = text(header::ORIGIN).filter(|origin| !self.trusts(origin, text(header::HOST)));
        if let Some(origin) = foreign.filter(|_| self.is_local && *method != Method::OPTIONS) {
            return refused(format!("pages of `{origin}` may not use this server: allow them with --cors-origin"));
        }
        // Browsers send this header with every request, even with requests that have no origin. Other programs do not
        // send the header, so it distinguishes browsers from programs.
        let is_page = headers.contains_key("sec-fetch-site");
        if let Some(host) = text(header::HOST).filter(|host| self.is_local && is_page && !self.is_own(host)) {
            return refused(format!("pages of `{host}` may not use this server: call it localhost in the browser"));
        }
        if *method == Method::POST {
            let kind = text(header::CONTENT_TYPE).unwrap_or_default();
            let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            // Refuse the content types that a browser lets a page send to any server without the server's permission.
            // The type of a form is refused only if the request has an origin: programs may send JSON with this type,
            // but they send no origin.
            let simple = matches!(kind.as_str(), "" | "application/x-www-form-urlencoded" | "multipart/form-data");
            if kind == "text/plain" || simple && foreign.is_some() {
                let why = "the Content-Type must be application/json";
                return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
            }
        }
        Ok(())
    }

    /// Returns true if pages of `origin` may use this server, which the request calls `host`: listed origins, and the
    /// server's own page. A server that only this machine can reach also trusts pages of this machine and of its
    /// programs.
    pub fn trusts(&self, origin: &str, host: Option<&str>) -> bool {
        let listed = self.origins.iter().any(|allowed| match allowed.as_bytes() {
            [start @ .., b'*'] => origin.as_bytes().starts_with(start),
            allowed => origin.as_bytes() == allowed,
        });
        let Some((scheme, own)) = origin.split_once("://") else { return listed };
        // A server that only this machine can reach trusts only names that cannot be registered by anyone else, because
        // `host` may resolve to this machine by DNS rebinding.
        let is_own_page = host == Some(own) && !self.is_local;
        listed || is_own_page || self.is_local && (self.is_own(own) || PROGRAMS.contains(&scheme))
    }

    /// Returns true if `host`, which may have a port, is a name of this machine that no DNS server can redirect.
    fn is_own(&self, host: &str) -> bool {
        let name = without_port(host);
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        name == "localhost"
            || name.ends_with(".localhost")
            || name == self.host
            || address.parse::<IpAddr>().is_ok_and(is_here)
    }
}

impl Gate {
    /// Returns true if no public DNS server can answer for `host`, which may have a port: a name of a container's host
    /// (`host.docker.internal`), of the local network, or of this machine. Pages of such hosts are not trusted, because
    /// other machines may have such names.
    fn is_near(&self, host: &str) -> bool {
        let name = without_port(host);
        let is_reserved = [".internal", ".local"].iter().any(|end| name.ends_with(end));
        is_reserved || self.machine.as_deref() == Some(name.as_str())
    }
}

/// Returns true for loopback addresses and for `0.0.0.0` and `::`. These addresses are trusted because they lead only
/// to this machine. Programs that listen on all addresses show `0.0.0.0` as their own address.
fn is_here(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

/// Returns a host's name in lower case, without the port and without a final point.
fn without_port(host: &str) -> String {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Returns the name of this machine, if the system tells it.
fn machine() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|key| std::env::var(key).ok()))?;
    Some(name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty())
}

/// Rejects forbidden requests, and passes on all others.
pub async fn check(State(gate): State<Arc<Gate>>, request: Request<Body>, next: Next) -> Response {
    match gate.check(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}
