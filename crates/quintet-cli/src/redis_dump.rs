//! `import --rdb` and `export --rdb`: the keys of `quintet serve` from and to a dump of Redis.
//!
//! The server's crate reads and writes the format. A build without the server refuses both.

use std::path::Path;

use crate::{context::Context, failure::Outcome};

#[cfg(not(feature = "serve"))]
mod missing {
    use super::{Context, Outcome, Path};
    use crate::failure::Failure;

    fn refuse() -> Outcome {
        let what = "this build has no server, and so no --rdb; build it with the feature serve";
        Err(Failure::Usage(what.to_owned()))
    }

    /// Fails: the build has no server.
    pub(crate) fn import(
        _: &mut Context<'_>,
        _: (&Path, Option<&str>),
        _: &Path,
        _: bool,
    ) -> Outcome {
        refuse()
    }

    /// Fails: the build has no server.
    pub(crate) fn export(
        _: &mut Context<'_>,
        _: (&Path, Option<&str>),
        _: &Path,
        _: bool,
    ) -> Outcome {
        refuse()
    }
}

#[cfg(not(feature = "serve"))]
pub(crate) use missing::{export, import};

#[cfg(feature = "serve")]
pub(crate) use present::{export, import};

#[cfg(feature = "serve")]
mod present {
    use std::{
        fmt::Write as _,
        fs::File,
        io::{self, BufReader, BufWriter, Write},
    };

    use quintet_server::{StartFailure, export_rdb, import_rdb};
    use serde_json::json;

    use super::{Context, Outcome, Path};
    use crate::{export::NewFile, failure::Failure, progress::Meter};

    fn failed(failure: &StartFailure) -> Failure {
        Failure::Failed(failure.to_string())
    }

    /// Prints a note on standard error.
    fn note(text: &str) {
        // Standard error may be closed; there is no other place for the note.
        let _ = writeln!(io::stderr(), "quintet: note: {text}");
    }

    /// Imports all keys of a dump into a namespace without keys of a directory; without a name,
    /// into `default`.
    pub(crate) fn import(
        context: &mut Context<'_>,
        (dir, namespace): (&Path, Option<&str>),
        file: &Path,
        is_json: bool,
    ) -> Outcome {
        let name = file.to_string_lossy().into_owned();
        let source: Box<dyn io::Read>;
        let mut size = None;
        if file == Path::new("-") {
            source = Box::new(io::stdin().lock());
        } else {
            let opened = File::open(file).map_err(|error| Failure::io(&name, &error))?;
            size = opened.metadata().ok().filter(std::fs::Metadata::is_file);
            source = Box::new(opened);
        }
        let meter = Meter::bytes(size.map(|found| found.len()));
        let source = BufReader::with_capacity(1 << 18, meter.wrap(source));
        let result = import_rdb(dir, namespace, source, &name, context.memory_budget);
        meter.finish();
        let summary = result.map_err(|failure| failed(&failure))?;
        let mut skipped = String::new();
        for (count, what) in [
            (summary.functions, "libraries of functions were skipped"),
            (summary.modules, "values and other data of modules were skipped"),
        ] {
            if count > 0 {
                let separator = if skipped.is_empty() { "" } else { "; " };
                // A write to a string cannot fail.
                let _ = write!(skipped, "{separator}{count} {what}");
            }
        }
        if !skipped.is_empty() {
            note(&skipped);
        }
        if is_json {
            let summary = json!({
                "keys": summary.keys,
                "expired": summary.expired,
                "functions": summary.functions,
                "modules": summary.modules,
            });
            writeln!(context.out, "{summary}")?;
        } else {
            let (keys, expired) = (summary.keys, summary.expired);
            writeln!(context.out, "imported {keys} keys; {expired} had expired")?;
        }
        Ok(())
    }

    /// Exports all keys of a namespace of a directory as a dump; without a name, of `default`.
    pub(crate) fn export(
        context: &mut Context<'_>,
        (dir, namespace): (&Path, Option<&str>),
        file: &Path,
        is_json: bool,
    ) -> Outcome {
        let memory_budget = context.memory_budget;
        if file == Path::new("-") {
            let out = BufWriter::new(&mut *context.out);
            let written = export_rdb(dir, namespace, out, memory_budget, |_| ());
            written.map_err(|failure| failed(&failure))?;
            return Ok(());
        }
        let name = file.to_string_lossy().into_owned();
        let explain = |error| Failure::io(&name, &error);
        let mut target = NewFile::create(file).map_err(explain)?;
        let mut meter: Option<Meter> = None;
        let result = export_rdb(dir, namespace, &mut target, memory_budget, |total| {
            meter.get_or_insert_with(|| Meter::entries(total)).add(1);
        });
        if let Some(meter) = meter {
            meter.finish();
        }
        let summary = result.map_err(|failure| failed(&failure))?;
        target.finish().map_err(explain)?;
        if is_json {
            let summary = json!({ "keys": summary.keys, "expired": summary.expired });
            writeln!(context.out, "{summary}")?;
        } else {
            let (keys, expired) = (summary.keys, summary.expired);
            writeln!(context.out, "exported {keys} keys to {name}; {expired} had expired")?;
        }
        Ok(())
    }
}
