//! Payloads of `DUMP`: a type, a value, the version of the format and a checksum.

use super::{
    crc64,
    failure::{Failure, Parsed, VERSION_MAX},
    input::Input,
    item::Sink,
    value::read_value,
};

/// Bytes behind the value: version and checksum.
const FOOTER_BYTES: usize = 10;

/// A payload whose checksum is right.
#[derive(Debug)]
pub(crate) struct Payload<'p> {
    kind: u8,
    value: &'p [u8],
}

impl<'p> Payload<'p> {
    /// Checks version and checksum. Returns `None` if they are wrong.
    pub(crate) fn verify(payload: &'p [u8]) -> Option<Self> {
        let (body, footer) = payload.split_at_checked(payload.len().checked_sub(FOOTER_BYTES)?)?;
        let (version, crc) = footer.split_first_chunk::<2>()?;
        let is_known = u16::from_le_bytes(*version) <= VERSION_MAX;
        let crc = u64::from_le_bytes(*crc.first_chunk()?);
        let is_right = crc64::update(crc64::update(0, body), version) == crc;
        let (kind, value) = body.split_first()?;
        (is_known && is_right).then_some(Self { kind: *kind, value })
    }

    /// Reads the value. Fails if bytes are left behind it.
    pub(crate) fn read(&self, sink: &mut dyn Sink) -> Parsed {
        let mut input = Input::new(self.value);
        read_value(&mut input, self.kind, sink)?;
        if usize::try_from(input.offset) != Ok(self.value.len()) {
            return Err(Failure::Malformed {
                offset: input.offset,
                what: "bytes behind the value".to_owned(),
            });
        }
        Ok(())
    }
}

/// Adds version and checksum to a type and a value.
pub(crate) fn finish_payload(mut body: Vec<u8>, version: u16) -> Vec<u8> {
    body.extend_from_slice(&version.to_le_bytes());
    let crc = crc64::update(0, &body);
    body.extend_from_slice(&crc.to_le_bytes());
    body
}
