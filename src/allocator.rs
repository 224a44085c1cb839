//! The allocator of the program, for the whole process: RocksDB and librdkafka allocate with it too.

#[cfg(all(unix, not(target_env = "msvc")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
