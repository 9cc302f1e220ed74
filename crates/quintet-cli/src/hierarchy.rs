//! `list`, `mount`, `unmount`, `mounts` and `defaults`: directories of tables.

use std::io::Write;

use quintet::{ChildKind, Database, Error, MountOptions, TableOptions, check_table_path};
use serde_json::json;

use crate::{
    arguments::{self, DurabilityChoice},
    context::{Context, open_or_create},
    failure::{Failure, Outcome},
    options,
};

/// Prints the children of a directory: name, tab, engine or kind.
pub(crate) fn print_children(
    database: &Database,
    path: &str,
    as_json: bool,
    out: &mut dyn Write,
) -> Outcome {
    for child in database.children(path)? {
        let (kind, engine) = match child.kind {
            ChildKind::Directory => ("directory", None),
            ChildKind::Table(engine) => ("table", Some(engine.name())),
            ChildKind::Mount => ("mount", None),
            _ => ("other", None),
        };
        if as_json {
            let mut object = json!({ "name": child.name, "kind": kind });
            if let Some(engine) = engine {
                object["engine"] = engine.into();
            }
            writeln!(out, "{object}")?;
        } else {
            writeln!(out, "{}\t{}", child.name, engine.unwrap_or(kind))?;
        }
    }
    Ok(())
}

/// `list`
pub(crate) fn list(context: &mut Context<'_>, command: &arguments::ListArgs) -> Outcome {
    let database = context.open_to_read(&command.dir)?;
    let path = command.path.as_str();
    if let Err(Error::NoSuchTable { .. }) = database.children(path) {
        let dir = command.dir.display();
        let what = format!("no directory of tables is named {path:?}");
        return Err(Failure::Failed(format!("{what}; `quintet list {dir}` lists the root")));
    }
    print_children(&database, path, command.json, context.out)
}

/// `mount`
pub(crate) fn mount(context: &mut Context<'_>, command: &arguments::MountArgs) -> Outcome {
    let database = context.open_to_write(&command.dir, DurabilityChoice::Sync)?;
    let options = MountOptions::new(&command.target)
        .subtree(command.subtree.as_deref().unwrap_or_default())
        .read_only(command.read_only);
    database.mount(&command.path, options)?;
    Ok(database.close()?)
}

/// `unmount`
pub(crate) fn unmount(context: &mut Context<'_>, command: &arguments::UnmountArgs) -> Outcome {
    let database = context.open_to_write(&command.dir, DurabilityChoice::Sync)?;
    database.unmount(&command.path).map_err(|error| match error {
        Error::NoSuchTable { name } => Failure::Failed(format!(
            "no mount named {name:?}; `quintet mounts {}` lists the mounts",
            command.dir.display()
        )),
        other => other.into(),
    })?;
    Ok(database.close()?)
}

/// `mounts`
pub(crate) fn mounts(context: &mut Context<'_>, command: &arguments::MountsArgs) -> Outcome {
    let database = context.open_to_read(&command.dir)?;
    for mount in database.mounts() {
        let target = mount.target.display();
        if command.json {
            let object = json!({
                "mount": mount.name,
                "target": target.to_string(),
                "subtree": mount.subtree,
                "read_only": mount.read_only,
            });
            writeln!(context.out, "{object}")?;
        } else {
            let how = if mount.read_only { "read-only" } else { "read-write" };
            writeln!(context.out, "{}\t{target}\t{}\t{how}", mount.name, mount.subtree)?;
        }
    }
    Ok(())
}

/// `defaults`
pub(crate) fn defaults(context: &mut Context<'_>, command: &arguments::DefaultsArgs) -> Outcome {
    let is_typed = command.typing.types()?.is_some();
    let Some(engine) = command.engine else {
        if !command.options.is_empty() || is_typed {
            return Err(Failure::Usage("options and types need --engine".to_owned()));
        }
        if command.clear {
            let database = context.open_to_write(&command.dir, DurabilityChoice::Sync)?;
            database.set_default_options(&command.path, None)?;
            return Ok(database.close()?);
        }
        let database = context.open_to_read(&command.dir)?;
        if let Some(options) = database.default_options(&command.path)? {
            print_options(&options, context.out)?;
        }
        return Ok(());
    };
    if !command.path.is_empty() {
        check_table_path(&command.path)?;
    }
    let options = options::of_table(engine, &command.options, &command.typing)?;
    let database = open_or_create(&context.options(), &command.dir)?;
    database.set_default_options(&command.path, Some(&options))?;
    Ok(database.close()?)
}

/// Prints options in the syntax of the arguments of `create`.
fn print_options(options: &TableOptions, out: &mut dyn Write) -> Outcome {
    write!(out, "--engine {}", options.kind())?;
    for (name, value) in options.settings() {
        write!(out, " --option {name}={value}")?;
    }
    if let Some(types) = options.table_types() {
        write!(out, " --key-type {} --value-type {}", types.key_names(), types.value())?;
    }
    Ok(writeln!(out)?)
}
