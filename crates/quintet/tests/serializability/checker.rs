//! Searches a history of transactions for anomalies (Adya's phenomena), as Elle does.
//!
//! Two kinds of keys are observed. A *list* is read and written back with one unique number more,
//! so a read of it shows its whole history. A *register* is overwritten with a unique number.
//!
//! First come the anomalies that one read shows: of an aborted transaction (G1a), of a state that
//! its transaction overwrote itself (G1b), of a state without own writes, twice with two answers.
//! Then a graph is built. Its nodes are the committed transactions, and its edges say which came
//! first:
//!
//! | edge | from | to |
//! |---|---|---|
//! | ww | the writer of a version | the writer of a later version |
//! | wr | the writer of a version | its reader |
//! | rw | the reader of a version | the writer of the next version |
//! | time | a transaction | one that began after it had returned |
//!
//! A cycle is an anomaly; the kinds of its edges name it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
};

/// A key of a history. Lists and registers have different numbers.
pub type Key = u32;
/// A number that one transaction appends or writes, once.
pub type Number = u32;

/// A step of a transaction, with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read a list. `by_range`: a range or a scan showed it, or (empty) did not.
    ReadList { key: Key, list: Vec<Number>, by_range: bool },
    /// Appended to a list.
    Append { key: Key, number: Number },
    /// Read a register.
    ReadRegister { key: Key, number: Option<Number>, by_range: bool },
    /// Overwrote a register.
    WriteRegister { key: Key, number: Number },
}

/// A transaction of a history.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Time before the first step, and after the last.
    pub called: u64,
    pub returned: u64,
    pub is_committed: bool,
    pub steps: Vec<Step>,
}

/// What an isolation excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two transactions overwrite each other, on two keys in different order.
    G0,
    /// A read of a transaction that was rolled back.
    G1a,
    /// A read of a state that its transaction overwrote itself.
    G1b,
    /// A cycle of writes and reads: two transactions saw each other's writes.
    G1c,
    /// A write replaced one that it had not seen.
    LostUpdate,
    /// Reads of two moments.
    ReadSkew,
    /// Each transaction read what another one overwrote.
    WriteSkew,
    /// The same, with a key that a range did not show.
    Phantom,
    /// A transaction did not read its own write.
    OwnWriteMissed,
    /// A transaction saw an old state, although a newer one was acknowledged before it began.
    StaleRead,
}

