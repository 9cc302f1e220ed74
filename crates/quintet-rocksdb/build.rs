//! Gives the shared library the name that a program linked with RocksDB looks for.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librocksdb.so.7.8");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
