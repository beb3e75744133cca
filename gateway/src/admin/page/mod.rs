//! The status page: three files that are part of the program and load no resource from elsewhere.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Allows only scripts, styles and requests of this origin, and forbids frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, text).into_response()
}

pub(super) async fn html() -> Response {
    file("text/html; charset=utf-8", include_str!("page.html"))
}

pub(super) async fn css() -> Response {
    file("text/css; charset=utf-8", include_str!("page.css"))
}

pub(super) async fn js() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page.js"))
}
