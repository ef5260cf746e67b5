#!/usr/bin/env bash
# Counts what one event costs the observer, in instructions and allocations, by the difference between 1,000 and 11,000
# events. Counts are the same on a busy machine as on a quiet one, which times are not. Wants valgrind.
#
# Fails when an event of the common kind allocates.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v valgrind >/dev/null || { echo "valgrind is missing; install Debian's package valgrind" >&2; exit 1; }

# rustix reads the clock without libc by default, from a page that valgrind hides.
build=(cargo bench --locked --features rustix/use-libc --bench observe --no-run --message-format json)
bench=$("${build[@]}" | sed -n 's/.*"name":"observe".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
[[ -x $bench ]] || { echo "the bench was not built" >&2; exit 1; }

# Runs the bench under valgrind with the given arguments; prints the number that follows the given words.
count() {
    local words=$1 report
    shift
    report=$(valgrind "$@" 2>&1) || { echo "$report" >&2; return 1; }
    sed -n "s/.*$words *\([0-9,]*\).*/\1/p" <<<"$report" | tr -d ,
}
instructions() { count "Collected :" --tool=callgrind --callgrind-out-file=/dev/null "$bench" --passes "$@"; }
allocations() { count "total heap usage:" --tool=memcheck --leak-check=no "$bench" --passes "$@"; }

for dialect in chat messages responses; do
    few=$(instructions 1000 "$dialect") many=$(instructions 11000 "$dialect")
    echo "$dialect: instructions per event: $(((many - few) / 10000))"
    few=$(allocations 1000 "$dialect") many=$(allocations 11000 "$dialect")
    echo "$dialect: allocations for 10,000 events more: $((many - few))"
    # A start differs from the next by a few; an allocation per event would be ten thousand.
    ((many - few < 100)) || { echo "an event of the common kind must not allocate" >&2; exit 1; }
done
