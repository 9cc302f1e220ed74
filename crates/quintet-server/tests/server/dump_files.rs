//! Dump files: imports of what `redis-server` saved, and exports that it loads.

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Write as _},
    path::Path,
};

use quintet_server::{ExportSummary, export_rdb, import_rdb};

use super::{
    client::{Client, Value},
    dump::fill,
    running::{Redis, Server, config},
    same::assert_same_keys,
};

const BUDGET: Option<u64> = Some(64 << 20);

fn import(dir: &Path, file: &Path) -> Result<quintet_server::ImportSummary, String> {
    import_into(dir, None, file)
}

fn import_into(
    dir: &Path,
    namespace: Option<&str>,
    file: &Path,
) -> Result<quintet_server::ImportSummary, String> {
    let source = BufReader::new(File::open(file).unwrap());
    let result = import_rdb(&dir.join("data"), namespace, source, "dump.rdb", BUDGET);
    result.map_err(|failure| failure.to_string())
}

fn export(dir: &Path, file: &Path) -> ExportSummary {
    let target = BufWriter::new(File::create(file).unwrap());
    let mut ticks = 0;
    let summary = export_rdb(&dir.join("data"), None, target, BUDGET, |_| ticks += 1).unwrap();
    assert_eq!(ticks, summary.keys + summary.expired);
    summary
}

/// Fills several databases, with values that are committed in steps.
fn fill_all(client: &mut Client) {
    fill(client);
    client.call("select 5");
    client.call("set other 5 px 100000000");
    client.call("set short 5 px 1");
    for number in 0..200 {
        let mut list = vec!["rpush".to_owned(), "huge".to_owned()];
        list.extend((0..60).map(|at| format!("{number}:{at}:{}", "v".repeat(40))));
        client.call_args(&list);
        client.call_args(&["set", &format!("key:{number}"), &number.to_string()]);
    }
    client.call("select 0");
}

#[test]
fn a_dump_of_redis_is_imported_and_exported_again() {
    let Some(redis) = Redis::start() else { return };
    let mut theirs = redis.client();
    fill_all(&mut theirs);
    assert_eq!(theirs.call("save"), Value::Simple("OK".to_owned()));
    let dir = tempfile::tempdir().unwrap();
    let summary = import(dir.path(), &redis.dump_path()).unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut ours = server.client();
    let mut count = 0;
    for database in 0..16 {
        let select = format!("select {database}");
        assert_eq!(ours.call(&select), theirs.call(&select));
        assert_same_keys(&mut ours, &mut theirs, &format!("imported, {select}"));
        let Value::Integer(size) = ours.call("dbsize") else { panic!("no number") };
        count += u64::try_from(size).unwrap();
    }
    assert_eq!(summary.keys, count);
    server.end();
    // Back to another server of Redis.
    let exported = dir.path().join("exported.rdb");
    assert_eq!(export(dir.path(), &exported).keys, count);
    let restart = |dir: &Path| {
        fs::copy(&exported, dir.join("dump.rdb")).unwrap();
    };
    let again = Redis::start_with(&[], restart).unwrap();
    let mut again_client = again.client();
    for database in 0..16 {
        let select = format!("select {database}");
        again_client.call(&select);
        theirs.call(&select);
        assert_same_keys(&mut again_client, &mut theirs, &format!("exported, {select}"));
    }
}

#[test]
fn an_import_takes_effect_as_a_whole() {
    let Some(redis) = Redis::start() else { return };
    let mut theirs = redis.client();
    for number in 0..3000 {
        theirs.call(&format!("set key:{number} {number}"));
    }
    theirs.call("save");
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(redis.dump_path()).unwrap();
    // Cut short, and with a byte changed in the middle.
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0x10;
    for bad in [&whole[..whole.len() - 100], &damaged] {
        let file = dir.path().join("bad.rdb");
        File::create(&file).unwrap().write_all(bad).unwrap();
        let failure = import(dir.path(), &file).unwrap_err();
        assert!(failure.contains("at byte"), "{failure}");
        let started = quintet_server::serve(&dir.path().join("data"), &config(), |_| ());
        let failure = started.unwrap_err().to_string();
        assert!(failure.contains("the import of dump.rdb into"), "{failure}");
        let target = Vec::new();
        let failure =
            export_rdb(&dir.path().join("data"), None, target, BUDGET, |_| ()).unwrap_err();
        assert!(failure.to_string().contains("did not end"), "{failure}");
    }
    // The next import begins anew.
    assert_eq!(import(dir.path(), &redis.dump_path()).unwrap().keys, 3000);
    let server = Server::start_in(dir.path(), config());
    assert_same_keys(&mut server.client(), &mut theirs, "imported again");
    server.end();
    // A directory with keys is refused, and keeps them.
    let failure = import(dir.path(), &redis.dump_path()).unwrap_err();
    assert!(failure.contains("has 3000 keys"), "{failure}");
    // So is what is no dump, before anything is created.
    let file = dir.path().join("bad.rdb");
    fs::write(&file, "SQLite format 3").unwrap();
    let other = dir.path().join("other");
    let failure = import(&other, &file).unwrap_err();
    assert!(failure.contains("does not begin with REDIS"), "{failure}");
    assert!(!other.exists());
}

