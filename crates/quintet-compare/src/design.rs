//! The designs of the papers: an engine with the options that make it what its paper describes.
//!
//! Each is a store of its own, beside the engine with our defaults. Options of an experiment and of
//! the command line that name the engine apply to both.

use crate::paper::Paper;

/// An engine with the options of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// Name of the store.
    pub name: &'static str,
    /// Paper.
    pub paper: Paper,
    /// Engine.
    pub engine: &'static str,
    /// Options by name.
    pub settings: &'static [(&'static str, &'static str)],
}

/// All designs.
///
/// - `CedrusDB`: `HighwayHash` of 256 bits, 256 children a node, lists that become a node at 16
///   keys and are linked one by one (sections 3.1 and 3.2).
/// - `SLM-DB`: memtables and index in persistent memory whose writes take 500 ns a line (6.1).
/// - `CompassDB`: two tiers of perfect hashes, built by displacement (3.1 to 3.5).
/// - ckvs: pages of 16 KiB that give way at random.
/// - `LogKV`: chunks of 2 MB without compression, `NaiveKV`: a snapshot each 2 MB.
pub const DESIGNS: &[Design] = &[
    Design {
        name: "trie-cedrusdb",
        paper: Paper::CedrusDb,
        engine: "trie",
        settings: &[
            ("hash", "highway256"),
            ("fanout", "256"),
            ("sluggishness", "16"),
            ("layout", "chain"),
        ],
    },
    Design {
        name: "slm-slmdb",
        paper: Paper::SlmDb,
        engine: "slm",
        settings: &[("medium", "pmem"), ("pmem_latency_ns", "500")],
    },
    Design {
        name: "tph-compassdb",
        paper: Paper::CompassDb,
        engine: "tph",
        settings: &[("tiers", "two"), ("perfect_hash", "cphash")],
    },
    Design {
        name: "btree-ckvs",
        paper: Paper::Ckvs,
        engine: "btree",
        settings: &[("page_bytes", "16384"), ("replacement", "random")],
    },
    Design {
        name: "hashlog-logkv",
        paper: Paper::LogKv,
        engine: "hashlog",
        settings: &[("chunk_bytes", "2097152"), ("compression", "none")],
    },
];

/// Returns the design of this name.
pub fn find(name: &str) -> Option<&'static Design> {
    DESIGNS.iter().find(|design| design.name == name)
}

/// Returns the design of a paper on an engine.
pub fn of(paper: Paper, engine: &str) -> Option<&'static Design> {
    DESIGNS.iter().find(|design| design.paper == paper && design.engine == engine)
}

impl Design {
    /// Returns the options of the design, then those of a run, which replace them.
    pub(crate) fn settings(&self, of_run: &[(String, String)]) -> Vec<(String, String)> {
        let own =
            self.settings.iter().filter(|(name, _)| of_run.iter().all(|(run, _)| run != name));
        let own = own.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        own.chain(of_run.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_run_replace_those_of_a_design() {
        let slm = find("slm-slmdb").unwrap();
        let run = [("pmem_latency_ns".to_owned(), "900".to_owned())];
        let all = slm.settings(&run);
        assert_eq!(all.len(), slm.settings.len());
        assert_eq!(all.iter().filter(|(name, _)| name == "pmem_latency_ns").count(), 1);
        assert_eq!(all.last(), run.first());
    }

    #[test]
    fn designs_are_options_that_their_engines_accept() {
        for design in DESIGNS {
            let mut options = quintet::TableOptions::new(design.engine.parse().unwrap());
            for (name, value) in design.settings {
                options = options.set(*name, *value);
            }
            quintet::check_table_options(options).unwrap();
            assert!(design.name.starts_with(design.engine), "{}", design.name);
        }
    }
}
