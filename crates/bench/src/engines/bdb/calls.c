/*
 * What the engine needs of Berkeley DB as plain functions: its own interface is structures full of pointers to functions, which
 * only its header knows how to call. Nothing is decided here and nothing is kept, but for what was last complained of.
 * All functions return 0 or an error of Berkeley DB.
 */
#include <db.h>

#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#if DB_VERSION_MAJOR != 5 || DB_VERSION_MINOR != 3
#error "this needs Berkeley DB 5.3: apt install libdb5.3-dev"
#endif

/* What the other side takes these to be. */
_Static_assert(DB_NOTFOUND == -30988, "not found");
_Static_assert(DB_KEYEXIST == -30994, "key exists");
_Static_assert(DB_LOCK_DEADLOCK == -30993, "deadlock");
_Static_assert(DB_LOCK_NOTGRANTED == -30992, "lock not granted");
_Static_assert(DB_BUFFER_SMALL == -30999, "buffer too small");

#define TRY(call)                    \
	do {                         \
		error = (call);      \
		if (error != 0)      \
			goto failed; \
	} while (0)

static _Thread_local char complaint[256];

static void complain(const DB_ENV *env, const char *prefix, const char *message)
{
	(void)env;
	(void)prefix;
	snprintf(complaint, sizeof complaint, ": %s", message);
}

/* Describes an error, with what this thread was told of it, into a text of so many bytes; ends it with a zero. */
void foreshore_bdb_describe(int error, char *text, size_t bytes)
{
	snprintf(text, bytes, "%s%s", db_strerror(error), complaint);
	complaint[0] = 0;
}

/* How an environment is opened; the other side has the same structure. */
struct foreshore_bdb_opening {
	uint64_t cache_bytes;
	uint32_t transactions;
	uint32_t lockers;
	uint32_t locks;
	uint32_t lock_buckets;
	uint32_t log_buffer_bytes;
	uint32_t log_file_bytes;
	uint32_t log_ways;
};

/* How log files are written, as bits. */
enum { LOG_ZEROED = 1, LOG_DSYNC = 2 };

int foreshore_bdb_open(const char *directory, const struct foreshore_bdb_opening *opening, DB_ENV **result)
{
	const uint64_t gigabyte = UINT64_C(1) << 30;
	const uint32_t parts = DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_MPOOL | DB_INIT_TXN;
	DB_ENV *env;
	int error;

	complaint[0] = 0;
	error = db_env_create(&env, 0);
	if (error != 0)
		return error;
	env->set_errcall(env, complain);
	TRY(env->set_cachesize(env, (uint32_t)(opening->cache_bytes / gigabyte),
			       (uint32_t)(opening->cache_bytes % gigabyte), 1));
	TRY(env->set_tx_max(env, opening->transactions));
	TRY(env->set_lk_max_lockers(env, opening->lockers));
	TRY(env->set_lk_max_locks(env, opening->locks));
	TRY(env->set_lk_max_objects(env, opening->locks));
	TRY(env->set_lk_tablesize(env, opening->lock_buckets));
	TRY(env->set_lk_detect(env, DB_LOCK_YOUNGEST));
	TRY(env->set_lg_bsize(env, opening->log_buffer_bytes));
	TRY(env->set_lg_max(env, opening->log_file_bytes));
	TRY(env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1));
	TRY(env->log_set_config(env, DB_LOG_ZERO, (opening->log_ways & LOG_ZEROED) != 0));
	TRY(env->log_set_config(env, DB_LOG_DSYNC, (opening->log_ways & LOG_DSYNC) != 0));
	/* Private: of this process alone, in its own memory. */
	TRY(env->open(env, directory, parts | DB_CREATE | DB_RECOVER | DB_THREAD | DB_PRIVATE, 0));
	*result = env;
	return 0;
failed:
	env->close(env, 0);
	return error;
}

int foreshore_bdb_close(DB_ENV *env)
{
	return env->close(env, 0);
}

int foreshore_bdb_open_table(DB_ENV *env, const char *name, uint32_t page_bytes, int versions, DB **result)
{
	const uint32_t flags = DB_CREATE | DB_THREAD | DB_AUTO_COMMIT | (versions ? DB_MULTIVERSION : 0);
	DB *table;
	int error;

	error = db_create(&table, env, 0);
	if (error != 0)
		return error;
	TRY(table->set_pagesize(table, page_bytes));
	TRY(table->open(table, NULL, name, NULL, DB_BTREE, flags, 0));
	*result = table;
	return 0;
failed:
	table->close(table, 0);
	return error;
}

int foreshore_bdb_close_table(DB *table)
{
	return table->close(table, 0);
}

/* Writes what is dirty, if the log has grown by so much since it was last done. */
int foreshore_bdb_checkpoint(DB_ENV *env, uint32_t log_kib)
{
	return env->txn_checkpoint(env, log_kib, 0, log_kib == 0 ? DB_FORCE : 0);
}

/* Makes all commits durable. */
int foreshore_bdb_flush_log(DB_ENV *env)
{
	return env->log_flush(env, NULL);
}

