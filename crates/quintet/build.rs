//! Sets `cfg(model)` in builds for a model checker: `--cfg loom` or `--cfg shuttle`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(model)");
    let has_cfg = |name: &str| std::env::var_os(format!("CARGO_CFG_{name}")).is_some();
    if has_cfg("LOOM") || has_cfg("SHUTTLE") {
        println!("cargo::rustc-cfg=model");
    }
}
