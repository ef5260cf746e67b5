#!/bin/sh
# The load of docker-compose.yml's profile demo: streamed chat completions of the models sim-*, four at a time at most,
# with prompts of many lengths and now and then a request that ends badly. POSIX sh and curl.
#
# BASE_URL: where, with /v1. ROUNDS: how many requests each of the four clients makes; 0, the default, has no end.
set -u
base_url=${BASE_URL:-http://127.0.0.1:8484/v1}
rounds=${ROUNDS:-0}

# ask MODEL WORDS CHARACTER [SECONDS]: one request; after SECONDS the client hangs up.
ask() {
    curl --silent --no-buffer --output /dev/null --max-time "${4:-60}" "$base_url/chat/completions" \
        --header 'content-type: application/json' --header "x-sim: $3" --data @- <<JSON
{"model": "$1", "stream": true, "stream_options": {"include_usage": true},
 "messages": [{"role": "user", "content": "$(seq -s ' ' "$2")"}]}
JSON
}

# One in six requests, each in another way.
bad() {
    case $(($1 / 6 % 6)) in
        0) ask sim-steady 20 tokens=400,itl_ms=20 1 ;;      # the client hangs up
        1) ask sim-bursty 20 status=429,ttft_ms=30 ;;
        2) ask sim-bursty 20 tokens=20,end=truncate ;;
        3) ask sim-steady 20 status=500,ttft_ms=80 ;;
        4) ask sim-bursty 20 tokens=40,error_after=15 ;;
        5) ask sim-steady 20 tokens=30,end=rst ;;
    esac
}

client() {
    number=$1
    round=0
    while [ "$rounds" -eq 0 ] || [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        turn=$((round + 6 * number))                        # each client at another place of the same cycle
        words=$((8 << (turn * 5 % 9)))                      # 8 to 2,048
        if [ $((turn % 6)) -eq 0 ]; then
            bad "$turn"
        elif [ $((turn % 3)) -eq 0 ]; then
            # Eight events leave together, then nothing for a third of a second.
            ask sim-bursty "$words" \
                "ttft_ms=$((250 + words / 2)),itl_ms=40,events_per_write=8,tokens=$((32 + turn % 5 * 16))"
        else
            ask sim-steady "$words" \
                "ttft_ms=$((90 + words / 8)),itl_ms=$((15 + turn % 4)),tokens=$((48 + turn % 7 * 12))"
        fi
        # Also while nobody answers: no busy loop.
        [ "$round" -eq "$rounds" ] || sleep "$number"
    done
}

for number in 1 2 3 4; do
    client "$number" &
done
wait
