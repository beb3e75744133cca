//! Controls a browser: loads pages, clicks and types, and takes pictures.
//!
//! *Operation.* Chromium's DevTools protocol over a pair of pipes (`--remote-debugging-pipe`): JSON, each message ended by a zero
//! byte. Clicks and letters are sent as input events of a person, so that an element which covers a button keeps it from being
//! pressed.
//!
//! *Errors.* `timeout` ends a browser after [`LIFE`] seconds, and a call that waits for it fails.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::page::BROWSER;
use crate::sh::Result;

/// Longest lifetime of one browser in seconds.
const LIFE: &str = "180";
/// Longest time for a page to show something.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
    session: Option<String>,
    /// Errors and warnings of the page.
    pub(crate) complaints: Vec<String>,
}

impl Browser {
    pub(crate) fn open(page: &str) -> Result<Self> {
        let command = format!(
            "exec timeout {LIFE} {BROWSER} --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe 3<&0 4>&1"
        );
        let mut child = Command::new("sh")
            .args(["-c", &command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{BROWSER}: {e}"))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the browser has no pipes".into());
        };
        let from = BufReader::new(from);
        let mut browser = Self { child, to, from, next: 0, session: None, complaints: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.call(domain, json!({}))?;
        }
        browser.call("Page.navigate", json!({"url": page}))?;
        Ok(browser)
    }

    fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let gone = |e: std::io::Error| format!("{method}: the browser: {e}");
        self.to.write_all(format!("{message}\0").as_bytes()).map_err(gone)?;
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).map_err(gone)?;
            if bytes.pop() != Some(0) {
                return Err(format!("{method}: the browser has ended"));
            }
            let answer: Value =
                serde_json::from_slice(&bytes).map_err(|e| format!("{method}: {e}"))?;
            if matches!(
                answer["method"].as_str(),
                Some("Runtime.exceptionThrown" | "Log.entryAdded")
            ) {
                self.complaints.push(answer["params"].to_string());
            }
            if answer["id"] == self.next {
                return match &answer["error"] {
                    Value::Null => Ok(answer["result"].clone()),
                    error => Err(format!("{method}: {error}")),
                };
            }
        }
    }

    /// Returns the value of an expression.
    pub(crate) fn value(&mut self, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params)?;
        match &answer["exceptionDetails"] {
            Value::Null => Ok(answer["result"]["value"].clone()),
            thrown => Err(format!("{expression}: {thrown}")),
        }
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) -> Result<()> {
        let begin = Instant::now();
        while self.value(expression)? != json!(true) {
            if begin.elapsed() > PATIENCE {
                let shown = self.value("document.getElementById('done').textContent")?;
                return Err(format!("never: {expression}; the page says {shown}"));
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Clicks the first element of a selector, as a person would: after it stopped moving, and only if no other element covers it.
    pub(crate) fn click(&mut self, selector: &str) -> Result<()> {
        let quoted = json!(selector);
        let place = format!(
            "(() => {{ const e = document.querySelector({quoted}); if (!e) return null; e.scrollIntoView({{block: 'center'}}); \
             const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2; \
             return e.contains(document.elementFromPoint(x, y)) ? [x, y] : null; }})()"
        );
        let (begin, mut before) = (Instant::now(), Value::Null);
        let at = loop {
            let now = self.value(&place)?;
            if now == before && !now.is_null() {
                break now;
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("there is no {selector} to click: {now}"));
            }
            before = now;
            sleep(Duration::from_millis(50));
        };
        for kind in ["mousePressed", "mouseReleased"] {
            let params =
                json!({"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params)?;
        }
        Ok(())
    }

    /// Types into an element.
    pub(crate) fn enter(&mut self, selector: &str, text: &str) -> Result<()> {
        self.click(selector)?;
        self.until(&format!(
            "document.activeElement === document.querySelector({})",
            json!(selector)
        ))?;
        self.call("Input.insertText", json!({"text": text})).map(drop)
    }

    /// Takes a picture of the upper part of the page, or of the first element that a selector matches.
    pub(crate) fn picture(
        &mut self,
        file: &Path,
        (width, height): (u32, u32),
        is_dark: bool,
        first: Option<&str>,
    ) -> Result<()> {
        let is_phone = width < 600;
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media)?;
        let quoted = json!(first.unwrap_or("header"));
        self.value(&format!(
            "document.querySelector({quoted}).scrollIntoView({{block: 'start'}})"
        ))?;
        let wide = self.value("document.documentElement.scrollWidth <= window.innerWidth")?;
        if wide != json!(true) {
            return Err(format!("{}: the page is wider than its window", file.display()));
        }
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        let bytes = unbase64(taken["data"].as_str().unwrap_or_default());
        fs::write(file, bytes).map_err(|e| format!("{}: {e}", file.display()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Decodes RFC 4648 section 4; other characters are skipped.
fn unbase64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut held) = (Vec::with_capacity(text.len() / 4 * 3), 0_u32, 0);
    for digit in text.bytes().filter_map(|b| DIGITS.iter().position(|d| *d == b)) {
        bits = (bits << 6) | u32::try_from(digit).unwrap_or(0);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from((bits >> held) & 0xff).unwrap_or(0));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_is_decoded_from_base64() {
        assert_eq!(unbase64("aGVhZGdhdGU="), b"headgate");
        assert_eq!(unbase64("/+8="), [0xff, 0xef]);
    }
}
