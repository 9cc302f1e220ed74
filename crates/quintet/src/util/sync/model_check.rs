//! The one way to run a model of threads under the model checker that this build is for.
//!
//! - `--cfg loom`: loom explores every interleaving with a bounded number of preemptions, and every
//!   order that the memory model allows.
//! - `--cfg shuttle`: shuttle explores random schedules with a few changes of thread priority
//!   (PCT). `SHUTTLE_ITERATIONS` overrides their number, `SHUTTLE_RANDOM_SEED` their seed.
//!
//! A file of models has an [`Exploration`] and a list of [`model_tests!`].

/// How far the checkers explore a model.
#[expect(dead_code, reason = "each checker reads its own fields")]
#[derive(Clone, Copy, Debug)]
pub struct Exploration {
    /// Shuttle: number of schedules.
    pub schedules: usize,
    /// Shuttle: number of changes of thread priority in a schedule.
    pub priority_changes: usize,
    /// Shuttle: also explores as many schedules that may switch at every step.
    pub random_switches: bool,
    /// Shuttle: stack of a task in bytes, if the default of 60 KiB is too small. The seed is then
    /// fixed, and a failure prints no schedule, which would have very many steps.
    pub stack_bytes: Option<usize>,
    /// Loom: maximum number of preemptions in an interleaving; `None`: no bound.
    pub preemptions_max: Option<usize>,
    /// Loom: maximum number of branches in an interleaving, if the default of 1000 is too small.
    pub branches_max: Option<usize>,
}

impl Exploration {
    /// For models of one structure.
    pub const DEFAULT: Self = Self {
        schedules: 2_000,
        priority_changes: 4,
        random_switches: false,
        stack_bytes: None,
        preemptions_max: Some(3),
        branches_max: None,
    };

    /// Runs `model` under loom.
    #[cfg(loom)]
    pub fn explore(self, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = self.preemptions_max;
        if let Some(branches) = self.branches_max {
            builder.max_branches = branches;
        }
        builder.check(model);
    }

    /// Runs `model` under shuttle.
    #[cfg(shuttle)]
    pub fn explore(self, model: impl Fn() + Send + Sync + 'static) {
        use shuttle::scheduler::{PctScheduler, RandomScheduler};
        let count = std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|count| count.parse().ok());
        let (count, changes) = (count.unwrap_or(self.schedules), self.priority_changes);
        let Some(stack_bytes) = self.stack_bytes else {
            return shuttle::check_pct(model, count, changes);
        };
        let model = std::sync::Arc::new(model);
        let mut config = shuttle::Config::new();
        config.failure_persistence = shuttle::FailurePersistence::None;
        config.stack_size = stack_bytes;
        let same = std::sync::Arc::clone(&model);
        let scheduler = PctScheduler::new_from_seed(1, changes, count);
        shuttle::Runner::new(scheduler, config.clone()).run(move || same());
        if self.random_switches {
            let scheduler = RandomScheduler::new_from_seed(1, count);
            shuttle::Runner::new(scheduler, config).run(move || model());
        }
    }
}

/// Declares each model as a test for loom and one for shuttle, by the names given:
/// `loom_stack, shuttle_stack: pushes_beside_pops;`.
macro_rules! model_tests {
    ($($loom:ident, $shuttle:ident: $model:ident;)+) => {
        $(#[cfg(loom)]
        #[test]
        fn $loom() {
            $model();
        }

        #[cfg(shuttle)]
        #[test]
        fn $shuttle() {
            $model();
        })+
    };
}
pub(crate) use model_tests;