/// Functions are skipped and counted; expired keys are skipped.
#[test]
fn what_cannot_be_imported_is_counted() {
    let Some(redis) = Redis::start_with(&["--enable-debug-command", "yes"], |_| ()) else { return };
    let mut theirs = redis.client();
    let code = "#!lua name=library\nredis.register_function('f', function() return 1 end)";
    theirs.call_args(&["function", "load", code]);
    theirs.call("set key 1");
    theirs.call("debug set-active-expire 0");
    theirs.call("set expired 1 px 1");
    std::thread::sleep(std::time::Duration::from_millis(5));
    theirs.call("save");
    let dir = tempfile::tempdir().unwrap();
    let summary = import(dir.path(), &redis.dump_path()).unwrap();
    assert_eq!((summary.keys, summary.expired, summary.functions), (1, 1, 1));
}

/// A dump has the keys of one namespace, with its databases.
#[test]
fn a_namespace_is_exported_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    for request in [
        "set k default",
        "namespace add shop",
        "namespace add empty",
        "namespace use shop",
        "set k shop",
        "select 3",
        "hset h f 1 g 2",
        "set short 1 px 1",
    ] {
        let reply = client.call(request).text();
        assert!(!reply.starts_with('-'), "{request}: {reply}");
    }
    server.end();
    std::thread::sleep(std::time::Duration::from_millis(5));
    let data = dir.path().join("data");
    let export = |name: Option<&str>, file: &str| {
        let target = File::create(dir.path().join(file)).unwrap();
        export_rdb(&data, name, target, BUDGET, |_| ()).map(|summary| summary.keys)
    };
    assert_eq!(export(None, "all.rdb").unwrap(), 1);
    assert_eq!(export(Some("default"), "default.rdb").unwrap(), 1);
    assert_eq!(export(Some("shop"), "shop.rdb").unwrap(), 2);
    assert_eq!(export(Some("empty"), "empty.rdb").unwrap(), 0);
    for bad in ["none", "", "a/b"] {
        let failure = export(Some(bad), "none.rdb").unwrap_err().to_string();
        assert!(failure.contains("it has default, empty, shop"), "{failure}");
    }
    let other = tempfile::tempdir().unwrap();
    assert_eq!(import(other.path(), &dir.path().join("shop.rdb")).unwrap().keys, 2);
    let server = Server::start_in(other.path(), config());
    let mut client = server.client();
    assert_eq!(client.call("get k").text(), "shop");
    client.call("select 3");
    assert_eq!(client.call("hgetall h").text(), "[\"f\", \"1\", \"g\", \"2\"]");
    assert_eq!(client.call("dbsize").text(), ":1");
}

/// A namespace is made by an import, which concerns no other one, also if it fails.
#[test]
fn a_dump_is_imported_into_a_namespace() {
    let source = tempfile::tempdir().unwrap();
    let server = Server::start_in(source.path(), config());
    let mut client = server.client();
    for number in 0..2000 {
        client.call(&format!("set key:{number} dumped"));
    }
    client.call("select 3");
    client.call("hset h f 1 g 2");
    server.end();
    let (whole, cut) = (source.path().join("whole.rdb"), source.path().join("cut.rdb"));
    assert_eq!(export(source.path(), &whole).keys, 2001);
    let bytes = fs::read(&whole).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 100]).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    for request in ["set own 1", "namespace add empty", "namespace add used"] {
        client.call(request);
    }
    client.call("namespace use used");
    client.call("set own 2");
    server.end();
    let import = |name: &str, file: &Path| import_into(dir.path(), Some(name), file);
    for bad in ["", "a/b"] {
        let failure = import(bad, &whole).unwrap_err();
        assert!(failure.contains("a name of a namespace has"), "{failure}");
    }
    let failure = import("used", &whole).unwrap_err();
    assert!(failure.contains("the namespace \"used\" of") && failure.contains("has 1 keys"));
    let failure = import("default", &whole).unwrap_err();
    assert!(failure.contains("has 1 keys"), "{failure}");
    assert_eq!(import("empty", &whole).unwrap().keys, 2001);
    // Until it is run again, neither a server nor an import uses the directory.
    let failure = import("new", &cut).unwrap_err();
    assert!(failure.contains("at byte"), "{failure}");
    let failure = quintet_server::serve(&dir.path().join("data"), &config(), |_| ()).unwrap_err();
    let text = "the import of dump.rdb into the namespace \"new\" into";
    assert!(failure.to_string().contains(text), "{failure}");
    for other in ["default", "used", "empty", "newer"] {
        let failure = import(other, &whole).unwrap_err();
        assert!(failure.contains(text), "{failure}");
    }
    assert_eq!(import("new", &whole).unwrap().keys, 2001);
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    let names = client.call("namespace list").text();
    assert!(!names.contains("newer") && names.contains("\"new\""), "{names}");
    for (name, keys) in [("default", 1), ("used", 1), ("empty", 2000), ("new", 2000)] {
        client.call(&format!("namespace use {name}"));
        assert_eq!(client.call("dbsize"), Value::Integer(keys), "{name}");
        let value = if keys == 1 { "get own" } else { "get key:7" };
        assert!(["1", "2", "dumped"].contains(&client.call(value).text().as_str()), "{name}");
        client.call("select 3");
        assert_eq!(client.call("hlen h"), Value::Integer(if keys == 1 { 0 } else { 2 }), "{name}");
    }
}
