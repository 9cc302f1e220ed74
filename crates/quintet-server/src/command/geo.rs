//! Places in sorted sets. A score has longitude and latitude in 26 bits each, interleaved.

use std::ops::ControlFlow;

use super::{
    call::{Call, commands},
    sorted_set::Scored,
};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    store::{Kind, check_names, event},
};

commands! { Group::Geo;
    "geoadd" -5 [WRITE DENYOOM] Keys::ONE, geoadd, "3.2.0",
        "Adds one or more members to a geospatial index. The key is created if it doesn't exist.";
    "geodist" -4 [READ] Keys::ONE, geodist, "3.2.0",
        "Returns the distance between two members of a geospatial index.";
    "geohash" -2 [READ] Keys::ONE, geohash, "3.2.0",
        "Returns members from a geospatial index as geohash strings.";
    "geopos" -2 [READ] Keys::ONE, geopos, "3.2.0",
        "Returns the longitude and latitude of members from a geospatial index.";
    "georadius" -6 [WRITE DENYOOM] Keys::Stored, georadius, "3.2.0",
        "Queries a geospatial index for members within a distance from a coordinate.";
    "georadius_ro" -6 [READ] Keys::ONE, georadius_ro, "3.2.10",
        "Returns members from a geospatial index that are within a distance from a coordinate.";
    "georadiusbymember" -5 [WRITE DENYOOM] Keys::Stored, georadiusbymember, "3.2.0",
        "Queries a geospatial index for members within a distance from a member.";
    "georadiusbymember_ro" -5 [READ] Keys::ONE, georadiusbymember_ro, "3.2.10",
        "Returns members from a geospatial index that are within a distance from a member.";
    "geosearch" -7 [READ] Keys::ONE, geosearch, "6.2.0",
        "Queries a geospatial index for members inside an area of a box or a circle.";
    "geosearchstore" -8 [WRITE DENYOOM] Keys::TWO, geosearchstore, "6.2.0",
        "Queries a geospatial index for members inside an area, and stores the result.";
}

const LONGITUDE_MAX: f64 = 180.0;
/// The limit of Web Mercator.
const LATITUDE_MAX: f64 = 85.051_128_78;
/// Radius of the earth in metres, as Redis has it.
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Steps of a coordinate: 2^26.
const STEPS: f64 = 67_108_864.0;
const STEP_BITS: u32 = 26;

/// Longitude and latitude in degrees.
type Position = (f64, f64);

/// The step of a coordinate in its range.
fn step(value: f64, limit: f64) -> u32 {
    let steps = ((value + limit) / (2.0 * limit) * STEPS).floor();
    format!("{steps:.0}").parse::<u32>().unwrap_or(0).min((1 << STEP_BITS) - 1)
}

/// Interleaves longitude (odd bits) and latitude (even bits).
fn encode((longitude, latitude): Position, latitude_max: f64) -> u64 {
    let (x, y) = (step(longitude, LONGITUDE_MAX), step(latitude, latitude_max));
    (0..STEP_BITS).fold(0, |bits, at| {
        bits | u64::from(y >> at & 1) << (2 * at) | u64::from(x >> at & 1) << (2 * at + 1)
    })
}

/// The score of a place. It has 52 bits, so it is exact.
fn score_of(position: Position) -> f64 {
    let bits = encode(position, LATITUDE_MAX);
    let (high, low) =
        (u32::try_from(bits >> 26).unwrap_or(0), u32::try_from(bits & 0x3ff_ffff).unwrap_or(0));
    f64::from(high) * STEPS + f64::from(low)
}

/// The middle of the cell of a score.
fn position_of(score: f64) -> Position {
    let bits = format!("{score:.0}").parse::<u64>().unwrap_or(0);
    let every_second = |from: u32| -> u32 {
        (0..STEP_BITS).fold(0, |value, at| {
            value | u32::try_from(bits >> (2 * at + from) & 1).unwrap_or(0) << at
        })
    };
    let middle = |step: u32, limit: f64| {
        let low = -limit + f64::from(step) / STEPS * 2.0 * limit;
        let high = -limit + (f64::from(step) + 1.0) / STEPS * 2.0 * limit;
        f64::midpoint(low, high)
    };
    (
        middle(every_second(1), LONGITUDE_MAX).clamp(-LONGITUDE_MAX, LONGITUDE_MAX),
        middle(every_second(0), LATITUDE_MAX).clamp(-LATITUDE_MAX, LATITUDE_MAX),
    )
}

