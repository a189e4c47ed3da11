//! The page at `/`: a conversation with the model, in a browser.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::routing::get;

/// The files of the page: path, content type, content.
const FILES: [(&str, &str, &str); 15] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.mjs", SCRIPT, include_str!("page/page.mjs")),
    ("/view.mjs", SCRIPT, include_str!("page/view.mjs")),
    ("/requests.mjs", SCRIPT, include_str!("page/requests.mjs")),
    ("/settings.mjs", SCRIPT, include_str!("page/settings.mjs")),
    ("/models.mjs", SCRIPT, include_str!("page/models.mjs")),
    ("/conversation.mjs", SCRIPT, include_str!("page/conversation.mjs")),
    ("/store.mjs", SCRIPT, include_str!("page/store.mjs")),
    ("/chats.mjs", SCRIPT, include_str!("page/chats.mjs")),
    ("/attachments.mjs", SCRIPT, include_str!("page/attachments.mjs")),
    ("/pictures.mjs", SCRIPT, include_str!("page/pictures.mjs")),
    ("/texts.mjs", SCRIPT, include_str!("page/texts.mjs")),
    ("/microphone.mjs", SCRIPT, include_str!("page/microphone.mjs")),
    ("/markdown.mjs", SCRIPT, include_str!("page/markdown.mjs")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Content security policy: the page loads only its own files, contains no scripts or styles outside of these files,
/// and cannot be embedded by other pages. Scripts of the page cannot turn a text into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
];

/// Returns the routes of the page. These routes need no key, because the page itself asks the user for the key.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.into_iter().fold(Router::new(), |routes, (path, kind, content)| {
        let headers = HEADERS.into_iter().chain([(header::CONTENT_TYPE, kind)]);
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let headers: axum::http::HeaderMap = headers.collect();
        routes.route(path, get(move || async move { (headers, content) }))
    })
}
