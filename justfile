# `just` lists the recipes. Continuous integration runs `.ci/run`, which needs no `just`.

_default:
    @just --list --unsorted

# Everything that a change has to pass
ci:
    .ci/run

build:
    cargo build --release

# The README's test command
test:
    cargo test --workspace

lint:
    cargo fmt --all --check
    cargo clippy --locked --workspace --all-targets -- -D warnings

# The rules that no compiler checks
tidy:
    cargo xtask tidy

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Crash enumeration on the simulated disk: `just crash 5000000` for a long run
crash states="1000000":
    QUINTET_CRASH_STATES={{states}} cargo test --release --package quintet --test crash -- --nocapture

# The paper's footprint experiment: random inserts and deletes do not grow the trie
footprint operations="20000000":
    QUINTET_FOOTPRINT_OPERATIONS={{operations}} cargo test --release --package quintet --lib do_not_grow_the_trie -- --nocapture

# Power losses of persistent memory: so many images of each of pool, skip list, tree and flush
pmem-crash images="250000":
    QUINTET_PMEM_IMAGES={{images}} cargo test --package quintet --lib pmem_crash -- --ignored --nocapture

# Real power cuts of an ext4 in a loop device (root)
powercut cuts="20":
    .ci/powercut {{cuts}}

# Child processes of the command killed with SIGKILL, on real files
kill:
    cargo test --release --package quintet-cli --test cli kill -- --nocapture

# Every fuzz target for so many seconds: `just fuzz 480`
fuzz seconds="60":
    fuzz/run {{seconds}}

# Exhaustive models of the small concurrent parts
loom:
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p quintet --lib --release loom_

# Random schedules of the larger ones. With other seeds it says which planted bugs are found by luck
shuttle seed="1":
    RUSTFLAGS="--cfg shuttle" SHUTTLE_RANDOM_SEED={{seed}} CARGO_TARGET_DIR=target/shuttle cargo test -p quintet --lib --release shuttle_

# The threaded test of one engine, again and again: `just stress trie 500`
stress engine rounds="100":
    QUINTET_STRESS_ENGINE={{engine}} QUINTET_STRESS_ROUNDS={{rounds}} cargo test --package quintet --test threads -- --nocapture

# The threaded tests under ThreadSanitizer: so many operations a thread
tsan operations="6000":
    .ci/tsan {{operations}}

bench:
    cargo bench --workspace

# The workloads on other stores as well: `just compare --preset smoke --out results.jsonl`. First
# `crates/quintet-compare/setup`, for the stores that are not Rust
compare *args:
    cargo run --release --manifest-path crates/quintet-compare/Cargo.toml -- run {{args}}

# Licences, advisories, yanked crates (needs cargo-deny)
deny:
    cargo deny check