/// An anomaly, with the steps that show it.
#[derive(Debug)]
pub struct Violation {
    pub anomaly: Anomaly,
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.anomaly, self.text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EdgeKind {
    Ww,
    Wr,
    Rw { by_range: bool },
    Time,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    to: usize,
    kind: EdgeKind,
    key: Key,
}

/// What a transaction read of a key before it wrote it.
#[derive(Clone, Debug)]
struct ListRead {
    transaction: usize,
    key: Key,
    list: Vec<Number>,
    by_range: bool,
}

#[derive(Clone, Debug)]
struct RegisterRead {
    transaction: usize,
    key: Key,
    number: Option<Number>,
    by_range: bool,
}

#[derive(Default)]
struct Facts {
    list_reads: Vec<ListRead>,
    register_reads: Vec<RegisterRead>,
    /// Committed appends and writes by key and number, with their transaction.
    appended: HashMap<(Key, Number), usize>,
    written: HashMap<(Key, Number), usize>,
    /// Numbers that their transaction overwrote itself.
    intermediate: BTreeSet<(Key, Number)>,
}

fn violation(anomaly: Anomaly, text: impl Into<String>) -> Violation {
    Violation { anomaly, text: text.into() }
}

/// Returns the first anomaly of a history, if it has one.
pub fn check(history: &[Transaction]) -> Result<(), Violation> {
    let facts = collect(history)?;
    check_reads(history, &facts)?;
    let mut graph = vec![Vec::new(); history.len()];
    add_list_edges(history, &facts, &mut graph)?;
    add_register_edges(history, &facts, &mut graph);
    find_cycles(history, &mut graph)
}

/// Collects the reads that show other transactions, and who wrote what.
fn collect(history: &[Transaction]) -> Result<Facts, Violation> {
    let mut facts = Facts::default();
    for (index, transaction) in history.iter().enumerate() {
        let mut own: BTreeMap<Key, Vec<Number>> = BTreeMap::new();
        let mut seen: BTreeMap<Key, Vec<Number>> = BTreeMap::new();
        for step in &transaction.steps {
            match step {
                Step::Append { key, number } => {
                    let own = own.entry(*key).or_default();
                    facts.intermediate.extend(own.last().map(|number| (*key, *number)));
                    own.push(*number);
                    if transaction.is_committed {
                        facts.appended.insert((*key, *number), index);
                    }
                }
                Step::WriteRegister { key, number } => {
                    let before = own.insert(*key, vec![*number]);
                    facts.intermediate.extend(before.map(|before| (*key, before[0])));
                    if transaction.is_committed {
                        facts.written.insert((*key, *number), index);
                    }
                }
                Step::ReadList { key, list, by_range } => {
                    let own = own.get(key).map_or(&[][..], Vec::as_slice);
                    let Some(other) = list.strip_suffix(own) else {
                        let text = format!("{transaction:?} read {list:?} of list {key}");
                        return Err(violation(Anomaly::OwnWriteMissed, text));
                    };
                    check_repeated(&mut seen, transaction, *key, other)?;
                    facts.list_reads.push(ListRead {
                        transaction: index,
                        key: *key,
                        list: other.to_vec(),
                        by_range: *by_range,
                    });
                }
                Step::ReadRegister { key, number, by_range } => {
                    let shown: Vec<Number> = number.iter().copied().collect();
                    if let Some(own) = own.get(key) {
                        if *own != shown {
                            let text = format!("{transaction:?} read {number:?} of register {key}");
                            return Err(violation(Anomaly::OwnWriteMissed, text));
                        }
                        continue;
                    }
                    check_repeated(&mut seen, transaction, *key, &shown)?;
                    facts.register_reads.push(RegisterRead {
                        transaction: index,
                        key: *key,
                        number: *number,
                        by_range: *by_range,
                    });
                }
            }
        }
    }
    Ok(facts)
}

/// Fails if a transaction reads a key twice with two answers.
fn check_repeated(
    seen: &mut BTreeMap<Key, Vec<Number>>,
    transaction: &Transaction,
    key: Key,
    shown: &[Number],
) -> Result<(), Violation> {
    match seen.insert(key, shown.to_vec()) {
        Some(before) if before != shown => {
            let text = format!("key {key} was {before:?}, then {shown:?}, in {transaction:?}");
            Err(violation(Anomaly::ReadSkew, text))
        }
        _ => Ok(()),
    }
}

/// Fails if a committed transaction read what it must not see (G1a, G1b).
fn check_reads(history: &[Transaction], facts: &Facts) -> Result<(), Violation> {
    let lists = facts.list_reads.iter().map(|read| (read.transaction, read.key, &read.list[..]));
    let registers = facts
        .register_reads
        .iter()
        .map(|read| (read.transaction, read.key, read.number.as_slice()));
    // Nobody may read what was undone, also to a savepoint: then it is in no step.
    let is_committed = |number: &(Key, Number)| {
        facts.appended.contains_key(number) || facts.written.contains_key(number)
    };
    // Aborted transactions read one moment, too.
    for (transaction, key, shown) in lists.chain(registers) {
        let reader = &history[transaction];
        if let Some(number) = shown.iter().find(|number| !is_committed(&(key, **number))) {
            let text = format!("{number} of key {key} was rolled back; {reader:?} read it");
            return Err(violation(Anomaly::G1a, text));
        }
        if let Some(number) =
            shown.last().filter(|number| facts.intermediate.contains(&(key, **number)))
        {
            let text = format!("{number} of key {key} was not the last; {reader:?} read it");
            return Err(violation(Anomaly::G1b, text));
        }
    }
    Ok(())
}

fn add_list_edges(
    history: &[Transaction],
    facts: &Facts,
    graph: &mut [Vec<Edge>],
) -> Result<(), Violation> {
    let mut versions: BTreeMap<Key, &[Number]> = BTreeMap::new();
    for read in &facts.list_reads {
        let longest = versions.entry(read.key).or_insert(&[]);
        if read.list.len() > longest.len() {
            *longest = &read.list;
        }
    }
    for read in &facts.list_reads {
        let order = versions[&read.key];
        if !order.starts_with(&read.list) {
            let text = format!("list {} was {:?}, and {order:?}", read.key, read.list);
            return Err(violation(Anomaly::LostUpdate, text));
        }
    }
    for ((key, number), writer) in &facts.appended {
        if !versions.get(key).is_some_and(|order| order.contains(number)) {
            let text = format!("{number} is not in list {key}: {:?}", history[*writer]);
            return Err(violation(Anomaly::LostUpdate, text));
        }
    }
    for (key, order) in &versions {
        // The last number of each transaction, in order.
        let writers: Vec<usize> =
            order.iter().map(|number| facts.appended[&(*key, *number)]).collect();
        for pair in writers.windows(2) {
            add(graph, pair[0], Edge { to: pair[1], kind: EdgeKind::Ww, key: *key });
        }
        for read in facts.list_reads.iter().filter(|read| read.key == *key) {
            if !history[read.transaction].is_committed {
                continue;
            }
            let length = read.list.len();
            if length > 0 {
                let edge = Edge { to: read.transaction, kind: EdgeKind::Wr, key: *key };
                add(graph, writers[length - 1], edge);
            }
            if let Some(next) = writers.get(length) {
                let kind = EdgeKind::Rw { by_range: read.by_range && length == 0 };
                add(graph, read.transaction, Edge { to: *next, kind, key: *key });
            }
        }
    }
    Ok(())
}

/// Adds the edges of registers. The order of two versions is known if the writer of one has read
/// the other, or had returned before the other began.
fn add_register_edges(history: &[Transaction], facts: &Facts, graph: &mut [Vec<Edge>]) {
    let reads = |transaction: usize, key: Key| {
        let is_read =
            move |read: &&RegisterRead| read.transaction == transaction && read.key == key;
        facts.register_reads.iter().find(is_read).and_then(|read| read.number)
    };
    let is_before = |(key, one): (Key, usize), other: usize| {
        history[one].returned < history[other].called
            || reads(other, key)
                .is_some_and(|number| facts.written.get(&(key, number)) == Some(&one))
    };
    let mut writers: BTreeMap<Key, BTreeSet<usize>> = BTreeMap::new();
    for ((key, _), writer) in &facts.written {
        writers.entry(*key).or_default().insert(*writer);
    }
    for (key, writers) in &writers {
        for one in writers {
            for other in writers.iter().filter(|other| is_before((*key, *one), **other)) {
                add(graph, *one, Edge { to: *other, kind: EdgeKind::Ww, key: *key });
            }
        }
    }
    for read in &facts.register_reads {
        if !history[read.transaction].is_committed {
            continue;
        }
        let key = read.key;
        let writer = read.number.map(|number| facts.written[&(key, number)]);
        if let Some(writer) = writer {
            add(graph, writer, Edge { to: read.transaction, kind: EdgeKind::Wr, key });
        }
        let kind = EdgeKind::Rw { by_range: read.by_range && read.number.is_none() };
        for later in writers.get(&key).into_iter().flatten() {
            if writer.is_none_or(|writer| is_before((key, writer), *later)) {
                add(graph, read.transaction, Edge { to: *later, kind, key });
            }
        }
    }
}

fn add(graph: &mut [Vec<Edge>], from: usize, edge: Edge) {
    if from != edge.to {
        graph[from].push(edge);
    }
}

/// Adds nodes for moments: a transaction precedes the moment of its return, which precedes later
/// moments, and the transactions that begin later.
fn add_time(history: &[Transaction], graph: &mut Vec<Vec<Edge>>) {
    let committed = || (0..history.len()).filter(|index| history[*index].is_committed);
    let mut by_return: Vec<usize> = committed().collect();
    by_return.sort_by_key(|index| history[*index].returned);
    let first = graph.len();
    let time = |to| Edge { to, kind: EdgeKind::Time, key: 0 };
    for (position, index) in by_return.iter().enumerate() {
        graph[*index].push(time(first + position));
        graph.push(Vec::new());
        if position > 0 {
            graph[first + position - 1].push(time(first + position));
        }
    }
    for index in committed() {
        let called = history[index].called;
        let before = by_return.partition_point(|other| history[*other].returned < called);
        if before > 0 {
            graph[first + before - 1].push(time(index));
        }
    }
}

fn find_cycles(history: &[Transaction], graph: &mut Vec<Vec<Edge>>) -> Result<(), Violation> {
    let is_rw = |edge: &Edge| matches!(edge.kind, EdgeKind::Rw { .. });
    let reports = |anomaly, cycle: &[(usize, Edge)]| {
        let steps: Vec<String> = cycle
            .iter()
            .map(|(from, edge)| {
                let who = history.get(*from).map_or(String::new(), |from| format!("{from:?}"));
                format!("{who}\n  -{:?} of key {}->", edge.kind, edge.key)
            })
            .collect();
        Err(violation(anomaly, format!("a cycle\n{}", steps.join("\n"))))
    };
    if let Some(cycle) = shortest_cycle(graph, |edge| edge.kind == EdgeKind::Ww) {
        return reports(Anomaly::G0, &cycle);
    }
    if let Some(cycle) = shortest_cycle(graph, |edge| !is_rw(edge)) {
        return reports(Anomaly::G1c, &cycle);
    }
    // One anti-dependency: from its target back to its source by other edges.
    for from in 0..graph.len() {
        for edge in graph[from].clone().into_iter().filter(is_rw) {
            if let Some(mut cycle) = path(graph, edge.to, from, |edge| !is_rw(edge)) {
                cycle.push((from, edge));
                let is_same_key = cycle.iter().all(|(_, other)| other.key == edge.key);
                let is_update = cycle.iter().any(|(_, other)| other.kind == EdgeKind::Ww);
                let anomaly = match edge.kind {
                    _ if is_same_key && is_update => Anomaly::LostUpdate,
                    EdgeKind::Rw { by_range: true } => Anomaly::Phantom,
                    _ => Anomaly::ReadSkew,
                };
                return reports(anomaly, &cycle);
            }
        }
    }
    if let Some(cycle) = shortest_cycle(graph, |_| true) {
        let is_phantom = cycle.iter().any(|(_, edge)| edge.kind == EdgeKind::Rw { by_range: true });
        return reports(if is_phantom { Anomaly::Phantom } else { Anomaly::WriteSkew }, &cycle);
    }
    add_time(history, graph);
    if let Some(cycle) = shortest_cycle(graph, |edge| !is_rw(edge)) {
        return reports(Anomaly::StaleRead, &cycle);
    }
    for from in 0..graph.len() {
        for edge in graph[from].clone().into_iter().filter(is_rw) {
            if let Some(mut cycle) = path(graph, edge.to, from, |edge| !is_rw(edge)) {
                cycle.push((from, edge));
                return reports(Anomaly::StaleRead, &cycle);
            }
        }
    }
    // Several anti-dependencies and an order in time: the transactions have an order, but none that
    // agrees with their times.
    match shortest_cycle(graph, |_| true) {
        Some(cycle) => reports(Anomaly::WriteSkew, &cycle),
        None => Ok(()),
    }
}

/// Returns a shortest path by edges that `permits` permits.
fn path(
    graph: &[Vec<Edge>],
    from: usize,
    to: usize,
    permits: impl Fn(&Edge) -> bool,
) -> Option<Vec<(usize, Edge)>> {
    let mut reached: HashMap<usize, (usize, Edge)> = HashMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        for edge in graph[node].iter().filter(|edge| permits(edge)) {
            if edge.to == from || reached.contains_key(&edge.to) {
                continue;
            }
            reached.insert(edge.to, (node, *edge));
            if edge.to == to {
                let mut steps = Vec::new();
                let mut node = to;
                while node != from {
                    let step = reached[&node];
                    steps.push(step);
                    node = step.0;
                }
                steps.reverse();
                return Some(steps);
            }
            queue.push_back(edge.to);
        }
    }
    None
}