/* Counts since the environment was opened; the other side has the same structure. */
struct foreshore_bdb_counts {
	uint64_t commits;
	uint64_t log_flushes;
	uint64_t log_writes;
	uint64_t lock_requests;
	uint64_t lock_waits;
	uint64_t deadlocks;
	uint64_t pages_read;
	uint64_t pages_written;
};

int foreshore_bdb_count(DB_ENV *env, struct foreshore_bdb_counts *counts)
{
	DB_TXN_STAT *transactions = NULL;
	DB_LOG_STAT *log = NULL;
	DB_LOCK_STAT *locks = NULL;
	DB_MPOOL_STAT *pool = NULL;
	int error;

	TRY(env->txn_stat(env, &transactions, 0));
	TRY(env->log_stat(env, &log, 0));
	TRY(env->lock_stat(env, &locks, 0));
	TRY(env->memp_stat(env, &pool, NULL, 0));
	counts->commits = transactions->st_ncommits;
	counts->log_flushes = log->st_scount;
	counts->log_writes = log->st_wcount;
	counts->lock_requests = locks->st_nrequests;
	counts->lock_waits = locks->st_lock_wait;
	counts->deadlocks = locks->st_ndeadlocks;
	counts->pages_read = pool->st_page_in;
	counts->pages_written = pool->st_page_out;
failed:
	free(transactions);
	free(log);
	free(locks);
	free(pool);
	return error;
}

/* How a transaction runs; a commit that is neither synced nor written stays in memory. */
enum { COMMITS_SYNC = 1, READS_SNAPSHOT = 2, COMMITS_WRITTEN = 4 };

int foreshore_bdb_begin(DB_ENV *env, uint32_t how, DB_TXN **result)
{
	uint32_t flags = DB_TXN_NOSYNC;

	if (how & COMMITS_SYNC)
		flags = DB_TXN_SYNC;
	else if (how & COMMITS_WRITTEN)
		flags = DB_TXN_WRITE_NOSYNC;
	if (how & READS_SNAPSHOT)
		flags |= DB_TXN_SNAPSHOT;
	complaint[0] = 0;
	return env->txn_begin(env, NULL, result, flags);
}

/* Whether it commits or not, the transaction is gone. */
int foreshore_bdb_commit(DB_TXN *txn)
{
	return txn->commit(txn, 0);
}

int foreshore_bdb_abort(DB_TXN *txn)
{
	return txn->abort(txn);
}

static DBT input(const void *data, uint32_t bytes)
{
	DBT it;

	memset(&it, 0, sizeof it);
	it.data = (void *)data;
	it.size = bytes;
	return it;
}

static DBT output(void *data, uint32_t capacity)
{
	DBT it;

	memset(&it, 0, sizeof it);
	it.data = data;
	it.ulen = capacity;
	it.flags = DB_DBT_USERMEM;
	return it;
}

/* Reads a value; what it is long is told also when there is not enough room for it. */
int foreshore_bdb_get(DB *table, DB_TXN *txn, const void *key, uint32_t key_bytes, int for_update, void *value,
		      uint32_t capacity, uint32_t *value_bytes)
{
	DBT it = input(key, key_bytes);
	DBT found = output(value, capacity);
	int error = table->get(table, txn, &it, &found, for_update ? DB_RMW : 0);

	*value_bytes = found.size;
	return error;
}

/* Writes a record; if it may not replace another one, a key that is there is an error. */
int foreshore_bdb_put(DB *table, DB_TXN *txn, const void *key, uint32_t key_bytes, const void *value,
		      uint32_t value_bytes, int replace)
{
	DBT it = input(key, key_bytes);
	DBT record = input(value, value_bytes);

	return table->put(table, txn, &it, &record, replace ? 0 : DB_NOOVERWRITE);
}

int foreshore_bdb_delete(DB *table, DB_TXN *txn, const void *key, uint32_t key_bytes)
{
	DBT it = input(key, key_bytes);

	return table->del(table, txn, &it, 0);
}

int foreshore_bdb_open_cursor(DB *table, DB_TXN *txn, DBC **result)
{
	return table->cursor(table, txn, result, 0);
}

int foreshore_bdb_close_cursor(DBC *cursor)
{
	return cursor->close(cursor);
}

/* Where a cursor goes. */
enum { TO_FIRST, TO_LAST, TO_KEY, TO_NEXT, TO_PREVIOUS };

/*
 * Moves a cursor, and reads the record where it is then. For TO_KEY the key to look for, of `*key_bytes` bytes, lies in `key`. When
 * there is not enough room the cursor stays where it was, and both lengths are told if they are known.
 */
int foreshore_bdb_move(DBC *cursor, int where, void *key, uint32_t key_capacity, uint32_t *key_bytes, void *value,
		       uint32_t value_capacity, uint32_t *value_bytes)
{
	static const uint32_t moves[] = { DB_FIRST, DB_LAST, DB_SET_RANGE, DB_NEXT, DB_PREV };
	DBT at = output(key, key_capacity);
	DBT found = output(value, value_capacity);
	int error;

	at.size = *key_bytes;
	error = cursor->get(cursor, &at, &found, moves[where]);
	*key_bytes = at.size;
	*value_bytes = found.size;
	return error;
}
