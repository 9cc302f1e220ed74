//! A headless Chromium that a test drives through its pipe: the `DevTools` protocol, each message
//! ended by a zero byte.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

/// Names under which systems have it.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    requests: File,
    answers: BufReader<File>,
    last: u64,
    session: Option<String>,
    _dir: tempfile::TempDir,
}

fn find() -> Option<&'static str> {
    NAMES.into_iter().find(|name| {
        let found = Command::new(name).arg("--version").stderr(Stdio::null()).output();
        found.is_ok_and(|output| output.status.success())
    })
}

impl Browser {
    /// Starts a browser with an empty page, or says that there is none.
    pub(crate) fn start() -> Option<Self> {
        let Some(name) = find() else {
            eprintln!("SKIPPED: Chromium is not installed (apt-get install chromium)");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let (requests, answers) = (dir.path().join("requests"), dir.path().join("answers"));
        for pipe in [&requests, &answers] {
            assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
        }
        // The browser reads from file 3 and writes to file 4.
        let script = "exec \"$0\" --headless=new --no-sandbox --disable-gpu \
                      --disable-dev-shm-usage --no-first-run --hide-scrollbars \
                      --remote-debugging-pipe --user-data-dir=\"$1/profile\" about:blank \
                      3<\"$1/requests\" 4>\"$1/answers\"";
        let child = Command::new("sh")
            .args(["-c", script, name])
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let requests = File::options().write(true).open(requests).unwrap();
        let answers = BufReader::new(File::open(answers).unwrap());
        let mut browser = Self { child, requests, answers, last: 0, session: None, _dir: dir };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attached);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", &json!({}));
        browser.call("Runtime.enable", &json!({}));
        Some(browser)
    }

    /// Calls a method of the protocol and waits for its result. An error fails the test.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.try_call(method, params);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.last += 1;
        let mut request = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            request["sessionId"] = session.as_str().into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut message = Vec::new();
            assert!(self.answers.read_until(0, &mut message).unwrap() > 0, "the browser has ended");
            message.pop();
            let message: Value = serde_json::from_slice(&message).unwrap();
            if message["id"] == self.last {
                let error = &message["error"];
                return if error.is_null() {
                    Ok(message["result"].clone())
                } else {
                    Err(error.clone())
                };
            }
        }
    }

    /// Loads a page in a window of a size, light or dark.
    pub(crate) fn open(&mut self, url: &str, is_dark: bool, (width, height): (u32, u32)) {
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// The value of an expression of JavaScript, which may be a promise.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let result = self.try_evaluate(expression);
        result.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    fn try_evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.try_call("Runtime.evaluate", &params)?;
        let exception = &result["exceptionDetails"];
        if exception.is_null() {
            Ok(result["result"]["value"].clone())
        } else {
            Err(exception.clone())
        }
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_until(&mut self, expression: &str) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
        // While a page is being loaded, an expression can fail.
        while self.try_evaluate(&format!("Boolean({expression})")) != Ok(true.into()) {
            assert!(
                std::time::Instant::now() < deadline,
                "not true: {expression}; the page: {}",
                self.evaluate("document.body.innerText")
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Writes a picture of the whole page.
    pub(crate) fn screenshot(&mut self, path: &Path) {
        use base64::Engine as _;
        let size = self.call("Page.getLayoutMetrics", &json!({}))["cssContentSize"].clone();
        let mut clip = size;
        clip["scale"] = 1.into();
        let params = json!({ "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", &params);
        let picture = picture["data"].as_str().unwrap();
        let picture = base64::prelude::BASE64_STANDARD.decode(picture).unwrap();
        std::fs::write(path, picture).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