/// Returns a cycle by edges that `permits` permits: a shortest one through its first node.
fn shortest_cycle(
    graph: &[Vec<Edge>],
    permits: impl Fn(&Edge) -> bool + Copy,
) -> Option<Vec<(usize, Edge)>> {
    // Kahn's algorithm: what cannot be sorted has or leads from a cycle.
    let mut incoming = vec![0_u32; graph.len()];
    for edge in graph.iter().flatten().filter(|edge| permits(edge)) {
        incoming[edge.to] += 1;
    }
    let mut ready: Vec<usize> = (0..graph.len()).filter(|node| incoming[*node] == 0).collect();
    while let Some(node) = ready.pop() {
        for edge in graph[node].iter().filter(|edge| permits(edge)) {
            incoming[edge.to] -= 1;
            if incoming[edge.to] == 0 {
                ready.push(edge.to);
            }
        }
    }
    let mut left = (0..graph.len()).filter(|node| incoming[*node] > 0);
    left.find_map(|node| {
        let edges = graph[node].iter().filter(|edge| permits(edge) && incoming[edge.to] > 0);
        edges
            .filter_map(|edge| {
                let mut cycle = vec![(node, *edge)];
                cycle.extend(path(graph, edge.to, node, permits)?);
                Some(cycle)
            })
            .min_by_key(Vec::len)
    })
}

