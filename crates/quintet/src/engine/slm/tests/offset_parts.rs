//! Index values have the part of the block in which the entry begins.

use super::*;
use crate::{engine::slm::index_value::part_of_offset, lsm::sst::block};

/// Checks the part of every live entry. Returns the number of live entries.
fn true_parts(engine: &Slm) -> u64 {
    let (view, mut count) = (engine.table.write_buffer.view.load_full(), 0);
    for run in view.version.iter() {
        for number in 0..run.sst.blocks() {
            let span = run.sst.span(number..number + 1);
            let buffer = run.sst.read(span).unwrap();
            let open = run.sst.open_block(&buffer, span, (number, number)).unwrap();
            let mut at = 0;
            while let Some((entry, next)) = block::entry_at(open.entries(), at) {
                let key = &open.entries()[entry.key];
                let index_value = engine.table.index_value(key).unwrap().unwrap();
                if (index_value.address.run, index_value.address.block) == (run.number, number) {
                    assert_eq!(
                        index_value.part,
                        part_of_offset(at, 1024),
                        "{}",
                        key.escape_ascii()
                    );
                    count += 1;
                }
                at = next;
            }
        }
    }
    count
}

/// Checks a sound table.
fn is_sound() {
    let (engine, _) = Bench::new(48).open();
    for number in 0..200_u64 {
        put(&engine, number + 1, &number.to_be_bytes(), &[7; 40]);
    }
    engine.checkpoint(Lsn(201)).unwrap();
    let mut report = Report::default();
    engine.check(&mut report).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_check_finds_a_wrong_part() {
    is_sound();
    finds(Bug::SlmMarksNextPart, is_sound);
}

#[test]
fn index_values_have_the_parts_of_their_entries() {
    let (engine, _) = Bench::new(47).open();
    for number in 0..3_000_u64 {
        let bytes = if number % 50 == 0 { 3_000 } else { number % 90 };
        put(&engine, number + 1, &number.to_be_bytes(), &vec![7; to_usize(bytes)]);
    }
    engine.checkpoint(Lsn(3_001)).unwrap();
    assert_eq!(true_parts(&engine), 3_000);
    engine.maintain(MaintenanceMode::Full).unwrap();
    assert_eq!(true_parts(&engine), 3_000);
}
