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

# Damage of files at rest: `just damage 0` for all cases
damage cases="100000":
    QUINTET_DAMAGE_CASES={{cases}} cargo test --release --package quintet --test damage -- --nocapture

# Failing calls of a run and of a recovery, this many cases of each: `just faults 0` for all
faults cases="40000":
    QUINTET_FAULT_CASES={{cases}} cargo test --release --package quintet --test faults -- --nocapture

# The paper's footprint experiment: random inserts and deletes do not grow the trie
footprint operations="20000000":
    QUINTET_FOOTPRINT_OPERATIONS={{operations}} cargo test --release --package quintet --lib do_not_grow_the_trie -- --nocapture

# Power losses of persistent memory: number of images for each of pool, skip list, tree and flush
pmem-crash images="250000":
    QUINTET_PMEM_IMAGES={{images}} cargo test --package quintet --lib pmem_crash -- --ignored --nocapture

# Imports and gets of six tables that share 128 MiB, in twelve orders
budget:
    cargo test --release --package quintet --test database cost_of_one_budget -- --ignored --nocapture

# What snapshots cost: taking one, puts and ranges beside one, bytes of a version
snapshots:
    cargo test --release --package quintet --test database cost_of_snapshots -- --ignored --nocapture

# A snapshot that is held through many updates
snapshot-held updates="100000000":
    QUINTET_SNAPSHOT_UPDATES={{updates}} cargo test --release --package quintet --test database held -- --ignored --nocapture

# Memory and the longest operation under a random mix, with budgets from the minimum to 1 GiB
memory seconds="1800" seed="1":
    QUINTET_MEMORY_SECONDS={{seconds}} QUINTET_MEMORY_SEED={{seed}} cargo test --release --package quintet --test memory_mix -- --nocapture

# Openings of one database, and keys that share a long prefix
extremes openings="10000" keys="100000":
    QUINTET_OPENINGS={{openings}} QUINTET_PREFIX_KEYS={{keys}} cargo test --release --package quintet --test database extremes -- --nocapture

# Cost of many tables of each engine under 256 MiB and 256 files
tables count="10000":
    QUINTET_TABLES={{count}} cargo test --release --package quintet --test many_tables cost -- --ignored --nocapture

# Real power cuts of an ext4 in a loop device (root)
powercut cuts="20":
    .ci/powercut {{cuts}}

# Kills child processes of the command with SIGKILL, on real files
kill:
    cargo test --release --package quintet-cli --test cli kill -- --nocapture

# Random commands beside redis-server: `just server 40000 7`
server commands="40000" seed="1":
    QUINTET_SERVER_COMMANDS={{commands}} QUINTET_SERVER_SEED={{seed}} cargo test --package quintet-server --test server against -- --nocapture

# redis-py, go-redis, ioredis, redis-cli and redis-benchmark against the server: `just server-clients go`
server-clients *parts:
    crates/quintet-server/tests/clients/run {{parts}}

# The tests of redis-py itself against the server; some five minutes
server-clients-suite:
    crates/quintet-server/tests/clients/run suite

# The tests of the crate rocksdb and of grocksdb against the library with RocksDB's interface; some ten minutes
rocksdb-clients:
    crates/quintet-rocksdb/tests/clients/rust-rocksdb
    crates/quintet-rocksdb/tests/clients/grocksdb

# The tests of levigo against the library with LevelDB's interface
leveldb-clients:
    crates/quintet-leveldb/tests/clients/levigo

# Mixed commands for minutes: memory within the budget, no growth of files and threads, expiry, SIGKILL
server-soak minutes="5":
    QUINTET_SOAK_MINUTES={{minutes}} cargo test --package quintet-server --test server soak -- --ignored --nocapture

# Every fuzz target, for the given number of seconds each: `just fuzz 480`
fuzz seconds="60":
    fuzz/run {{seconds}}

# Exhaustive models of the small concurrent parts
loom:
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p quintet --lib --release loom_

# Random schedules of the larger models. Another seed shows which planted bugs are found only by chance
shuttle seed="1":
    RUSTFLAGS="--cfg shuttle" SHUTTLE_RANDOM_SEED={{seed}} CARGO_TARGET_DIR=target/shuttle cargo test -p quintet --lib --release shuttle_

# Histories of transactions, checked for serializability: `just histories 2000`
histories count="200" seed="1":
    QUINTET_HISTORIES={{count}} QUINTET_HISTORY_SEED={{seed}} cargo test --release --package quintet --test serializability histories_of_eight -- --nocapture

# The threaded test of one engine, repeated: `just stress trie 500`
stress engine rounds="100":
    QUINTET_STRESS_ENGINE={{engine}} QUINTET_STRESS_ROUNDS={{rounds}} cargo test --package quintet --test threads -- --nocapture

# The threaded tests under ThreadSanitizer, with the given number of operations for each thread
tsan operations="6000":
    .ci/tsan {{operations}}

# The long campaigns. The power cuts need root, the fuzz targets a nightly compiler; mutants are the planted bugs that crashes find
nightly: (crash "5000000") damage faults pmem-crash (powercut "100") kill (fuzz "480") loom (tsan "20000") mutants
    for seed in 1 2 3 4 5 6 7; do just shuttle $seed || exit 1; done
    for engine in naive hashlog trie btree slm tph; do just stress $engine || exit 1; done

# Each planted bug that a crash can show, searched for by crash enumeration
mutants:
    cargo test --release --package quintet --test crash planted_bugs_are_found -- --nocapture

# The C library, its header and its pkg-config file, under a prefix
install-c prefix="/usr/local":
    cargo build --release --package quintet-capi
    crates/quintet-capi/install target/release "{{prefix}}"

# Builds and installs the library with LevelDB's interface: `just install-leveldb /opt/quintet`
install-leveldb prefix:
    cargo build --release --package quintet-leveldb
    crates/quintet-leveldb/install target/release "{{prefix}}"

# Builds and installs the library with RocksDB's interface: `just install-rocksdb /opt/quintet`
install-rocksdb prefix:
    cargo build --release --package quintet-rocksdb
    crates/quintet-rocksdb/install target/release "{{prefix}}"

bench:
    cargo bench --workspace

# Runs the workloads on other stores too: `just compare --preset smoke --out results.jsonl`.
# Run `crates/quintet-compare/setup` first: it builds the stores that are not written in Rust
compare *args:
    cargo run --release --manifest-path crates/quintet-compare/Cargo.toml -- run {{args}}

# The Python package: lints, a wheel, its tests on the wheel
python:
    .ci/python

# Licences, advisories, yanked crates (needs cargo-deny)
deny:
    cargo deny check