mod tests {
    use super::{
        Step::{Append, ReadList, ReadRegister, WriteRegister},
        *,
    };

    fn read(key: Key, list: &[Number]) -> Step {
        ReadList { key, list: list.to_vec(), by_range: false }
    }

    fn range(key: Key, list: &[Number]) -> Step {
        ReadList { key, list: list.to_vec(), by_range: true }
    }

    fn append(key: Key, number: Number) -> Step {
        Append { key, number }
    }

    /// Transactions that all run at the same time, by their steps.
    fn concurrent(transactions: &[(bool, &[Step])]) -> Vec<Transaction> {
        let transaction = |(is_committed, steps): &(bool, &[Step])| Transaction {
            called: 0,
            returned: 100,
            is_committed: *is_committed,
            steps: steps.to_vec(),
        };
        transactions.iter().map(transaction).collect()
    }

    fn anomaly(transactions: &[(bool, &[Step])]) -> Option<Anomaly> {
        check(&concurrent(transactions)).err().map(|violation| violation.anomaly)
    }

    #[test]
    fn serial_histories_are_accepted() {
        assert_eq!(anomaly(&[]), None);
        assert_eq!(
            anomaly(&[
                (true, &[read(1, &[]), append(1, 10), read(1, &[10])]),
                (true, &[read(1, &[10]), append(1, 11), append(1, 12), range(2, &[])]),
                (true, &[read(2, &[]), append(2, 20)]),
                (false, &[read(1, &[10]), append(1, 13)]),
                (true, &[read(1, &[10, 11, 12]), read(2, &[20])]),
            ]),
            None
        );
    }

