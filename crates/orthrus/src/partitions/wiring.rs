//! Who has which end of which ring.

use foreshore_env::sync::Arc;

use super::Shared;
use crate::{
    control::Control,
    execution::Execution,
    member::Member,
    mesh::{Answer, End, Inbox, Order, channel},
    waiters::Waiters,
};

/// All threads as they begin, with the partitions that they look after and the ends of their rings.
pub(super) fn members(shared: &Arc<Shared>) -> Vec<Member> {
    let (capacity, first) = (shared.options.ring_capacity, shared.options.first_execution());
    let (partitions, threads, executions) = (shared.partitions(), shared.threads(), shared.queues.len());
    let mut orders: Vec<Vec<Inbox<Order>>> = (0..partitions).map(|_| Vec::new()).collect();
    let mut answers: Vec<Vec<Inbox<Answer>>> = (0..executions).map(|_| Vec::new()).collect();
    let mut to_partitions = |from, to: std::ops::Range<usize>| -> Vec<_> {
        let to_one = |partition: usize| {
            let (outbox, inbox) = channel(capacity, from, End::Partition(partition));
            orders[partition].push(inbox);
            outbox
        };
        to.map(to_one).collect()
    };
    let higher: Vec<Vec<_>> = (0..partitions)
        .map(|partition| to_partitions(End::Partition(partition), partition + 1..partitions))
        .collect();
    let to_all: Vec<Vec<_>> =
        (0..executions).map(|number| to_partitions(End::Thread(first + number), 0..partitions)).collect();
    let mut to_executions = |partition| -> Vec<_> {
        let to_one = |number: usize| {
            let to = End::Thread(first + number);
            let (outbox, inbox) = channel(capacity, End::Partition(partition), to);
            answers[number].push(inbox);
            outbox
        };
        (0..executions).map(to_one).collect()
    };
    let to_executions: Vec<Vec<_>> = (0..partitions).map(&mut to_executions).collect();
    let member =
        |number| Member { number, shared: Arc::clone(shared), controls: Vec::new(), execution: None };
    let mut members: Vec<Member> = (0..threads).map(member).collect();
    for (partition, ((orders, higher), answers)) in
        orders.into_iter().zip(higher).zip(to_executions).enumerate()
    {
        let shared = Arc::clone(shared);
        let control = Control { partition, shared, orders, higher, answers, waiting: Waiters::default() };
        members[control.shared.roles.owner(partition)].controls.push(control);
    }
    for (number, (orders, answers)) in to_all.into_iter().zip(answers).enumerate() {
        members[first + number].execution = Some(Execution::new(number, shared, answers, orders));
    }
    members
}