/// Distance in metres on a sphere (haversine).
fn distance(from: Position, to: Position) -> f64 {
    let (from_latitude, to_latitude) = (from.1.to_radians(), to.1.to_radians());
    let east = ((to.0.to_radians() - from.0.to_radians()) / 2.0).sin();
    let north = ((to_latitude - from_latitude) / 2.0).sin();
    if east == 0.0 {
        return EARTH_RADIUS * (to_latitude - from_latitude).abs();
    }
    let half = north * north + from_latitude.cos() * to_latitude.cos() * east * east;
    2.0 * EARTH_RADIUS * half.sqrt().asin()
}

fn parse_unit(word: &[u8]) -> Done<f64> {
    match word.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(Fail::new("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

fn parse_position(call: &Call<'_, '_>, at: usize) -> Done<Position> {
    let (longitude, latitude) = (call.float(at)?, call.float(at + 1)?);
    let is_valid = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
    if is_valid {
        return Ok((longitude, latitude));
    }
    Err(Fail::with(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

fn geoadd(call: &mut Call<'_, '_>) -> Done {
    let (mut must_exist, mut counts_changes, mut at) = (None, false, 2);
    loop {
        match call.args.at(at).to_ascii_lowercase().as_slice() {
            b"nx" if must_exist != Some(true) => must_exist = Some(false),
            b"xx" if must_exist != Some(false) => must_exist = Some(true),
            b"nx" | b"xx" => {
                return Err(Fail::new("ERR XX and NX options at the same time are not compatible"));
            }
            b"ch" => counts_changes = true,
            _ => break,
        }
        at += 1;
    }
    if call.args.len() <= at || !(call.args.len() - at).is_multiple_of(3) {
        return Err(Fail::SYNTAX);
    }
    let mut places = Vec::new();
    for at in (at..call.args.len()).step_by(3) {
        places.push((score_of(parse_position(call, at)?), call.args.at(at + 2)));
    }
    check_names(places.iter().map(|(_, member)| *member))?;
    let key = call.key();
    if must_exist == Some(true) && !call.check_kind(key, Kind::SortedSet)? {
        call.reply.integer(0);
        return Ok(());
    }
    let mut set = call.create_sorted_set(key)?;
    let (mut count, mut is_told) = (0, false);
    for (score, member) in places {
        let old = set.score(member)?;
        if must_exist.is_some_and(|must_exist| must_exist != old.is_some()) {
            continue;
        }
        set.put(member, score)?;
        is_told |= old.is_none_or(|old| old.to_bits() != score.to_bits());
        let is_changed = old.is_none_or(|old| counts_changes && old.to_bits() != score.to_bits());
        count += usize::from(is_changed);
    }
    if is_told {
        call.notify(event::SORTED_SET, "zadd", key);
    }
    call.reply.count(count);
    Ok(())
}

/// The places of members.
fn positions(call: &mut Call<'_, '_>, members: &[&[u8]]) -> Done<Vec<Option<Position>>> {
    let key = call.key();
    let Some(set) = call.sorted_set(key)? else { return Ok(vec![None; members.len()]) };
    members.iter().map(|member| Ok(set.score(member)?.map(position_of))).collect()
}

fn geodist(call: &mut Call<'_, '_>) -> Done {
    let unit = match call.args.len() {
        4 => 1.0,
        5 => parse_unit(call.args.at(4))?,
        _ => return Err(Fail::SYNTAX),
    };
    let members = [call.args.at(2), call.args.at(3)];
    match positions(call, &members)?.as_slice() {
        [Some(a), Some(b)] => call.reply.text(&format!("{:.4}", distance(*a, *b) / unit)),
        _ => call.reply.null(),
    }
    Ok(())
}

fn geopos(call: &mut Call<'_, '_>) -> Done {
    let members: Vec<&[u8]> = call.args.from(2).collect();
    let found = positions(call, &members)?;
    call.reply.array(found.len());
    for position in found {
        match position {
            Some(position) => reply_position(call, position),
            None => call.reply.null_array(),
        }
    }
    Ok(())
}

fn reply_position(call: &mut Call<'_, '_>, (longitude, latitude): Position) {
    call.reply.array(2);
    for number in [longitude, latitude] {
        let text = format!("{number:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        call.reply.number(text);
    }
}

fn geohash(call: &mut Call<'_, '_>) -> Done {
    const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    let members: Vec<&[u8]> = call.args.from(2).collect();
    let found = positions(call, &members)?;
    call.reply.array(found.len());
    for position in found {
        let Some(position) = position else {
            call.reply.null();
            continue;
        };
        // Geohash has the whole range of latitudes. Its last digit has no bits left here.
        let bits = encode(position, 90.0);
        let mut text: Vec<u8> = (1..=10)
            .map(|digit| {
                let index = usize::try_from(bits >> (52 - 5 * digit) & 31).unwrap_or(0);
                DIGITS.get(index).copied().unwrap_or(b'0')
            })
            .collect();
        text.push(b'0');
        call.reply.bulk(&text);
    }
    Ok(())
}

/// The area of a search, in metres.
#[derive(Clone, Copy)]
enum Area {
    Circle(f64),
    Box(f64, f64),
}

/// Options of a search.
#[derive(Default)]
struct Search<'c> {
    center: Option<Position>,
    area: Option<Area>,
    unit: f64,
    count: Option<usize>,
    is_any: bool,
    /// Whether the result is sorted from near to far, or from far to near.
    ascending: Option<bool>,
    with: (bool, bool, bool),
    store: Option<&'c [u8]>,
    stores_distance: bool,
}

impl Area {
    /// The distance of a place from the center, if it is inside.
    fn distance(self, center: Position, place: Position) -> Option<f64> {
        let away = distance(center, place);
        match self {
            Self::Circle(radius) => (away <= radius).then_some(away),
            Self::Box(width, height) => {
                let north = distance((place.0, place.1), (place.0, center.1));
                let east = distance((place.0, place.1), (center.0, place.1));
                (north <= height / 2.0 && east <= width / 2.0).then_some(away)
            }
        }
    }
}

/// Parses the options from argument `at`. `is_search` allows those of `GEOSEARCH`.
fn parse_search<'c>(
    call: &mut Call<'c, '_>,
    source: &[u8],
    mut at: usize,
    mut search: Search<'c>,
    (is_search, may_store): (bool, bool),
) -> Done<Search<'c>> {
    let args = call.args;
    while let Some(word) = args.get(at) {
        let left = args.len() - at - 1;
        match word.to_ascii_lowercase().as_slice() {
            b"withdist" => search.with.0 = true,
            b"withhash" => search.with.1 = true,
            b"withcoord" => search.with.2 = true,
            b"asc" => search.ascending = Some(true),
            b"desc" => search.ascending = Some(false),
            b"any" if search.count.is_some() => search.is_any = true,
            b"count" if left >= 1 => {
                let count = usize::try_from(call.integer(at + 1)?).ok().filter(|count| *count > 0);
                search.count = Some(count.ok_or(Fail::new("ERR COUNT must be > 0"))?);
                at += 1;
            }
            b"store" | b"storedist" if left >= 1 && may_store && !is_search => {
                search.store = Some(args.at(at + 1));
                search.stores_distance = word.len() > 5;
                at += 1;
            }
            b"storedist" if is_search && may_store => search.stores_distance = true,
            b"fromlonlat" if left >= 2 && is_search && search.center.is_none() => {
                search.center = Some(parse_position(call, at + 1)?);
                at += 2;
            }
            b"frommember" if left >= 1 && is_search && search.center.is_none() => {
                search.center = Some(center_of(call, source, args.at(at + 1))?);
                at += 1;
            }
            b"byradius" if left >= 2 && is_search && search.area.is_none() => {
                parse_radius(call, at + 1, &mut search)?;
                at += 2;
            }
            b"bybox" if left >= 3 && is_search && search.area.is_none() => {
                parse_box(call, at + 1, &mut search)?;
                at += 3;
            }
            _ => return Err(Fail::SYNTAX),
        }
        at += 1;
    }
    Ok(search)
}

fn parse_radius(call: &Call<'_, '_>, at: usize, search: &mut Search<'_>) -> Done {
    let radius =
        crate::number::parse_f64(call.args.at(at)).ok_or(Fail::new("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(Fail::new("ERR radius cannot be negative"));
    }
    search.unit = parse_unit(call.args.at(at + 1))?;
    search.area = Some(Area::Circle(radius * search.unit));
    Ok(())
}

fn parse_box(call: &Call<'_, '_>, at: usize, search: &mut Search<'_>) -> Done {
    let parse = |at: usize, fail: Fail| crate::number::parse_f64(call.args.at(at)).ok_or(fail);
    let width = parse(at, Fail::new("ERR need numeric width"))?;
    let height = parse(at + 1, Fail::new("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Fail::new("ERR height or width cannot be negative"));
    }
    search.unit = parse_unit(call.args.at(at + 2))?;
    search.area = Some(Area::Box(width * search.unit, height * search.unit));
    Ok(())
}

fn center_of(call: &mut Call<'_, '_>, key: &[u8], member: &[u8]) -> Done<Position> {
    let score = match call.sorted_set(key)? {
        Some(set) => set.score(member)?,
        // Without the sorted set there is nothing to find, from whatever center.
        None => return Ok((0.0, 0.0)),
    };
    score.map(position_of).ok_or(Fail::new("ERR could not decode requested zset member"))
}

fn run_search(call: &mut Call<'_, '_>, source: &[u8], search: &Search<'_>) -> Done {
    let (Some(center), Some(area)) = (search.center, search.area) else { return Err(Fail::SYNTAX) };
    let mut found: Vec<(f64, Scored)> = Vec::new();
    if let Some(set) = call.sorted_set(source)? {
        // Only what is inside is copied.
        set.visit_all(|member, score| {
            let Some(away) = area.distance(center, position_of(score)) else {
                return ControlFlow::Continue(());
            };
            found.push((away, (member.to_vec(), score)));
            set.hold(member.len())
        })?;
    }
    // The nearest of a count, unless any will do.
    let order = search.ascending.or((search.count.is_some() && !search.is_any).then_some(true));
    match order {
        Some(true) => found.sort_by(|a, b| a.0.total_cmp(&b.0)),
        Some(false) => found.sort_by(|a, b| b.0.total_cmp(&a.0)),
        None => {}
    }
    found.truncate(search.count.unwrap_or(usize::MAX));
    if let Some(target) = search.store {
        let members: Vec<Scored> = found
            .into_iter()
            .map(|(away, (member, score))| {
                (member, if search.stores_distance { away / search.unit } else { score })
            })
            .collect();
        let is_search = call.args.is(0, "geosearchstore");
        let name = if is_search { "geosearchstore" } else { "georadiusstore" };
        call.store_sorted_set(target, &members, name)?;
        call.reply.count(members.len());
        return Ok(());
    }
    reply_found(call, &found, search);
    Ok(())
}

fn reply_found(call: &mut Call<'_, '_>, found: &[(f64, Scored)], search: &Search<'_>) {
    let (with_distance, with_hash, with_position) = search.with;
    let extra = [with_distance, with_hash, with_position].iter().filter(|with| **with).count();
    call.reply.array(found.len());
    for (away, (member, score)) in found {
        if extra > 0 {
            call.reply.array(extra + 1);
        }
        call.reply.bulk(member);
        if with_distance {
            call.reply.text(&format!("{:.4}", away / search.unit));
        }
        if with_hash {
            call.reply.integer(format!("{score:.0}").parse().unwrap_or(0));
        }
        if with_position {
            reply_position(call, position_of(*score));
        }
    }
}

fn geosearch(call: &mut Call<'_, '_>) -> Done {
    let source = call.key();
    let search = parse_search(call, source, 2, Search::default(), (true, false))?;
    check_search(&search)?;
    run_search(call, source, &search)
}

fn geosearchstore(call: &mut Call<'_, '_>) -> Done {
    let (target, source) = (call.key(), call.args.at(2));
    let search = Search { store: Some(target), ..Search::default() };
    let search = parse_search(call, source, 3, search, (true, true))?;
    check_search(&search)?;
    run_search(call, source, &search)
}

fn check_search(search: &Search<'_>) -> Done {
    if search.center.is_none() {
        return Err(Fail::new(
            "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for \
         GEOSEARCH",
        ));
    }
    if search.area.is_none() {
        return Err(Fail::new(
            "ERR exactly one of BYRADIUS and BYBOX can be specified for \
         GEOSEARCH",
        ));
    }
    Ok(())
}

/// Runs `GEORADIUS`, whose center is a place, or `GEORADIUSBYMEMBER`.
fn search_around(call: &mut Call<'_, '_>, is_member: bool, may_store: bool) -> Done {
    let source = call.key();
    let mut search = Search::default();
    let at = if is_member { 3 } else { 4 };
    search.center = Some(if is_member {
        center_of(call, source, call.args.at(2))?
    } else {
        parse_position(call, 2)?
    });
    parse_radius(call, at, &mut search)?;
    let search = parse_search(call, source, at + 2, search, (false, may_store))?;
    run_search(call, source, &search)
}

fn georadius(call: &mut Call<'_, '_>) -> Done {
    search_around(call, false, true)
}

fn georadius_ro(call: &mut Call<'_, '_>) -> Done {
    search_around(call, false, false)
}

fn georadiusbymember(call: &mut Call<'_, '_>) -> Done {
    search_around(call, true, true)
}

fn georadiusbymember_ro(call: &mut Call<'_, '_>) -> Done {
    search_around(call, true, false)
}
