//! Small files at addresses that a stranger gave, such as pictures in requests to a server. The address may name a
//! machine that only the server can reach. A redirect or the name service may also lead to such a machine, so every
//! connection is checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// Time for a file, with all redirects.
const TIME: Duration = Duration::from_secs(10);
const MOST_REDIRECTS: u32 = 5;

/// Fetches a file of at most `most` bytes from the public internet. No token is sent. No proxy is used, because a proxy
/// would resolve the name itself and the check of the address would have no effect.
///
/// # Errors
///
/// The address or an address to which it redirects is not public; the server does not answer within 10 seconds, or
/// answers with a failure or with a larger file.
pub fn fetch_public(address: &str, most: u64) -> Result<Vec<u8>> {
    fetch(address, most, is_public)
}

fn fetch(address: &str, most: u64, is_allowed: fn(IpAddr) -> bool) -> Result<Vec<u8>> {
    let config = ureq::Agent::config_builder()
        .user_agent(concat!("arenite/", env!("CARGO_PKG_VERSION")))
        .timeout_global(Some(TIME))
        .max_redirects(MOST_REDIRECTS)
        .http_status_as_error(false)
        .proxy(None)
        .build();
    let agent = ureq::Agent::with_parts(config, DefaultConnector::default(), Checked(is_allowed));
    let mut answer = agent.get(address).call().with_context(|| format!("cannot fetch {address}"))?;
    let status = answer.status();
    ensure!(status.is_success(), "{address} answers {}", status.as_u16());
    let body = answer.body_mut().with_config().limit(most).read_to_vec();
    body.with_context(|| format!("cannot fetch {address}, or it has more than {most} bytes"))
}

/// Resolves names, and refuses addresses of machines that are not allowed. Resolved addresses are checked, not the text
/// of the address, so that the check also covers redirects, and names that lead to this network.
#[derive(Debug)]
struct Checked(fn(IpAddr) -> bool);

impl Resolver for Checked {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        match found.iter().all(|address| self.0(address.ip())) {
            true => Ok(found),
            false => Err(Error::Io(std::io::Error::other("the address is not on the public internet"))),
        }
    }
}

/// True for addresses of the public internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// True unless the address is in a block that RFC 6890 reserves.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_special =
        address.is_private() || address.is_loopback() || address.is_link_local() || address.is_documentation();
    let is_reserved =
        a == 0 || a >= 224 || (a, b, c) == (192, 0, 0) || (a, b, c) == (192, 88, 99) || a == 198 && b & 0xfe == 18;
    !is_shared && !is_special && !is_reserved
}

/// True for global unicast addresses (2000::/3) that do not contain an IPv4 address.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // Teredo and others in 2001::/23, documentation, and 6to4.
    a & 0xe000 == 0x2000 && !(a == 0x2001 && b < 0x200) && !(a == 0x2001 && b == 0xdb8) && a != 0x2002 && a != 0x3fff
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_the_public_internet_counts() {
        for address in ["8.8.8.8", "1.1.1.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    /// Starts a server whose answers depend on the path, and returns its port.
    fn server() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Each answer ends its connection, because a client that reused a connection would sometimes find it closed.
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                let answer = match first.split(' ').nth(1).unwrap() {
                    "/file" => "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello".to_string(),
                    "/there" => {
                        "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: /file\r\nContent-Length: 0\r\n\r\n"
                            .to_string()
                    }
                    "/inside" => {
                        format!(
                            "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: http://127.0.0.2:{port}/file\r\n\
                             Content-Length: 0\r\n\r\n"
                        )
                    }
                    _ => "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_string(),
                };
                socket.write_all(answer.as_bytes()).unwrap();
            }
        });
        port
    }

    #[test]
    fn files_are_fetched_within_limits() {
        let port = server();
        let allowed: fn(IpAddr) -> bool = |address| address == IpAddr::V4(Ipv4Addr::LOCALHOST);
        let get = |path: &str, most| fetch(&format!("http://127.0.0.1:{port}{path}"), most, allowed);
        assert_eq!(get("/file", 5).unwrap(), b"hello");
        assert_eq!(get("/there", 5).unwrap(), b"hello");
        assert!(get("/file", 4).is_err() && get("/nothing", 5).is_err());
        // A redirect to another machine is checked, too.
        assert!(format!("{:#}", get("/inside", 5).unwrap_err()).contains("public internet"));
        let refused = fetch_public(&format!("http://127.0.0.1:{port}/file"), 5).unwrap_err();
        assert!(format!("{refused:#}").contains("public internet"), "{refused:#}");
    }
}
