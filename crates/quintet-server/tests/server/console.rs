//! The console in a real browser: what it shows of known data, in light and dark.

use std::path::PathBuf;

use super::{chromium::Browser, client::Client, http::with_http, running::Server};

/// A name that would run a script if the page took it for markup.
const EVIL: &str = "<img src=x onerror=document.title='run'>";

/// Writes known data. Returns the client, which stays connected.
fn fill(server: &Server) -> Client {
    let mut client = server.client();
    client.call("client setname reporting-job");
    client.call("config set slowlog-log-slower-than 0");
    client.call_args(&["set", EVIL, "<script>document.title='run'</script>"]);
    client.call("config set slowlog-log-slower-than 10000000");
    for number in 0..1000 {
        client.call(&format!(
            "set user:{number:04} {}",
            "value ".repeat(20).trim().replace(' ', "-")
        ));
        client.call(&format!("get user:{number:04}"));
    }
    for number in 0..300 {
        client.call(&format!("zadd ranking {number} member{number}"));
    }
    client.call("hset profile:1 name Ada city London");
    client.call("expire profile:1 5000");
    client.call("select 1");
    client.call("set elsewhere 1");
    let mut shop = server.client();
    for request in ["namespace add shop", "namespace use shop", "select 2", "set in-shop 1"] {
        assert_eq!(shop.call(request).text(), "+OK", "{request}");
    }
    client
}

/// Text of the cells of the first row of a table whose cells contain a word.
fn row(browser: &mut Browser, table: &str, word: &str) -> Vec<String> {
    let expression = format!(
        "[...(([...document.querySelectorAll('#{table} tbody tr')]\
         .find((row) => row.innerText.includes({word:?})))?.cells ?? [])]\
         .map((cell) => cell.textContent)"
    );
    serde_json::from_value(browser.evaluate(&expression)).unwrap()
}

fn check_page(browser: &mut Browser, is_dark: bool) {
    browser.wait_until("document.documentElement.dataset.polls >= 2");
    browser.wait_until("document.querySelector('#tables').innerText.includes('1,003')");
    assert_eq!(browser.evaluate("document.querySelector('#state').innerText"), "Ready");
    let keys = row(browser, "tables", "redis/0/keys");
    assert_eq!(keys[..3], ["redis/0/keys", "hashlog", "1,003"].map(str::to_owned));
    assert_eq!(keys.last().unwrap(), "working");
    assert_eq!(row(browser, "tables", "redis/0/elements")[1], "btree");
    let set = row(browser, "command-table", "SET");
    assert!(set[0].ends_with("SET"), "{set:?}");
    assert_eq!(row(browser, "command-table", "ZADD")[1], "300");
    assert!(row(browser, "client-table", "reporting-job")[2].contains("reporting-job"));
    assert!(row(browser, "slow", "onerror")[2].contains(EVIL));
    let budget = browser.evaluate("document.querySelector('#memory').innerText");
    assert!(budget.as_str().unwrap().contains("64.0 MiB"), "{budget}");
    assert_eq!(browser.evaluate("document.querySelectorAll('.chart canvas').length"), 2);
    // A chart has drawn something: some points of it are not transparent.
    browser.wait_until(
        "(() => { const canvas = document.querySelector('#chart-rate canvas'); \
         const context = canvas.getContext('2d'); \
         const { data } = context.getImageData(0, 0, canvas.width, canvas.height); \
         return data.some((value) => value !== 0); })()",
    );
    let background = browser.evaluate("getComputedStyle(document.body).backgroundColor");
    let expected = if is_dark { "rgb(16, 19, 26)" } else { "rgb(244, 245, 248)" };
    assert_eq!(background, expected);
}

/// Waits until the table of keys has only those that match. The keys before may match too.
fn wait_for_keys(browser: &mut Browser, pattern: &str) {
    browser.wait_until(&format!(
        "(() => {{ const rows = [...document.querySelectorAll('#key-table tbody tr')]; \
         return rows.length > 0 \
         && rows.every((row) => /{pattern}/.test(row.cells[0].textContent)); }})()"
    ));
}

