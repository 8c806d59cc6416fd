//! Examples in the help of `bench` and of its workloads.

pub(super) const BENCH: &str = "\
Examples:
  foreshore bench tpcc                               4 warehouses, 2 threads, 10 seconds, every commit synced
  foreshore bench tpcc --mix neworder-payment --durability lazy --threads 8
  foreshore bench tpcc --set pool_bytes=16MiB        a database larger than the buffer pool
  foreshore bench tpcb --threads 1 --durability lazy --json | tail -1
  foreshore bench ycsb --distribution zipf:0.9 --read-percent 0
  foreshore bench ycsb --distribution hot:64:20 --execution planned --durability lazy
  foreshore bench ycsb --execution partitioned --threads 1 --set execution_threads=1 --durability lazy
  foreshore bench ycsb --execution partitioned --partitions 2 --partitions-per-transaction 1 --threads 1
  foreshore bench insert --threads 4 --engine btreemap
  foreshore bench compare --workloads tpcb,scan --threads 1,8   engines beside each other, each in its own process
  foreshore bench latch --mix contended --threads 1,2,8,32,128
  foreshore bench granularity --writes 0,10         latches that guard 10 to 10,000 tuples of a table
  foreshore bench locks --locks 10 --mix x --hot    the lock manager alone, lock tables beside each other
  foreshore bench intent --absolute 0,1000          intent locks alone, in all the ways that they can be kept
  foreshore bench ladder --threads 1,2               what made Shore-MT scale, step by step
  foreshore bench log --threads 1,2,8 --seconds 1   the log alone, inserted into in every way there is
  foreshore bench checkpoint tpcb                   what checkpoints do to the latency of commits
  foreshore bench txbench --updates 0.2             lock tables beside each other, 1 to 500 threads
  foreshore bench nodeadlock                        policies against deadlocks beside each other, the same way
  foreshore bench keyrange --existing 0            key-range modes beside each other
  foreshore bench elr --log-latency 10ms --rounds 5  locks that go before the flush, and those that do not
  foreshore bench killpolicy                         who gives way in deadlocks between pipelines

Exit status: 0 all checks hold, 1 a check failed, 2 wrong usage or the run could not be finished, 130 it was interrupted.
What compares variants or engines prints then what was measured until then,
with --json as \"partial\":true, beside the error.";

pub(super) const TPCC: &str = "\
Examples:
  foreshore bench tpcc                                      4 warehouses, 2 threads, 10 seconds, every commit synced
  foreshore bench tpcc --mix neworder-payment --durability lazy --threads 8
  foreshore bench tpcc --warehouses 16 --warehouse-per-client --threads 16
  foreshore bench tpcc --set pool_bytes=16MiB               a database larger than the buffer pool";

pub(super) const TPCB: &str = "\
Examples:
  foreshore bench tpcb --threads 1 --durability lazy --json | tail -1
  foreshore bench tpcb --branches 20 --threads 128          more threads than branches: they queue
  foreshore bench tpcb --zipf 1 --durability pipelined --set early_lock_release=shared_and_exclusive";

pub(super) const YCSB: &str = "\
Examples:
  foreshore bench ycsb --read-percent 100                   10 reads a transaction, of a million records
  foreshore bench ycsb --distribution zipf:0.9 --read-percent 0 --durability lazy
  foreshore bench ycsb --distribution hot:64:20 --execution planned --durability lazy
  foreshore bench ycsb --execution partitioned --partitions 2 --partitions-per-transaction 1 --threads 1
  foreshore bench ycsb --execution partitioned --drawn-by engine --durability lazy";

pub(super) const INSERT: &str = "\
Examples:
  foreshore bench insert --threads 4                        1,000 records a commit, a table for each thread
  foreshore bench insert --commit-every 1 --durability lazy
  foreshore bench insert --threads 4 --engine btreemap      what memory alone would do";

pub(super) const SCAN: &str = "\
Examples:
  foreshore bench scan                                      the whole table in each transaction
  foreshore bench scan --length 100 --threads 8             100 records, from a random one on
  foreshore bench scan --descending --set pool_bytes=16MiB  from the file, backwards";