    #[test]
    fn a_dirty_write_is_rejected() {
        let both = [append(1, 1), append(2, 2)];
        let other = [append(1, 3), append(2, 4)];
        let last = [read(1, &[1, 3]), read(2, &[4, 2])];
        let found = anomaly(&[(true, &both), (true, &other), (true, &last)]);
        assert_eq!(found, Some(Anomaly::G0));
    }

    #[test]
    fn dirty_reads_are_rejected() {
        let found = anomaly(&[(false, &[append(1, 1)]), (true, &[read(1, &[1])])]);
        assert_eq!(found, Some(Anomaly::G1a));
        let twice = [append(1, 1), append(1, 2)];
        let found =
            anomaly(&[(true, &twice), (true, &[read(1, &[1])]), (true, &[read(1, &[1, 2])])]);
        assert_eq!(found, Some(Anomaly::G1b));
        let found = anomaly(&[
            (true, &[append(1, 1), read(2, &[2])]),
            (true, &[append(2, 2), read(1, &[1])]),
        ]);
        assert_eq!(found, Some(Anomaly::G1c));
        let write = WriteRegister { key: 7, number: 1 };
        let shown = ReadRegister { key: 7, number: Some(1), by_range: false };
        assert_eq!(anomaly(&[(false, &[write]), (true, &[shown])]), Some(Anomaly::G1a));
    }

