#!/bin/sh
# Sends messages with a delay, using only Kafka's console producer or kcat: the delay is a header.
#
#   examples/from_the_shell.sh kafka-console-producer.sh --bootstrap-servers 127.0.0.1:9092 --target orders
#   examples/from_the_shell.sh kcat --bootstrap-servers 127.0.0.1:9092 --target orders
#
# Sends two messages with the same key to the target, which must exist. They are due after two seconds and after one
# second, so the message that is sent second arrives first.
set -eu

producer=${1:-}
[ $# -eq 0 ] || shift
servers=127.0.0.1:9092 intake=tarry.delayed target=orders
while [ $# -gt 1 ]; do
  case $1 in
    --bootstrap-servers) servers=$2 ;;
    --intake) intake=$2 ;;
    --target) target=$2 ;;
    *) break ;;
  esac
  shift 2
done
[ $# -eq 0 ] || { echo "$0: unknown option: $*" >&2; exit 2; }

case $producer in
  kafka-console-producer.sh)
    # Each line has headers, key and value, separated by tabs. Java's producer keeps the order of a key by default.
    {
      printf 'tarry-target:%s,tarry-delay-ms:2000\tcustomer-1\tsecond\n' "$target"
      printf 'tarry-target:%s,tarry-delay-ms:1000\tcustomer-1\tfirst\n' "$target"
    } | kafka-console-producer.sh --bootstrap-server "$servers" --topic "$intake" \
      --property parse.headers=true --property parse.key=true
    ;;
  kcat)
    # librdkafka needs options to choose partitions as Java's clients do, and to keep the order when it retries.
    send() {
      printf '%s\n' "customer-1=$2" | kcat -P -b "$servers" -t "$intake" -K = \
        -X partitioner=murmur2_random -X enable.idempotence=true -X max.in.flight=1 \
        -H "tarry-target=$target" -H "tarry-delay-ms=$1"
    }
    send 2000 second
    send 1000 first
    ;;
  *)
    echo "usage: $0 kafka-console-producer.sh|kcat [--bootstrap-servers HOST:PORT] [--intake I] [--target T]" >&2
    exit 2
    ;;
esac
echo "sent"
