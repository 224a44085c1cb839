//! How RocksDB is set up: one memory budget, few and small write buffers, quiet logs.

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode,
    LogLevel, Options, WriteBufferManager,
};

use crate::family::Family;
use crate::options::StoreOptions;

const MIB: usize = 1 << 20;

/// 10 bits per key: one read in a hundred looks into a file in vain.
const BLOOM_BITS: f64 = 10.0;

/// A family with few rows never needs more than this before it is flushed.
const SMALL_WRITE_BUFFER_BYTES: usize = 4 * MIB;

/// Files that a writer keeps open; well below the usual limit of 1024 per process.
const OPEN_FILES: i32 = 512;

/// A file in which this many of a window of entries are deletions is compacted early, so that
/// scans over closed windows and delivered output do not walk over their remains.
const DELETION_WINDOW: usize = 4096;
const DELETION_TRIGGER: usize = 2048;
const DELETION_RATIO: f64 = 0.5;

/// Options of the whole database for a writer.
pub(super) fn primary(options: &StoreOptions, cache: &Cache) -> Options {
    let mut db = quiet();
    db.create_if_missing(options.create_if_missing);
    db.create_missing_column_families(true);
    db.set_max_background_jobs(i32::try_from(options.background_jobs).unwrap_or(2));
    db.set_max_open_files(OPEN_FILES);
    db.set_bytes_per_sync(MIB as u64);
    // A family that is hardly written must not keep old logs alive: they are flushed instead.
    db.set_max_total_wal_size(2 * options.write_buffers_bytes() as u64);
    // An older log that was synced and is now missing or short is an error, not an older database; the last one has a mark.
    db.set_track_and_verify_wals_in_manifest(true);
    // A crash cuts a log at its end. Damage before that is an error, not an older database.
    db.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    db.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        options.write_buffers_bytes(),
        false,
        cache.clone(),
    ));
    db
}

/// Options of the whole database for a reader beside a writer. It opens all files at once: they
/// stay readable when the writer removes them.
pub(super) fn secondary() -> Options {
    let mut db = quiet();
    db.set_max_open_files(-1);
    db
}

/// The families, each with its options.
pub(super) fn families(options: &StoreOptions, cache: &Cache) -> Vec<ColumnFamilyDescriptor> {
    Family::ALL
        .into_iter()
        .map(|family| ColumnFamilyDescriptor::new(family.name(), of_family(family, options, cache)))
        .collect()
}

fn of_family(family: Family, options: &StoreOptions, cache: &Cache) -> Options {
    let mut cf = Options::default();
    let (write_buffer_bytes, shrinks) = match family {
        Family::State | Family::Views => (options.write_buffer_bytes(), true),
        Family::Outbox => (options.write_buffer_bytes(), true),
        Family::Meta | Family::Progress | Family::Errors => (SMALL_WRITE_BUFFER_BYTES, false),
    };
    cf.set_write_buffer_size(write_buffer_bytes.min(options.write_buffer_bytes()));
    cf.set_max_write_buffer_number(3);
    cf.set_compression_type(DBCompressionType::Lz4);
    cf.set_bottommost_compression_type(DBCompressionType::Zstd);
    cf.set_block_based_table_factory(&table(cache));
    if shrinks {
        cf.add_compact_on_deletion_collector_factory(DELETION_WINDOW, DELETION_TRIGGER, DELETION_RATIO);
    }
    cf
}

fn table(cache: &Cache) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(16 << 10);
    table.set_bloom_filter(BLOOM_BITS, false);
    table.set_optimize_filters_for_memory(true);
    // Indexes and filters are charged to the cache, so that the budget covers them.
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // In parts: the filter of a whole file may be larger than a shard of a small cache, and would be read for each lookup.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(16 << 10);
    table.set_pin_top_level_index_and_filter(true);
    table
}

fn quiet() -> Options {
    let mut db = Options::default();
    db.set_log_level(LogLevel::Warn);
    db.set_keep_log_file_num(2);
    db.set_max_log_file_size(MIB);
    db.set_stats_dump_period_sec(0);
    db.set_stats_persist_period_sec(0);
    db
}
