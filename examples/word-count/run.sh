#!/usr/bin/env bash
# Builds cofferdam and the example's operators, counts the words of the text, and prints the ten most frequent ones.
# Needs Rust (cargo) and a C compiler; on Debian it installs the compiler if there is none and apt may be used.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v cc >/dev/null; then
  echo "run.sh: installing a C compiler" >&2
  apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null
fi
cargo build --release --bin cofferdam
target/release/cofferdam run "$@" examples/word-count/pipeline.toml
echo "the ten most frequent words:"
# The rows are running counts: a word's result is its largest. Everything is read to its end: a closed pipe is an error here.
cat examples/word-count/out/*.txt |
  awk -F'\t' '$2 > n[$1] { n[$1] = $2 } END { for (w in n) printf "%8d %s\n", n[w], w }' | sort -rn | awk 'NR <= 10'
