#!/usr/bin/env bash
# Runs all tests; installs cargo-nextest and a C compiler where they are missing. Arguments go to nextest.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cc >/dev/null; then
  echo "test.sh: installing a C compiler" >&2
  apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null
fi
command -v cargo-nextest >/dev/null || cargo install --locked cargo-nextest
cargo nextest run --workspace "$@"
cargo test --workspace --doc -q
# What they have in common is compiled once.
for guest in examples/*/*/Cargo.toml; do
  CARGO_TARGET_DIR="$PWD/target/guests" cargo test -q --manifest-path "$guest"
done