fn check_keys(browser: &mut Browser) {
    browser.evaluate(
        "document.querySelector('#keys-match').value = '*onerror*'; \
         document.querySelector('#keys-form').requestSubmit()",
    );
    wait_for_keys(browser, "onerror");
    let evil = row(browser, "key-table", "onerror");
    assert_eq!(evil[0], EVIL);
    assert_eq!(evil[1], "string");
    assert_eq!(evil[4], "<script>document.title='run'</script>");
    assert_eq!(browser.evaluate("document.querySelectorAll('table img, table script').length"), 0);
    assert_eq!(browser.evaluate("document.title"), "Quintet");
    browser.evaluate(
        "document.querySelector('#keys-match').value = ''; \
         document.querySelector('#keys-form').requestSubmit()",
    );
    let note = "document.querySelector('#keys-note').innerText";
    browser.wait_until("document.querySelectorAll('#key-table tbody tr').length >= 50");
    browser.wait_until(&format!("{note}.startsWith('page 1')"));
    browser.evaluate("document.querySelector('#keys-next').click()");
    browser.wait_until(&format!("{note}.startsWith('page 2')"));
    browser.evaluate(
        "document.querySelector('#keys-match').value = '[pr]*'; \
         document.querySelector('#keys-form').requestSubmit()",
    );
    wait_for_keys(browser, "^(profile|ranking)");
    let ranking = row(browser, "key-table", "ranking");
    assert_eq!(ranking[1..4], ["zset", "\u{2013}", "300 elements"].map(str::to_owned));
    let profile = row(browser, "key-table", "profile:1");
    assert_eq!((profile[1].as_str(), profile[3].as_str()), ("hash", "2 elements"));
    assert!(profile[2].contains("h "), "{profile:?}");
    // Another database.
    browser.evaluate(
        "(() => { const select = document.querySelector('#keys-database'); select.value = '1'; \
         document.querySelector('#keys-match').value = ''; \
         select.dispatchEvent(new Event('change')); })()",
    );
    browser.wait_until("document.querySelector('#key-table').innerText.includes('elsewhere')");
    check_namespaces(browser);
}

fn check_namespaces(browser: &mut Browser) {
    let choose = |id: &str, value: &str| {
        format!(
            "(() => {{ const select = document.querySelector('#{id}'); select.value = '{value}'; \
             select.dispatchEvent(new Event('change')); }})()"
        )
    };
    let databases = "[...document.querySelector('#keys-database').options]\
                     .map((option) => option.textContent).join()";
    browser.wait_until("document.querySelector('#keys-namespace').options.length === 2");
    assert_eq!(browser.evaluate("document.querySelector('#keys-namespace-label').hidden"), false);
    browser.evaluate(&choose("keys-namespace", "shop"));
    browser.wait_until(&format!("{databases} === '0 (0 keys),2 (1 keys)'"));
    browser.evaluate(&choose("keys-database", "2"));
    browser.wait_until("document.querySelector('#key-table').innerText.includes('in-shop')");
    // The polls go on, and leave the choice.
    let polls = browser.evaluate("document.documentElement.dataset.polls");
    let later = format!("Number(document.documentElement.dataset.polls) > Number({polls}) + 1");
    browser.wait_until(&later);
    assert_eq!(browser.evaluate(databases), "0 (0 keys),2 (1 keys)");
    browser.evaluate(&choose("keys-namespace", "default"));
    browser.wait_until("document.querySelector('#key-table').innerText.includes('user:')");
}

fn check_sorting(browser: &mut Browser) {
    let head = "document.querySelector('#command-table th:nth-child(1) button')";
    let names = "[...document.querySelectorAll('#command-table tbody tr')]\
                 .map((row) => row.cells[0].textContent)";
    browser.evaluate(&format!("{head}.click()"));
    let up: Vec<String> = serde_json::from_value(browser.evaluate(names)).unwrap();
    assert!(up.len() > 4 && up.is_sorted(), "{up:?}");
    browser.evaluate(&format!("{head}.click()"));
    let down: Vec<String> = serde_json::from_value(browser.evaluate(names)).unwrap();
    assert_eq!(down, up.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn the_console_shows_known_data_in_light_and_dark() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), with_http());
    let client = fill(&server);
    let url = format!("http://127.0.0.1:{}/", server.http_port());
    let pictures = std::env::var_os("QUINTET_CONSOLE_PICTURES").map(PathBuf::from);
    for is_dark in [false, true] {
        browser.open(&url, is_dark, (1360, 1000));
        browser.wait_until("document.querySelector('#keys-database')?.options.length === 2");
        check_page(&mut browser, is_dark);
        if let Some(dir) = &pictures {
            let name = if is_dark { "dark.png" } else { "light.png" };
            browser.screenshot(&dir.join(name));
        }
        check_keys(&mut browser);
        check_sorting(&mut browser);
    }
    // A page that has lost its server says so.
    drop(client);
    drop(server);
    browser.wait_until("document.querySelector('#state').innerText === 'No answer'");
}
