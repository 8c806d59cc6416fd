//! A caller's partitioner.

use std::fmt;

use foreshore_env::sync::Arc;
use foreshore_txn::Partitioner;

use super::builder::Builder;

/// Where a key lies, of many partitions.
#[derive(Clone)]
pub(super) struct Partition(Arc<PartitionOf>);

type PartitionOf = dyn Fn(&[u8]) -> usize + Send + Sync;

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Partition")
    }
}

impl Partition {
    /// For the lock manager.
    pub(super) fn among(self, partitions: usize) -> Partitioner {
        let Partition(partition) = self;
        Partitioner::new(partitions, move |key| partition(key))
    }
}

impl Builder {
    /// Says which control thread ([`Options::control_threads`](crate::Options::control_threads)) looks after the locks
    /// of which keys, of all tables: the one of the number that `partition` gives for the encoded key, modulo how many
    /// there are (with [`automatic_threads`](crate::Options::automatic_threads), may be at most). By default the hash
    /// of table and key decides, and a transaction that touches ten records needs most of the threads. Where keys of
    /// records that are used together begin alike, the partition can follow from that, and one message brings all locks
    /// (Ren et al. 2016, §3.3).
    ///
    /// Numbers are encoded big-endian, unsigned ones as they are (see [`Key`](crate::Key)). `partition` has to say the
    /// same of a key each time while the database is open, and must be quick, and not wait: it is asked for every lock,
    /// under latches too. Transactions that are not submitted ask it as well: an order of locks is an order for all. A
    /// panic of it fails whoever came to that key ([`Error::PartitionerPanicked`](crate::Error::PartitionerPanicked)).
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// /// Keys: shop, article.
    /// const STOCK: TableDefinition<(u32, u64), u64> = TableDefinition::new("stock");
    ///
    /// let db = Database::builder()
    ///     .set("control_threads", "2")?
    ///     .partitioner(|key| key.first_chunk().map_or(0, |shop| u32::from_be_bytes(*shop) as usize))
    ///     .open(directory.path())?;
    /// let bought = (0..10).fold(db.plan(), |plan, article| plan.write(STOCK, (7, article)));
    /// bought.submit(|tx| (0..10).try_for_each(|article| tx.put(STOCK, (7, article), 1).map(drop)))?.wait()?;
    /// assert_eq!(db.stats().partitioned_messages, 2); // to one of the two threads, and back
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    #[must_use]
    pub fn partitioner(mut self, partition: impl Fn(&[u8]) -> usize + Send + Sync + 'static) -> Builder {
        self.partition = Some(Partition(Arc::new(partition)));
        self
    }
}
