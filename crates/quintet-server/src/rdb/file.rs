//! Files of a dump: records of keys, and what is between them.

use std::io::{self, Read, Write};

use super::{
    failure::{Parsed, VERSION_MAX},
    input::Input,
    item::{Sink, Skip, value_type},
    output::Output,
    value::read_value,
};

/// Opcodes: what a record is, if it is no key.
mod opcode {
    pub(super) const SLOT_INFO: u8 = 0xf4;
    pub(super) const FUNCTION: u8 = 0xf5;
    pub(super) const FUNCTION_OLD: u8 = 0xf6;
    pub(super) const MODULE_AUX: u8 = 0xf7;
    pub(super) const IDLE: u8 = 0xf8;
    pub(super) const FREQUENCY: u8 = 0xf9;
    pub(super) const AUX: u8 = 0xfa;
    pub(super) const RESIZE: u8 = 0xfb;
    pub(super) const EXPIRY_MILLIS: u8 = 0xfc;
    pub(super) const EXPIRY_SECONDS: u8 = 0xfd;
    pub(super) const SELECT: u8 = 0xfe;
    pub(super) const END: u8 = 0xff;
}

/// Opcodes within the data of a module.
mod module {
    pub(super) const END: u64 = 0;
    pub(super) const SIGNED: u64 = 1;
    pub(super) const UNSIGNED: u64 = 2;
    pub(super) const FLOAT: u64 = 3;
    pub(super) const DOUBLE: u64 = 4;
    pub(super) const STRING: u64 = 5;
}

/// Receives the keys of a file.
pub(crate) trait FileSink: Sink {
    /// Begins a key; `expiry` is in milliseconds since 1970. Returns whether its value is wanted.
    fn begin(&mut self, database: u64, key: Vec<u8>, expiry: Option<u64>) -> Parsed<bool>;
    /// Ends a key whose value was wanted.
    fn end(&mut self) -> Parsed;
    /// Receives a fact about the file, such as the version of the server that wrote it.
    fn aux(&mut self, name: &[u8], value: &[u8]) -> Parsed;
}

/// What a file had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Version of the format.
    pub(crate) version: u32,
    /// Number of keys, without those that were skipped.
    pub(crate) keys: u64,
    /// Number of libraries of functions, which are skipped.
    pub(crate) functions: u64,
    /// Number of values of modules, which are skipped.
    pub(crate) module_values: u64,
    /// Number of other records of modules, which are skipped.
    pub(crate) module_records: u64,
}

/// Reads a file to its end and checks its checksum. The source should be buffered.
pub(crate) fn read_file(source: impl Read, sink: &mut impl FileSink) -> Parsed<Summary> {
    let mut input = Input::new(source);
    let mut summary = Summary { version: read_version(&mut input)?, ..Summary::default() };
    let (mut database, mut expiry) = (0, None);
    loop {
        let kind = input.byte()?;
        match kind {
            opcode::END => break,
            opcode::SELECT => database = input.length()?,
            opcode::EXPIRY_MILLIS => expiry = Some(input.millis()?),
            opcode::EXPIRY_SECONDS => {
                expiry = Some(u64::from(u32::from_le_bytes(input.array()?)) * 1000);
            }
            opcode::FREQUENCY => drop(input.byte()?),
            opcode::IDLE => drop(input.length()?),
            opcode::RESIZE => drop((input.length()?, input.length()?)),
            opcode::SLOT_INFO => drop((input.length()?, input.length()?, input.length()?)),
            opcode::AUX => {
                let (name, value) = (input.string()?, input.string()?);
                sink.aux(&name, &value)?;
            }
            opcode::FUNCTION => {
                input.string()?;
                summary.functions += 1;
            }
            opcode::FUNCTION_OLD => {
                return Err(input.malformed(
                    "functions of a release candidate of Redis 7.0; remove them there",
                ));
            }
            opcode::MODULE_AUX => {
                input.length()?;
                skip_module(&mut input)?;
                summary.module_records += 1;
            }
            value_type::MODULE => {
                input.string()?;
                input.length()?;
                skip_module(&mut input)?;
                expiry = None;
                summary.module_values += 1;
            }
            _ => {
                let key = input.string()?;
                let offset = input.offset;
                let is_wanted = sink.begin(database, key, expiry.take());
                if is_wanted.map_err(|failure| failure.at(offset))? {
                    read_value(&mut input, kind, sink)?;
                    sink.end().map_err(|failure| failure.at(offset))?;
                    summary.keys += 1;
                } else {
                    read_value(&mut input, kind, &mut Skip)?;
                }
            }
        }
    }
    check_end(&mut input, summary.version)?;
    Ok(summary)
}

