//! Arguments of the methods: durations, times, conditions, bounds of ranges.

use std::{
    ops::Bound as End,
    time::{Duration, SystemTime},
};

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PySlice,
};
use quintet::{DeleteOptions, Durability, KeyRange, PutOptions, UpdateOptions};

use crate::codec::Codec;

/// The bounds of a range, encoded.
pub(crate) type Bounds = (End<Vec<u8>>, End<Vec<u8>>);

/// Reads seconds: a number or a `timedelta`.
pub(crate) fn duration(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = match value.extract::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => value
            .call_method0("total_seconds")
            .and_then(|seconds| seconds.extract())
            .map_err(|_| PyTypeError::new_err("expected seconds as a number, or a timedelta"))?,
    };
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Reads a moment: seconds since 1970, or a `datetime`.
pub(crate) fn moment(value: &Bound<'_, PyAny>) -> PyResult<SystemTime> {
    let seconds = match value.extract::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => value
            .call_method0("timestamp")
            .and_then(|seconds| seconds.extract())
            .map_err(|_| PyTypeError::new_err("expected seconds since 1970, or a datetime"))?,
    };
    let since = Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    SystemTime::UNIX_EPOCH
        .checked_add(since)
        .ok_or_else(|| PyValueError::new_err("the time is too far in the future"))
}

/// Returns the durability that `sync` asks for.
pub(crate) fn durability(sync: bool) -> Durability {
    if sync { Durability::Sync } else { Durability::Buffered }
}

/// The keyword arguments of a put.
pub(crate) struct PutArguments<'a, 'py> {
    pub(crate) ttl: Option<&'a Bound<'py, PyAny>>,
    pub(crate) expires_at: Option<&'a Bound<'py, PyAny>>,
    pub(crate) if_absent: bool,
    pub(crate) if_present: bool,
    pub(crate) sync: Option<bool>,
}

impl PutArguments<'_, '_> {
    /// Whether every argument has its default.
    pub(crate) fn is_plain(&self) -> bool {
        self.ttl.is_none()
            && self.expires_at.is_none()
            && !self.if_absent
            && !self.if_present
            && self.sync.is_none()
    }

    /// Returns the options of the put.
    pub(crate) fn options(&self) -> PyResult<PutOptions> {
        let mut options = PutOptions::new();
        match (self.ttl, self.expires_at) {
            (Some(_), Some(_)) => return Err(both("ttl", "expires_at")),
            (Some(ttl), None) => options = options.ttl(duration(ttl)?),
            (None, Some(time)) => options = options.expires_at(moment(time)?),
            (None, None) => {}
        }
        options = match (self.if_absent, self.if_present) {
            (true, true) => return Err(both("if_absent", "if_present")),
            (true, false) => options.if_absent(),
            (false, true) => options.if_present(),
            (false, false) => options,
        };
        Ok(match self.sync {
            Some(sync) => options.durability(durability(sync)),
            None => options,
        })
    }
}

/// Returns the options of a delete.
pub(crate) fn delete_options(if_present: bool, sync: Option<bool>) -> DeleteOptions {
    let mut options = DeleteOptions::new();
    if if_present {
        options = options.if_present();
    }
    match sync {
        Some(sync) => options.durability(durability(sync)),
        None => options,
    }
}

/// Returns the options of an update. Without `ttl` and `expires_at` the value keeps its expiry.
pub(crate) fn update_options(
    ttl: Option<&Bound<'_, PyAny>>,
    expires_at: Option<&Bound<'_, PyAny>>,
    sync: Option<bool>,
) -> PyResult<UpdateOptions> {
    let mut options = UpdateOptions::new();
    match (ttl, expires_at) {
        (Some(_), Some(_)) => return Err(both("ttl", "expires_at")),
        (Some(ttl), None) => options = options.ttl(duration(ttl)?),
        (None, Some(time)) => options = options.expires_at(moment(time)?),
        (None, None) => {}
    }
    Ok(match sync {
        Some(sync) => options.durability(durability(sync)),
        None => options,
    })
}

fn both(one: &str, other: &str) -> PyErr {
    PyTypeError::new_err(format!("give {one} or {other}, not both"))
}

/// The arguments of a range.
#[derive(Default)]
pub(crate) struct RangeArguments<'a, 'py> {
    pub(crate) start: Option<&'a Bound<'py, PyAny>>,
    pub(crate) stop: Option<&'a Bound<'py, PyAny>>,
    pub(crate) prefix: Option<&'a Bound<'py, PyAny>>,
    pub(crate) excludes_start: bool,
    pub(crate) includes_stop: bool,
}

impl RangeArguments<'_, '_> {
    /// Returns the encoded bounds.
    pub(crate) fn bounds(&self, keys: &Codec) -> PyResult<Bounds> {
        if let Some(prefix) = self.prefix {
            if self.start.is_some() || self.stop.is_some() {
                return Err(PyTypeError::new_err("give a prefix or bounds, not both"));
            }
            let KeyRange { start, end } = KeyRange::prefix(&keys.encode_prefix(prefix)?);
            return Ok((
                start.map_or(End::Unbounded, End::Included),
                end.map_or(End::Unbounded, End::Excluded),
            ));
        }
        let start = match self.start {
            None => End::Unbounded,
            Some(key) if self.excludes_start => End::Excluded(keys.encode(key)?.to_vec()),
            Some(key) => End::Included(keys.encode(key)?.to_vec()),
        };
        let stop = match self.stop {
            None => End::Unbounded,
            Some(key) if self.includes_stop => End::Included(keys.encode(key)?.to_vec()),
            Some(key) => End::Excluded(keys.encode(key)?.to_vec()),
        };
        Ok((start, stop))
    }
}

/// Returns the bounds of `table[start:stop:step]`, and whether it is read backwards.
pub(crate) fn slice(keys: &Codec, slice: &Bound<'_, PySlice>) -> PyResult<(Bounds, bool)> {
    let part = |name| slice.getattr(name).map(|part| (!part.is_none()).then_some(part));
    let stride = part("step")?.map_or(Ok(1), |step| step.extract::<i64>()).unwrap_or(0);
    if !matches!(stride, 1 | -1) {
        return Err(PyValueError::new_err(
            "the step of a range of keys is 1, or -1 for descending keys; \
             the bounds stay start:stop",
        ));
    }
    let (start, stop) = (part("start")?, part("stop")?);
    let (start, stop) = (start.as_ref(), stop.as_ref());
    let bounds = RangeArguments { start, stop, ..RangeArguments::default() }.bounds(keys)?;
    Ok((bounds, stride == -1))
}
