#!/usr/bin/env bash
# Everything a build or a test run needs that Cargo does not bring along.
#   setup.sh build   compiler, libclang and the OpenSSL and zlib headers
#   setup.sh test    the same, psql and other drivers, and Java, Maven, kcat and Kafka's jars for the real broker
#   setup.sh env     prints the exports that a build wants: eval "$(tests/setup.sh env)"
# What is there already is left alone: the second run only looks. Missing packages are installed by apt.
# HIGHWATER_ROCKSDB_CACHE may name a folder with rocksdb-<version>/librocksdb.a; it is used where the version fits Cargo.lock.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${HIGHWATER_CACHE:-$HOME/.cache/highwater}

say() { echo "setup: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# The folder with libclang, which bindgen loads to read RocksDB's header: the newest that is installed.
libclang_dir() {
  local dir
  for dir in $(ls -d /usr/lib/llvm-*/lib 2>/dev/null | sort -rV) /usr/lib/*-linux-gnu /usr/lib64 /usr/local/lib; do
    compgen -G "$dir/libclang.so*" >/dev/null || compgen -G "$dir/libclang-[0-9]*.so*" >/dev/null || continue
    echo "$dir"
    return 0
  done
  return 1
}

# The first of the named packages that apt can install here.
first_package() {
  local name
  for name in "$@"; do
    [ -n "$(apt-cache policy "$name" 2>/dev/null | awk '/Candidate:/ && $2 != "(none)"')" ] && { echo "$name"; return 0; }
  done
  echo "$1"
}

# The small libclang of the version that this release calls the default, else the large one.
libclang_package() {
  local version
  version=$(apt-cache depends libclang-dev 2>/dev/null | awk -F'libclang-|-dev' '/Depends: libclang-[0-9]+-dev/ && !seen++ { print $2 }')
  first_package "libclang1-${version:-14}" libclang-dev
}

java_is_new_enough() {
  have java || return 1
  local major
  major=$(java -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p')
  [ "${major:-0}" -ge 17 ]
}

missing_for_build() {
  have gcc || echo gcc
  have g++ || echo g++
  have make || echo make
  have pkg-config || echo pkg-config
  { have pkg-config && pkg-config --exists openssl; } || echo libssl-dev
  { have pkg-config && pkg-config --exists zlib; } || echo zlib1g-dev
  { [ -n "${LIBCLANG_PATH:-}" ] || libclang_dir >/dev/null; } || echo libclang
}

missing_for_test() {
  java_is_new_enough || echo java
  have mvn || echo maven
  have kcat || echo kcat
  have psql || echo postgresql-client
  have openssl || echo openssl
  { have python3 && python3 -c 'import venv, ensurepip' 2>/dev/null; } || echo python3-venv
  have node || echo nodejs
  have npm || echo npm
}

# The drivers that the tests connect with, in the cache; their versions are part of the folder's mark.
drivers() {
  local wanted="psycopg[binary]==3.3.9 asyncpg==0.32.0 pg@8.23.1" folder=$cache/drivers
  [ "$(cat "$folder/versions" 2>/dev/null)" = "$wanted" ] && return 0
  say "drivers for the tests: $wanted, in $folder"
  rm -rf "$folder"
  mkdir -p "$folder"
  python3 -m venv "$folder/python"
  "$folder/python/bin/pip" install --quiet --disable-pip-version-check 'psycopg[binary]==3.3.9' asyncpg==0.32.0 >&2
  npm install --silent --no-audit --no-fund --prefix "$folder" pg@8.23.1 >&2
  echo "$wanted" >"$folder/versions"
}

# Installs what is named; libclang and java stand for the package that this release has.
install() {
  [ $# -gt 0 ] || return 0
  have apt-get || { say "this machine has no apt; please install by hand: $*"; exit 1; }
  local sudo="" need name packages=()
  if [ "$(id -u)" -ne 0 ]; then
    have sudo || { say "missing: $*; install them as root, or install sudo"; exit 1; }
    sudo=sudo
  fi
  say "missing: $*; asking apt"
  need=$($sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq 2>&1) || { say "apt-get update failed: $need"; exit 1; }
  for name in "$@"; do
    case "$name" in
      libclang) packages+=("$(libclang_package)") ;;
      java) packages+=("$(first_package openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless)") ;;
      *) packages+=("$name") ;;
    esac
  done
  say "apt-get install ${packages[*]}"
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
}

rust_or_stop() {
  have cargo || { say "no cargo found: install Rust 1.95 or newer from https://rustup.rs and try again"; exit 1; }
}

# RocksDB's version in Cargo.lock: the part after the plus of librocksdb-sys.
rocksdb_version() {
  awk -F'"' '/^name = "librocksdb-sys"/ { getline; sub(/.*\+/, "", $2); print $2; exit }' "$here/../Cargo.lock"
}

# A RocksDB that was built before is kept under one name in the cache, so that every clone on a machine builds with the same
# settings: Cargo compiles RocksDB anew (minutes) whenever they change.
rocksdb_dir() {
  local version kept offered
  [ "$(uname -sm)" = "Linux x86_64" ] || return 1
  version=$(rocksdb_version)
  [ -n "$version" ] || return 1
  kept=$cache/rocksdb-$version
  offered=${HIGHWATER_ROCKSDB_CACHE:-}/rocksdb-$version/librocksdb.a
  if [ ! -e "$kept/librocksdb.a" ] && [ -e "$offered" ]; then
    mkdir -p "$kept"
    cp "$offered" "$kept/librocksdb.a.part.$$"
    mv "$kept/librocksdb.a.part.$$" "$kept/librocksdb.a"
  fi
  [ -e "$kept/librocksdb.a" ] && echo "$kept"
}

print_env() {
  local headers dir
  echo "export CARGO_TARGET_DIR='${CARGO_TARGET_DIR:-$cache/target}'"
  if [ -z "${LIBCLANG_PATH:-}" ]; then
    dir=$(libclang_dir) || { say "libclang is missing: run make setup"; exit 1; }
    echo "export LIBCLANG_PATH='$dir'"
  fi
  # libclang alone lacks the compiler's own headers (stddef.h); gcc's serve.
  headers=$(gcc -print-file-name=include)
  if [ -z "${BINDGEN_EXTRA_CLANG_ARGS:-}" ] && [ -e "$headers/stddef.h" ]; then
    echo "export BINDGEN_EXTRA_CLANG_ARGS='-I$headers'"
  fi
  if [ -n "${ROCKSDB_LIB_DIR:-}" ]; then
    say "RocksDB: linking the one in $ROCKSDB_LIB_DIR (ROCKSDB_LIB_DIR is set)"
  elif dir=$(rocksdb_dir); then
    say "RocksDB: linking the one built before, in $dir"
    echo "export ROCKSDB_LIB_DIR='$dir' ROCKSDB_STATIC=1"
  else
    say "RocksDB: compiled from source; the first build takes some 20 minutes more on 2 cores"
  fi
}

case "${1:-}" in
  build)
    rust_or_stop
    install $(missing_for_build) ;;
  test)
    rust_or_stop
    install $(missing_for_build) $(missing_for_test)
    drivers
    "$here/kafka/broker" fetch ;;
  env) print_env ;;
  *) sed -n '2,5p' "$0" | cut -c 3-; exit 2 ;;
esac