fn read_version<R: Read>(input: &mut Input<R>) -> Parsed<u32> {
    let magic: [u8; 5] = input.array()?;
    let digits: [u8; 4] = input.array()?;
    if magic != *b"REDIS" {
        return Err(input.malformed("a dump of Redis begins with REDIS"));
    }
    let version = std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok());
    version.filter(|version| (1..=u32::from(VERSION_MAX)).contains(version)).ok_or_else(|| {
        let digits = digits.escape_ascii();
        input.malformed(format!("version {digits} is not one of 1 to {VERSION_MAX}"))
    })
}

fn check_end<R: Read>(input: &mut Input<R>, version: u32) -> Parsed {
    // Before version 5 there is no checksum.
    if version < 5 {
        return Ok(());
    }
    let crc = input.crc;
    let stored = input.millis()?;
    // Redis writes 0 if its configuration switches checksums off.
    if stored != 0 && stored != crc {
        return Err(input.malformed(format!(
            "the checksum is {stored:016x}, and that of the bytes before it is {crc:016x}"
        )));
    }
    Ok(())
}

/// Skips the data of a module up to its end.
fn skip_module<R: Read>(input: &mut Input<R>) -> Parsed {
    loop {
        match input.length()? {
            module::END => return Ok(()),
            module::SIGNED | module::UNSIGNED => drop(input.length()?),
            module::FLOAT => drop(input.array::<4>()?),
            module::DOUBLE => drop(input.array::<8>()?),
            module::STRING => drop(input.string()?),
            other => {
                return Err(input.malformed(format!("no word of a module has type {other}")));
            }
        }
    }
}

/// Writes a file.
#[derive(Debug)]
pub(crate) struct FileWriter<W> {
    /// The bytes of values go here.
    pub(crate) output: Output<W>,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file in `target`, which should be buffered.
    pub(crate) fn begin(target: W, version: u16, aux: &[(&str, &str)]) -> io::Result<Self> {
        let mut output = Output::new(target);
        output.raw(format!("REDIS{version:04}").as_bytes())?;
        for (name, value) in aux {
            output.raw(&[opcode::AUX])?;
            output.string(name.as_bytes())?;
            output.string(value.as_bytes())?;
        }
        Ok(Self { output })
    }

    /// Begins a database of `keys` keys, of which `expiring` expire.
    pub(crate) fn select(&mut self, database: u8, keys: u64, expiring: u64) -> io::Result<()> {
        self.output.raw(&[opcode::SELECT])?;
        self.output.length(u64::from(database))?;
        self.output.raw(&[opcode::RESIZE])?;
        self.output.length(keys)?;
        self.output.length(expiring)
    }

    /// Begins a key. Its value must follow.
    pub(crate) fn key(&mut self, key: &[u8], kind: u8, expiry: Option<u64>) -> io::Result<()> {
        if let Some(expiry) = expiry {
            self.output.raw(&[opcode::EXPIRY_MILLIS])?;
            self.output.millis(expiry)?;
        }
        self.output.raw(&[kind])?;
        self.output.string(key)
    }

    /// Ends the file with its checksum. Returns the target.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.output.raw(&[opcode::END])?;
        self.output.finish()?;
        Ok(self.output.into_inner())
    }
}
