//! How models of threads are explored.

/// Runs `model` under the checker that this build is for: loom takes every interleaving with at
/// most three preemptions, shuttle so many random schedules with so many changes of priority
/// (`SHUTTLE_ITERATIONS` says otherwise).
pub fn explore((schedules, changes): (usize, usize), model: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    {
        let _ = (schedules, changes);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }
    #[cfg(shuttle)]
    {
        let asked = std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|count| count.parse().ok());
        shuttle::check_pct(model, asked.unwrap_or(schedules), changes);
    }
}