    #[test]
    fn a_lost_update_is_rejected() {
        let found = anomaly(&[
            (true, &[read(1, &[]), append(1, 1)]),
            (true, &[read(1, &[]), append(1, 2)]),
            (true, &[read(1, &[2])]),
        ]);
        assert_eq!(found, Some(Anomaly::LostUpdate));
        let found = anomaly(&[
            (true, &[read(1, &[]), append(1, 1)]),
            (true, &[read(1, &[]), append(1, 2)]),
            (true, &[read(1, &[1, 2])]),
        ]);
        assert_eq!(found, Some(Anomaly::LostUpdate));
        let [reads, other] = [1, 2].map(|number| {
            [
                ReadRegister { key: 7, number: Some(9), by_range: false },
                WriteRegister { key: 7, number },
            ]
        });
        let first = [WriteRegister { key: 7, number: 9 }];
        let found = anomaly(&[(true, &first), (true, &reads), (true, &other)]);
        // Each has read 9, so each came before the other.
        assert_eq!(found, Some(Anomaly::WriteSkew));
    }

    #[test]
    fn skewed_reads_and_writes_are_rejected() {
        let found = anomaly(&[
            (true, &[append(1, 1), append(2, 2)]),
            (true, &[read(1, &[]), read(2, &[2])]),
            (true, &[read(1, &[1])]),
        ]);
        assert_eq!(found, Some(Anomaly::ReadSkew));
        let found = anomaly(&[
            (true, &[read(1, &[]), read(2, &[]), append(1, 1)]),
            (true, &[read(1, &[]), read(2, &[]), append(2, 2)]),
            (true, &[read(1, &[1]), read(2, &[2])]),
        ]);
        assert_eq!(found, Some(Anomaly::WriteSkew));
        let found = anomaly(&[(true, &[append(1, 1)]), (true, &[read(1, &[]), read(1, &[1])])]);
        assert_eq!(found, Some(Anomaly::ReadSkew));
    }

    #[test]
    fn a_phantom_is_rejected() {
        let found = anomaly(&[
            (true, &[range(1, &[]), range(2, &[]), append(1, 1)]),
            (true, &[range(1, &[]), range(2, &[]), append(2, 2)]),
            (true, &[read(1, &[1]), read(2, &[2])]),
        ]);
        assert_eq!(found, Some(Anomaly::Phantom));
        let found = anomaly(&[
            (true, &[append(1, 1), append(2, 2)]),
            (true, &[range(1, &[]), read(2, &[2])]),
            (true, &[read(1, &[1])]),
        ]);
        assert_eq!(found, Some(Anomaly::Phantom));
    }

    #[test]
    fn a_missed_own_write_is_rejected() {
        let found = anomaly(&[(true, &[append(1, 1), read(1, &[])])]);
        assert_eq!(found, Some(Anomaly::OwnWriteMissed));
        let write = WriteRegister { key: 7, number: 1 };
        let missed = ReadRegister { key: 7, number: None, by_range: false };
        assert_eq!(anomaly(&[(true, &[write, missed])]), Some(Anomaly::OwnWriteMissed));
    }

    #[test]
    fn a_stale_read_is_rejected() {
        let mut history = concurrent(&[
            (true, &[append(1, 1)]),
            (true, &[read(1, &[])]),
            (true, &[read(1, &[1])]),
        ]);
        check(&history).unwrap();
        (history[0].returned, history[1].called) = (10, 20);
        let violation = check(&history).unwrap_err();
        assert_eq!(violation.anomaly, Anomaly::StaleRead, "{violation}");
        // A blind write that is acknowledged before another one is the older version.
        let register = |number| WriteRegister { key: 7, number };
        let shown = |number| ReadRegister { key: 7, number: Some(number), by_range: false };
        let mut history = concurrent(&[
            (true, &[register(1)]),
            (true, &[register(2), append(1, 3)]),
            (true, &[shown(1), read(1, &[3])]),
        ]);
        check(&history).unwrap();
        (history[0].returned, history[1].called) = (10, 20);
        assert_eq!(check(&history).unwrap_err().anomaly, Anomaly::ReadSkew);
    }
}
